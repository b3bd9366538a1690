"""The interface of onnxruntime."""

import json
import pickle
import threading

import numpy as np
import onnx
import pytest
from conftest import model_of
from onnx import TensorProto, helper

import shopfloor.onnxruntime as ort
from shopfloor.onnxruntime.capi import onnxruntime_pybind11_state as state

X = np.ones((3, 2), np.float32)


class Kept(ort.InferenceSession):
    """A session that a package derives."""

    def __init__(self, path):
        super().__init__(path, providers=["CPUExecutionProvider"])
        self.extra = 5


def test_what_packages_read(add, tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(add)
    s = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert (s._model_path, s._model_bytes, s._providers) == (str(path), None, ["CPUExecutionProvider"])
    assert ort.InferenceSession(add)._model_bytes == add
    arg = s.get_inputs()[0]
    assert (arg.name, arg.type, arg.shape) == ("a", "tensor(float)", ["n", 2])
    assert repr(arg) == "NodeArg(name='a', type='tensor(float)', shape=['n', 2])"
    meta = s.get_modelmeta()
    assert (meta.producer_name, meta.version, meta.custom_metadata_map) == ("tests", 3, {"key": "value"})
    assert s.get_providers() == ["CPUExecutionProvider"] == list(s.get_provider_options())
    assert ort.get_device() == "CPU" and ort.__version__ == "1.32.0"


def test_sessions_are_derived_and_pickled(add, tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(add)
    again = pickle.loads(pickle.dumps(Kept(str(path))))
    assert again.extra == 5
    np.testing.assert_array_equal(again.run(None, {"a": X, "b": X})[0], 2 * X)


@pytest.mark.parametrize(
    ("names", "feed", "kind", "text"),
    [
        (None, {"a": X}, ValueError, "Required inputs (['b']) are missing from input feed (['a'])."),
        (None, {"a": X, "b": X, "z": X}, state.InvalidArgument, "2 : INVALID_ARGUMENT : Invalid input name: z"),
        (["q"], {"a": X, "b": X}, state.InvalidArgument, "2 : INVALID_ARGUMENT : Invalid output name:q"),
        (None, {"a": X[0], "b": X}, state.InvalidArgument, "Invalid rank for input: a Got: 1 Expected: 2"),
        (
            None,
            {"a": np.ones((3, 4), np.float32), "b": X},
            state.InvalidArgument,
            "Got invalid dimensions for input: a for the following indices\n index: 1 Got: 4 Expected: 2",
        ),
        (
            None,
            {"a": X.astype(np.float64), "b": X},
            state.InvalidArgument,
            "Unexpected input data type. Actual: (tensor(double)) , expected: (tensor(float))",
        ),
        (None, {"a": np.ones((4, 2), np.float32), "b": X}, state.Fail, "1 : FAIL : Non-zero status code"),
        (None, {"a": 1.0, "b": X}, RuntimeError, "Unable to handle object of type <class 'float'>"),
        (None, [X], AttributeError, "'list' object has no attribute 'keys'"),
    ],
)
def test_wrong_requests_raise_as_onnxruntime_does(add, names, feed, kind, text):
    with pytest.raises(kind) as raised:
        ort.InferenceSession(add).run(names, feed)
    assert text in str(raised.value)


def test_models_that_cannot_be_loaded(tmp_path):
    with pytest.raises(state.NoSuchFile, match=r"\[ONNXRuntimeError\] : 3 : NO_SUCHFILE : Load model from"):
        ort.InferenceSession("/no/such.onnx")
    with pytest.raises(state.InvalidProtobuf, match="7 : INVALID_PROTOBUF"):
        ort.InferenceSession(b"abcdefgh")
    with pytest.raises(state.InvalidArgument, match="2 : INVALID_ARGUMENT"):
        ort.InferenceSession(b"")
    with pytest.raises(TypeError, match="Unable to load from type"):
        ort.InferenceSession(3)
    with pytest.raises(state.InvalidProtobuf):
        ort.InferenceSession(str(tmp_path))


def changed(model, node=None, **named):
    """A model with something of it changed."""
    model = onnx.load_from_string(model)
    if "opset" in named:
        model.opset_import[0].version = named["opset"]
    if "ir_version" in named:
        model.ir_version = named["ir_version"]
    for key, value in (node or {}).items():
        if key == "input":
            model.graph.node[0].input[0] = value
        else:
            setattr(model.graph.node[0], key, value)
    if (node or {}).get("domain"):
        model.opset_import.append(helper.make_opsetid(node["domain"], 1))
    return model.SerializeToString()


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"node": {"op_type": "NoSuch"}}, state.InvalidGraph),
        ({"node": {"domain": "my.domain"}}, state.Fail),
        ({"node": {"input": "nothing"}}, state.InvalidArgument),
        ({"opset": 99}, state.Fail),
        ({"ir_version": 99}, state.Fail),
    ],
)
def test_models_that_are_wrong_raise_as_onnxruntime_does(add, change, kind):
    with pytest.raises(kind, match=r"^\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : "):
        ort.InferenceSession(changed(add, **change))


