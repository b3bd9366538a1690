"""Options of sessions and runs, and what models say of themselves."""

from typing import Any, Optional, Union

import shopfloor

from ._enums import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    OrtAllocatorType,
    OrtDeviceMemoryType,
    OrtMemoryInfoDeviceType,
    OrtMemType,
)
from ._errors import unsupported


class _Options:
    """Options by name, each with its type: onnxruntime refuses other names and types too. A class states its
    options as attributes."""

    def __init__(self) -> None:
        self._entries: dict[str, str] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        kind = type(self)
        if not name.startswith("_") and kind.__module__ == __name__:
            if callable(getattr(kind, name, len)):
                raise AttributeError(f"'{kind.__name__}' object has no attribute '{name}'")
            want = type(getattr(self, name))
            converts = hasattr(value, {int: "__index__", bool: "__bool__"}.get(want, "no such method"))
            if not isinstance(value, want) and not converts:
                text = f"is a '{want.__name__}' and was given a '{type(value).__name__}'"
                raise TypeError(f"{kind.__name__}.{name} {text}")
        object.__setattr__(self, name, value)


class SessionOptions(_Options):
    """How a session is made. Of these options the number of threads, the sizes of free dimensions and
    profiling have an effect; the others are accepted, since shopfloor's plan decides what they are about."""

    enable_cpu_mem_arena: bool = True
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    enable_profiling: bool = False
    execution_mode: ExecutionMode = ExecutionMode.ORT_SEQUENTIAL
    execution_order: ExecutionOrder = ExecutionOrder.DEFAULT
    graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL
    inter_op_num_threads: int = 0
    intra_op_num_threads: int = 0
    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    optimized_model_filepath: str = ""
    profile_file_prefix: str = "onnxruntime_profile_"
    use_deterministic_compute: bool = False
    use_per_session_threads: bool = True

    def __init__(self) -> None:
        super().__init__()
        self._dims: dict[str, int] = {}
        self._providers: list[str] = []

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keeps an entry; none has an effect."""
        self._entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """An entry that was added."""
        if key not in self._entries:
            raise RuntimeError(f"SessionOptions does not have configuration with key: {key}")
        return self._entries[key]

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Gives a symbolic dimension a size for good."""
        self._dims[name] = int(size)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Not supported."""
        raise unsupported(
            "SessionOptions.add_free_dimension_override_by_denotation", "name the dimension"
        )

    def add_provider_for_devices(self, devices: list, options: dict) -> None:
        """Not supported."""
        raise unsupported("SessionOptions.add_provider_for_devices", "leave it out")

    def set_provider_selection_policy(self, policy: Any) -> None:
        """Not supported."""
        raise unsupported("SessionOptions.set_provider_selection_policy", "leave it out")

    def set_provider_selection_policy_delegate(self, delegate: Any) -> None:
        """Not supported."""
        raise unsupported("SessionOptions.set_provider_selection_policy_delegate", "leave it out")

    def set_ep_context_data_read_func(self, function: Any) -> None:
        """Not supported."""
        raise unsupported("SessionOptions.set_ep_context_data_read_func", "leave it out")

    def clear_ep_context_data_read_func(self) -> None:
        """Accepted: there is no such function."""

    def set_load_cancellation_flag(self, value: bool) -> None:
        """Accepted: a model that is being read is read to its end."""

    def add_provider(self, name: str, options: dict) -> None:
        """Names an execution provider for the session."""
        self._providers.append(name)

    def has_providers(self) -> bool:
        """Whether execution providers were named."""
        return bool(self._providers)

    def add_initializer(self, name: str, value: Any) -> None:
        """Not supported."""
        raise unsupported("SessionOptions.add_initializer", "store the tensor in the model")

    def add_external_initializers(self, names: list, values: list) -> None:
        """Not supported."""
        raise unsupported("SessionOptions.add_external_initializers", "store the tensors beside the model")

    def add_external_initializers_from_files_in_memory(self, *arguments: Any) -> None:
        """Not supported."""
        raise unsupported(
            "SessionOptions.add_external_initializers_from_files_in_memory",
            "store the tensors beside the model",
        )

    def register_custom_ops_library(self, path: str) -> None:
        """Not supported."""
        raise unsupported(
            f"SessionOptions.register_custom_ops_library('{path}')",
            "write the operator as a kernel of shopfloor",
        )


class RunOptions(_Options):
    """How one request runs. ``terminate`` gives it up; the others are accepted."""

    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    only_execute_path_to_fetches: bool = False

    def __init__(self) -> None:
        super().__init__()
        self._cancel = shopfloor.Cancel()

    @property
    def terminate(self) -> bool:
        """Whether requests with these options are given up, also those that run."""
        return self._cancel.cancelled

    @terminate.setter
    def terminate(self, value: bool) -> None:
        if value:
            self._cancel.cancel()
        else:
            self._cancel = shopfloor.Cancel()

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Keeps an entry; none has an effect."""
        self._entries[key] = value

    def get_run_config_entry(self, key: str) -> str:
        """An entry that was added."""
        if key not in self._entries:
            raise RuntimeError(f"RunOptions does not have configuration with key: {key}")
        return self._entries[key]

    def add_active_adapter(self, adapter: Any) -> None:
        """Not supported."""
        raise unsupported("RunOptions.add_active_adapter", "merge the adapter into the model")


