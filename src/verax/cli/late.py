"""Commands whose work is imported when it is carried out: their help is there at once.

A command's function has options and help and no body; `done_in` names the module that has the work.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any


def done_in(module: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Of a function with options and help: the command, which gives the options by their names to
    the function `perform` of a module."""

    def late(options: Callable[..., None]) -> Callable[..., None]:
        @wraps(options)
        def command(**given: Any) -> None:
            import_module(module).perform(**given)

        return command

    return late
