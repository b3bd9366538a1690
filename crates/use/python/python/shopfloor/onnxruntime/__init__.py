"""The interface of onnxruntime over shopfloor.

Programs that were written for onnxruntime run on it: ``python -m shopfloor run app.py``, or
``shopfloor.install()`` before onnxruntime is imported, or ``import shopfloor.onnxruntime as onnxruntime``.
What is not supported raises an error that names it.
"""

from ._environment import (
    copy_tensors,
    create_and_register_allocator,
    create_and_register_allocator_v2,
    disable_telemetry_events,
    enable_telemetry_events,
    get_all_providers,
    get_available_providers,
    get_build_info,
    get_device,
    get_version_string,
    has_collective_ops,
    preload_dlls,
    print_debug_info,
    set_default_logger_callback,
    set_default_logger_severity,
    set_default_logger_verbosity,
    set_global_thread_pool_sizes,
    set_seed,
)
from ._enums import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    OrtAllocatorType,
    OrtDeviceMemoryType,
    OrtDeviceVendorId,
    OrtMemoryInfoDeviceType,
    OrtMemType,
    OrtSparseFormat,
)
from ._options import ModelMetadata, NodeArg, OrtArenaCfg, OrtMemoryInfo, RunOptions, SessionOptions
from ._values import OrtDevice, OrtValue, SparseTensor
from ._binding import IOBinding
from ._session import InferenceSession
from ._version import VERSION as __version__
from .capi import onnxruntime_validation
from .capi.onnxruntime_validation import cuda_version, package_name, version
from . import capi

SessionIOBinding = IOBinding
__author__ = "shopfloor"


def __getattr__(name: str) -> object:
    """Raises for what onnxruntime has and this module has not, by its name."""
    from ._environment import MISSING

    if name in MISSING:
        from ._errors import NotImplemented

        raise NotImplemented(9, f"onnxruntime.{name} is not supported by shopfloor")
    raise AttributeError(f"module 'onnxruntime' has no attribute '{name}'")
