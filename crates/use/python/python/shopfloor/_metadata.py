"""What says that onnxruntime is installed, to whoever asks for its distribution."""

import importlib.metadata
import pathlib
import sys
from collections.abc import Iterable
from typing import Any


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


def announce(version: str) -> None:
    """Lets the distribution be found."""
    if not any(isinstance(f, _Finder) for f in sys.meta_path):
        sys.meta_path.insert(0, _Finder(version))


def withdraw() -> None:
    """Takes that back."""
    sys.meta_path[:] = [f for f in sys.meta_path if not isinstance(f, _Finder)]
