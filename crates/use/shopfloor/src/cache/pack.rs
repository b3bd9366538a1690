//! Files of packed weights: a table of sections, then the sections.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | magic |
//! | 8 | number of sections |
//! | 8 | length of the file |
//! | 8 | 0 |
//! | 32 | hash of the above and of the table |
//! | 64 each | table: key (32), offset (8), length (8), checksum (16) |
//! | ... | sections, each at a multiple of 64 |
use super::evict;
use device::MappedFile;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tensor::{Bytes, Owner};

const MAGIC: &[u8; 8] = b"SFPACK01";
const HEAD: usize = 64;
const ENTRY: usize = 64;
const ALIGN: usize = 64;
/// Sections of a file at most.
const MOST: u64 = 1 << 20;

struct Mapped(MappedFile);

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        self.0.as_ref()
    }
}

impl Owner for Mapped {}

struct Section {
    offset: usize,
    len: usize,
    sum: [u8; 16],
    /// Whether the contents were checked, and how that came out.
    sound: Option<bool>,
}

/// A file of packed weights, mapped.
pub(super) struct Pack {
    pub path: PathBuf,
    bytes: Bytes,
    sections: Mutex<BTreeMap<[u8; 32], Section>>,
    /// Whether anything of it was used.
    used: AtomicBool,
}

fn word(b: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(b.get(at..at + 8)?.try_into().ok()?))
}

impl Pack {
    /// Maps the file at `path` and checks its header, its table and its size; `None` when anything
    /// is not as it should be.
    pub fn open(path: &Path) -> Option<Pack> {
        let file = files::open(path).ok()?;
        let bytes = Bytes::new(Arc::new(Mapped(MappedFile::new(&file).ok()?)));
        let sections = table(&bytes)?;
        Some(Pack {
            path: path.to_path_buf(),
            sections: Mutex::new(sections),
            bytes,
            used: AtomicBool::new(false),
        })
    }

    /// The section for `key`, whose contents are checked when it is first asked for.
    pub fn get(&self, key: &[u8; 32], len: usize) -> Option<Bytes> {
        let mut sections = self.sections.lock().unwrap_or_else(PoisonError::into_inner);
        let s = sections.get_mut(key).filter(|s| s.len == len)?;
        let bytes = self.bytes.slice(s.offset..s.offset + s.len)?;
        let sound = *s.sound.get_or_insert_with(|| checksum(&bytes) == s.sum);
        if sound && !self.used.swap(true, Ordering::Relaxed) {
            evict::used(&self.path);
        }
        sound.then_some(bytes)
    }

    /// Length of the file.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Every section whose contents are as they should be.
    pub fn sound(&self) -> Vec<([u8; 32], Bytes)> {
        let keys: Vec<([u8; 32], usize)> = {
            let sections = self.sections.lock().unwrap_or_else(PoisonError::into_inner);
            sections.iter().map(|(k, s)| (*k, s.len)).collect()
        };
        keys.into_iter()
            .filter_map(|(k, len)| Some((k, self.get(&k, len)?)))
            .collect()
    }

    /// Whether it has a section for `key` that was not found damaged.
    pub fn has(&self, key: &[u8; 32]) -> bool {
        let sections = self.sections.lock().unwrap_or_else(PoisonError::into_inner);
        sections.get(key).is_some_and(|s| s.sound != Some(false))
    }

    /// Whether a section was found damaged.
    pub fn damaged(&self) -> bool {
        let sections = self.sections.lock().unwrap_or_else(PoisonError::into_inner);
        sections.values().any(|s| s.sound == Some(false))
    }
}

fn table(bytes: &[u8]) -> Option<BTreeMap<[u8; 32], Section>> {
    let head = bytes.get(..HEAD)?;
    let n = word(head, 8).filter(|&n| n <= MOST)? as usize;
    let sized = word(head, 16) == Some(bytes.len() as u64);
    if head[..8] != *MAGIC || !sized {
        return None;
    }
    let entries = bytes.get(HEAD..HEAD + n * ENTRY)?;
    let mut h = blake3::Hasher::new();
    h.update(&head[..32]).update(entries);
    if h.finalize().as_bytes() != &head[32..] {
        return None;
    }
    let mut sections = BTreeMap::new();
    for e in entries.chunks_exact(ENTRY) {
        let key: [u8; 32] = e[..32].try_into().ok()?;
        let offset = usize::try_from(word(e, 32)?).ok()?;
        let len = usize::try_from(word(e, 40)?).ok()?;
        let end = offset.checked_add(len)?;
        if end > bytes.len() || offset % ALIGN != 0 {
            return None;
        }
        let sum = e[48..].try_into().ok()?;
        sections.insert(
            key,
            Section {
                offset,
                len,
                sum,
                sound: None,
            },
        );
    }
    Some(sections)
}

