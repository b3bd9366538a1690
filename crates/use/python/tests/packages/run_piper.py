"""piper: Arabic and Hebrew vowel points by the models that the package has, and a voice that is made here."""

import json
import pathlib
import tempfile

import numpy as np
from onnx import TensorProto
from piper import PiperVoice
from piper.hebrew import NakdimonDiacritizer
from piper.tashkeel import TashkeelDiacritizer
from small import normal, save

NAMES = "_^$ abcdefghijklmnopqrstuvwxyzəɛɜɪʊʌɔɑæðŋθʃʒˈˌːɡɹ.,"
CONFIG = {
    "num_symbols": 256,
    "num_speakers": 1,
    "audio": {"sample_rate": 22050},
    "espeak": {"voice": "en-us"},
    "phoneme_type": "espeak",
    "phoneme_id_map": {c: [k] for k, c in enumerate(NAMES)},
    "speaker_id_map": {},
}


def voice(path):
    """Writes a model with the inputs and the output of a voice."""
    save(
        path,
        [
            ("Gather", ["table", "input"], "e", {}),
            ("Transpose", ["e"], "t", {"perm": [0, 2, 1]}),
            ("ConvTranspose", ["t", "filter"], "w", {"strides": [256]}),
            ("Gather", ["scales", "one"], "s", {}),
            ("Mul", ["w", "s"], "v", {}),
            ("Tanh", ["v"], "h", {}),
            ("Unsqueeze", ["h", "axes"], "output", {}),
        ],
        [
            ("input", TensorProto.INT64, ["batch", "phonemes"]),
            ("input_lengths", TensorProto.INT64, ["batch"]),
            ("scales", TensorProto.FLOAT, [3]),
        ],
        [("output", TensorProto.FLOAT, ["batch", 1, 1, "time"])],
        {
            "table": normal(0, 256, 16),
            "filter": normal(1, 16, 1, 256, scale=0.05),
            "one": np.int64(1),
            "axes": np.array([1], np.int64),
        },
    )
    pathlib.Path(f"{path}.json").write_text(json.dumps(CONFIG))


found = [TashkeelDiacritizer()("السلام عليكم ورحمة الله"), NakdimonDiacritizer()("שלום עולם")]
with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder, "voice.onnx")
    voice(path)
    for chunk in PiperVoice.load(path).synthesize("Hello world. It runs."):
        found.append(np.asarray(chunk.audio_float_array)[::37].tolist())
print(json.dumps(found))
