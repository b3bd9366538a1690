//! A model planned anew for sizes that its program for all sizes does not hold for.
use crate::cache::Store;
use crate::{Model, ModelOptions};
use layout::{Dim, Inserted};
use plan::Program;
use runtime::{Bound, Specialise};
use std::path::PathBuf;
use std::sync::Arc;
use tensor::Bytes;

/// What a model was read from, to read it again with more bound.
pub(crate) struct Source {
    path: PathBuf,
    memory: Option<Bytes>,
    options: ModelOptions,
    inputs: Vec<String>,
    /// The files as they were when the model was read; `None` for one that was read from memory.
    files: Option<String>,
    cache: Option<Arc<dyn Store>>,
}

impl Source {
    /// `None` for a model that neither files nor memory hold.
    pub fn of(model: &Model, cache: Option<Arc<dyn Store>>) -> Option<Source> {
        let (memory, files) = (model.memory().cloned(), model.files_key());
        (memory.is_some() || files.is_some()).then(|| Source {
            path: model.path().to_path_buf(),
            memory,
            options: model.options().clone(),
            inputs: model.input_names(),
            files,
            cache,
        })
    }
}

impl Specialise for Source {
    fn program(&self, bound: &Bound) -> Result<Program, String> {
        let mut options = self.options.clone();
        // Ranges are for plans; of the symbols that are left some may be gone.
        let fixed = self.options.dims.iter().filter(|(_, r)| r.lo == r.hi);
        let fixed = fixed.map(|(s, r)| (s.clone(), r.lo));
        options.dims = Default::default();
        for (s, n) in fixed.chain(bound.dims.clone()) {
            options.dims.insert(s, n, n);
        }
        if let Some(shapes) = &bound.shapes {
            let whole = |s: &Vec<usize>| s.iter().map(|&n| Dim::from(n)).collect::<Vec<_>>();
            options.shapes = self
                .inputs
                .iter()
                .cloned()
                .zip(shapes.iter().map(whole))
                .inserted();
            options.dims = Default::default();
        }
        options.taken.extend(bound.taken.clone());
        let late = bound.late.iter().map(|(s, n)| (s.to_string(), *n));
        options.late.extend(late);
        let cache = self.cache.as_deref();
        let model = Model::read(&self.path, self.memory.as_ref(), &options, cache)
            .map_err(|e| e.to_string())?;
        if model.files_key() != self.files {
            return Err(format!(
                "{} was changed since the model was loaded; load it again",
                self.path.display()
            ));
        }
        if let Some(why) = model.refusal() {
            return Err(why);
        }
        Ok(model.program().as_ref().clone())
    }
}
