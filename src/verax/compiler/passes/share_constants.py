"""Constants that are stored more than once."""

from __future__ import annotations

import zlib
from collections import Counter

import numpy as np

from verax.ir.graph import Graph, same_bits
from verax.ir.rewrite import Rewriter
from verax.ir.text import parse_graph
from verax.records.trace import Trace


def share_constants(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Keep one of the constants that have the same element type, shape and bytes.

    Given:  const %v = [1, 2]; const %w = [1, 2]; %b = Mul()(%a, %v); %c = Mul()(%b, %w)
    Result: const %v = [1, 2]; %b = Mul()(%a, %v); %c = Mul()(%b, %v)

    Numeric effect: none. Bytes are compared, so that 0 and -0, or two NaN, are not one.
    """
    rewriter = Rewriter(graph, limit)
    alike = Counter(_form(array) for array in graph.constants.values())
    representatives: dict[tuple[object, int], list[str]] = {}
    for value, array in graph.constants.items():
        if alike[_form(array)] == 1 or value in graph.outputs:
            continue
        same_checksum = representatives.setdefault((_form(array), _checksum(array)), [])
        same = next((v for v in same_checksum if same_bits(graph.constants[v], array)), None)
        if same is None:
            same_checksum.append(value)
        elif not rewriter.spent:
            rewriter.values[value] = rewriter.values[same]
            rewriter.record_values([value, same], f"share_constants: {value!r} is {same!r}")
    for node in graph.nodes:
        rewriter.keep(node)
    return rewriter.finish()


def example() -> Graph:
    """What `verax passes` shows."""
    return parse_graph(
        """
        graph "share_constants"
        input %a: float32[3, 2]
        const %v: float32[2] = [1.0, 2.0]
        const %w: float32[2] = [1.0, 2.0]
        %b: float32[3, 2] = Mul()(%a, %v)
        %c: float32[3, 2] = Mul()(%b, %w)
        output %c
        """
    )


def _form(array: np.ndarray) -> tuple[object, ...]:
    return array.dtype, array.shape


def _checksum(array: np.ndarray) -> int:
    if array.dtype == object:
        return hash(tuple(array.flat))
    return zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data) if array.size else 0
