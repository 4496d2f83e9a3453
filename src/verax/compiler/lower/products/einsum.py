"""Einsum as what it is: a strided copy of one tensor, an elementwise product of two, or a batched
product of matrices.

Two float32 inputs are promised one multiply-add per product, from +0, the summed labels running in
row-major order: the order of a matrix product whose k is those labels together. Labels of both
inputs and the output are batches, those of one input and the output rows or columns. Where a group
of labels does not lie in one stride its tensor is copied first.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from verax.compiler.decide.fusion import Group
from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.dtypes import contraction
from verax.compiler.kernels.llvm.builder import ELEMENT_SIZES
from verax.compiler.kernels.loops.loop import Access, LoopSpec
from verax.compiler.kernels.products.gemm import GemmSpec, Matrix, PackSpec
from verax.compiler.kernels.sizes import known
from verax.compiler.lower.lowering import Lowering, NoKernel, is_static, lowers
from verax.compiler.lower.products.linear import fits, packed_factor, product_epilogue
from verax.compiler.lower.storage import Physical, Placed, Pointer
from verax.ir.graph import Graph, Node
from verax.ir.types import DType, TensorType
from verax.numerics.expr import Expr, Input, TracingArith
from verax.ops.sums.einsum import Einsum, products_in_order, summed_labels

WIDE = (DType.float32, DType.float64)
M = TracingArith()
Steps = dict[str, int]
"""Distance in elements along each label; a label that is not there repeats."""


@dataclasses.dataclass(frozen=True)
class _Tensor:
    """Where an operand lies."""

    at: Placed | Pointer
    steps: Steps


def is_product(graph: Graph, node: Node) -> bool:
    """Whether it may be a product whose kernel can apply an expression to its result."""
    if not isinstance(node.op, Einsum) or not is_static(graph, node) or len(node.inputs) != 2:
        return False
    return all(graph.types[v or ""].dtype in WIDE for v in node.inputs)


@lowers(Einsum, epilogue=is_product, fits=fits)
def lower_einsum(lowering: Lowering, group: Group) -> None:
    """Copies, packing, the product, a copy. What is fused wants a product that is written at once
    in its place."""
    graph, node = lowering.graph, group.root
    op = node.op
    assert isinstance(op, Einsum)
    types = [graph.types[v or ""] for v in node.inputs]
    if any(0 in t.shape for t in types):
        raise NoKernel("nothing to add")
    terms, kept = op.axis_labels([t.rank for t in types])
    sizes: dict[str, int] = {}
    for term, type_ in zip(terms, types, strict=True):
        for label, size in zip(term, type_.shape, strict=True):
            sizes[label] = max(size, sizes.get(label, 1))
    moves = len(terms) == 1 and set(terms[0]) == set(kept)
    if not moves and (types[0].dtype not in WIDE or not products_in_order(terms)):
        raise NoKernel(
            "the order of its sums is free: two inputs of float32 or float64, no label twice in one"
        )
    inputs = [
        _Tensor(p := lowering.read(v or ""), _steps(t, p.physical, sizes))
        for v, t in zip(node.inputs, terms, strict=True)
    ]
    y = lowering.write_contiguous(group.output)
    output = _Tensor(y, _steps(kept, y.physical, sizes))
    kept = [label for label in kept if sizes[label] > 1]
    summed = [label for label in summed_labels(terms, kept) if sizes[label] > 1]
    if group.fused and (moves or not summed):
        raise NoKernel("it is no product")
    if moves or not summed:
        _loop(lowering, kept, sizes, inputs, output, str(types[0].dtype), group.label)
    else:
        given = [lowering.graph.constants.get(v or "") for v in node.inputs]
        _Product(lowering, sizes, kept, summed, group).emit(inputs, given, output)


def _steps(term: Sequence[str], physical: Physical, sizes: dict[str, int]) -> Steps:
    """Strides by label; a diagonal walks along all its axes, an axis of 1 repeats."""
    steps: Steps = {}
    for label, size, stride in zip(term, physical.shape, physical.strides, strict=True):
        if size > 1:
            steps[label] = steps.get(label, 0) + stride
    return steps


def _loop(
    lowering: Lowering,
    labels: Sequence[str],
    sizes: dict[str, int],
    inputs: Sequence[_Tensor],
    output: _Tensor,
    dtype: str,
    what: str,
) -> None:
    """One element in each for one out: a copy, or a product added to +0."""
    accesses = [
        Access(dtype, tuple(t.steps.get(label, 0) for label in labels)) for t in (*inputs, output)
    ]
    result: Expr = Input(0, dtype)
    if len(inputs) == 2:
        result = M.fma(result, Input(1, dtype), M.const(0.0, dtype))
    dims = tuple(sizes[label] for label in labels)
    spec = LoopSpec(dims, tuple(accesses[:-1]), (accesses[-1],), (result,))
    lowering.call(spec, [*(t.at for t in inputs), output.at], what)


class _Product:
    """A sum of products: labels in groups, each to be walked in one stride by who has it."""

    def __init__(
        self,
        lowering: Lowering,
        sizes: dict[str, int],
        kept: Sequence[str],
        summed: Sequence[str],
        group: Group,
    ) -> None:
        self.lowering, self.sizes, self.group = lowering, sizes, group
        self.what = group.label
        self.kept, self.summed = kept, summed
        types = lowering.graph.types
        self.kind = str(types[group.root.outputs[0]].dtype)
        self.stored = str(types[group.output].dtype)

    def emit(
        self, inputs: Sequence[_Tensor], given: Sequence[np.ndarray | None], output: _Tensor
    ) -> None:
        """The calls. given: the inputs' values where they are constants."""
        left, right = inputs
        last = self.kept[-1] if self.kept else ""
        rows = [n for n in self.kept if n not in right.steps]
        columns = [n for n in self.kept if n not in left.steps]
        few = last not in columns and self._size(columns) < self._size(rows)
        if last in rows or few:  # columns of the result are neighbours; else the more the better
            left, right, rows, columns, given = right, left, columns, rows, given[::-1]
        batch = [n for n in self.kept if n not in rows and n not in columns]
        constant = None if batch else self._constant(right, given[1], [*self.summed, *columns])
        y, down, across = output, self._stride(rows, output), self._stride(columns, output)
        apart = down is None or across is None or (columns and across != 1)
        if apart or self._batches(batch, [y]) is None:
            y = self._dense([*batch, *rows, *columns])
        whole = all(n in left.steps for n in self.summed)
        if not whole or self._stride(rows, left) is None or self._stride(self.summed, left) is None:
            left = self._copied(left, [*batch, *rows, *self.summed])
        if self._stride(self.summed, right) is None or self._stride(columns, right) is None:
            right = self._copied(right, [*batch, *self.summed, *columns])
        found = self._batches(batch, [left, right, y])
        if found is None:  # each walks through the batches in another way
            left = self._copied(left, [*batch, *rows, *self.summed])
            right = self._copied(right, [*batch, *self.summed, *columns])
            y = self._dense([*batch, *rows, *columns])
            found = self._batches(batch, [left, right, y])
        assert found is not None
        (outer, inner), by = found

        def matrix(t: _Tensor, down: Sequence[str], across: Sequence[str], which: int) -> Matrix:
            return Matrix(self._stride(down, t) or 0, self._stride(across, t) or 0, *by[which])

        stored = self.stored if y is output else self.kind
        written = dataclasses.replace(matrix(y, rows, columns, 2), col=1)
        spec = GemmSpec(
            self._size(rows), self._size(columns), self._size(self.summed),
            matrix(left, rows, self.summed, 0), written, outer, inner,
            constant_b=constant is not None, types=contraction(self.kind, self.kind, stored),
        )  # fmt: skip
        if self.group.fused and (y is not output or len(columns) != 1):
            raise NoKernel("the product is put in order afterwards")
        self._call(spec, left, right, matrix(right, self.summed, columns, 1), constant, y)
        if y is not output:
            _loop(
                self.lowering, self.kept, self.sizes, [y], output, self.kind, f"{self.what}: order"
            )

    def _call(
        self,
        spec: GemmSpec,
        left: _Tensor,
        right: _Tensor,
        b: Matrix,
        constant: np.ndarray | None,
        y: _Tensor,
    ) -> None:
        lowering = self.lowering
        epilogue, values = product_epilogue(lowering, self.group, spec)
        spec = dataclasses.replace(spec, epilogue=epilogue)
        schedule = lowering.schedule(spec)
        assert isinstance(schedule, ConvSchedule)
        if constant is not None and spec.constant_b:
            packed = packed_factor(lowering, constant, spec, schedule)
        else:
            size = ELEMENT_SIZES[self.kind] * spec.outer * spec.inner * spec.packed_elements
            packed = lowering.scratch(known(size))
            lowering.call(PackSpec(spec, b), [right.at, packed], f"{self.what}: pack", schedule)
        lowering.call(spec, [left.at, packed, *values, y.at], self.what, schedule)

    def _size(self, labels: Sequence[str]) -> int:
        return math.prod(self.sizes[n] for n in labels)

    def _stride(self, labels: Sequence[str], t: _Tensor) -> int | None:
        """The one stride in which `labels`, row-major, are walked; None if there is none."""
        steps = [t.steps.get(n, 0) for n in labels]
        for outer, inner, n in zip(steps, steps[1:], labels[1:]):
            if outer != inner * self.sizes[n]:
                return None
        return steps[-1] if steps else 0

    def _batches(
        self, labels: Sequence[str], tensors: Sequence[_Tensor]
    ) -> tuple[tuple[int, int], list[tuple[int, int]]] | None:
        """Batches as two axes that all walk through in one stride each; None if over two."""
        joined: list[tuple[int, list[int]]] = []
        for n in labels:
            steps, size = [t.steps.get(n, 0) for t in tensors], self.sizes[n]
            if joined and joined[-1][1] == [s * size for s in steps]:
                joined[-1] = (joined[-1][0] * size, steps)
            else:
                joined.append((size, steps))
        if len(joined) > 2:
            return None
        (p, outer), (q, inner) = ([(1, [0] * len(tensors))] * 2 + joined)[-2:]
        return (p, q), list(zip(outer, inner, strict=True))

    def _dense(self, labels: Sequence[str]) -> _Tensor:
        """A new tensor with its axes in this order."""
        shape = tuple(self.sizes[n] for n in labels)
        placed = self.lowering.allocate(Physical(TensorType(DType(self.kind), shape)))
        return _Tensor(placed, dict(zip(labels, placed.physical.strides)))

    def _copied(self, t: _Tensor, labels: Sequence[str]) -> _Tensor:
        made = self._dense(labels)
        _loop(self.lowering, labels, self.sizes, [t], made, self.kind, f"{self.what}: order")
        return made

    def _constant(
        self, t: _Tensor, value: np.ndarray | None, labels: Sequence[str]
    ) -> np.ndarray | None:
        """What a constant tensor holds, its axes in this order."""
        if value is None:
            return None
        value = np.ascontiguousarray(value)
        steps = [value.itemsize * t.steps.get(n, 0) for n in labels]
        shape = [self.sizes[n] for n in labels]
        return np.lib.stride_tricks.as_strided(value, shape, steps)
