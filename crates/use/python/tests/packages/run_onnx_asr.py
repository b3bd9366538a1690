"""What onnx-asr makes of sound before recognising speech: spectrograms of several kinds, and other rates."""

import json

import numpy as np
from onnx_asr.preprocessors.preprocessor import OnnxPreprocessor
from onnx_asr.preprocessors.resampler import Resampler
from sound import sound

waves = sound(3)[None]
lengths = np.array([waves.shape[1]], np.int64)
said = {}
for name in ("kaldi", "nemo80", "nemo128", "whisper80", "gigaam_v2", "gigaam_v3", "wespeaker"):
    made, count = OnnxPreprocessor(name, {"providers": ["CPUExecutionProvider"]})(waves, lengths)
    said[name] = [list(made.shape), count.tolist(), made.ravel()[::997].tolist()]
resampler = Resampler(16000, {"providers": ["CPUExecutionProvider"]})
for rate in (8000, 22050, 44100, 48000):
    made, count = resampler(waves, lengths, rate)
    said[str(rate)] = [list(made.shape), count.tolist(), made.ravel()[::997].tolist()]
print(json.dumps(said))
