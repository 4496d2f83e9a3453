"""`verax passes`: what the compiler may do to a graph, and at which level."""

from __future__ import annotations

import difflib
import inspect
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from verax.base.errors import UsageError
from verax.cli.console import Json, can_write, output, write_json
from verax.cli.pass_options import Inject
from verax.compiler.decide.steps import STEPS, Step
from verax.compiler.example import Example, example_of
from verax.compiler.injected import with_injected
from verax.compiler.levels import CLASSES, PIPELINE
from verax.compiler.passes.base import Pass


def command(
    name: Annotated[
        str | None, typer.Argument(help="A pass or a decision; without, all are listed.")
    ] = None,
    inject: Inject = None,
    json: Json = None,
) -> None:
    """List the compiler's passes in the order in which they run, or show one with an example.

    Behind the passes come decisions, which are made on the way to kernels. All can be named to
    --passes and --disable.
    """
    can_write(json)
    pipeline = with_injected(PIPELINE, [str(file) for file in inject or ()])
    steps: dict[str, Pass | Step] = {p.name: p for p in pipeline}
    steps |= {s.name: s for s in STEPS}
    if name is not None:
        _show(_named(name, steps), json)
        return
    facts = [_facts(step) for step in steps.values()]
    table = Table("pass", "class", "levels", "what it does")
    for fact in facts:
        levels = _levels(fact)
        effect = str(fact["effect"]).partition("\n\n")[0].replace("\n", " ")
        table.add_row(str(fact["name"]), str(fact["class"]), levels, Text(effect))
    output.print(table)
    write_json(json, "verax.passes/1", {"passes": facts})


def _facts(step: Pass | Step) -> dict[str, Any]:
    return {
        "name": step.name,
        "class": str(step.kind),
        "levels": [n for n, kinds in CLASSES.items() if step.kind in kinds],
        "after": list(step.after) if isinstance(step, Pass) else [],
        "allowance": step.allowance if isinstance(step, Pass) else "",
        "effect": inspect.cleandoc(step.help),
    }


def _levels(facts: dict[str, Any]) -> str:
    """The levels that run it, and what for it must be allowed."""
    found = ", ".join(f"O{n}" for n in facts["levels"])
    return f"{found} with --allow {facts['allowance']}" if facts["allowance"] else found


def _named(name: str, steps: dict[str, Pass | Step]) -> Pass | Step:
    if name in steps:
        return steps[name]
    near = difflib.get_close_matches(name, steps, 3, 0.5)
    raise UsageError(
        f"there is no pass {name!r}",
        next_step=f"is {' or '.join(map(repr, near))} meant?"
        if near
        else f"choose from {', '.join(steps)}",
    )


def _show(step: Pass | Step, json: Any) -> None:
    facts, example = _facts(step), example_of(step)
    output.print(Text.assemble((step.name, "bold"), f": {facts['class']}, at {_levels(facts)}"))
    if facts["after"]:
        output.print(Text(f"after: {', '.join(facts['after'])}"))
    output.print(Text(f"\n{facts['effect']}"), soft_wrap=True)
    if example is not None:
        _print_example(example)
        facts |= {"example": {"before": example.before, "after": example.after,
                              "notes": list(example.notes)}}  # fmt: skip
    write_json(json, "verax.pass/1", facts)


def _print_example(example: Example) -> None:
    for title, text in (("before", example.before), ("after", example.after)):
        output.print(Text(f"\n{title}:", style="bold"))
        for line in text.splitlines():
            output.print(Text(f"  {line}"), soft_wrap=True)
    output.print()
    for note in example.notes:
        output.print(Text(f"rewrite {note}", style="dim"), soft_wrap=True)
