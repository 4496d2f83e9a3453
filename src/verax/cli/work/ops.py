"""What `verax ops` does: the operators that Verax knows."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from pathlib import Path
from typing import Any

from rich.text import Text

import verax.ops  # noqa: F401  (registers the operators)
from verax.base.errors import UsageError
from verax.cli.console import can_write, output, write_json
from verax.ir.operator import REGISTRY, Operator
from verax.report.tables import Column, FittingTable


def perform(
    *,
    name: str | None,
    json: Path | None,
) -> None:
    """Carry out the command with the options of `verax.cli.ops`."""
    can_write(json)
    if name is None:
        columns = (
            Column("operator", unbroken=True),
            *(Column("inputs", rank=2), Column("attributes", rank=1), Column("rounds")),
        )
        rows = []
        for operator_name in sorted(REGISTRY):
            facts = _facts(REGISTRY[operator_name])
            attributes = ", ".join(facts["attributes"])
            rows.append(
                (operator_name, facts["inputs"], attributes, "no" if facts["exact"] else "yes")
            )
        output.print(FittingTable("", columns, rows))
        output.print(f"{len(REGISTRY)} operators")
        write_json(json, "verax.ops/1", {"operators": {k: _facts(REGISTRY[k]) for k in REGISTRY}})
        return
    full_name = {k.lower(): k for k in REGISTRY}.get(name.lower())
    if full_name is None:
        near = difflib.get_close_matches(name, REGISTRY, 3)
        raise UsageError(
            f"there is no operator {name!r}",
            next_step=f"did you mean {', '.join(near)}?" if near else "`verax ops` lists them",
        )
    kind = REGISTRY[full_name]
    facts = _facts(kind)
    output.print(Text(full_name, style="bold"))
    output.print(Text(facts["meaning"]))
    output.print(f"inputs: {facts['inputs']}; rounds: {'no' if facts['exact'] else 'yes'}")
    for key, default in facts["attributes"].items():
        output.print(Text(f"  {key}{'' if default is None else f' = {default}'}"))
    write_json(json, "verax.ops/1", {"operators": {full_name: facts}})


def _facts(kind: type[Operator]) -> dict[str, Any]:
    low, high = kind.min_inputs, kind.max_inputs
    attributes = {
        f.name: None if f.default is dataclasses.MISSING else repr(f.default)
        for f in dataclasses.fields(kind)
    }
    return {
        "meaning": inspect.getdoc(kind) or "",
        "inputs": f"{low}"
        if low == high
        else f"{low} or more"
        if high is None
        else f"{low}-{high}",
        "attributes": attributes,
        "exact": kind.exact,
        "unsupported": kind.unsupported,
    }
