"""Errors of shopfloor as onnxruntime would have said them: the same class, the same first words."""

import os
import re
from collections.abc import Mapping
from typing import Any, Optional, Union

import numpy as np

import shopfloor
from shopfloor._types import NUMPY_OF_ONNX, onnx_name

from ._errors import Fail, InvalidArgument, InvalidGraph, InvalidProtobuf, NoSuchFile, NotImplemented

#: Operators of the standard that shopfloor does not have; others that it does not know are none of it.
_NOT_COVERED = {"MaxRoiPool"}
#: What shopfloor says of a model that contradicts itself, and what onnxruntime raises for it.
_LOADING = [
    (r"attribute '.*' is not known", (InvalidGraph, 10)),
    (r"which nothing before it defines", (InvalidArgument, 2)),
    (r"ir_version|opset|is never computed|which is defined before it|inputs have types", (Fail, 1)),
]
#: Types of numpy that onnxruntime has no type for.
_NO_TYPE = "cmMV"


def _failed(source: Union[str, bytes], text: str) -> str:
    return text if isinstance(source, bytes) else f"Load model from {source} failed:{text}"


def source(source: Union[str, bytes]) -> None:
    """Raises where there is no file, or nothing in it."""
    if isinstance(source, bytes):
        empty = not source
    elif not os.path.exists(source):
        text = f"Load model {source} failed. File doesn't exist"
        raise NoSuchFile(3, _failed(source, text))
    elif os.path.isdir(source):
        raise InvalidProtobuf(7, _failed(source, "Protobuf parsing failed."))
    else:
        empty = os.path.getsize(source) == 0
    if empty:
        raise InvalidArgument(2, _failed(source, "No graph was found in the protobuf."))


def load(source: Union[str, bytes], error: shopfloor.Error) -> Exception:
    """The exception for a model that cannot be made a session."""
    text = _failed(source, str(error))
    if isinstance(error, shopfloor.DamagedError):
        if isinstance(source, bytes):
            return InvalidProtobuf(7, f"Failed to load model because protobuf parsing failed. {text}")
        return InvalidProtobuf(7, f"Load model from {source} failed:Protobuf parsing failed. {error}")
    if isinstance(error, shopfloor.UnsupportedError):
        domains = re.findall(r"node '.*?': (\S+?)::", str(error))
        foreign = any(domain not in ("ai.onnx", "ai.onnx.ml", "com.microsoft") for domain in domains)
        if foreign or ": known for opsets" in text:
            return Fail(1, text)
        names = re.findall(r"ai\.onnx::(\S+) of opset \d+: this operator is not covered", text)
        unknown = [name for name in names if name not in _NOT_COVERED]
        return InvalidGraph(10, text) if unknown else NotImplemented(9, text)
    if isinstance(error, shopfloor.ModelError):
        complex_type = re.search(r"element type (COMPLEX\d+) is not supported", text)
        if complex_type:
            text = f"This is an invalid model. Type Error: Type 'tensor({complex_type[1].lower()})' is invalid. {text}"
        kind, code = next((k for pattern, k in _LOADING if re.search(pattern, text)), (InvalidGraph, 10))
        return kind(code, text)
    return Fail(1, text)


def missing(session: Any, feed: Any) -> None:
    """Raises where inputs are missing, as onnxruntime does before it looks at anything else."""
    names = [arg.name for arg in session.get_inputs() if not arg.type.startswith("optional(")]
    left = [name for name in names if name not in feed]
    if left:
        raise ValueError(f"Required inputs ({left}) are missing from input feed ({list(feed.keys())}).")


def _given_type(value: Any) -> Optional[str]:
    """The type of a value as ONNX spells it; ``None`` where it is neither an array nor a map."""
    if isinstance(value, np.ndarray):
        return onnx_name(value.dtype)
    if isinstance(value, dict):
        key = "string" if any(isinstance(k, str) for k in value) else "int64"
        return f"map({key},tensor(float))"
    return None


def _no_tensor(name: str, value: Any) -> Optional[str]:
    """Why no tensor can be made of a value, in onnxruntime's words; ``None`` where one can."""
    if isinstance(value, np.ndarray):
        odd = value.dtype.kind in _NO_TYPE and value.dtype.num < 256
        return f"Numpy_type {value.dtype.num} can't be converted to MLDataType." if odd else None
    if isinstance(value, list):
        return "Could not create tensor from given input list"
    if isinstance(value, (str, bytes, tuple)):
        return f"Input must be a list of dictionaries or a single numpy array for input '{name}'."
    return None if value is None or isinstance(value, dict) else f"Unable to handle object of type {type(value)}"


