"""Sessions of onnxruntime over those of shopfloor."""

import os
import threading
import time
import warnings
from collections.abc import Sequence
from typing import Any, Callable, Optional

import shopfloor

from . import _explain
from ._binding import IOBinding
from ._enums import OrtAllocatorType, OrtMemType
from ._environment import get_all_providers, get_available_providers, log
from ._errors import Fail, Status, unsupported
from ._options import ModelMetadata, NodeArg, OrtMemoryInfo, RunOptions, SessionOptions
from ._values import OrtValue


def check_and_normalize_provider_args(
    providers: Optional[Sequence[Any]],
    provider_options: Optional[Sequence[dict]],
    available_provider_names: Sequence[str],
) -> tuple[list[str], list[dict]]:
    """Names and options of providers in one form; warns of those that are not there or named twice."""
    if providers is None:
        return [], []
    for name, given in (("providers", providers), ("provider_options", provider_options)):
        if not isinstance(given, (Sequence, type(None))):
            raise ValueError(f"'{name}' should be a sequence.")
    pairs = [p if isinstance(p, tuple) and len(p) == 2 else (p, {}) for p in providers]
    if provider_options is not None:
        if len(providers) != len(provider_options):
            raise ValueError("'providers' and 'provider_options' should be the same length if both are given.")
        if not all(isinstance(provider, str) for provider in providers):
            raise ValueError("Only string values for 'providers' are supported if 'provider_options' is given.")
        pairs = list(zip(providers, provider_options))
    if not all(isinstance(name, str) and isinstance(options, dict) for name, options in pairs):
        raise ValueError("'providers' values must be either strings or (string, dict) tuples.")
    found: dict[str, dict] = {}
    for name, options in pairs:
        if name not in available_provider_names:
            there = ", ".join(available_provider_names)
            text = f"Specified provider '{name}' is not in available provider names.Available providers: '{there}'"
            warnings.warn(text, stacklevel=4)
        if name in found:
            warnings.warn(f"Duplicate provider '{name}' encountered, ignoring.", stacklevel=4)
        found.setdefault(name, {str(key): str(value) for key, value in options.items()})
    return list(found), list(found.values())


