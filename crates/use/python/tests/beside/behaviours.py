"""What onnxruntime's own tests of its Python interface (onnxruntime_test_python.py and those of bindings) are about, asked
of `onnxruntime` as an environment has it. Nothing of those tests is here but their subjects.

A question is a name and a call. `KNOWN` has patterns of names whose answers differ, and why.
"""

import gc
import json
import os
import pathlib
import pickle
import tempfile
import threading

import numpy as np
from onnx import TensorProto as T
from onnx import helper, numpy_helper

#: Names whose answers differ, and why.
KNOWN = {
    "sessions: pickled": "a session of a model in memory can be pickled too",
    "values: texts: bytes": "bytes of several lengths are read",
    "bindings: bound: a list": "lists of numbers are read",
    "ortvalues: value of a sequence as an array": "a sequence is given as the list of its arrays",
    "ortvalues: value written by another type": "an array of another type is refused, where its bytes would be written",
    "ranks: no rank: Shape: ports": "the number of dimensions of an output that onnxruntime infers is not shown",
    "options: a weight given": "a model's initialisers are not replaced by options",
    r"names: SparseTensor\.|names: onnxruntime_pybind11_state\.Sparse": "the standard's operators take no sparse tensors",
    r"names: .*\.(AdapterFormat|LoraAdapter)": "adapters are not read",
    r"names: .*\.(Model(Compiler|Package\w*)|OrtCompile\w+|OrtCompiled\w+|\w*compatibility\w*)": "plans take the place of compiled models",
    r"names: .*(Ep[A-Z]|ep_device|EpDevice|HardwareDevice|hardware_device|SyncStream|ExternalInitializerInfo"
    r"|ExecutionProviderDevicePolicy|execution_provider_library|ep_kernel)": "there are no execution providers beside the CPU's",
    r"names: .*(OrtValueVector|ortvaluevector|SessionObjectInitializer|get_session_initializer|ArenaExtendStrategy|kNextPowerOfTwo"
    r"|kSameAsRequested|opkernel|schemadef|get_all_op\w+|quantize_\w+|pack_\w+)": "these are onnxruntime's own inner parts",
}

X = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
CPU = ["CPUExecutionProvider"]


def model(nodes, inputs, outputs, weights=(), metadata=None):
    """The bytes of a model; inputs and outputs are ONNX's descriptions, or (name, type, shape)."""
    info = lambda all: [helper.make_tensor_value_info(*i) if isinstance(i, tuple) else i for i in all]
    graph = helper.make_graph(list(nodes), "g", info(inputs), info(outputs), list(weights))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name="who", doc_string="what")
    helper.set_model_props(made, metadata or {})
    return made.SerializeToString()


def weight(name, *values, kind=np.float32):
    """An initialiser."""
    return numpy_helper.from_array(np.array(values, kind), name)


def one(operator, kind, shape, result=None, **attributes):
    """A model of one operator from x to y; without a shape the rank is not stated."""
    node = helper.make_node(operator, ["x"], ["y"], **attributes)
    return model([node], [("x", kind, shape)], [("y", result or kind, shape)])


