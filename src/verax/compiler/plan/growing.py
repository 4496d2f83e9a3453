"""Caches that grow, as one buffer with room: the network in which `past` and `present` are the same
memory, and how they lie in it.

`present = Concat(past, new)` along the rows of every head. In a buffer with room for `room` rows a
head, the rows of both begin at the same address, and only the new ones need to be written. What the
network computes stays as it is: that there is room is one more open size, that of an input which
nobody reads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from verax.compiler.plan.layouts import Pads
from verax.ir.dim import Dim, DimLike, symbol, symbols
from verax.ir.graph import Graph, source_of
from verax.ir.types import DType, TensorType

ROOM = "cache.room"
"""The input whose size is the room, uint8[room]."""
ROWS = 2
"""The axis along which caches [batch, heads, rows, features] grow."""


@dataclasses.dataclass(frozen=True)
class CacheWithRoom:
    """past, present: their values; length: rows of the past; room: rows of the buffer."""

    past: str
    present: str
    length: DimLike
    room: DimLike

    def pads(self, rows: DimLike) -> Pads:
        """Unused room behind so many rows, as the border of a placement. It is not of zeros."""
        return ((0, self.room - rows), (0, 0))  # type: ignore[return-value]  # as shapes


def growing_caches(graph: Graph) -> Mapping[str, CacheWithRoom]:
    """By value, past or present, those of a network that `with_room` made; else none."""
    if ROOM not in graph.inputs:
        return {}
    room, caches = graph.types[ROOM].dims[0], {}
    for past, present in graph.updates.items():
        length = graph.types[past].dims[ROWS]
        caches[past] = caches[present] = CacheWithRoom(past, present, length, room)
    return caches


def grows(graph: Graph, caches: Mapping[str, str]) -> bool:
    """Whether `with_room` takes these caches (input -> output) of a network."""
    return bool(caches) and with_room(graph, caches) is not None


def with_room(graph: Graph, caches: Mapping[str, str]) -> Graph | None:
    """The network whose `caches` share buffers with room; None unless each is concatenated to its
    past, row by row, all of one length that is open.

    Its outputs have the names of the concatenations themselves.
    """
    if graph.updates or ROOM in graph.inputs:
        return None
    sources = {present: _appended(graph, past, present) for past, present in caches.items()}
    if None in sources.values():
        return None
    outputs = tuple(sources.get(v) or v for v in graph.outputs)
    lengths = {str(graph.types[past].dims[ROWS]) for past in caches}
    if len(set(outputs)) < len(outputs) or len(lengths) > 1:
        return None
    name, used = "room", graph.symbols()
    while name in used:
        name += "_"
    return dataclasses.replace(
        graph,
        inputs=(*graph.inputs, ROOM),
        outputs=outputs,
        types={**graph.types, ROOM: TensorType(DType.uint8, (symbol(name),))},
        updates={past: sources[present] or "" for past, present in caches.items()},
        initial={},
    )


def _appended(graph: Graph, past: str, present: str) -> str | None:
    """The concatenation of rows behind those of `past` that `present` is, by its value."""
    if past not in graph.inputs or present not in graph.outputs:
        return None
    node = graph.producers.get(source_of(graph, present))
    old, new = graph.types[past], graph.types[present]
    if node is None or node.op.kind != "Concat" or old.rank != 4 or new.rank != 4:
        return None
    length = old.dims[ROWS]
    is_open = isinstance(length, Dim) and symbols(length) == {str(length)}
    remaining = [(a, b) for i, (a, b) in enumerate(zip(old.dims, new.dims)) if i != ROWS]
    fits = old.dtype == new.dtype and all(str(a) == str(b) for a, b in remaining)
    if node.op.attributes()["axis"] % 4 != ROWS or not is_open or not fits:
        return None
    return node.outputs[0] if source_of(graph, node.inputs[0] or "") == past else None


def empty_past(graph: Graph, past: str, sizes: Mapping[str, int]) -> np.ndarray:
    """The past of nothing, for these sizes of the network's symbols; its length need not be among
    them. Raises `KeyError` where another size is open."""
    dims = graph.types[past].dims
    all_sizes = {**sizes, str(dims[ROWS]): 0}
    shape = [d if isinstance(d, int) else d.value(all_sizes) for d in dims]
    return np.zeros(shape, graph.types[past].dtype.numpy)
