"""Element types of ports as those of numpy and PyTorch."""

from typing import Any

import numpy as np

from shopfloor._types import CODE_OF_ONNX, NUMPY_OF_ONNX


def _torch(dtype: Any) -> Any:
    import torch  # type: ignore[import-not-found]  # Here, since few programs have it.

    return getattr(torch, "bool" if dtype == np.bool_ else np.dtype(dtype).name)


def _port(ports: list, name: str) -> str:
    """The type of the port of that name."""
    found = [port.type for port in ports if port.name == name]
    if not found:
        raise ValueError(f"there is no '{name}' among {', '.join(port.name for port in ports)}")
    return found[0]


class TypeHelper:
    """Types of ports, such as ``tensor(float)``, as those of others."""

    @staticmethod
    def get_input_type(ort_session: Any, name: str) -> str:
        """The type of an input."""
        return _port(ort_session.get_inputs(), name)

    @staticmethod
    def get_output_type(ort_session: Any, name: str) -> str:
        """The type of an output."""
        return _port(ort_session.get_outputs(), name)

    @staticmethod
    def ort_type_to_numpy_type(ort_type: str) -> Any:
        """numpy's."""
        if ort_type not in NUMPY_OF_ONNX or ort_type == "tensor(string)":
            raise ValueError(f"{ort_type} is no type of numbers that numpy has")
        return NUMPY_OF_ONNX[ort_type]

    @staticmethod
    def ort_type_to_torch_type(ort_type: str) -> Any:
        """PyTorch's."""
        if ort_type == "tensor(bfloat16)":
            import torch

            return torch.bfloat16
        return _torch(TypeHelper.ort_type_to_numpy_type(ort_type))

    @staticmethod
    def ort_type_to_onnx_type(ort_type: str) -> int:
        """ONNX's code."""
        if ort_type not in CODE_OF_ONNX:
            raise ValueError(f"{ort_type} is no type of a tensor")
        return CODE_OF_ONNX[ort_type]

    @staticmethod
    def numpy_type_to_torch_type(numpy_type: Any) -> Any:
        """PyTorch's for numpy's."""
        return _torch(numpy_type)

    @staticmethod
    def torch_type_to_numpy_type(torch_type: Any) -> Any:
        """numpy's for PyTorch's."""
        return np.dtype(str(torch_type).removeprefix("torch.")).type

    @staticmethod
    def _all(ort_session: Any, of: Any) -> dict[str, Any]:
        return {port.name: of(port.type) for port in ort_session.get_inputs() + ort_session.get_outputs()}

    @staticmethod
    def get_io_numpy_type_map(ort_session: Any) -> dict[str, Any]:
        """numpy's type of each input and output."""
        return TypeHelper._all(ort_session, TypeHelper.ort_type_to_numpy_type)

    @staticmethod
    def get_io_torch_type_map(ort_session: Any) -> dict[str, Any]:
        """PyTorch's type of each input and output."""
        return TypeHelper._all(ort_session, TypeHelper.ort_type_to_torch_type)

    @staticmethod
    def get_io_onnx_type_map(ort_session: Any) -> dict[str, int]:
        """ONNX's code of the type of each input and output."""
        return TypeHelper._all(ort_session, TypeHelper.ort_type_to_onnx_type)
