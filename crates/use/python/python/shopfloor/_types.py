"""Element types: numpy's for ONNX's names and codes."""

import numpy as np

#: ONNX's code, its name in types such as ``tensor(float)``, and numpy's type (``None`` where it has none).
_TABLE = [
    (1, "float", np.float32),
    (2, "uint8", np.uint8),
    (3, "int8", np.int8),
    (4, "uint16", np.uint16),
    (5, "int16", np.int16),
    (6, "int32", np.int32),
    (7, "int64", np.int64),
    (8, "string", np.object_),
    (9, "bool", np.bool_),
    (10, "float16", np.float16),
    (11, "double", np.float64),
    (12, "uint32", np.uint32),
    (13, "uint64", np.uint64),
    (14, "complex64", np.complex64),
    (15, "complex128", np.complex128),
    (16, "bfloat16", None),
    (17, "float8e4m3fn", None),
    (18, "float8e4m3fnuz", None),
    (19, "float8e5m2", None),
    (20, "float8e5m2fnuz", None),
    (21, "uint4", None),
    (22, "int4", None),
]

#: numpy's type by ONNX's name of a tensor's type.
NUMPY_OF_ONNX = {f"tensor({name})": kind for _, name, kind in _TABLE if kind is not None}
#: numpy's type by ONNX's code.
NUMPY_OF_CODE = {code: kind for code, _, kind in _TABLE if kind is not None}
#: ONNX's code by its name of a tensor's type.
CODE_OF_ONNX = {f"tensor({name})": code for code, name, _ in _TABLE}
_NAME_OF_NUMPY = {np.dtype(kind).name: name for _, name, kind in _TABLE if kind is not None}


def onnx_name(dtype: np.dtype) -> str:
    """ONNX's name for a tensor of numpy's type."""
    if dtype.kind in "OUST":
        return "tensor(string)"
    name = dtype.name
    return f"tensor({_NAME_OF_NUMPY.get(name) or name.replace('_', '')})"
