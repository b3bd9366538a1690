//! Inputs, outputs and metadata of a model as plain values of Python.
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use shopfloor::{Port, PortDim};

/// `(name, type, dims)` of each port: dims are numbers, names, None where not stated; None for no tensor,
/// or a tensor of any rank.
pub fn ports<'py, 'a>(
    py: Python<'py>,
    all: impl Iterator<Item = &'a Port>,
) -> PyResult<Bound<'py, PyList>> {
    let out = PyList::empty(py);
    for port in all {
        let dims = port.dims.as_ref().map(|d| dims(py, d)).transpose()?;
        out.append(PyTuple::new(
            py,
            [
                port.name.as_str().into_pyobject(py)?.into_any(),
                port.kind.as_str().into_pyobject(py)?.into_any(),
                dims.into_pyobject(py)?.into_any(),
            ],
        )?)?;
    }
    Ok(out)
}

fn dims<'py>(py: Python<'py>, dims: &[PortDim]) -> PyResult<Bound<'py, PyList>> {
    let out = PyList::empty(py);
    for d in dims {
        match d {
            PortDim::Size(n) => out.append(*n)?,
            PortDim::Symbol(name) => out.append(name.as_str())?,
            PortDim::Open => out.append(py.None())?,
        }
    }
    Ok(out)
}

/// What the file says about itself, by name.
pub fn metadata<'py>(
    py: Python<'py>,
    session: &shopfloor::Session,
) -> PyResult<Bound<'py, PyDict>> {
    let (m, report) = (session.metadata(), session.model().report());
    let out = PyDict::new(py);
    out.set_item("graph_name", &m.graph_name)?;
    out.set_item("graph_description", &m.graph_description)?;
    out.set_item("domain", &m.domain)?;
    out.set_item("description", &m.description)?;
    out.set_item("version", m.version)?;
    out.set_item("producer_name", &report.producer.0)?;
    out.set_item("producer_version", &report.producer.1)?;
    out.set_item("ir_version", report.ir_version)?;
    let opsets: std::collections::BTreeMap<_, _> = report.opsets.iter().cloned().collect();
    out.set_item("opsets", opsets)?;
    out.set_item("custom", m.custom.clone())?;
    Ok(out)
}
