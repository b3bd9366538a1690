//! What every file of a cache but the packs says of itself: of what kind it is, under which key its contents were
//! kept, and their hash. A file that another process put under this name, or that somebody copied here, has
//! another key.
use super::{Cache, evict};
use plan::Plan;
use std::path::Path;
use std::time::UNIX_EPOCH;

/// Says to which of something: the hash of all that it follows from.
pub(super) type Key = [u8; 32];

/// The key of what follows from `parts`.
pub(super) fn key(parts: &[&[u8]]) -> Key {
    let mut h = blake3::Hasher::new();
    for p in parts {
        h.update(&(p.len() as u64).to_le_bytes()).update(p);
    }
    *h.finalize().as_bytes()
}

/// The name under which a key's contents are kept.
pub(super) fn name(key: &Key, kind: &str) -> String {
    let hex = blake3::Hash::from_bytes(*key).to_hex();
    format!("{}.{kind}", &hex[..evict::NAME])
}

fn hash(head: &[u8], key: &Key, contents: &[u8]) -> [u8; 32] {
    let mut h = blake3::Hasher::new();
    h.update(head).update(key).update(contents);
    *h.finalize().as_bytes()
}

/// Keeps `contents` at `path`.
pub(super) fn keep(cache: &Cache, path: &Path, head: &[u8], key: &Key, contents: &[u8]) {
    let hash = hash(head, key, contents);
    cache.keep(path, &[head, key, &hash, contents]);
}

/// What was kept at `path` under `key`, as `read` makes it of the contents. What is of another key, damaged, or
/// longer than `most` bytes is removed.
pub(super) fn find<T>(
    path: &Path,
    head: &[u8],
    key: &Key,
    most: u64,
    read: impl FnOnce(&[u8]) -> Option<T>,
) -> Option<T> {
    if !path.exists() {
        return None;
    }
    let bytes = files::read(path, most).ok();
    let found = bytes.and_then(|b| read(contents(&b, head, key)?));
    match found {
        Some(_) => evict::used(path),
        None => drop(std::fs::remove_file(path)),
    }
    found
}

fn contents<'a>(bytes: &'a [u8], head: &[u8], key: &Key) -> Option<&'a [u8]> {
    let rest = bytes.strip_prefix(head)?.strip_prefix(key)?;
    let (sum, contents) = rest.split_at_checked(32)?;
    (hash(head, key, contents) == sum).then_some(contents)
}

/// What tells this build of importer and planner from another, of the same version too: the
/// program's file, by size and time. A rebuilt planner may choose otherwise, and must not be given
/// old choices.
pub(super) fn this_build() -> String {
    let meta = std::env::current_exe().and_then(std::fs::metadata);
    let time = |m: &std::fs::Metadata| m.modified().ok()?.duration_since(UNIX_EPOCH).ok();
    let build = meta.map(|m| format!("{} {:?}", m.len(), time(&m)));
    format!(
        "{} {} {}",
        env!("CARGO_PKG_VERSION"),
        Plan::VERSION,
        build.unwrap_or_default()
    )
}
