//! Content hashes of files, remembered by path, size and times.
use super::{Cache, sealed};
use std::io::Read;
use std::path::Path;

const HEAD: &[u8] = b"shopfloor digest 2\n";
/// Longest note in bytes.
const LONGEST: u64 = 4096;

/// The content hash of the file at `path` with its identity. Computed by reading the file once;
/// after that, `cache` remembers it for as long as path, size and times stay the same.
pub(super) fn digest(cache: &Cache, path: &Path) -> Option<([u8; 32], [u8; 32])> {
    let path = path.canonicalize().ok()?;
    let identity = tensor::file_identity(&std::fs::metadata(&path).ok()?)?;
    let key = sealed::key(&[path.as_os_str().as_encoded_bytes()]);
    let note = cache.folder.join(sealed::name(&key, "digest"));
    let known = sealed::find(&note, HEAD, &key, LONGEST, |text| read(text, &identity));
    if let Some(d) = known {
        return Some((identity, d));
    }
    let digest = hash(&path).ok()?;
    // Unless it changed while it was read.
    if tensor::file_identity(&std::fs::metadata(&path).ok()?)? != identity {
        return None;
    }
    sealed::keep(cache, &note, HEAD, &key, &[identity, digest].concat());
    Some((identity, digest))
}

/// The digest in a note about a file with this identity; `None` when it is about another content.
fn read(note: &[u8], identity: &[u8; 32]) -> Option<[u8; 32]> {
    note.strip_prefix(identity)?.try_into().ok()
}

/// Hashes a file by reading it in pieces: mapped pages would count as this process's memory.
fn hash(path: &Path) -> std::io::Result<[u8; 32]> {
    let mut file = files::open(path)?;
    let mut piece = vec![0; 1 << 20];
    let mut h = blake3::Hasher::new();
    loop {
        let n = file.read(&mut piece)?;
        if n == 0 {
            return Ok(*h.finalize().as_bytes());
        }
        h.update(&piece[..n]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_remembered_and_follow_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("model");
        std::fs::write(&file, b"one").unwrap();
        let notes = Cache::new(dir.path().join("notes"));
        let (identity, first) = digest(&notes, &file).unwrap();
        assert_eq!(first, *blake3::hash(b"one").as_bytes());
        let note = std::fs::read_dir(&notes.folder)
            .unwrap()
            .next()
            .unwrap()
            .unwrap();
        let text = std::fs::read(note.path()).unwrap();
        let path = file.canonicalize().unwrap();
        let key = sealed::key(&[path.as_os_str().as_encoded_bytes()]);
        let found = |bytes: &[u8], key: &sealed::Key| {
            std::fs::write(note.path(), bytes).unwrap();
            sealed::find(&note.path(), HEAD, key, LONGEST, |t| read(t, &identity))
        };
        assert_eq!(found(&text, &key), Some(first));
        // What is kept under another key is not taken.
        assert_eq!(found(&text, &sealed::key(&[b"other"])), None);
        // Every damaged byte and every cut is noticed.
        for i in 0..text.len() {
            let mut bad = text.clone();
            bad[i] ^= 4;
            assert_eq!(found(&bad, &key), None, "byte {i}");
            assert_eq!(found(&text[..i], &key), None, "cut at {i}");
        }
        std::fs::write(note.path(), &text[..50]).unwrap();
        assert_eq!(digest(&notes, &file).unwrap().1, first);
        std::fs::write(&file, b"other").unwrap();
        assert_eq!(
            digest(&notes, &file).unwrap().1,
            *blake3::hash(b"other").as_bytes()
        );
    }
}
