"""Large products of matrices are computed by Strassen's algorithm where that saves work."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection

import numpy as np

from verax.ir.amplification import amplifiers
from verax.ir.graph import Builder, Graph, Node
from verax.ir.rewrite import Rewriter
from verax.ir.types import DType, TensorType
from verax.ops.pointwise.arithmetic import Add
from verax.ops.pointwise.factors import Bfloat16Factor
from verax.ops.sums.linear import MatMul
from verax.ops.sums.strassen import StrassenMatMul
from verax.ops.windows.convolution import Conv
from verax.ops.windows.strassen import StrassenConv
from verax.records.trace import Trace

COLUMNS = 32
"""Halves of other than whole blocks of columns are left alone: no kernel multiplies them fast."""
SAVED = 7 / 8
"""Of all products, those that are left."""
PER_WEIGHT = 2.0
"""What fetching a weight costs, in multiply-adds; the sums of weights are 7/4 as many."""
PER_FACTOR = 13.0
"""What scaling and adding up one number of the left factor costs: it is read twice, and 7/4 numbers
are written and read again."""
PER_RESULT = 7.0
"""What adding one number of the result up costs, three times in the cache. These three costs were
fitted to the gains of 20 convolutions on registers of 16 numbers (Zen 5), which they tell within
0.015; with registers of 8 numbers it is 0.04. That was before rows were scaled, which takes up to
1 % more time (11 products and convolutions, registers of 8 numbers). MobileNetV1 takes 4 % less
time with what they choose, ConvNeXt-tiny 5 %, ViT-small 7 %."""
MOST_BYTES = 1 << 24
"""Of an item's left factor: the kernel goes through it and its sums once for some columns each,
which pays from the last cache. Measured to 12 MiB (1,024 rows of 3,072): 13 % on registers of 16
numbers, 6 % on those of 8."""
WORTH = 1.04
"""The least gain for which accuracy is given away."""


def choose_strassen(
    graph: Graph, limit: int | None = None, keep: Collection[str] = ()
) -> tuple[Graph, Trace]:
    """Compute large products with constant weights by one level of Strassen's algorithm.

    Given:  %y = MatMul()(%x, %w) with a constant %w
    Result: %y = StrassenMatMul()(%x, %w)

    A 1x1 convolution of stride 1 becomes a StrassenConv, its bias an Add behind it. Seven products
    of halves take the place of eight, for each item of a batch by itself. Whether that saves time
    is decided by counting work, sums and weights from the shapes alone, so that it is the same on
    every machine. Nodes named in `keep` stay as they are, and products of factors in bfloat16. So
    does one whose result reaches an operator that amplifies errors without bound, before it is
    added to something of its own size (`ir.amplification`).

    Numeric effect: the same product over the reals. Rows and columns are brought to one size
    before, so that in float32 an element errs as its own row and column are large, a few times as
    much as by direct summation; rows and columns of zeros give zeros, infinities and NaN stay in
    their rows. A certificate holds it against the bound of direct summation, layer by layer.
    """
    rewriter = Rewriter(graph, limit)
    worth = {
        node.outputs[0]: ()
        for node in graph.nodes
        if node.name not in keep and node.outputs[0] not in keep and is_worth(graph, node)
    }
    amplified = amplifiers(graph, worth)
    for node in graph.nodes:
        if rewriter.spent or node.outputs[0] not in worth:
            rewriter.keep(node)
            continue
        if node.outputs[0] in amplified:
            reached = amplified[node.outputs[0]].place
            rewriter.refuse(node, f"choose_strassen: {reached} would amplify errors")
            continue
        inputs = [rewriter.map(v) for v in node.inputs]
        names = rewriter.names(node)
        if isinstance(node.op, MatMul):
            output = rewriter.add(StrassenMatMul(), inputs, node.name, names)
        elif len(inputs) < 3 or inputs[2] is None:
            output = rewriter.add(StrassenConv(), inputs[:2], node.name, names)
        else:
            sums = rewriter.add(StrassenConv(), inputs[:2], node.name)
            rank = graph.types[node.outputs[0]].rank
            bias = graph.constants[node.inputs[2] or ""].reshape(-1, *(1,) * (rank - 2))
            behind = node.name and f"{node.name}: bias"
            output = rewriter.add(Add(), [sums, rewriter.constant(bias)], behind, names)
        rewriter.replace(node, output, "choose_strassen")
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
    constant = all(v is None or v in graph.constants for v in node.inputs[1:])
    if not isinstance(node.op, MatMul | Conv) or not constant:
        return False
    if any(
        t and not (t.is_static and t.dtype is DType.float32 and 0 not in t.shape) for t in types
    ):
        return False
    maker = graph.producers.get(node.inputs[0] or "")
    if maker is not None and isinstance(maker.op, Bfloat16Factor):
        return False
    sizes = _of_matrices(graph, node) if isinstance(node.op, MatMul) else _of_pixels(graph, node)
    if sizes is None:
        return False
    rows, terms, columns = sizes
    if 4 * rows * terms > MOST_BYTES or not _is_faster(rows, terms, columns):
        return False
    return bool(np.isfinite(graph.constants[node.inputs[1] or ""]).all())


def _of_matrices(graph: Graph, node: Node) -> tuple[int, int, int] | None:
    """Rows of an item, terms and columns of a product; None of one that no kernel takes."""
    a, w = (graph.types[v or ""].shape for v in node.inputs[:2])
    if len(a) < 2 or len(w) != 2 or w[0] % 2 or w[1] % COLUMNS:
        return None
    return (math.prod(a[1:-1]) if len(a) > 2 else a[0]), *w


def _of_pixels(graph: Graph, node: Node) -> tuple[int, int, int] | None:
    """Pixels of an image, channels and filters of a 1x1 convolution; None of any other one."""
    assert isinstance(node.op, Conv)
    x, w = (graph.types[v or ""] for v in node.inputs[:2])
    windows = node.op.spatial(x, w)
    single = {*windows.kernel_shape, *windows.strides} == {1} and not any(map(any, windows.pads))
    filters, channels = w.shape[:2]
    if not single or node.op.groups > 1 or channels % COLUMNS or filters % COLUMNS:
        return None
    return math.prod(x.shape[2:]), channels, filters


def _is_faster(rows: int, terms: int, columns: int) -> bool:
    """Whether so many rows are worth it. Odd and even numbers of rows share one limit, so that a
    program for many sizes rests on one condition."""
    return bool(rows >= fewest_rows(terms, columns))


@functools.cache
def fewest_rows(terms: int, columns: int) -> int:
    """From how many rows on every number of them is worth it."""
    rows = np.arange(1, MANY + 1)
    return 1 + int(rows[gain(rows, terms, columns) < WORTH].max(initial=0))


MANY = 1 << 13
"""Rows beyond which more change nothing: where they are not enough, `fewest_rows` is one more."""


def gain(m: np.ndarray, k: int, n: int) -> np.ndarray:
    """How many times faster [m, k] @ [k, n] becomes, by counting: multiply-adds, or what takes as
    long, for each element of the product and each term."""
    rows = m + m % 2
    direct = 1 + PER_WEIGHT / m
    sums = PER_FACTOR / n + PER_RESULT / k
    return direct / (SAVED * rows / m + 7 / 4 * PER_WEIGHT / m + sums)
