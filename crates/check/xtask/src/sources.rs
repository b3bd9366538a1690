//! Checks of the Rust files.

use crate::text::{Text, words};
use crate::{Member, members};
use std::path::Path;

/// Crates whose code may be unsafe.
pub(crate) const UNSAFE_CRATES: &[&str] = &[
    "workers",
    "device",
    "microkernels",
    "cpu",
    "cuda",
    "webgpu",
    "ptx-emulator",
    "capi",
    "onnxruntime-plugin",
];
/// Files of other crates that may, by crate: there the crate denies unsafe code and the file allows it.
pub(crate) const UNSAFE_FILES: &[(&str, &str)] = &[
    ("onnx", "src/mapped.rs"),
    ("tensor", "src/elements.rs"),
    ("python", "src/array.rs"),
];
/// How far above an unsafe block its reason may start, in lines.
const REASON_ABOVE: usize = 10;

/// Rust files below `root`.
pub(crate) fn files(root: &Path) -> Vec<(String, String)> {
    crate::documents::files(root, ".rs")
}

/// The crate that a path lies in, and the path inside it.
pub(crate) fn crate_of<'a>(members: &'a [Member], path: &'a str) -> (&'a str, &'a str) {
    let inside = |m: &'a Member| {
        let rest = path.strip_prefix(m.folder.as_str())?;
        Some((m.name.as_str(), rest.strip_prefix('/')?))
    };
    members.iter().find_map(inside).unwrap_or(("", path))
}

/// Findings: unsafe code where none may be.
pub fn unsafe_places(root: &Path) -> Vec<String> {
    let (mut findings, members) = (Vec::new(), members(root));
    for (path, text) in files(root) {
        let (name, file) = crate_of(&members, &path);
        if UNSAFE_CRATES.contains(&name) || UNSAFE_FILES.contains(&(name, file)) {
            continue;
        }
        for (k, line) in Text::new(&text).code.iter().enumerate() {
            if words(line).iter().any(|(w, _)| *w == "unsafe") {
                findings.push(format!(
                    "{path}:{} is unsafe; only {} may hold such code",
                    k + 1,
                    UNSAFE_CRATES.join(", ")
                ));
            }
        }
    }
    findings
}

/// Findings: crates that may not be unsafe but do not forbid it.
pub fn forbid_lines(root: &Path) -> Vec<String> {
    let mut findings = Vec::new();
    for member in members(root)
        .iter()
        .filter(|m| !UNSAFE_CRATES.contains(&m.name.as_str()))
    {
        let word = if UNSAFE_FILES.iter().any(|(c, _)| *c == member.name) {
            "deny"
        } else {
            "forbid"
        };
        let line = format!("#![{word}(unsafe_code)]");
        let src = root.join(&member.folder).join("src");
        let bins = std::fs::read_dir(src.join("bin"))
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.path());
        for path in [src.join("lib.rs"), src.join("main.rs")]
            .into_iter()
            .chain(bins)
            .filter(|p| p.is_file())
        {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            if !Text::new(&text).code.iter().any(|l| l.trim() == line) {
                let path = path.strip_prefix(root).unwrap_or(&path);
                findings.push(format!("{} lacks the line {line}", path.display()));
            }
        }
    }
    findings
}

/// Findings: unsafe blocks and functions outside tests that do not say why they are sound.
pub fn safety_comments(root: &Path) -> Vec<String> {
    let in_tests = |path: &str| path.contains("/tests/") || path.ends_with("/tests.rs");
    files(root)
        .into_iter()
        .filter(|(path, _)| !in_tests(path))
        .flat_map(|(path, text)| {
            unexplained(&text).into_iter().map(move |(line, what)| {
                format!("{path}:{line}: the unsafe {what} does not say why it is sound; add a comment SAFETY: or docs # Safety")
            })
        })
        .collect()
}

/// Lines (from 1) of unsafe code without a reason, and what they hold.
fn unexplained(source: &str) -> Vec<(usize, &'static str)> {
    let text = Text::new(source);
    let for_tests = text.test_lines();
    let reason = |line: usize| {
        text.comments[line].contains("SAFETY:") || text.comments[line].contains("# Safety")
    };
    // Docs and attributes of any length may stand between a reason and the name it is about.
    let above = |line: usize| {
        let mark = |i: &usize| {
            let code = text.code[*i].trim();
            !text.comments[*i].is_empty() || code.starts_with("#[") || code.starts_with(")]")
        };
        (0..line).rev().take_while(mark).any(reason)
    };
    // A contract stated once for a trait, an implementation, a module or the whole file holds for
    // the functions in it.
    let of_file = text.comments.iter().any(|c| c.starts_with("//! # Safety"));
    let mut found = Vec::new();
    for (k, line) in text.code.iter().enumerate().filter(|(k, _)| !for_tests[*k]) {
        for (_, after) in words(line).into_iter().filter(|(w, _)| *w == "unsafe") {
            let next = words(after).first().map_or("", |(w, _)| *w);
            let what = match next {
                // A type, not code.
                "fn" | "extern" if is_pointer_type(after) => continue,
                "fn" => "function",
                "extern" if after.contains(" fn ") => "function",
                "trait" => "trait",
                "impl" if after.starts_with("impl") => "impl",
                // `#[unsafe(no_mangle)]`: that the name is nobody else's.
                "no_mangle" => "attribute",
                _ => "block",
            };
            let near = (k.saturating_sub(REASON_ABOVE)..=k).any(reason);
            let contract = match what {
                "function" => of_file || enclosing(&text, k).into_iter().any(above),
                "attribute" => of_file,
                _ => false,
            };
            if !near && !contract && !above(k) {
                found.push((k + 1, what));
            }
        }
    }
    found
}

