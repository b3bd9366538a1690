"""Exceptions of onnxruntime: each message begins with onnxruntime's first words."""

_NAMES = {
    1: "FAIL",
    2: "INVALID_ARGUMENT",
    3: "NO_SUCHFILE",
    4: "NO_MODEL",
    5: "ENGINE_ERROR",
    6: "RUNTIME_EXCEPTION",
    7: "INVALID_PROTOBUF",
    8: "MODEL_LOADED",
    9: "NOT_IMPLEMENTED",
    10: "INVALID_GRAPH",
    11: "EP_FAIL",
    12: "MODEL_LOAD_CANCELED",
    13: "MODEL_REQUIRES_COMPILATION",
    14: "NOT_FOUND",
    15: "DEVICE_RESET",
}


class _Status(Exception):
    """An exception with the number of its status. With a text alone that is the whole message."""

    def __init__(self, *arguments: object) -> None:
        if len(arguments) == 2 and isinstance(arguments[0], int):
            code, text = arguments
            arguments = (f"[ONNXRuntimeError] : {code} : {_NAMES[code]} : {text}",)
        super().__init__(*arguments)


class Fail(_Status):
    """Something failed."""


class InvalidArgument(_Status):
    """An argument is wrong."""


class NoSuchFile(_Status):
    """There is no such file."""


class NoModel(_Status):
    """No model is loaded."""


class EngineError(_Status):
    """The engine failed."""


class RuntimeException(_Status):
    """Something failed while a model ran."""


class InvalidProtobuf(_Status):
    """The bytes are no model."""


class ModelLoaded(_Status):
    """A model is loaded already."""


class NotImplemented(_Status):
    """Something is not supported."""


class InvalidGraph(_Status):
    """The model contradicts itself or the standard."""


class EPFail(_Status):
    """An execution provider failed."""


class ModelLoadCanceled(_Status):
    """Loading was cancelled."""


class ModelRequiresCompilation(_Status):
    """The model must be compiled first."""


class NotFound(_Status):
    """Something was not found."""


class DeviceReset(_Status):
    """The device was reset."""


#: The class of each status.
CLASSES = {
    1: Fail,
    2: InvalidArgument,
    3: NoSuchFile,
    4: NoModel,
    5: EngineError,
    6: RuntimeException,
    7: InvalidProtobuf,
    8: ModelLoaded,
    9: NotImplemented,
    10: InvalidGraph,
    11: EPFail,
    12: ModelLoadCanceled,
    13: ModelRequiresCompilation,
    14: NotFound,
    15: DeviceReset,
}


def unsupported(what: str, remedy: str) -> NotImplemented:
    """The exception for what shopfloor does not support."""
    return NotImplemented(9, f"{what} is not supported by shopfloor; {remedy}")
