//! Whether the wheel, which is a workspace of its own, has the profiles of all others.

use crate::tables::{Table, parse, table};
use std::path::Path;

/// The wheel's folder.
const WHEEL: &str = "crates/use/python";

/// Findings: settings of the profiles for what is handed out that the two workspaces do not share.
pub fn profiles(root: &Path) -> Vec<String> {
    match compared(root) {
        Ok(findings) => findings,
        Err(e) => vec![e],
    }
}

fn compared(root: &Path) -> Result<Vec<String>, String> {
    let ours = parse(&root.join("Cargo.toml"))?;
    let theirs = parse(&root.join(WHEEL).join("Cargo.toml"))?;
    let mut findings = Vec::new();
    for name in ["release", "dist", "dist-unwind"] {
        let parts = |manifest: &Table| {
            let mut of = table(manifest, &["profile", name])
                .cloned()
                .unwrap_or_default();
            let packages = of.remove("package").unwrap_or_default();
            (of, packages)
        };
        let ((ours, packages), (theirs, own)) = (parts(&ours), parts(&theirs));
        // The wheel is made of fewer packages.
        let own = own.as_object().into_iter().flatten();
        let other = own.filter(|(name, of)| packages.get(*name) != Some(*of));
        let other: Vec<&str> = other.map(|(name, _)| name.as_str()).collect();
        if ours != theirs || !other.is_empty() {
            findings.push(format!(
                "{WHEEL}/Cargo.toml: profile {name} is not as in the workspace's Cargo.toml: {}",
                other.join(", ")
            ));
        }
    }
    Ok(findings)
}
