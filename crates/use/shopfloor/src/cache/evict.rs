//! What a cache gives up when it takes more than it may: the files that were not used for longest.
//!
//! A file's time of change says when it was used: whoever uses it sets it, at most once a minute.
//! Removing a file takes nothing from a process that has it open or mapped, and processes that
//! remove at once remove the same.
use layout::Arrange;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The folder is looked through again when this share of its limit was written: it never takes more
/// than that beyond its limit, times the processes that write at once.
pub(super) const SHARE: u64 = 32;
/// Times closer than this are the same to a file that is used.
const GRAIN: Duration = Duration::from_secs(60);
/// Age at which a file that was never finished is nobody's.
const ABANDONED: Duration = Duration::from_secs(3600);
/// Length of the names of files and folders, hexadecimal digits.
pub(super) const NAME: usize = 32;
/// Extension of files with the code of a GPU.
pub(super) const CODE: &str = "code";

/// Notes that the file at `path` was used now. Where that cannot be noted it only looks older.
pub(super) fn used(path: &Path) {
    let _ = (|| -> std::io::Result<()> {
        let file = files::open(path)?;
        let now = SystemTime::now();
        let age = now.duration_since(file.metadata()?.modified()?);
        match age.is_ok_and(|a| a < GRAIN) {
            true => Ok(()),
            false => file.set_modified(now),
        }
    })();
}

struct Found {
    used: SystemTime,
    path: PathBuf,
    bytes: u64,
}

/// Whether a name is one that the cache gives, with one of these extensions if any are said.
fn ours(path: &Path, kinds: &[&str]) -> bool {
    let name = path.file_stem().and_then(|n| n.to_str()).unwrap_or("");
    let kind = path.extension().and_then(|e| e.to_str()).unwrap_or("");
    let hex = |b: u8| b.is_ascii_hexdigit();
    name.len() == NAME
        && name.bytes().all(hex)
        && (kinds.contains(&kind) || (kinds.is_empty() && kind.is_empty()))
}

/// Files in `folder` of these kinds; files that were never finished are removed.
fn look(folder: &Path, kinds: &[&str], found: &mut Vec<Found>) {
    for e in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = e.path();
        let Ok(meta) = e.metadata() else { continue };
        let Some(used) = meta.modified().ok().filter(|_| meta.is_file()) else {
            continue;
        };
        let unfinished = e.file_name().to_string_lossy().starts_with(files::SCRATCH);
        if unfinished && used.elapsed().is_ok_and(|a| a > ABANDONED) {
            let _ = std::fs::remove_file(&path);
        } else if ours(&path, kinds) {
            found.push(Found {
                used,
                path,
                bytes: meta.len(),
            });
        }
    }
}

/// Removes what was not used for longest until the cache in `folder` takes at most `limit` bytes.
/// Files that are not the cache's are neither counted nor touched.
pub(super) fn shrink(folder: &Path, limit: u64) {
    let mut found = Vec::new();
    look(folder, &["digest", "program"], &mut found);
    let mut models = Vec::new();
    for e in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if ours(&e.path(), &[]) && e.path().is_dir() {
            look(&e.path(), &["plan", "pack", CODE], &mut found);
            models.push(e.path());
        }
    }
    let mut total: u64 = found.iter().map(|f| f.bytes).sum();
    if total <= limit {
        return;
    }
    found.arrange_by(|a, b| a.used.cmp(&b.used).then(a.path.cmp(&b.path)));
    for f in found {
        if total <= limit {
            break;
        }
        let _ = std::fs::remove_file(&f.path);
        total -= f.bytes;
    }
    // Those that are empty now; another process may be about to write there, and makes it again.
    for m in models {
        let _ = std::fs::remove_dir(m);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_for_longest_goes_first_and_nothing_of_others() {
        let dir = tempfile::tempdir().unwrap();
        let model = |n: u8| dir.path().join(format!("{n:032x}"));
        let now = SystemTime::now();
        let make = |path: PathBuf, bytes: usize, age: u64| {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, vec![0; bytes]).unwrap();
            let f = std::fs::File::open(&path).unwrap();
            f.set_modified(now - Duration::from_secs(age)).unwrap();
            path
        };
        let file = |n: u8, kind: &str| format!("{n:032x}.{kind}");
        let old = make(model(1).join(file(1, "pack")), 100, 5000);
        let older = make(model(2).join(file(1, "plan")), 100, 9000);
        let new = make(model(1).join(file(2, "plan")), 100, 100);
        let note = make(dir.path().join(file(3, "digest")), 50, 8000);
        let foreign = [
            make(dir.path().join("notes.txt"), 1000, 90_000),
            make(dir.path().join("work").join(file(1, "pack")), 1000, 90_000),
            make(model(1).join("a.pack"), 1000, 90_000),
        ];
        let left = make(model(1).join(".new-1-1"), 10, 7000);
        let writing = make(model(1).join(".new-2-1"), 10, 1);
        shrink(dir.path(), 350);
        assert!(!left.exists() && writing.exists());
        assert!([&old, &older, &new, &note].iter().all(|f| f.exists()));
        shrink(dir.path(), 250);
        assert!(!older.exists() && !model(2).exists());
        assert!(old.exists() && new.exists() && note.exists());
        // Used again, it outlives what was newer.
        used(&note);
        used(&old);
        shrink(dir.path(), 150);
        assert!(!new.exists() && old.exists() && note.exists());
        shrink(dir.path(), 0);
        assert!(!old.exists() && !note.exists());
        assert!(foreign.iter().all(|f| f.exists()) && writing.exists());
    }

    #[test]
    fn several_at_once_remove_no_more_than_one_would() {
        let dir = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        for i in 0..200u64 {
            let path = dir.path().join(format!("{i:032x}.program"));
            std::fs::write(&path, [0; 10]).unwrap();
            let f = std::fs::File::open(&path).unwrap();
            f.set_modified(now - Duration::from_secs(1000 - i)).unwrap();
        }
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| shrink(dir.path(), 1000));
            }
        });
        let left = std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(left, 100);
        assert!(dir.path().join(format!("{:032x}.program", 199)).exists());
    }
}
