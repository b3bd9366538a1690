"""insightface's session class: derived, pickled, and a recogniser over a model that is made here."""

import importlib.util
import json
import pathlib
import pickle
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# The package's own first file imports all of its parts, of which only the models are looked at.
package = pathlib.Path(importlib.util.find_spec("insightface").origin).parent
sys.modules["insightface"] = type(sys)("insightface")
sys.modules["insightface"].__path__ = [str(package)]
from insightface.model_zoo.model_zoo import PickableInferenceSession  # noqa: E402


def recogniser(path):
    """A model with the input and the output of a recogniser of faces."""
    rng = np.random.default_rng(0)
    weights = {
        "w": (rng.normal(size=(8, 3, 7, 7)) * 0.1).astype(np.float32),
        "m": rng.normal(size=(8, 512)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["input", "w"], ["c"], strides=[4, 4]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "m"], ["embedding"]),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "recogniser",
        [info("input", TensorProto.FLOAT, ["batch", 3, 112, 112])],
        [info("embedding", TensorProto.FLOAT, ["batch", 512])],
        [numpy_helper.from_array(w, n) for n, w in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


with tempfile.TemporaryDirectory() as folder:
    path = str(pathlib.Path(folder, "model.onnx"))
    recogniser(path)
    session = PickableInferenceSession(path, providers=["CPUExecutionProvider"])
    again = pickle.loads(pickle.dumps(session))
    face = np.random.default_rng(1).normal(size=(2, 3, 112, 112)).astype(np.float32)
    made = [s.run(None, {"input": face})[0].ravel()[::31].tolist() for s in (session, again)]
    print(json.dumps([made, again.get_inputs()[0].shape, again.get_providers()]))
