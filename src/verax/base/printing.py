"""How the objects of the Python interface print: `repr` in one line, `str` as a report.

Records hold every number that led to them, far too many to print; and an address tells nobody
anything. Neither records nor this room know of reports: `verax` says here what renders them, which
is loaded when a report is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import ClassVar

LONGEST = 200
"""Characters of a `repr`."""
LISTED = 3
"""Names that a `repr` lists."""
RENDERERS: dict[str, str] = {}
"""What makes a "text" or "html" of a record, as `module:function`; entered by the package `verax`,
which nobody imports this module without."""


def rendered(form: str, record: object) -> str:
    """A record as "text" or "html"."""
    module, _, function = RENDERERS[form].partition(":")
    text: str = getattr(import_module(module), function)(record)
    return text


class OneLine:
    """Its `repr` is one line: the class, and what `_brief` says of the object."""

    _class_name: ClassVar[str] = ""
    """What users know a class by, where that is another's name."""

    def _brief(self) -> str:
        """What this object is, in a few words."""
        raise NotImplementedError

    def __repr__(self) -> str:
        text = " ".join(f"{self._class_name or type(self).__name__}: {self._brief()}".split())
        return f"<{text if len(text) <= LONGEST else text[: LONGEST - 3] + '...'}>"


class Reported(OneLine):
    """A record whose `str` is the report that the command line prints of it. Notebooks show it as
    the section of its page."""

    def __str__(self) -> str:
        return rendered("text", self)

    def _repr_html_(self) -> str:
        return rendered("html", self)


def first_few(names: Iterable[str]) -> str:
    """The first names, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - LISTED} more" if len(listed) > LISTED else ""
    return ", ".join(listed[:LISTED]) + more


class Named(OneLine):
    """Its `repr` is the class and the name."""

    name: str

    def _brief(self) -> str:
        return self.name
