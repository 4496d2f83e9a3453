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

from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.dtypes import contraction
from verax.compiler.kernels.llvm.builder import ELEMENT_SIZES
from verax.compiler.kernels.loops.loop import Access, LoopSpec
from verax.compiler.kernels.products.gemm import GemmSpec, Matrix, PackSpec
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.products.linear import fits, packed_factor, product_epilogue
from verax.compiler.place.storage import Physical, Placed
from verax.compiler.plan.choice import Alternatives, Choice, NoKernel, Planning, plans
from verax.compiler.plan.fusion import Group
from verax.ir.graph import Node
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

    at: Placed
    steps: Steps


@dataclasses.dataclass(frozen=True)
class _Labels:
    """terms, output: the labels of every axis of the inputs and of the output. kept, summed: those
    of the output, and those that are summed, whose size is not 1. How the product is arranged; None
    of what is no product."""

    sizes: dict[str, int]
    terms: Sequence[Sequence[str]]
    output: Sequence[str]
    kept_labels: Sequence[str]
    summed: Sequence[str]
    product: _Arrangement | None = None

    def steps(self, term: Sequence[str], type_: TensorType) -> Steps:
        """Strides by label of a row-major tensor; a diagonal walks along all its axes, an axis of 1
        repeats."""
        steps: Steps = {}
        for label, size, stride in zip(term, type_.shape, Physical(type_).strides, strict=True):
            if size > 1:
                steps[label] = steps.get(label, 0) + stride
        return steps


@dataclasses.dataclass(frozen=True)
class _Arrangement:
    """A sum of products as a batch of products of matrices.

    swapped: the second input is the left factor. batch, rows, columns: labels of the output. left,
    right: the order in which a factor is copied first; None where it is read as it lies. in_place:
    the result is written as the output lies, else in the order batch, rows, columns and then put in
    order. outer, inner: sizes of the batch; steps: of left, right and result in it.
    """

    swapped: bool
    batch: Sequence[str]
    rows: Sequence[str]
    columns: Sequence[str]
    left: Sequence[str] | None
    right: Sequence[str] | None
    in_place: bool
    outer: int
    inner: int
    steps: Sequence[tuple[int, int]]


def _size(sizes: dict[str, int], labels: Sequence[str]) -> int:
    return math.prod(sizes[n] for n in labels)


def _stride(sizes: dict[str, int], labels: Sequence[str], steps: Steps) -> int | None:
    """The one stride in which `labels`, row-major, are walked; None if there is none."""
    strides = [steps.get(n, 0) for n in labels]
    for outer, inner, n in zip(strides, strides[1:], labels[1:]):
        if outer != inner * sizes[n]:
            return None
    return strides[-1] if strides else 0


def _batches(
    sizes: dict[str, int], labels: Sequence[str], tensors: Sequence[Steps]
) -> tuple[tuple[int, int], list[tuple[int, int]]] | None:
    """Batches as two axes that all walk through in one stride each; None if over two."""
    merged: list[tuple[int, list[int]]] = []
    for n in labels:
        steps, size = [t.get(n, 0) for t in tensors], sizes[n]
        if merged and merged[-1][1] == [s * size for s in steps]:
            merged[-1] = (merged[-1][0] * size, steps)
        else:
            merged.append((size, steps))
    if len(merged) > 2:
        return None
    (p, outer), (q, inner) = ([(1, [0] * len(tensors))] * 2 + merged)[-2:]
    return (p, q), list(zip(outer, inner, strict=True))


def _dense(sizes: dict[str, int], labels: Sequence[str]) -> Steps:
    """Strides by label of a new tensor with its axes in this order."""
    shape = tuple(sizes[n] for n in labels)
    return dict(zip(labels, Physical(TensorType(DType.float32, shape)).strides))


