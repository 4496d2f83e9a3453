"""What `verax passes` does: what the compiler may do to a graph, and at which level."""

from __future__ import annotations

import difflib
import inspect
from collections import Counter
from pathlib import Path
from typing import Any

from rich.text import Text

from verax.base.errors import UsageError
from verax.base.option_groups.deprecation import present_pass
from verax.base.option_groups.settings import Settings
from verax.cli.console import can_write, output, parse_shapes, write_json
from verax.compiler.artifacts.saved_program import SavedExecutable
from verax.compiler.describe.pass_example import Example, example_of
from verax.compiler.passes.base import Pass
from verax.compiler.pipeline.levels import CLASSES, PIPELINE, run_passes
from verax.compiler.pipeline.user_passes import with_injected
from verax.compiler.plan.steps import STEPS, DecisionKind
from verax.loading import load
from verax.records.trace import Trace
from verax.report.tables import Column, FittingTable


def perform(
    *,
    name: str | None,
    model: Path | None,
    shape: list[str] | None,
    inject: list[Path] | None,
    json: Path | None,
) -> None:
    """Carry out the command with the options of `verax.cli.passes`."""
    can_write(json)
    files = tuple(str(file) for file in inject or ())
    pipeline = with_injected(PIPELINE, files)
    steps: dict[str, Pass | DecisionKind] = {p.name: p for p in pipeline}
    steps |= {s.name: s for s in STEPS}
    if shape and model is None:
        raise UsageError("sizes are for a model", next_step="name it: --model MODEL")
    done = None if model is None else _run_on(model, parse_shapes(shape), files)
    if name is not None:
        _show(_named(present_pass(name), steps), done, json)
        return
    facts = [_facts(step) | _counts(step.name, done) for step in steps.values()]
    if done is not None:
        _print_counts(facts)
        write_json(json, "verax.passes/1", {"model": str(model), "passes": facts})
        return
    columns = (
        Column("pass", unbroken=True),
        *(Column("class"), Column("levels", rank=1), Column("what it does", rank=2)),
    )
    rows = []
    for fact in facts:
        effect = str(fact["effect"]).partition("\n\n")[0].replace("\n", " ")
        rows.append((str(fact["name"]), str(fact["class"]), _levels(fact), effect))
    output.print(FittingTable("", columns, rows))
    write_json(json, "verax.passes/1", {"passes": facts})


def _facts(step: Pass | DecisionKind) -> dict[str, Any]:
    return {
        "name": step.name,
        "class": str(step.kind),
        "levels": [n for n, kinds in CLASSES.items() if step.kind in kinds],
        "after": list(step.after) if isinstance(step, Pass) else [],
        "allowance": step.allowance if isinstance(step, Pass) else "",
        "effect": inspect.cleandoc(step.help),
    }


def _run_on(model: Path, shapes: dict[str, Any], inject: tuple[str, ...]) -> Trace:
    """The trace of all passes on a model at O3."""
    loaded = load(model, shapes=shapes or None)
    if isinstance(loaded, SavedExecutable):
        raise UsageError("this is a compiled program already", place=str(model))
    return run_passes(loaded.graph, Settings(opt_level=3, inject=inject))[1]


def _counts(name: str, done: Trace | None) -> dict[str, Any]:
    """How often a pass rewrote something in a model, and what it refused to rewrite."""
    if done is None:
        return {}
    rewrites = Counter(one.pass_name for one in done.records)
    refused = [note for note in done.refused if note.partition(": ")[0] == name]
    return {"rewrites": rewrites[name], "refused": refused}


def _print_counts(facts: list[dict[str, Any]]) -> None:
    columns = (
        Column("pass", unbroken=True),
        *(Column("class"), Column("rewrites", rank=1), Column("refused", rank=1)),
    )
    rows = [
        (str(f["name"]), str(f["class"]), str(f["rewrites"]), str(len(f["refused"])))
        for f in facts
        if f["rewrites"] or f["refused"]
    ]
    output.print(FittingTable("", columns, rows))
    _print_refused([note for fact in facts for note in fact["refused"]])


def _print_refused(notes: list[str]) -> None:
    for note in notes:
        output.print(Text(f"refused, {note}"), soft_wrap=True)


def _levels(facts: dict[str, Any]) -> str:
    """The levels that run it, and what for it must be allowed."""
    levels = ", ".join(f"O{n}" for n in facts["levels"])
    return f"{levels} with --allow {facts['allowance']}" if facts["allowance"] else levels


def _named(name: str, steps: dict[str, Pass | DecisionKind]) -> Pass | DecisionKind:
    if name in steps:
        return steps[name]
    near = difflib.get_close_matches(name, steps, 3, 0.5)
    raise UsageError(
        f"there is no pass {name!r}",
        next_step=f"is {' or '.join(map(repr, near))} meant?"
        if near
        else f"choose from {', '.join(steps)}",
    )


def _show(step: Pass | DecisionKind, done: Trace | None, json: Any) -> None:
    facts, example = _facts(step) | _counts(step.name, done), example_of(step)
    output.print(Text.assemble((step.name, "bold"), f": {facts['class']}, at {_levels(facts)}"))
    if facts["after"]:
        output.print(Text(f"after: {', '.join(facts['after'])}"))
    output.print(Text(f"\n{facts['effect']}"), soft_wrap=True)
    if example is not None:
        _print_example(example)
        facts |= {"example": {"before": example.before, "after": example.after,
                              "notes": list(example.notes)}}  # fmt: skip
    if done is not None:
        counts = f"{facts['rewrites']} rewrites, {len(facts['refused'])} refused"
        output.print(Text(f"\nin the model: {counts}", style="bold"))
        _print_refused(facts["refused"])
    write_json(json, "verax.pass/1", facts)


def _print_example(example: Example) -> None:
    for title, text in (("before", example.before), ("after", example.after)):
        output.print(Text(f"\n{title}:", style="bold"))
        for line in text.splitlines():
            output.print(Text(f"  {line}"), soft_wrap=True)
    output.print()
    for note in example.notes:
        output.print(Text(f"rewrite {note}", style="dim"), soft_wrap=True)
