"""ultralytics: detection by a model that is made here, on a picture of a few rectangles."""

import json
import os
import pathlib
import tempfile

os.environ.update(YOLO_AUTOINSTALL="false", YOLO_OFFLINE="true", YOLO_VERBOSE="false")

import numpy as np
from onnx import TensorProto as T
from ultralytics import YOLO

from small import normal, save

SIZE, CELLS, KINDS = 64, 16, 3

with tempfile.TemporaryDirectory() as folder:
    model = str(pathlib.Path(folder, "model.onnx"))
    # Boxes around the middles of cells, and scores by what each cell shows.
    middles = np.indices((CELLS // 2, CELLS // 2)).reshape(2, -1)[::-1] * 8 + 4
    boxes = np.concatenate([middles, np.full_like(middles, 12)]).astype(np.float32)[None]
    save(
        model,
        [
            ("Conv", ["images", "filter"], "f", {"strides": [8, 8]}),
            ("Reshape", ["f", "flat"], "s", {}),
            ("Sigmoid", ["s"], "scores", {}),
            ("Concat", ["boxes", "scores"], "output0", {"axis": 1}),
        ],
        [("images", T.FLOAT, [1, 3, SIZE, SIZE])],
        [("output0", T.FLOAT, [1, 4 + KINDS, boxes.shape[2]])],
        {"filter": normal(0, KINDS, 3, 8, 8, scale=0.3), "flat": [1, KINDS, -1], "boxes": boxes},
        task="detect",
        stride="8",
        batch="1",
        imgsz=str([SIZE, SIZE]),
        names=str({k: f"kind {k}" for k in range(KINDS)}),
    )
    picture = np.zeros((SIZE, SIZE, 3), np.uint8)
    picture[8:24, 8:40] = (255, 0, 0)
    picture[30:60, 20:50] = (0, 200, 255)
    detector = YOLO(model, task="detect")
    found = []
    for image in (picture, picture[::-1].copy()):
        (result,) = detector.predict(image, imgsz=SIZE, conf=0.6, device="cpu", verbose=False)
        found.append(sorted(result.boxes.data.tolist()))
    print(json.dumps(found))
