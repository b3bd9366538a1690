"""Sessions: a model ready to run."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional, Union

from . import _native
from ._stream import Stream
from ._views import Plan, Profile, Report


class Port(NamedTuple):
    """An input or output: its name, its type as ONNX spells it (``tensor(float)``), and its dimensions:
    numbers, names, ``None`` where not stated; ``None`` for what is no tensor, or one of any rank."""

    name: str
    type: str
    shape: Optional[list[Union[int, str, None]]]


class Metadata(NamedTuple):
    """What a model's file says about itself."""

    graph_name: str
    graph_description: str
    domain: str
    description: str
    version: int
    producer_name: str
    producer_version: str
    ir_version: int
    opsets: dict[str, int]
    custom: dict[str, str]


def _range(sizes: Union[int, Sequence[int]]) -> tuple[int, int]:
    """A range of a dimension: one number for both ends, or both."""
    if isinstance(sizes, int):
        return sizes, sizes
    low, high = sizes
    return int(low), int(high)


class Session(_native.Session):
    """A model ready to run; any number of threads may use it at once.

    ``source``: the path of an ONNX file, or its bytes, which are shared and not copied.
    ``device``: what it runs on, ``cpu`` when not said.
    ``threads``: how many threads work on one request, the caller's included; several requests run side by
    side as far as there are cores, which all sessions share. When not said, as many as the plan has use for.
    ``dims``: sizes of symbolic dimensions that one plan is to cover: a number, or both ends of a range.
    ``shapes``: shapes of inputs, in place of what the model says.
    ``memory_limit``: bytes that a plan may take.
    """

    def __new__(
        cls,
        source: Union[str, "os.PathLike[str]", bytes],
        *,
        device: str = "cpu",
        threads: Optional[int] = None,
        dims: Optional[Mapping[str, Union[int, Sequence[int]]]] = None,
        shapes: Optional[Mapping[str, Sequence[int]]] = None,
        memory_limit: Optional[int] = None,
        record: bool = False,
    ) -> "Session":
        if not isinstance(source, bytes):
            source = os.fspath(source)
        for name, given in (("threads", threads), ("memory_limit", memory_limit)):
            if given is not None and given < 1:
                raise _native.UsageError(f"{name} is {given}; give 1 or more, or leave it out")
        options = {
            "device": device,
            "threads": threads,
            "dims": {name: _range(sizes) for name, sizes in (dims or {}).items()},
            "shapes": {name: list(shape) for name, shape in (shapes or {}).items()},
            "memory": memory_limit,
            "recorded": record,
        }
        return super().__new__(cls, source, options)

    def __repr__(self) -> str:
        ports = ", ".join(port.name for port in self.inputs), ", ".join(port.name for port in self.outputs)
        return f"<shopfloor.{type(self).__name__} of '{self.metadata.graph_name}': {ports[0]} -> {ports[1]}>"

    @property
    def inputs(self) -> list[Port]:
        """Inputs that every request gives, in the model's order."""
        return [Port(*port) for port in self._inputs()]

    @property
    def overridable(self) -> list[Port]:
        """Initialisers that a request may give."""
        return [Port(*port) for port in self._overridable()]

    @property
    def outputs(self) -> list[Port]:
        """Outputs in the model's order."""
        return [Port(*port) for port in self._outputs()]

    @property
    def metadata(self) -> Metadata:
        """What the model's file says about itself."""
        return Metadata(**self._metadata())

    def stream(self, states: Mapping[str, str], start: Mapping[str, Any]) -> Stream:
        """Requests that carry state: what an output of one gives is what an input of the next takes.
        ``states`` names the output for each such input, ``start`` has what the first request takes."""
        return Stream(self, states, start)

    def plan(self, **sizes: int) -> Plan:
        """The plan for these sizes of the model's dimensions (1 where not said), without running it."""
        return Plan(*self._plan(sizes))

    def report(self, **sizes: int) -> Report:
        """The page of that plan: what bounds each step, its time line, its roofline."""
        return Report(self._page(sizes))

    def profile(
        self, feeds: Optional[Mapping[str, Any]] = None, *, warmup: int = 5, active: int = 20
    ) -> Profile:
        """Measures ``active`` requests after ``warmup`` others and joins them with the plan. Without
        ``feeds`` the inputs are random."""
        given = None if feeds is None else dict(feeds)
        return Profile(*self._profile(given, warmup, active))