def _arranged(labels: _Labels, left: Steps, right: Steps, output: Steps) -> _Arrangement:
    """How to go about a sum of products of two tensors that lie so."""
    sizes, kept_labels, summed = labels.sizes, labels.kept_labels, labels.summed
    last = kept_labels[-1] if kept_labels else ""
    rows = [n for n in kept_labels if n not in right]
    columns = [n for n in kept_labels if n not in left]
    few_columns = last not in columns and _size(sizes, columns) < _size(sizes, rows)
    swapped = (
        last in rows or few_columns
    )  # columns of the result are neighbors; else the more the better
    if swapped:
        left, right, rows, columns = right, left, columns, rows
    batch = [n for n in kept_labels if n not in rows and n not in columns]
    orders = [*batch, *rows, *summed], [*batch, *summed, *columns], [*batch, *rows, *columns]
    down, across = _stride(sizes, rows, output), _stride(sizes, columns, output)
    in_place = down is not None and across is not None and (not columns or across == 1)
    in_place = in_place and _batches(sizes, batch, [output]) is not None
    y = output if in_place else _dense(sizes, orders[2])
    left_has_all = all(n in left for n in summed)
    copied_left = not left_has_all or None in (
        _stride(sizes, rows, left),
        _stride(sizes, summed, left),
    )
    copied_right = None in (_stride(sizes, summed, right), _stride(sizes, columns, right))
    left = _dense(sizes, orders[0]) if copied_left else left
    right = _dense(sizes, orders[1]) if copied_right else right
    batch_steps = _batches(sizes, batch, [left, right, y])
    if batch_steps is None:  # each walks through the batches in another way
        copied_left, copied_right, in_place = True, True, False
        batch_steps = _batches(sizes, batch, [_dense(sizes, order) for order in orders])
    assert batch_steps is not None
    (outer, inner), steps = batch_steps
    return _Arrangement(
        swapped, batch, rows, columns, orders[0] if copied_left else None,
        orders[1] if copied_right else None, in_place, outer, inner, steps,
    )  # fmt: skip


def plan_einsum(planning: Planning, node: Node) -> Alternatives:
    """A product, or a copy or product of elements; its detail: the labels. An epilogue is taken by
    a product that is written at once in its place."""
    graph, op = planning.graph, node.op
    assert isinstance(op, Einsum)
    types = [graph.types[v or ""] for v in node.inputs]
    if any(0 in t.shape for t in types):
        return NoKernel("nothing to add")
    terms, output = op.axis_labels([t.rank for t in types])
    sizes: dict[str, int] = {}
    for term, type_ in zip(terms, types, strict=True):
        for label, size in zip(term, type_.shape, strict=True):
            sizes[label] = max(size, sizes.get(label, 1))
    moves = len(terms) == 1 and set(terms[0]) == set(output)
    if not moves and (types[0].dtype not in WIDE or not products_in_order(terms)):
        return NoKernel(
            "the order of its sums is free: two inputs of float32 or float64, no label twice in one"
        )
    kept_labels = [label for label in output if sizes[label] > 1]
    summed = [label for label in summed_labels(terms, kept_labels) if sizes[label] > 1]
    labels = _Labels(sizes, terms, output, kept_labels, summed)
    if moves or not summed:
        return planning.refused(node, LoopSpec) or (Choice("loop over labels", detail=labels),)
    left, right = (labels.steps(term, type_) for term, type_ in zip(terms, types, strict=True))
    result = labels.steps(output, graph.types[node.outputs[0]])
    product = _arranged(labels, left, right, result)
    refused = planning.refused(node, GemmSpec, PackSpec)
    if refused is not None:
        return refused
    fuses = product.in_place and len(product.columns) == 1
    return (
        Choice(
            "product",
            takes_epilogue=fuses,
            spec=GemmSpec,
            detail=dataclasses.replace(labels, product=product),
        ),
    )