/// Lines on which the items start that hold `line`, innermost first, going by indentation.
fn enclosing(text: &Text, line: usize) -> Vec<usize> {
    let indent = |i: usize| text.code[i].len() - text.code[i].trim_start().len();
    let (mut found, mut limit) = (Vec::new(), indent(line));
    for i in (0..line).rev() {
        if !text.code[i].trim().is_empty() && indent(i) < limit {
            limit = indent(i);
            found.push(i);
        }
    }
    found
}

/// True for `fn(..)` and `extern "C" fn(..)`: names no function.
fn is_pointer_type(after: &str) -> bool {
    words(after)
        .iter()
        .find(|(w, _)| *w == "fn")
        .is_some_and(|(_, rest)| rest.starts_with('('))
}

/// Findings: macros and marks of unfinished work, and tests that are switched off.
pub fn leftovers(root: &Path) -> Vec<String> {
    // Put together here, so that this file does not hold what it looks for.
    let marks = ["FIX", "TO"].map(|a| format!("{a}{}", if a == "TO" { "DO" } else { "ME" }));
    let mut findings = Vec::new();
    for (path, source) in files(root) {
        let text = Text::new(&source);
        for (k, line) in text.code.iter().enumerate() {
            let words = words(line);
            if let Some((w, _)) = words
                .iter()
                .find(|(w, after)| matches!(*w, "todo" | "unimplemented") && after.starts_with('!'))
            {
                findings.push(format!(
                    "{path}:{} calls {w}!; write it or return an error",
                    k + 1
                ));
            }
            if line.replace(' ', "").contains("#[ignore") {
                findings.push(format!(
                    "{path}:{} switches a test off; make it run or remove it",
                    k + 1
                ));
            }
            if let Some(mark) = marks.iter().find(|m| text.comments[k].contains(m.as_str())) {
                findings.push(format!(
                    "{path}:{} says {mark}; do it, or say what is and why",
                    k + 1
                ));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_looked_for() {
        let bare = "fn f() {\n    unsafe { g() }\n}\nunsafe fn h() {}\nunsafe impl Send for A {}\n";
        assert_eq!(
            unexplained(bare),
            [(2, "block"), (4, "function"), (5, "impl")]
        );
        let said = "fn f() {\n    // SAFETY: g has no conditions.\n    unsafe { g() }\n}\n";
        assert_eq!(unexplained(said), []);
        let docs =
            "/// Does.\n///\n/// # Safety\n/// Only on Sundays.\n#[inline]\npub unsafe fn h() {}\n";
        assert_eq!(unexplained(docs), []);
        let named = "#[unsafe(no_mangle)]\nfn f() {}\n";
        assert_eq!(unexplained(named), [(1, "attribute")]);
        let whole = format!("//! # Safety\n//! The name is ours.\n\n{named}");
        assert_eq!(unexplained(&whole), []);
        assert_eq!(
            unexplained("type F = unsafe fn(u8);\ntype G = unsafe extern \"C\" fn(u8);\n"),
            []
        );
        assert_eq!(
            unexplained("#[cfg(test)]\nmod tests {\n  fn f() { unsafe { g() } }\n}\n"),
            []
        );
    }

    #[test]
    fn findings_name_file_and_line() {
        let dir = std::env::temp_dir().join(format!("xtask-{}", std::process::id()));
        // Crates may stand in groups.
        let src = dir.join("crates/model/graph/src");
        std::fs::create_dir_all(&src).unwrap();
        std::fs::write(dir.join("crates/model/graph/Cargo.toml"), "").unwrap();
        let text = format!(
            "fn f() {{ unsafe {{}} }}\n#[ignore]\nfn g() {{ todo!() }}\n// FIX{}\n",
            "ME"
        );
        std::fs::write(src.join("lib.rs"), text).unwrap();
        assert!(unsafe_places(&dir)[0].starts_with("crates/model/graph/src/lib.rs:1 "));
        assert_eq!(forbid_lines(&dir).len(), 1);
        assert_eq!(safety_comments(&dir).len(), 1);
        assert_eq!(leftovers(&dir).len(), 3);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