def arguments(names: Any, feed: Any) -> Optional[Exception]:
    """What is wrong with the form of a request's arguments; ``None`` where it is right."""
    text = "run(): incompatible function arguments: "
    if not hasattr(feed, "keys"):
        return AttributeError(f"'{type(feed).__name__}' object has no attribute 'keys'")
    if isinstance(names, (str, bytes)) or not all(isinstance(n, str) for n in names or []):
        return TypeError(f"{text}names of outputs are given as a list of str")
    if not all(isinstance(n, str) for n in feed):
        return TypeError(f"{text}names of inputs are str")
    return None


def _dims(name: str, shape: tuple[int, ...], want: list[Any]) -> Optional[str]:
    wrong = [
        f" index: {k} Got: {got} Expected: {size}"
        for k, (got, size) in enumerate(zip(shape, want))
        if isinstance(size, int) and size >= 0 and got != size
    ]
    if not wrong:
        return None
    lines = "\n".join(wrong)
    return (
        f"Got invalid dimensions for input: {name} for the following indices\n{lines}\n"
        " Please fix either the inputs/outputs or the model."
    )


def _input(arg: Any, value: Any) -> Optional[str]:
    """What is wrong with the value of an input, in onnxruntime's words."""
    got = _given_type(value)
    comparable = arg.type.startswith("tensor(") or (arg.type.startswith("seq(") and isinstance(value, np.ndarray))
    if got is None or not comparable:
        return None
    if got != arg.type:
        return f"Unexpected input data type. Actual: ({got}) , expected: ({arg.type})"
    if arg.stated and value.ndim != len(arg.shape):
        return (
            f"Invalid rank for input: {arg.name} Got: {value.ndim} Expected: {len(arg.shape)} "
            "Please fix either the inputs/outputs or the model."
        )
    return _dims(arg.name, value.shape, arg.shape) if arg.stated else None


def mended(session: Any, feed: Any) -> Optional[dict[str, Any]]:
    """The inputs with what onnxruntime lets pass put right: optional values that are left out, and arrays of
    one element where the model takes scalars; other mappings as a dict. ``None`` where there is nothing of that."""
    if not isinstance(feed, Mapping):
        return None
    made: dict[str, Any] = {}
    for arg in session.get_inputs():
        value = feed.get(arg.name)
        if arg.name not in feed and arg.type.startswith("optional("):
            made[arg.name] = None
        scalar = arg.stated and not arg.shape and arg.type.startswith("tensor(")
        if scalar and isinstance(value, np.ndarray) and value.ndim and value.size == 1:
            made[arg.name] = value.reshape(())
        if scalar and isinstance(value, list) and len(value) == 1:
            made[arg.name] = np.array(value[0], NUMPY_OF_ONNX.get(arg.type))
    return {**feed, **made} if made or not isinstance(feed, dict) else None


def run(session: Any, names: Any, feed: Any, error: Exception) -> Exception:
    """The exception for a request that failed with ``error``."""
    try:
        missing(session, feed)
    except ValueError as e:
        return e
    if not isinstance(error, (shopfloor.Error, TypeError, ValueError)):
        return error
    args = {arg.name: arg for arg in session.get_inputs() + session.get_overridable_initializers()}
    for name in feed:
        if name not in args:
            return InvalidArgument(2, f"Invalid input name: {name}")
    outputs = [arg.name for arg in session.get_outputs()]
    for name in names or []:
        if name not in outputs:
            return InvalidArgument(2, f"Invalid output name:{name}")
    for name, value in feed.items():
        whole = not args[name].type.startswith("seq(") or not isinstance(value, list)
        unread = isinstance(error, (TypeError, ValueError, shopfloor.InputError)) and whole
        text = _no_tensor(name, value) if unread else None
        if text is not None:
            return RuntimeError(text)
        text = _input(args[name], value)
        if text is not None:
            return InvalidArgument(2, text)
    if isinstance(error, (TypeError, ValueError)):
        return RuntimeError(f"{error}")
    if re.search(r"out of range|out of bounds|outside", str(error)):
        return InvalidArgument(2, f"Non-zero status code returned while running a node. Status Message: {error}")
    return Fail(1, f"Non-zero status code returned while running a node. Status Message: {error}")
