"""Of a prompt only the last token's logits are read: what gives the others is not computed.

Operators that treat every token alone, from the logits backward, are given the last token of what
they read: the product with the vocabulary, the last norm, and what of the last layer follows its
attention. Each number is computed as before.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from verax.ir.deferred import DeferredGraph, deferred_from, release
from verax.ir.graph import Builder, Graph, Node
from verax.ir.types import TensorType
from verax.ops.movement.gather import Gather
from verax.ops.movement.padding import Pad
from verax.ops.movement.reshaping import Reshape
from verax.ops.movement.slicing import Slice
from verax.ops.pointwise.elementwise import Elementwise
from verax.ops.quantized.dynamic_quantization import DynamicQuantizeGroups
from verax.ops.sums.layer_normalization import LayerNormalization, RMSNormalization
from verax.ops.sums.linear import MatMul
from verax.ops.sums.reduction import Reduction

AXIS = 1
"""Of tokens: values are [batch, tokens, features], also of more axes behind these."""


def with_last_logits(graph: Graph, ids: str, logits: str) -> Graph:
    """`graph` with logits [batch, 1, vocabulary] of the last token; the graph itself where its
    logits [batch, tokens, vocabulary] are not one row for each of the `ids` [batch, tokens]."""
    if isinstance(graph, DeferredGraph):
        rebuilt = _rebuilt(graph.full_graph(), ids, logits)
        if rebuilt is graph.full_graph():
            return graph

        def make() -> Graph:
            again = _rebuilt(graph.full_graph(), ids, logits)
            release(graph)  # what is the same in both is held once
            return again

        release(graph)
        return deferred_from(rebuilt, make)
    return _rebuilt(graph, ids, logits)


def _rebuilt(graph: Graph, ids: str, logits: str) -> Graph:
    tokens = graph.types[ids].dims[AXIS] if graph.types[ids].rank > AXIS else 1
    if isinstance(tokens, int) or not _has_tokens(graph.types[logits], tokens):
        return graph
    selected = _of_each_token(graph, logits, tokens)
    if not selected:
        return graph
    results = {v for node in selected for v in node.outputs}
    builder = Builder(graph.name, reserved=graph.types)
    for value in graph.inputs:
        builder.input(value, graph.types[value])
    for value, array in graph.constants.items():
        builder.constant(array, value)
    index = builder.constant(np.array([-1]), builder.fresh("last"))
    last: dict[str, str] = {}

    def of_last(value: str | None) -> str | None:
        """The last token of what is read from before."""
        if value is None or value in results or not _has_tokens(graph.types[value], tokens):
            return value
        if value not in last:
            last[value] = builder.fresh(f"{value}/last")
            builder.add_all(Gather(axis=AXIS), [value, index], [last[value]], last[value])
        return last[value]

    by_token = set(map(id, selected))
    for node in graph.nodes:
        inputs = tuple(map(of_last, node.inputs)) if id(node) in by_token else node.inputs
        builder.add_all(node.op, inputs, node.outputs, node.name)
    result = builder.graph(graph.outputs, graph.updates, graph.initial)
    return dataclasses.replace(result, bounds=graph.bounds) if graph.bounds else result


def _has_tokens(type_: TensorType, tokens: object) -> bool:
    """True for [batch, tokens, ...] with tokens on no other axis."""
    return type_.rank > AXIS + 1 and [i for i, d in enumerate(type_.dims) if d == tokens] == [AXIS]


def _of_each_token(graph: Graph, logits: str, tokens: object) -> list[Node]:
    """Nodes, in no order, that treat each token alone and whose results nobody else reads."""
    selected: dict[int, Node] = {}
    unread: set[int] = set()
    outputs = {*graph.outputs} - {logits}
    for node in reversed(graph.nodes):
        consumers = [c for v in node.outputs for c in graph.consumers.get(v, ())]
        readers = [id(c) for c in consumers if id(c) not in unread]
        if not outputs.isdisjoint(node.outputs):
            continue
        if not readers and logits not in node.outputs:
            unread.add(id(node))
        elif all(r in selected for r in readers) and _is_by_token(graph, node, tokens):
            selected[id(node)] = node
    return list(selected.values())


def _is_by_token(graph: Graph, node: Node, tokens: object) -> bool:
    """True if each output's token is computed from the same token of the inputs that have them."""
    op, types = node.op, graph.types
    if not all(_has_tokens(types[v], tokens) for v in node.outputs):
        return False
    inputs = [types[v] for v in node.inputs if v is not None]
    with_tokens = [_has_tokens(t, tokens) for t in inputs]
    if any(tokens in t.dims for t, has in zip(inputs, with_tokens, strict=True) if not has):
        return False
    first, rank = inputs[0], types[node.outputs[0]].rank
    if isinstance(op, Elementwise):
        return all(
            t.rank == rank if has else t.rank < rank - AXIS or t.dims[AXIS - rank] == 1
            for t, has in zip(inputs, with_tokens, strict=True)
        )
    if not with_tokens[0] or any(with_tokens[1:]):
        return False
    if isinstance(op, MatMul):
        return inputs[1].rank == 2
    if isinstance(op, DynamicQuantizeGroups):
        return op.axis > AXIS
    if isinstance(op, RMSNormalization | LayerNormalization):
        axis = op.axis + first.rank if op.axis < 0 else op.axis
        return axis > AXIS and all(t.rank <= first.rank - axis for t in inputs[1:])
    if (
        isinstance(op, Reshape)
        and first.dims[: AXIS + 1] == types[node.outputs[0]].dims[: AXIS + 1]
    ):
        shape = graph.constants.get(node.inputs[1] or "")
        return shape is not None and not op.allowzero and shape[AXIS] in (0, -1)
    constants = [c for c in graph.constant_inputs(node)[1:] if c is not None]
    if len(constants) < len(node.inputs) - 1:
        return False
    if isinstance(op, Pad):
        return len(constants) == 1 and not constants[0][[AXIS, AXIS + first.rank]].any()
    if isinstance(op, Slice) and len(constants) > 2:
        return _are_behind(constants[2], first.rank)
    if isinstance(op, Reduction):
        return op.keepdims and len(constants) == 1 and _are_behind(constants[0], first.rank)
    return False


def _are_behind(axes: np.ndarray, rank: int) -> bool:
    """True if all axes follow that of tokens."""
    return axes.size > 0 and bool((np.where(axes < 0, axes + rank, axes) > AXIS).all())
