"""Checks what the plugin does beside giving right answers.

    python interface.py LIBRARY

Registration, a small model of any batch, options and what is refused of them, ten threads on one session, a profile, an
error of a request, a model that is only in part ours, and that the library can be unregistered and registered again.
"""

import json
import os
import pathlib
import sys
import tempfile
import threading

import numpy as np
import onnx
import onnxruntime as ort
import plugin
from onnx import TensorProto, helper, numpy_helper

RANDOM = np.random.default_rng(1)
WEIGHT = RANDOM.standard_normal((64, 32), dtype=np.float32)


def model(nodes, inputs, outputs, constants=()):
    tensor = lambda name, kind, shape: helper.make_tensor_value_info(name, kind, shape)
    graph = helper.make_graph(
        nodes,
        "small",
        [tensor(*i) for i in inputs],
        [tensor(*o) for o in outputs],
        [numpy_helper.from_array(a, n) for n, a in constants],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()


SMALL = model(
    [helper.make_node("MatMul", ["x", "w"], ["y"], name="product"), helper.make_node("Relu", ["y"], ["z"])],
    [("x", TensorProto.FLOAT, ["batch", 64])],
    [("z", TensorProto.FLOAT, ["batch", 32])],
    [("w", WEIGHT)],
)


def asked(session, n):
    x = RANDOM.standard_normal((n, 64), dtype=np.float32)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], np.maximum(x @ WEIGHT, 0), rtol=1e-4, atol=1e-4)


def registered(library):
    devices = plugin.register(library)
    assert [(d.ep_vendor, d.device.type) for d in devices] == [("shopfloor", ort.OrtHardwareDeviceType.CPU)], devices
    return devices


def small(devices):
    session = ort.InferenceSession(SMALL, plugin.options(devices))
    assert session.get_providers()[0] == plugin.NAME
    assert plugin.shares(session) == (2, 0, [["MatMul", "Relu"]])
    for n in (1, 3, 17, 1):
        asked(session, n)
    assert session.run(None, {"x": np.zeros((0, 64), np.float32)})[0].shape == (0, 32)


def text(devices):
    nodes = [helper.make_node("StringConcat", ["a", "b"], ["c"])]
    kinds = [(n, TensorProto.STRING, ["n"]) for n in "abc"]
    session = ort.InferenceSession(model(nodes, kinds[:2], kinds[2:]), plugin.options(devices))
    assert plugin.shares(session)[:2] == (1, 0)
    a, b = np.array(["ä", "", "x"], object), np.array(["b", "", "y"], object)
    assert list(session.run(None, {"a": a, "b": b})[0]) == ["äb", "", "xy"]


def options_are_read(devices):
    for given in ({"threads": "1"}, {"threads": "2", "precision": "exact"}, {"memory": "100000000"}):
        asked(ort.InferenceSession(SMALL, plugin.options(devices, given)), 3)
    for given, says in (
        ({"thread": "2"}, "has no option 'thread'; it has threads, memory, precision"),
        ({"threads": "0"}, "option 'threads' of ShopfloorExecutionProvider cannot be '0'; give a number from 1 to 4096"),
        ({"precision": "half"}, "cannot be 'half'; give exact, f32, bf16x3, tf32 or bf16"),
    ):
        try:
            ort.InferenceSession(SMALL, plugin.options(devices, given))
        except Exception as e:
            assert says in str(e), e
        else:
            raise AssertionError(f"{given} are taken")


def threads(devices):
    session = ort.InferenceSession(SMALL, plugin.options(devices, {"threads": "2"}))
    failed = []

    def work(seed):
        random = np.random.default_rng(seed)
        try:
            for _ in range(50):
                x = random.standard_normal((int(random.integers(1, 9)), 64), dtype=np.float32)
                got = session.run(None, {"x": x})[0]
                np.testing.assert_allclose(got, np.maximum(x @ WEIGHT, 0), rtol=1e-4, atol=1e-4)
        except Exception as e:
            failed.append(e)

    all = [threading.Thread(target=work, args=(seed,)) for seed in range(10)]
    [t.start() for t in all]
    [t.join() for t in all]
    assert not failed, failed[0]


def profile(devices):
    with tempfile.TemporaryDirectory() as folder:
        so = plugin.options(devices)
        so.enable_profiling = True
        so.profile_file_prefix = os.path.join(folder, "run")
        session = ort.InferenceSession(SMALL, so)
        asked(session, 2)
        events = json.loads(pathlib.Path(session.end_profiling()).read_text())
    ran = [e for e in events if e.get("cat") == "Node" and e["args"].get("provider") == plugin.NAME]
    assert ran, "no event of the profile is the plugin's"


def errors(devices):
    nodes = [helper.make_node("Gather", ["w", "i"], ["y"], name="pick"), helper.make_node("Relu", ["y"], ["z"])]
    small = model(nodes, [("i", TensorProto.INT64, ["n"])], [("z", TensorProto.FLOAT, ["n", 32])], [("w", WEIGHT)])
    session = ort.InferenceSession(small, plugin.options(devices))
    assert plugin.shares(session)[1] == 0
    try:
        session.run(None, {"i": np.array([64])})
    except Exception as e:
        assert "64" in str(e), e
    else:
        raise AssertionError("an index out of range is taken")
    assert session.run(None, {"i": np.array([3])})[0].shape == (1, 32)


def in_part(devices):
    """A sequence comes out, which the plugin does not give; what is before it is the plugin's."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Relu", ["y"], ["z"]),
        helper.make_node("SplitToSequence", ["z"], ["s"], axis=1, keepdims=1),
    ]
    graph = helper.make_graph(
        nodes,
        "part",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64])],
        [helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(WEIGHT, "w")],
    )
    whole = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    session = ort.InferenceSession(whole, plugin.options(devices))
    assert plugin.shares(session)[:2] == (2, 1), plugin.shares(session)
    x = RANDOM.standard_normal((2, 64), dtype=np.float32)
    parts = session.run(None, {"x": x})[0]
    np.testing.assert_allclose(np.concatenate(parts, 1), np.maximum(x @ WEIGHT, 0), rtol=1e-4, atol=1e-4)


def wrong_sizes(devices):
    """A model states a size within it that its requests do not have."""
    stated = model(
        [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Relu", ["y"], ["z"])],
        [("x", TensorProto.FLOAT, [None, 64])],
        [("z", TensorProto.FLOAT, [1, 32])],
        [("w", WEIGHT)],
    )
    session = ort.InferenceSession(stated, plugin.options(devices))
    asked(session, 1)
    asked(session, 4)


def main():
    library = sys.argv[1]
    checks = (small, text, options_are_read, threads, profile, errors, in_part, wrong_sizes)
    for turn in range(2):
        devices = registered(library)
        for check in checks:
            check(devices)
        del devices
        ort.unregister_execution_provider_library("shopfloor")
        assert not [d for d in ort.get_ep_devices() if d.ep_name == plugin.NAME]
    print(f"{len(checks)} checks of the interface, twice, the library unregistered between: all good")


main()