def test_what_is_missing_raises_by_name(add):
    for call in (
        lambda: ort.SessionOptions().register_custom_ops_library("x.so"),
        lambda: ort.ModelCompiler,
        lambda: ort.SparseTensor(),
        lambda: ort.OrtValue.ortvalue_from_numpy(X, "cuda"),
    ):
        with pytest.raises(state.NotImplemented, match=r"\[ONNXRuntimeError\] : 9 : NOT_IMPLEMENTED"):
            call()
    with pytest.raises(AttributeError):
        ort.nothing_of_that_name


def test_requests_run_beside(add):
    done, got = threading.Event(), []

    def callback(outputs, data, error):
        got.append((outputs, data, error))
        done.set()

    ort.InferenceSession(add).run_async(None, {"a": X, "b": X}, callback, "data")
    assert done.wait(60)
    np.testing.assert_array_equal(got[0][0][0], 2 * X)
    assert got[0][1:] == ("data", "")


def test_values_and_bindings(add):
    s = ort.InferenceSession(add)
    value = ort.OrtValue.ortvalue_from_numpy(X)
    assert (value.shape(), value.data_type(), value.element_type()) == ([3, 2], "tensor(float)", 1)
    np.testing.assert_array_equal(np.from_dlpack(ort.OrtValue.from_dlpack(value.to_dlpack())), X)
    assert value.is_tensor() and value.has_value() and value.device_name() == "cpu"
    (c,) = s.run_with_ort_values(None, {"a": value, "b": value})
    np.testing.assert_array_equal(c.numpy(), 2 * X)
    np.testing.assert_array_equal(np.from_dlpack(ort.OrtValue.from_dlpack(X)), X)
    into = ort.OrtValue.ortvalue_from_shape_and_type([3, 2], np.float32)
    binding = s.io_binding()
    binding.bind_cpu_input("a", X)
    binding.bind_input("b", "cpu", 0, np.float32, X.shape, X.ctypes.data)
    binding.bind_ortvalue_output("c", into)
    s.run_with_iobinding(binding)
    np.testing.assert_array_equal(into.numpy(), 2 * X)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], 2 * X)
    binding.clear_binding_outputs()
    binding.bind_output("c")
    s.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), 2 * X)
    with pytest.raises(RuntimeError, match="NodeArg with name: nope"):
        binding.bind_cpu_input("nope", X)


def test_a_profile_is_written(add, tmp_path):
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    s = ort.InferenceSession(add, options)
    for _ in range(3):
        s.run(None, {"a": X, "b": X})
    name = s.end_profiling()
    events = json.loads(open(name, encoding="utf-8").read())
    assert [e for e in events if e.get("ph") == "X"]


