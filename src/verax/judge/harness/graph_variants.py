"""A network with one thing changed at its ends: what a careless harness would have run instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from verax.ir.graph import Builder, Graph
from verax.ir.operator import Operator
from verax.ops.sums.normalization import BatchNormalization


def rebuilt(
    graph: Graph,
    *,
    before: Mapping[str, Sequence[tuple[Operator, np.ndarray]]] | None = None,
    swapped: Mapping[str, Operator] | None = None,
    after: Mapping[str, Operator] | None = None,
) -> Graph:
    """`graph` with steps put in front of inputs, operators swapped, and one put behind values.

    before: input -> (operator, its second operand) one after the other. swapped: value -> the
    operator that makes it instead. after: value -> operator whose result bears its name then.
    """
    before, swapped, after = before or {}, swapped or {}, after or {}
    b = Builder(graph.name)
    names: dict[str | None, str | None] = {None: None}
    for value in graph.inputs:
        names[value] = b.input(value, graph.types[value])
    for value, array in graph.constants.items():
        names[value] = b.constant(array, value)
    for value, steps in before.items():
        for op, operand in steps:
            operands = [names[value], b.constant(operand, b.fresh(f"{value}.harness"))]
            names[value] = b.add(op, operands, [b.fresh(f"{value}.read")])
    for node in graph.nodes:
        op = swapped.get(node.outputs[0], node.op)
        inputs = [names[v] for v in node.inputs][: op.max_inputs]
        outputs = [b.fresh(f"{v}.before") if v in after else v for v in node.outputs]
        b.add_all(op, inputs, outputs, node.name)
        for value, output in zip(node.outputs, outputs):
            names[value] = value
            if value in after:
                b.add(after[value], [output], [value])
    return b.graph(graph.outputs)


def in_training_mode(graph: Graph) -> Graph | None:
    """`graph` with every BatchNormalization taking the batch's own statistics; None without one."""
    swapped: dict[str, Operator] = {
        n.outputs[0]: replace(n.op, training_mode=True)
        for n in graph.nodes
        if isinstance(n.op, BatchNormalization) and not n.op.training_mode
    }
    return rebuilt(graph, swapped=swapped) if swapped else None
