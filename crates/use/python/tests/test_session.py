"""shopfloor's own interface."""

import json
import threading

import numpy as np
import pytest
from conftest import model_of
from onnx import TensorProto, helper

import shopfloor

X = np.arange(6, dtype=np.float32).reshape(3, 2)


def test_a_trained_model_gives_its_reference(digits):
    path, inputs, outputs = digits
    session = shopfloor.Session(path, threads=1)
    got = session.run(None, dict(inputs))
    for port, value in zip(session.outputs, got):
        np.testing.assert_allclose(value, outputs[port.name], rtol=1e-4, atol=1e-5)


def test_what_a_model_says_of_itself(add):
    s = shopfloor.Session(add, threads=1)
    assert s.inputs == [("a", "tensor(float)", ["n", 2]), ("b", "tensor(float)", ["n", 2])]
    assert s.outputs == [("c", "tensor(float)", ["n", 2])]
    m = s.metadata
    assert (m.producer_name, m.description, m.version, m.custom) == ("tests", "adds", 3, {"key": "value"})
    assert m.opsets == {"": 17} and m.graph_name == "g"


def test_outputs_are_picked_by_name(add):
    s = shopfloor.Session(add, threads=1)
    (c,) = s.run(["c"], {"a": X, "b": X})
    np.testing.assert_array_equal(c, X + X)
    first, again = s.run(["c", "c"], {"a": X, "b": X})
    assert first is again
    with pytest.raises(shopfloor.UsageError, match="no output 'd'"):
        s.run(["d"], {"a": X, "b": X})


def test_outputs_are_writeable_and_outlive_the_session(add):
    s = shopfloor.Session(add, threads=1)
    big = np.ones((5000, 2), np.float32)
    (c,) = s.run(None, {"a": big, "b": big})
    (d,) = s.run(None, {"a": c, "b": big})
    del s
    c += 1
    assert (c == 3).all() and (d == 3).all()


@pytest.mark.parametrize(
    "a", [X[::-1][::-1], np.asfortranarray(X), X.astype(">f4"), X.tolist(), X.reshape(6)[:6].reshape(3, 2)]
)
def test_arrays_of_any_layout_are_inputs(add, a):
    s = shopfloor.Session(add, threads=1)
    np.testing.assert_array_equal(s.run(None, {"a": a, "b": X})[0], X + X)


def test_arrays_are_borrowed_and_given_back(add):
    import sys

    s = shopfloor.Session(add, threads=1)
    a = X.copy()
    before = sys.getrefcount(a)
    s.run(None, {"a": a, "b": a})
    assert sys.getrefcount(a) == before


def test_what_gives_dlpack_is_an_input(add):
    class Other:
        def __dlpack__(self, **options):
            return X.__dlpack__()

        def __dlpack_device__(self):
            return X.__dlpack_device__()

    s = shopfloor.Session(add, threads=1)
    (c,) = s.run(None, {"a": Other(), "b": X})
    np.testing.assert_array_equal(np.from_dlpack(c), X + X)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        (TensorProto.DOUBLE, np.float64),
        (TensorProto.FLOAT16, np.float16),
        (TensorProto.INT8, np.int8),
        (TensorProto.UINT8, np.uint8),
        (TensorProto.INT16, np.int16),
        (TensorProto.UINT16, np.uint16),
        (TensorProto.INT32, np.int32),
        (TensorProto.UINT32, np.uint32),
        (TensorProto.INT64, np.int64),
        (TensorProto.UINT64, np.uint64),
        (TensorProto.BOOL, np.bool_),
    ],
)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3), (70, 80)])
def test_every_type_goes_in_and_out(identity, kind, dtype, shape):
    x = (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 2).astype(dtype)
    (y,) = shopfloor.Session(identity(kind, list(shape)), threads=1).run(None, {"x": x})
    assert y.dtype == x.dtype and y.shape == x.shape
    np.testing.assert_array_equal(x, y)


def test_bfloat16_is_a_type_of_another_package(identity):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    s = shopfloor.Session(identity(TensorProto.BFLOAT16, ["n"]), threads=1)
    x = np.array([1, 2, 3]).astype(ml_dtypes.bfloat16)
    for given in (x, x.view(np.uint16)):
        (y,) = s.run(None, {"x": given})
        assert y.dtype == x.dtype and y.tolist() == x.tolist()


@pytest.mark.parametrize(("kind", "name", "plain"), [("INT4", "int4", np.int8), ("UINT4", "uint4", np.uint8)])
def test_four_bits_are_a_type_of_another_package(kind, name, plain):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)
    ports = [("x", getattr(TensorProto, kind), ["n"])], [("y", TensorProto.FLOAT, ["n"])]
    s = shopfloor.Session(model_of([node], *ports, opset=21).SerializeToString(), threads=1)
    x = np.array([1, 2, 7])
    for given in (x.astype(getattr(ml_dtypes, name)), x.astype(plain)):
        assert s.run(None, {"x": given})[0].tolist() == x.tolist()


def test_texts_are_arrays_of_objects(identity):
    x = np.array([["a", "é"], ["", "xyz"]])
    s = shopfloor.Session(identity(TensorProto.STRING, [2, "n"]), threads=1)
    for given in (x, x.astype(object), x.tolist()):
        (y,) = s.run(None, {"x": given})
        assert y.dtype == object and y.tolist() == x.tolist()