/// Hands `f` the parts that a file of these sections consists of.
pub(super) fn with_parts<T>(sections: &[([u8; 32], &[u8])], f: impl FnOnce(&[&[u8]]) -> T) -> T {
    let mut at = HEAD + sections.len() * ENTRY;
    let mut table = Vec::new();
    for (key, bytes) in sections {
        at = at.next_multiple_of(ALIGN);
        table.extend_from_slice(key);
        table.extend_from_slice(&(at as u64).to_le_bytes());
        table.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        table.extend_from_slice(&checksum(bytes));
        at += bytes.len();
    }
    let mut head = MAGIC.to_vec();
    head.extend_from_slice(&(sections.len() as u64).to_le_bytes());
    head.extend_from_slice(&(at as u64).to_le_bytes());
    head.extend_from_slice(&0u64.to_le_bytes());
    let mut h = blake3::Hasher::new();
    h.update(&head).update(&table);
    head.extend_from_slice(h.finalize().as_bytes());
    let mut parts: Vec<&[u8]> = vec![&head, &table];
    let mut end = head.len() + table.len();
    for (_, bytes) in sections {
        let rim = end.next_multiple_of(ALIGN) - end;
        parts.push(&[0; ALIGN][..rim]);
        parts.push(bytes);
        end += rim + bytes.len();
    }
    f(&parts)
}

/// Sums, and sums of sums, in eight lanes: any one changed byte, and bytes that changed places,
/// give another value. It guards against damage, not against somebody who means it.
pub(super) fn checksum(bytes: &[u8]) -> [u8; 16] {
    const LANES: usize = 8;
    let (mut a, mut b) = ([0x9E37_79B9_7F4A_7C15u64; LANES], [0u64; LANES]);
    let mut add = |piece: &[u8; 8 * LANES]| {
        for i in 0..LANES {
            let w: [u8; 8] = piece[i * 8..i * 8 + 8].try_into().unwrap_or_default();
            a[i] = a[i].wrapping_add(u64::from_le_bytes(w));
            b[i] = b[i].wrapping_add(a[i]);
        }
    };
    let (whole, rest) = bytes.as_chunks::<{ 8 * LANES }>();
    whole.iter().for_each(&mut add);
    let mut last = [0; 8 * LANES];
    last[..rest.len()].copy_from_slice(rest);
    add(&last);
    let mut h = blake3::Hasher::new();
    for w in a.iter().chain(&b) {
        h.update(&w.to_le_bytes());
    }
    h.update(&(bytes.len() as u64).to_le_bytes());
    let mut sum = [0; 16];
    sum.copy_from_slice(&h.finalize().as_bytes()[..16]);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_anywhere_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.pack");
        let one: Vec<u8> = (0..=255).cycle().take(300).collect();
        let two = [7u8; 64];
        let sections = [([1; 32], &one[..]), ([2; 32], &two[..]), ([3; 32], &[][..])];
        with_parts(&sections, |p| std::fs::write(&path, p.concat())).unwrap();
        let good = std::fs::read(&path).unwrap();
        let get = |bytes: &[u8]| -> Option<Vec<Option<Vec<u8>>>> {
            std::fs::write(&path, bytes).unwrap();
            let p = Pack::open(&path)?;
            Some(
                sections
                    .iter()
                    .map(|(k, b)| p.get(k, b.len()).map(|b| b.to_vec()))
                    .collect(),
            )
        };
        let all: Vec<Option<Vec<u8>>> = sections.iter().map(|s| Some(s.1.to_vec())).collect();
        assert_eq!(get(&good), Some(all.clone()));
        for i in 0..good.len() {
            let mut bad = good.clone();
            bad[i] ^= 0x10;
            // Not opened, or the section not given, or (between sections) no matter: never wrong.
            for (got, want) in get(&bad).into_iter().flatten().zip(&all) {
                assert!(got.is_none() || got == *want, "byte {i}");
            }
            assert_eq!(get(&good[..i]), None, "cut at {i}");
        }
        // Two words of one lane that changed places.
        let mut swapped = one.clone();
        swapped[..8].copy_from_slice(&one[64..72]);
        swapped[64..72].copy_from_slice(&one[..8]);
        assert_ne!(swapped, one);
        assert_ne!(checksum(&swapped), checksum(&one));
    }
}
