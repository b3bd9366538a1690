//! The mapped model file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tensor::Bytes;

use crate::error::Error;
use crate::external::ExternalFiles;
use crate::mapped::map_path;
use crate::proto::{Annotated, Model, Property, TensorData, annotate, modules, parse_model};

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
    /// Neither file may be changed while tensors of it are in use; what is lost of one that is cut short
    /// reads as zeros, and [`ModelFile::lost`] tells.
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
        Self::from_memory(Bytes::from(bytes), base_dir)
    }

    /// As [`ModelFile::from_bytes`], of bytes that others hold too: nothing is copied.
    ///
    /// # Errors
    /// As [`ModelFile::from_bytes`].
    pub fn from_memory(bytes: Bytes, base_dir: Option<PathBuf>) -> Result<ModelFile, Error> {
        let external = ExternalFiles::new("<memory>".to_string(), base_dir);
        Self::parse(bytes, external)
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

    /// The file of this model, itself or one of external data, that was cut short since it was mapped.
    pub fn lost(&self) -> Option<String> {
        self.bytes.lost().or_else(|| self.external.lost())
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
