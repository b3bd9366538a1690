//! docs/status.md: what is done and what shows it, written from docs/status.toml.

use crate::tables::{Table, parse};
use crate::{Member, members, place};
use serde_json::Value;
use std::path::Path;

/// What the page is written from.
const SOURCE: &str = "docs/status.toml";
/// The page.
pub(crate) const PAGE: &str = "docs/status.md";
/// What a point may be.
const STATES: &[&str] = &["done", "partly", "not done"];
const HEAD: &str = "# Status

Written by `cargo xtask pages` from `docs/status.toml`; do not edit.

A point is *done* when a test, a command or a measured page shows it. Paths begin with the name of a
crate or at the repository's root. Figures stand in the pages under [bench/](../bench/RESULTS.md).
";

/// The texts of a list.
fn texts<'a>(of: &'a Table, key: &str) -> impl Iterator<Item = &'a str> {
    let list = of.get(key).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str)
}

fn tables<'a>(of: &'a Table, key: &str) -> impl Iterator<Item = &'a Table> {
    let list = of.get(key).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_object)
}

fn text<'a>(of: &'a Table, key: &str) -> &'a str {
    of.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The page; or what is wrong with what it is made of.
pub(crate) fn page(root: &Path) -> Result<String, Vec<String>> {
    let source = parse(&root.join(SOURCE)).map_err(|e| vec![e])?;
    let (members, mut findings) = (members(root), Vec::new());
    let mut out = HEAD.to_string();
    for part in tables(&source, "part") {
        out += &format!(
            "\n## {}\n\n| point | state | shown by |\n|---|---|---|\n",
            text(part, "name")
        );
        for point in tables(part, "point") {
            findings.extend(wrong(root, &members, point));
            out += &row(point);
        }
    }
    match findings.is_empty() {
        true => Ok(out),
        false => Err(findings),
    }
}

fn row(point: &Table) -> String {
    let code = |s: &str| format!("`{s}`");
    let link = |s: &str| {
        let name = s.rsplit('/').next().unwrap_or(s);
        format!("[{}](../{s})", name.trim_end_matches(".md"))
    };
    let mut shown: Vec<String> = texts(point, "tests").map(code).collect();
    shown.extend(texts(point, "commands").map(code));
    shown.extend(texts(point, "pages").map(link));
    let state = match text(point, "lacks") {
        "" => text(point, "state").to_string(),
        lacks => format!("{}; {lacks}", text(point, "state")),
    };
    let shown = if shown.is_empty() {
        "–".into()
    } else {
        shown.join(", ")
    };
    format!("| {} | {state} | {shown} |\n", text(point, "what"))
}

/// What is wrong with a point.
fn wrong(root: &Path, members: &[Member], point: &Table) -> Vec<String> {
    let what = text(point, "what");
    let mut findings = Vec::new();
    if what.is_empty() || !STATES.contains(&text(point, "state")) {
        findings.push(format!(
            "{SOURCE}: the point '{what}' needs a text `what`, and a `state` of {}",
            STATES.join(", ")
        ));
    }
    let shown = ["tests", "commands", "pages"];
    if text(point, "state") != "not done" && shown.iter().all(|k| texts(point, k).count() == 0) {
        findings.push(format!("{SOURCE}: nothing shows the point '{what}'"));
    }
    // FILE::FUNCTION names one test of a file.
    for test in texts(point, "tests") {
        let (file, function) = test.split_once("::").unwrap_or((test, ""));
        let path = place(root, members, file);
        let has = |f: &str| {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            f.is_empty() || text.contains(&format!("fn {f}("))
        };
        if !path.exists() || !has(function) {
            findings.push(format!(
                "{SOURCE}: the point '{what}' names the test {test}, which does not exist"
            ));
        }
    }
    for page in texts(point, "pages").filter(|p| !root.join(p).is_file()) {
        findings.push(format!(
            "{SOURCE}: the point '{what}' names the page {page}, which does not exist"
        ));
    }
    findings
}

/// Findings: docs/status.md is not what docs/status.toml says, or that names what does not exist.
pub fn status(root: &Path) -> Vec<String> {
    match page(root) {
        Err(findings) => findings,
        Ok(page) => match std::fs::read_to_string(root.join(PAGE)) {
            Ok(old) if old == page => vec![],
            _ => vec![format!("{PAGE} is out of date; run `cargo xtask pages`")],
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_follows_from_its_points() {
        let dir = std::env::temp_dir().join(format!("xtask-status-{}", std::process::id()));
        for folder in ["docs", "crates/model/graph/tests"] {
            std::fs::create_dir_all(dir.join(folder)).unwrap();
        }
        let write = |path: &str, text: &str| std::fs::write(dir.join(path), text).unwrap();
        write("crates/model/graph/Cargo.toml", "");
        write("crates/model/graph/tests/a.rs", "fn b() {}\n");
        let point = |test: &str| {
            format!(
                "[[part]]\nname = \"P\"\n[[part.point]]\nwhat = \"w\"\nstate = \"partly\"\nlacks = \"l\"\ntests = [\"{test}\"]\n"
            )
        };
        write(SOURCE, &point("graph/tests/a.rs::b"));
        assert_eq!(
            status(&dir),
            ["docs/status.md is out of date; run `cargo xtask pages`"]
        );
        let commands = "docs/commands.md";
        assert!(crate::write_pages(&dir, "").unwrap_err()[0].contains(commands));
        write(
            commands,
            "a\n<!-- commands: from the help -->\nold\n<!-- end -->\nb\n",
        );
        let written = crate::write_pages(&dir, "new\n").unwrap();
        // The failed turn before wrote the other page.
        assert_eq!(written, [commands]);
        let page = std::fs::read_to_string(dir.join(commands)).unwrap();
        assert_eq!(
            page,
            "a\n<!-- commands: from the help -->\nnew\n<!-- end -->\nb\n"
        );
        assert_eq!(status(&dir), Vec::<String>::new());
        let page = std::fs::read_to_string(dir.join(PAGE)).unwrap();
        assert!(page.ends_with("## P\n\n| point | state | shown by |\n|---|---|---|\n| w | partly; l | `graph/tests/a.rs::b` |\n"));
        for gone in ["graph/tests/a.rs::c", "graph/tests/b.rs"] {
            write(SOURCE, &point(gone));
            assert!(status(&dir)[0].contains("does not exist"));
        }
        std::fs::remove_dir_all(dir).unwrap();
    }
}
