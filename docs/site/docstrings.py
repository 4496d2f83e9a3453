"""Docstrings as the reference shows them: what they say of each parameter becomes a list.

Docstrings here are plain sentences, "name: what it is. other: ...", and "Raises ..." at the end of
a paragraph. In source that reads well; on a page it would run together.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

NAMES = r"[a-z_][a-z0-9_]*(?:, [a-z_][a-z0-9_]*)*"


def listed(text: str, names: set[str]) -> str:
    """The text with every "name: ..." about one of `names` as an item, and "Raises ..." apart."""
    return "\n\n".join(_listed(" ".join(p.split()), names) for p in re.split(r"\n\s*\n", text))


def _listed(paragraph: str, names: set[str]) -> str:
    parts = re.split(rf"(?:^|(?<=[.;)] ))({NAMES}): ", paragraph)
    before, items = parts[0], []
    for said, what in zip(parts[1::2], parts[2::2]):
        if set(said.split(", ")) <= names:
            items.append(f"- **{said}**: {what.strip()}")
        elif items:
            items[-1] += f" {said}: {what.strip()}"
        else:
            before += f"{said}: {what}"
    whole = "\n".join([before.strip() + "\n" if before.strip() else "", *items])
    return re.sub(r" (?=Raises `)", "\n\n", whole)


class Listed(griffe.Extension):
    """Changes the docstrings of functions and classes as they are collected."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        self._change(func, {p.name for p in func.parameters})

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        init = cls.members.get("__init__")
        given = {p.name for p in init.parameters} if isinstance(init, griffe.Function) else set()
        self._change(cls, given | {n for n, m in cls.members.items() if m.is_attribute})

    def _change(self, found: griffe.Object, names: set[str]) -> None:
        text = found.docstring
        if text is not None and names and "```" not in text.value and ">>>" not in text.value:
            text.value = listed(text.value, names)
