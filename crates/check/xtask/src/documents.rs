//! Checks of all documents: lengths, commits, links.

use std::path::{Path, PathBuf};

/// Most words of a document, code blocks left out.
const MAX_WORDS: usize = 2500;
/// Most words of a table's cell.
const MAX_CELL: usize = 25;
/// The list of operators, which a command writes: it is as long as there are operators.
const GENERATED: &[&str] = &["docs/operators.md"];
/// What holds measurements, or lists what changed: as long as there is something to say.
const LISTS: &[&str] = &["bench/", "CHANGELOG.md"];
/// The present state of measurements, by subject; it links the pages of past ones.
const RESULTS: &str = "bench/RESULTS.md";
/// The pages under `bench/` that people write. A command's page says what it measured, and the history
/// which commits its measurements were of.
const BY_HAND: &[&str] = &[RESULTS];
/// Where past measurements are, a page for each day.
const HISTORY: &str = "bench/history/";

/// Markdown files below `root`.
pub(crate) fn documents(root: &Path) -> Vec<(String, String)> {
    files(root, ".md")
}

/// Files below `root` whose names end so, with paths relative to it, sorted; build folders and hidden ones
/// left out.
pub(crate) fn files(root: &Path, ending: &str) -> Vec<(String, String)> {
    let (mut found, mut open) = (Vec::new(), vec![root.to_path_buf()]);
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if path.is_dir() {
                // What cargo builds; a group of crates has that name too.
                let built =
                    name == "target" && (folder == root || folder.join("Cargo.toml").is_file());
                if !built && !name.starts_with('.') {
                    open.push(path);
                }
            } else if name.ends_with(ending) {
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                found.push((relative(root, &path), text));
            }
        }
    }
    found.sort();
    found
}

fn relative(root: &Path, path: &Path) -> String {
    let path = path.strip_prefix(root).unwrap_or(path);
    path.to_string_lossy().replace('\\', "/")
}

/// Lines of a document with their numbers (from 1), those of code blocks left out.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(k, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((k + 1, line))
    })
}

/// Words of a text; bars of tables are none.
fn words(text: &str) -> usize {
    let is_word = |w: &&str| w.chars().any(char::is_alphanumeric);
    text.split_whitespace().filter(is_word).count()
}

/// Findings: documents and cells of their tables that are too long. What a command writes, what stands
/// under `bench/` and the changelog may be as long as they are.
pub fn lengths(root: &Path) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in documents(root) {
        let list = LISTS.iter().any(|l| path.starts_with(l));
        if list || GENERATED.contains(&path.as_str()) {
            continue;
        }
        let all: usize = prose(&text).map(|(_, line)| words(line)).sum();
        if all > MAX_WORDS {
            findings.push(format!(
                "{path} has {all} words; split it by subject or shorten it, {MAX_WORDS} are the most"
            ));
        }
        for (k, line) in prose(&text).filter(|(_, l)| l.starts_with('|')) {
            if let Some(n) = cells(line).map(words).max().filter(|n| *n > MAX_CELL) {
                findings.push(format!(
                    "{path}:{k}: a cell of the table has {n} words; say it in {MAX_CELL}, or below the table"
                ));
            }
        }
    }
    findings
}

/// Cells of a table's row; a bar in backticks or behind a backslash belongs to its cell.
fn cells(row: &str) -> impl Iterator<Item = &str> {
    let (mut code, mut behind) = (false, false);
    row.split(move |c| {
        code ^= c == '`';
        let bar = c == '|' && !code && !behind;
        behind = c == '\\';
        bar
    })
}

/// Findings: commits named in documents that people write. A commit says nothing to a reader, and soon
/// nothing about the code; the changelog and the history of measurements have what changed when.
pub fn commits(root: &Path) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in documents(root) {
        let of_a_command = path.starts_with("bench/") && !BY_HAND.contains(&path.as_str());
        if of_a_command || GENERATED.contains(&path.as_str()) {
            continue;
        }
        for (k, line) in prose(&text) {
            let parts = line.split(|c: char| !c.is_alphanumeric() && c != '.' && c != '_');
            for word in parts.filter(|w| is_commit(w)) {
                findings.push(format!(
                    "{path}:{k} names the commit {word}; say what holds now, and put the past into bench/history/"
                ));
            }
        }
    }
    findings
}

/// True for an abbreviated commit: hexadecimal digits, letters and figures among them.
fn is_commit(word: &str) -> bool {
    (7..=40).contains(&word.len())
        && word.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'))
        && word.chars().any(|c| c.is_ascii_digit())
        && word.chars().any(|c| c.is_ascii_alphabetic())
}

/// Findings: relative links that lead nowhere.
pub fn links(root: &Path) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in documents(root) {
        let folder = Path::new(&path).parent().map(PathBuf::from);
        let folder = root.join(folder.unwrap_or_default());
        for (k, line) in prose(&text) {
            for link in line.split("](").skip(1) {
                let link = link.split([')', '#', ' ']).next().unwrap_or_default();
                let elsewhere = link.is_empty() || link.contains("://");
                if !elsewhere && !folder.join(link).exists() {
                    findings.push(format!("{path}:{k} links to {link}, which does not exist"));
                }
            }
        }
    }
    findings
}

/// Findings: days of past measurements that bench/RESULTS.md does not link.
pub fn history(root: &Path) -> Vec<String> {
    let results = std::fs::read_to_string(root.join(RESULTS)).unwrap_or_default();
    let days = documents(root).into_iter().filter_map(|(path, _)| {
        let name = path.strip_prefix(HISTORY)?.to_string();
        name.starts_with(|c: char| c.is_ascii_digit())
            .then_some(name)
    });
    days.filter(|name| !results.contains(&format!("](history/{name})")))
        .map(|name| format!("{RESULTS} does not link history/{name}; add it under History"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_judged() {
        let dir = std::env::temp_dir().join(format!("xtask-documents-{}", std::process::id()));
        for folder in ["docs", "bench/history", "target"] {
            std::fs::create_dir_all(dir.join(folder)).unwrap();
        }
        let write = |path: &str, text: &str| std::fs::write(dir.join(path), text).unwrap();
        let (cell, long) = ("a ".repeat(26), "a ".repeat(2501));
        write("README.md", &format!("| b | {cell}|\n```\n{long}\n```\n"));
        write(
            "docs/a.md",
            &format!("{long}\n[b](../README.md) [c](none.md#d)\n"),
        );
        write("bench/history/2026-01-01.md", &format!("0a1b2c3 {long}"));
        write(
            "bench/RESULTS.md",
            "at 0a1b2c3, not 1234567, defaced or 1.0a1b2c3d\n",
        );
        assert_eq!(
            history(&dir),
            ["bench/RESULTS.md does not link history/2026-01-01.md; add it under History"]
        );
        write("target/b.md", &long);
        assert_eq!(
            lengths(&dir),
            [
                "README.md:1: a cell of the table has 26 words; say it in 25, or below the table",
                "docs/a.md has 2503 words; split it by subject or shorten it, 2500 are the most",
            ]
        );
        assert_eq!(commits(&dir).len(), 1);
        assert!(commits(&dir)[0].starts_with("bench/RESULTS.md:1 names the commit 0a1b2c3;"));
        assert_eq!(
            links(&dir),
            ["docs/a.md:2 links to none.md, which does not exist"]
        );
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn bars_in_code_are_no_cells() {
        assert_eq!(cells("| `a | b` | c \\| d |").count(), 4);
    }
}
