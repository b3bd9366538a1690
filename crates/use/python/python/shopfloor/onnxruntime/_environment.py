"""What onnxruntime says about itself, and its settings for the whole process."""

import platform
import traceback
from typing import Any, Callable, Optional

import shopfloor

from ._version import VERSION

#: Names of onnxruntime that are not here.
MISSING = frozenset(
    """
    AdapterFormat LoraAdapter ModelCompiler ModelPackage ModelPackageComponentContext ModelPackageContext
    ModelPackageOptions ModelPackageWriteMode OrtCompileApiFlags OrtEpAssignedNode OrtEpAssignedSubgraph
    OrtEpContextData OrtEpContextDataBuffer OrtEpDevice OrtExecutionProviderDevicePolicy
    OrtExternalInitializerInfo OrtHardwareDevice OrtHardwareDeviceType OrtSyncStream get_ep_devices
    register_execution_provider_library unregister_execution_provider_library
    """.split()
)

_ALL = """
    NvTensorRTRTXExecutionProvider TensorrtExecutionProvider CUDAExecutionProvider MIGraphXExecutionProvider
    OpenVINOExecutionProvider DnnlExecutionProvider VitisAIExecutionProvider QNNExecutionProvider
    NnapiExecutionProvider VSINPUExecutionProvider JsExecutionProvider CoreMLExecutionProvider
    ArmNNExecutionProvider ACLExecutionProvider DmlExecutionProvider RknpuExecutionProvider
    WebNNExecutionProvider WebGpuExecutionProvider XnnpackExecutionProvider CANNExecutionProvider
    AzureExecutionProvider CPUExecutionProvider
""".split()


def get_all_providers() -> list[str]:
    """Names of execution providers that onnxruntime knows."""
    return list(_ALL)


def get_available_providers() -> list[str]:
    """Names of execution providers that there are."""
    return ["CPUExecutionProvider"]


def get_device() -> str:
    """The kind of device that this build runs on."""
    return "CPU"


def get_version_string() -> str:
    """The version of onnxruntime whose interface this is."""
    return VERSION


def get_build_info() -> str:
    """What this build is."""
    return f"ORT Build Info: shopfloor {shopfloor.__version__} with the interface of onnxruntime {VERSION}"


def has_collective_ops() -> bool:
    """Whether there are operators over several processes."""
    return False


def set_seed(seed: int) -> None:
    """Accepted. Random operators of a model that states no seed are not reproducible by it."""


#: Whom messages go to, and the least severity of those.
_logger: Optional[Callable[[int, str, str, str, str], Any]] = None
_least = 2


def set_default_logger_severity(severity: int) -> None:
    """The least severity of messages that the callback is given; without one shopfloor prints nothing."""
    global _least
    if not 0 <= severity <= 4:
        raise RuntimeError("Invalid logging severity value. Must be 0-4.")
    _least = severity


def set_default_logger_callback(callback: Optional[Callable[[int, str, str, str, str], Any]], severity: int = 2) -> None:
    """Gives messages to ``callback(severity, category, logid, code_location, message)``; ``None`` ends that."""
    global _logger
    if callback is not None and not callable(callback):
        raise RuntimeError("callback must be a callable; give a function of five arguments, or None")
    if callback is not None:
        set_default_logger_severity(severity)
    elif not 0 <= severity <= 4:
        raise RuntimeError("Invalid logging severity value. Must be 0-4.")
    _logger = callback


def log(severity: int, logid: str, place: str, message: str) -> None:
    """Gives a message to the callback, if there is one; what that raises is reported and ends nothing."""
    callback = _logger
    if callback is None or severity < _least:
        return
    try:
        callback(severity, "shopfloor", logid, place, message)
    except Exception:
        traceback.print_exc()


def set_default_logger_verbosity(verbosity: int) -> None:
    """Accepted: shopfloor prints nothing."""


def create_and_register_allocator(memory_info: Any, arena_config: Any = None) -> None:
    """Accepted: a plan holds the memory of its requests."""


def create_and_register_allocator_v2(provider: str, memory_info: Any, options: dict, arena_config: Any = None) -> None:
    """Accepted: a plan holds the memory of its requests."""


def set_global_thread_pool_sizes(intra_op_num_threads: int, inter_op_num_threads: int) -> None:
    """Accepted: all sessions share the workers of the process in any case."""


def copy_tensors(source: Any, destination: Any, stream: Any = None) -> None:
    """Writes the elements of values of onnxruntime into others of the same sizes."""
    if len(source) != len(destination):
        raise ValueError(f"there are {len(source)} values to copy and {len(destination)} to write; give as many of both")
    for one, into in zip(source, destination):
        into.update_inplace(one.numpy())


def enable_telemetry_events() -> None:
    """Accepted: shopfloor sends nothing."""


def disable_telemetry_events() -> None:
    """Accepted: shopfloor sends nothing."""


def preload_dlls(cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: object = None) -> None:
    """Accepted: there is nothing to load beforehand."""


def print_debug_info() -> None:
    """Prints what this build is and where it runs."""
    print(get_build_info())
    print(f"Python {platform.python_version()} on {platform.platform()}")
