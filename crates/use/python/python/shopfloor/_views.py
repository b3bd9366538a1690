"""Plans, profiles and pages, as text and as notebooks show them."""

import os
from collections.abc import Callable
from typing import Any, Union

_Path = Union[str, "os.PathLike[str]"]


def _escaped(text: str, quote: bool = False) -> str:
    import html  # Here, since few programs look at plans, and all wait for the import of this file.

    return html.escape(text, quote)


def _read(text: str) -> dict[str, Any]:
    import json  # As above.

    return json.loads(text)


def _pre(text: str) -> str:
    return f'<pre style="line-height:1.25">{_escaped(text)}</pre>'


def _time(us: float) -> str:
    """Microseconds for people."""
    for unit, factor in (("s", 1e-6), ("ms", 1e-3), ("us", 1.0)):
        if us * factor >= 1:
            return f"{us * factor:.3g} {unit}"
    return f"{us * 1e3:.3g} ns"


def _table(columns: list[str], steps: list[dict[str, Any]], cells: Callable[[dict[str, Any]], list[str]]) -> str:
    """A table of steps; what decided a step is shown where the pointer rests on it."""
    head = "".join(f'<th style="text-align:left;padding-right:1.5em">{_escaped(c)}</th>' for c in columns)
    rows = []
    for step in steps:
        row = "".join(f'<td style="text-align:left;padding-right:1.5em">{_escaped(c)}</td>' for c in cells(step))
        rows.append(f'<tr title="{_escaped(step.get("reason") or "", quote=True)}">{row}</tr>')
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _nodes(step: dict[str, Any]) -> str:
    nodes = step.get("nodes") or [step["name"]]
    return nodes[0] if len(nodes) == 1 else f"{nodes[0]} +{len(nodes) - 1}"


class Plan:
    """A plan: every step with its predicted time and memory.

    ``text`` is the table, ``why`` the same with the reasons of every decision, ``data`` all of it.
    """

    def __init__(self, text: str, why: str, data: str) -> None:
        self.text = text
        self.why = why
        self.data: dict[str, Any] = _read(data)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<Plan of {len(self.data['steps'])} steps>"

    def _repr_html_(self) -> str:
        d = self.data
        head = f"plan of {d['model']} for {d['machine']}: predicted {_time(d['predicted_us'])}"
        table = _table(
            ["step", "nodes", "family", "tiles", "predicted", "bound"],
            d["steps"],
            lambda s: [
                str(s["number"]),
                _nodes(s),
                s["family"],
                s.get("schedule") or "",
                _time(s["predicted_us"]),
                s.get("bound") or "",
            ],
        )
        text = f"<details><summary>as text, with the memory</summary>{_pre(self.text)}</details>"
        return f"<p>{_escaped(head)}</p>{table}{text}"


class Report:
    """A page that needs nothing but a browser."""

    def __init__(self, page: str) -> None:
        self.html = page

    def save(self, path: _Path) -> None:
        """Writes the page to a file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.html)

    def __repr__(self) -> str:
        return f"<Report of {len(self.html)} characters>"

    def _repr_html_(self) -> str:
        page = _escaped(self.html, quote=True)
        return f'<iframe srcdoc="{page}" style="width:100%;height:800px;border:0"></iframe>'


class Profile:
    """Measured requests beside their plan.

    ``text`` is the table, ``data`` all of it, ``trace`` the last request as Chrome trace events.
    """

    def __init__(self, text: str, data: str, trace: str, page: str) -> None:
        self.text = text
        self.data: dict[str, Any] = _read(data)
        self.trace = trace
        self._page = page

    def report(self) -> Report:
        """The page of the profile."""
        return Report(self._page)

    def save_trace(self, path: _Path) -> None:
        """Writes the last request for Perfetto and chrome://tracing."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.trace)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<Profile of {len(self.data['steps'])} steps>"

    def _repr_html_(self) -> str:
        d = self.data
        head = f"profile of {d['model']} on {d['device']}: {d['active']} requests, predicted {_time(d['predicted_us'])}"
        table = _table(
            ["step", "nodes", "family", "measured", "predicted", "share", "bound"],
            d["steps"],
            lambda s: [
                str(s["number"]),
                _nodes(s),
                s["family"],
                _time(s["time_us"]),
                _time(s["predicted_us"]),
                f"{100 * s['share']:.1f} %",
                s.get("bound") or "",
            ],
        )
        text = f"<details><summary>as text</summary>{_pre(self.text)}</details>"
        return f"<p>{_escaped(head)}</p>{table}{text}"