@plans(Einsum, plan=plan_einsum, fits=fits)
def place_einsum(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Copies, packing, the product, a copy."""
    node, labels = group.root, choice.detail
    types = [lowering.graph.types[v or ""] for v in node.inputs]
    inputs = [
        _Tensor(lowering.values.read_contiguous(v or ""), labels.steps(term, type_))
        for v, term, type_ in zip(node.inputs, labels.terms, types, strict=True)
    ]
    output_type = lowering.graph.types[group.output]
    output = _Tensor(
        lowering.values.write_contiguous(group.output), labels.steps(labels.output, output_type)
    )
    if labels.product is None:
        dtype = str(types[0].dtype)
        _loop(lowering, labels.kept_labels, labels.sizes, inputs, output, dtype, group.label)
    else:
        constants = [lowering.graph.constants.get(v or "") for v in node.inputs]
        _EinsumProduct(lowering, labels, labels.product, group).emit(inputs, constants, output)


def _loop(
    lowering: Lowering,
    labels: Sequence[str],
    sizes: dict[str, int],
    inputs: Sequence[_Tensor],
    output: _Tensor,
    dtype: str,
    text: str,
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
    lowering.calls.call(spec, [*(t.at for t in inputs), output.at], text)


class _EinsumProduct:
    """A sum of products, placed: labels in groups, each walked in one stride by who has it."""

    def __init__(
        self, lowering: Lowering, labels: _Labels, arrangement: _Arrangement, group: Group
    ) -> None:
        self.lowering, self.sizes, self.group = lowering, labels.sizes, group
        self.label, self.kept_labels, self.summed = group.label, labels.kept_labels, labels.summed
        self.arrangement = arrangement
        types = lowering.graph.types
        self.kind = str(types[group.root.outputs[0]].dtype)
        self.stored = str(types[group.output].dtype)

    def emit(
        self, inputs: Sequence[_Tensor], constants: Sequence[np.ndarray | None], output: _Tensor
    ) -> None:
        """Append the calls. constants: the inputs' values where they are constants."""
        arrangement = self.arrangement
        rows, columns = arrangement.rows, arrangement.columns
        left, right = inputs[::-1] if arrangement.swapped else inputs
        value = constants[0] if arrangement.swapped else constants[1]
        constant = (
            None if arrangement.batch else self._constant(right, value, [*self.summed, *columns])
        )
        y = output if arrangement.in_place else self._dense([*arrangement.batch, *rows, *columns])
        left = left if arrangement.left is None else self._copied(left, arrangement.left)
        right = right if arrangement.right is None else self._copied(right, arrangement.right)

        def matrix(t: _Tensor, down: Sequence[str], across: Sequence[str], index: int) -> Matrix:
            row, col = (_stride(self.sizes, labels, t.steps) or 0 for labels in (down, across))
            return Matrix(row, col, *arrangement.steps[index])

        stored = self.stored if arrangement.in_place else self.kind
        written = dataclasses.replace(matrix(y, rows, columns, 2), col=1)
        m, n, k = (_size(self.sizes, labels) for labels in (rows, columns, self.summed))
        spec = GemmSpec(
            m, n, k, matrix(left, rows, self.summed, 0), written,
            arrangement.outer, arrangement.inner,
            constant_b=constant is not None, types=contraction(self.kind, self.kind, stored),
        )  # fmt: skip
        self._call(spec, left, right, matrix(right, self.summed, columns, 1), constant, y)
        if not arrangement.in_place:
            _loop(
                self.lowering,
                self.kept_labels,
                self.sizes,
                [y],
                output,
                self.kind,
                f"{self.label}: order",
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
        schedule = lowering.calls.schedule(spec)
        assert isinstance(schedule, ConvSchedule)
        if constant is not None and spec.constant_b:
            packed = packed_factor(lowering, constant, spec, schedule)
        else:
            size = ELEMENT_SIZES[self.kind] * spec.outer * spec.inner * spec.packed_elements
            packed = lowering.values.scratch(size)
            lowering.calls.call(
                PackSpec(spec, b), [right.at, packed], f"{self.label}: pack", schedule
            )
        lowering.calls.call(spec, [left.at, packed, *values, y.at], self.label, schedule)

    def _dense(self, labels: Sequence[str]) -> _Tensor:
        """A new tensor with its axes in this order."""
        shape = tuple(self.sizes[n] for n in labels)
        placed = self.lowering.values.allocate(Physical(TensorType(DType(self.kind), shape)))
        return _Tensor(placed, _dense(self.sizes, labels))

    def _copied(self, t: _Tensor, labels: Sequence[str]) -> _Tensor:
        copy = self._dense(labels)
        _loop(self.lowering, labels, self.sizes, [t], copy, self.kind, f"{self.label}: order")
        return copy

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
