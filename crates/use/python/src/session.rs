//! The class over a session of the library.
use crate::trace::Kept;
use crate::{errors, ports, trace, value, views};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyDict, PyList, PyString};
use shopfloor::{Engine, Outputs, Tensor};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Device and number of threads of an engine; 0 for all.
type EngineKey = (String, usize);

/// Engines that are there: sessions of the same device and number of threads share workers.
static ENGINES: Mutex<BTreeMap<EngineKey, Arc<Engine>>> = Mutex::new(BTreeMap::new());

/// Requests that may run and wait at once: Python's callers wait in any case.
const RUNNING: usize = 64;
const WAITING: usize = 1 << 16;

fn engine(device: &str, threads: Option<usize>) -> Result<Arc<Engine>, shopfloor::Error> {
    let mut all = ENGINES.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (device.to_string(), threads.unwrap_or(0));
    if let Some(e) = all.get(&key) {
        return Ok(e.clone());
    }
    let made = shopfloor::engine_on(device, threads, None, None)?;
    all.insert(key, made.clone());
    Ok(made)
}

/// Forgets the engines that are there, whose threads a forked process does not have. What is left of them is
/// not dropped: that would wait for those threads.
#[pyfunction]
pub fn forget_engines() {
    let mut all = match ENGINES.try_lock() {
        Ok(all) => all,
        Err(_) => return,
    };
    std::mem::forget(std::mem::take(&mut *all));
}

/// A model ready to run.
#[pyclass(frozen, subclass, name = "Session", module = "shopfloor._native")]
pub struct Session {
    pub(crate) inner: shopfloor::Session,
    /// What requests left for a trace, where they are recorded.
    pub(crate) kept: Option<Mutex<Kept>>,
}

/// What a session is made of beside its model.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Options {
    device: String,
    threads: Option<usize>,
    dims: BTreeMap<String, (i64, i64)>,
    shapes: BTreeMap<String, Vec<usize>>,
    memory: Option<u64>,
    recorded: bool,
}

/// The model: a path or the file's bytes.
#[derive(FromPyObject)]
enum Source {
    Bytes(PyBackedBytes),
    Path(std::path::PathBuf),
}

fn open(source: Source, options: &Options) -> Result<shopfloor::Session, shopfloor::Error> {
    let mut builder = shopfloor::Session::builder()
        .with_engine(engine(&options.device, options.threads)?)
        .with_queue(RUNNING, WAITING);
    for (name, &(lo, hi)) in &options.dims {
        builder = builder.with_dim(name, lo, hi);
    }
    for (input, shape) in &options.shapes {
        builder = builder.with_shape(input, shape);
    }
    if let Some(bytes) = options.memory {
        builder = builder.with_memory_limit(bytes);
    }
    match source {
        Source::Bytes(bytes) => builder.commit_from_memory(bytes),
        Source::Path(path) => builder.commit_from_file(path),
    }
}

#[pymethods]
impl Session {
    #[new]
    #[pyo3(signature = (source, options))]
    fn new(py: Python<'_>, source: Source, options: Options) -> PyResult<Session> {
        let inner = py.detach(|| open(source, &options)).map_err(errors::of)?;
        let kept = options.recorded.then(|| Mutex::new(Kept::default()));
        Ok(Session { inner, kept })
    }

    /// Runs one request; see `shopfloor.Session.run`.
    #[pyo3(signature = (names, feeds))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        names: Option<Bound<'py, PyAny>>,
        feeds: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyList>> {
        let given = self.given(feeds)?;
        let named: Vec<(&str, &Tensor)> = given
            .iter()
            .map(|(n, t)| Ok((n.to_str()?, t)))
            .collect::<PyResult<_>>()?;
        let outputs = py
            .detach(|| match &self.kept {
                None => self.inner.run(&named),
                Some(kept) => trace::run(&self.inner, &named, kept),
            })
            .map_err(errors::of)?;
        match names.filter(|n| n.len().is_ok_and(|n| n > 0)) {
            None => all(py, outputs),
            Some(names) => some(py, outputs, &names),
        }
    }

