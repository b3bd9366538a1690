"""Values and devices of onnxruntime: arrays of the host, and sequences and maps of them."""

import ctypes
from typing import Any, Optional

import numpy as np

from shopfloor._types import CODE_OF_ONNX, NUMPY_OF_CODE, onnx_name

from ._enums import OrtDeviceVendorId
from ._errors import unsupported


#: onnxruntime's numbers of kinds of devices, and the vendor that a name stands for.
_KINDS = {"cpu": 0, "cuda": 1, "gpu": 1, "npu": 3, "cann": 3, "dml": 4, "webgpu": 1}
_VENDORS = {"cuda": OrtDeviceVendorId.NVIDIA, "dml": OrtDeviceVendorId.MICROSOFT, "cann": OrtDeviceVendorId.HUAWEI}


class OrtDevice:
    """A device by its kind and number. Values are on the host."""

    def __init__(self, kind: int, memory: int, *vendor_and_id: int) -> None:
        self._kind, self._memory = kind, memory
        *vendor, self._id = vendor_and_id
        self._vendor = int(vendor[0]) if vendor else 0

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> "OrtDevice":
        """The device of that name and number."""
        if ort_device_name not in _KINDS:
            raise Exception(f"Unsupported device type: {ort_device_name}; use one of {', '.join(_KINDS)}")
        vendor = _VENDORS.get(ort_device_name, 0) if vendor_id < 0 else vendor_id
        return OrtDevice(_KINDS[ort_device_name], 0, vendor, device_id)

    @staticmethod
    def cpu() -> int:
        """The number of the host's kind."""
        return 0

    @staticmethod
    def cuda() -> int:
        """The number of NVIDIA's kind."""
        return 1

    @staticmethod
    def default_memory() -> int:
        """The number of the usual memory."""
        return 0

    def _get_c_device(self) -> "OrtDevice":
        return self

    def device_type(self) -> int:
        """The number of the kind of device; 0 for the host."""
        return self._kind

    def device_id(self) -> int:
        """The number of the device."""
        return self._id

    def device_vendor_id(self) -> int:
        """The number of the vendor; 0 for the host."""
        return self._vendor

    def device_mem_type(self) -> int:
        """The kind of memory; 0 for the usual one."""
        return self._memory


def on_host(device: Any, what: str) -> None:
    """Raises unless ``device``, its name or an ``OrtDevice``, is the host."""
    made = device if isinstance(device, OrtDevice) else OrtDevice.make(device, 0)
    if made.device_type() != 0:
        raise unsupported(f"{what} on '{device}'", "use 'cpu'")


def from_pointer(pointer: int, shape: Any, dtype: np.dtype) -> np.ndarray:
    """An array over memory that somebody else holds."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = (ctypes.c_char * size).from_address(pointer)
    return np.frombuffer(memoryview(memory), dtype).reshape(tuple(shape))


def element(kind: Any) -> np.dtype:
    """numpy's type of an element type: numpy's own, or ONNX's code."""
    if isinstance(kind, int):
        if kind not in NUMPY_OF_CODE:
            raise unsupported(f"the element type {kind}", "use a type that numpy has")
        kind = NUMPY_OF_CODE[kind]
    return np.dtype(kind)


