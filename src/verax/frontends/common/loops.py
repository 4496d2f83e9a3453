"""A loop that a row writes itself, for formulas that have no fixed number of steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from verax.frontends.common.context import Conversion
from verax.ir.graph import Builder, Graph
from verax.ir.printer import print_graph
from verax.ir.types import DType, TensorType
from verax.ops.control.control import Loop

C = TypeVar("C", bound=Conversion)
Step = Callable[[C, str, list[str], list[str]], tuple[str, list[str]]]
"""(conversion, number of the run, carried values, values from outside) -> (whether it goes on: bool
of one element, carried values, of the same types)."""


def looped(
    c: C, carried: Sequence[str], outside: Sequence[str], step: Step[C], limit: str | None = None
) -> list[str]:
    """Append a loop; returns the carried values after its last run.

    limit: maximal number of runs, int64; with None the loop runs at least once, and until `step`
    returns a false condition."""
    inside = replace(c, builder=Builder("step"))
    built = inside.builder
    iteration = built.input(c.fresh("run"), TensorType(DType.int64, ()))
    formal = [built.input(c.fresh(f"{v}/inside"), c.type(v)) for v in (*carried, *outside)]
    going, new_values = step(inside, iteration, formal[: len(carried)], formal[len(carried) :])
    # No constants are a body's own.
    fixed = {c.constant(array): name for name, array in built.constants.items()}
    graph = Graph(
        (iteration, *formal, *fixed.values()),
        (going, *new_values),
        tuple(built.nodes),
        {},
        dict(built.types),
        built.name,
    )
    op = Loop(body=print_graph(graph), carried=len(carried))
    names = [c.fresh(f"{v}/after") for v in carried]
    loop_inputs = [limit, None, *carried, *outside, *fixed]
    return list(c.builder.add_all(op, loop_inputs, names, c.node.name))
