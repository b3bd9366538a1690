//! Values of Python as tensors, and tensors as values of Python: arrays, texts as arrays of objects,
//! sequences as lists, maps as dicts, an optional value as itself or None.
use crate::array;
use crate::errors::InputError;
use numpy::PyUntypedArray;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyString};
use shopfloor::{DType, HostValue, Tensor};

/// A tensor of a value that is given for an input of type `kind`, as ONNX spells it. An array in a row is
/// borrowed; everything else goes by Python's part, `shopfloor._values`. Arrays of 8 and 16 bits may stand for
/// types that numpy does not have.
pub fn tensor<'a>(value: &Bound<'_, PyAny>, kind: impl FnOnce() -> &'a str) -> PyResult<Tensor> {
    if let Ok(a) = value.cast::<PyUntypedArray>()
        && let Some(dtype) = array::dtype_of(a)
        && array::is_plain(a)
    {
        let kind = match dtype {
            DType::U16 | DType::U8 | DType::I8 => kind(),
            _ => "",
        };
        return match kind {
            "tensor(bfloat16)" | "tensor(uint4)" | "tensor(int4)" => prepared(value, kind),
            _ => array::borrow(a, dtype),
        };
    }
    prepared(value, kind())
}

/// The function `name` of the module that brings values into a form that is read here.
fn helper<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module =
        MODULE.get_or_try_init(py, || py.import("shopfloor._values").map(Bound::unbind))?;
    module.bind(py).getattr(name)
}

/// A tensor of what is no plain array: what Python's part makes of it is `(form, value, shape)`.
fn prepared(value: &Bound<'_, PyAny>, kind: &str) -> PyResult<Tensor> {
    let py = value.py();
    let made = helper(py, "prepared")?.call1((value, kind))?;
    let (form, value, shape): (String, Bound<'_, PyAny>, Vec<usize>) = made.extract()?;
    let wrong = |e: &dyn std::fmt::Display| InputError::new_err(e.to_string());
    match form.as_str() {
        "text" => {
            let text = value.extract::<Vec<String>>()?;
            Tensor::from_text(&shape, text).map_err(|e| wrong(&e))
        }
        "array" => {
            let a = value.cast::<PyUntypedArray>()?;
            let dtype = array::dtype_of(a).ok_or_else(|| wrong(&"the array has no known type"))?;
            array::borrow(a, dtype)
        }
        "sequence" => {
            let items = value.extract::<Vec<Bound<'_, PyAny>>>()?;
            let of = inner(kind, "seq(");
            let items: PyResult<Vec<Tensor>> = items.iter().map(|i| tensor(i, || of)).collect();
            Ok(Tensor::sequence(items?))
        }
        "map" => {
            let (keys, values): (Bound<'_, PyAny>, Bound<'_, PyAny>) = value.extract()?;
            Ok(Tensor::from_host_value(HostValue::Map {
                keys: Box::new(tensor(&keys, || "")?),
                values: Box::new(tensor(&values, || "")?),
            }))
        }
        "none" => Ok(Tensor::from_host_value(HostValue::Optional(None))),
        "some" => Ok(Tensor::from_host_value(HostValue::Optional(Some(
            Box::new(tensor(&value, || inner(kind, "optional("))?),
        )))),
        // Elements that are no whole numbers of bytes, or of a type that numpy does not know.
        raw => {
            let dtype = DType::from_name(raw)
                .ok_or_else(|| wrong(&format!("no value can be made of the form '{raw}'")))?;
            Tensor::from_bytes(dtype, &shape, value.extract()?).map_err(|e| wrong(&e))
        }
    }
}

/// The type inside of `kind`, which begins with `open`.
fn inner<'a>(kind: &'a str, open: &str) -> &'a str {
    let inside = kind.strip_prefix(open).and_then(|k| k.strip_suffix(')'));
    inside.unwrap_or("")
}

/// A value of Python of a tensor.
pub fn value<'py>(py: Python<'py>, tensor: Tensor) -> PyResult<Bound<'py, PyAny>> {
    let (dtype, shape) = (tensor.dtype(), tensor.shape().to_vec());
    if tensor.host_value().is_some() {
        return held(py, &tensor);
    }
    match dtype {
        DType::I4 | DType::U4 => {
            let elements: Vec<i64> = (0..tensor.len()).map(|i| tensor.get_i64(i)).collect();
            helper(py, "small")?.call1((dtype.name(), elements, shape))
        }
        DType::BF16 => match array::array(py, tensor)? {
            Some(bits) => helper(py, "brain")?.call1((bits,)),
            None => Err(InputError::new_err("bf16 has no form as an array")),
        },
        _ => array::array(py, tensor)?
            .ok_or_else(|| InputError::new_err(format!("{dtype} has no form as an array"))),
    }
}

/// What a tensor without bytes holds.
fn held<'py>(py: Python<'py>, tensor: &Tensor) -> PyResult<Bound<'py, PyAny>> {
    match tensor.host_value() {
        Some(HostValue::Text(text)) => {
            let shape = tensor.shape().to_vec();
            let list = PyList::new(py, text.iter().map(|t| PyString::new(py, t)))?;
            helper(py, "texts")?.call1((list, shape))
        }
        Some(HostValue::Sequence(items)) => {
            let list = PyList::empty(py);
            for item in items {
                list.append(value(py, Tensor::clone(item))?)?;
            }
            Ok(list.into_any())
        }
        Some(HostValue::Optional(Some(inner))) => value(py, Tensor::clone(inner)),
        Some(HostValue::Map { keys, values }) => {
            let (keys, values) = (value(py, (**keys).clone())?, value(py, (**values).clone())?);
            let dict = PyDict::new(py);
            let list = |v: &Bound<'py, PyAny>| match v.hasattr("tolist")? {
                true => v.call_method0("tolist"),
                false => Ok(v.clone()),
            };
            let (keys, values) = (list(&keys)?, list(&values)?);
            for pair in keys.try_iter()?.zip(values.try_iter()?) {
                dict.set_item(pair.0?, pair.1?)?;
            }
            Ok(dict.into_any())
        }
        Some(HostValue::Optional(None)) | None => Ok(py.None().into_bound(py)),
    }
}
