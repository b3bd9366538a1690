"""Small models that stand for those which packages fetch when they are first used."""

import numpy as np
import onnx
from onnx import helper, numpy_helper


def save(path, nodes, inputs, outputs, weights, **properties):
    """Writes a model. Nodes are (operator, inputs, output, attributes); inputs and outputs (name, type, shape);
    weights arrays by name."""
    info = lambda all: [helper.make_tensor_value_info(*one) for one in all]
    made = [helper.make_node(op, list(reads), [writes], **attributes) for op, reads, writes, attributes in nodes]
    arrays = [numpy_helper.from_array(np.asarray(w), name) for name, w in weights.items()]
    graph = helper.make_graph(made, "small", info(inputs), info(outputs), arrays)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    helper.set_model_props(model, properties)
    onnx.save(model, path)


def normal(seed, *shape, scale=1.0):
    """Random numbers, the same every time."""
    return (np.random.default_rng(seed).normal(size=shape) * scale).astype(np.float32)
