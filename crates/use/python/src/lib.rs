//! The native part of `shopfloor` for Python: sessions over numpy arrays, plans and profiles as text, JSON
//! and pages. The classes that users see are written in Python over it.
//!
//! Never contains: a decision about models or plans. It turns Python's values into the library's and back.
#![deny(unsafe_code)]

mod array;
mod errors;
mod machines;
mod ports;
mod session;
mod trace;
mod value;
mod views;

use pyo3::prelude::*;

/// The module `shopfloor._native`.
#[pymodule]
fn _native(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add_class::<session::Session>()?;
    m.add_class::<session::Cancel>()?;
    m.add_function(wrap_pyfunction!(machines::machines, m)?)?;
    m.add_function(wrap_pyfunction!(session::forget_engines, m)?)?;
    for (name, class) in errors::classes(py) {
        m.add(name, class)?;
    }
    Ok(())
}
