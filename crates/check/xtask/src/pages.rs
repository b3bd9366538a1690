//! Checks of ARCHITECTURE.md and README.md.

use crate::{Member, crate_names, figures, members, place};
use std::path::Path;

/// Most lines of ARCHITECTURE.md.
const MAX_ARCHITECTURE: usize = 200;
/// Most lines of README.md.
const MAX_README: usize = 120;
/// Most figures in README.md's table.
const MAX_FIGURES: usize = 8;
/// What the table of where to add things must have a row for.
const ADDABLE: &[&str] = &[
    "operator",
    "core op",
    "pass",
    "kernel family",
    "target",
    "machine",
];

fn page(root: &Path, name: &str) -> Result<String, Vec<String>> {
    std::fs::read_to_string(root.join(name)).map_err(|_| {
        vec![format!(
            "{name} is missing at the top of the repository; write it"
        )]
    })
}

fn too_long(name: &str, text: &str, most: usize) -> Vec<String> {
    let lines = text.lines().count();
    let finding = || format!("{name} has {lines} lines; {most} are the most");
    (lines > most).then(finding).into_iter().collect()
}

/// Findings: ARCHITECTURE.md is too long, or does not name a crate.
pub fn architecture(root: &Path) -> Vec<String> {
    let text = match page(root, "ARCHITECTURE.md") {
        Ok(text) => text,
        Err(findings) => return findings,
    };
    let mut findings: Vec<String> = too_long("ARCHITECTURE.md", &text, MAX_ARCHITECTURE);
    let unnamed = |name: &String| {
        !text.contains(&format!("`{name}`")) && !text.contains(&format!("`crates/{name}"))
    };
    findings.extend(
        crate_names(root)
            .iter()
            .filter(|n| unnamed(n))
            .map(|n| format!("ARCHITECTURE.md does not name the crate `{n}`")),
    );
    findings
}

/// Findings: the table under the heading "Where to add ..." of ARCHITECTURE.md lacks a row, or
/// names a place that does not exist.
///
/// Spans in backticks with a slash are paths, from the repository's root or from a crate's name. Where a part of a path is
/// for the reader to choose it is written NAME or *, and the folder before it must exist.
pub fn adding_table(root: &Path) -> Vec<String> {
    let text = match page(root, "ARCHITECTURE.md") {
        Ok(text) => text,
        Err(findings) => return findings,
    };
    let mut lines = text
        .lines()
        .skip_while(|l| !(l.starts_with('#') && l.to_lowercase().contains("where to add")));
    if lines.next().is_none() {
        return vec![
            "ARCHITECTURE.md has no heading 'Where to add ...' with its table; write it".into(),
        ];
    }
    let rows: Vec<&str> = lines
        .take_while(|l| !l.starts_with('#'))
        .filter(|l| l.starts_with('|'))
        .skip(2)
        .collect();
    let (mut findings, members) = (Vec::new(), members(root));
    for what in ADDABLE {
        let is_it = |row: &&str| {
            row.split('|')
                .nth(1)
                .is_some_and(|cell| cell.to_lowercase().contains(what))
        };
        if !rows.iter().any(is_it) {
            findings.push(format!(
                "the table of where to add things has no row for: {what}"
            ));
        }
    }
    for row in rows {
        let what = row.split('|').nth(1).unwrap_or_default().trim();
        let paths: Vec<&str> = row
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|s| s.contains('/'))
            .collect();
        if paths.is_empty() {
            findings.push(format!(
                "the row '{what}' of the table of where to add things names no path"
            ));
        }
        for path in paths.iter().filter(|p| !exists(root, &members, p)) {
            findings.push(format!("the row '{what}' of the table of where to add things names {path}, which does not exist"));
        }
    }
    findings
}

/// True when `path` is there, up to the part that the reader chooses.
fn exists(root: &Path, members: &[Member], path: &str) -> bool {
    let chosen = |part: &str| part.contains("NAME") || part.contains('*') || part.contains('<');
    let fixed: Vec<&str> = path.split('/').take_while(|part| !chosen(part)).collect();
    let outside = fixed.contains(&"..") || path.starts_with('/');
    !outside && !fixed.is_empty() && place(root, members, &fixed.join("/")).exists()
}

/// Findings: README.md is too long or has too many figures, or one of its first two `sh` blocks is not
/// a single line that starts with `cargo`.
pub fn readme(root: &Path) -> Vec<String> {
    let text = match page(root, "README.md") {
        Ok(text) => text,
        Err(findings) => return findings,
    };
    let mut blocks: Vec<Vec<&str>> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim() == "```sh" {
            blocks.push(lines.by_ref().take_while(|l| l.trim() != "```").collect());
        }
    }
    let mut findings = too_long("README.md", &text, MAX_README);
    let rows = figures::taken_rows(&text);
    if rows > MAX_FIGURES {
        findings.push(format!(
            "README.md shows {rows} figures; {MAX_FIGURES} are the most, the others stand in bench/RESULTS.md"
        ));
    }
    let blocks = (0..2)
        .filter(|&k| {
            !blocks
                .get(k)
                .is_some_and(|b| b.len() == 1 && b[0].starts_with("cargo "))
        })
        .map(|k| {
            format!(
                "sh block {} of README.md is not a single line that starts with cargo",
                k + 1
            )
        });
    findings.extend(blocks);
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_judged() {
        let dir = std::env::temp_dir().join(format!("xtask-pages-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("crates/model/graph")).unwrap();
        std::fs::write(dir.join("crates/model/graph/Cargo.toml"), "").unwrap();
        for check in [architecture, adding_table, readme] {
            assert!(check(&dir)[0].contains("is missing"));
        }
        let rows = |place: &str| {
            let all = [
                "an ONNX operator",
                "a core op",
                "a pass",
                "a kernel family",
                "a target",
                "a machine",
            ];
            let rows: String = all
                .iter()
                .map(|a| format!("| {a} | `{place}` |\n"))
                .collect();
            format!(
                "# A\n`graph`\n## Where to add things\n\n| what | where |\n|---|---|\n{rows}\n## B\n"
            )
        };
        let write = |text: &str| std::fs::write(dir.join("ARCHITECTURE.md"), text).unwrap();
        write(&rows("graph/NAME.rs"));
        assert_eq!((architecture(&dir), adding_table(&dir)), (vec![], vec![]));
        write(&rows("grph/NAME.rs"));
        assert_eq!(adding_table(&dir).len(), 6);
        write(&rows("graph"));
        assert!(adding_table(&dir)[0].contains("names no path"));
        write(&rows("graph/Cargo.toml").replace("a pass", "a path"));
        assert!(adding_table(&dir)[0].contains("no row for: pass"));
        write(&format!("# A\n{}", "\n".repeat(300)));
        assert_eq!((architecture(&dir).len(), adding_table(&dir).len()), (2, 1));
        let readme_is = |text: &str| {
            std::fs::write(dir.join("README.md"), text).unwrap();
            readme(&dir).len()
        };
        assert_eq!(
            readme_is("a\n```sh\ncargo run\n```\nb\n```sh\ncargo test\n```\n```sh\nls\n```\n"),
            0
        );
        assert_eq!(readme_is("```sh\ncargo run\n```\n```sh\nls\n```\n"), 1);
        assert_eq!(readme_is("```sh\ncargo run\ncargo test\n```\n"), 2);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
