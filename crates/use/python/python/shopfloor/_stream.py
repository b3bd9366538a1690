"""Requests that carry state from one to the next."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Optional

from ._native import UsageError

if TYPE_CHECKING:
    from ._session import Session


class Stream:
    """A sequence of requests of one session. ``state`` has what the next request takes, by input."""

    def __init__(self, session: "Session", states: Mapping[str, str], start: Mapping[str, Any]) -> None:
        left = [name for name in states if name not in start]
        if left:
            raise UsageError(f"there is no start for {', '.join(left)}; give what the first request takes")
        self._session = session
        self._states = dict(states)
        self._names = [port.name for port in session.outputs]
        self.state = {name: start[name] for name in states}

    def run(self, names: Optional[Sequence[str]], feeds: Mapping[str, Any]) -> list[Any]:
        """Runs a request on ``feeds`` and the state; gives the outputs that are named, or all. State that
        comes back is passed on as it lies, without a copy."""
        outputs = dict(zip(self._names, self._session.run(None, {**feeds, **self.state})))
        for name in names or ():
            if name not in outputs:
                raise UsageError(f"the model has no output '{name}'; it has {', '.join(self._names)}")
        self.state = {name: outputs[output] for name, output in self._states.items()}
        return [outputs[name] for name in names or self._names]
