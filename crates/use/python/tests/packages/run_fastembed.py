"""fastembed: embeddings of sentences by a model and a tokenizer that are made here."""

import json
import pathlib
import tempfile

from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType
from onnx import TensorProto
from small import normal, save
from tokenizers import Tokenizer, models, pre_tokenizers

WORDS = "[PAD] [UNK] the a cat dog runs sleeps on in house garden fast red blue".split()
TEXTS = ["the cat sleeps in the house", "a red dog runs", "blue", "the dog runs fast in a garden"]


def prepare(folder):
    """Writes all files of a model."""
    tokenizer = Tokenizer(models.WordLevel({w: k for k, w in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    files = {
        "config.json": {"pad_token_id": 0},
        "tokenizer_config.json": {"model_max_length": 64, "pad_token": "[PAD]"},
        "special_tokens_map.json": {"pad_token": "[PAD]", "unk_token": "[UNK]"},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    ids = lambda name: (name, TensorProto.INT64, ["batch", "tokens"])
    save(
        folder / "model.onnx",
        [
            ("Gather", ["table", "input_ids"], "e", {}),
            ("MatMul", ["e", "w"], "p", {}),
            ("Tanh", ["p"], "t", {}),
            ("LayerNormalization", ["t", "g"], "last_hidden_state", {"axis": -1}),
        ],
        [ids("input_ids"), ids("attention_mask")],
        [("last_hidden_state", TensorProto.FLOAT, ["batch", "tokens", 32])],
        {"table": normal(0, len(WORDS), 16), "w": normal(1, 16, 32), "g": normal(2, 32)},
    )


TextEmbedding.add_custom_model(
    model="made/here",
    pooling=PoolingType.MEAN,
    normalization=True,
    sources=ModelSource(hf="made/here"),
    dim=32,
    model_file="model.onnx",
)
with tempfile.TemporaryDirectory() as folder:
    prepare(pathlib.Path(folder))
    model = TextEmbedding("made/here", specific_model_path=folder, threads=2)
    print(json.dumps([e.tolist() for e in model.embed(TEXTS)]))
