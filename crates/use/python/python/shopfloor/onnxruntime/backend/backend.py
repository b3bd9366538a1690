"""Models prepared and run by ONNX's interface for backends."""

import os
import unittest
from typing import Any, Optional

from onnx import helper
from onnx.backend.base import Backend
from onnx.checker import check_model

# By their own name: under onnxruntime's they would be other classes.
from shopfloor.onnxruntime import InferenceSession, SessionOptions, get_device

from .backend_rep import OnnxRuntimeBackendRep, apply

#: Options of a session that may be given to ``prepare``.
ALLOWED = frozenset(
    """
    enable_cpu_mem_arena enable_mem_pattern enable_mem_reuse execution_mode execution_order graph_optimization_level
    inter_op_num_threads intra_op_num_threads log_severity_level log_verbosity_level logid use_deterministic_compute
    use_per_session_threads
    """.split()
)


class OnnxRuntimeBackend(Backend):
    """ONNX's interface for backends over sessions."""

    allowReleasedOpsetsOnly = os.getenv("ALLOW_RELEASED_ONNX_OPSET_ONLY", "1") == "1"  # noqa: N815

    @classmethod
    def is_compatible(cls, model: Any, device: Optional[str] = None, **kwargs: Any) -> bool:
        """Whether models run on ``device``."""
        return cls.supports_device(get_device() if device is None else device)

    @classmethod
    def is_opset_supported(cls, model: Any) -> tuple[bool, str]:
        """Whether ONNX has released the model's opsets, and what to say where it has not."""
        for opset in model.opset_import if cls.allowReleasedOpsetsOnly else []:
            domain = opset.domain or "ai.onnx"
            if (domain, opset.version) not in helper.OP_SET_ID_VERSION_MAP:
                return False, (
                    "Skipping this test as only released onnx opsets are supported."
                    "To run this test set env variable ALLOW_RELEASED_ONNX_OPSET_ONLY to 0."
                    f" Got Domain '{domain}' version '{opset.version}'."
                )
        return True, ""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether this is the processor."""
        return device in get_device().split("-")

    @classmethod
    def prepare(cls, model: Any, device: Optional[str] = None, **kwargs: Any) -> OnnxRuntimeBackendRep:
        """The model (a path, a file's bytes, a ``ModelProto`` or a session), ready to run. Options of sessions may be
        given by name."""
        if isinstance(model, OnnxRuntimeBackendRep):
            return model
        if isinstance(model, InferenceSession):
            return OnnxRuntimeBackendRep(model)
        if not isinstance(model, (str, bytes)):
            data = model.SerializeToString()
            check_model(data)
            supported, complaint = cls.is_opset_supported(model)
            if not supported:
                raise unittest.SkipTest(complaint)
            model = data
        options = SessionOptions()
        apply(options, "SessionOptions", kwargs, ALLOWED)
        session = InferenceSession(model, options, providers=["CPUExecutionProvider"])
        if device is not None and not cls.supports_device(device):
            raise RuntimeError(f"Incompatible device expected '{device}', got '{get_device()}'")
        return OnnxRuntimeBackendRep(session)

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: Optional[str] = None, **kwargs: Any) -> Any:
        """Prepares the model and runs it once."""
        return cls.prepare(model, device, **kwargs).run(inputs, **kwargs)

    @classmethod
    def run_node(cls, node: Any, inputs: Any, device: Any = None, outputs_info: Any = None, **kwargs: Any) -> Any:
        """Not there, as in onnxruntime."""
        raise NotImplementedError("It is much more efficient to run a whole model than every node independently.")


is_compatible = OnnxRuntimeBackend.is_compatible
prepare = OnnxRuntimeBackend.prepare
run = OnnxRuntimeBackend.run_model
supports_device = OnnxRuntimeBackend.supports_device