MUL_NODE = helper.make_node("Mul", ["X", "W"], ["Y"], name="mul")
FIXED = [("X", T.FLOAT, [3, 2])], [("Y", T.FLOAT, [3, 2])]
W = numpy_helper.from_array(X, "W")
MUL = model([MUL_NODE], *FIXED, [W])
CONFIGURED = model(
    [MUL_NODE], *FIXED, [W],
    {"ort_config": json.dumps({"session_options": {"inter_op_num_threads": 5, "intra_op_num_threads": 2, "enable_profiling": 0}})},
)
FREE = one("Abs", T.FLOAT, ["Dim1", "Dim2", 5])
TEXTS = one("Identity", T.STRING, [2, 2])
LOGICAL = model(
    [helper.make_node("And", ["input1:0", "input:0"], ["output:0"])],
    [("input1:0", T.BOOL, [2, 2]), ("input:0", T.BOOL, [2, 2])],
    [("output:0", T.BOOL, [2, 2])],
)
THROUGH = model(
    [helper.make_node("Add", ["x", "ten"], ["more"])],
    [("x", T.FLOAT, [64, 64])],
    [("more", T.FLOAT, [64, 64]), ("x", T.FLOAT, [64, 64])],
    [weight("ten", 10)],
)
SEQUENCE = helper.make_tensor_sequence_value_info("s", T.INT64, None)
LENGTH = model([helper.make_node("SequenceLength", ["s"], ["n"])], [SEQUENCE], [("n", T.INT64, [])])
INSERT = model(
    [helper.make_node("SequenceInsert", ["s", "t"], ["r"])],
    [SEQUENCE, ("t", T.INT64, [2, 3])],
    [helper.make_tensor_sequence_value_info("r", T.INT64, None)],
)
CONSTRUCT = model(
    [helper.make_node("SequenceConstruct", ["t", "u"], ["r"])],
    [("t", T.INT64, [2, 3]), ("u", T.INT64, [2, 3])],
    [helper.make_tensor_sequence_value_info("r", T.INT64, None)],
)
GIVEN = model(
    [helper.make_node("Add", ["x", "w"], ["y"])],
    [("x", T.FLOAT, [2]), ("w", T.FLOAT, [2])], [("y", T.FLOAT, [2])], [weight("w", 1, 2)],
)
TREE = dict(
    nodes_treeids=[0, 0, 0], nodes_nodeids=[0, 1, 2], nodes_featureids=[0, 0, 0], nodes_values=[0.5, 0.0, 0.0],
    nodes_modes=["BRANCH_LT", "LEAF", "LEAF"], nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0],
    nodes_missing_value_tracks_true=[0, 0, 0], nodes_hitrates=[1.0, 1.0, 1.0], class_treeids=[0, 0], class_nodeids=[1, 2],
    class_ids=[0, 0], class_weights=[0.3, -0.3], classlabels_int64s=[0, 1], post_transform="LOGISTIC", base_values=[-0.405],
)  # fmt: skip
TREES = model(
    [helper.make_node("TreeEnsembleClassifier", ["X"], ["label", "probs"], domain="ai.onnx.ml", **TREE)],
    [("X", T.FLOAT, [None, 3])],
    [("label", T.INT64, [None]), ("probs", T.FLOAT, [None, 2])],
)


def of_module(ort, state):
    """What the module itself says and takes."""
    yield "build info", lambda: "Build Info" in ort.get_build_info()
    yield "version", lambda: [ort.get_version_string() == ort.__version__, ort.__version__]
    yield "device", lambda: ort.get_device() in ("CPU", "GPU")
    yield "last provider", lambda: [ort.get_all_providers()[-1], ort.get_all_providers() == sorted(set(ort.get_all_providers()), key=ort.get_all_providers().index)]
    yield "CPU is there", lambda: "CPUExecutionProvider" in ort.get_available_providers()
    yield "telemetry", lambda: [ort.disable_telemetry_events(), ort.enable_telemetry_events()]
    yield "collective operators", ort.has_collective_ops
    for severity in (-1, 0, 4, 5):
        yield f"severity {severity}", lambda: [ort.set_default_logger_severity(severity), ort.set_default_logger_severity(4)]
    yield "verbosity", lambda: ort.set_default_logger_verbosity(0)
    yield "seed", lambda: ort.set_seed(3)
    yield "default options", lambda: type(state.get_default_session_options()).__name__
    yield "exceptions are exceptions", lambda: [issubclass(state.Fail, Exception), issubclass(state.Fail, RuntimeError)]


def of_logger(ort, state):
    """A callback for messages."""

    def told(callback):
        try:
            ort.set_default_logger_callback(callback, severity=0)
            session = ort.InferenceSession(MUL, providers=CPU)
            session.run(None, {"X": X})
        finally:
            ort.set_default_logger_callback(None)
            ort.set_default_logger_severity(4)

    def messages():
        all = []
        told(lambda *message: all.append(message))
        return [len(all) > 0, sorted({tuple(type(part).__name__ for part in m) for m in all})]

    def raising(*message):
        raise ValueError("on purpose")

    yield "logger: messages", messages
    yield "logger: raises", lambda: told(raising)
    for severity in (-1, 0, 4, 5):
        yield f"logger: severity {severity}", lambda: [
            ort.set_default_logger_callback(print, severity=severity), ort.set_default_logger_callback(None)
        ]  # fmt: skip
    yield "logger: no callable", lambda: ort.set_default_logger_callback("x")


