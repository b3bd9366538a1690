"""Puts ``shopfloor.onnxruntime`` in the place of onnxruntime."""

import importlib
import importlib.metadata
import pathlib
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

#: The modules that are found under onnxruntime's names, without the leading ``shopfloor.``.
_MODULES = [
    "onnxruntime",
    "onnxruntime.capi",
    "onnxruntime.capi._pybind_state",
    "onnxruntime.capi.onnxruntime_inference_collection",
    "onnxruntime.capi.onnxruntime_pybind11_state",
    "onnxruntime.capi.onnxruntime_validation",
]


class _Distribution(importlib.metadata.Distribution):
    """What says that onnxruntime is installed, in the version whose interface this is."""

    def __init__(self, version: str) -> None:
        self._version = version

    def read_text(self, filename: str) -> Any:
        texts = {
            "METADATA": f"Metadata-Version: 2.1\nName: onnxruntime\nVersion: {self._version}\n",
            "INSTALLER": "shopfloor\n",
            "top_level.txt": "onnxruntime\n",
        }
        return texts.get(filename)

    def locate_file(self, path: Any) -> Any:
        return pathlib.Path(__file__).parent / path


class _Finder(importlib.metadata.DistributionFinder):
    """Finds that distribution before one that is installed."""

    def __init__(self, version: str) -> None:
        self._found = _Distribution(version)

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        return None

    def find_distributions(self, context: Any = None) -> Iterable[importlib.metadata.Distribution]:
        name = getattr(context, "name", None)
        wanted = name is None or name.lower().replace("_", "-") == "onnxruntime"
        return [self._found] if wanted else []


def install() -> ModuleType:
    """Makes ``import onnxruntime`` give ``shopfloor.onnxruntime`` in this process, and lets libraries that
    ask for the distribution find it. Call it before anything imports onnxruntime. Gives the module."""
    module = importlib.import_module("shopfloor.onnxruntime")
    for name in _MODULES:
        sys.modules[name] = importlib.import_module(f"shopfloor.{name}")
    if not any(isinstance(f, _Finder) for f in sys.meta_path):
        sys.meta_path.insert(0, _Finder(module.__version__))
    return module


def uninstall() -> None:
    """Takes back what ``install`` did; modules that imported onnxruntime keep what they have."""
    for name in _MODULES:
        if sys.modules.get(name) is sys.modules.get(f"shopfloor.{name}"):
            sys.modules.pop(name, None)
    sys.meta_path[:] = [f for f in sys.meta_path if not isinstance(f, _Finder)]
