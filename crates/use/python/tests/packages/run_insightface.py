"""insightface's session class: derived, pickled, and run over a model that is made here."""

import importlib.util
import json
import pathlib
import pickle
import sys
import tempfile

from onnx import TensorProto
from small import normal, save

# The package's own first file imports all of its parts, of which only the models are looked at.
package = pathlib.Path(importlib.util.find_spec("insightface").origin).parent
sys.modules["insightface"] = type(sys)("insightface")
sys.modules["insightface"].__path__ = [str(package)]
from insightface.model_zoo.model_zoo import PickableInferenceSession  # noqa: E402


def recogniser(path):
    """Writes a model with the input and the output of a recogniser of faces."""
    save(
        path,
        [
            ("Conv", ["input", "w"], "c", {"strides": [4, 4]}),
            ("Relu", ["c"], "r", {}),
            ("GlobalAveragePool", ["r"], "g", {}),
            ("Flatten", ["g"], "f", {}),
            ("MatMul", ["f", "m"], "embedding", {}),
        ],
        [("input", TensorProto.FLOAT, ["batch", 3, 112, 112])],
        [("embedding", TensorProto.FLOAT, ["batch", 512])],
        {"w": normal(0, 8, 3, 7, 7, scale=0.1), "m": normal(1, 8, 512)},
    )


with tempfile.TemporaryDirectory() as folder:
    path = str(pathlib.Path(folder, "model.onnx"))
    recogniser(path)
    session = PickableInferenceSession(path, providers=["CPUExecutionProvider"])
    again = pickle.loads(pickle.dumps(session))
    face = normal(2, 2, 3, 112, 112)
    made = [s.run(None, {"input": face})[0].ravel()[::31].tolist() for s in (session, again)]
    print(json.dumps([made, again.get_inputs()[0].shape, again.get_providers()]))
