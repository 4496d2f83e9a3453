"""Commands whose work is imported when it is carried out: their help is there at once.

A command's function has options and help and no body; `done_in` names the module that has the work.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any

import typer

from verax.cli.groups import gathered, with_flags


def done_in(module: str, **groups: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Of a function with options and help: the command, which gives the options by their names to
    the function `perform` of a module. groups: of `base.option_groups.options`, whose flags the
    command has as well, by the names under which `perform` takes them."""

    def late(options: Callable[..., None]) -> Callable[..., None]:
        @wraps(with_flags(options, groups))
        def command(**values: Any) -> None:
            try:
                import_module(module).perform(**gathered(groups, values))
                sys.stdout.flush()
            except BrokenPipeError as error:  # data that nobody took: typer would say 1, a mistake
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                raise typer.Exit(2) from error

        return command

    return late
