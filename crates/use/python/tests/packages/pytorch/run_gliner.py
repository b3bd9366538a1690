"""gliner: names in texts by a model and a tokenizer that are made here."""

import json
import os
import pathlib
import tempfile
import warnings

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
warnings.simplefilter("ignore")

from gliner import GLiNER
from onnx import TensorProto as T
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from small import normal, save

WIDTH, LABELS = 12, ["person", "place", "date"]
TEXTS = ["Ada Lovelace lived in London in 1843 .", "Alan met Grace in Paris ."]
WORDS = sorted({w for text in TEXTS for w in text.split()} | set(LABELS))

with tempfile.TemporaryDirectory() as folder:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[FLERT]", "<<ENT>>", "<<SEP>>"]
    made = Tokenizer(models.WordLevel({w: k for k, w in enumerate(special + WORDS)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = dict(unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, additional_special_tokens=special[4:], **names)
    tokenizer.save_pretrained(folder)
    config = dict(
        model_name=folder, model_type="gliner_uni_encoder_span", max_width=WIDTH, hidden_size=8, span_mode="markerV0", max_len=64,
        vocab_size=len(special) + len(WORDS), class_token_index=len(special) - 2, encoder_config={"model_type": "bert"},
    )  # fmt: skip
    pathlib.Path(folder, "gliner_config.json").write_text(json.dumps(config))
    tokens, spans = ["batch", "length"], ["batch", "spans"]
    save(
        pathlib.Path(folder, "model.onnx"),
        [
            ("Gather", ["words", "input_ids"], "e", {}),
            ("Unsqueeze", ["attention_mask", "last"], "m", {}),
            ("Cast", ["m"], "mask", {"to": T.FLOAT}),
            ("Mul", ["e", "mask"], "em", {}),
            ("ReduceMean", ["em", "one"], "text", {"keepdims": 1}),
            ("Cast", ["span_idx"], "ends", {"to": T.FLOAT}),
            ("MatMul", ["ends", "marks"], "s", {}),
            ("Add", ["s", "text"], "h", {}),
            ("Sin", ["h"], "g", {}),
            ("MatMul", ["g", "head"], "scores", {}),
            ("Reshape", ["scores", "cells"], "logits", {}),
        ],
        [
            ("input_ids", T.INT64, tokens),
            ("attention_mask", T.INT64, tokens),
            ("span_idx", T.INT64, [*spans, 2]),
        ],
        [("logits", T.FLOAT, ["batch", "words", WIDTH, len(LABELS)])],
        {
            "words": normal(0, config["vocab_size"], 8),
            "marks": normal(1, 2, 8),
            "head": normal(2, 8, len(LABELS), scale=2.0),
            "cells": [0, -1, WIDTH, len(LABELS)],
            "last": [-1],
            "one": [1],
        },
    )
    model = GLiNER.from_pretrained(folder, load_onnx_model=True, load_tokenizer=True, local_files_only=True)
    found = [model.predict_entities(text, LABELS, threshold=0.6) for text in TEXTS]
    print(json.dumps(found))
