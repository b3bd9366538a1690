"""Exceptions, enumerations and options under the names of onnxruntime's native module."""

from .._binding import IOBinding as SessionIOBinding
from .._enums import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    OrtAllocatorType,
    OrtDeviceMemoryType,
    OrtMemoryInfoDeviceType,
    OrtMemType,
    OrtSparseFormat,
)
from .._environment import (
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
    set_default_logger_callback,
    set_default_logger_severity,
    set_default_logger_verbosity,
    set_global_thread_pool_sizes,
    set_seed,
)
from .._errors import (
    DeviceReset,
    EngineError,
    EPFail,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    ModelLoadCanceled,
    ModelLoaded,
    ModelRequiresCompilation,
    NoModel,
    NoSuchFile,
    NotFound,
    NotImplemented,
    RuntimeException,
)
from .._options import ModelMetadata, NodeArg, OrtArenaCfg, OrtMemoryInfo, RunOptions, SessionOptions
from .._session import InferenceSession
from .._values import OrtDevice, OrtValue, SparseTensor


def get_default_session_options() -> SessionOptions:
    """Options as they are when nothing is said."""
    return SessionOptions()
