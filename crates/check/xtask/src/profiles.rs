//! Whether the wheel, which is a workspace of its own, has the profiles of all others, and whether assertions are checked
//! where there are some.

use crate::members;
use crate::sources::{UNSAFE_CRATES, UNSAFE_FILES, crate_of, files};
use crate::tables::{Table, parse, table};
use crate::text::Text;
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

/// Findings: crates with assertions for debugging that everyday builds leave out, and crates with unsafe code of which the
/// profile does not say whether the standard library checks its pointers.
pub fn assertions(root: &Path) -> Vec<String> {
    let manifest = match parse(&root.join("Cargo.toml")) {
        Ok(manifest) => manifest,
        Err(e) => return vec![e],
    };
    let stated = |name: &str| {
        let keys = ["profile", "dev", "package", &format!("shopfloor-{name}")];
        table(&manifest, &keys)?.get("debug-assertions")?.as_bool()
    };
    let members = members(root);
    let mut asserting: Vec<&str> = vec![];
    let sources = files(root);
    for (path, text) in &sources {
        let (name, file) = crate_of(&members, path);
        let words = [concat!("debug_", "assert"), "cfg!(debug_assertions)"];
        let code = Text::new(text).code;
        let asserts = code.iter().any(|l| words.iter().any(|w| l.contains(w)));
        if asserts && file.starts_with("src/") && !asserting.contains(&name) {
            asserting.push(name);
        }
    }
    let left_out = asserting.iter().filter(|n| stated(n) != Some(true));
    let left_out = left_out.map(|n| {
        format!("{n} has assertions for debugging: set its debug-assertions to true in Cargo.toml's profile dev")
    });
    let unsafe_ones = UNSAFE_CRATES
        .iter()
        .chain(UNSAFE_FILES.iter().map(|f| &f.0));
    // The wheel is a workspace of its own.
    let unsaid = unsafe_ones.filter(|n| **n != "python" && stated(n).is_none());
    let unsaid = unsaid.map(|n| {
        format!(
            "{n} has unsafe code: say in Cargo.toml's profile dev what its debug-assertions are"
        )
    });
    left_out.chain(unsaid).collect()
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
