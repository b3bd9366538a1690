"""Plans, profiles and pages, as text and as notebooks show them."""

import html
import json
import os
from typing import Any, Union

_Path = Union[str, "os.PathLike[str]"]


def _pre(text: str) -> str:
    return f'<pre style="line-height:1.25">{html.escape(text)}</pre>'


class Plan:
    """A plan: every step with its predicted time and memory.

    ``text`` is the table, ``why`` the same with the reasons of every decision, ``data`` all of it.
    """

    def __init__(self, text: str, why: str, data: str) -> None:
        self.text = text
        self.why = why
        self.data: dict[str, Any] = json.loads(data)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<Plan of {len(self.data.get('steps', []))} steps>"

    def _repr_html_(self) -> str:
        return _pre(self.text)


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
        page = html.escape(self.html, quote=True)
        return f'<iframe srcdoc="{page}" style="width:100%;height:800px;border:0"></iframe>'


class Profile:
    """Measured requests beside their plan.

    ``text`` is the table, ``data`` all of it, ``trace`` the last request as Chrome trace events.
    """

    def __init__(self, text: str, data: str, trace: str, page: str) -> None:
        self.text = text
        self.data: dict[str, Any] = json.loads(data)
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
        return f"<Profile of {len(self.data.get('steps', []))} steps>"

    def _repr_html_(self) -> str:
        return _pre(self.text)
