//! Plans, packed weights and code of GPUs that outlive the process.
//!
//! A folder per model content; in it a file per plan, packs of packed weights, and a file per text that a GPU's driver
//! assembled. Beside the folders
//! programs as import left them, by their model's path. Files are only
//! ever written whole under another name and then renamed, so that processes may share a folder.
//! Nothing that is read is trusted: headers, keys and sizes are checked when a file is opened, sections
//! when they are first used, and what does not hold is made anew. Who may write to the folder may put other code of a GPU
//! there: hashes find damage alone. A folder that cannot be written
//! to costs speed, not results.

mod binary;
mod digest;
mod evict;
mod folder;
mod pack;
mod program;
mod sealed;
mod store;

pub use folder::Cache;

use plan::Program;
use runtime::PlanStore;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What models and sessions ask of a cache. They hold one behind this trait, so that a program that gives its
/// sessions no cache has no code in it that reads and writes programs and plans.
pub(crate) trait Store: Send + Sync {
    /// The program and the report that [`Store::keep`] left for a model at `path`, if its files are the same still.
    fn find(&self, path: &Path, options: &str) -> Option<(Program, onnx::Report)>;

    /// Keeps what import made of the model at `path`; a model that was not read from files alone is passed over.
    fn keep(&self, path: &Path, options: &str, program: &Program, report: &onnx::Report);

    /// The plans and packed weights of the model in these files; `setting` says what else plans follow from
    /// (options, device, machine). `None` where there are no files, and where the folder cannot be used.
    fn plans(&self, files: &[PathBuf], setting: &str) -> Option<Arc<dyn PlanStore>>;

    /// As [`Cache::problem`].
    fn problem(&self) -> Option<&str>;
}

impl Store for Cache {
    fn find(&self, path: &Path, options: &str) -> Option<(Program, onnx::Report)> {
        program::find(self, path, options)
    }

    fn keep(&self, path: &Path, options: &str, program: &Program, report: &onnx::Report) {
        program::keep(self, path, options, program, report);
    }

    fn plans(&self, files: &[PathBuf], setting: &str) -> Option<Arc<dyn PlanStore>> {
        Some(Arc::new(store::ModelCache::new(self, files, setting)?))
    }

    fn problem(&self) -> Option<&str> {
        Cache::problem(self)
    }
}