def of_sessions(ort, state):
    """Sessions: how they are made and what they say."""
    session = ort.InferenceSession(MUL, providers=CPU)
    port = lambda p: [p.name, p.type, p.shape]
    yield "ports", lambda: [port(p) for p in session.get_inputs() + session.get_outputs()]
    yield "memory infos", lambda: [i.name for i in session.get_input_memory_infos() + session.get_output_memory_infos()]
    yield "devices of inputs", lambda: [d is None or type(d).__name__ == "OrtEpDevice" for d in session.get_input_epdevices()]
    yield "metadata", lambda: [
        str(getattr(session.get_modelmeta(), n))
        for n in ("producer_name", "graph_name", "domain", "description", "graph_description", "version", "custom_metadata_map")
    ]
    yield "providers", lambda: [session.get_providers(), session.get_provider_options()]
    yield "options of a session", lambda: type(session.get_session_options()).__name__
    yield "a model by bytes", lambda: ort.InferenceSession(MUL).run(["Y"], {"X": X})
    yield "no feeds", lambda: session.run(None, {})
    yield "names are empty", lambda: session.run([], {"X": X})
    yield "input missing", lambda: ort.InferenceSession(LOGICAL).run([], {"input:0": np.ones((2, 2), bool)})
    both = {"input1:0": np.array([[True, True], [False, False]]), "input:0": np.array([[True, False]] * 2)}
    yield "booleans", lambda: ort.InferenceSession(LOGICAL).run(None, both)
    yield "order of inputs", lambda: [p.name for p in ort.InferenceSession(LOGICAL).get_inputs()]
    yield "columns taken", lambda: session.run(None, {"X": X[:, [1, 0]]})
    yield "list", lambda: session.run(None, {"X": X.tolist()})
    yield "overridable", lambda: [port(p) for p in ort.InferenceSession(GIVEN).get_overridable_initializers()]
    yield "pickled", lambda: pickle.loads(pickle.dumps(ort.InferenceSession(MUL))).run(None, {"X": X})
    yield "trees", lambda: ort.InferenceSession(TREES).run(None, {"X": np.array([[0.1, 0, 0]], np.float32)})[0]
    yield "providers set", lambda: [session.set_providers(CPU), session.get_providers()]
    yield "unknown provider set", lambda: ort.InferenceSession(MUL).set_providers(["InvalidProvider"])
    yield "tuning results", lambda: session.get_tuning_results()
    yield "assignment not asked for", lambda: ort.InferenceSession(MUL).get_provider_graph_assignment_info()

    def path():
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "m.onnx")
            file.write_bytes(MUL)
            return [ort.InferenceSession(p).run(None, {"X": X}) for p in (file, str(file))]

    yield "a model by its path", path

    def threads():
        many = ort.InferenceSession(MUL, providers=CPU)
        found = []
        options = ort.RunOptions()
        options.logid = "thread"
        run = lambda: found.extend(many.run(None, {"X": X}, options) for _ in range(20))
        all = [threading.Thread(target=run) for _ in range(4)]
        [t.start() for t in all], [t.join() for t in all]
        return [len(found), all_equal(found)]

    def all_equal(found):
        return all(np.array_equal(f[0], X * X) for f in found)

    yield "threads", threads

    def beside(feed):
        done, got = threading.Event(), []
        session.run_async(["Y"], feed, lambda *all: (got.extend(all), done.set()), "data")
        return [done.wait(20), got[:2], got[2] == ""]

    yield "run_async", lambda: beside({"X": X})
    yield "run_async: input missing", lambda: beside({})

    def through():
        bound = ort.InferenceSession(THROUGH, providers=CPU)
        kept = []
        for k in range(3):
            x = np.full((64, 64), k, np.float32)
            out = bound.run(None, {"x": x})
            kept.append((np.shares_memory(out[1], x), out))
        gc.collect()
        return [[shares, *[o.ravel()[0] for o in out], out[0].base is not None] for shares, out in kept]

    yield "an input that is an output", through

    def configured():
        os.environ["ORT_LOAD_CONFIG_FROM_MODEL"] = "1"
        try:
            options = ort.InferenceSession(CONFIGURED).get_session_options()
            return [options.inter_op_num_threads, options.intra_op_num_threads, options.enable_profiling]
        finally:
            del os.environ["ORT_LOAD_CONFIG_FROM_MODEL"]

    yield "options from the model", configured