class Session:
    """What all kinds of sessions have."""

    _sess: Any
    _sess_options: SessionOptions
    _profiling_start_time_ns: int

    def _describe(self) -> None:
        """Reads what the model says of itself, and where runs go."""
        native = self._sess
        dims = self._sess_options._dims
        self._inputs_meta = [NodeArg.of(port, dims) for port in native._inputs()]
        outputs = [NodeArg.of(port, dims) for port in native._outputs()]
        names = {dim for arg in self._inputs_meta for dim in arg.shape if isinstance(dim, str)}
        for arg, known in zip(outputs, native._known()):
            arg.infer(known, names)
        self._outputs_meta = outputs
        self._overridable_initializers = [NodeArg.of(port, dims) for port in native._overridable()]
        self._model_meta = ModelMetadata(native._metadata())
        self._native_run = native.run

    def get_session_options(self) -> SessionOptions:
        """The options of the session."""
        return self._sess_options

    def get_inputs(self) -> list[NodeArg]:
        """Inputs that every request gives."""
        return self._inputs_meta

    def get_outputs(self) -> list[NodeArg]:
        """Outputs."""
        return self._outputs_meta

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Initialisers that a request may give."""
        return self._overridable_initializers

    def get_modelmeta(self) -> ModelMetadata:
        """What the model says about itself."""
        return self._model_meta

    def _memory_infos(self, count: int) -> list[OrtMemoryInfo]:
        kinds = (OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, OrtMemType.DEFAULT)
        return [OrtMemoryInfo("Cpu", *kinds) for _ in range(count)]

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        """Where inputs lie."""
        return self._memory_infos(len(self._inputs_meta))

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        """Where outputs lie."""
        return self._memory_infos(len(self._outputs_meta))

    def get_input_epdevices(self) -> list[None]:
        """Devices that execution providers want inputs on: none says."""
        return [None] * len(self._inputs_meta)

    def get_provider_graph_assignment_info(self) -> list[Any]:
        """Not supported: one plan runs all of a model."""
        entry = "session.record_ep_graph_assignment_info"
        if self._sess_options._entries.get(entry) != "1":
            raise Fail(1, f"Session configuration entry '{entry}' must be set to \"1\" to ask for this")
        raise unsupported("InferenceSession.get_provider_graph_assignment_info", "see shopfloor.Session.plan()")

    def get_providers(self) -> list[str]:
        """Names of the execution providers of the session."""
        return self._providers

    def get_provider_options(self) -> dict[str, dict]:
        """Options by execution provider."""
        return self._provider_options

    def set_providers(self, providers: Any = None, provider_options: Any = None) -> None:
        """Chooses the execution providers, of which there is one."""
        unknown = self._set_providers(providers, provider_options)
        if unknown:
            raise RuntimeError(f"Unknown Provider Type: {unknown[0]}; use 'CPUExecutionProvider'")

    def _set_providers(self, providers: Any, provider_options: Any) -> list[str]:
        """The same; gives the names that onnxruntime does not know either."""
        iter(providers or ())  # What has no members is a TypeError, which no fallback follows.
        available = get_available_providers()
        names, _ = check_and_normalize_provider_args(providers, provider_options, available)
        self._providers = [name for name in names if name in available] or available
        # The CPU has no options, as onnxruntime's has none.
        self._provider_options: dict[str, dict] = {name: {} for name in self._providers}
        return [name for name in names if name not in get_all_providers()]

    def enable_fallback(self) -> None:
        """Accepted."""
        self._enable_fallback = True

    def disable_fallback(self) -> None:
        """Accepted."""
        self._enable_fallback = False

    def run(self, output_names: Any, input_feed: Any, run_options: Optional[RunOptions] = None) -> list[Any]:
        """Runs a request: the outputs that are named, or all, as arrays, lists and dicts."""
        try:
            if type(output_names) is str:
                raise TypeError("names of outputs are given as a list")
            if run_options is None:
                return self._native_run(output_names, input_feed)
            return self._native_run(output_names, input_feed, cancel=run_options._cancel)
        except shopfloor.CancelledError:
            raise Fail(1, "Exiting due to terminate flag being set to true.") from None
        except Exception as error:
            wrong = _explain.arguments(output_names, input_feed)
            if wrong is not None:
                raise wrong from None
            mended = _explain.mended(self, input_feed)
            if mended is None:
                raise _explain.run(self, output_names, input_feed, error) from None
        return self.run(output_names, mended, run_options)

    def run_async(
        self,
        output_names: Any,
        input_feed: Any,
        callback: Callable[[Any, Any, str], None],
        user_data: Any,
        run_options: Optional[RunOptions] = None,
    ) -> None:
        """Runs a request on a thread of its own, which then calls ``callback(outputs, user_data, error)``."""
        _explain.missing(self, input_feed)

        def request() -> None:
            try:
                outputs, error = self.run(output_names, input_feed, run_options), ""
            except Exception as e:
                outputs, error = [], str(e)
            callback(outputs, user_data, error)

        threading.Thread(target=request, name="shopfloor-request", daemon=True).start()

    def run_with_ort_values(self, output_names: Any, input_dict_ort_values: Any, run_options: Optional[RunOptions] = None) -> list[OrtValue]:
        """Runs a request on values of onnxruntime."""
        feed = {name: value.numpy() for name, value in input_dict_ort_values.items()}
        return [OrtValue(value) for value in self.run(output_names, feed, run_options)]

    def run_with_ortvaluevector(self, *arguments: Any) -> None:
        """Not supported."""
        raise unsupported("InferenceSession.run_with_ortvaluevector", "use run_with_ort_values")

    def create_ortvalue_from_shape_and_type(
        self, shape: Any, element_type: Any, device_type: str, device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """A value with room for elements of that type."""
        return OrtValue.ortvalue_from_shape_and_type(shape, element_type, device_type, device_id, vendor_id)

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Accepted: nothing is captured."""

    def io_binding(self) -> IOBinding:
        """Inputs and outputs that stay from request to request."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: Optional[RunOptions] = None) -> None:
        """Runs a request on what is bound."""
        if iobinding._session is not self:
            raise ValueError("IOBinding must be used with the session that created it.")
        try:
            iobinding._run(run_options)
        except Exception as error:
            text = str(error).split(" : ", 3)[-1] if isinstance(error, Status) else error
            raise RuntimeError(f"Error in execution: {text}") from None

    def get_profiling_start_time_ns(self) -> int:
        """When profiling began, in nanoseconds."""
        return self._profiling_start_time_ns

    def end_profiling(self) -> str:
        """Writes what was recorded as Chrome trace events and gives the name of the file."""
        if not self._sess_options.enable_profiling:
            return ""
        import json  # Here, since all wait for the import of this file.

        events: list[dict] = []
        for start, trace in self._sess._traces():
            for event in json.loads(trace)["traceEvents"]:
                if "ts" in event:
                    event["ts"] += start
                events.append({"ts": 0, "dur": 0, "args": {}, **event})
        stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
        name = f"{self._sess_options.profile_file_prefix}_{stamp}.json"
        with open(name, "w", encoding="utf-8") as file:
            json.dump(events, file)
        return name

    def get_tuning_results(self) -> list:
        """None: shopfloor's plans need no tuning."""
        return []

    def set_tuning_results(self, results: Any, *, error_on_invalid: bool = False) -> None:
        """Not supported."""
        raise unsupported("InferenceSession.set_tuning_results", "leave it out")

    def set_ep_dynamic_options(self, options: dict) -> None:
        """Accepted."""


