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
    let wheel = root.join(WHEEL);
    let lock = wheel.join("Cargo.lock");
    let lock = std::fs::read_to_string(&lock).map_err(|e| format!("{}: {e}", lock.display()))?;
    let used = |package: &str| lock.contains(&format!("name = \"{package}\"\n"));
    let (ours, theirs) = (
        parse(&root.join("Cargo.toml"))?,
        parse(&wheel.join("Cargo.toml"))?,
    );
    let mut findings = Vec::new();
    for name in ["release", "dist"] {
        let of = |manifest: &Table| {
            let mut of = table(manifest, &["profile", name])
                .cloned()
                .unwrap_or_default();
            let packages = of.get_mut("package").and_then(|p| p.as_object_mut());
            if let Some(packages) = packages {
                packages.retain(|package, _| used(package));
            }
            of
        };
        if of(&ours) != of(&theirs) {
            findings.push(format!(
                "{WHEEL}/Cargo.toml: profile {name} is not as in the workspace's Cargo.toml; copy that"
            ));
        }
    }
    Ok(findings)
}
