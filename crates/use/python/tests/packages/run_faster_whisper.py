"""faster-whisper's detection of speech."""

import json

from faster_whisper.vad import get_speech_timestamps, get_vad_model
from sound import sound

audio = sound()
audio = audio[: len(audio) // 512 * 512]
print(json.dumps([get_vad_model()(audio).ravel().tolist(), get_speech_timestamps(audio, threshold=0.2)]))
