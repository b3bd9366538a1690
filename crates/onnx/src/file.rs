//! The mapped model file and the byte ranges borrowed from it.

use std::fmt;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::Error;
use crate::external::ExternalFiles;
use crate::proto::{Model, TensorData, parse_model};

/// Where the bytes lie.
enum Source {
    Owned(Vec<u8>),
    Mapped(memmap2::Mmap),
}

impl AsRef<[u8]> for Source {
    fn as_ref(&self) -> &[u8] {
        match self {
            Source::Owned(bytes) => bytes,
            Source::Mapped(map) => map,
        }
    }
}

/// A range of bytes that keeps its mapping or vector alive: cheap to clone, no lifetime, no copy.
///
/// The start may have any alignment: read elements with `from_le_bytes`.
#[derive(Clone)]
pub struct Bytes {
    source: Arc<Source>,
    range: Range<usize>,
}

impl Bytes {
    /// The bytes of a vector, without copying it.
    pub fn from_vec(bytes: Vec<u8>) -> Bytes {
        let range = 0..bytes.len();
        Bytes {
            source: Arc::new(Source::Owned(bytes)),
            range,
        }
    }

    /// Maps a regular file for reading.
    ///
    /// The file must not be changed while it is mapped: truncating it ends the process with a
    /// bus error when the lost part is read.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the path, without the path itself.
    pub(crate) fn map(path: &Path) -> Result<Bytes, String> {
        let problem = |e: std::io::Error| match e.kind() {
            std::io::ErrorKind::NotFound => "there is no such file; check the path".to_string(),
            _ => format!("cannot be read ({e}); check the path and its permissions"),
        };
        // Asked before opening, because opening a FIFO would wait for its writer.
        let meta = std::fs::metadata(path).map_err(problem)?;
        if !meta.is_file() {
            return Err("is not a regular file; give the path of a file".to_string());
        }
        if meta.len() == 0 {
            return Ok(Bytes::from_vec(Vec::new()));
        }
        let file = std::fs::File::open(path).map_err(problem)?;
        let map = map_file(&file).map_err(problem)?;
        let range = 0..map.len();
        Ok(Bytes {
            source: Arc::new(Source::Mapped(map)),
            range,
        })
    }

    /// The part `range` of these bytes; `None` where it does not lie within them.
    pub fn slice(&self, range: Range<usize>) -> Option<Bytes> {
        if range.start > range.end || range.end > self.len() {
            return None;
        }
        // Cannot overflow: both ends are at most `len`, and `start + len` is a valid offset.
        let start = self.range.start + range.start;
        let end = self.range.start + range.end;
        Some(Bytes {
            source: Arc::clone(&self.source),
            range: start..end,
        })
    }

    /// The owner of the bytes and the range within it, for a store that does not know this type.
    pub fn into_shared(self) -> (Arc<dyn AsRef<[u8]> + Send + Sync>, Range<usize>) {
        (self.source, self.range)
    }

    /// Whether both are ranges of one mapping or one vector.
    pub fn same_source(&self, other: &Bytes) -> bool {
        Arc::ptr_eq(&self.source, &other.source)
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        (*self.source)
            .as_ref()
            .get(self.range.clone())
            .unwrap_or(&[])
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Default for Bytes {
    fn default() -> Bytes {
        Bytes::from_vec(Vec::new())
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Bytes) -> bool {
        **self == **other
    }
}

impl Eq for Bytes {}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Weights would drown everything else in a debug print.
        match self.len() {
            0..=32 => write!(f, "Bytes({:?})", &**self),
            n => write!(f, "Bytes({n} B)"),
        }
    }
}

#[allow(unsafe_code)]
fn map_file(file: &std::fs::File) -> std::io::Result<memmap2::Mmap> {
    // SAFETY: the mapping is read-only and private to `Source`, is only ever seen as `&[u8]` of
    // plain bytes, and callers are told not to change the file while it is mapped.
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
}

impl ModelFile {
    /// Maps and parses the model at `path`; external data is looked for in its folder.
    ///
    /// # Errors
    /// [`Error::File`] when the file cannot be mapped, [`Error::Malformed`] when it is not a
    /// well-formed message, [`Error::Model`] when its version or contents are not accepted.
    pub fn open(path: impl AsRef<Path>) -> Result<ModelFile, Error> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let bytes = Bytes::map(path).map_err(|problem| Error::File {
            file: name.clone(),
            problem,
        })?;
        let dir = match path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir.to_path_buf(),
            _ => PathBuf::from("."),
        };
        Self::parse(bytes, name, Some(dir))
    }

    /// Parses a model held in memory; `base_dir` is the folder of its external data, if any.
    ///
    /// # Errors
    /// As [`ModelFile::open`]; messages call the file `<memory>`.
    pub fn from_bytes(bytes: Vec<u8>, base_dir: Option<PathBuf>) -> Result<ModelFile, Error> {
        Self::parse(Bytes::from_vec(bytes), "<memory>".to_string(), base_dir)
    }

    fn parse(bytes: Bytes, name: String, dir: Option<PathBuf>) -> Result<ModelFile, Error> {
        let model = parse_model(&bytes, &name)?;
        let external = Arc::new(ExternalFiles::new(name, dir));
        Ok(ModelFile {
            model,
            external,
            bytes,
        })
    }

    /// The path as given to [`ModelFile::open`], or `<memory>`.
    pub fn name(&self) -> &str {
        self.external.model()
    }

    /// The whole file.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
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
