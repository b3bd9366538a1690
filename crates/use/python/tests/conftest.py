"""Small models that tests share."""

import pathlib

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import shopfloor

MODELS = pathlib.Path(__file__).resolve().parents[4] / "models"


def model_of(nodes, inputs, outputs, initializers=(), opset=17, **named):
    """The bytes of a model; inputs and outputs are (name, element type, shape)."""
    info = lambda all: [helper.make_tensor_value_info(*one) for one in all]
    graph = helper.make_graph(list(nodes), "g", info(inputs), info(outputs), list(initializers))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    for name, value in named.items():
        setattr(model, name, value)
    return model


@pytest.fixture
def add():
    """Two inputs of n rows of 2, added."""
    model = model_of(
        [helper.make_node("Add", ["a", "b"], ["c"])],
        [("a", TensorProto.FLOAT, ["n", 2]), ("b", TensorProto.FLOAT, ["n", 2])],
        [("c", TensorProto.FLOAT, ["n", 2])],
        producer_name="tests",
        doc_string="adds",
        model_version=3,
    )
    helper.set_model_props(model, {"key": "value"})
    return model.SerializeToString()


@pytest.fixture
def identity():
    """Makes a model of one Identity for an element type and a shape."""

    def make(kind, shape):
        node = helper.make_node("Identity", ["x"], ["y"])
        return model_of([node], [("x", kind, shape)], [("y", kind, shape)]).SerializeToString()

    return make


@pytest.fixture
def digits():
    """The path of a trained model, its inputs and its outputs."""
    folder = MODELS / "digits_cnn"
    return folder / "model.onnx", np.load(folder / "inputs.npz"), np.load(folder / "outputs.npz")
