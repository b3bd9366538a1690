//! Arrays of numpy as tensors, and tensors as arrays: by reference where the bytes lie in a row.
//!
//! The one file of this crate with unsafe code: Python's owner of an array's bytes is kept instead of
//! copying them, and numpy's C interface makes arrays over the bytes of a tensor.
#![allow(unsafe_code)]

use crate::errors;
use numpy::npyffi::{NPY_ARRAY_WRITEABLE, NPY_TYPES, NpyTypes, PyArrayObject, get_type_object};
use numpy::{
    PY_ARRAY_API, PyArray, PyArrayDescrMethods, PyArrayMethods, PyUntypedArray,
    PyUntypedArrayMethods, ndarray::IxDyn,
};
use pyo3::prelude::*;
use shopfloor::{DType, Tensor};

/// Bytes up to which an output is copied into an array of numpy's own, which costs less than an object that
/// holds the tensor.
const COPIED: usize = 4096;

/// The element type of an array as the library calls it; `None` for objects, texts and types that numpy does
/// not know itself.
pub fn dtype_of(array: &Bound<'_, PyUntypedArray>) -> Option<DType> {
    let descr = array.dtype();
    if descr.num() >= NPY_TYPES::NPY_USERDEF as i32 {
        return None;
    }
    Some(match (descr.kind(), descr.itemsize()) {
        (b'f', 4) => DType::F32,
        (b'f', 8) => DType::F64,
        (b'f', 2) => DType::F16,
        (b'i', 8) => DType::I64,
        (b'i', 4) => DType::I32,
        (b'i', 2) => DType::I16,
        (b'i', 1) => DType::I8,
        (b'u', 8) => DType::U64,
        (b'u', 4) => DType::U32,
        (b'u', 2) => DType::U16,
        (b'u', 1) => DType::U8,
        (b'b', 1) => DType::Bool,
        _ => return None,
    })
}

/// Whether the elements lie in a row, in the byte order of this machine.
pub fn is_plain(array: &Bound<'_, PyUntypedArray>) -> bool {
    array.is_c_contiguous() && array.dtype().is_native_byteorder() != Some(false)
}

/// A tensor over the bytes of `array`, which are not copied. The array [`is_plain`], and its elements have type `dtype`.
pub fn borrow(array: &Bound<'_, PyUntypedArray>, dtype: DType) -> PyResult<Tensor> {
    let wrong = |e: shopfloor::TensorError| errors::InputError::new_err(e.to_string());
    let bytes = array.len() * array.dtype().itemsize();
    if Tensor::byte_len(dtype, array.shape()).map_err(wrong)? != bytes {
        return Err(errors::InputError::new_err(format!(
            "an array of {bytes} B does not hold {dtype}{:?}; give one whose elements are of that type",
            array.shape()
        )));
    }
    // SAFETY: only the address is taken, which all arrays have, whatever they hold.
    let start = unsafe { array.cast_unchecked::<PyArray<u8, IxDyn>>() }.data();
    let owner = array.clone().unbind();
    // SAFETY: the array is in a row and, as was looked at, has as many bytes as the tensor. They stay while it is held: numpy refuses to
    // resize an array that is referred to. Callers of `run` are told not to change arrays while a request reads them.
    unsafe { Tensor::from_raw_parts(dtype, array.shape(), start, owner) }.map_err(wrong)
}

/// Holds a tensor for an array over its bytes; nothing else reads or writes them.
#[pyclass(frozen, module = "shopfloor._native")]
struct Held {
    _tensor: Tensor,
}

fn number(dtype: DType) -> Option<NPY_TYPES> {
    Some(match dtype {
        DType::F32 => NPY_TYPES::NPY_FLOAT,
        DType::F64 => NPY_TYPES::NPY_DOUBLE,
        DType::F16 => NPY_TYPES::NPY_HALF,
        DType::I8 => NPY_TYPES::NPY_BYTE,
        DType::U8 => NPY_TYPES::NPY_UBYTE,
        DType::I16 => NPY_TYPES::NPY_SHORT,
        DType::U16 | DType::BF16 => NPY_TYPES::NPY_USHORT,
        DType::I32 => NPY_TYPES::NPY_INT,
        DType::U32 => NPY_TYPES::NPY_UINT,
        DType::I64 if cfg!(target_os = "windows") => NPY_TYPES::NPY_LONGLONG,
        DType::U64 if cfg!(target_os = "windows") => NPY_TYPES::NPY_ULONGLONG,
        DType::I64 => NPY_TYPES::NPY_LONG,
        DType::U64 => NPY_TYPES::NPY_ULONG,
        DType::Bool => NPY_TYPES::NPY_BOOL,
        DType::I4 | DType::U4 | DType::Str | DType::Host => return None,
    })
}

/// An array of a tensor's elements; bf16 as the 16 bits of each. `None` for a tensor whose elements are no
/// whole bytes.
pub fn array<'py>(py: Python<'py>, mut tensor: Tensor) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(number) = number(tensor.dtype()) else {
        return Ok(None);
    };
    let mut dims: Vec<isize> = tensor.shape().iter().map(|&d| d as isize).collect();
    let copied = tensor.bytes().len() <= COPIED;
    let data = match copied {
        true => std::ptr::null_mut(),
        false => tensor.bytes_mut().as_mut_ptr(),
    };
    let flags = if copied { 0 } else { NPY_ARRAY_WRITEABLE };
    // SAFETY: the interpreter is attached. The descriptor is a new reference, which the call takes. `dims`
    // has as many extents as are said, and `data` is null (numpy then allocates) or points at the elements
    // of a row-major tensor of that type and shape.
    let made = unsafe {
        let descr = PY_ARRAY_API.PyArray_DescrFromType(py, number as i32);
        let made = PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            get_type_object(py, NpyTypes::PyArray_Type),
            descr,
            dims.len() as i32,
            dims.as_mut_ptr(),
            std::ptr::null_mut(),
            data.cast(),
            flags,
            std::ptr::null_mut(),
        );
        Bound::from_owned_ptr_or_err(py, made)?
    };
    if copied {
        fill(&made, tensor.bytes());
    } else {
        keep(&made, tensor)?;
    }
    Ok(Some(made))
}

/// Writes the elements of an array that was just made.
fn fill(array: &Bound<'_, PyAny>, bytes: &[u8]) {
    // SAFETY: the array is new, in a row and nobody else's, and takes as many bytes as its elements, which
    // are those of `bytes`; only the address is taken of it by this type.
    unsafe {
        let to = array.cast_unchecked::<PyArray<u8, IxDyn>>().data();
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
    }
}

/// Makes `array`, which lies over the bytes of `tensor`, their owner.
fn keep(array: &Bound<'_, PyAny>, tensor: Tensor) -> PyResult<()> {
    let py = array.py();
    // The tensor's bytes are on the heap and stay where they are when it is moved.
    let held = Bound::new(py, Held { _tensor: tensor })?;
    let at = array.as_ptr().cast::<PyArrayObject>();
    // SAFETY: `at` is an array without a base; the call takes the reference to the holder.
    let failed = unsafe { PY_ARRAY_API.PyArray_SetBaseObject(py, at, held.into_ptr()) };
    match failed {
        0 => Ok(()),
        _ => Err(PyErr::fetch(py)),
    }
}
