"""What onnxruntime says about itself, and its settings for the whole process."""

import platform

import shopfloor

from ._version import VERSION

#: Names of onnxruntime that are not here.
MISSING = frozenset(
    """
    AdapterFormat LoraAdapter ModelCompiler ModelPackage ModelPackageComponentContext ModelPackageContext
    ModelPackageOptions ModelPackageWriteMode OrtCompileApiFlags OrtDeviceMemoryType OrtDeviceVendorId
    OrtEpAssignedNode OrtEpAssignedSubgraph OrtEpContextData OrtEpContextDataBuffer OrtEpDevice
    OrtExecutionProviderDevicePolicy OrtExternalInitializerInfo OrtHardwareDevice OrtHardwareDeviceType
    OrtMemoryInfoDeviceType OrtSyncStream copy_tensors create_and_register_allocator
    create_and_register_allocator_v2 get_ep_devices register_execution_provider_library
    set_default_logger_callback set_global_thread_pool_sizes unregister_execution_provider_library
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
    return f"shopfloor {shopfloor.__version__} with the interface of onnxruntime {VERSION}"


def has_collective_ops() -> bool:
    """Whether there are operators over several processes."""
    return False


def set_seed(seed: int) -> None:
    """Accepted. Random operators of a model that states no seed are not reproducible by it."""


def set_default_logger_severity(severity: int) -> None:
    """Accepted: shopfloor prints nothing."""
    if not 0 <= severity <= 4:
        raise RuntimeError("Invalid logging severity value. Must be 0-4.")


def set_default_logger_verbosity(verbosity: int) -> None:
    """Accepted: shopfloor prints nothing."""


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
