"""Binding caches: a network that takes a cache and gives the new one (`past` and `present`) as one
that keeps it and writes the new rows in place.

A cache of keys and values is bound where both are of one type, static once `present` may be no
longer than the room: then its new value is a scatter into the old one, which a program makes in one
buffer (`place.movement.indexing`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np

from verax.base.errors import UsageError
from verax.ir.graph import Builder, Graph, Node, reinfer
from verax.ir.types import TensorType


def bind_caches(
    graph: Graph,
    caches: Mapping[str, str],
    initial: Mapping[str, np.ndarray] | None = None,
) -> Graph:
    """The network with `caches` (input -> the output that is its next value) as state.

    initial: what caches hold at first; zeros for those without. A cache that grows only if there
    are more tokens than its room (`GroupQueryAttention`) keeps its room, and what stood behind its
    new rows stays there. Raises `UsageError` where names or types do not fit.
    """
    initial = initial or {}
    _require_names(graph, caches, initial)
    graph = _written_into(_of_fixed_room(graph, _rooms(graph, caches)), caches)
    values = {}
    for name, output in caches.items():
        type_, new = graph.types[name], graph.types[output]
        if not type_.is_static or type_ != new:
            raise UsageError(
                f"{name!r} is {type_} and {output!r} is {new}: a cache that is bound has one type "
                "with known sizes",
                next_step="give the sizes when loading, the room of the cache among them "
                "(shapes={'past_sequence_length': 4096, ...})",
            )
        values[name] = _initial(name, type_, initial.get(name))
    return dataclasses.replace(
        graph, updates={**graph.updates, **caches}, initial={**graph.initial, **values}
    )


def _require_names(
    graph: Graph, caches: Mapping[str, str], initial: Mapping[str, np.ndarray]
) -> None:
    for kind, values, names_of_kind in (
        ("input", caches, graph.arguments),
        ("output", caches.values(), graph.results),
        ("cache", initial, tuple(caches)),
    ):
        for name in values:
            if name not in names_of_kind:
                names = ", ".join(names_of_kind) or "none"
                raise UsageError(f"the network has no {kind} {name!r}", next_step=f"it has {names}")
    if len(set(caches.values())) < len(caches):
        raise UsageError("two caches have one output", next_step="give each its own")


def _initial(name: str, type_: TensorType, value: np.ndarray | None) -> np.ndarray:
    if value is None:
        return np.zeros(type_.shape, type_.dtype.numpy)
    array = np.asarray(value)
    if array.dtype != type_.dtype.numpy or array.shape != type_.shape:
        raise UsageError(
            f"its first value is {array.dtype}{list(array.shape)}, the cache {type_}",
            place=f"cache {name!r}",
        )
    return array.copy()


def _rooms(graph: Graph, caches: Mapping[str, str]) -> set[int]:
    """Known sizes of caches, of which it is unknown whether the new ones have them."""
    dims = [(graph.types[v].dims, graph.types[o].dims) for v, o in caches.items()]
    sizes = [ends for a, b in dims if len(a) == len(b) for ends in zip(a, b, strict=True)]
    return {old for old, new in sizes if isinstance(old, int) and not isinstance(new, int)}


def _of_fixed_room(graph: Graph, rooms: set[int]) -> Graph:
    """The network where no more tokens come than there is room: of the larger one of a room and an
    unknown number the room is taken. A scatter behind it is refused when it runs."""
    b = Builder(graph.name)
    for name in graph.inputs:
        b.input(name, graph.types[name])
    for name, array in graph.constants.items():
        b.constant(array, name)
    for node in graph.nodes:
        room = _room(b, node, rooms)
        if room is None:
            b.add_all(node.op, node.inputs, node.outputs, node.name)
        else:
            b.constant(room, node.outputs[0])
    return b.graph(graph.outputs, graph.updates, graph.initial)


def _room(b: Builder, node: Node, rooms: set[int]) -> np.ndarray | None:
    if node.op.kind != "Max" or len(node.inputs) != 2:
        return None
    contents = [b.known.get(v or "") for v in node.inputs]
    for own in contents:
        if own is not None and own.shape == (1,) and own.dtype != object and int(own[0]) in rooms:
            return np.array(own, np.int64)
    return None


def _written_into(graph: Graph, caches: Mapping[str, str]) -> Graph:
    """The network with each new cache scattered into the old one, not into a copy of it that has
    zeros behind its rows."""
    sources = {}
    for past, output in caches.items():
        node = graph.producers.get(output)
        while node is not None and node.op.kind == "Identity":
            node = graph.producers.get(node.inputs[0] or "")
        if node is None or node.op.kind not in ("ScatterElements", "ScatterND"):
            continue
        data = node.inputs[0] or ""
        if data != past and past in _copied(graph, data) and graph.types[past] == graph.types[data]:
            sources[node.outputs[0]] = past
    if not sources:
        return graph
    nodes: list[Node] = []
    needed = set(graph.outputs)
    for node in reversed(graph.nodes):
        if needed & set(node.outputs):
            if node.outputs[0] in sources:
                source = sources[node.outputs[0]]
                node = dataclasses.replace(node, inputs=(source, *node.inputs[1:]))
            needed |= {v for v in node.inputs if v is not None}
            nodes.append(node)
    return reinfer(dataclasses.replace(graph, nodes=tuple(reversed(nodes))), {})


def _copied(graph: Graph, value: str) -> Iterator[str]:
    """What a value is a copy of, as GroupQueryAttention is read: Where(is old, rows, 0) of the
    cache with the new tokens behind it, by position."""
    sources = {"Where": 1, "Gather": 0, "Concat": 0}
    node = graph.producers.get(value)
    if node is None or node.op.kind != "Where":
        return
    while node is not None and node.op.kind in sources:
        value = node.inputs[sources[node.op.kind]] or ""
        yield value
        node = graph.producers.get(value)
