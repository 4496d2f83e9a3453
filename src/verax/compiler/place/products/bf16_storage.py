"""Which factors are kept in bfloat16, in pairs: see `place.bf16_inputs`.

An instruction takes pairs of neighboring channels, so there must be an even number of them: where
one is missing, the other half of its number in memory may be anything, even no number. A few rows
are multiplied while their weights are read, in 16 bits already (`stored_weights`).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from verax.compiler.kernels.layout import Strides
from verax.compiler.kernels.products.stored import MOST_ROWS
from verax.compiler.place.convolution import convolution
from verax.compiler.place.products import linear
from verax.compiler.plan.expressions import is_elementwise
from verax.compiler.plan.layouts import Layout
from verax.compiler.plan.steps import STORE_BFLOAT16, Decisions
from verax.ir.graph import Graph, Node
from verax.ir.types import DType
from verax.numerics.arith import Arith
from verax.numerics.formats import BFLOAT16, round_to
from verax.ops.pointwise.factors import SMALLEST_FACTOR, SMALLEST_START, Bfloat16Factor
from verax.ops.sums.linear import Gemm, MatMul
from verax.ops.windows.convolution import Conv


class HalfFactor(Bfloat16Factor):
    """Bfloat16Factor, whose result is kept in 16 bits: of lowered graphs alone."""

    result = DType.bfloat16

    def compute(self, m: Arith[Any], *xs: Any) -> Any:
        word = m.bitcast(super().compute(m, *xs), "uint32")
        return m.bitcast(
            m.convert(m.shift_right(word, m.const(16, "uint32")), "uint16"), "bfloat16"
        )


def store_in_bfloat16(graph: Graph, decisions: Decisions) -> Graph:
    """The graph with left factors in bfloat16 where all that reads them multiplies such pairs.

    Nodes keep their number and their order.
    """
    if not decisions.runs(STORE_BFLOAT16):
        return graph
    stored = {
        value
        for node in graph.nodes
        if _is_kept(graph, node)
        for value in node.outputs[:1]
        if decisions.allows(STORE_BFLOAT16, f"{value!r} in 16 bits", value, (value,))
    }
    if not stored:
        return graph
    bf16_types = {v: graph.types[v].with_dtype(DType.bfloat16) for v in stored}
    nodes = [
        dataclasses.replace(n, op=HalfFactor()) if n.outputs[0] in stored else n
        for n in graph.nodes
    ]
    return dataclasses.replace(graph, nodes=tuple(nodes), types={**graph.types, **bf16_types})


def _is_kept(graph: Graph, node: Node) -> bool:
    if not isinstance(node.op, Bfloat16Factor) or not is_elementwise(graph, node):
        return False
    value = node.outputs[0]
    readers = graph.consumers.get(value, ())
    if value in graph.outputs or not readers or not graph.types[value].is_static:
        return False
    return all(value not in n.inputs[1:] and takes_pairs(graph, n) for n in readers)


def takes_pairs(graph: Graph, node: Node) -> bool:
    """Whether the kernel of this product of rounded factors multiplies pairs."""
    if any(v not in graph.constants for v in node.inputs[1:] if v is not None):
        return False
    if not (_convolves(graph, node) or _multiplies(graph, node)):
        return False
    w, *start = (graph.constants[v] for v in node.inputs[1:] if v is not None)
    rounded = np.array_equal(round_to(w, BFLOAT16), w) and _none_below(w, SMALLEST_FACTOR)
    return rounded and all(_none_below(c, SMALLEST_START) for c in start)


def _none_below(array: np.ndarray, smallest: float) -> bool:
    size = np.abs(array)
    return bool(np.all((size >= smallest) | (size == 0)))


def _convolves(graph: Graph, node: Node) -> bool:
    if not isinstance(node.op, Conv) or not convolution.is_compiled(graph, node):
        return False
    nothing = Strides(0, 0, 0, 0)
    spec = convolution.conv_spec(graph, node, nothing, nothing)
    layout_and_pads = convolution.data_layout(graph, node)
    blocked = layout_and_pads is not None and layout_and_pads[0] is Layout.blocked
    even = isinstance(spec.group_channels, int) and spec.group_channels % 2 == 0
    return blocked and even and spec.aligned and spec.types.sum == "float32"


def _multiplies(graph: Graph, node: Node) -> bool:
    if not isinstance(node.op, MatMul | Gemm) or not linear.is_compiled(graph, node):
        return False
    sizes = linear.sizes_of(graph, node)
    if (isinstance(node.op, Gemm) and node.op.trans_a) or sizes is None:
        return False
    rows, terms = sizes
    float32 = graph.types[node.inputs[0] or ""].dtype is DType.float32
    return float32 and rows > MOST_ROWS and terms % 2 == 0
