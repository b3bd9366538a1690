//! Whether the crates can be published: what their manifests say, and that each has all its files.

use crate::tables::{Table, parse, table};
use crate::{Member, members};
use serde_json::Value;
use std::path::{Component, Path, PathBuf};

/// The group of crates that nobody outside needs.
const UNPUBLISHED: &str = "crates/check/";
/// What a published manifest has, as its own or from the workspace.
const NEEDED: &[&str] = &["version", "description", "license", "repository"];

/// Findings: crates that `cargo publish` would refuse, or that would not build from what it packs.
pub fn publishing(root: &Path) -> Vec<String> {
    let workspace = match parse(&root.join("Cargo.toml")) {
        Ok(t) => t,
        Err(e) => return vec![e],
    };
    let of = |keys: &[&str]| table(&workspace, keys).cloned().unwrap_or_default();
    let shared = of(&["workspace", "dependencies"]);
    let version = of(&["workspace", "package"]).get("version").cloned();
    let mut findings = unpinned(&shared, &version);
    for member in members(root) {
        let manifest = match parse(&root.join(&member.folder).join("Cargo.toml")) {
            Ok(t) => t,
            Err(e) => {
                findings.push(e);
                continue;
            }
        };
        let package = table(&manifest, &["package"]).cloned().unwrap_or_default();
        let published = package.get("publish") != Some(&Value::Bool(false));
        let at = format!("{}/Cargo.toml", member.folder);
        match (published, member.folder.starts_with(UNPUBLISHED)) {
            (true, true) => findings.push(format!("{at} lacks publish = false")),
            (false, false) => findings.push(format!("{at} must not have publish = false")),
            (false, true) => {}
            (true, false) => {
                let lacks = NEEDED.iter().filter(|k| !package.contains_key(**k));
                findings.extend(lacks.map(|k| format!("{at} lacks {k}")));
                findings.extend(without_versions(&at, &manifest, &shared));
                findings.extend(outside(root, &member));
            }
        }
    }
    findings
}

/// The workspace's own crates that are published and not pinned to its version: they change together.
fn unpinned(shared: &Table, version: &Option<Value>) -> Vec<String> {
    let pinned = version.as_ref().and_then(Value::as_str);
    let pinned = format!("={}", pinned.unwrap_or_default());
    let ours = shared.iter().filter_map(|(name, of)| {
        let path = of.get("path")?.as_str()?;
        let said = of.get("version").and_then(Value::as_str);
        let wants = (!path.starts_with(UNPUBLISHED)).then_some(pinned.as_str());
        (said != wants).then(|| match wants {
            Some(v) => format!("Cargo.toml: {name} needs version = \"{v}\""),
            None => format!("Cargo.toml: {name} is not published and has no version"),
        })
    });
    ours.collect()
}

/// Dependencies of a published crate that nobody could fetch.
fn without_versions(at: &str, manifest: &Table, shared: &Table) -> Vec<String> {
    let targets = table(manifest, &["target"]).into_iter().flatten();
    let targets = targets.filter_map(|(_, t)| t.as_object());
    let kinds = ["dependencies", "build-dependencies"];
    let all = [manifest].into_iter().chain(targets);
    let all = all.flat_map(|t| kinds.into_iter().filter_map(|k| table(t, &[k])));
    let lacking = all.flatten().filter(|(name, own)| {
        let of = match own.get("workspace") {
            Some(_) => shared.get(*name).unwrap_or(&Value::Null),
            None => own,
        };
        !of.is_string() && of.get("version").is_none()
    });
    lacking
        .map(|(name, _)| format!("{at}: {name} has no version, and is not published"))
        .collect()
}

/// Sources of a crate that take in files from outside its folder, which are not packed.
fn outside(root: &Path, member: &Member) -> Vec<String> {
    let folder = root.join(&member.folder);
    let mut findings = Vec::new();
    for (path, text) in crate::documents::files(&folder.join("src"), ".rs") {
        let at = Path::new("src").join(path);
        for taken in included(&text) {
            let file = at.parent().unwrap_or(&at).join(taken);
            if leaves(&file) {
                findings.push(format!(
                    "{}/{} takes in {taken}, which is not in the crate's folder",
                    member.folder,
                    at.display()
                ));
            }
        }
    }
    findings
}

/// The first text in each `include_str!` and `include_bytes!`.
fn included(text: &str) -> impl Iterator<Item = &str> {
    ["include_str!(", "include_bytes!("]
        .into_iter()
        .flat_map(|m| text.split(m).skip(1))
        .filter_map(|after| after.split('"').nth(1))
}

/// Whether a path leads out of the folder that it begins in.
fn leaves(path: &Path) -> bool {
    let mut inside = PathBuf::new();
    path.components().any(|part| match part {
        Component::ParentDir => !inside.pop(),
        part => {
            inside.push(part);
            false
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_published_is_found() {
        let dir = std::env::temp_dir().join(format!("xtask-publish-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = dir.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let found = || publishing(&dir);
        let workspace = |graph: &str| {
            format!(
                "[workspace.package]\nversion = \"1.0.0\"\n[workspace.dependencies]\ngraph = {{ path = \"crates/model/graph\"{graph} }}\ntesting = {{ path = \"crates/check/testing\" }}\n"
            )
        };
        let package =
            "[package]\nversion.workspace = true\nlicense = \"MIT\"\nrepository = \"r\"\n";
        let graph = "crates/model/graph/Cargo.toml";
        write("Cargo.toml", &workspace(", version = \"=1.0.0\""));
        write(graph, &format!("{package}description = \"d\"\n"));
        write(
            "crates/check/testing/Cargo.toml",
            "[package]\npublish = false\n",
        );
        write(
            "crates/model/graph/src/a/b.rs",
            "include_str!(\"../../c\")\n",
        );
        assert_eq!(found(), Vec::<String>::new());

        write(
            "crates/model/graph/src/a/b.rs",
            "include_str!(concat!(\"../../../c/\", $f))\n",
        );
        assert!(found()[0].contains("src/a/b.rs takes in ../../../c/"));
        write("crates/model/graph/src/a/b.rs", "");
        write(graph, package);
        assert!(found()[0].contains("lacks description"));
        write(
            graph,
            &format!("{package}description = \"d\"\n[dependencies]\ntesting.workspace = true\n"),
        );
        assert!(found()[0].contains("testing has no version"));
        write(
            graph,
            &format!(
                "{package}description = \"d\"\n[dev-dependencies]\ntesting.workspace = true\n"
            ),
        );
        write("Cargo.toml", &workspace(""));
        assert!(found()[0].contains("graph needs version = \"=1.0.0\""));
        write("Cargo.toml", &workspace(", version = \"=1.0.0\""));
        write("crates/check/testing/Cargo.toml", "[package]\n");
        assert!(found()[0].contains("lacks publish = false"));
        std::fs::remove_dir_all(dir).unwrap();
    }
}