def of_values(ort, state):
    """Texts, sequences and optional values as inputs."""
    texts = ort.InferenceSession(TEXTS)
    words = [["this", "is"], ["identity", "test"]]
    for name, value in {
        "str": np.array(words), "list": words, "other scripts": np.array([["Olá", "你好"], ["여보세요", "hello"]]),
        "bytes": np.array([[b"this", b"is"], [b"a", b"test"]]), "objects": np.array(words, object),
        "void": np.array([b"must", b"have", b"same", b"size"], np.void).reshape(2, 2),
    }.items():  # fmt: skip
        yield f"texts: {name}", lambda: texts.run(None, {"x": value})
    numbers = np.arange(6).reshape(2, 3)
    yield "sequence: length", lambda: ort.InferenceSession(LENGTH).run(None, {"s": [numbers, numbers]})
    yield "sequence: type", lambda: [p.type for p in ort.InferenceSession(INSERT).get_inputs()]
    yield "sequence: into an empty one", lambda: ort.InferenceSession(INSERT).run(None, {"s": [], "t": numbers})
    yield "sequence: made", lambda: ort.InferenceSession(CONSTRUCT).run(None, {"t": numbers, "u": numbers + 1})
    yield "sequence: an array", lambda: ort.InferenceSession(LENGTH).run(None, {"s": numbers})
    yield "sequence: another type", lambda: ort.InferenceSession(LENGTH).run(None, {"s": [X]})


def of_options(ort, state):
    """Options of sessions and requests."""
    options = ort.SessionOptions()
    yield "level", lambda: [str(options.graph_optimization_level), setattr(options, "graph_optimization_level", ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED), str(options.graph_optimization_level)]
    yield "mode", lambda: [str(options.execution_mode), setattr(options, "execution_mode", ort.ExecutionMode.ORT_PARALLEL), str(options.execution_mode)]
    yield "entry", lambda: [options.add_session_config_entry("a", "b"), options.get_session_config_entry("a")]
    yield "no such entry", lambda: options.get_session_config_entry("nope")
    sized = ort.SessionOptions()
    sized.add_free_dimension_override_by_name("Dim1", 4)
    sized.add_free_dimension_override_by_name("Dim2", 6)
    yield "sizes by name", lambda: ort.InferenceSession(FREE, sized).get_inputs()[0].shape

    def weights(add):
        options = ort.SessionOptions()
        add(options)
        return ort.InferenceSession(MUL, options, providers=CPU).run(None, {"X": X})

    value = ort.OrtValue.ortvalue_from_numpy(X + 1)
    yield "a weight given", lambda: weights(lambda o: o.add_initializer("W", value))
    run = ort.RunOptions()
    yield "run: entry", lambda: [run.add_run_config_entry("a", "b"), run.get_run_config_entry("a")]
    yield "run: no such entry", lambda: run.get_run_config_entry("nope")
    yield "run: shrinks the arena", lambda: [
        run.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0"), ort.InferenceSession(MUL).run([], {"X": X}, run)
    ]  # fmt: skip
    plain = {n: getattr(run, n) for n in dir(run) if not n.startswith("_")}
    yield "run: options", lambda: sorted(f"{n}={v}" for n, v in plain.items() if not callable(v))

    def stopped():
        options = ort.RunOptions()
        options.terminate = True
        return ort.InferenceSession(MUL).run(None, {"X": X}, options)

    yield "run: terminated", stopped

    def profile():
        with tempfile.TemporaryDirectory() as folder:
            options = ort.SessionOptions()
            options.enable_profiling = True
            options.profile_file_prefix = str(pathlib.Path(folder, "p"))
            session = ort.InferenceSession(MUL, options)
            session.run(None, {"X": X})
            start = session.get_profiling_start_time_ns()
            events = json.loads(pathlib.Path(session.end_profiling()).read_text())
            keys = ["pid", "dur", "ts", "ph", "name", "args"]
            return [start > 0, len(events) > 0, all(k in e for k in keys for e in events)]

    yield "profile", profile

    def starts():
        with tempfile.TemporaryDirectory() as folder:
            options = ort.SessionOptions()
            options.enable_profiling = True
            options.profile_file_prefix = str(pathlib.Path(folder, "p"))
            all = [ort.InferenceSession(MUL, options).get_profiling_start_time_ns() for _ in range(3)]
            return all == sorted(all)

    yield "profiles start in order", starts
    normal = getattr(__import__(f"{ort.__name__}.capi.onnxruntime_inference_collection", fromlist=["x"]), "check_and_normalize_provider_args")
    for name, given in {
        "none": (None, None), "one": (["a"], None), "two": (["a", "b"], None), "pairs": ([("a", {1: 2}), "b"], None),
        "options beside": (["a", "b"], [{1: 2}, {}]), "twice": (["a", "b", "a"], [{"x": 1}, {}, {"y": 2}]),
        "no sequence": (3, None), "no name": ([3], None), "options no sequence": (["a"], 3),
        "options no dict": (["a"], ["x"]), "other lengths": (["a", "b"], [{1: 2}]), "both": ([("a", {1: 2})], [{3: 4}]),
        "unknown": (["d"], None),
    }.items():  # fmt: skip
        yield f"providers: {name}", lambda: normal(*given, ["a", "b", "c"])


