"""optimum: classification of texts and generation with a cache, by models that are made here."""

import json
import pathlib
import tempfile

import torch
from onnx import TensorProto as T
from optimum.onnxruntime import ORTModelForFeatureExtraction, ORTModelForSequenceClassification
from transformers import BertConfig

from small import normal, save

TEXT = ["batch", "length"]
IDS = torch.arange(1, 13).reshape(2, 6) % 50
MASK = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]])

with tempfile.TemporaryDirectory() as folder:
    config = BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=50, num_labels=3)
    config.save_pretrained(folder)
    inputs = [(name, T.INT64, TEXT) for name in ("input_ids", "attention_mask", "token_type_ids")]
    hidden = [
        ("Gather", ["words", "input_ids"], "a", {}),
        ("Gather", ["types", "token_type_ids"], "b", {}),
        ("Add", ["a", "b"], "c", {}),
        ("LayerNormalization", ["c", "scale"], "d", {}),
        ("Unsqueeze", ["attention_mask", "last"], "m", {}),
        ("Cast", ["m"], "f", {"to": T.FLOAT}),
        ("Mul", ["d", "f"], "last_hidden_state", {}),
    ]
    weights = {"words": normal(0, 50, 16), "types": normal(1, 2, 16), "scale": normal(2, 16), "last": [-1]}
    path = pathlib.Path(folder, "model.onnx")
    save(path, hidden, inputs, [("last_hidden_state", T.FLOAT, [*TEXT, 16])], weights)
    features = ORTModelForFeatureExtraction.from_pretrained(folder)
    found = [features(input_ids=IDS, attention_mask=MASK).last_hidden_state.tolist()]
    pooled = [("ReduceMean", ["last_hidden_state", "axis"], "p", {"keepdims": 0}), ("MatMul", ["p", "head"], "logits", {})]
    weights.update(axis=[1], head=normal(3, 16, 3))
    save(path, hidden + pooled, inputs, [("logits", T.FLOAT, ["batch", 3])], weights)
    for binding in (False, True):
        classifier = ORTModelForSequenceClassification.from_pretrained(folder, use_io_binding=binding)
        for rows in (2, 1, 2):
            found.append(classifier(input_ids=IDS[:rows], attention_mask=MASK[:rows]).logits.tolist())
    print(json.dumps(found))
