"""Inputs and outputs that stay with a caller from request to request."""

from typing import Any, Optional

import numpy as np

from ._errors import InvalidArgument
from ._values import OrtValue, element, from_pointer, on_host


class IOBinding:
    """Inputs and outputs of requests, by name."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, Optional[np.ndarray]] = {}
        self._results: list[Any] = []

    @property
    def _iobinding(self) -> "IOBinding":
        return self

    def _set_input(self, name: str, value: Any) -> None:
        known = self._session.get_inputs() + self._session.get_overridable_initializers()
        if not any(arg.name == name for arg in known):
            raise RuntimeError(f"Failed to find NodeArg with name: {name} in the def list")
        self._inputs[name] = value

    def bind_cpu_input(self, name: str, arr_on_cpu: np.ndarray) -> None:
        """Gives an input an array."""
        self._set_input(name, arr_on_cpu)

    def bind_input(self, name: str, device_type: str, device_id: int, element_type: Any, shape: Any, buffer_ptr: int) -> None:
        """Gives an input memory of the host."""
        on_host(device_type, "IOBinding.bind_input")
        self._set_input(name, from_pointer(buffer_ptr, shape, element(element_type)))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Gives an input a value."""
        self._set_input(name, ortvalue.numpy())

    def _set_output(self, name: str, value: Optional[np.ndarray]) -> None:
        self._outputs[name] = value

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Any = None,
        buffer_ptr: Optional[int] = None,
    ) -> None:
        """Asks for an output; with an address it is written there."""
        on_host(device_type, "IOBinding.bind_output")
        if buffer_ptr is not None and (element_type is None or shape is None):
            raise ValueError("`element_type` and `shape` are to be provided if pre-allocated memory is provided")
        into = None if buffer_ptr is None else from_pointer(buffer_ptr, shape, element(element_type))
        self._set_output(name, into)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Asks for an output, to be written into a value."""
        self._set_output(name, ortvalue.numpy())

    def synchronize_inputs(self) -> None:
        """Accepted: inputs are on the host."""

    def synchronize_outputs(self) -> None:
        """Accepted: outputs are on the host."""

    def get_outputs(self) -> list[OrtValue]:
        """What the last request gave, in the order in which outputs were bound."""
        return [OrtValue(value) for value in self._results]

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The same as arrays."""
        return list(self._results)

    def clear_binding_inputs(self) -> None:
        """Forgets the inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forgets the outputs."""
        self._outputs.clear()
        self._results = []

    def _run(self, run_options: Any) -> None:
        names = list(self._outputs)
        if not names:
            raise InvalidArgument(2, "At least one output should be requested.")
        made = self._session.run(names, self._inputs, run_options)
        self._results = []
        for name, value in zip(names, made):
            into = self._outputs[name]
            if into is None:
                self._results.append(value)
                continue
            if into.shape != value.shape or into.dtype != value.dtype:
                raise InvalidArgument(
                    2,
                    f"output '{name}' is {value.dtype}{list(value.shape)}, but room was bound for "
                    f"{into.dtype}{list(into.shape)}",
                )
            np.copyto(into, value)
            self._results.append(into)
