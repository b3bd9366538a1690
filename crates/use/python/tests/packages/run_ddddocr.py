"""ddddocr: letters of a picture that is drawn here, and where they stand."""

import json

import cv2
import ddddocr
import numpy as np

image = np.full((60, 200, 3), 255, np.uint8)
cv2.putText(image, "k7Xp2", (20, 45), cv2.FONT_HERSHEY_SIMPLEX, 1.5, (30, 30, 120), 3)
picture = cv2.imencode(".png", image)[1].tobytes()
read = ddddocr.DdddOcr(show_ad=False)
find = ddddocr.DdddOcr(det=True, ocr=False, show_ad=False)
print(json.dumps([read.classification(picture), [[int(n) for n in box] for box in find.detection(picture)]]))