class NodeArg:
    """An input or output of a model: name, type, and dimensions."""

    def __init__(self, name: str, type: str, shape: Optional[list[Union[int, str, None]]]) -> None:
        self.name = name
        self.type = type
        self.shape = [] if shape is None else shape
        #: Whether the model states the rank.
        self.stated = shape is not None

    @staticmethod
    def of(port: tuple, sizes: dict[str, int]) -> "NodeArg":
        """That of a port; dimensions with a name in ``sizes`` have that size."""
        name, type, shape = port
        known = [sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in shape or []]
        return NodeArg(name, type, None if shape is None else known)

    def infer(self, known: list[Union[int, str, None]], names: set[str]) -> None:
        """Puts sizes that follow from the model in the place of names, and ``names`` of the inputs in the place of
        nothing, as onnxruntime does."""
        if not self.type.startswith("tensor(") or len(known) != len(self.shape):
            return
        for at, (dim, size) in enumerate(zip(self.shape, known)):
            if isinstance(size, int) and not isinstance(dim, int) or dim is None and size in names:
                self.shape[at] = size

    def __repr__(self) -> str:
        return f"NodeArg(name='{self.name}', type='{self.type}', shape={self.shape})"


class ModelMetadata:
    """What a model says about itself."""

    #: What onnxruntime gives for a model that states no version.
    _NO_VERSION = 2**63 - 1

    def __init__(self, metadata: dict[str, Any]) -> None:
        self.custom_metadata_map: dict[str, str] = metadata["custom"]
        self.description: str = metadata["description"]
        self.domain: str = metadata["domain"]
        self.graph_description: str = metadata["graph_description"]
        self.graph_name: str = metadata["graph_name"]
        self.producer_name: str = metadata["producer_name"]
        self.version: int = metadata["version"] or self._NO_VERSION


class OrtMemoryInfo:
    """Where memory is; of the host alone here."""

    def __init__(self, name: str, allocator: OrtAllocatorType, id: int, kind: OrtMemType) -> None:
        self.name = name
        self.device_id = id
        self.allocator_type = allocator
        self.mem_type = kind
        self.device_mem_type = OrtDeviceMemoryType.DEFAULT
        self.device_vendor_id = 0

    @staticmethod
    def create_v2(
        name: str,
        device: OrtMemoryInfoDeviceType,
        vendor_id: int,
        device_id: int,
        memory: OrtDeviceMemoryType,
        alignment: int,
        allocator: OrtAllocatorType,
    ) -> "OrtMemoryInfo":
        """The same with the vendor and the kind of the device's memory."""
        info = OrtMemoryInfo(name, allocator, device_id, OrtMemType.DEFAULT)
        info.device_mem_type, info.device_vendor_id = memory, vendor_id
        return info


class OrtArenaCfg:
    """Accepted: shopfloor's plans hold the memory of a request."""

    max_mem: int = 0
    arena_extend_strategy: int = -1
    initial_chunk_size_bytes: int = -1
    max_dead_bytes_per_chunk: int = -1
    initial_growth_chunk_size_bytes: int = -1
    max_power_of_two_extend_bytes: int = -1

    def __init__(self, *settings: Any) -> None:
        names = list(OrtArenaCfg.__annotations__)
        given = settings[0] if len(settings) == 1 and isinstance(settings[0], dict) else dict(zip(names, settings))
        for name, value in given.items():
            if name not in names:
                raise RuntimeError(f"Invalid OrtArenaCfg option: {name}; there are {', '.join(names)}")
            setattr(self, name, int(value))
