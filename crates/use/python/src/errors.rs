//! Errors of the library as Python exceptions.
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyType;
use shopfloor::ErrorKind;

create_exception!(
    shopfloor,
    Error,
    PyException,
    "Something could not be done: one sentence with the cause and the remedy."
);
create_exception!(
    shopfloor,
    ModelError,
    Error,
    "The model cannot be read or planned."
);
create_exception!(
    shopfloor,
    DamagedError,
    ModelError,
    "The bytes are no well-formed ONNX model."
);
create_exception!(
    shopfloor,
    UnsupportedError,
    ModelError,
    "The model has operators that are not covered."
);
create_exception!(
    shopfloor,
    InputError,
    Error,
    "The inputs of a request do not fit the model."
);
create_exception!(
    shopfloor,
    CancelledError,
    Error,
    "The request was cancelled."
);
create_exception!(
    shopfloor,
    RequestError,
    Error,
    "A request failed while it ran, or was refused."
);
create_exception!(
    shopfloor,
    UsageError,
    Error,
    "A value given by the caller is wrong."
);

/// All classes, by name.
pub fn classes(py: Python<'_>) -> [(&'static str, Bound<'_, PyType>); 8] {
    [
        ("Error", py.get_type::<Error>()),
        ("ModelError", py.get_type::<ModelError>()),
        ("DamagedError", py.get_type::<DamagedError>()),
        ("UnsupportedError", py.get_type::<UnsupportedError>()),
        ("InputError", py.get_type::<InputError>()),
        ("CancelledError", py.get_type::<CancelledError>()),
        ("RequestError", py.get_type::<RequestError>()),
        ("UsageError", py.get_type::<UsageError>()),
    ]
}

/// An error of the library as an exception of the class that fits.
pub fn of(e: shopfloor::Error) -> PyErr {
    let text = e.to_string();
    match e.kind() {
        ErrorKind::Damaged => DamagedError::new_err(text),
        ErrorKind::Unsupported => UnsupportedError::new_err(text),
        ErrorKind::Model | ErrorKind::Io => ModelError::new_err(text),
        ErrorKind::Input => InputError::new_err(text),
        ErrorKind::Cancelled => CancelledError::new_err(text),
        ErrorKind::Refused | ErrorKind::Failed => RequestError::new_err(text),
        ErrorKind::Usage => UsageError::new_err(text),
        _ => Error::new_err(text),
    }
}
