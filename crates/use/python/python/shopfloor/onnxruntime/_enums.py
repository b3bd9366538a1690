"""Enumerations of onnxruntime."""

from enum import Enum, IntEnum


class _Named(IntEnum):
    """A number that prints as its name."""

    __str__ = Enum.__str__
    __format__ = Enum.__format__


class GraphOptimizationLevel(_Named):
    """How far a graph is rewritten. shopfloor always plans the whole model."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(_Named):
    """Whether operators run side by side. shopfloor's plan decides."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(_Named):
    """In what order operators run. shopfloor's plan decides."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class OrtAllocatorType(_Named):
    """Kinds of allocators."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class OrtMemType(_Named):
    """Kinds of memory."""

    CPU_INPUT = -2
    CPU_OUTPUT = -1
    CPU = -1
    DEFAULT = 0


class OrtDeviceMemoryType(_Named):
    """Whether a device's memory can be read by the host."""

    DEFAULT = 0
    HOST_ACCESSIBLE = 5


class OrtMemoryInfoDeviceType(_Named):
    """Kinds of devices that memory belongs to."""

    CPU = 0
    GPU = 1
    FPGA = 2
    NPU = 3


class OrtDeviceVendorId(IntEnum):
    """Vendors of devices, by their numbers on the PCI bus."""

    NONE = 0x0000
    AMD = 0x1002
    NVIDIA = 0x10DE
    ARM = 0x13B5
    MICROSOFT = 0x1414
    HUAWEI = 0x19E5
    QUALCOMM = 0x5143
    INTEL = 0x8086


class OrtSparseFormat(_Named):
    """Forms of sparse tensors."""

    ORT_SPARSE_UNDEFINED = 0
    ORT_SPARSE_COO = 1
    ORT_SPARSE_CSRC = 2
    ORT_SPARSE_BLOCK_SPARSE = 4


# Members stand beside their class, as onnxruntime's do.
ORT_DISABLE_ALL = GraphOptimizationLevel.ORT_DISABLE_ALL
ORT_ENABLE_BASIC = GraphOptimizationLevel.ORT_ENABLE_BASIC
ORT_ENABLE_EXTENDED = GraphOptimizationLevel.ORT_ENABLE_EXTENDED
ORT_ENABLE_LAYOUT = GraphOptimizationLevel.ORT_ENABLE_LAYOUT
ORT_ENABLE_ALL = GraphOptimizationLevel.ORT_ENABLE_ALL
ORT_SEQUENTIAL = ExecutionMode.ORT_SEQUENTIAL
ORT_PARALLEL = ExecutionMode.ORT_PARALLEL
