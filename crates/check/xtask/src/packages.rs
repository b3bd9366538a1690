//! What a program that uses the library takes in.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Packages from outside in the library's default tree at most.
const MOST: usize = 25;

/// Findings: the library brings more packages than it should.
pub fn packages(root: &Path) -> Vec<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let out = Command::new(cargo)
        .args([
            "tree",
            "-p",
            "shopfloor",
            "-e",
            "normal",
            "--prefix",
            "none",
        ])
        .args(["--format", "{p}", "--locked", "--offline"])
        .current_dir(root)
        .output();
    let tree = match out {
        Ok(out) if out.status.success() => String::from_utf8_lossy(&out.stdout).into_owned(),
        Ok(out) => {
            let why = String::from_utf8_lossy(&out.stderr).trim().to_string();
            return vec![format!("`cargo tree` fails; run `cargo fetch`: {why}")];
        }
        Err(e) => return vec![format!("`cargo tree` does not start: {e}")],
    };
    let outside = outside(&tree);
    match outside.len() {
        0..=MOST => vec![],
        n => vec![format!(
            "the library brings {n} packages, and {MOST} are allowed: {}",
            outside.into_iter().collect::<Vec<_>>().join(", ")
        )],
    }
}

/// Names and versions of a tree's packages that are not ours.
fn outside(tree: &str) -> BTreeSet<&str> {
    let packages = tree.lines().map(|l| l.trim_end_matches(" (*)"));
    let ours = |p: &&str| p.starts_with("shopfloor");
    packages.filter(|p| !p.is_empty() && !ours(p)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_counts_once_and_ours_do_not() {
        let tree = "shopfloor v0.2.0 (/a)\nserde v1.0.2\nserde_derive v1.0.2 (proc-macro)\nserde v1.0.2 (*)\nserde_derive v1.0.2 (proc-macro) (*)\n";
        assert_eq!(outside(tree).len(), 2);
    }
}
