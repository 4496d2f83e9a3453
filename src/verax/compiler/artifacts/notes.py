"""What is written beside a program: what people want to know, and its nodes without a kernel."""

from __future__ import annotations

import importlib.metadata
from typing import Any, Protocol

from verax.ir.graph import Graph
from verax.records.recipe import Recipe
from verax.runtime.program_binary import ProgramBinary, PythonStep


class Planned(Protocol):
    """What notes say of a plan (`records.plan.Plan`)."""

    @property
    def lines(self) -> tuple[str, ...]: ...

    @property
    def on_reference(self) -> tuple[str, ...]: ...

    @property
    def tuning(self) -> str: ...

    @property
    def refused(self) -> tuple[str, ...]: ...

    @property
    def choices(self) -> tuple[str, ...]: ...


class Described(Protocol):
    """What notes need to know of a program (`compiler.specialize.Specialized`)."""

    @property
    def graph(self) -> Graph: ...

    @property
    def lowered_graph(self) -> Graph: ...

    @property
    def binary(self) -> ProgramBinary: ...

    @property
    def plan(self) -> Planned: ...


def notes_of(program: Described, opt_level: int, recipe: Recipe | None) -> dict[str, Any]:
    """The notes of a program, for JSON."""
    plan = program.plan
    tuning = {"tuning": plan.tuning} if plan.tuning else {}
    refused = {"refused": list(plan.refused)} if plan.refused else {}
    return {
        "verax": importlib.metadata.version("verax"),
        "graph": str(program.graph),
        "plan": list(plan.lines),
        "choices": list(plan.choices),
        "on_reference": list(plan.on_reference),
        **tuning,
        **refused,
        "opt_level": opt_level,
        "nodes": _node_records(program),
        **({} if recipe is None else {"recipe": recipe.to_json()}),
    }


def _node_records(program: Described) -> dict[str, Any]:
    graph, records = program.lowered_graph, {}
    for step in program.binary.schedule:
        if isinstance(step, PythonStep):
            node = graph.nodes[step.node]
            records[str(step.node)] = {
                "op": str(node.op),
                "name": node.name,
                "inputs": list(node.inputs),
                "outputs": list(node.outputs),
                "input_types": [
                    None if t is None else str(t.dtype) for t in graph.input_types(node)
                ],
                "output_types": [str(t) for t in graph.output_types(node)],
            }
    return records
