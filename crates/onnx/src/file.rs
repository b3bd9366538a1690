//! The mapped model file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tensor::{Bytes, Owner, file_identity};

use crate::error::Error;
use crate::external::ExternalFiles;
use crate::proto::{Annotated, Model, Property, TensorData, annotate, modules, parse_model};

/// Maps a regular file for reading.
///
/// The file must not be changed while it is mapped: truncating it ends the process with a bus
/// error when the lost part is read.
///
/// # Errors
/// A sentence that says what is wrong with the path, without the path itself.
pub fn map_path(path: &Path) -> Result<Bytes, String> {
    let problem = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => "there is no such file; check the path".to_string(),
        std::io::ErrorKind::InvalidInput => e.to_string(),
        _ => format!("cannot be read ({e}); check the path and its permissions"),
    };
    let file = files::open(path).map_err(problem)?;
    if file.metadata().map_err(problem)?.len() == 0 {
        return Ok(Bytes::default());
    }
    let map = map_file(&file).map_err(problem)?;
    // Of the file that was opened, whatever the path leads to by now.
    let identity = file.metadata().ok().as_ref().and_then(file_identity);
    Ok(Bytes::new(Arc::new(Mapped { map, identity })))
}

/// A mapped file.
struct Mapped {
    map: memmap2::Mmap,
    identity: Option<[u8; 32]>,
}

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        &self.map
    }
}

impl Owner for Mapped {
    fn identity(&self) -> Option<[u8; 32]> {
        self.identity
    }

    #[cfg(unix)]
    #[allow(unsafe_code)]
    fn release(&self, range: std::ops::Range<usize>) {
        let advice = memmap2::UncheckedAdvice::DontNeed;
        // SAFETY: nobody writes to the mapping, so that what is dropped is read again from the
        // file, unchanged, when somebody asks for it.
        let advised = unsafe {
            self.map
                .unchecked_advise_range(advice, range.start, range.len())
        };
        // Only a hint: memory that stays is no fault.
        let _ = advised;
    }
}

#[allow(unsafe_code)]
fn map_file(file: &std::fs::File) -> std::io::Result<memmap2::Mmap> {
    // SAFETY: the mapping is read-only and is only ever seen as the `&[u8]` of a `Bytes`, and
    // callers are told not to change the file while it is mapped.
    unsafe { memmap2::Mmap::map(file) }
}

/// An ONNX model read from a file or from memory.
///
/// Owned names and structure, tensor data borrowed from the mapping. Nothing of external data
/// files is touched before [`ModelFile::tensor_bytes`] asks for it.
#[derive(Debug)]
pub struct ModelFile {
    /// The model.
    pub model: Model,
    /// Where tensors' bytes are to be had.
    pub external: Arc<ExternalFiles>,
    bytes: Bytes,
    path: Option<PathBuf>,
}

impl ModelFile {
    /// Maps and parses the model at `path`; external data is looked for in its folder,
    /// and may be linked to from there where it lies beside the file that `path` leads to.
    ///
    /// Neither file may be changed while tensors of it are in use: truncating a mapped file ends
    /// the process with a bus error when the lost part is read.
    ///
    /// # Errors
    /// [`Error::File`] when the file cannot be mapped, [`Error::Malformed`] when it is not a
    /// well-formed message, [`Error::Model`] when its version or contents are not accepted.
    pub fn open(path: impl AsRef<Path>) -> Result<ModelFile, Error> {
        let path = path.as_ref();
        let bytes = map_path(path).map_err(|problem| Error::File {
            file: path.display().to_string(),
            problem,
        })?;
        let mut file = Self::parse(bytes, ExternalFiles::beside(path))?;
        file.path = Some(path.to_path_buf());
        Ok(file)
    }

    /// Parses a model held in memory; `base_dir` is the folder of its external data, if any.
    ///
    /// # Errors
    /// As [`ModelFile::open`]; messages call the file `<memory>`.
    pub fn from_bytes(bytes: Vec<u8>, base_dir: Option<PathBuf>) -> Result<ModelFile, Error> {
        let external = ExternalFiles::new("<memory>".to_string(), base_dir);
        Self::parse(Bytes::from(bytes), external)
    }

    fn parse(bytes: Bytes, external: ExternalFiles) -> Result<ModelFile, Error> {
        let model = parse_model(&bytes, external.model())?;
        Ok(ModelFile {
            model,
            external: Arc::new(external),
            bytes,
            path: None,
        })
    }

    /// The path as given to [`ModelFile::open`], or `<memory>`.
    pub fn name(&self) -> &str {
        self.external.model()
    }

    /// Where it and the external data mapped so far were read from; empty when it was in memory.
    pub fn paths(&self) -> Vec<PathBuf> {
        let own = self.path.iter().cloned();
        own.chain(self.external.mapped_paths()).collect()
    }

    /// The whole file.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Where nodes of the main graph come from in their exporter's module tree (`blocks/blocks.0/attn`), by
    /// the name that import gives the node; those whose exporter left nothing are not there.
    ///
    /// # Errors
    /// None that parsing the file did not find.
    pub fn modules(&self) -> Result<BTreeMap<String, String>, Error> {
        modules(&self.bytes, self.name())
    }

    /// The file with `facts` of each node of its main graph, by the name that import gives the node, and
    /// `whole` of the model in `metadata_props`; everything else is as it was, byte for byte. Properties
    /// whose keys begin with `own` are replaced.
    ///
    /// # Errors
    /// None that parsing the file did not find.
    pub fn annotated(
        &self,
        own: &str,
        facts: &dyn Fn(&str) -> Vec<Property>,
        whole: &[Property],
    ) -> Result<Annotated, Error> {
        annotate(&self.bytes, self.name(), own, facts, whole)
    }

    /// A tensor's elements; see [`ExternalFiles::tensor_bytes`].
    ///
    /// # Errors
    /// As [`ExternalFiles::tensor_bytes`].
    pub fn tensor_bytes(&self, tensor: &TensorData) -> Result<Bytes, Error> {
        self.external.tensor_bytes(tensor)
    }

    /// A string tensor's elements in row-major order.
    ///
    /// # Errors
    /// As [`ExternalFiles::tensor_strings`].
    pub fn tensor_strings<'a>(&self, tensor: &'a TensorData) -> Result<&'a [Bytes], Error> {
        self.external.tensor_strings(tensor)
    }
}
