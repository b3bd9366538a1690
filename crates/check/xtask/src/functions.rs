//! The check of how long functions are.

use crate::text::{Text, words};
use std::path::Path;

/// Most lines a Rust function may have.
const MAX_LINES: usize = 100;

/// Findings: Rust functions that are too long.
pub fn function_sizes(root: &Path) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, source) in crate::documents::files(root, ".rs") {
        for (line, name, n) in functions(&Text::new(&source)) {
            if n > MAX_LINES {
                findings.push(format!(
                    "{path}:{line}: the function {name} has {n} lines; split it, {MAX_LINES} are the most"
                ));
            }
        }
    }
    findings
}

/// Functions with a body: the line (from 1) of each, its name and its lines from `fn` to the brace that
/// ends it.
fn functions(text: &Text) -> Vec<(usize, String, usize)> {
    let mut found = Vec::new();
    for (k, line) in text.code.iter().enumerate() {
        for (_, after) in words(line).into_iter().filter(|(w, _)| *w == "fn") {
            let name: String = after
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_' || *c == '$')
                .collect();
            // A type such as `fn(u8)` names no function.
            if name.is_empty() {
                continue;
            }
            let from = line.len() - after.len();
            if let Some(end) = body_end(&text.code, k, from) {
                found.push((k + 1, name, end - k + 1));
            }
        }
    }
    found
}

/// The line on which the body of a function ends that is named at `from` of line `start`; none where it
/// has no body.
fn body_end(code: &[String], start: usize, from: usize) -> Option<usize> {
    let (mut depth, mut brackets) = (0i32, 0i32);
    for (k, line) in code.iter().enumerate().skip(start) {
        for c in line[if k == start { from } else { 0 }..].chars() {
            match c {
                '(' | '[' => brackets += 1,
                ')' | ']' => brackets -= 1,
                '{' => depth += 1,
                '}' => {
                    depth -= 1;
                    if depth <= 0 {
                        return Some(k);
                    }
                }
                ';' if depth == 0 && brackets == 0 => return None,
                _ => {}
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_measured() {
        let text = "trait T {\n    fn a(x: [u8; 4]);\n    fn b() {\n        1\n    }\n}\ntype F = fn(u8) -> u8;\nfn c(\n) {\n    fn d() {}\n    let s = \"}\";\n}\n";
        let found = functions(&Text::new(text));
        let short: Vec<(usize, &str, usize)> =
            found.iter().map(|(l, n, c)| (*l, n.as_str(), *c)).collect();
        assert_eq!(short, [(3, "b", 3), (8, "c", 5), (10, "d", 1)]);
    }

    #[test]
    fn long_functions_are_found() {
        let dir = std::env::temp_dir().join(format!("xtask-functions-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("crates/model/graph/src")).unwrap();
        let long = "\n".repeat(MAX_LINES);
        let text = format!("fn f() {{}}\nfn g() {{{long}}}\n");
        std::fs::write(dir.join("crates/model/graph/src/lib.rs"), text).unwrap();
        let found = function_sizes(&dir);
        let begin = "crates/model/graph/src/lib.rs:2: the function g has 101 lines;";
        assert!(found.len() == 1 && found[0].starts_with(begin), "{found:?}");
        std::fs::remove_dir_all(dir).unwrap();
    }
}
