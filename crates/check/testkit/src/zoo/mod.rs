//! Models with inputs and reference outputs: the shared zoo where it is there, and the models
//! bundled with the repository.
//!
//! The shared zoo lies beside the repository (`../shared/zoo`) or where `SHOPFLOOR_ZOO` says. A
//! clone alone has only the bundled ones; tests then name what they leave out ([`missing`]).

mod check;
mod error;
mod meta;
mod model;
mod weights;

pub use check::{OutputReport, Report};
pub use error::ZooError;
pub use meta::{InputMeta, Meta, OutputMeta};
pub use model::ZooModel;

use layout::DType;
use meta::dtype_named;
use std::path::{Path, PathBuf};
use tensor::Tensor;

/// The repository's root.
fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(3).unwrap_or(here)
}

/// Folder of the shared zoo, where there is one.
pub fn shared() -> Option<PathBuf> {
    let path = match std::env::var_os("SHOPFLOOR_ZOO") {
        Some(path) => PathBuf::from(path),
        None => root().parent()?.join("shared/zoo"),
    };
    path.is_dir().then_some(path)
}

/// Folder of the bundled models.
pub fn bundled() -> PathBuf {
    root().join("models")
}

/// Folders that hold model folders, the bundled ones last.
fn places() -> Vec<PathBuf> {
    let mut places = Vec::new();
    if let Some(zoo) = shared() {
        places.extend([zoo.join("trained"), zoo]);
    }
    places.push(bundled());
    places
}

/// The model `name` of the shared zoo, or else of the bundled models.
///
/// # Panics
/// When its folder is there but its description is damaged: a test must not pass that by.
pub fn find(name: &str) -> Option<ZooModel> {
    let folder = places()
        .into_iter()
        .map(|p| p.join(name))
        .find(|f| f.join("model.json").is_file())?;
    Some(ZooModel::open(&folder).unwrap_or_else(|e| panic!("{e}")))
}

/// The models of a folder of model folders and of its `trained/`, sorted by name.
///
/// # Errors
/// A folder that cannot be read, or a damaged description.
pub fn models_in(dir: &Path) -> Result<Vec<ZooModel>, ZooError> {
    let mut models = Vec::new();
    for place in [dir.to_path_buf(), dir.join("trained")] {
        let entries = match std::fs::read_dir(&place) {
            Ok(e) => e,
            Err(_) if place != dir => continue,
            Err(source) => {
                return Err(ZooError::Io {
                    path: place,
                    source,
                });
            }
        };
        for e in entries.flatten() {
            if e.path().join("model.json").is_file() {
                models.push(ZooModel::open(e.path())?);
            }
        }
    }
    models.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(models)
}

/// Names of all models at hand, sorted, each once.
pub fn names() -> Vec<String> {
    let mut names: Vec<String> = places()
        .iter()
        .filter_map(|p| std::fs::read_dir(p).ok())
        .flat_map(|entries| entries.flatten())
        .filter(|e| e.path().join("model.json").is_file())
        .filter_map(|e| e.file_name().into_string().ok())
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Those of `names` that are not at hand; says so in one line on standard error when there are any.
pub fn missing<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let gone: Vec<&str> = names
        .iter()
        .copied()
        .filter(|n| find(n).is_none())
        .collect();
    if !gone.is_empty() {
        skip(&gone);
    }
    gone
}

/// Notes that tests of the models `names` are skipped, since they are not at hand.
pub fn skip(names: &[&str]) {
    for n in names {
        testing::skip(&format!("zoo: {n}"), "there is no ../shared/zoo");
    }
}

/// The line that says what a program leaves out: names and count.
pub fn left_out(names: &[&str]) -> String {
    format!(
        "left out (no ../shared/zoo): {} ({})",
        names.join(", "),
        names.len()
    )
}

/// Element type that the zoo calls `name` (`float32`, `int4`, ...).
pub fn element_type(name: &str) -> Option<DType> {
    dtype_named(name).ok()
}

/// Folder where generated weights are kept between runs: `SHOPFLOOR_ZOO_CACHE`, or a folder of the
/// system's for temporary files.
pub fn cache() -> PathBuf {
    std::env::var_os("SHOPFLOOR_ZOO_CACHE")
        .map_or_else(|| std::env::temp_dir().join("shopfloor-zoo"), PathBuf::from)
}

/// A model ready to load; what was generated for it is removed when this is dropped.
#[derive(Debug)]
pub struct Prepared {
    /// Path of `model.onnx`, with `weights.bin` beside it where it has one.
    pub model: PathBuf,
    _folder: Option<tempfile::TempDir>,
}

impl ZooModel {
    /// Makes the model loadable and returns the path of `model.onnx`: the folder's own for models
    /// that hold their weights, else `dir/NAME/model.onnx` with `weights.bin` generated beside it.
    /// What is already there, checked and complete, is not made again; several processes may
    /// prepare the same model at once. `progress` is told (bytes done, bytes in all).
    ///
    /// # Errors
    /// When files cannot be read or written, or the weights' sha256 differs from the description's.
    pub fn prepare_with(
        &self,
        dir: impl AsRef<Path>,
        progress: impl FnMut(u64, u64),
    ) -> Result<PathBuf, ZooError> {
        if self.is_generated() {
            weights::prepare(self, dir.as_ref(), progress)
        } else {
            Ok(self.folder.join("model.onnx"))
        }
    }

    /// [`ZooModel::prepare_with`] without progress.
    ///
    /// # Errors
    /// As there.
    pub fn prepare(&self, dir: impl AsRef<Path>) -> Result<PathBuf, ZooError> {
        self.prepare_with(dir, |_, _| ())
    }

    /// The model in a folder of its own that goes when the result is dropped, so that a run over
    /// many models needs the space of one.
    ///
    /// # Errors
    /// As [`ZooModel::prepare_with`].
    pub fn prepare_temporary(&self) -> Result<Prepared, ZooError> {
        if !self.is_generated() {
            return Ok(Prepared {
                model: self.folder.join("model.onnx"),
                _folder: None,
            });
        }
        let parent = cache();
        let io = |source| ZooError::Io {
            path: parent.clone(),
            source,
        };
        std::fs::create_dir_all(&parent).map_err(io)?;
        let folder = tempfile::Builder::new()
            .prefix("once-")
            .tempdir_in(&parent)
            .map_err(io)?;
        Ok(Prepared {
            model: self.prepare(folder.path())?,
            _folder: Some(folder),
        })
    }

    /// Compares `outputs` with the references: every output of the model must be there, with its
    /// type and shape, and within the tolerance of `model.json`.
    ///
    /// # Errors
    /// When the references are damaged.
    pub fn check(&self, outputs: &[(String, Tensor)]) -> Result<Report, ZooError> {
        check::check(self, outputs, self.meta.tolerance)
    }

    /// [`ZooModel::check`] with another tolerance.
    ///
    /// # Errors
    /// As there.
    pub fn check_within(
        &self,
        outputs: &[(String, Tensor)],
        tolerance: f64,
    ) -> Result<Report, ZooError> {
        check::check(self, outputs, tolerance)
    }
}
