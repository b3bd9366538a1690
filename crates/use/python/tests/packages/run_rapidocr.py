"""rapidocr: lines of text in a picture that is drawn here."""

import json

import cv2
import numpy as np
from rapidocr import RapidOCR

image = np.full((220, 640, 3), 255, np.uint8)
for k, text in enumerate(["Hello world 2026", "shopfloor runs models", "total: 1234.50 EUR"]):
    cv2.putText(image, text, (20, 60 + 60 * k), cv2.FONT_HERSHEY_SIMPLEX, 1.2, (0, 0, 0), 2)
found = RapidOCR()(image)
print(json.dumps([found.boxes.tolist(), list(found.txts), [float(s) for s in found.scores]]))
