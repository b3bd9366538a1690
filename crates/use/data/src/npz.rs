//! The npz format: a zip archive of npy members, stored or deflated.

pub(crate) mod zip;

use crate::{DataError, file, npy};
use std::collections::BTreeSet;
use std::path::Path;
use tensor::Tensor;

/// Reads the arrays of the npz file at `path` in the file's order; names are without `.npy`.
///
/// # Errors
/// When the file cannot be read, is damaged (each member's checksum is compared), names an array
/// twice, or holds an element type without counterpart.
pub fn read_npz(path: impl AsRef<Path>) -> Result<Vec<(String, Tensor)>, DataError> {
    let path = path.as_ref();
    npz_from_bytes(&file::name(path), &file::read(path)?)
}

/// As [`read_npz`] of the arrays for whose names `wanted` gives how many bytes they may take at most; the others
/// are not unpacked. The sizes are asked before anything is.
///
/// # Errors
/// As [`read_npz`], and an array that takes more.
pub fn read_npz_of(
    path: impl AsRef<Path>,
    wanted: &mut dyn FnMut(&str) -> Option<u64>,
) -> Result<Vec<(String, Tensor)>, DataError> {
    let path = path.as_ref();
    arrays(&file::name(path), &file::read(path)?, wanted)
}

/// Reads the arrays of an npz archive in `bytes`; `name` is used in errors only.
///
/// # Errors
/// As [`read_npz`].
pub fn npz_from_bytes(name: &str, bytes: &[u8]) -> Result<Vec<(String, Tensor)>, DataError> {
    arrays(name, bytes, &mut |_| Some(u64::MAX))
}

fn arrays(
    name: &str,
    bytes: &[u8],
    wanted: &mut dyn FnMut(&str) -> Option<u64>,
) -> Result<Vec<(String, Tensor)>, DataError> {
    let bad = |reason: String| DataError::Npz {
        name: name.to_string(),
        reason,
    };
    let members = zip::members(bytes).map_err(bad)?;
    let mut seen = BTreeSet::new();
    let mut arrays = Vec::with_capacity(members.len());
    for member in &members {
        let key = member.name.strip_suffix(".npy").ok_or_else(|| {
            bad(format!(
                "its member {:?} is not a .npy array; save it with numpy.savez",
                member.name
            ))
        })?;
        if !seen.insert(key) {
            return Err(bad(format!(
                "it holds two arrays named {key:?}; give each its own name"
            )));
        }
        let Some(most) = wanted(key) else { continue };
        if member.unpacked().saturating_sub(npy::MAX_HEADER as u64) > most {
            return Err(bad(format!(
                "its array {key:?} takes {} B unpacked, and at most {most} B fit; allow more memory or save a smaller array",
                member.unpacked()
            )));
        }
        let data = member.contents().map_err(bad)?;
        arrays.push((
            key.to_string(),
            npy::npy_from_bytes(&format!("array {key:?} of {name}"), &data)?,
        ));
    }
    Ok(arrays)
}

/// Writes named tensors to the npz file at `path`, uncompressed, in the order given; the same tensors give the
/// same bytes.
///
/// # Errors
/// When the file cannot be written or two tensors have one name.
pub fn write_npz(path: impl AsRef<Path>, tensors: &[(String, Tensor)]) -> Result<(), DataError> {
    let path = path.as_ref();
    check_names(&file::name(path), tensors)?;
    let wrap = |source| DataError::Write {
        path: path.to_path_buf(),
        source,
    };
    files::replace(path, |f| zip::write(f, tensors, zip::ZIP64_FROM)).map_err(wrap)
}

/// Named tensors as an npz archive, as [`write_npz`] writes it.
///
/// # Errors
/// When two tensors have one name.
pub fn npz_to_bytes(tensors: &[(String, Tensor)]) -> Result<Vec<u8>, DataError> {
    check_names("the archive", tensors)?;
    let mut bytes = Vec::new();
    zip::write(&mut bytes, tensors, zip::ZIP64_FROM).map_err(|e| DataError::Npz {
        name: "the archive".into(),
        reason: e.to_string(),
    })?;
    Ok(bytes)
}

fn check_names(name: &str, tensors: &[(String, Tensor)]) -> Result<(), DataError> {
    let mut seen = BTreeSet::new();
    for (key, _) in tensors {
        // 65,535 is what the format's name field holds.
        if key.len() + 4 > usize::from(u16::MAX) || !seen.insert(key) {
            let reason = format!(
                "the array name {key:?} is used twice or too long; give each array its own name"
            );
            return Err(DataError::Npz {
                name: name.to_string(),
                reason,
            });
        }
    }
    Ok(())
}
