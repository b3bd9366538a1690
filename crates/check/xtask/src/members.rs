//! The crates of the workspace, and where paths of documents lead.

use std::path::{Path, PathBuf};

/// The repository's root, seen from this crate: the folder with the lock file.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.ancestors().find(|p| p.join("Cargo.lock").is_file());
    root.unwrap_or(here).to_path_buf()
}

/// A crate of the workspace.
pub struct Member {
    /// Name of its folder.
    pub name: String,
    /// The folder, from the repository's root, with `/` between its parts.
    pub folder: String,
}

/// The crates below `crates/`, in groups of folders or not, sorted by name.
pub fn members(root: &Path) -> Vec<Member> {
    let (mut found, mut open) = (Vec::new(), vec!["crates".to_string()]);
    while let Some(folder) = open.pop() {
        let entries = std::fs::read_dir(root.join(&folder)).into_iter().flatten();
        for entry in entries.flatten().filter(|e| e.path().is_dir()) {
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let folder = format!("{folder}/{name}");
            match entry.path().join("Cargo.toml").is_file() {
                true => found.push(Member { name, folder }),
                false => open.push(folder),
            }
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// Names of the crates, sorted.
pub fn crate_names(root: &Path) -> Vec<String> {
    members(root).into_iter().map(|m| m.name).collect()
}

/// Where a path in a document leads: one that begins with a crate's name is in that crate's folder, any
/// other is from the repository's root. So documents need not say in which group a crate is.
pub(crate) fn place(root: &Path, members: &[Member], path: &str) -> PathBuf {
    let (first, rest) = path.split_once('/').unwrap_or((path, ""));
    match members.iter().find(|m| m.name == first) {
        Some(m) => root.join(&m.folder).join(rest),
        None => root.join(path),
    }
}
