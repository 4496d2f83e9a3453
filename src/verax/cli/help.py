"""Commands whose help lists options in groups, and is there at once.

The help is plain text by the library under typer: to draw boxes it would import a renderer of
Markdown and a highlighter, which takes longer than everything else. Commands are imported when they
are asked for.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from verax.base.option_groups.options import PANELS

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
OTHERS = "Options"
"""The group of options that name none."""


RAY, ADDRESS = "--ray", re.compile(r"(?:ray://)?[^\s/:]+:\d+|\[[\da-fA-F:]+\]:\d+|auto|local")
"""The option that may stand without a value, and what it takes for one."""


def with_address(words: list[str]) -> list[str]:
    """Words of a command line, with "auto" behind a `--ray` that no address follows."""
    options = words[: words.index("--")] if "--" in words else words
    written: list[str] = []
    for index, word in enumerate(words):
        written.append(word)
        following = options[index + 1 : index + 2]
        if word == RAY and index < len(options):
            written += [] if following and ADDRESS.fullmatch(following[0]) else ["auto"]
    return written


class GroupedCommand(TyperCommand):
    """A command whose `--help` lists its options by their `rich_help_panel`, and one of which may
    stand without a value: `--ray`."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """As of typer, where no option may lack its value."""
        words = with_address(args)
        try:
            return super().parse_args(ctx, list(words))
        except Exception as error:  # of typer, whose class lies elsewhere in each version
            message = str(getattr(error, "message", ""))
            if len(words) > len(args) and "unexpected extra argument" in message:
                hint = f"behind {RAY} an address is HOST:PORT or ray://HOST:PORT"
                error.message = f"{message}; {hint}"  # type: ignore[attr-defined]
            raise

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, then options of no group, then the groups in their order."""
        arguments: list[tuple[str, str]] = []
        groups: dict[str, list[tuple[str, str]]] = {OTHERS: [], **{g: [] for g in PANELS}}
        for parameter in self.get_params(ctx):
            line = parameter.get_help_record(ctx)
            if line is None:
                continue
            if parameter.param_type_name == "argument":
                arguments.append(line)
            else:
                name = getattr(parameter, "rich_help_panel", None) or OTHERS
                groups.setdefault(name, []).append(line)
        for title, lines in {"Arguments": arguments, **groups}.items():
            if lines:
                with formatter.section(title):
                    formatter.write_dl(lines)


class LateGroup(TyperGroup):
    """A group of commands each of which is imported when it is run or asked for help."""

    late: Mapping[str, str] = {}
    """Names of commands, in order, and what each does in a line."""
    home = ""
    """The package whose module of that name has the command's function, `command`."""

    def get_help_option(self, ctx: Any) -> Any:
        """As of every command, False where it is not given: typer would import pydantic to make
        that a bool."""
        option = super().get_help_option(ctx)
        if option is not None and option.default is None:
            option.default = False
        return option

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As of typer; for an unknown name the nearest ones are suggested."""
        if args and args[0] not in self.late and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], self.late, 2)
            meant = f" Did you mean {' or '.join(near)}?" if near else ""
            ctx.fail(f"No such command {args[0]!r}.{meant}")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        """The names."""
        return list(self.late)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command; None where there is none of this name."""
        if cmd_name not in self.late:
            return None
        function: Callable[..., Any] = import_module(f"{self.home}.{cmd_name}").command
        alone = typer.Typer(
            add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
        )
        alone.command(cmd_name, cls=GroupedCommand, context_settings=SETTINGS)(function)
        return typer.main.get_command(alone)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a line for each command, importing none."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.late.items()))
