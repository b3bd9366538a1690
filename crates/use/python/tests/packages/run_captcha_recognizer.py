"""Where captcha-recognizer finds the gap of a sliding puzzle."""

import json

import numpy as np
from captcha_recognizer.slider import Slider

picture = np.random.default_rng(0).integers(60, 200, (200, 350, 3)).astype(np.uint8)
picture[80:130, 200:250] = 20
box, confidence = Slider().identify(picture, conf=0.01)
print(json.dumps([[float(b) for b in box], float(confidence)]))
