#!/usr/bin/env python3
"""Models of the zoo in f16, for `cargo xtask zoo --predict --on NAME --models OUT`.

    python bench/half.py WEIGHTS ZOO OUT [NAME...]

WEIGHTS holds the models with their weights as `make_weights.py` of the zoo writes them, ZOO their descriptions. Models
whose products are not of f32 are left out, and those that onnxruntime's converter does not convert, which it says by name.
Needs onnx, onnxruntime and numpy; what it writes is to be planned for, and not compared with a reference.
"""
import json
import pathlib
import sys

import numpy
import onnx
from onnxruntime.transformers.float16 import convert_float_to_float16

PRODUCTS = {"Conv", "ConvTranspose", "Gemm", "MatMul", "Einsum", "Attention"}


def products(graph):
    """Whether a graph, or one inside it, multiplies matrices."""
    inner = [a.g for n in graph.node for a in n.attribute if a.type == onnx.AttributeProto.GRAPH]
    return any(n.op_type in PRODUCTS for n in graph.node) or any(products(g) for g in inner)


def in_f16(text):
    return "float16" if text == "float32" else text


def convert(name, weights, zoo, out):
    folder = next(f for f in (zoo / name, zoo / "trained" / name) if (f / "model.json").is_file())
    made = weights / name / "model.onnx"
    model = onnx.load(made if made.is_file() else folder / "model.onnx")
    if not products(model.graph) and not model.functions:
        return "it has no products"
    meta = json.loads((folder / "model.json").read_text())
    if "float16" in json.dumps(meta["inputs"]):
        return "its inputs are of f16"
    model = convert_float_to_float16(model, keep_io_types=False, disable_shape_infer=True)
    to = out / name
    to.mkdir(parents=True, exist_ok=True)
    onnx.save(model, to / "model.onnx")
    for i in meta["inputs"].values():
        i["dtype"] = in_f16(i["dtype"])
    (to / "model.json").write_text(json.dumps(meta))
    if (folder / "inputs.json").is_file():
        inputs = json.loads((folder / "inputs.json").read_text())
        for i in inputs:
            i["dtype"] = in_f16(i["dtype"])
        (to / "inputs.json").write_text(json.dumps(inputs))
    if (folder / "inputs.npz").is_file():
        arrays = dict(numpy.load(folder / "inputs.npz"))
        half = {k: v.astype(numpy.float16) if v.dtype == numpy.float32 else v for k, v in arrays.items()}
        numpy.savez(to / "inputs.npz", **half)
    return None


def main():
    weights, zoo, out = map(pathlib.Path, sys.argv[1:4])
    places = (zoo, zoo / "trained")
    names = sys.argv[4:] or sorted({f.parent.name for p in places for f in p.glob("*/model.json")})
    for name in names:
        try:
            why = convert(name, weights, zoo, out)
        except Exception as e:  # A model that the converter does not know is named, and the others go on.
            why = f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}"
        print(f"{name}: {why or 'converted'}", flush=True)


if __name__ == "__main__":
    main()
