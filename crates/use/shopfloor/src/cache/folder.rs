//! The folder that a cache is, and what this process did to it.

use super::evict;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A folder that plans, packed weights and code of GPUs are kept in between processes. Only its users should be able to
/// write to it. Clones are one cache.
#[derive(Clone, Debug)]
pub struct Cache {
    pub(super) folder: PathBuf,
    limit: u64,
    state: Arc<State>,
}

/// What this process did to a cache.
#[derive(Debug, Default)]
struct State {
    /// Why something was not kept, the first time that happened.
    problem: OnceLock<String>,
    /// Bytes written since the folder was last looked through; `None`: it never was.
    written: Mutex<Option<u64>>,
}

impl Cache {
    /// Bytes that a cache may take when nothing else was said: 4 GiB.
    pub const LIMIT: u64 = 4 << 30;

    /// A cache in `folder`, which is made when something is kept.
    pub fn new(folder: impl Into<PathBuf>) -> Cache {
        Cache {
            folder: folder.into(),
            limit: Cache::LIMIT,
            state: Arc::default(),
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

    /// Lets everything in the folder together take `bytes`; what was not used for longest goes
    /// first. Several processes may do so at once.
    pub fn with_limit(mut self, bytes: u64) -> Cache {
        self.limit = bytes;
        self
    }

    /// Why nothing more is kept, where something could not be: the disk is full, the folder cannot
    /// be written to, the limit is too small. Results are the same; the next load is slower.
    pub fn problem(&self) -> Option<&str> {
        self.state.problem.get().map(String::as_str)
    }

    pub(super) fn complain(&self, why: String) {
        let _ = self.state.problem.set(why);
    }

    /// Keeps `parts`, one after the other, as the file at `path` in the folder; whether that was
    /// possible. Once it was not, nothing is tried again.
    pub(super) fn keep(&self, path: &Path, parts: &[&[u8]]) -> bool {
        if self.problem().is_some() {
            return false;
        }
        let bytes: u64 = parts.iter().map(|p| p.len() as u64).sum();
        if bytes > self.limit {
            self.complain(format!(
                "{bytes} B are more than the {} B that the cache in {} may take; allow it more",
                self.limit,
                self.folder.display()
            ));
            return false;
        }
        if let Some(most) = files::largest().filter(|most| bytes > *most) {
            self.complain(format!(
                "a file of {bytes} B is more than the {most} B that the system lets this process write; nothing is kept in {}",
                self.folder.display()
            ));
            return false;
        }
        let write = || write_whole(path, parts);
        let done = match write() {
            // Another process may have removed an empty folder meanwhile.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => write(),
            done => done,
        };
        if let Err(e) = done {
            self.complain(format!(
                "the cache in {} could not be written to ({e}); nothing is kept there",
                self.folder.display()
            ));
            return false;
        }
        let mut written = (self.state.written.lock()).unwrap_or_else(PoisonError::into_inner);
        let due = written.is_none_or(|w| w + bytes > self.limit / evict::SHARE);
        *written = Some(if due { 0 } else { written.unwrap_or(0) + bytes });
        if due {
            evict::shrink(&self.folder, self.limit);
        }
        true
    }

    /// Where it lies.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// Writes `parts` one after the other to a file that is then renamed to `path`.
fn write_whole(path: &Path, parts: &[&[u8]]) -> std::io::Result<()> {
    use std::io::Write;
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    files::replace(path, |f| parts.iter().try_for_each(|p| f.write_all(p)))
}