def of_ortvalues(ort, state):
    """Values that stay with a caller, and DLPack."""
    make = ort.OrtValue.ortvalue_from_numpy
    value = make(X)
    says = lambda v: [
        v.device_name(), v.shape(), v.data_type(), v.element_type(), v.is_tensor(), v.is_tensor_sequence(),
        v.is_sparse_tensor(), v.has_value(), v.tensor_size_in_bytes(),
    ]  # fmt: skip
    yield "value", lambda: says(value)
    for kind in (np.float64, np.float16, np.int8, np.uint8, np.int64, np.bool_):
        yield f"value of {kind.__name__}", lambda: says(make(X.astype(kind)))
    yield "value of texts", lambda: [make(np.array(["a", "b"], object)).data_type(), make(np.array(["a", "b"])).shape()]
    yield "value by ONNX's type", lambda: says(ort.OrtValue.ortvalue_from_numpy_with_onnx_type(X, 1))
    yield "value of bfloat16", lambda: says(ort.OrtValue.ortvalue_from_numpy_with_onnx_type(X.view(np.uint16), T.BFLOAT16))
    yield "value by shape", lambda: says(ort.OrtValue.ortvalue_from_shape_and_type([3, 2], np.int64))
    yield "value by shape and ONNX's type", lambda: says(ort.OrtValue.ortvalue_from_shape_and_type([3, 2], T.BFLOAT16))
    yield "value shares memory", lambda: [value.data_ptr() == X.ctypes.data, np.shares_memory(value.numpy(), X)]
    yield "value of a slice", lambda: make(X[:, ::-1]).numpy()
    yield "value written", lambda: [(v := make(X.copy())).update_inplace(X + 1), v.numpy()]
    yield "value written by another shape", lambda: make(X.copy()).update_inplace(X[:1])
    yield "value written by another type", lambda: make(X.copy()).update_inplace(X.astype(float))
    session = ort.InferenceSession(MUL)
    yield "value as a feed", lambda: session.run(["Y"], {"X": value})
    yield "value of texts as a feed", lambda: ort.InferenceSession(TEXTS).run(None, {"x": make(np.array([["a", "b"]] * 2))})
    yield "values run", lambda: [says(v) for v in session.run_with_ort_values(["Y"], {"X": value})]
    yield "values run: input missing", lambda: session.run_with_ort_values(["Y"], {})
    yield "values run: output unknown", lambda: session.run_with_ort_values(["Z"], {"X": value})
    sequence = ort.InferenceSession(CONSTRUCT)
    feed = {n: make(np.ones((2, 3), np.int64)) for n in "tu"}
    made = lambda: sequence.run_with_ort_values(None, feed)[0]
    yield "value of a sequence", lambda: [made().data_type(), made().is_tensor(), made().is_tensor_sequence(), made().has_value()]
    yield "value of a sequence as an array", lambda: made().numpy()
    yield "array", lambda: [np.asarray(value), np.array(value), np.asarray(value, np.float64), np.asarray(value).ctypes.data == value.data_ptr()]
    yield "array copied", lambda: np.shares_memory(np.array(value, copy=True), X)
    yield "array not copied", lambda: np.asarray(value, np.float64, copy=False)
    yield "dlpack", lambda: ort.OrtValue.from_dlpack(value.__dlpack__()).numpy()
    yield "dlpack device", lambda: list(value.__dlpack_device__())
    yield "dlpack of an array", lambda: says(ort.OrtValue.from_dlpack(X))
    yield "dlpack shares", lambda: ort.OrtValue.from_dlpack(value).data_ptr() == value.data_ptr()
    yield "dlpack of booleans", lambda: says(ort.OrtValue.from_dlpack(make(X > 2)))
    for shape in ((1, 8, 0, 4), (0,), (0, 4), (4, 0)):
        yield f"dlpack of {shape}", lambda: ort.OrtValue.from_dlpack(make(np.zeros(shape, np.float32))).shape()
    inner = lambda v: v._ortvalue
    yield "dlpack of the inner value", lambda: state.OrtValue.from_dlpack(inner(value).to_dlpack()).numpy()
    device = ort.OrtDevice.make("cpu", 0)
    yield "device made", lambda: [device.device_id(), device.device_type(), int(device.device_vendor_id()), device.device_mem_type()]
    yield "device of NVIDIA", lambda: [int(ort.OrtDevice.make("cuda", 1).device_vendor_id()), ort.OrtDevice.make("cuda", 1).device_type(), ort.OrtDevice.make("cuda", 1).device_id()]
    yield "device unknown", lambda: ort.OrtDevice.make("nope", 0)
    yield "vendors", lambda: {v.name: int(v) for v in ort.OrtDeviceVendorId}
    kind, arena = ort.OrtMemType.DEFAULT, ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    tell = lambda i: [i.name, i.device_id, str(i.mem_type), str(i.allocator_type), str(i.device_mem_type), i.device_vendor_id]
    yield "memory info", lambda: tell(ort.OrtMemoryInfo("Cpu", arena, 0, kind))
    yield "memory info, second form", lambda: tell(
        ort.OrtMemoryInfo.create_v2("Test", ort.OrtMemoryInfoDeviceType.CPU, 0, 0, ort.OrtDeviceMemoryType.DEFAULT, 128, arena)
    )
    settings = "max_mem arena_extend_strategy initial_chunk_size_bytes max_dead_bytes_per_chunk initial_growth_chunk_size_bytes max_power_of_two_extend_bytes".split()
    arena_of = lambda *a: [getattr(ort.OrtArenaCfg(*a), n) for n in settings]
    yield "arena", lambda: arena_of(8, 0, 4, 2)
    yield "arena by names", lambda: arena_of({n: k + 10 for k, n in enumerate(settings)})
    yield "arena by a wrong name", lambda: arena_of({"nope": 1})
    yield "allocator", lambda: ort.create_and_register_allocator(ort.OrtMemoryInfo("Cpu", arena, 0, kind), None)


