"""Values that are no plain arrays, in the forms that the native part reads and makes."""

import sys
from typing import Any

import numpy as np

from ._native import InputError
from ._types import NUMPY_OF_ONNX

#: Types that numpy has from the package ml_dtypes, and what the native part calls their bits.
_ADDED = {
    "bfloat16": "bf16",
    "float8_e4m3fn": "u8",
    "float8_e4m3fnuz": "u8",
    "float8_e5m2": "u8",
    "float8_e5m2fnuz": "u8",
}
#: Types of four bits: what the native part calls them.
_SMALL = {"int4": "i4", "uint4": "u4"}


def _texts(array: np.ndarray) -> list[str]:
    return [t.decode() if isinstance(t, bytes) else str(t) for t in array.ravel().tolist()]


def _packed(array: np.ndarray) -> bytes:
    """Elements of four bits, two in a byte, the lower half first."""
    bits = array.astype(np.int8).ravel().view(np.uint8) & 15
    if bits.size % 2:
        bits = np.append(bits, np.uint8(0))
    return (bits[0::2] | (bits[1::2] << 4)).tobytes()


def _map(value: dict, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Keys and values of the types that the model takes, "map(int64,tensor(float))"; texts are objects."""
    keys, _, values = kind[4:-1].partition(",") if kind.startswith("map(") else ("", "", "")
    wanted = (NUMPY_OF_ONNX.get(f"tensor({keys})"), NUMPY_OF_ONNX.get(values))
    arrays = []
    for items, want in zip((list(value.keys()), list(value.values())), wanted):
        texts = bool(items) and isinstance(items[0], str)
        arrays.append(np.array(items, object if texts else want))
    return arrays[0], arrays[1]


def _array(value: Any, kind: str) -> np.ndarray:
    """An array of a value: by DLPack, or of numbers of the type that the model takes."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    if isinstance(value, (list, tuple)):
        return np.array(value, NUMPY_OF_ONNX.get(kind))
    return np.asarray(value)


def prepared(value: Any, kind: str) -> tuple[str, Any, Any]:
    """The form of a value, the value in it, and its shape. ``kind`` is the input's type."""
    if kind.startswith("optional("):
        return ("none", None, ()) if value is None else ("some", value, ())
    if kind.startswith("seq(") and isinstance(value, (list, tuple)):
        want = NUMPY_OF_ONNX.get(kind[4:-1])
        for item in value:
            if want is not None and isinstance(item, np.ndarray) and item.dtype.kind in "fiub" and item.dtype != want:
                raise TypeError(f"the sequence holds an array of {item.dtype}, but the model takes {kind}; convert it")
        return "sequence", list(value), ()
    if value is None:
        raise InputError(f"None is given for an input of type {kind}; give an array")
    if isinstance(value, dict):
        return "map", _map(value, kind), ()
    array = _array(value, kind)
    name = array.dtype.name
    if array.dtype.kind in "OUST" or (kind == "tensor(string)" and array.dtype.type is np.void):
        return "text", _texts(array), array.shape
    if kind == "tensor(bfloat16)" and name == "uint16":
        return "bf16", array.tobytes(), array.shape
    if name in _ADDED:
        return _ADDED[name], array.tobytes(), array.shape
    small = _SMALL.get(name) or _SMALL.get(kind[7:-1])
    if small and array.dtype.itemsize == 1:
        return small, _packed(array), array.shape
    if array.dtype.kind not in "fiub":
        raise TypeError(f"arrays of {array.dtype} are no tensors; convert the array to numbers or texts")
    array = np.require(array, array.dtype.newbyteorder("="), "C")
    return "array", array, ()


def texts(items: list[str], shape: list[int]) -> np.ndarray:
    """An array of texts."""
    out = np.empty(len(items), object)
    out[:] = items
    return out.reshape(shape)


def small(name: str, elements: list[int], shape: list[int]) -> np.ndarray:
    """An array of numbers of four bits: of the package ml_dtypes where it is loaded, else of eight."""
    out = np.array(elements, np.int8 if name == "i4" else np.uint8).reshape(shape)
    added = sys.modules.get("ml_dtypes")
    return out if added is None else out.astype(added.int4 if name == "i4" else added.uint4)


def brain(bits: np.ndarray) -> np.ndarray:
    """An array of bfloat16: of the package ml_dtypes where it is loaded, else the bits."""
    added = sys.modules.get("ml_dtypes")
    return bits if added is None else bits.view(added.bfloat16)