    /// `(name, type, dims)` of each input.
    fn _inputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        ports::ports(py, self.inner.inputs())
    }

    /// The same of initialisers that a request may give.
    fn _overridable<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        ports::ports(py, self.inner.overridable())
    }

    /// The same of each output.
    fn _outputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        ports::ports(py, self.inner.outputs().iter())
    }

    /// What the file says about itself.
    fn _metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        ports::metadata(py, &self.inner)
    }

    /// The plan for sizes by dimension: text, text with reasons, JSON.
    fn _plan(
        &self,
        py: Python<'_>,
        sizes: BTreeMap<String, i64>,
    ) -> PyResult<(String, String, String)> {
        py.detach(|| views::plan(&self.inner, &sizes))
    }

    /// The page of the plan for sizes by dimension, as HTML.
    fn _page(&self, py: Python<'_>, sizes: BTreeMap<String, i64>) -> PyResult<String> {
        py.detach(|| views::page(&self.inner, &sizes))
    }

    /// Measures requests: text, JSON, Chrome trace, page as HTML. Without feeds the inputs are random.
    fn _profile(
        &self,
        py: Python<'_>,
        feeds: Option<Bound<'_, PyDict>>,
        warmup: usize,
        active: usize,
    ) -> PyResult<(String, String, String, String)> {
        let given = match &feeds {
            None => None,
            Some(feeds) => Some(self.owned(feeds)?),
        };
        py.detach(|| views::profile(&self.inner, given, warmup, active))
    }

    /// Microseconds from the start of the session and Chrome trace of each request that was recorded; they
    /// are forgotten.
    fn _traces(&self, py: Python<'_>) -> Vec<(f64, String)> {
        let Some(kept) = &self.kept else {
            return Vec::new();
        };
        py.detach(|| trace::taken(&self.inner, kept))
    }
}

impl Session {
    /// The tensors of `feeds`, by name.
    fn given<'py>(
        &self,
        feeds: &Bound<'py, PyDict>,
    ) -> PyResult<Vec<(Bound<'py, PyString>, Tensor)>> {
        let mut out = Vec::with_capacity(feeds.len());
        for (name, given) in feeds {
            let name = name.cast_into::<PyString>()?;
            let tensor = value::tensor(&given, || self.kind(name.to_str().unwrap_or("")))?;
            out.push((name, tensor));
        }
        Ok(out)
    }

    /// The same with copies of the names.
    fn owned(&self, feeds: &Bound<'_, PyDict>) -> PyResult<Vec<(String, Tensor)>> {
        let given = self.given(feeds)?.into_iter();
        given.map(|(n, t)| Ok((n.to_str()?.into(), t))).collect()
    }

    /// The type of the input `name` as ONNX spells it.
    fn kind(&self, name: &str) -> &str {
        let mut all = self.inner.model().report().inputs.iter();
        all.find(|p| p.name == name).map_or("", |p| p.kind.as_str())
    }
}

/// All outputs in the model's order.
fn all(py: Python<'_>, outputs: Outputs) -> PyResult<Bound<'_, PyList>> {
    let list = PyList::empty(py);
    for (_, tensor) in outputs.into_vec() {
        list.append(value::value(py, tensor)?)?;
    }
    Ok(list)
}

/// The outputs that are named, in that order.
fn some<'py>(
    py: Python<'py>,
    outputs: Outputs,
    names: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyList>> {
    let mut have: Vec<(String, Option<Tensor>)> = outputs
        .into_vec()
        .into_iter()
        .map(|(n, t)| (n, Some(t)))
        .collect();
    let list = PyList::empty(py);
    let mut made: BTreeMap<usize, Bound<'py, PyAny>> = BTreeMap::new();
    for name in names.try_iter()? {
        let name: String = name?.extract()?;
        let Some(at) = have.iter().position(|(n, _)| *n == name) else {
            let all: Vec<&str> = have.iter().map(|(n, _)| n.as_str()).collect();
            return Err(errors::UsageError::new_err(format!(
                "the model has no output '{name}'; it has {}",
                all.join(", ")
            )));
        };
        let value = match (made.get(&at), have[at].1.take()) {
            (Some(again), _) => again.clone(),
            (None, Some(tensor)) => value::value(py, tensor)?,
            (None, None) => py.None().into_bound(py),
        };
        made.insert(at, value.clone());
        list.append(value)?;
    }
    Ok(list)
}
