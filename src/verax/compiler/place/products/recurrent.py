"""RNN, GRU and LSTM: one product over the whole sequence, then per step a product and its loops.

The operator's own `step` is run over `Emitting`, whose values lie in memory or are expressions over
what does; a product brings its factor into memory first. The same few kernels are called for every
step, on other places.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.compiler.kernels.convolution.pack import pack_channels
from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.dtypes import contraction
from verax.compiler.kernels.llvm.builder import ELEMENT_SIZES
from verax.compiler.kernels.loops.loop import Access, LoopSpec
from verax.compiler.kernels.products.gemm import GemmSpec, Matrix, pack_b
from verax.compiler.kernels.sizes import Size, static_size
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.reduce.reduction import one_float
from verax.compiler.place.storage import Placed, Pointer
from verax.compiler.plan.choice import Alternatives, Choice, NoKernel, Planning, plans
from verax.compiler.plan.fusion import Group
from verax.ir.dim import same
from verax.ir.graph import Node
from verax.numerics.expr import Expr, Input, TracingArith, compose
from verax.ops.pointwise.elementwise import Elementwise
from verax.ops.recurrent.recurrent import (
    CELL,
    GRU,
    HIDDEN,
    LENGTHS,
    LSTM,
    PROJECTION_BIAS,
    RNN,
    WEIGHTS,
    Recurrent,
    X,
)
from verax.ops.recurrent.recurrent_arithmetic import StepOps

MOST_STEPS = 256
"""Steps whose kernel calls are written out; more, and those of an open number, are a loop."""


@dataclasses.dataclass(frozen=True)
class Spot:
    """Numbers [batch, columns] in memory: distance in elements between rows (0: one row for all);
    columns are neighbors."""

    pointer: Pointer
    row: Size
    dtype: str

    def moving(self, elements: Size) -> Spot:
        """So many elements further at each run of a loop."""
        step = ELEMENT_SIZES[self.dtype] * elements
        return dataclasses.replace(self, pointer=dataclasses.replace(self.pointer, step=step))

    def at_offset(self, elements: Size) -> Spot:
        offset = self.pointer.byte_offset + ELEMENT_SIZES[self.dtype] * elements
        return dataclasses.replace(
            self, pointer=dataclasses.replace(self.pointer, byte_offset=offset)
        )


@dataclasses.dataclass(frozen=True)
class StepValue:
    """`expr` over what lies at `spots` (input i at spot i), [batch, columns]."""

    expr: Expr
    spots: tuple[Spot, ...]
    columns: int

    @classmethod
    def at(cls, spot: Spot, columns: int) -> StepValue:
        return cls(Input(0, spot.dtype), (spot,), columns)

    @property
    def spot(self) -> Spot | None:
        """Where it lies, None while it is yet to be computed."""
        return self.spots[0] if isinstance(self.expr, Input) else None


@dataclasses.dataclass(frozen=True)
class Bias:
    """What sums start from, one number per column."""

    array: np.ndarray


class Emitting(StepOps[Any]):
    """A step as kernel calls; `batch` rows of `dtype`, float32 or float64."""

    def __init__(self, lowering: Lowering, batch: Size, dtype: str, label: str) -> None:
        self.lowering, self.batch, self.dtype, self.label = lowering, batch, dtype, label
        self.arith = TracingArith()
        self.scratch: dict[tuple[int, int], Pointer] = {}
        self.used = 0
        self.packed: dict[tuple[Any, ...], Pointer] = {}

    def next_step(self) -> None:
        """What the step before had in scratch memory is no longer needed."""
        self.used = 0

    def _fresh(self, columns: int) -> Spot:
        key = (self.used, columns)
        self.used += 1
        if key not in self.scratch:
            size = ELEMENT_SIZES[self.dtype] * self.batch * columns
            self.scratch[key] = self.lowering.values.scratch(size)
        return Spot(self.scratch[key], columns, self.dtype)

    def _once(self, array: np.ndarray, key: Sequence[Any], pack: Any) -> Pointer:
        """Packed weights, made once for all steps."""
        full_key = (array.__array_interface__["data"][0], array.shape, *key)
        if full_key not in self.packed:
            self.packed[full_key] = self.lowering.weights.packed(pack())
        return self.packed[full_key]

    def store(self, *targets_of_values: tuple[StepValue, Spot]) -> None:
        """Compute values of the same size into memory, in one loop."""
        exprs, spots = _merged([value for value, _ in targets_of_values])
        columns = targets_of_values[0][0].columns
        inputs = tuple(Access(s.dtype, (s.row, 1)) for s in spots)
        outputs = tuple(Access(target.dtype, (target.row, 1)) for _, target in targets_of_values)
        spec = LoopSpec((self.batch, columns), inputs, outputs, tuple(exprs))
        pointers = [s.pointer for s in (*spots, *(target for _, target in targets_of_values))]
        self.lowering.calls.call(spec, pointers, self.label)

    def exact_input(self, x: Any) -> Any:
        return x

    def bias(self, first: Any, second: Any) -> Bias:
        return Bias(first + second)

    def take(self, x: StepValue, index: Any) -> StepValue:
        """Columns alone; steps are taken by whoever runs them."""
        columns = index[-1]
        shifted_spots = tuple(s.at_offset(columns.start) for s in x.spots)
        return StepValue(x.expr, shifted_spots, columns.stop - columns.start)

    def product(self, x: StepValue, matrix: np.ndarray, start: Any) -> StepValue:
        if x.spot is None:
            target = self._fresh(x.columns)
            self.store((x, target))
            x = StepValue.at(target, x.columns)
        y = self._fresh(len(matrix))
        assert x.spot is not None
        self.multiply(x.spot, self.batch, matrix, start, y)
        return StepValue.at(y, len(matrix))

    def multiply(
        self, x: Spot, rows: Size, matrix: np.ndarray, start: StepValue | Bias, y: Spot
    ) -> None:
        """y = start + x @ matrix.T, `rows` rows."""
        n, k = matrix.shape
        types = contraction(self.dtype, self.dtype, self.dtype)
        spec = GemmSpec(rows, n, k, Matrix(x.row, 1), Matrix(y.row, 1), types=types)
        if isinstance(start, Bias):
            spec = dataclasses.replace(spec, bias="column")
            begin = self.lowering.weights.packed(pack_channels(np.ascontiguousarray(start.array)))
        else:
            assert start.spot is not None
            spec = dataclasses.replace(spec, bias="matrix", start=Matrix(start.spot.row, 1))
            begin = start.spot.pointer
        schedule = self.lowering.calls.schedule(spec)
        assert isinstance(schedule, ConvSchedule)
        right = self._once(matrix, (schedule,), lambda: pack_b(matrix.T, spec, schedule))
        self.lowering.calls.call(spec, [x.pointer, right, begin, y.pointer], self.label, schedule)

    def _apply(self, primitive: str, *values: StepValue) -> StepValue:
        exprs, spots = _merged(values)
        return StepValue(self.arith.primitive(primitive, tuple(exprs)), spots, values[0].columns)

    def along(self, total: StepValue, vector: np.ndarray, x: StepValue) -> StepValue:
        pointer = self._once(vector, ("row",), lambda: np.asarray(vector))
        return self._apply("fma", StepValue.at(Spot(pointer, 0, self.dtype), len(vector)), x, total)

    def mul(self, a: StepValue, b: StepValue) -> StepValue:
        return self._apply("mul", a, b)

    def add(self, a: StepValue, b: StepValue) -> StepValue:
        return self._apply("add", a, b)

    def complement(self, a: StepValue) -> StepValue:
        one = self.arith.const(1, self.dtype)
        return dataclasses.replace(a, expr=self.arith.sub(one, a.expr))

    def blend(self, z: StepValue, a: StepValue, b: StepValue) -> StepValue:
        return self.add(self.mul(self.complement(z), a), self.mul(z, b))

    def curve(self, op: Elementwise, x: StepValue) -> StepValue:
        expression = op.expression([self.dtype])
        assert expression is not None
        return dataclasses.replace(x, expr=compose(expression, {0: x.expr}))

    def clip(self, x: StepValue, limit: float | None) -> StepValue:
        if limit is None:
            return x
        low, high = (self.arith.const(v, self.dtype) for v in (-limit, limit))
        return dataclasses.replace(x, expr=self.arith.min(self.arith.max(x.expr, low), high))

    def choose(self, mask: Any, a: StepValue, b: StepValue | None) -> StepValue:
        raise NotImplementedError


def _merged(values: Sequence[StepValue]) -> tuple[list[Expr], tuple[Spot, ...]]:
    """The values' expressions over one list of spots."""
    spots = tuple(dict.fromkeys(s for v in values for s in v.spots))
    exprs = []
    for v in values:
        numbers = {i: Input(spots.index(s), s.dtype) for i, s in enumerate(v.spots)}
        exprs.append(compose(v.expr, numbers))
    return exprs, spots


