"""shopfloor in onnxruntime's place."""

import subprocess
import sys

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
