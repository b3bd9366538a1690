"""Asks `onnxruntime`, as an environment has it, what odd models, requests and options give, and prints the answers
as JSON: what is given, or the class of what is raised; and the same of `behaviours.py`.

    python odd.py [--ours]
"""

import collections
import itertools
import json
import sys
import types
import warnings

import behaviours
import numpy as np
from onnx import TensorProto as T
from onnx import helper

X = np.arange(6, dtype=np.float32).reshape(3, 2)


def model(nodes, inputs, outputs, opset=17):
    """The bytes of a model."""
    info = lambda all: [helper.make_tensor_value_info(*one) for one in all]
    graph = helper.make_graph(nodes, "g", info(inputs), info(outputs))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8).SerializeToString()


def unary(operator, kind=T.FLOAT, shape=("n",), reads="a", writes="c", opset=17, **attributes):
    """The bytes of a model of one operator of one input."""
    node = helper.make_node(operator, [reads], ["c"], **attributes)
    return model([node], [("a", kind, list(shape))], [(writes, kind, list(shape))], opset)


ADD = model(
    [helper.make_node("Add", ["a", "b"], ["c"])],
    [("a", T.FLOAT, ["n", 2]), ("b", T.FLOAT, ["n", 2])],
    [("c", T.FLOAT, ["n", 2])],
)

#: Values for an input of n rows of two f32.
VALUES = {
    "list": X.tolist(),
    "mixed list": [1, "a"],
    "ragged list": [[1.0], [1.0, 2.0]],
    "int": X.astype(int),
    "f16": X.astype(np.float16),
    "column order": np.asfortranarray(X),
    "steps": np.arange(24, dtype=np.float32).reshape(6, 4)[::2, ::2],
    "backwards": X[::-1],
    "matrix": np.matrix(X),
    "masked": np.ma.array(X),
    "objects": X.astype(object),
    "no rows": np.zeros((0, 2), np.float32),
    "None": None,
    "str": "abc",
    "bytes": b"abcd",
    "scalar of numpy": np.float32(1),
    "number": 1.0,
    "dict": {"a": 1},
    "complex": X.astype(np.complex64),
    "bool": X > 2,
    "texts": np.array(["a", "b"]),
    "dates": np.zeros((3, 2), "M8[s]"),
    "rank 3": X[None],
    "rank 1": X[0],
    "other size": np.ones((3, 3), np.float32),
    "broadcast": np.broadcast_to(np.float32(1), (3, 2)),
    "unaligned": np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:].view(np.float32).reshape(3, 2),
}
#: Feeds of the same model, and names of outputs.
FEEDS = {
    "None": None,
    "list": [X, X],
    "nothing": {},
    "number as name": {1: X, "a": X, "b": X},
    "ordered": collections.OrderedDict(a=X, b=X),
    "proxy": types.MappingProxyType({"a": X, "b": X}),
    "mapping": collections.UserDict({"a": X, "b": X}),
}
NAMES = {"tuple": ("c",), "str": "c", "none": [], "number": [1], "twice": ["c", "c"], "unknown": ["d"]}
#: Models that contradict themselves or the standard, and what is no model.
MODELS = {
    "nothing": b"",
    "no message": b"junkjunk",
    "cut": ADD[:-20],
    "no such file": "/no/such.onnx",
    "None": None,
    "two types": model(
        [helper.make_node("Add", ["a", "b"], ["c"])],
        [("a", T.FLOAT, [2]), ("b", T.INT64, [2])],
        [("c", T.FLOAT, [2])],
    ),
    "no such operator": unary("Nope"),
    "no such domain": unary("Nope", domain="x.y"),
    "undefined input": unary("Relu", reads="q"),
    "undefined output": unary("Relu", writes="d"),
    "unknown attribute": unary("Relu", foo=1),
    "defined twice": model([helper.make_node("Relu", ["a"], ["c"])] * 2, [("a", T.FLOAT, [2])], [("c", T.FLOAT, [2])]),
    "opset to come": unary("Relu", opset=99),
}
#: Texts for an input of texts.
TEXTS = {
    "U": np.array(["a", "bé"]),
    "objects": np.array(["a", "b"], object),
    "numbers": np.array([1, 2.5], object),
    "None": np.array([None, "a"], object),
    "list": ["a", "b"],
    "none": np.array([], object),
}


