"""The native module's names once more, as onnxruntime has them."""

from .onnxruntime_pybind11_state import *  # noqa: F403