def test_sequences_are_lists():
    node = helper.make_node("SequenceInsert", ["s", "t"], ["r"])
    sequence = helper.make_tensor_sequence_value_info
    graph = helper.make_graph(
        [node],
        "g",
        [sequence("s", TensorProto.FLOAT, None), helper.make_tensor_value_info("t", TensorProto.FLOAT, ["n"])],
        [sequence("r", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    s = shopfloor.Session(model.SerializeToString(), threads=1)
    assert s.inputs[0].type == "seq(tensor(float))"
    (r,) = s.run(None, {"s": [X[0], X[1]], "t": X[2]})
    assert isinstance(r, list) and [list(x) for x in r] == X.tolist()


def test_wrong_inputs_are_named(add):
    s = shopfloor.Session(add, threads=1)
    with pytest.raises(shopfloor.InputError, match="input 'b' is missing"):
        s.run(None, {"a": X})
    with pytest.raises(shopfloor.InputError, match="no input 'z'"):
        s.run(None, {"a": X, "b": X, "z": X})
    with pytest.raises(shopfloor.InputError, match="'a' is f64"):
        s.run(None, {"a": X.astype(np.float64), "b": X})
    with pytest.raises(shopfloor.InputError, match="'a' has shape"):
        s.run(None, {"a": X[0], "b": X})


def test_models_that_cannot_be_used():
    with pytest.raises(shopfloor.DamagedError):
        shopfloor.Session(b"abcdefgh")
    with pytest.raises(shopfloor.ModelError, match="no such file"):
        shopfloor.Session("/no/such/file.onnx")
    odd = model_of(
        [helper.make_node("NoSuch", ["x"], ["y"])],
        [("x", TensorProto.FLOAT, [1])],
        [("y", TensorProto.FLOAT, [1])],
    )
    with pytest.raises(shopfloor.UnsupportedError, match="NoSuch"):
        shopfloor.Session(odd.SerializeToString())


def test_threads_share_a_session(add):
    s = shopfloor.Session(add, threads=2)
    wrong = []

    def requests(k):
        for n in range(50):
            x = np.full((1 + (n + k) % 7, 2), k, np.float32)
            if (s.run(None, {"a": x, "b": x})[0] != 2 * k).any():
                wrong.append(k)

    threads = [threading.Thread(target=requests, args=(k,)) for k in range(10)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


def test_a_plan_is_shown(digits):
    s = shopfloor.Session(digits[0], threads=1)
    plan = s.plan()
    assert "memory" in str(plan) and len(plan.why) > len(plan.text)
    assert plan.data["steps"] and plan.data["device"] == "cpu" and "<table" in plan._repr_html_()
    with pytest.raises(shopfloor.UsageError, match="no dimension 'nope'"):
        s.plan(nope=3)


def test_a_profile_and_its_page_are_made(digits, tmp_path):
    s = shopfloor.Session(digits[0], threads=1)
    profile = s.profile(dict(digits[1]), warmup=1, active=2)
    assert profile.data["steps"] and str(profile) and "<table" in profile._repr_html_()
    profile.save_trace(tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    for report in (profile.report(), s.report()):
        assert report.html.lstrip().lower().startswith("<!doctype html")
        assert "<iframe" in report._repr_html_()


def test_state_is_carried_from_request_to_request(add):
    stream = shopfloor.Session(add, threads=1).stream({"a": "c"}, {"a": np.zeros((3, 2), np.float32)})
    for n in range(1, 4):
        (c,) = stream.run(["c"], {"b": X})
        np.testing.assert_array_equal(c, n * X)
    with pytest.raises(shopfloor.UsageError, match="no start for a"):
        shopfloor.Session(add, threads=1).stream({"a": "c"}, {})


def test_requests_are_given_up(add):
    s, cancel = shopfloor.Session(add, threads=1), shopfloor.Cancel()
    np.testing.assert_array_equal(s.run(None, {"a": X, "b": X}, cancel=cancel, deadline=60.0)[0], X + X)
    cancel.cancel()
    assert cancel.cancelled
    with pytest.raises(shopfloor.CancelledError):
        s.run(None, {"a": X, "b": X}, cancel=cancel)


def test_what_cannot_be_is_said_with_its_remedy(add):
    for wrong in ({"threads": 0}, {"threads": -1}, {"memory_limit": -5}):
        with pytest.raises(shopfloor.UsageError, match="give 1 or more"):
            shopfloor.Session(add, **wrong)
    s = shopfloor.Session(add, threads=1)
    with pytest.raises(shopfloor.UsageError, match="give seconds, 0 or more"):
        s.run(None, {"a": X, "b": X}, deadline=-1.0)
    with pytest.raises(shopfloor.UsageError, match="give a list of them"):
        s.run("c", {"a": X, "b": X})
    assert repr(s).startswith("<shopfloor.Session of '") and repr(s).endswith(": a, b -> c>")


def test_machines_are_listed():
    all = shopfloor.machines()
    assert "cpu" in [m.name for m in all] and len(all) > 3
    (h100,) = shopfloor.machines("h100")
    assert h100.name and str(h100) == h100.table


def test_none_is_no_tensor(add):
    with pytest.raises(shopfloor.InputError, match="give an array"):
        shopfloor.Session(add).run(None, {"a": None, "b": np.ones((1, 2), np.float32)})
