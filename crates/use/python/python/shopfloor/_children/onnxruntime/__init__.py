"""What ``import onnxruntime`` finds in a Python process that a program under ``shopfloor run`` starts: shopfloor takes
its place there too. A Python that has no shopfloor gets what it would have got."""

import importlib
import os
import sys


def _replace() -> None:
    del sys.modules[__name__]
    try:
        import shopfloor
    except ImportError:
        own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != own]
        importlib.import_module(__name__)
    else:
        shopfloor.install()


_replace()
