"""The page of commands: every command of `verax` with its arguments and options, from its help."""

from __future__ import annotations

import re

import click
import typer
from typer.cli import get_docs_for_click

from verax.cli.app import app

LONG = 1000
"""Characters of a sentence that the list of commands may have: as many as there are."""


def commands() -> dict[str, click.Command]:
    """Every command, by name."""
    group = typer.main.get_command(app)
    context = click.Context(group)
    names = group.list_commands(context)
    return {name: group.get_command(context, name) for name in names}


def page() -> str:
    """The page in Markdown, each command under a heading of its own."""
    group = typer.main.get_command(app)
    text = get_docs_for_click(obj=group, ctx=click.Context(group), name="verax")
    for name, command in commands().items():  # the list cuts each sentence short
        listed = f"* [`{name}`](#verax-{name}): {command.get_short_help_str(LONG)}"
        text = re.sub(rf"^\* `{name}`: .*$", lambda _, t=listed: t, text, flags=re.MULTILINE)
    return text.replace("# `verax`", "# Commands", 1)