def of_bindings(ort, state):
    """Inputs and outputs that are bound."""
    session = ort.InferenceSession(MUL, providers=CPU)
    value = ort.OrtValue.ortvalue_from_numpy(X)

    def bound(inputs, outputs, read=lambda b: b.copy_outputs_to_cpu()):
        binding = session.io_binding()
        inputs(binding)
        outputs(binding)
        binding.synchronize_inputs()
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        return read(binding)

    array = lambda b: b.bind_cpu_input("X", X)
    pointer = lambda b: b.bind_input("X", "cpu", 0, np.float32, [3, 2], X.ctypes.data)
    coded = lambda b: b.bind_input("X", "cpu", 0, T.FLOAT, [3, 2], X.ctypes.data)
    there = lambda b: b.bind_output("Y")
    for name, bind in {"array": array, "pointer": pointer, "pointer by code": coded, "value": lambda b: b.bind_ortvalue_input("X", value)}.items():
        yield f"bound: {name}", lambda: bound(bind, there)
    yield "bound: outputs as values", lambda: bound(array, there, lambda b: [[v.shape(), v.device_name(), v.numpy()] for v in b.get_outputs()])
    into = np.zeros((3, 2), np.float32)
    yield "bound: into memory", lambda: [bound(array, lambda b: b.bind_output("Y", "cpu", 0, np.float32, [3, 2], into.ctypes.data)), into]
    room = ort.OrtValue.ortvalue_from_shape_and_type([3, 2], np.float32)
    yield "bound: into a value", lambda: [bound(array, lambda b: b.bind_ortvalue_output("Y", room)), room.numpy()]
    small = np.zeros((1, 2), np.float32)
    yield "bound: into too little", lambda: bound(array, lambda b: b.bind_output("Y", "cpu", 0, np.float32, [1, 2], small.ctypes.data))
    yield "bound: memory without a shape", lambda: bound(array, lambda b: b.bind_output("Y", "cpu", 0, None, None, into.ctypes.data))
    yield "bound: unknown input", lambda: bound(lambda b: b.bind_cpu_input("nope", X), there)
    yield "bound: unknown output", lambda: bound(array, lambda b: b.bind_output("nope"))
    yield "bound: nothing", lambda: bound(lambda b: None, there)
    yield "bound: a list", lambda: bound(lambda b: b.bind_cpu_input("X", X.tolist()), there)
    yield "bound: another type", lambda: bound(lambda b: b.bind_cpu_input("X", X.astype(int)), there)
    yield "bound: on no device", lambda: bound(array, lambda b: b.bind_output("Y", "nope"))

    def again():
        binding = session.io_binding()
        array(binding), there(binding)
        session.run_with_iobinding(binding)
        binding.clear_binding_outputs()
        left = len(binding.get_outputs())
        there(binding)
        binding.bind_cpu_input("X", X + 1)
        session.run_with_iobinding(binding)
        first = binding.copy_outputs_to_cpu()
        binding.clear_binding_inputs()
        return [left, first]

    yield "bound: again", again
    other = ort.InferenceSession(MUL)
    yield "bound: to another session", lambda: other.run_with_iobinding(session.io_binding())
    yield "bound: options", lambda: session.run_with_iobinding(session.io_binding(), ort.RunOptions())
    yield "bound: two names of one class", lambda: [ort.IOBinding.__name__, hasattr(ort, "SessionIOBinding")]


