"""ONNX's interface for backends, as ``onnxruntime.backend`` has it. It needs the package ``onnx``."""

from .backend import OnnxRuntimeBackend, is_compatible, prepare, run, supports_device
from .backend_rep import OnnxRuntimeBackendRep

__all__ = ["OnnxRuntimeBackend", "OnnxRuntimeBackendRep", "is_compatible", "prepare", "run", "supports_device"]
