//! Content hashes of files, remembered by path, size and times.
use super::{Cache, evict};
use std::io::Read;
use std::path::Path;

/// The content hash of the file at `path` with its identity. Computed by reading the file once;
/// after that, `cache` remembers it for as long as path, size and times stay the same.
pub(super) fn digest(cache: &Cache, path: &Path) -> Option<([u8; 32], [u8; 32])> {
    let path = path.canonicalize().ok()?;
    let identity = tensor::file_identity(&std::fs::metadata(&path).ok()?)?;
    let name = blake3::hash(path.as_os_str().as_encoded_bytes()).to_hex();
    let note = cache.folder.join(format!("{}.digest", &name[..32]));
    if let Ok(known) = std::fs::read(&note)
        && let Some(d) = read(&known, &identity)
    {
        evict::used(&note);
        return Some((identity, d));
    }
    let digest = hash(&path).ok()?;
    // Unless it changed while it was read.
    if tensor::file_identity(&std::fs::metadata(&path).ok()?)? != identity {
        return None;
    }
    let mut text = [identity, digest].concat();
    text.extend_from_slice(blake3::hash(&text).as_bytes());
    cache.keep(&note, &[&text]);
    Some((identity, digest))
}

/// The digest in a note about a file with this identity; `None` when the note is damaged or about
/// another content.
fn read(note: &[u8], identity: &[u8; 32]) -> Option<[u8; 32]> {
    let (text, sum) = note.split_at_checked(64)?;
    let sound = blake3::hash(text).as_bytes() == sum && text[..32] == *identity;
    sound.then(|| text[32..].try_into().ok()).flatten()
}

/// Hashes a file by reading it in pieces: mapped pages would count as this process's memory.
fn hash(path: &Path) -> std::io::Result<[u8; 32]> {
    let mut file = std::fs::File::open(path)?;
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
        assert_eq!(read(&text, &identity), Some(first));
        // Every damaged byte and every cut is noticed.
        for i in 0..text.len() {
            let mut bad = text.clone();
            bad[i] ^= 4;
            assert_eq!(read(&bad, &identity), None, "byte {i}");
            assert_eq!(read(&text[..i], &identity), None, "cut at {i}");
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