def test_initialisers_are_given(add):
    weight = helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0])
    model = model_of(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        [("x", TensorProto.FLOAT, [2]), ("w", TensorProto.FLOAT, [2])],
        [("y", TensorProto.FLOAT, [2])],
        [weight],
    )
    s = ort.InferenceSession(model.SerializeToString())
    assert [a.name for a in s.get_inputs()] == ["x"]
    assert [a.name for a in s.get_overridable_initializers()] == ["w"]
    x = np.ones(2, np.float32)
    assert s.run(None, {"x": x})[0].tolist() == [2, 3]
    assert s.run(None, {"x": x, "w": np.full(2, 5, np.float32)})[0].tolist() == [6, 6]


def test_options_have_their_types(add):
    options = ort.SessionOptions()
    with pytest.raises(AttributeError, match="no attribute 'no_such_option'"):
        options.no_such_option = 1
    with pytest.raises(TypeError, match="is a 'int' and was given a 'str'"):
        options.intra_op_num_threads = "1"
    options.add_free_dimension_override_by_name("n", 3)
    assert ort.InferenceSession(add, options).get_inputs()[0].shape == [3, 2]
    assert str(ort.ExecutionMode.ORT_PARALLEL) == "ExecutionMode.ORT_PARALLEL"


def test_run_options(add):
    options = ort.RunOptions()
    options.terminate = True
    with pytest.raises(state.Fail, match="terminate"):
        ort.InferenceSession(add).run(None, {"a": X, "b": X}, options)
    options.terminate = False
    assert not options.terminate
    assert ort.InferenceSession(add).run(None, {"a": X, "b": X}, options)


def test_messages_go_to_a_callback(add):
    got = []
    ort.set_default_logger_callback(lambda *message: got.append(message), severity=0)
    ort.InferenceSession(add)
    ort.set_default_logger_callback(None)
    ort.set_default_logger_severity(2)
    (message,) = got
    assert [type(part) for part in message] == [int, str, str, str, str]
    for call in (lambda: ort.set_default_logger_callback(print, severity=5), lambda: ort.set_default_logger_callback("x")):
        with pytest.raises(RuntimeError):
            call()


def test_providers_are_checked(add):
    with pytest.warns(UserWarning), pytest.raises(RuntimeError, match="Unknown Provider Type: Nope"):
        ort.InferenceSession(add).set_providers(["Nope"])
    with pytest.raises(ValueError, match="should be a sequence"):
        ort.InferenceSession(add).set_providers({"CPUExecutionProvider"})
    with pytest.warns(UserWarning, match="Duplicate provider"):
        ort.InferenceSession(add, providers=["CPUExecutionProvider"] * 2)


def test_options_are_read_from_the_model(add, monkeypatch):
    model = onnx.load_from_string(add)
    helper.set_model_props(model, {"ort_config": json.dumps({"session_options": {"intra_op_num_threads": 2}})})
    path_or_bytes = model.SerializeToString()
    assert ort.InferenceSession(path_or_bytes).get_session_options().intra_op_num_threads == 0
    monkeypatch.setenv("ORT_LOAD_CONFIG_FROM_MODEL", "1")
    assert ort.InferenceSession(path_or_bytes).get_session_options().intra_op_num_threads == 2


def test_devices_and_memory_are_described():
    device = ort.OrtDevice.make("cuda", 1)
    assert (device.device_type(), device.device_id(), device.device_vendor_id()) == (1, 1, ort.OrtDeviceVendorId.NVIDIA)
    with pytest.raises(Exception, match="Unsupported device type: nope"):
        ort.OrtDevice.make("nope", 0)
    with pytest.raises(RuntimeError, match="Invalid OrtArenaCfg option: nope"):
        ort.OrtArenaCfg({"nope": 1})
    kinds = ort.OrtMemoryInfoDeviceType.CPU, 0, 0, ort.OrtDeviceMemoryType.DEFAULT, 128
    info = ort.OrtMemoryInfo.create_v2("a", *kinds, ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR)
    assert (info.name, info.mem_type, info.device_vendor_id) == ("a", ort.OrtMemType.DEFAULT, 0)


