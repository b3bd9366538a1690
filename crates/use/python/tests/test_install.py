"""shopfloor in onnxruntime's place."""

import os
import pathlib
import subprocess
import sys

import shopfloor
from shopfloor import onnxruntime

PROGRAM = """
import importlib.metadata, importlib.util, sys
import numpy as np
import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import NoSuchFile
from onnxruntime import InferenceSession as Session
assert importlib.util.find_spec("onnxruntime") is not None
assert importlib.metadata.version("onnxruntime") == onnxruntime.__version__
assert importlib.metadata.version("numpy") == np.__version__
try:
    Session("/no/such.onnx")
except onnxruntime.capi.onnxruntime_pybind11_state.NoSuchFile as e:
    assert isinstance(e, NoSuchFile)
print("ran", onnxruntime.InferenceSession.__module__, *sys.argv[1:])
"""


def run(*arguments, **named):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, **named)


def test_a_program_runs_unchanged(tmp_path):
    (tmp_path / "beside.py").write_text("answer = 42\n")
    (tmp_path / "app.py").write_text("import beside\n" + PROGRAM + "assert __name__ == '__main__'\n")
    done = run("-m", "shopfloor", "run", str(tmp_path / "app.py"), "--flag", "x")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "ran shopfloor.onnxruntime._session --flag x\n"
    done = run("-m", "shopfloor", "run", "-m", "app", "y", cwd=tmp_path)
    assert done.stdout.endswith(" y\n"), done.stderr


def test_it_is_installed_and_taken_back():
    done = run(
        "-c",
        "import shopfloor, sys, importlib.metadata as m\n"
        "module = shopfloor.install()\n"
        "import onnxruntime\n"
        "assert onnxruntime is module and shopfloor.install() is module\n"
        "shopfloor.uninstall()\n"
        "assert 'onnxruntime' not in sys.modules\n",
    )
    assert done.returncode == 0, done.stderr


def test_the_command_says_how_it_is_used():
    assert run("-m", "shopfloor").returncode == 2
    done = run("-m", "shopfloor", "run", "/no/such/app.py")
    assert "no file and no command" in done.stderr


def test_a_forked_process_runs_models(digits):
    path, _, _ = digits
    done = run(
        "-c",
        "import os, shopfloor, numpy as np\n"
        f"feed = dict(np.load({str(path.parent / 'inputs.npz')!r}))\n"
        f"shopfloor.Session({str(path)!r}).run(None, feed)\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        f"    shopfloor.Session({str(path)!r}).run(None, feed)\n"
        "    os._exit(7)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7\n",
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


CHILDREN = """
import importlib.metadata, importlib.util, multiprocessing, subprocess, sys

PROBE = "import importlib.metadata as m, onnxruntime as o; from onnxruntime import capi, backend as b; " \
    "print(o.InferenceSession.__module__, m.version('onnxruntime'), o.capi is capi)"

def probe(_):
    assert importlib.util.find_spec("onnxruntime") is not None
    assert importlib.metadata.version("onnxruntime") == "1.32.0"
    import onnxruntime
    return onnxruntime.InferenceSession.__module__

if __name__ == "__main__":
    for how in ("spawn", "forkserver", "fork"):
        with multiprocessing.get_context(how).Pool(1) as pool:
            assert pool.map(probe, [0]) == ["shopfloor.onnxruntime._session"], how
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True)
    assert done.stdout == "shopfloor.onnxruntime._session 1.32.0 True\\n", done.stderr
    print("all did")
"""


def test_processes_that_the_program_starts_find_it_too(tmp_path):
    (tmp_path / "app.py").write_text(CHILDREN)
    done = run("-m", "shopfloor", "run", str(tmp_path / "app.py"), timeout=120)
    assert done.stdout == "all did\n", done.stderr


def test_what_they_find_says_the_same_version():
    folder = pathlib.Path(shopfloor.__file__).parent / "_children"
    (told,) = folder.glob("onnxruntime-*.dist-info/METADATA")
    assert f"Version: {onnxruntime.__version__}" in told.read_text().splitlines()


def test_a_python_without_shopfloor_is_left_alone(tmp_path):
    (tmp_path / "onnxruntime.py").write_text("its = 'own'\n")
    folder = pathlib.Path(shopfloor.__file__).parent / "_children"
    path = os.pathsep.join([str(folder), str(tmp_path)])
    program = "import onnxruntime; print(onnxruntime.its)"
    done = run("-S", "-c", program, env={**os.environ, "PYTHONPATH": path})
    assert done.stdout == "own\n", done.stderr

BACKEND = """
import numpy as np, onnx, onnxruntime.backend as backend
from onnx import TensorProto, helper
from onnxruntime import InferenceSession
from onnxruntime.backend.backend_rep import OnnxRuntimeBackendRep
ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xy"]
graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", ports[:1], ports[1:])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
x = np.array([1, -2], np.float32)
for given in (model, model.SerializeToString(), InferenceSession(model.SerializeToString())):
    rep = backend.prepare(given, "CPU", intra_op_num_threads=1, unknown=3)
    assert isinstance(rep, OnnxRuntimeBackendRep) and backend.prepare(rep) is rep
    assert (rep.run(x)[0] == -x).all() and (rep.run([x], logid="a")[0] == -x).all()
assert (backend.run(model, [x])[0] == -x).all()
assert backend.supports_device("CPU") and not backend.supports_device("CUDA") and backend.is_compatible(model)
prepare = lambda: backend.prepare(model.SerializeToString(), optimized_model_filepath="/x")
for wrong in (prepare, lambda: rep.run(x, terminate=True)):
    try:
        wrong()
    except RuntimeError as e:
        assert "not permitted via the backend API" in str(e)
    else:
        raise AssertionError("it is not refused")
"""


def test_the_interface_for_backends_is_there():
    done = run("-c", f"import shopfloor; shopfloor.install()\n{BACKEND}")
    assert done.returncode == 0, done.stderr
