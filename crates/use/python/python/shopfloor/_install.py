"""Puts ``shopfloor.onnxruntime`` in the place of onnxruntime."""

import importlib
import sys
import warnings
from types import ModuleType

#: The modules that are found under onnxruntime's names, without the leading ``shopfloor.``.
_MODULES = [
    "onnxruntime",
    "onnxruntime.capi",
    "onnxruntime.capi._pybind_state",
    "onnxruntime.capi.onnxruntime_inference_collection",
    "onnxruntime.capi.onnxruntime_pybind11_state",
    "onnxruntime.capi.onnxruntime_validation",
    "onnxruntime.transformers",
    "onnxruntime.transformers.io_binding_helper",
]


def install() -> ModuleType:
    """Makes ``import onnxruntime`` give ``shopfloor.onnxruntime`` in this process, and lets libraries that
    ask for the distribution find it. Call it before anything imports onnxruntime. Gives the module."""
    module = importlib.import_module("shopfloor.onnxruntime")
    if sys.modules.get("onnxruntime") not in (None, module):
        warnings.warn("onnxruntime was imported already; modules that imported it keep it", stacklevel=2)
    for name in _MODULES:
        sys.modules[name] = importlib.import_module(f"shopfloor.{name}")
    from . import _metadata  # Takes long to import, and is needed here alone.

    _metadata.announce(module.__version__)
    return module


def uninstall() -> None:
    """Takes back what ``install`` did; modules that imported onnxruntime keep what they have."""
    for name in _MODULES:
        if sys.modules.get(name) is sys.modules.get(f"shopfloor.{name}"):
            sys.modules.pop(name, None)
    from . import _metadata

    _metadata.withdraw()
