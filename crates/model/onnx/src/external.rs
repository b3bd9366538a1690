//! Tensor data in files beside the model.
//!
//! A location is a relative path that stays in the model's folder also after links are
//! followed, since a model from a stranger must not read files elsewhere. Where the model file
//! is itself a link, the folder that it leads to is the model's folder as well: a download
//! cache keeps model and data side by side under other names and links to both.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tensor::Bytes;

use crate::error::Error;
use crate::mapped::map_path;
use crate::proto::{Data, ExternalData, TensorData};

/// Where a model's tensors get their bytes: in its own file or in files of its folder, each of
/// which is mapped once, when the first tensor needs it.
#[derive(Debug)]
pub struct ExternalFiles {
    model: String,
    dir: Option<PathBuf>,
    /// The model file, where it was read from one.
    file: Option<PathBuf>,
    mapped: Mutex<BTreeMap<PathBuf, Bytes>>,
}

impl ExternalFiles {
    /// For the model called `model` in messages, whose data is looked for in the folder `dir`.
    pub fn new(model: String, dir: Option<PathBuf>) -> ExternalFiles {
        ExternalFiles {
            model,
            dir,
            file: None,
            mapped: Mutex::new(BTreeMap::new()),
        }
    }

    /// For the model file at `path`, whose data is looked for beside it.
    pub fn beside(path: &Path) -> ExternalFiles {
        let dir = match path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir.to_path_buf(),
            _ => PathBuf::from("."),
        };
        ExternalFiles {
            file: Some(path.to_path_buf()),
            ..ExternalFiles::new(path.display().to_string(), Some(dir))
        }
    }

    /// The model's name in messages.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// How many external files are mapped.
    pub fn mapped_files(&self) -> usize {
        self.mapped
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    /// Paths of the external files that are mapped.
    pub fn mapped_paths(&self) -> Vec<PathBuf> {
        let mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        mapped.keys().cloned().collect()
    }

    /// An external file that was cut short since it was mapped.
    pub fn lost(&self) -> Option<String> {
        let mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        mapped.values().find_map(Bytes::lost)
    }

    /// The tensor's elements in row-major order as packed little-endian bytes, at any alignment.
    ///
    /// Elements under 8 bits are packed from the low bits up (two 4-bit elements a byte, element
    /// 0 in the low nibble), booleans take one byte. Data that is stored this way is borrowed;
    /// only typed integer fields and float fields written piecemeal are decoded into new memory.
    /// The length is always exactly `ceil(elements * bits / 8)`.
    ///
    /// # Errors
    /// [`Error::Tensor`] when the data does not fit dtype and dims or the tensor holds strings,
    /// [`Error::External`] when the external file is missing, too short or outside the folder.
    pub fn tensor_bytes(&self, tensor: &TensorData) -> Result<Bytes, Error> {
        let want = tensor
            .byte_len()
            .map_err(|problem| self.tensor_error(tensor, problem))?;
        match &tensor.data {
            Data::External(external) => self.resolve(tensor, external, want),
            _ => tensor
                .inline_bytes(want)
                .map_err(|problem| self.tensor_error(tensor, problem)),
        }
    }

    /// The elements of a string tensor in row-major order, each as stored (UTF-8 by the
    /// standard, not checked here).
    ///
    /// # Errors
    /// [`Error::Tensor`] when the tensor holds no strings or not as many as its dims say.
    pub fn tensor_strings<'a>(&self, tensor: &'a TensorData) -> Result<&'a [Bytes], Error> {
        tensor
            .strings()
            .map_err(|problem| self.tensor_error(tensor, problem))
    }

    fn tensor_error(&self, tensor: &TensorData, problem: String) -> Error {
        Error::Tensor {
            file: self.model.clone(),
            tensor: tensor.label().to_string(),
            problem,
        }
    }

    fn resolve(
        &self,
        tensor: &TensorData,
        external: &ExternalData,
        want: u64,
    ) -> Result<Bytes, Error> {
        let fail = |problem: String| Error::External {
            file: self.model.clone(),
            tensor: tensor.label().to_string(),
            path: external.location.escape_debug().to_string(),
            problem,
        };
        if let Some(length) = external.length
            && length != want
        {
            return Err(fail(format!(
                "the model states {length} B, but {} takes {want} B; export the model again",
                tensor.shape_text()
            )));
        }
        let file = self.file(&external.location).map_err(&fail)?;
        let end = external.offset.checked_add(want);
        let range = match (usize::try_from(external.offset), end.map(usize::try_from)) {
            (Ok(start), Some(Ok(end))) => file.slice(start..end),
            _ => None,
        };
        range.ok_or_else(|| {
            fail(format!(
                "{want} B at offset {} reach past its end at {} B; the file is cut short or belongs to another model: get it again",
                external.offset,
                file.len()
            ))
        })
    }

    fn file(&self, location: &str) -> Result<Bytes, String> {
        check_location(location)?;
        let dir = self.dir.as_deref().ok_or(
            "the model was read from memory without a folder; give the folder of its external data",
        )?;
        let path = inside(dir, self.file.as_deref(), location)?;
        // A poisoned lock only means that another thread died between two whole insertions.
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = mapped.get(&path) {
            return Ok(bytes.clone());
        }
        let bytes = map_path(&path)?;
        mapped.insert(path, bytes.clone());
        Ok(bytes)
    }
}

/// Whether a location is a plain relative path without a way up.
fn check_location(location: &str) -> Result<(), String> {
    const REMEDY: &str = "external data must lie in the model's folder under a relative path";
    if location.is_empty() {
        return Err(format!("the location is empty; {REMEDY}"));
    }
    if location.contains('\0') {
        return Err(format!("the location holds a NUL; {REMEDY}"));
    }
    // Also the other system's spellings, so that a model is judged alike everywhere.
    let drive = location.as_bytes().get(1) == Some(&b':')
        && location
            .as_bytes()
            .first()
            .is_some_and(u8::is_ascii_alphabetic);
    if location.starts_with(['/', '\\']) || drive || Path::new(location).is_absolute() {
        return Err(format!("the location is an absolute path; {REMEDY}"));
    }
    if location.split(['/', '\\']).any(|part| part == "..") {
        return Err(format!("the location contains '..'; {REMEDY}"));
    }
    let plain = Path::new(location)
        .components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !plain {
        return Err(format!(
            "the location is not a plain relative path; {REMEDY}"
        ));
    }
    Ok(())
}

/// The real path of `location` in `dir`, refused when links lead out of `dir` and out of the
/// folder that the model's `file` really lies in.
fn inside(dir: &Path, file: Option<&Path>, location: &str) -> Result<PathBuf, String> {
    let missing = |path: &Path, e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => format!(
            "{} does not exist; put the file there (it comes with the model)",
            path.display()
        ),
        _ => format!("{} cannot be reached ({e})", path.display()),
    };
    let real = |path: &Path| path.canonicalize().map_err(|e| missing(path, e));
    let found = real(&dir.join(location))?;
    if found.starts_with(real(dir)?) {
        return Ok(found);
    }
    if let Some(file) = file
        && real(file)?.parent().is_some_and(|d| found.starts_with(d))
    {
        return Ok(found);
    }
    Err(format!(
        "it is a link that leaves the model's folder {}; copy the file into the folder",
        dir.display()
    ))
}
