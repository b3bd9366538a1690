"""Runs models of the standard's tests through `onnxruntime`, as an environment has it, and keeps the answers.

    python answers.py [--ours] MODELS.json OUT.pickle

With --ours shopfloor stands in onnxruntime's place. MODELS.json lists folders with model.onnx and
test_data_set_0.
"""

import json
import pathlib
import pickle
import sys
import warnings

import numpy as np
import onnx
from onnx import numpy_helper


def tensor(path, kind):
    """A value of a file of test data; `kind` is the input's type in the model."""
    data = path.read_bytes()
    if kind.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if kind.HasField("optional_type"):
        value = onnx.OptionalProto.FromString(data)
        return numpy_helper.to_optional(value)
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def feeds(folder, model):
    """The first set of inputs of a model."""
    weights = {t.name for t in model.graph.initializer}
    inputs = [i for i in model.graph.input if i.name not in weights]
    data = folder / "test_data_set_0"
    return {i.name: tensor(data / f"input_{k}.pb", i.type) for k, i in enumerate(inputs)}


def reference(folder, model):
    """The outputs that the standard states for the first set of inputs."""
    data = folder / "test_data_set_0"
    return [tensor(data / f"output_{k}.pb", o.type) for k, o in enumerate(model.graph.output)]


def answer(call):
    """What a call gives, or the class and the message of what it raises."""
    try:
        return "gives", call()
    except Exception as e:  # the class is what is compared
        return "raises", type(e).__name__, str(e)


def plain(value):
    """A value without types that only one environment has."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "V":
        return value.view(np.uint16 if value.dtype.itemsize == 2 else np.uint8)
    if isinstance(value, list):
        return [plain(v) for v in value]
    return value


def wrong_requests(feed):
    """Requests that differ from a right one in one thing each, by what that is."""
    yield "nothing", {}
    yield "a name too much", {**feed, "no such input": np.zeros(1, np.float32)}
    for name, value in feed.items():
        yield f"without {name}", {n: v for n, v in feed.items() if n != name}
        yield f"{name} is None", {**feed, name: None}
        for form, other in wrong_values(value) if isinstance(value, np.ndarray) else ():
            yield f"{name} {form}", {**feed, name: other}


def wrong_values(value):
    """An array in other forms, of which some are right, by what they are."""
    yield "of another rank", value[None]
    yield "in the order of columns", np.asfortranarray(value)
    yield "as objects", value.astype(object)
    if value.ndim:
        yield "without elements", value[:0]
        yield "in steps", np.repeat(value, 2, axis=-1)[..., ::2]
        longer = np.concatenate([value, value[:1]]) if len(value) else np.zeros((1, *value.shape[1:]), value.dtype)
        yield "longer", longer
    if value.size:
        yield "as one number", value.ravel()[0]
        yield "of no dimension", np.array(value.ravel()[0], value.dtype)
    if value.ndim and value.dtype.kind in "fiub" and value.size <= 1000:
        yield "as a list", value.tolist()
    if value.dtype.kind in "fiu":
        yield "of another type", value.astype(np.float64 if value.dtype != np.float64 else np.float32)
        yield "as booleans", value != 0
        if value.dtype.itemsize > 1:
            yield "in the other byte order", value.astype(value.dtype.newbyteorder())


def answers(folder, onnxruntime):
    """All that is asked of one model."""
    model = onnx.load(folder / "model.onnx")
    feed = feeds(folder, model)
    path = str(folder / "model.onnx")
    loaded = answer(lambda: onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]))
    if loaded[0] == "raises":
        return {"load": loaded}
    session = loaded[1]
    arg = lambda a: (a.name, a.type, list(a.shape))
    found = {
        "load": ("gives",),
        "inputs": [arg(a) for a in session.get_inputs()],
        "outputs": [arg(a) for a in session.get_outputs()],
        "reference": ("gives", plain(reference(folder, model))),
        "run": answer(lambda: plain(session.run(None, feed))),
        "no such output": answer(lambda: plain(session.run(["no such output"], feed))),
    }
    for what, wrong in wrong_requests(feed):
        found[what] = answer(lambda: plain(session.run(None, wrong)))
    return found


def main():
    ours = sys.argv[1] == "--ours"
    listed, out = sys.argv[1 + ours :]
    if ours:
        import shopfloor

        shopfloor.install()
    warnings.simplefilter("ignore")
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    with open(out, "wb") as file:
        for folder in map(pathlib.Path, json.loads(pathlib.Path(listed).read_text())):
            pickle.dump((folder.name, answers(folder, onnxruntime)), file)
            file.flush()


if __name__ == "__main__":
    main()
