"""kokoro-onnx: speech of phonemes by a model and voices that are made here."""

import json
import pathlib
import tempfile

import numpy as np
from kokoro_onnx import Kokoro
from onnx import TensorProto
from small import normal, save

VOCABULARY = {c: k for k, c in enumerate("$;:,.!? abdefhijklmnopstuvwzæðŋɑɔəɛɪɹʃʊʌʒˈˌː")}

with tempfile.TemporaryDirectory() as folder:
    model, voices = (str(pathlib.Path(folder, name)) for name in ("model.onnx", "voices.npz"))
    save(
        model,
        [
            ("Gather", ["table", "tokens"], "e", {}),
            ("Add", ["e", "style"], "s", {}),
            ("Transpose", ["s"], "t", {"perm": [0, 2, 1]}),
            ("ConvTranspose", ["t", "filter"], "w", {"strides": [300]}),
            ("Div", ["w", "speed"], "v", {}),
            ("Tanh", ["v"], "h", {}),
            ("Flatten", ["h"], "audio", {}),
        ],
        [
            ("tokens", TensorProto.INT64, [1, "tokens"]),
            ("style", TensorProto.FLOAT, [1, 256]),
            ("speed", TensorProto.FLOAT, [1]),
        ],
        [("audio", TensorProto.FLOAT, [1, "samples"])],
        {"table": normal(0, len(VOCABULARY), 256), "filter": normal(1, 256, 1, 600, scale=0.05)},
        kokoro_config=json.dumps({"vocab": VOCABULARY}),
    )
    np.savez(voices, af=normal(2, 510, 1, 256))
    samples, rate = Kokoro(model, voices).create("həlˈoʊ wˈɜːld.", voice="af", is_phonemes=True, trim=False)
    print(json.dumps([rate, samples[::37].tolist()]))
