"""MatMul and Gemm: products of row-major matrices, constant right factors packed ahead."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from verax.compiler.kernels.convolution.pack import direct_elements, direct_order, pack_channels
from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.dtypes import ContractionTypes, contraction
from verax.compiler.kernels.layout import Epilogue, Operand
from verax.compiler.kernels.llvm.builder import ELEMENT_SIZES
from verax.compiler.kernels.loops.loop import Access, LoopSpec
from verax.compiler.kernels.products.gemm import (
    KNOWN,
    GemmSpec,
    Matrix,
    PackSpec,
    pack_b,
    tensor_operand,
)
from verax.compiler.kernels.products.stored import MOST_ROWS
from verax.compiler.kernels.sizes import static_size
from verax.compiler.place.bf16_inputs import product_inputs, reads_pairs
from verax.compiler.place.integer.uint8_storage import starting_sums, subtracted
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.products.stored_weights import (
    few_rows,
    stored_factor,
    stored_kernel,
    widened,
)
from verax.compiler.place.storage import Placed, Pointer
from verax.compiler.plan.choice import Alternatives, Choice, NoKernel, Planning, plans
from verax.compiler.plan.expressions import chain_expr, operands
from verax.compiler.plan.fusion import Group
from verax.compiler.plan.ranges import range_of
from verax.ir.dim import same
from verax.ir.graph import Graph, Node
from verax.ir.types import DType
from verax.numerics.expr import Const, Expr, Input, TracingArith, compose, trace
from verax.ops.sums.linear import Gemm, MatMul

F32 = "float32"
INTEGERS = (DType.int32, DType.int64, DType.uint32, DType.uint64)
"""Integers of matrix products."""


def is_compiled(graph: Graph, node: Node) -> bool:
    """Whether the kernels can run this node."""
    types = [t for t in (*product_inputs(graph, node), *graph.output_types(node)) if t is not None]
    floats = DType.float32, DType.float64
    supported = (*floats, *INTEGERS) if isinstance(node.op, MatMul) else floats
    if any(t.dtype not in supported or not t.is_static or 0 in t.shape for t in types):
        return False
    return _product(graph, node) is not None


def fits(graph: Graph, accumulator: str, node: Node) -> bool:
    """Whether elementwise `node` can be fused: other operands are scalars, one value per column, or
    tensors of the product's shape."""
    result = graph.types[accumulator]
    if any(str(graph.types[v].dtype) not in KNOWN for v in node.outputs):
        return False
    for operand in operands(graph, node).values():
        if isinstance(operand, str):
            type_ = graph.types[operand]
            if str(type_.dtype) not in KNOWN or type_.dims != result.dims:
                return False
        elif operand.dtype.name not in KNOWN or not _per_column(operand, result.shape[-1:]):
            return False
    return True


def _per_column(array: np.ndarray, columns: tuple[int, ...]) -> bool:
    return array.size == 1 or (bool(columns) and array.size == array.shape[-1] == columns[0])


@dataclasses.dataclass(frozen=True)
class _MatrixProduct:
    """A node as y[i, j] = a[i, j] @ b[i, j]: sizes, and how a, b and y step (dense row-major)."""

    outer: int
    inner: int
    m: int
    n: int
    k: int
    a: Matrix
    b: Matrix
    y: Matrix

    @property
    def one_b(self) -> bool:
        return self.outer == self.inner == 1


def _types(
    graph: Graph, node: Node, stored: DType, fixed: bool, has_int8_dot: bool
) -> ContractionTypes:
    """Element types of the product. Integers that fit into 16 bits are multiplied in pairs where
    the right factor is packed ahead, bytes where the machine has VNNI (dots); sums of 32 bits wrap
    around as the operator's own."""
    a, b = (str(graph.types[v or ""].dtype) for v in node.inputs[:2])
    if reads_pairs(graph, node):
        return contraction(a, a, str(stored))
    if a.startswith("float"):
        return contraction(a, b, str(stored))
    ranges = [range_of(graph, v or "") for v in node.inputs[:2]]
    short = all(low >= -(2**15) and high < 2**15 for low, high in ranges)
    if fixed and short and a == "int32":
        signed = ranges[1][0] >= -128 and ranges[1][1] < 128
        if has_int8_dot and signed and subtracted(ranges[0], 0) is not None:
            return ContractionTypes("uint8", "int8", a, str(stored))
        return ContractionTypes("int16", "int16", a, str(stored))
    return ContractionTypes(a, b, a, str(stored))


