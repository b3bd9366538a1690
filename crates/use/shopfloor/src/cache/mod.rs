//! Plans and packed weights that outlive the process.
//!
//! A folder per model content; in it a file per plan and packs of packed weights. Beside the folders
//! programs as import left them, by their model's path. Files are only
//! ever written whole under another name and then renamed, so that processes may share a folder.
//! Nothing that is read is trusted: headers, keys and sizes are checked when a file is opened, sections
//! when they are first used, and what does not hold is made anew. A folder that cannot be written
//! to costs speed, not results.

mod binary;
mod digest;
mod evict;
mod folder;
mod pack;
pub(crate) mod program;
mod sealed;
mod store;

pub use folder::Cache;
