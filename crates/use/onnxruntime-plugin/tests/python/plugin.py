"""What the scripts here share: the plugin registered, sessions with it, and comparisons."""

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

NAME = "ShopfloorExecutionProvider"


def register(library):
    """Registers the plugin and gives the devices that it can use."""
    ort.register_execution_provider_library("shopfloor", library)
    devices = [d for d in ort.get_ep_devices() if d.ep_name == NAME]
    assert devices, f"{library} offers no device"
    return devices


def options(devices, given=None, threads=0):
    """Options of a session with the plugin, or of onnxruntime alone where no devices are given."""
    so = ort.SessionOptions()
    so.log_severity_level = 4
    so.intra_op_num_threads = threads
    if devices:
        so.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        so.add_provider_for_devices(devices, given or {})
    return so


def shares(session):
    """How many nodes the plugin has and how many others have, and the groups of the plugin's."""
    groups = [(s.ep_name, [n.op_type for n in s.get_nodes()]) for s in session.get_provider_graph_assignment_info()]
    ours = [nodes for name, nodes in groups if name == NAME]
    theirs = [nodes for name, nodes in groups if name != NAME]
    return sum(map(len, ours)), sum(map(len, theirs)), ours


def value(path):
    """The value in a file of the standard's tests."""
    data = path.read_bytes()
    for kind, read in (
        (onnx.TensorProto, numpy_helper.to_array),
        (onnx.SequenceProto, numpy_helper.to_list),
        (onnx.OptionalProto, numpy_helper.to_optional),
    ):
        try:
            message = kind()
            message.ParseFromString(data)
            return read(message)
        except Exception:
            continue
    raise ValueError(f"{path} holds no value")


def difference(got, want):
    """How a value differs from what is wanted; none where it does not."""
    if isinstance(want, (list, tuple)):
        if len(got) != len(want):
            return f"{len(got)} items, not {len(want)}"
        return next((d for d in map(difference, got, want) if d), None)
    if want is None or got is None:
        return None if want is got else f"{got}, not {want}"
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        return f"shape {got.shape}, not {want.shape}"
    if want.dtype.kind in "OUST":
        return None if [str(x) for x in got.ravel()] == [str(x) for x in want.ravel()] else "other texts"
    if want.dtype.kind in "iub":
        return None if np.array_equal(got, want) else "other numbers"
    a, b = got.astype(np.float64), want.astype(np.float64)
    loose = 1e-3 if want.dtype.itemsize >= 4 else 2e-2
    return None if np.allclose(a, b, rtol=loose, atol=loose / 100 * max(1.0, np.abs(b[np.isfinite(b)]).max(initial=0)), equal_nan=True) else (
        f"off by {np.nanmax(np.abs(a - b)):.3g}"
    )
