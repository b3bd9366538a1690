"""``python -m shopfloor run app.py ...``: runs a program with shopfloor in onnxruntime's place."""

import os
import runpy
import shutil
import sys

_USAGE = """usage: python -m shopfloor run FILE [ARGUMENTS]
       python -m shopfloor run -m MODULE [ARGUMENTS]
       python -m shopfloor run COMMAND [ARGUMENTS]

Runs a Python program, module or installed command in which `import onnxruntime` gives shopfloor.
"""


#: What processes that the program starts find under onnxruntime's name.
_CHILDREN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_children")


def _first(folder: str) -> None:
    """Modules are looked for in ``folder`` first. Those of multiprocessing take the whole path over."""
    sys.path[:0] = [folder, _CHILDREN]


def _run(arguments: list[str]) -> None:
    from . import install

    install()
    others = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([_CHILDREN, others] if others else [_CHILDREN])
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        _first(os.getcwd())
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    path = arguments[0]
    if not os.path.exists(path):
        beside = os.path.join(os.path.dirname(sys.executable), path)
        path = beside if os.path.exists(beside) else shutil.which(path) or path
    if not os.path.exists(path):
        sys.exit(f"there is no file and no command '{arguments[0]}'; give the path of a Python program")
    sys.argv = [path, *arguments[1:]]
    if sys.path[:1] in ([""], [os.getcwd()]):
        del sys.path[0]  # Of this module; a program finds what lies beside it.
    _first(os.path.dirname(os.path.abspath(path)))
    runpy.run_path(path, run_name="__main__")


def main() -> None:
    """The command."""
    arguments = sys.argv[1:]
    complete = len(arguments) > (2 if arguments[1:2] == ["-m"] else 1)
    if arguments[:1] != ["run"] or not complete:
        sys.stderr.write(_USAGE)
        sys.exit(0 if arguments[:1] in (["-h"], ["--help"]) else 2)
    _run(arguments[1:])


if __name__ == "__main__":
    main()