def told(value):
    """A result as JSON can say it."""
    if isinstance(value, list):
        return [told(v) for v in value]
    if isinstance(value, np.ndarray):
        return [str(value.dtype), list(value.shape), value.ravel().tolist()]
    return repr(value)


def answer(call):
    """What a call gives, or the class of what it raises."""
    try:
        return told(call())
    except Exception as e:  # the class is what is compared
        return f"raises {type(e).__name__}"


def bound(session, inputs, outputs):
    """A request by bindings."""
    binding = session.io_binding()
    for name, value in inputs.items():
        binding.bind_cpu_input(name, value)
    for name in outputs:
        binding.bind_output(name)
    session.run_with_iobinding(binding)
    return binding.copy_outputs_to_cpu()


def of_options(ort):
    """What options take and say."""
    names = [n for n in dir(ort.SessionOptions()) if not n.startswith("_")]
    options = ort.SessionOptions()
    plain = {n: getattr(options, n) for n in names if not callable(getattr(options, n))}
    yield "options", lambda: [f"{n}={v}" for n, v in sorted(plain.items())]
    yield "option of another type", lambda: setattr(options, "intra_op_num_threads", "x")
    yield "no such option", lambda: setattr(options, "no_such_option", 1)
    yield "a number for a level", lambda: setattr(options, "graph_optimization_level", 99)
    yield "no such entry", lambda: options.get_session_config_entry("nope")
    yield "options of another class", lambda: ort.InferenceSession(ADD, 3)
    sized = ort.SessionOptions()
    sized.add_free_dimension_override_by_name("n", 3)
    yield "a size for a name", lambda: ort.InferenceSession(ADD, sized).get_inputs()[0].shape
    yield "no such provider", lambda: ort.InferenceSession(ADD, providers=["Nope"]).get_providers()
    wanted = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    yield "a provider that is not there", lambda: ort.InferenceSession(ADD, providers=wanted).get_providers()
    named = [("CPUExecutionProvider", {"a": 1})]
    yield "options of a provider", lambda: ort.InferenceSession(ADD, providers=named).get_provider_options()


def questions(ort):
    """All that is asked, by name."""
    add = ort.InferenceSession(ADD)
    for name, value in VALUES.items():
        yield f"value: {name}", lambda: add.run(None, {"a": value, "b": X})
    for name, feed in FEEDS.items():
        yield f"feed: {name}", lambda: add.run(None, feed)
    for name, outputs in NAMES.items():
        yield f"names: {name}", lambda: add.run(outputs, {"a": X, "b": X})
    for name, given in MODELS.items():
        yield f"model: {name}", lambda: ort.InferenceSession(given) and None
    texts = ort.InferenceSession(unary("Identity", T.STRING))
    for name, value in TEXTS.items():
        yield f"texts: {name}", lambda: texts.run(None, {"a": value})
    yield "bound", lambda: bound(add, {"a": X, "b": X}, ["c"])
    yield "bound: one input", lambda: bound(add, {"a": X}, ["c"])
    yield "bound: other type", lambda: bound(add, {"a": X, "b": X.astype(float)}, ["c"])
    yield "bound: no such input", lambda: bound(add, {"a": X, "z": X}, ["c"])
    yield "bound: no such output", lambda: bound(add, {"a": X, "b": X}, ["d"])
    yield "bound: no output", lambda: bound(add, {"a": X, "b": X}, [])
    value = ort.OrtValue.ortvalue_from_numpy(X)
    yield "values", lambda: [v.numpy() for v in add.run_with_ort_values(None, {"a": value, "b": value})]
    yield "values: no such input", lambda: add.run_with_ort_values(None, {"z": value, "b": value})
    yield "port", lambda: [str(add.get_inputs()[0]), str(ort.GraphOptimizationLevel.ORT_ENABLE_ALL)]
    yield from of_options(ort)


def main():
    if sys.argv[1:] == ["--ours"]:
        import shopfloor

        shopfloor.install()
    warnings.simplefilter("ignore")
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    all = itertools.chain(questions(onnxruntime), behaviours.questions(onnxruntime))
    print(json.dumps({name: answer(call) for name, call in all}))


if __name__ == "__main__":
    main()