def of_ranks(ort, state):
    """Inputs whose rank the model does not state."""
    for name, given in {"Abs": T.FLOAT, "Identity": T.INT64, "Shape": T.FLOAT}.items():
        result = T.INT64 if name == "Shape" else given
        node = helper.make_node(name, ["x"], ["y"])
        free = model([node], [("x", given, None)], [("y", result, None)])
        load = lambda: ort.InferenceSession(free, providers=CPU)
        kind = np.float32 if given == T.FLOAT else np.int64
        yield f"no rank: {name}: ports", lambda: [[p.name, p.type, p.shape] for p in load().get_inputs() + load().get_outputs()]
        yield f"no rank: {name}: runs", lambda: [load().run(None, {"x": np.full(s, -3, kind)}) for s in ((), (2,), (2, 3), (1, 0, 2))]
        yield f"no rank: {name}: one session", lambda: [
            s := load(), *[s.run(None, {"x": np.full(shape, -3, kind)}) for shape in ((2, 3), (4,), (), (5,))]
        ][1:]
        yield f"no rank: {name}: another type", lambda: load().run(None, {"x": X.astype(np.float64)})
    both = model(
        [helper.make_node("Add", ["a", "b"], ["c"])], [("a", T.FLOAT, None), ("b", T.FLOAT, ["n", 2])], [("c", T.FLOAT, None)]
    )
    yield "no rank: two inputs", lambda: ort.InferenceSession(both).run(None, {"a": X[0], "b": X})
    yield "no rank: inputs that do not fit", lambda: ort.InferenceSession(both).run(None, {"a": np.ones((3, 3), np.float32), "b": X})


def of_names(ort, state):
    """Whether public names are there."""
    made = {
        "InferenceSession": ort.InferenceSession(MUL), "SessionOptions": ort.SessionOptions(), "RunOptions": ort.RunOptions(),
        "OrtValue": ort.OrtValue.ortvalue_from_numpy(X), "IOBinding": ort.InferenceSession(MUL).io_binding(),
        "OrtDevice": ort.OrtDevice.make("cpu", 0), "ModelMetadata": ort.InferenceSession(MUL).get_modelmeta(),
        "NodeArg": ort.InferenceSession(MUL).get_inputs()[0], "SparseTensor": ort.SparseTensor, "onnxruntime": ort,
        "OrtMemoryInfo": ort.InferenceSession(MUL).get_input_memory_infos()[0], "OrtArenaCfg": ort.OrtArenaCfg, "onnxruntime_pybind11_state": state,
    }  # fmt: skip
    for owner, value in made.items():
        for name in dir(value):
            if not name.startswith("_") and name not in ("contextlib", "import_capi_exception"):
                yield f"{owner}.{name} is there", lambda: True


def questions(ort):
    """All of them."""
    state = __import__(f"{ort.__name__}.capi.onnxruntime_pybind11_state", fromlist=["x"])
    for part in (
        of_module, of_logger, of_sessions, of_values, of_options, of_ortvalues, of_bindings, of_ranks, of_names
    ):  # fmt: skip
        for name, call in part(ort, state):
            yield f"{part.__name__[3:]}: {name}", call
