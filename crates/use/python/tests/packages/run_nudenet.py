"""nudenet: a detector of people over a picture that is drawn here."""

import json

import cv2
import numpy as np
from nudenet import NudeDetector

image = np.full((320, 320, 3), 200, np.uint8)
cv2.ellipse(image, (160, 110), (55, 70), 0, 0, 360, (150, 180, 230), -1)
cv2.circle(image, (140, 100), 6, (40, 40, 40), -1)
cv2.circle(image, (180, 100), 6, (40, 40, 40), -1)
cv2.ellipse(image, (160, 140), (20, 8), 0, 0, 180, (60, 60, 180), 3)
cv2.rectangle(image, (80, 185), (240, 320), (90, 60, 40), -1)
detector = NudeDetector()
blob = np.transpose(image[None].astype(np.float32) / 255, (0, 3, 1, 2))
raw = detector.onnx_session.run(None, {detector.input_name: np.ascontiguousarray(blob)})[0]
print(json.dumps([detector.detect(image), np.asarray(raw).ravel()[::997].tolist()]))
