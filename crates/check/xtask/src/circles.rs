//! The check that files of a crate do not use each other in circles.

use crate::uses::{Edges, Modules};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

/// Most files in a circle: two may be halves of one thing.
const MAX_FILES: usize = 2;

/// Findings: circles of more than two files in a crate.
pub fn circles(root: &Path) -> Vec<String> {
    let mut findings = Vec::new();
    let members = crate::members(root);
    for member in members {
        let src = root.join(&member.folder).join("src");
        let bins = std::fs::read_dir(src.join("bin")).into_iter().flatten();
        let bins = bins
            .flatten()
            .flat_map(|e| [e.path(), e.path().join("main.rs")]);
        let roots = bins.chain([src.join("lib.rs"), src.join("main.rs")]);
        for file in roots.filter(|p| p.is_file()) {
            let mut modules = Modules::default();
            modules.read(&src, &file, "crate");
            let edges = modules.edges();
            findings.extend(components(&edges).iter().map(|files| {
                let (n, all, one) = (files.len(), files.join(", "), shortest(&edges, files));
                let folder = &member.folder;
                format!("{folder}/src: {n} files use each other: {all}; move what both sides need below both, first of {one}")
            }));
        }
    }
    findings
}

/// Files that a file reaches; itself only on a circle.
fn reached<'a>(edges: &'a Edges, from: &'a str) -> BTreeSet<&'a str> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(file) = open.pop() {
        let next = edges.get(file).into_iter().flat_map(BTreeMap::keys);
        open.extend(next.map(String::as_str).filter(|to| seen.insert(*to)));
    }
    seen
}

/// Sets of more than [`MAX_FILES`] files of which each reaches every other.
fn components(edges: &Edges) -> Vec<Vec<&str>> {
    let mut found = BTreeSet::new();
    for from in edges.keys() {
        let back = |to: &&str| reached(edges, to).contains(from.as_str());
        found.insert(reached(edges, from).into_iter().filter(back).collect());
    }
    let large = |files: &Vec<&str>| files.len() > MAX_FILES;
    found.into_iter().filter(large).collect()
}

/// The shortest circle among `files`, of more than two where there is one, with the names taken.
fn shortest(edges: &Edges, files: &[&str]) -> String {
    let mut ways: VecDeque<Vec<&str>> = files.iter().map(|f| vec![*f]).collect();
    let mut best = vec![];
    while let Some(way) = ways.pop_front().filter(|_| best.len() <= MAX_FILES) {
        let next = edges[way[way.len() - 1]].keys().map(String::as_str);
        for to in next.filter(|t| files.contains(t)) {
            if to == way[0] && (best.is_empty() || way.len() > MAX_FILES) {
                best = way.clone();
            } else if !way.contains(&to) {
                ways.push_back([way.as_slice(), &[to]].concat());
            }
        }
    }
    let mut text = best[0].to_string();
    for (from, to) in best.iter().zip(best.iter().skip(1).chain(&best[..1])) {
        let names: Vec<&str> = edges[*from][*to].iter().map(String::as_str).collect();
        text += &format!(" -> {to} ({})", names.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_are_found_through_re_exports_and_not_in_tests() {
        let dir = std::env::temp_dir().join(format!("xtask-circles-{}", std::process::id()));
        let src = dir.join("crates/model/layout/src");
        std::fs::create_dir_all(src.join("a")).unwrap();
        std::fs::write(dir.join("crates/model/layout/Cargo.toml"), "").unwrap();
        let put = |file: &str, text: &str| std::fs::write(src.join(file), text).unwrap();
        put(
            "lib.rs",
            "mod a;\nmod c;\npub use a::{b::{self, B as Also}, A};\n",
        );
        put(
            "a.rs",
            "pub mod b;\npub struct A;\nfn f() {\n    crate::c::g::<A>(b::h)\n}\n",
        );
        put(
            "a/b.rs",
            "#[cfg(test)]\nuse crate::c::g;\npub struct B;\npub fn h() {}\n",
        );
        put("c.rs", "use crate::{A, Also};\npub fn g<T>() {}\n");
        // Two files may.
        assert_eq!(circles(&dir), Vec::<String>::new());
        put(
            "a/b.rs",
            "pub struct B(super::super::c::C);\npub fn h() {}\n",
        );
        let found = circles(&dir);
        let text = "crates/model/layout/src: 3 files use each other: a.rs, a/b.rs, c.rs;";
        assert!(found.len() == 1 && found[0].starts_with(text), "{found:?}");
        let circle = "a.rs -> a/b.rs (h) -> c.rs (C) -> a.rs (A)";
        assert!(found[0].ends_with(circle), "{found:?}");
        std::fs::remove_dir_all(dir).unwrap();
    }
}
