//! Plans and packed weights that outlive the process.
//!
//! A folder per model content; in it a file per plan and packs of packed weights. Beside the folders
//! programs as import left them, by their model's path. Files are only
//! ever written whole under another name and then renamed, so that processes may share a folder.
//! Nothing that is read is trusted: headers and sizes are checked when a file is opened, sections
//! when they are first used, and what does not hold is made anew. A folder that cannot be written
//! to costs speed, not results.

mod digest;
mod pack;
pub(crate) mod program;
mod store;

pub(crate) use store::ModelCache;

use crate::Model;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that the models of a cache may take together by default.
const LIMIT: u64 = 16 << 30;

/// A folder that plans and packed weights are kept in between processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    folder: PathBuf,
    limit: u64,
}

impl Cache {
    /// A cache in `folder`, which is made when something is kept.
    pub fn new(folder: impl Into<PathBuf>) -> Cache {
        Cache {
            folder: folder.into(),
            limit: LIMIT,
        }
    }

    /// The cache in the user's cache folder (`$XDG_CACHE_HOME/shopfloor`, else
    /// `$HOME/.cache/shopfloor`); `None` where there is no such folder.
    pub fn of_user() -> Option<Cache> {
        let absolute = |v: &str| {
            std::env::var_os(v)
                .map(PathBuf::from)
                .filter(|p| p.is_absolute())
        };
        let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
        Some(Cache::new(base.join("shopfloor")))
    }

    /// Lets all models together take `bytes`; those not used for longest go first.
    pub fn with_limit(mut self, bytes: u64) -> Cache {
        self.limit = bytes;
        self
    }

    /// Where it lies.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The part for `model`; `setting` says what else plans follow from (device, machine, options).
    /// `None` for models that were not read from files, and where the folder cannot be used.
    pub(crate) fn of(&self, model: &Model, setting: &str) -> Option<Arc<ModelCache>> {
        ModelCache::new(self, model, setting).map(Arc::new)
    }
}

/// Writes `parts` one after the other to a file that is then renamed to `path`.
fn write_whole(path: &Path, parts: &mut dyn Iterator<Item = &[u8]>) -> std::io::Result<()> {
    use std::io::Write;
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let scratch = folder.join(format!(".new-{}-{number}", std::process::id()));
    let result = (|| {
        let mut f = std::fs::File::create(&scratch)?;
        for p in parts {
            f.write_all(p)?;
        }
        drop(f);
        std::fs::rename(&scratch, path)
    })();
    if result.is_err() {
        let _ = std::fs::remove_file(&scratch);
    }
    result
}