def _product(graph: Graph, node: Node) -> _MatrixProduct | None:
    a = graph.types[node.inputs[0] or ""].shape
    b = graph.types[node.inputs[1] or ""].shape
    if isinstance(node.op, Gemm):
        (m, k), n = (a[::-1] if node.op.trans_a else a), b[0 if node.op.trans_b else 1]
        left = Matrix(1, m) if node.op.trans_a else Matrix(k, 1)
        right = Matrix(1, k) if node.op.trans_b else Matrix(n, 1)
        return _MatrixProduct(1, 1, m, n, k, left, right, Matrix(n, 1))
    m, k = (a[-2], a[-1]) if len(a) > 1 else (1, a[0])
    n = b[-1] if len(b) > 1 else 1
    left_batch, right_batch = a[:-2], b[:-2]
    left, right, product = Matrix(k, 1), Matrix(n, 1), Matrix(n, 1)
    if same(math.prod(right_batch), 1):  # one right factor: the left ones are one tall matrix
        return _MatrixProduct(1, 1, math.prod(left_batch) * m, n, k, left, right, product)
    batch = _broadcast(left_batch, right_batch)
    steps = _batch_steps(batch, left_batch, m * k), _batch_steps(batch, right_batch, k * n)
    folded = _fold_batch(batch, *steps)
    if folded is None:
        return None
    (outer, inner), (a_steps, b_steps) = folded
    return _MatrixProduct(
        outer, inner, m, n, k,
        dataclasses.replace(left, outer=a_steps[0], inner=a_steps[1]),
        dataclasses.replace(right, outer=b_steps[0], inner=b_steps[1]),
        dataclasses.replace(product, outer=inner * m * n, inner=m * n),
    )  # fmt: skip


def sizes_of(graph: Graph, node: Node) -> tuple[int, int] | None:
    """Rows and terms of a product of one right factor; None of several."""
    product = _product(graph, node)
    return None if product is None or not product.one_b else (product.m, product.k)


