//! Checks of the repository itself: dependencies between crates, places of `unsafe`, sizes, and pages that
//! must agree with the code.
//!
//! `cargo xtask tidy` prints all findings; `tests/tidy.rs` runs the same checks with the tests.
//! A check returns one sentence per finding.
#![forbid(unsafe_code)]

mod circles;
mod documents;
mod figures;
mod functions;
pub mod graph;
mod members;
mod packages;
mod pages;
pub mod plugin;
mod profiles;
mod publishing;
pub mod sizes;
pub mod slow;
mod sources;
mod status;
mod tables;
mod text;
mod uses;
pub mod wheel;

use std::path::Path;

pub use circles::circles;
pub use documents::{commits, history, lengths, links};
pub use figures::figures;
pub use functions::function_sizes;
pub use graph::crate_graph;
pub(crate) use members::place;
pub use members::{Member, crate_names, members, root};
pub use packages::packages;
pub use pages::{adding_table, architecture, readme};
pub use profiles::{assertions, profiles};
pub use publishing::publishing;
pub use sources::{forbid_lines, leftovers, safety_comments, unsafe_places};
pub use status::status;

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
        name: "packages",
        holds: "the library brings at most 25 packages from outside",
        run: packages,
    },
    Check {
        name: "publishing",
        holds: "every crate outside crates/check can be published",
        run: publishing,
    },
    Check {
        name: "profiles",
        holds: "the wheel, a workspace of its own, is built as everything else that is handed out",
        run: profiles,
    },
    Check {
        name: "assertions",
        holds: "everyday builds check the assertions of every crate that has some",
        run: assertions,
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
        name: "function-sizes",
        holds: "no Rust function is longer than 100 lines",
        run: function_sizes,
    },
    Check {
        name: "circles",
        holds: "no more than two files of a crate use each other in a circle",
        run: circles,
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
        holds: "README.md is short and starts with two commands of one line",
        run: readme,
    },
    Check {
        name: "documents",
        holds: "no document is longer than 2,500 words, and no table cell than 25",
        run: lengths,
    },
    Check {
        name: "commits",
        holds: "no document that people write names a commit",
        run: commits,
    },
    Check {
        name: "links",
        holds: "every relative link of a document leads to a file",
        run: links,
    },
    Check {
        name: "history",
        holds: "bench/RESULTS.md links every day of past measurements",
        run: history,
    },
    Check {
        name: "figures",
        holds: "figures in documents are those of the pages under bench/",
        run: figures,
    },
    Check {
        name: "status",
        holds: "docs/status.md is what docs/status.toml says, and the tests it names exist",
        run: status,
    },
];

/// Where the command line's help stands in docs/commands.md.
const COMMANDS: (&str, &str) = ("<!-- commands: from the help -->\n", "<!-- end -->\n");

/// docs/commands.md with `made` in its place.
fn commands_page(root: &Path, made: &str) -> Result<String, Vec<String>> {
    let path = "docs/commands.md";
    let text =
        std::fs::read_to_string(root.join(path)).map_err(|e| vec![format!("{path}: {e}")])?;
    let parts = text.split_once(COMMANDS.0);
    let parts = parts.and_then(|(head, rest)| Some((head, rest.split_once(COMMANDS.1)?.1)));
    match parts {
        Some((head, tail)) => Ok(format!("{head}{}{made}{}{tail}", COMMANDS.0, COMMANDS.1)),
        None => Err(vec![format!(
            "{path} has no place for the commands; write {:?} and {:?} into it",
            COMMANDS.0.trim(),
            COMMANDS.1.trim()
        )]),
    }
}

/// Rewrites what `cargo xtask pages` is responsible for: figures between markers, docs/status.md, and in
/// docs/commands.md what the command line made of its help (`commands`). Gives the files that it changed.
pub fn write_pages(root: &Path, commands: &str) -> Result<Vec<String>, Vec<String>> {
    let mut changed = Vec::new();
    let mut put = |path: String, text: String| -> Result<(), Vec<String>> {
        if std::fs::read_to_string(root.join(&path)).is_ok_and(|old| old == text) {
            return Ok(());
        }
        std::fs::write(root.join(&path), text).map_err(|e| vec![format!("{path}: {e}")])?;
        changed.push(path);
        Ok(())
    };
    put(status::PAGE.into(), status::page(root)?)?;
    put("docs/commands.md".into(), commands_page(root, commands)?)?;
    for (path, text) in figures::filled(root)? {
        put(path, text)?;
    }
    Ok(changed)
}