def test_values_keep_their_size():
    value = ort.OrtValue.ortvalue_from_numpy(X.copy())
    value.update_inplace(X + 1)
    np.testing.assert_array_equal(value.numpy(), X + 1)
    with pytest.raises(RuntimeError, match="does not match the size"):
        value.update_inplace(X[:1])
    assert not np.shares_memory(np.array(value, copy=True), value.numpy())


def test_a_binding_belongs_to_its_session(add):
    with pytest.raises(ValueError, match="the session that created it"):
        ort.InferenceSession(add).run_with_iobinding(ort.InferenceSession(add).io_binding())


def test_sequences_hold_one_type():
    sequence = helper.make_tensor_sequence_value_info("s", TensorProto.INT64, None)
    count = helper.make_tensor_value_info("n", TensorProto.INT64, [])
    graph = helper.make_graph([helper.make_node("SequenceLength", ["s"], ["n"])], "g", [sequence], [count])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    s = ort.InferenceSession(model.SerializeToString())
    assert s.run(None, {"s": [np.zeros(2, np.int64)]})[0] == 1
    with pytest.raises(RuntimeError, match="convert it"):
        s.run(None, {"s": [X]})


def test_inputs_whose_rank_is_not_stated(tmp_path):
    node = helper.make_node("Abs", ["x"], ["y"])
    model = model_of([node], [("x", TensorProto.FLOAT, None)], [("y", TensorProto.FLOAT, None)])
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    for source in (str(path), path.read_bytes()):
        s = ort.InferenceSession(source)
        assert [arg.shape for arg in s.get_inputs() + s.get_outputs()] == [[], []]
        for shape in ((2, 3), (4,), (), (1, 0, 2), (5,)):
            x = np.full(shape, -2, np.float32)
            np.testing.assert_array_equal(s.run(None, {"x": x})[0], -x)
        with pytest.raises(state.InvalidArgument, match="Unexpected input data type"):
            s.run(None, {"x": np.zeros(3)})


def test_types_for_pytorch(add):
    from shopfloor.onnxruntime.transformers.io_binding_helper import TypeHelper

    s = ort.InferenceSession(add)
    assert TypeHelper.get_io_numpy_type_map(s) == dict.fromkeys("abc", np.float32)
    assert TypeHelper.ort_type_to_onnx_type(TypeHelper.get_output_type(s, "c")) == TensorProto.FLOAT
    with pytest.raises(ValueError):
        TypeHelper.ort_type_to_numpy_type("tensor(string)")


def _map_model(node, key, value, out, shape):
    given = onnx.TypeProto()
    given.map_type.key_type = key
    given.map_type.value_type.tensor_type.elem_type = value
    ports = [helper.make_value_info("x", given)], [helper.make_tensor_value_info("y", out, shape)]
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    made = helper.make_model(helper.make_graph([node], "g", *ports), opset_imports=sets, ir_version=8)
    return made.SerializeToString()


@pytest.mark.parametrize(
    "value, items, want",
    [
        (TensorProto.FLOAT, {"b": 2.5}, np.array([[0, 2.5]], np.float32)),
        (TensorProto.FLOAT, {"b": 2, "a": 1}, np.array([[1, 2]], np.float32)),
        (TensorProto.DOUBLE, {"a": 0.1}, np.array([[0.1, 0]])),
        (TensorProto.INT64, {"a": 7, "c": 1}, np.array([[7, 0]])),
    ],
)
def test_maps_have_the_types_that_the_model_takes(value, items, want):
    node = helper.make_node("DictVectorizer", ["x"], ["y"], domain="ai.onnx.ml", string_vocabulary=["a", "b"])
    s = ort.InferenceSession(_map_model(node, TensorProto.STRING, value, value, [1, 2]))
    (got,) = s.run(None, {"x": items})
    assert got.dtype == want.dtype and np.array_equal(got, want)


