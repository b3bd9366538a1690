"""silero-vad's models: the one for sequences through its own class, which needs no torch, and those that its
class with torch runs, chunk by chunk as that does."""

import importlib.util
import json
import pathlib
import sys

import numpy as np
import onnxruntime
from sound import sound

package = pathlib.Path(importlib.util.find_spec("silero_vad").origin).parent
# The package itself imports torch, this part of it does not; the part that it imports does, and is not used.
sys.modules["silero_vad"] = type(sys)("silero_vad")
sys.modules["silero_vad"].__path__ = [str(package)]
sys.modules["silero_vad.utils_vad"] = type(sys)("silero_vad.utils_vad")
sys.modules["silero_vad.utils_vad"].get_speech_timestamps_from_probs = None
from silero_vad.sequence_vad import SileroVADSequence  # noqa: E402

audio = sound()
found = [SileroVADSequence(package / "data/silero_vad_16k_sequence.onnx").audio_forward(audio).tolist()]
for name in ("silero_vad", "silero_vad_16k_op15", "silero_vad_half"):
    session = onnxruntime.InferenceSession(str(package / f"data/{name}.onnx"))
    state, context, said = np.zeros((2, 1, 128), np.float32), np.zeros((1, 64), np.float32), []
    for k in range(0, len(audio) - 511, 512):
        chunk = np.concatenate([context, audio[None, k : k + 512]], 1)
        feed = {"input": chunk, "state": state, "sr": np.array(16000, np.int64)}
        out, state = session.run(None, {i.name: feed[i.name] for i in session.get_inputs()})
        context = chunk[:, -64:]
        said.append(float(out[0, 0]))
    found.append(said)
print(json.dumps(found))
