"""cond, while_loop, scan and map, as every format's branches and loops (`common.control`).

Their sub-programs are closed: parameters and other tensors that they read are operands too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from verax.base.errors import ModelError
from verax.frontends.common.control import Branch, Scan, While
from verax.frontends.common.foreign import ForeignNode, Subgraph

DOMAIN = "higher_order"
CONTROL = {(DOMAIN, kind) for kind in ("cond", "while_loop", "scan", "map_impl")}

Names = Sequence[Sequence[str]]


def branch(
    kind: str, name: str, operands: Names, outputs: tuple[str, ...], bodies: Sequence[Subgraph]
) -> ForeignNode:
    """cond(condition, true graph, false graph, operands)."""
    if len(bodies) != 2 or len(operands) != 2 or len(operands[0]) != 1:
        raise ModelError("cond does not have a condition and two sub-programs", place=name)
    inputs = (*operands[0], *operands[1])
    return Branch(kind, inputs, outputs, {}, name, DOMAIN, then=bodies[0], otherwise=bodies[1])


def while_loop(
    kind: str, name: str, operands: Names, outputs: tuple[str, ...], bodies: Sequence[Subgraph]
) -> ForeignNode:
    """while_loop(condition graph, body graph, carried, further): what is further stays the same."""
    if len(bodies) != 2 or not operands:
        raise ModelError("while_loop does not have two sub-programs", place=name)
    test, body = bodies
    carried, further = operands[0], [v for values in operands[1:] for v in values]
    body = replace(body, outputs=(*body.outputs, *body.inputs[len(carried) :]))
    outputs = (*outputs, *("" for _ in further))
    return While(kind, (*carried, *further), outputs, {}, name, DOMAIN, test=test, body=body)


def scan(
    kind: str, name: str, operands: Names, outputs: tuple[str, ...], bodies: Sequence[Subgraph]
) -> ForeignNode:
    """scan(graph, carried, sliced, further) and map_impl(graph, sliced, further)."""
    first = [] if kind == "map_impl" else list(operands[0])
    sliced, *further_operands = operands[0 if kind == "map_impl" else 1 :]
    if len(bodies) != 1 or not sliced:
        raise ModelError(f"{kind} does not have a sub-program and what it slices", place=name)
    further = [v for values in further_operands for v in values]
    rows = len(outputs) - len(first)
    return Scan(
        kind, (*first, *sliced, *further), outputs, {}, name, DOMAIN, body=bodies[0],
        carried_count=len(first), axes=(0,) * len(sliced), backwards=(0,) * len(sliced),
        out_axes=(0,) * rows, out_backwards=(0,) * rows,
    )  # fmt: skip