class InferenceSession(Session):
    """A model ready to run, by its path or its bytes."""

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: Optional[SessionOptions] = None,
        providers: Optional[Sequence[Any]] = None,
        provider_options: Optional[Sequence[dict]] = None,
        **kwargs: Any,
    ) -> None:
        if isinstance(path_or_bytes, (str, os.PathLike)):
            self._model_path: Optional[str] = os.fspath(path_or_bytes)
            self._model_bytes: Optional[bytes] = None
        elif isinstance(path_or_bytes, bytes):
            self._model_path, self._model_bytes = None, path_or_bytes
        else:
            raise TypeError(f"Unable to load from type '{type(path_or_bytes)}'")
        if not isinstance(sess_options, (SessionOptions, type(None))):
            raise TypeError(f"sess_options is a '{type(sess_options).__name__}'; give onnxruntime.SessionOptions")
        self._sess_options = SessionOptions() if sess_options is None else sess_options
        self._sess_options_initial = sess_options
        self._enable_fallback = bool(kwargs.get("enable_fallback", True))
        self._read_config_from_model = os.environ.get("ORT_LOAD_CONFIG_FROM_MODEL") == "1"
        self._fallback_providers = ["CPUExecutionProvider"]
        try:
            unknown = self._set_providers(providers, provider_options)
        except ValueError as error:
            if not self._enable_fallback:
                raise
            warnings.warn(f"EP Error {error} Falling back to {self._fallback_providers}", stacklevel=2)
            unknown = self._set_providers(self._fallback_providers, None)
            self.disable_fallback()
        for name in unknown:
            warnings.warn(f"Unknown Provider Type: {name}", stacklevel=2)
        self._create_inference_session(self._providers, None)
        if self._read_config_from_model:
            self._configured()

    def _configured(self) -> None:
        """Takes the options that the model states, where the caller gave none."""
        import json  # Here, since all wait for the import of this file.

        stated = self._model_meta.custom_metadata_map.get("ort_config")
        if stated is None or self._sess_options_initial is not None:
            return
        for name, value in json.loads(stated).get("session_options", {}).items():
            kind = type(getattr(self._sess_options, name))
            setattr(self._sess_options, name, kind(value))
        self._create_inference_session(self._providers, None)

    def _create_inference_session(self, providers: Any, provider_options: Any, disabled_optimizers: Any = None) -> None:
        """Reads the model and plans it."""
        options = self._sess_options
        if options.optimized_model_filepath:
            raise unsupported(
                "SessionOptions.optimized_model_filepath", "save the plan with the command `shopfloor plan --out`"
            )
        source: Any = self._model_bytes if self._model_path is None else self._model_path
        _explain.source(source)
        try:
            self._sess = shopfloor.Session(
                source,
                threads=options.intra_op_num_threads or None,
                dims=options._dims,
                record=options.enable_profiling,
            )
        except shopfloor.Error as error:
            raise _explain.load(source, error) from None
        self._profiling_start_time_ns = time.time_ns() if options.enable_profiling else 0
        self._describe()
        log(1, options.logid, "InferenceSession", f"The session of {self._model_path or 'a model in memory'} is ready")

    def __getstate__(self) -> dict[str, Any]:
        made = ("_sess", "_native_run", "_inputs_meta", "_outputs_meta", "_overridable_initializers", "_model_meta")
        return {name: value for name, value in self.__dict__.items() if name not in made}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._create_inference_session(self._providers, None)
