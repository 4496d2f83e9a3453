"""`verax passes`: what the compiler may do to a graph, and at which level."""

from __future__ import annotations

import inspect

from rich.table import Table
from rich.text import Text

from verax.cli.console import Json, can_write, output, write_json
from verax.compiler.decide.steps import STEPS, Step
from verax.compiler.levels import CLASSES, PIPELINE
from verax.compiler.passes.base import Pass


def command(json: Json = None) -> None:
    """List the compiler's passes in the order in which they run."""
    can_write(json)
    steps: tuple[Pass | Step, ...] = (*PIPELINE, *STEPS)
    facts = [
        {
            "name": step.name,
            "class": str(step.kind),
            "levels": [n for n, kinds in CLASSES.items() if step.kind in kinds],
            "after": list(step.after) if isinstance(step, Pass) else [],
            "effect": inspect.cleandoc(step.help),
        }
        for step in steps
    ]
    table = Table("pass", "class", "levels", "what it does")
    for fact in facts:
        levels = ", ".join(f"O{n}" for n in fact["levels"])
        effect = str(fact["effect"]).partition("\n\n")[0].replace("\n", " ")
        table.add_row(str(fact["name"]), str(fact["class"]), levels, Text(effect))
    output.print(table)
    write_json(json, "verax.passes/1", {"passes": facts})
