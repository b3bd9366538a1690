"""piper: Arabic and Hebrew vowel points by the models that the package has, and a voice that is made here."""

import json
import pathlib
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from piper import PiperVoice
from piper.hebrew import *  # noqa: F403
from piper.tashkeel import TashkeelDiacritizer

import piper.hebrew as hebrew

found = [TashkeelDiacritizer()("السلام عليكم ورحمة الله")]
for name in dir(hebrew):
    made = getattr(hebrew, name)
    if isinstance(made, type) and name.endswith("Diacritizer"):
        found.append(made()("שלום עולם"))


def voice(folder):
    """A model with the inputs and the output of a voice."""
    rng = np.random.default_rng(0)
    weights = {
        "table": rng.normal(size=(256, 16)).astype(np.float32),
        "filter": (rng.normal(size=(16, 1, 256)) * 0.05).astype(np.float32),
        "axes": np.array([1], np.int64),
    }
    nodes = [
        helper.make_node("Gather", ["table", "input"], ["e"]),
        helper.make_node("Transpose", ["e"], ["t"], perm=[0, 2, 1]),
        helper.make_node("ConvTranspose", ["t", "filter"], ["w"], strides=[256]),
        helper.make_node("Split", ["scales"], ["s0", "s1", "s2"], num_outputs=3),
        helper.make_node("Mul", ["w", "s1"], ["v"]),
        helper.make_node("Tanh", ["v"], ["h"]),
        helper.make_node("Unsqueeze", ["h", "axes"], ["output"]),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "voice",
        [
            info("input", TensorProto.INT64, ["batch", "phonemes"]),
            info("input_lengths", TensorProto.INT64, ["batch"]),
            info("scales", TensorProto.FLOAT, [3]),
        ],
        [info("output", TensorProto.FLOAT, ["batch", 1, 1, "time"])],
        [numpy_helper.from_array(w, n) for n, w in weights.items()],
    )
    path = folder / "voice.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)
    names = "_^$ abcdefghijklmnopqrstuvwxyzəɛɪʊʌɔɑæðŋθʃʒˈˌːɡɹ.,"
    config = {
        "num_symbols": 256,
        "num_speakers": 1,
        "audio": {"sample_rate": 22050},
        "espeak": {"voice": "en-us"},
        "phoneme_type": "espeak",
        "phoneme_id_map": {c: [k] for k, c in enumerate(names)},
        "speaker_id_map": {},
    }
    pathlib.Path(f"{path}.json").write_text(json.dumps(config))
    return path


with tempfile.TemporaryDirectory() as folder:
    speaker = PiperVoice.load(voice(pathlib.Path(folder)))
    for chunk in speaker.synthesize("Hello world. It runs."):
        found.append(np.asarray(chunk.audio_float_array)[::37].tolist())
print(json.dumps(found))
