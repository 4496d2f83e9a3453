"""Rows that are walked in step, and what there is one of for each row: a mean, an inverse, a scale.

Along a vector, such numbers of several rows are the lanes of one (of a single row a scalar), so
that a division is one for all of them; a row's elements see its number in every lane. Of rows side
by side they are a vector anyhow.
"""

from __future__ import annotations

from collections.abc import Sequence

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.arith import LlvmArith
from verax.compiler.kernels.llvm.builder import ELEMENT_TYPES, I32, FunctionBuilder, Index
from verax.compiler.kernels.loops.emit import from_register, store_count, to_register
from verax.compiler.kernels.reduce.plan import row_constants
from verax.compiler.kernels.reduce.spec import ReduceSpec
from verax.compiler.kernels.reduce.strips import Strip
from verax.compiler.kernels.target import LANES
from verax.numerics.expr import Expr, Input, evaluate_all, input_dtypes, substitute


class Kept:
    """What stages gave of a batch of rows, in memory, between one walk through them and the next.

    rows: of a batch, at most.
    """

    def __init__(self, fb: FunctionBuilder, spec: ReduceSpec, rows: int) -> None:
        self.fb, self.spec = fb, spec
        self.dtypes = [spec.result_dtype(stage) for stage in range(len(spec.stages))]
        with fb.beginning():
            kinds = (ir.ArrayType(ELEMENT_TYPES[dtype], rows) for dtype in self.dtypes)
            self.memory = [fb.b.alloca(kind) for kind in kinds]

    def at(self, stage: int, row: Index) -> ir.Value:
        """Where the result of a stage is, of one of the batch's rows."""
        return self.fb.at(self.memory[stage], row, dtype=self.dtypes[stage])

    def put(self, stage: int, row: Index, values: ir.Value) -> None:
        """Results of neighboring rows, a lane for each."""
        self.fb.store(from_register(self.fb, values, self.dtypes[stage]), self.at(stage, row))

    def get(self, stage: int, row: Index, rows: int) -> tuple[ir.Value, list[ir.Value]]:
        """Those of neighboring rows as they were put, and by row in every lane of a vector."""
        fb, dtype = self.fb, self.dtypes[stage]
        together = fb.load(self.at(stage, row), dtype, lanes=rows)
        broadcasts = [fb.broadcast(self.at(stage, fb.iadd(row, i)), dtype) for i in range(rows)]
        return to_register(fb, together, dtype), [to_register(fb, v, dtype) for v in broadcasts]


class InStep:
    """`strips` of one reduction: a power of two of rows along a vector, or one strip across."""

    def __init__(self, strips: Sequence[Strip]) -> None:
        self.strips, self.first, self.fb = strips, strips[0], strips[0].fb
        self.spec, self.across = self.first.spec, self.first.rows > 0
        lanes = LANES if self.across else len(strips) if len(strips) > 1 else 0
        self.arith = LlvmArith(self.fb, lanes)
        self._read_values: dict[int, ir.Value] = {}
        """Values that expressions read, by expression index."""

    def recall(self, memory: Kept, row: Index, stages: int) -> None:
        """The results of the first `stages`; row: the first of these rows, in the batch."""
        for stage in range(stages):
            together, broadcasts = memory.get(stage, row, len(self.strips))
            self._read_values[self.first.n + stage] = together
            for strip, value in zip(self.strips, broadcasts, strict=True):
                strip.results.append(value)

    def keep(self, memory: Kept, row: Index, first: int) -> None:
        """Leave the results of the stages from number `first` on in memory."""
        for stage in range(first, len(self.first.results)):
            memory.put(stage, row, self._of_rows(self.first.n + stage))

    def take(self, value: ir.Value | list[ir.Value], finish: Expr | None) -> None:
        """What the next stage reduced to becomes its result, finished if that is asked. found: of
        all rows, or by row in every lane of a vector."""
        index = self.first.n + len(self.first.results)
        spread = value if isinstance(value, list) else None
        if not isinstance(value, list):
            self._read_values[index] = value
        elif finish is not None:
            self._read_values[index] = self._packed(value)
        if finish is not None:
            self._read_values[index], spread = self.values([finish])[0], None
        lanes = spread or self._lanes(self._read_values[index])
        for strip, lane in zip(self.strips, lanes, strict=True):
            strip.results.append(lane)

    def values(self, exprs: Sequence[Expr]) -> list[ir.Value]:
        """The expressions over what rows have one of."""
        numbers = {i for e in exprs for i in input_dtypes(e)}
        inputs: list[ir.Value | None] = [None] * (max(numbers, default=-1) + 1)
        for index in numbers:
            inputs[index] = self._of_rows(index)
        return evaluate_all(exprs, self.arith, inputs)

    def hoist(self, exprs: Sequence[Expr]) -> list[Expr]:
        """`exprs` with what is the same for all of a row computed once before."""
        n, stages = self.first.n, len(self.spec.stages)
        still = {*self.first.fixed, *range(n, n + stages)}
        once = row_constants(exprs, still)
        for value in self.values(once):
            for strip, lane in zip(self.strips, self._lanes(value), strict=True):
                strip.hoisted.append(lane)
        replacements = {e: Input(i, e.dtype) for i, e in enumerate(once, n + stages + 1)}
        return [substitute(e, replacements) for e in exprs]

    def write_rows(self) -> None:
        """The row outputs."""
        fb, spec = self.fb, self.spec
        values = self.values([e for _, e in spec.row_outputs])
        for index, ((access, _), value) in enumerate(
            zip(spec.row_outputs, values, strict=True), self.first.n
        ):
            value = from_register(fb, value, access.dtype)
            stride = access.strides[-1] if self.across else 0
            if stride == 1:
                store_count(fb, value, self.first.base[index], self.first.rows, access.dtype)
                continue
            for i in range(self.first.rows or len(self.strips)):
                base = self.first.base[index] if self.across else self.strips[i].base[index]
                fb.store(self._lane(value, i), fb.at(base, i * stride, dtype=access.dtype))

    def _of_rows(self, index: int) -> ir.Value:
        """Input, result or hoisted value with expression index `index`, of all rows."""
        if index not in self._read_values:
            self._read_values[index] = self._packed([strip.per_row(index) for strip in self.strips])
        return self._read_values[index]

    def _packed(self, spread: Sequence[ir.Value]) -> ir.Value:
        """The first lane of each."""
        b, zero = self.fb.b, ir.Constant(I32, 0)
        if self.across:
            return spread[0]
        scalars = [b.extract_element(value, zero) for value in spread]
        if len(scalars) == 1:
            return scalars[0]
        value: ir.Value = ir.Constant(ir.VectorType(scalars[0].type, len(scalars)), ir.Undefined)
        for i, scalar in enumerate(scalars):
            value = b.insert_element(value, scalar, ir.Constant(I32, i))
        return value

    def _lanes(self, value: ir.Value) -> list[ir.Value]:
        """By row, its lane in every lane of a vector."""
        if self.across:
            return [value]
        if len(self.strips) == 1:
            return [self.fb.splat(value)]
        return [self.fb.shuffle(value, [i] * LANES) for i in range(len(self.strips))]

    def _lane(self, value: ir.Value, i: int) -> ir.Value:
        is_scalar = not isinstance(value.type, ir.VectorType)
        return value if is_scalar else self.fb.b.extract_element(value, ir.Constant(I32, i))
