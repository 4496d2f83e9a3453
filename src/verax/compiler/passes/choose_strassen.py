"""Large products of matrices are computed by Strassen's algorithm where that saves work."""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np

from verax.ir.graph import Builder, Graph, Node
from verax.ir.rewrite import Rewriter
from verax.ir.types import DType, TensorType
from verax.ops.pointwise.factors import Bfloat16Factor
from verax.ops.sums.linear import MatMul
from verax.ops.sums.strassen import StrassenMatMul
from verax.records.trace import Trace

COLUMNS = 32
"""Halves of other than whole blocks of columns are left alone: no kernel multiplies them fast."""
SAVED = 7 / 8
"""Of all products, those that are left."""
PER_WEIGHT = 2.5
"""What fetching a weight costs, in multiply-adds; the sums of weights are 7/4 as many."""
PER_FACTOR = 14.0
"""What adding up one number of the left factor costs, as written to memory and read again."""
PER_RESULT = 8.0
"""What adding one number of the result up costs, three times in the cache. These three costs were
fitted to 30 shapes on registers of 16 and of 8 numbers (Zen 5), whose gains they tell within 0.03
and 0.04; ViT-small takes 7 % less time with what they choose, ConvNeXt-tiny 5 %."""
MOST_BYTES = 1 << 24
"""Of an item's left factor: the kernel goes through it and its sums once for some columns each,
which pays from the last cache. Measured to 12 MiB (1,024 rows of 3,072): 13 % on registers of 16
numbers, 6 % on those of 8."""
WORTH = 1.05
"""The least gain for which accuracy is given away."""


def choose_strassen(
    graph: Graph, limit: int | None = None, keep: Collection[str] = ()
) -> tuple[Graph, Trace]:
    """Compute large products with constant weights by one level of Strassen's algorithm.

    Given:  %y = MatMul()(%x, %w) with a constant %w
    Result: %y = StrassenMatMul()(%x, %w)

    Seven products of halves take the place of eight, for each item of a batch by itself. Whether
    that saves time is decided by counting work, sums and weights from the shapes alone, so that it
    is the same on every machine. Nodes named in `keep` stay as they are, and products of factors
    in bfloat16.

    Numeric effect: the same product over the reals; in float32 an error that is measured by the
    sizes of all four quarters of the factors and not of one row and one column, on even data one to
    two times that of direct summation. A certificate holds it against the bound of direct
    summation, layer by layer. An infinity makes NaN in other rows and columns, too.
    """
    rewriter = Rewriter(graph, limit)
    for node in graph.nodes:
        named = node.name in keep or node.outputs[0] in keep
        if rewriter.spent or named or not is_worth(graph, node):
            rewriter.keep(node)
            continue
        inputs = [rewriter.map(v) for v in node.inputs]
        made = rewriter.add(StrassenMatMul(), inputs, node.name, rewriter.names(node))
        rewriter.replace(node, made, "choose_strassen")
    return rewriter.finish()


def example() -> Graph:
    """What `verax passes` shows."""
    b = Builder("choose_strassen")
    x = b.input("x", TensorType.parse("float32[2, 97, 896]"))
    weights = np.random.default_rng(6).standard_normal((896, 896)).astype(np.float32) / 30
    return b.graph([b.add(MatMul(), [x, b.constant(weights, "w")], ["y"])])


def is_worth(graph: Graph, node: Node) -> bool:
    """Whether this node is computed so."""
    types = [*graph.input_types(node), *graph.output_types(node)]
    if not isinstance(node.op, MatMul) or node.inputs[1] not in graph.constants:
        return False
    if any(t is None or not t.is_static or t.dtype is not DType.float32 for t in types):
        return False
    maker = graph.producers.get(node.inputs[0] or "")
    if maker is not None and isinstance(maker.op, Bfloat16Factor):
        return False
    a, w = (graph.types[v].shape for v in node.inputs if v is not None)
    if len(a) < 2 or len(w) != 2 or w[0] % 2 or w[1] % COLUMNS or 0 in (*a, *w):
        return False
    rows = math.prod(a[1:-1]) if len(a) > 2 else a[0]
    if 4 * rows * a[-1] > MOST_BYTES or gain(rows, *w) < WORTH:
        return False
    return bool(np.isfinite(graph.constants[node.inputs[1] or ""]).all())


def gain(m: int, k: int, n: int) -> float:
    """How many times faster [m, k] @ [k, n] becomes, by counting: multiply-adds, or what takes as
    long, for each element of the product and each term."""
    rows = m + m % 2
    direct = 1 + PER_WEIGHT / m
    sums = PER_FACTOR / n + PER_RESULT / k
    return direct / (SAVED * rows / m + 7 / 4 * PER_WEIGHT / m + sums)
