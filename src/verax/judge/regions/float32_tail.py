"""What a runtime stores in 16 bits that keeps the end of a network in float32.

OpenVINO's processor plugin computes in bfloat16 so: products, and all that is read by one further
on. From the outputs back to the first products nothing is rounded, the sums along a residual stream
included ("the tail"). What joins a kernel (an activation, a number that scales) is not stored
before it. Read off its execution graphs (2026.2).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from verax.ir.graph import Graph, Node
from verax.judge.decide.precision import PRODUCTS
from verax.judge.regions.sampler import MOVES, Region
from verax.numerics.formats import FloatFormat, round_to
from verax.ops.pointwise.elementwise import Elementwise
from verax.ops.recurrent.recurrent import Recurrent
from verax.ops.sums.layer_normalization import LayerNormalization

STOPS = (*PRODUCTS, "Resize")
"""Operators, beside recurrent ones, that end the tail."""


class Float32Tail:
    """Which values of a region are stored in a format, and which inputs are rounded to it.

    biased: results of an Add that is a product's bias; unstored: values inside attention; folded:
    convolutions that the BatchNorm after them is folded into.
    """

    def __init__(
        self,
        graph: Graph,
        region: Region,
        biased: Collection[str],
        unstored: Collection[str],
        folded: Collection[str],
    ) -> None:
        self.graph, self.region, self.biased = graph, region, biased
        self._inside = {*unstored, *folded}
        self._producers = {v: n for n in region.nodes for v in n.outputs}
        self._tail = self._search()
        self.stored = frozenset(v for n in region.nodes for v in n.outputs if self._is_stored(n, v))

    def _search(self) -> frozenset[str]:
        """Results of the nodes from the observed values back to the first products."""
        tail, pending = set[str](), list(self.region.observed)
        while pending:
            node = self._producers.get(pending.pop())
            if node is None or node.outputs[0] in tail or self._stops(node):
                continue
            tail.update(node.outputs)
            pending += [v for v in node.inputs if v is not None]
        return frozenset(tail)

    def _stops(self, node: Node) -> bool:
        value = node.outputs[0]
        return node.op.kind in STOPS or value in self.biased or isinstance(node.op, Recurrent)

    def _is_stored(self, node: Node, value: str) -> bool:
        if value in self._tail or value in self._inside or value in self.region.observed:
            return False
        readers = self._readers(value)
        if len(readers) != 1:
            return node.op.kind not in MOVES
        (reader,) = readers
        if node.op.kind in MOVES:
            return False
        if reader.op.kind == "ReduceMean" or node.op.kind == "ReduceMean":
            return not isinstance(reader.op, Elementwise) and not isinstance(node.op, Elementwise)
        if not isinstance(reader.op, Elementwise):
            return True
        computed = [v for v in reader.inputs if v is not None and v not in self.graph.constants]
        joins_sum = node.op.kind.startswith("Conv") or isinstance(node.op, Elementwise)
        if len(computed) > 1 and not joins_sum:
            return True
        return not (self._stops(node) or isinstance(node.op, Elementwise))

    def _readers(self, value: str) -> list[Node]:
        """The readers of a value, of what is moved only those after that."""
        readers: list[Node] = []
        for reader in self.graph.consumers.get(value, ()):
            if reader.op.kind in MOVES and reader.outputs[0] not in self.region.observed:
                readers += self._readers(reader.outputs[0])
            else:
                readers.append(reader)
        return readers

    def read(self, node: Node, wide: Sequence[Any], fmt: FloatFormat) -> list[Any]:
        """A node's inputs as its kernel reads them: float32 ones from the tail are rounded where
        the node is not of it. Constants are left, and so is what joins a kernel before."""
        if node.outputs[0] in self._tail or node.op.kind in MOVES:
            return list(wide)
        return list(self._rounded(node, wide, fmt))

    def _rounded(self, node: Node, wide: Sequence[Any], fmt: FloatFormat) -> Iterator[Any]:
        for value, array in zip(node.inputs, wide):
            is_float = array is not None and array.dtype.kind == "f"
            is_tail = value in self._tail or (
                value not in self._producers and not isinstance(node.op, Elementwise)
            )
            if is_float and is_tail and value not in self.graph.constants:
                yield round_to(array, fmt)
            else:
                yield array

    def is_twice(self, node: Node) -> bool:
        """Whether a node is a normalization whose result is stored before it is scaled."""
        return isinstance(node.op, LayerNormalization) and node.outputs[0] not in self._tail


def scaled_afterwards(normal: np.ndarray, wide: Sequence[Any], fmt: FloatFormat) -> np.ndarray:
    """A normalized array, stored in a format, times the scale and with the bias added.

    wide: the inputs of the LayerNormalization.
    """
    y = round_to(normal, fmt) * wide[1]
    return y + wide[2] if len(wide) > 2 and wide[2] is not None else y
