"""A model that was prepared."""

from typing import Any

import numpy as np
from onnx.backend.base import BackendRep

# By its own name: under onnxruntime's it would be another class.
from shopfloor.onnxruntime import RunOptions

#: Options of a request that may be given to ``run``.
ALLOWED = frozenset(["log_severity_level", "log_verbosity_level", "logid", "only_execute_path_to_fetches"])


def apply(options: Any, kind: str, given: dict[str, Any], allowed: frozenset[str]) -> None:
    """Sets what may be given; what the options do not know is passed over, as onnxruntime does."""
    for name, value in given.items():
        if name in allowed:
            setattr(options, name, value)
        elif hasattr(options, name):
            raise RuntimeError(
                f"{kind} attribute '{name}' is not permitted via the backend API. "
                f"Allowed attributes: {', '.join(sorted(allowed))}"
            )


def _array(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, np.generic) else value


class OnnxRuntimeBackendRep(BackendRep):
    """A session behind ONNX's interface."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def run(self, inputs: Any, **kwargs: Any) -> Any:
        """Runs on a list of inputs, one for each of the model's, or on the only one; gives the outputs."""
        options = RunOptions()
        apply(options, "RunOptions", kwargs, ALLOWED)
        ports = self._session.get_inputs()
        if isinstance(inputs, list):
            feeds = {port.name: _array(inputs[at]) for at, port in enumerate(ports)}
        elif len(ports) == 1:
            feeds = {ports[0].name: _array(inputs)}
        else:
            raise RuntimeError(f"Model expect {len(ports)} inputs")
        return self._session.run(None, feeds, options)