def plan_recurrent(planning: Planning, node: Node) -> Alternatives:
    """One alternative."""
    graph, op, names = planning.graph, node.op, _all_inputs(node)
    assert isinstance(op, Recurrent)
    if names[LENGTHS] is not None:
        return NoKernel("sequences of lengths of their own run on the reference")
    types = [t for t in graph.input_types(node) if t is not None]
    if not one_float([*types, *graph.output_types(node)]):
        return NoKernel("recurrent layers take float32 or float64, throughout")
    if any(names[i] is not None and names[i] not in graph.constants for i in WEIGHTS):
        return NoKernel("weights that are computed run on the reference")
    return planning.refused(node, GemmSpec, LoopSpec) or (Choice("recurrent layer"),)


def _all_inputs(node: Node) -> tuple[str | None, ...]:
    """The inputs, None for those that are left out at the end."""
    return (*node.inputs, *[None] * (PROJECTION_BIAS + 1 - len(node.inputs)))


@plans(RNN, GRU, LSTM, plan=plan_recurrent)
def place_recurrent(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Each direction in turn; outputs serve as the memory of the states."""
    graph, node = lowering.graph, group.root
    op = node.op
    assert isinstance(op, Recurrent)
    names = _all_inputs(node)
    constants = {i: graph.constants.get(v or "") for i, v in enumerate(names)}
    dtype = str(graph.types[node.outputs[0]].dtype)
    shape = graph.types[str(names[X])].shape
    batch, steps = shape[:2] if op.layout else shape[1::-1]
    x = lowering.values.read_contiguous(str(names[X]))
    outputs = [lowering.values.write_contiguous(v) for v in node.outputs]
    for d, (backwards, curves) in enumerate(zip(op.backwards, op.curves())):
        own = op._weights(d, curves, *(constants[i] for i in WEIGHTS))
        work = Emitting(lowering, batch, dtype, group.label)
        rows = len(own.w)
        size = ELEMENT_SIZES[dtype] * steps * batch * rows
        gates = Spot(lowering.values.scratch(size), rows, dtype)
        start = work.bias(own.b, op.joined_bias(own))
        work.multiply(Spot(x.pointer, shape[2], dtype), steps * batch, own.w, start, gates)
        sizes = [graph.types[v].shape[-1] for v in node.outputs[1:]]
        ends = [_state(op, placed, d, batch, n) for placed, n in zip(outputs[1:], sizes)]
        state = tuple(
            StepValue.at(_initial(lowering, op, names[i], d, batch, n, dtype), n)
            for i, n in zip((HIDDEN, CELL), sizes)
        )
        if op.layout:
            gates, between = dataclasses.replace(gates, row=steps * rows), rows
        else:
            between = batch * rows
        y = _step(op, outputs[0], d, steps, batch, sizes[0])
        apart = (op.directions if op.layout else batch * op.directions) * sizes[0]
        direction = _Direction(op, work, own, rows, ends, (gates, between), (y, apart))
        work.store((direction.run(state, steps, backwards), ends[0]))


@dataclasses.dataclass(frozen=True)
class _Direction:
    """The steps of one direction. ends: where the states lie behind the last step; gates, y: what
    products give at step 0 and where its output goes, and elements from a step to the next."""

    op: Recurrent
    work: Emitting
    own: Any
    rows: int
    ends: Sequence[Spot]
    gates: tuple[Spot, Size]
    y: tuple[Spot, Size]

    def run(self, state: tuple[StepValue, ...], steps: Size, backwards: bool) -> StepValue:
        """Append the calls of all steps; where the last one's output lies."""
        is_moved = not same(self.y[0].pointer.step, 0)  # in a loop around
        steps = static_size(steps) if is_moved else steps
        first, ahead = (steps - 1, -1) if backwards else (0, 1)
        if isinstance(steps, int) and (steps <= MOST_STEPS or is_moved):
            for i in range(steps):
                state = self._step(state, first + ahead * i)
            return state[0]
        state = self._step(state, first)
        columns = state[0].columns
        with self.work.lowering.calls.repeated(steps - 1, self.work.label):
            before = self._at(self.y, first).moving(ahead * self.y[1])
            self._step((StepValue.at(before, columns), *state[1:]), first + ahead, ahead)
        return StepValue.at(self._at(self.y, steps - 1 - first), columns)

    def _at(self, value: tuple[Spot, Size], step: Size) -> Spot:
        spot, between = value
        return spot.at_offset(step * between)

    def _step(
        self, state: tuple[StepValue, ...], step: Size, ahead: int = 0
    ) -> tuple[StepValue, ...]:
        """A step, or in a loop those from `step` on, one more or one less at each run."""
        work = self.work
        work.next_step()
        gates, y = self._at(self.gates, step), self._at(self.y, step)
        if ahead:
            gates, y = gates.moving(ahead * self.gates[1]), y.moving(ahead * self.y[1])
        new_state = self.op.step(work, self.own, StepValue.at(gates, self.rows), state)
        # The output depends on the cell's new value, and may have another size (a projection).
        targets = [y, *self.ends[1:]]
        if len({v.columns for v in new_state}) == 1:
            work.store(*zip(new_state, targets))
        else:
            for value, target in zip(new_state[::-1], targets[::-1]):
                work.store((value, target))
        return tuple(StepValue.at(s, v.columns) for v, s in zip(new_state, targets))


def _initial(
    lowering: Lowering, op: Recurrent, name: str | None, d: int, batch: Size, size: int, dtype: str
) -> Spot:
    """One direction of an initial state as it is given; where it is not, a row of zeros for all."""
    if name is not None:
        return _state(op, lowering.values.read_contiguous(name), d, batch, size)
    zeros = np.zeros(size, np.dtype(dtype))
    return Spot(lowering.weights.constant(zeros).pointer, 0, dtype)


def _state(op: Recurrent, placed: Placed, d: int, batch: Size, size: int) -> Spot:
    """One direction of states [D, N, size], or of [N, D, size]."""
    dtype = str(placed.physical.type.dtype)
    if op.layout:
        return Spot(placed.pointer, op.directions * size, dtype).at_offset(d * size)
    return Spot(placed.pointer, size, dtype).at_offset(d * batch * size)


def _step(op: Recurrent, y: Placed, d: int, steps: Size, batch: Size, size: int) -> Spot:
    """Step 0 of one direction of [T, D, N, size], or of [N, T, D, size]."""
    dtype = str(y.physical.type.dtype)
    if op.layout:
        return Spot(y.pointer, steps * op.directions * size, dtype).at_offset(d * size)
    return Spot(y.pointer, size, dtype).at_offset(d * batch * size)
