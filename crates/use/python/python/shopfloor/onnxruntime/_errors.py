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


class Status(Exception):
    """An exception with the number of its status. With a text alone that is the whole message."""

    def __init__(self, *arguments: object) -> None:
        if len(arguments) == 2 and isinstance(arguments[0], int):
            code = arguments[0]
            arguments = (f"[ONNXRuntimeError] : {code} : {_NAMES[code]} : {arguments[1]}",)
        super().__init__(*arguments)


class Fail(Status):
    """Something failed."""


class InvalidArgument(Status):
    """An argument is wrong."""


class NoSuchFile(Status):
    """There is no such file."""


class NoModel(Status):
    """No model is loaded."""


class EngineError(Status):
    """The engine failed."""


class RuntimeException(Status):
    """Something failed while a model ran."""


class InvalidProtobuf(Status):
    """The bytes are no model."""


class ModelLoaded(Status):
    """A model is loaded already."""


class NotImplemented(Status):
    """Something is not supported."""


class InvalidGraph(Status):
    """The model contradicts itself or the standard."""


class EPFail(Status):
    """An execution provider failed."""


class ModelLoadCanceled(Status):
    """Loading was cancelled."""


class ModelRequiresCompilation(Status):
    """The model must be compiled first."""


class NotFound(Status):
    """Something was not found."""


class DeviceReset(Status):
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
