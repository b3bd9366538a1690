//! The class over a session of the library.
use crate::trace::Recording;
use crate::{errors, ports, trace, value, views};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyDict, PyList, PyString};
use shopfloor::{Call, Device, Engine, Outputs, Tensor};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Engines that are there, by device: all sessions of a device share its workers.
static ENGINES: Mutex<BTreeMap<String, Arc<Engine>>> = Mutex::new(BTreeMap::new());

/// Requests that may run and wait at once: Python's callers wait in any case.
const RUNNING: usize = 64;
const WAITING: usize = 1 << 16;

fn engine(device: &Device) -> Result<Arc<Engine>, shopfloor::Error> {
    let name = device.to_string();
    let mut all = ENGINES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(e) = all.get(&name) {
        return Ok(e.clone());
    }
    let made = shopfloor::engine_on(&name, None, None, None)?;
    all.insert(name, made.clone());
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

/// By this a request can be given up while it runs, from another thread.
#[pyclass(frozen, module = "shopfloor._native")]
pub struct Cancel(shopfloor::Cancel);

#[pymethods]
impl Cancel {
    #[new]
    fn new() -> Cancel {
        Cancel(shopfloor::Cancel::new())
    }

    /// Gives up the requests that it was given to, and those that it will be given to.
    fn cancel(&self) {
        self.0.cancel();
    }

    /// Whether it was called.
    #[getter]
    fn cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}

/// A model ready to run.
#[pyclass(frozen, subclass, name = "Session", module = "shopfloor._native")]
pub struct Session {
    pub(crate) inner: shopfloor::Session,
    /// What it runs on.
    device: String,
    /// What requests left for a trace, where they are recorded.
    pub(crate) kept: Option<Mutex<Recording>>,
}

/// What a session is made of beside its model.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Options {
    device: String,
    threads: Option<u32>,
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
        .with_engine(engine(&options.device.parse()?)?)
        .with_queue(RUNNING, WAITING);
    if let Some(threads) = options.threads {
        builder = builder.with_workers(threads);
    }
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
        let kept = options.recorded.then(|| Mutex::new(Recording::default()));
        let device = options.device;
        Ok(Session {
            inner,
            device,
            kept,
        })
    }

    /// Runs one request: the outputs that are named, in that order, or all. Arrays are read where they lie
    /// and must not be changed meanwhile; the interpreter's lock is not held. It can be given up by `cancel`,
    /// and is refused where it cannot be done within `deadline` seconds.
    #[pyo3(signature = (names, feeds, *, cancel=None, deadline=None))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        names: Option<Bound<'py, PyAny>>,
        feeds: &Bound<'py, PyDict>,
        cancel: Option<PyRef<'py, Cancel>>,
        deadline: Option<f64>,
    ) -> PyResult<Bound<'py, PyList>> {
        let given = self.given(feeds)?;
        let named: Vec<(&str, &Tensor)> = given
            .iter()
            .map(|(n, t)| Ok((n.to_str()?, t)))
            .collect::<PyResult<_>>()?;
        let cancel = cancel.map(|c| c.0.clone());
        let deadline = deadline.map(Duration::try_from_secs_f64).transpose();
        let deadline = deadline.map_err(|_| {
            errors::UsageError::new_err("the deadline is no time; give seconds, 0 or more")
        })?;
        if names
            .as_ref()
            .is_some_and(|n| n.is_instance_of::<PyString>())
        {
            return Err(errors::UsageError::new_err(
                "the outputs' names are one text; give a list of them, such as ['y']",
            ));
        }
        let outputs = py
            .detach(|| match &self.kept {
                None if cancel.is_none() && deadline.is_none() => self.inner.run(&named),
                None => {
                    let cancel = cancel.as_ref();
                    self.inner.run_call(&named, Call { cancel, deadline })
                }
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

    /// The extents of each output as they follow from the model, whatever its file calls them: numbers, symbols, None
    /// for others.
    fn _known<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let program = self.inner.model().program();
        let out = PyList::empty(py);
        for (_, v) in &program.outputs {
            let dims = PyList::empty(py);
            for d in &program.value(*v).shape {
                match (d.known(), d.as_sym()) {
                    (Some(n), _) => dims.append(n)?,
                    (None, Some(name)) => dims.append(name.to_string())?,
                    (None, None) => dims.append(py.None())?,
                }
            }
            out.append(dims)?;
        }
        Ok(out)
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
        py.detach(|| views::plan(&self.inner, &self.device, &sizes))
    }

    /// The page of the plan for sizes by dimension, as HTML.
    fn _page(&self, py: Python<'_>, sizes: BTreeMap<String, i64>) -> PyResult<String> {
        py.detach(|| views::page(&self.inner, &self.device, &sizes))
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
    for tensor in outputs.into_tensors() {
        list.append(value::value(py, tensor)?)?;
    }
    Ok(list)
}

/// The outputs that are named, in that order; one that is named twice is one object.
fn some<'py>(
    py: Python<'py>,
    outputs: Outputs,
    names: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyList>> {
    let mut places = Vec::new();
    for name in names.try_iter()? {
        let name = name?.cast_into::<PyString>()?;
        let name = name.to_str()?;
        let place = outputs.iter().position(|(n, _)| n == name);
        places.push(place.ok_or_else(|| {
            let all: Vec<&str> = outputs.iter().map(|(n, _)| n).collect();
            errors::UsageError::new_err(format!(
                "the model has no output '{name}'; it has {}",
                all.join(", ")
            ))
        })?);
    }
    let mut values: Vec<Option<Bound<'py, PyAny>>> = Vec::new();
    for (at, tensor) in outputs.into_tensors().into_iter().enumerate() {
        let wanted = places.contains(&at);
        values.push(wanted.then(|| value::value(py, tensor)).transpose()?);
    }
    PyList::new(py, places.iter().map(|&at| values[at].clone()))
}
