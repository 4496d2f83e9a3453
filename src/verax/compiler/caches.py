"""Binding caches: a network that takes a cache and gives the new one (`past` and `present`) as one
that keeps it and writes the new rows in place.

A cache of keys and values is bound where both are of one type, static once `present` may be no
longer than the room: then its new value is a scatter into the old one, which a program makes in one
buffer (`place.movement.indexing`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from verax.base.errors import UsageError
from verax.ir.graph import Builder, Graph, Node, reinfer, source_of
from verax.ir.types import TensorType
from verax.ops.sums.attention import Attention


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


def _rooms(graph: Graph, caches: Mapping[str, str]) -> dict[str, int]:
    """Room by `Max` node (its output) of which a cache's new length is the value: as
    GroupQueryAttention is read, the length is that of a Range up to the larger one of the room and
    the number of tokens."""
    dims = [(graph.types[v].dims, graph.types[o].dims) for v, o in caches.items()]
    lengths: dict[object, int] = {
        new: old
        for a, b in dims
        if len(a) == len(b)
        for old, new in zip(a, b, strict=True)
        if isinstance(old, int) and not isinstance(new, int)
    }
    rooms = {}
    for node in graph.nodes if lengths else ():
        if node.op.kind == "Range" and _counts_from_zero(graph, node):
            room = lengths.get(graph.types[node.outputs[0]].dims[0])
            source = _unchanged(graph, node.inputs[1] or "")
            is_larger = source is not None and source.op.kind == "Max" and len(source.inputs) == 2
            if room is not None and source is not None and is_larger:
                rooms[source.outputs[0]] = room
    return rooms


def _unchanged(graph: Graph, value: str) -> Node | None:
    """What makes a number that is handed on in another shape or integer type."""
    return graph.producers.get(source_of(graph, value, ("Identity", "Reshape", "Squeeze", "Cast")))


def _counts_from_zero(graph: Graph, node: Node) -> bool:
    start, step = (graph.constants.get(v or "") for v in (node.inputs[0], node.inputs[2]))
    return start is not None and step is not None and (int(start), int(step)) == (0, 1)


def _of_fixed_room(graph: Graph, rooms: Mapping[str, int]) -> Graph:
    """The network where no more tokens come than there is room: of the larger one of a room and an
    unknown number the room is taken. A scatter behind it is refused when it runs."""
    if not rooms:
        return graph
    b = Builder(graph.name)
    for name in graph.inputs:
        b.input(name, graph.types[name])
    for name, array in graph.constants.items():
        b.constant(array, name)
    for node in graph.nodes:
        room = rooms.get(node.outputs[0])
        if room is not None and _has_content(b, node, room):
            type_ = graph.types[node.outputs[0]]
            b.constant(np.full(type_.shape, room, type_.dtype.numpy), node.outputs[0])
        else:
            b.add_all(node.op, node.inputs, node.outputs, node.name)
    return b.graph(graph.outputs, graph.updates, graph.initial)


def _has_content(b: Builder, node: Node, room: int) -> bool:
    """Whether one of the numbers is known to be the room."""
    contents = [b.known.get(v or "") for v in node.inputs]
    return any(c is not None and c.dtype != object and (c == room).all() for c in contents)


def _written_into(graph: Graph, caches: Mapping[str, str]) -> Graph:
    """The network with each new cache of GroupQueryAttention scattered into the old one, not into a
    copy of it that has zeros behind its rows. Only an attention that ignores what is hidden reads
    such a cache, so that nobody sees what stands there instead."""
    sources = {}
    for past, output in caches.items():
        node = graph.producers.get(source_of(graph, output))
        if node is None or node.op.kind != "ScatterElements":
            continue
        data = node.inputs[0] or ""
        if graph.types[past] != graph.types[data] or not _is_read_where_visible(graph, node):
            continue
        if _old_rows(graph, data) == past:
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


def _is_read_where_visible(graph: Graph, scatter: Node) -> bool:
    """Whether attentions that ignore what is hidden are all that reads a new cache, as keys or
    values. Importing GroupQueryAttention alone makes such (a frontend's own operator has
    `ignores_hidden` of False), and hides all but the rows before the last new token."""
    values, readers = [scatter.outputs[0]], []
    for value in values:
        for reader in graph.consumers.get(value, ()):
            if reader.op.kind == "Identity":
                values.append(reader.outputs[0])
            else:
                readers.append((reader, value))
    return bool(readers) and all(
        isinstance(reader.op, Attention)
        and reader.op.reads_visible_alone
        and value in reader.inputs[1:3]
        and value not in (reader.inputs[0], *reader.inputs[3:])
        for reader, value in readers
    )


def _old_rows(graph: Graph, value: str) -> str | None:
    """Of which cache a value has the old rows, as GroupQueryAttention is read: Where(is old, rows,
    0) of the cache with the new tokens behind it, by position."""
    for kind, index in (("Where", 1), ("Gather", 0), ("Concat", 0)):
        node = graph.producers.get(value)
        if node is None or node.op.kind != kind:
            return None
        value = node.inputs[index] or ""
    return value
