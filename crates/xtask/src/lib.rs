//! Checks of the repository itself: the walls between crates, where `unsafe` may be, sizes, and
//! the pages that must stay true.
//!
//! `cargo xtask tidy` prints all findings; `tests/tidy.rs` runs the same checks with the tests.
//! A check returns one sentence per finding and nothing when all is well.
#![forbid(unsafe_code)]

pub mod graph;
mod pages;
mod sources;
mod text;

use std::path::{Path, PathBuf};

pub use graph::crate_graph;
pub use pages::{adding_table, architecture, readme};
pub use sources::{file_sizes, forbid_lines, leftovers, safety_comments, unsafe_places};

/// A check: its name on the command line, what it proves, and the check itself.
pub struct Check {
    /// Name.
    pub name: &'static str,
    /// What holds when it finds nothing.
    pub holds: &'static str,
    /// Findings in the repository at a root folder.
    pub run: fn(&Path) -> Vec<String>,
}

/// All checks.
pub const CHECKS: &[Check] = &[
    Check {
        name: "crate-graph",
        holds: "crates depend only on what the design allows",
        run: crate_graph,
    },
    Check {
        name: "unsafe-places",
        holds: "unsafe code is only where it may be",
        run: unsafe_places,
    },
    Check {
        name: "forbid-lines",
        holds: "every other crate forbids unsafe code",
        run: forbid_lines,
    },
    Check {
        name: "safety-comments",
        holds: "every unsafe block and function says why it is sound",
        run: safety_comments,
    },
    Check {
        name: "file-sizes",
        holds: "no Rust file is longer than 800 lines",
        run: file_sizes,
    },
    Check {
        name: "leftovers",
        holds: "nothing is left unfinished or switched off",
        run: leftovers,
    },
    Check {
        name: "architecture",
        holds: "ARCHITECTURE.md is short and names every crate",
        run: architecture,
    },
    Check {
        name: "adding-table",
        holds: "the table of where to add things names places that exist",
        run: adding_table,
    },
    Check {
        name: "readme",
        holds: "README.md starts with two commands of one line",
        run: readme,
    },
];

/// The repository's root, seen from this crate.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// Names of the folders in `crates/`, sorted.
pub fn crate_names(root: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(root.join("crates"))
        .into_iter()
        .flat_map(|entries| entries.flatten())
        .filter(|e| e.path().join("Cargo.toml").is_file())
        .filter_map(|e| e.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}
