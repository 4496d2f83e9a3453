"""Scales of queries and keys become attention's own."""

from __future__ import annotations

import dataclasses

from verax.compiler.passes.patterns import NumberPattern, PatternMatch
from verax.ir.graph import Graph, Node
from verax.ir.rewrite import Rewriter
from verax.ir.text import parse_graph
from verax.ops.pointwise.arithmetic import Mul
from verax.ops.sums.attention import Attention
from verax.records.trace import Trace

FACTOR = NumberPattern("factor")
RANGE = (2.0**-60, 2.0**60)
"""Of a product of scales: scores neither overflow nor vanish on the way that did not before."""


def fold_attention_scales(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Multiply scores once, where queries and keys are scaled.

    Given:  %a = Mul()(%q, 0.7); %b = Mul()(%k, 0.7); %y = Attention(scale=1.0)(%a, %b, %v)
    Result: %y = Attention(scale=0.49)(%q, %k, %v)

    What is scaled is read by nothing else. Keys of a cache are not gone through once more then.

    Numeric effect: one rounding of scores in the place of one of each query and key.
    """
    folded: dict[str, tuple[Attention, list[str | None]]] = {}
    spare: set[str | None] = set()
    for node in graph.nodes:
        if not isinstance(node.op, Attention) or (limit is not None and len(folded) >= limit):
            continue
        scale, inputs = node.op.scale, list(node.inputs)
        for i in (0, 1):
            scaled = _scaled(graph, node, i)
            if scaled is not None and RANGE[0] <= abs(scale * scaled[1]) <= RANGE[1]:
                inputs[i], scale = scaled[0], scale * scaled[1]
        if inputs != list(node.inputs):
            op: Attention = dataclasses.replace(node.op, scale=scale)  # type: ignore[call-arg]
            folded[node.outputs[0]] = op, inputs
            spare |= {v for v, inner in zip(node.inputs, inputs) if v != inner}
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        value = node.outputs[0] if node.outputs else ""
        if value in spare:
            continue
        if value in folded:
            op, inputs = folded[value]
            mapped = [rewriter.map(v) for v in inputs]
            output = rewriter.add(op, mapped, node.name, rewriter.names(node))
            rewriter.replace(node, output, "fold_attention_scales")
        else:
            rewriter.keep(node)
    return rewriter.finish()


def example() -> Graph:
    """What `verax passes` shows."""
    return parse_graph(
        """
        graph "fold_attention_scales"
        input %q: float32[2, 3, 5, 4]
        input %k: float32[2, 3, 7, 4]
        input %v: float32[2, 3, 7, 6]
        const %root: float32[] = [0.75]
        %a: float32[2, 3, 5, 4] = Mul()(%q, %root)
        %b: float32[2, 3, 7, 4] = Mul()(%k, %root)
        %y: float32[2, 3, 5, 6] = Attention()(%a, %b, %v)
        output %y
        """
    )


def _scaled(graph: Graph, attention: Node, index: int) -> tuple[str, float] | None:
    """(x, c) where the operand is x c, c one number, and only attention reads it."""
    value = attention.inputs[index] or ""
    node = graph.producers.get(value)
    readers = graph.consumers.get(value, ())
    if node is None or not isinstance(node.op, Mul) or value in graph.outputs or len(readers) > 1:
        return None
    if attention.inputs.count(value) > 1:
        return None
    for inner, factor in (node.inputs, node.inputs[::-1]):
        for match in FACTOR.match(graph, factor, PatternMatch()):
            if inner is not None and graph.types[inner] == graph.types[value]:
                return inner, float(match.bound["factor"])
    return None
