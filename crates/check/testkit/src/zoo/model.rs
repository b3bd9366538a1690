//! One model folder.

use super::error::ZooError;
use super::meta::{self, GeneratedInput, Meta, dtype_named};
use crate::generate::Source;
use std::path::{Path, PathBuf};
use tensor::Tensor;

/// One model folder.
#[derive(Clone, Debug)]
pub struct ZooModel {
    pub(super) name: String,
    pub(super) folder: PathBuf,
    pub(super) meta: Meta,
}

impl ZooModel {
    /// Reads the model folder at `folder`, wherever it is.
    ///
    /// # Errors
    /// When `model.json` is missing or damaged.
    pub fn open(folder: impl AsRef<Path>) -> Result<ZooModel, ZooError> {
        let folder = folder.as_ref().to_path_buf();
        let meta: Meta = meta::read_json(&folder.join("model.json"))?;
        let name = folder
            .file_name()
            .map_or_else(|| meta.name.clone(), |n| n.to_string_lossy().into_owned());
        Ok(ZooModel { name, folder, meta })
    }

    /// The folder's name, by which [`find`](super::find) knows the model.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The folder, with samples and labels of trained models.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What `model.json` says.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// True when weights must be generated before the model can be loaded.
    pub fn is_generated(&self) -> bool {
        self.folder.join("weights.json").is_file()
    }

    /// The model's inputs by name, those that are stored first.
    ///
    /// # Errors
    /// When a file is damaged, or an input differs from what `model.json` says.
    pub fn inputs(&self) -> Result<Vec<(String, Tensor)>, ZooError> {
        let mut inputs = Vec::new();
        let stored = self.folder.join("inputs.npz");
        if stored.is_file() {
            inputs = data::read_npz(stored)?;
        }
        let path = self.folder.join("inputs.json");
        if path.is_file() {
            let list: Vec<GeneratedInput> = meta::read_json(&path)?;
            for g in list {
                let format = |reason: String| ZooError::Format {
                    path: path.clone(),
                    reason,
                };
                let dtype = dtype_named(&g.dtype).map_err(format)?;
                let tensor = Source::new(g.seed, g.lo, g.hi)
                    .tensor(dtype, &g.shape)
                    .map_err(|e| format(format!("input {:?}: {e}", g.name)))?;
                inputs.push((g.name, tensor));
            }
        }
        for (name, want) in &self.meta.inputs {
            let format = |reason: String| ZooError::Format {
                path: self.folder.join("model.json"),
                reason,
            };
            let (_, t) = inputs
                .iter()
                .find(|(n, _)| n == name)
                .ok_or_else(|| format(format!("input {name:?} is in neither inputs file")))?;
            if t.shape() != want.shape || t.dtype() != dtype_named(&want.dtype).map_err(format)? {
                return Err(format(format!(
                    "input {name:?} is {t:?}, not {}{:?}",
                    want.dtype, want.shape
                )));
            }
        }
        Ok(inputs)
    }

    /// The reference outputs as stored: sampled where [`OutputMeta::stride`](super::OutputMeta::stride) says so.
    ///
    /// # Errors
    /// When the file is damaged.
    pub fn references(&self) -> Result<Vec<(String, Tensor)>, ZooError> {
        Ok(data::read_npz(self.folder.join("outputs.npz"))?)
    }
}