@pytest.mark.parametrize(
    "out, attributes, want",
    [
        (TensorProto.FLOAT, {}, np.array([[2.5, 1.5]], np.float32)),
        (TensorProto.INT64, {"cast_to": "TO_INT64"}, np.array([[2, 1]])),
        (TensorProto.STRING, {"cast_to": "TO_STRING"}, np.array([["2.500000", "1.500000"]], object)),
        (TensorProto.FLOAT, {"map_form": "SPARSE", "max_map": 5}, np.array([[0, 2.5, 0, 1.5, 0]], np.float32)),
    ],
)
def test_maps_are_cast(out, attributes, want):
    node = helper.make_node("CastMap", ["x"], ["y"], domain="ai.onnx.ml", **attributes)
    s = ort.InferenceSession(_map_model(node, TensorProto.INT64, TensorProto.FLOAT, out, [1, None]))
    for _ in range(2):
        (got,) = s.run(None, {"x": {3: 1.5, 1: 2.5}})
        assert got.dtype == want.dtype and np.array_equal(got, want)
    assert s.run(None, {"x": {7: 1.0}})[0].shape == ((1, 5) if "map_form" in attributes else (1, 1))


def test_types_that_onnxruntime_refuses_are_refused_as_by_it():
    node = helper.make_node("DictVectorizer", ["x"], ["y"], domain="ai.onnx.ml", string_vocabulary=["a", "b"])
    with pytest.raises(state.InvalidGraph, match="a map from"):
        ort.InferenceSession(_map_model(node, TensorProto.STRING, TensorProto.BOOL, TensorProto.BOOL, [1, 2]))
    ports = [helper.make_tensor_value_info(n, TensorProto.COMPLEX64, [2]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", ports[:1], ports[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(state.InvalidGraph, match=r"Type Error: Type 'tensor\(complex64\)'"):
        ort.InferenceSession(made.SerializeToString())


def test_sizes_that_follow_from_the_model_stand_for_names():
    ports = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", "columns"]),
        helper.make_tensor_value_info("z", TensorProto.FLOAT, [None, None]),
    ]
    nodes = [helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Concat", ["x", "x"], ["z"], axis=1)]
    made = helper.make_model(
        helper.make_graph(nodes, "g", ports[:1], ports[1:]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    s = ort.InferenceSession(made.SerializeToString())
    y, z = s.get_outputs()
    assert y.shape == ["rows", 3] and z.shape == ["batch", 6]
    assert str(y) == "NodeArg(name='y', type='tensor(float)', shape=['rows', 3])"


@pytest.mark.parametrize("operator", ["LinearClassifier", "LinearRegressor"])
def test_coefficients_beyond_those_that_are_needed_are_left(operator):
    more = {"classlabels_ints": [0, 1]} if operator == "LinearClassifier" else {"targets": 2}
    numbers = {"coefficients": [1.0, 2.0, 3.0, 4.0, 9.0, 9.0], "intercepts": [0.5, -0.5]}
    outs = ["label", "y"] if operator == "LinearClassifier" else ["y"]
    node = helper.make_node(operator, ["x"], outs, domain="ai.onnx.ml", **numbers, **more)
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None, 2]) for n in "xy"]
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    made = helper.make_model(helper.make_graph([node], "g", ports[:1], ports[1:]), opset_imports=sets, ir_version=8)
    (y,) = ort.InferenceSession(made.SerializeToString()).run(None, {"x": np.array([[1, 1]], np.float32)})
    assert y.tolist() == [[3.5, 6.5]]


def test_providers_of_a_wrong_form_fall_back_as_in_onnxruntime(add):
    for wrong in (lambda: ort.InferenceSession(add, providers=7), lambda: ort.InferenceSession(add).set_providers(7)):
        with pytest.raises(TypeError, match="not iterable"):
            wrong()
    for providers, options in ((["CPUExecutionProvider"], [{}, {}]), ([1], None)):
        with pytest.warns(UserWarning, match="EP Error"):
            s = ort.InferenceSession(add, providers=providers, provider_options=options)
        assert s.get_providers() == ["CPUExecutionProvider"]
        with pytest.raises(ValueError, match="provider"):
            ort.InferenceSession(add, providers=providers, provider_options=options, enable_fallback=False)