class OrtValue:
    """A tensor of the host, or a sequence or map of them."""

    def __init__(self, value: Any, kind: Optional[str] = None) -> None:
        self._value = value
        self._kind = kind

    @staticmethod
    def ortvalue_from_numpy(numpy_obj: Any, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1) -> "OrtValue":
        """The value of an array, which is shared where it lies in a row."""
        on_host(device_type, "OrtValue.ortvalue_from_numpy")
        if np.asarray(numpy_obj).dtype.kind in "OUSmM":
            raise RuntimeError("Only tensors of numbers can be values; give texts to InferenceSession.run")
        return OrtValue(np.ascontiguousarray(numpy_obj) if np.ndim(numpy_obj) else np.asarray(numpy_obj))

    @staticmethod
    def ortvalue_from_numpy_with_onnx_type(data: Any, onnx_element_type: int) -> "OrtValue":
        """The value of an array whose elements are the bits of an ONNX type."""
        names = {code: name for name, code in CODE_OF_ONNX.items()}
        return OrtValue(data, names.get(onnx_element_type))

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Any, element_type: Any = np.float32, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> "OrtValue":
        """A value with room for elements of that type."""
        on_host(device_type, "OrtValue.ortvalue_from_shape_and_type")
        if element_type == CODE_OF_ONNX["tensor(bfloat16)"]:
            return OrtValue(np.zeros(tuple(shape), np.uint16), "tensor(bfloat16)")
        return OrtValue(np.zeros(tuple(shape), element(element_type)))

    @staticmethod
    def from_dlpack(data: Any, is_bool_tensor: bool = False) -> "OrtValue":
        """The value of a tensor of another library, which is shared."""
        array = np.from_dlpack(data) if hasattr(data, "__dlpack__") else np.from_dlpack(_Capsule(data))
        return OrtValue(array.view(np.bool_) if is_bool_tensor else array)

    @staticmethod
    def ort_value_from_sparse_tensor(sparse_tensor: Any) -> "OrtValue":
        """Not supported."""
        raise unsupported("OrtValue.ort_value_from_sparse_tensor", "give a dense tensor")

    def as_sparse_tensor(self) -> Any:
        """Not supported."""
        raise unsupported("OrtValue.as_sparse_tensor", "use a dense tensor")

    @property
    def _ortvalue(self) -> "OrtValue":
        return self

    def _get_c_value(self) -> "OrtValue":
        return self

    def to_dlpack(self) -> Any:
        """The tensor for another library, which shares it."""
        return self._value.__dlpack__()

    def numpy(self) -> Any:
        """The array, or the list or dict of arrays."""
        return self._value

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.asarray(self._value, dtype) if copy is None else np.array(self._value, dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        return self._value.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._value.__dlpack_device__()

    def shape(self) -> list[int]:
        """Extents."""
        return list(self._value.shape)

    def data_type(self) -> str:
        """The type as ONNX spells it."""
        if self._kind is not None:
            return self._kind
        if isinstance(self._value, list):
            first = OrtValue(self._value[0]).data_type() if self._value else "tensor(float)"
            return f"seq({first})"
        return onnx_name(self._value.dtype)

    def element_type(self) -> int:
        """ONNX's code of the element type."""
        return CODE_OF_ONNX[self.data_type()]

    def device_name(self) -> str:
        """The device that it is on."""
        return "cpu"

    def data_ptr(self) -> int:
        """The address of the first element."""
        return self._value.ctypes.data

    def tensor_size_in_bytes(self) -> int:
        """Bytes that the elements take."""
        return self._value.nbytes

    def has_value(self) -> bool:
        """Whether there is a value."""
        return self._value is not None

    def is_tensor(self) -> bool:
        """Whether it is a dense tensor."""
        return isinstance(self._value, np.ndarray)

    def is_tensor_sequence(self) -> bool:
        """Whether it is a sequence."""
        return isinstance(self._value, list)

    def is_sparse_tensor(self) -> bool:
        """Whether it is a sparse tensor."""
        return False

    def update_inplace(self, np_arr: np.ndarray) -> None:
        """Writes the elements of an array into this tensor."""
        if np.shape(np_arr) != self._value.shape:
            text = "The input size of numpy arrays does not match the size of the OrtValue"
            raise RuntimeError(f"{text}: {list(np.shape(np_arr))} for {self.shape()}")
        np.copyto(self._value, np_arr, casting="no")


class _Capsule:
    """A capsule of DLPack as an object that gives it once."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


class SparseTensor:
    """Not supported."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        raise unsupported("SparseTensor", "use dense tensors")

    @staticmethod
    def sparse_coo_from_numpy(*arguments: Any) -> Any:
        """Not supported."""
        raise unsupported("SparseTensor.sparse_coo_from_numpy", "use dense tensors")

    @staticmethod
    def sparse_csr_from_numpy(*arguments: Any) -> Any:
        """Not supported."""
        raise unsupported("SparseTensor.sparse_csr_from_numpy", "use dense tensors")