def _broadcast(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    """The batch of a product of factors with these."""
    rank = max(len(left), len(right))
    size_pairs = zip((1,) * (rank - len(left)) + left, (1,) * (rank - len(right)) + right)
    return tuple(b if same(a, 1) or (not same(a, b) and a == 1) else a for a, b in size_pairs)


def _batch_steps(batch: tuple[int, ...], own: tuple[int, ...], matrix: int) -> list[int]:
    """Distance in elements along each batch axis; 0 where a factor is repeated."""
    steps, step = [], matrix
    padded = (1,) * (len(batch) - len(own)) + own
    for size, batch_size in zip(reversed(padded), reversed(batch), strict=True):
        is_repeated = same(size, 1) or (not same(size, batch_size) and size == 1)
        steps.append(0 if is_repeated else step)
        step *= size
    return steps[::-1]


def _fold_batch(
    batch: tuple[int, ...], a: list[int], b: list[int]
) -> tuple[tuple[int, int], tuple[tuple[int, int], tuple[int, int]]] | None:
    """Batch axes joined where both factors walk through them in one stride; None if over two."""
    axes = [(n, x, y) for n, x, y in zip(batch, a, b) if not same(n, 1)]
    folded: list[tuple[int, int, int]] = []
    for n, x, y in axes:
        if folded and same(folded[-1][1], n * x) and same(folded[-1][2], n * y):
            folded[-1] = (folded[-1][0] * n, x, y)
        else:
            folded.append((n, x, y))
    if len(folded) > 2:
        return None
    (p, q, r), (s, t, u) = ([(1, 0, 0)] * 2 + folded)[-2:]
    return (p, s), ((q, t), (r, u))


def plan_product(planning: Planning, node: Node) -> Alternatives:
    """One alternative; its detail: the sizes and steps of the product."""
    graph = planning.graph
    if not is_compiled(graph, node):
        return NoKernel(
            "products take factors of float32 or float64, or of MatMul integers, with at most two "
            "axes of batches"
        )
    third = node.inputs[2] if len(node.inputs) > 2 else None
    if isinstance(node.op, Gemm) and third is not None:
        scaled = node.op.beta != 1 and third not in graph.constants
        if scaled or node.op.alpha != 1:
            return NoKernel("a third matrix with alpha, or with beta when it is computed")
    product = _product(graph, node)
    stored = None if product is None else stored_kernel(graph, node.inputs[1] or "", product.m)
    refused = planning.refused(node, GemmSpec, PackSpec)
    if refused is None and stored is not None:
        refused = planning.refused_names([stored[0]], stored[1])
    return refused or (Choice("product", takes_epilogue=True, spec=GemmSpec, detail=product),)


@plans(MatMul, Gemm, plan=plan_product, fits=fits)
def place_product(lowering: Lowering, group: Group, choice: Choice) -> None:
    """a, packed b, bias or start, operands, y."""
    graph, node = lowering.graph, group.root
    product: _MatrixProduct = choice.detail
    constant = graph.constants.get(node.inputs[1] or "")
    transposed = isinstance(node.op, Gemm) and node.op.trans_b
    stored = None
    if product.one_b:
        stored = stored_factor(lowering, node.inputs[1] or "", transposed, product.m)
    fixed = (constant is not None or stored is not None) and product.one_b
    has_int8_dot = (
        lowering.target.has_int8_dot and constant is not None and isinstance(node.op, MatMul)
    )
    types = _types(graph, node, graph.types[group.output].dtype, fixed, has_int8_dot)
    spec = GemmSpec(product.m, product.n, product.k, product.a, product.y, product.outer,
                    product.inner, fixed, types=types)  # fmt: skip
    short = types.x != str(graph.types[node.inputs[0] or ""].dtype)
    if short:
        together = spec.convolution().step
        spec = dataclasses.replace(spec, a=Matrix(product.k + -product.k % together, 1))
    arguments: list[Pointer | Placed] = []
    base = 0
    if short and types.x == "uint8":
        base = subtracted(range_of(graph, node.inputs[0] or ""), 0) or 0
    if base:
        assert constant is not None
        start = starting_sums(constant.reshape(product.k, product.n).T.astype(np.int64), -base)
        arguments.append(lowering.weights.packed(pack_channels(start)))
        spec = dataclasses.replace(spec, bias="column")
    extra: Expr | None = None
    if isinstance(node.op, Gemm):
        spec, extra = _gemm_terms(lowering, node, spec, arguments)
    epilogue, values = product_epilogue(lowering, group, spec, extra)
    spec = dataclasses.replace(spec, epilogue=epilogue)
    schedule = lowering.calls.schedule(spec)
    assert isinstance(schedule, ConvSchedule)
    a: Pointer | Placed = lowering.values.read_contiguous(node.inputs[0] or "")
    if short:
        a = _shortened(lowering, group, a, product, spec, base)
    if stored is not None and product.m <= MOST_ROWS:
        rows, factor = few_rows(lowering, spec, stored)
        y = lowering.values.write(group.output, bordered=False)
        lowering.calls.call(rows, [a, *factor, *arguments, *values, y], group.label)
        return
    if stored is not None:
        right = widened(lowering, spec, stored, schedule, group.label)
    elif fixed:
        assert constant is not None
        right = packed_factor(lowering, constant, spec, schedule, transposed)
    else:
        b = lowering.values.read_contiguous(node.inputs[1] or "")
        size = spec.outer * spec.inner * spec.packed_elements * ELEMENT_SIZES[types.weights]
        right = lowering.values.scratch(size)
        pack = PackSpec(spec, product.b)
        lowering.calls.call(pack, [b, right], f"{group.label}: pack", schedule)
    y = lowering.values.write(group.output, bordered=False)
    lowering.calls.call(spec, [a, right, *arguments, *values, y], group.label, schedule)


def packed_factor(
    lowering: Lowering,
    constant: np.ndarray,
    spec: GemmSpec,
    schedule: ConvSchedule,
    transposed: bool = False,
) -> Pointer:
    """A constant right factor in panels. transposed: its rows are the columns of the factor."""
    conv = spec.convolution()
    nbytes = direct_elements(conv, schedule) * ELEMENT_SIZES[spec.types.weights]

    def pack() -> np.ndarray:
        return pack_b(constant.T if transposed else constant, spec, schedule)

    return lowering.weights.packed_later(
        constant, (transposed, direct_order(conv, schedule)), nbytes, pack
    )


def _shortened(
    lowering: Lowering,
    group: Group,
    a: Pointer | Placed,
    product: _MatrixProduct,
    spec: GemmSpec,
    base: int,
) -> Pointer:
    """The left factor minus `base` in fewer bits, each row of a length that is multiplied whole."""
    wide, kind = str(lowering.graph.types[group.root.inputs[0] or ""].dtype), spec.types.x
    row = static_size(spec.a.row)
    rows = lowering.values.scratch(ELEMENT_SIZES[kind] * product.m * row)
    narrow = trace(lambda m, x: m.convert(m.sub(x, m.const(base, wide)), kind), [wide])
    read = Access(wide, (product.a.row, product.a.col))
    loop = LoopSpec((product.m, product.k), (read,), (Access(kind, (row, 1)),), (narrow,))
    lowering.calls.call(loop, [a, rows], f"{group.label}: to {kind}")
    return rows


def _gemm_terms(
    lowering: Lowering, node: Node, spec: GemmSpec, arguments: list[Pointer | Placed]
) -> tuple[GemmSpec, Expr | None]:
    """alpha and beta * c: as the sums' start when alpha is 1, else as a part of the epilogue."""
    op = node.op
    assert isinstance(op, Gemm)
    m = TracingArith()
    kind = spec.types.sum
    scale = None if op.alpha == 1 else m.mul(Input(0, kind), Const(op.alpha, kind))
    value = node.inputs[2] if len(node.inputs) > 2 else None
    if value is None:
        return spec, scale
    c = lowering.graph.constants.get(value)
    if c is not None:
        c = c if op.beta == 1 else c * c.dtype.type(op.beta)
        n = static_size(spec.n)
        if _per_column(c, (n,)):
            columns = np.broadcast_to(c.reshape(-1), (n,))
            arguments.append(lowering.weights.packed(pack_channels(columns)))
            return dataclasses.replace(spec, bias="column"), None
        placed = lowering.weights.constant(c)
    else:
        placed = lowering.values.read_contiguous(value)
    shape = (1,) * (2 - len(placed.physical.shape)) + placed.physical.shape
    start = Matrix(0 if shape[0] == 1 else shape[1], 0 if shape[1] == 1 else 1)
    arguments.append(placed)
    return dataclasses.replace(spec, bias="matrix", start=start), None


def product_epilogue(
    lowering: Lowering, group: Group, spec: GemmSpec, extra: Expr | None = None
) -> tuple[Epilogue | None, list[Pointer | Placed]]:
    """The fused nodes' expression after `extra`, and its operands."""
    if not group.fused:
        return (None if extra is None else Epilogue(extra)), []
    chain = chain_expr(lowering.graph, group.fused, [group.root.outputs[0]])
    epilogue_operands: list[Operand] = []
    values: list[Pointer | Placed] = []
    for operand in chain.operands[1:]:
        if isinstance(operand, str):
            dtype = str(lowering.graph.types[operand].dtype)
            epilogue_operands.append(tensor_operand(spec, spec.y, dtype))
            values.append(lowering.values.read_contiguous(operand))
        else:
            columns = np.broadcast_to(operand.reshape(-1), (static_size(spec.n),))
            epilogue_operands.append(Operand("channel", dtype=columns.dtype.name))
            values.append(lowering.weights.packed(pack_channels(columns)))
    expr = chain.expr if extra is None else compose(chain.expr, {0: extra})
    return Epilogue(expr, tuple(epilogue_operands)), values
