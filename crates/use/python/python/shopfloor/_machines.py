"""Machines that a name is known for."""

from typing import NamedTuple, Optional

from . import _native


class MachineInfo(NamedTuple):
    """A machine: what it is called, where its description is from, and the description as a table."""

    name: str
    aliases: list[str]
    source: str
    table: str

    def __str__(self) -> str:
        return self.table


def machines(name: Optional[str] = None) -> list[MachineInfo]:
    """All machines of the catalog and this one (``cpu``); with ``name`` that one alone, by its name, an
    alias, or the path of a TOML file."""
    return [MachineInfo(*row) for row in _native.machines(name)]
