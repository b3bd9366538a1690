"""Runs ONNX models on CPUs; predicts, measures and explains the time of every step.

``Session`` runs a model over numpy arrays. ``shopfloor.onnxruntime`` is a module with the interface of
onnxruntime; ``install()`` makes ``import onnxruntime`` give it.
"""

import os as _os

import numpy as _numpy  # noqa: F401  (the native part borrows numpy's arrays)

from . import _native
from ._install import install, uninstall
from ._machines import MachineInfo, machines
from ._native import (
    Cancel,
    CancelledError,
    DamagedError,
    Error,
    InputError,
    ModelError,
    RequestError,
    UnsupportedError,
    UsageError,
    __version__,
)
from ._session import Metadata, Port, Session
from ._stream import Stream
from ._views import Plan, Profile, Report

# A forked process has none of the threads that run requests: its sessions get new ones.
if hasattr(_os, "register_at_fork"):
    _os.register_at_fork(after_in_child=_native.forget_engines)

__all__ = [
    "Cancel",
    "CancelledError",
    "DamagedError",
    "Error",
    "InputError",
    "MachineInfo",
    "Metadata",
    "ModelError",
    "Plan",
    "Port",
    "Profile",
    "Report",
    "RequestError",
    "Session",
    "Stream",
    "UnsupportedError",
    "UsageError",
    "__version__",
    "install",
    "machines",
    "uninstall",
]
