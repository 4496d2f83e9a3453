"""Rows of a reduction being emitted: reading their elements, the expressions over them, writing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.arith import LlvmArith
from verax.compiler.kernels.llvm.builder import ELEMENT_SIZES, I32, FunctionBuilder, Index
from verax.compiler.kernels.loops.emit import (
    from_register,
    inside,
    load_strided,
    store_count,
    to_register,
)
from verax.compiler.kernels.loops.spec import Access
from verax.compiler.kernels.reduce.spec import ReduceSpec, Stage
from verax.compiler.kernels.sizes import moves
from verax.compiler.kernels.target import LANES
from verax.numerics.arith import PRIMITIVES
from verax.numerics.expr import Apply, Expr, Input, evaluate_all, input_dtypes, nodes, substitute
from verax.numerics.formats import FLOATS
from verax.numerics.reductions import SUMS, combine, identity, in_blocks, join


class Strip:
    """One row (along), or up to 16 neighboring rows (across), being emitted.

    coordinates: indices of the outer dims; rows: lanes in use when across, 0 when along.
    """

    def __init__(
        self, fb: FunctionBuilder, spec: ReduceSpec, coordinates: Sequence[Index], rows: int
    ) -> None:
        self.fb, self.spec, self.rows = fb, spec, rows
        self.arith = LlvmArith(fb)
        self.n, self.outer = len(spec.inputs), len(spec.outer)
        self.first_element = self.n + len(spec.row_outputs)
        row_accesses = [a for a, _ in spec.row_outputs]
        element_accesses = [a for a, _ in spec.element_outputs]
        self.base = [
            self._at_outer(a, p, coordinates)
            for a, p in zip((*spec.inputs, *row_accesses, *element_accesses), fb.args, strict=True)
        ]
        self.reused_final = _final_over_last_stage(spec)
        self.results: list[ir.Value] = []
        self.fixed: dict[int, ir.Value] = {}
        self.hoisted: list[ir.Value] = []
        for index, access in enumerate(spec.inputs):
            if not moves(access.strides[self.outer :]):
                stride = access.strides[self.outer - 1] if rows else 0
                value = load_strided(fb, self.base[index], stride, access.dtype, rows or LANES)
                self.fixed[index] = to_register(fb, value, access.dtype)

    def _at_outer(
        self, access: Access, pointer: ir.Value, coordinates: Sequence[Index]
    ) -> ir.Value:
        terms = [(c, s) for c, s in zip(coordinates, access.strides[: self.outer], strict=True)]
        return self.fb.at(pointer, access.offset, *terms, dtype=access.dtype)

    # --- elements of the row

    def _pointer(self, argument: int, access: Access, k: Index) -> ir.Value:
        """Pointer to element k of the row, of the kernel argument of that index."""
        strides = access.strides[self.outer :]
        coordinates = self.fb.split(k, *self.spec.reduced[1:]) if len(strides) > 1 else [k]
        terms = list(zip(coordinates, strides, strict=False))
        return self.fb.at(self.base[argument], *terms, dtype=access.dtype)

    def _contiguous(self) -> bool:
        """Whether 16 elements from a multiple of 16 on lie in one stride."""
        return len(self.spec.reduced) <= 1 or self.spec.reduced[-1] % LANES == 0

    def _crosses(self, access: Access) -> bool:
        """Whether 16 elements lie in two lines of the last dim, each a run or one element."""
        line = self.spec.reduced[-1] if len(self.spec.reduced) > 1 else 0
        has_masked_access = (
            ELEMENT_SIZES[access.dtype] >= 4
        )  # narrower ones have no masked instructions
        return (
            not self._contiguous()
            and isinstance(line, int)  # one that is read at run time may be shorter
            and line >= LANES
            and access.strides[-1] in (0, 1)
            and has_masked_access
        )

    def _lines(
        self, argument: int, access: Access, k: Index, count: Index
    ) -> Iterator[tuple[ir.Value, ir.Value]]:
        """(mask, pointer to lane 0) of the elements in the line of element k, and in the next."""
        fb, b = self.fb, self.fb.b
        *lines, size = self.spec.reduced
        line, column = fb.split(k, size)
        left = fb.iadd(size, fb.imul(column, -1))
        here = fb.first(fb.clamp(left, 0, count))
        strides = access.strides[self.outer :]
        for step, start, mask in (
            (0, column, here),
            (1, fb.imul(left, -1), b.and_(b.not_(here), fb.first(count))),
        ):
            line_index = fb.clamp(fb.iadd(line, step), 0, math.prod(lines) - 1)
            line_indices = fb.split(line_index, *lines[1:])
            terms = [*zip(line_indices, strides[:-1], strict=True), (start, strides[-1])]
            yield mask, fb.at(self.base[argument], *terms, dtype=access.dtype)

    def load(self, argument: int, access: Access, k: Index, count: Index) -> ir.Value:
        fb = self.fb
        if self.rows:
            stride = access.strides[self.outer - 1]
            pointer = self._pointer(argument, access, k)
            value = load_strided(fb, pointer, stride, access.dtype, self.rows)
        elif self._contiguous():
            pointer = self._pointer(argument, access, k)
            value = load_strided(fb, pointer, access.strides[-1], access.dtype, count)
        elif self._crosses(access):
            value = ir.Constant(fb.vector_type(access.dtype), None)
            for mask, pointer in self._lines(argument, access, k, count):
                if access.strides[-1]:
                    value = fb.load_masked(pointer, mask, value, access.dtype)
                else:
                    value = fb.b.select(mask, fb.broadcast(pointer, access.dtype), value)
        else:
            value = ir.Constant(fb.vector_type(access.dtype), None)
            for lane in range(count if isinstance(count, int) else LANES):
                last = count if isinstance(count, int) else fb.iadd(count, -1)
                at = lane if isinstance(count, int) else fb.clamp(last, 0, lane)
                pointer = self._pointer(argument, access, fb.iadd(k, at))
                one = fb.load(pointer, access.dtype, lanes=0)
                value = fb.b.insert_element(value, one, ir.Constant(I32, lane))
        return to_register(fb, value, access.dtype)

    def store(self, argument: int, access: Access, k: Index, value: ir.Value, count: Index) -> None:
        fb = self.fb
        value = from_register(fb, value, access.dtype)
        stride = access.strides[self.outer - 1] if self.rows else access.strides[-1]
        if (self.rows or self._contiguous()) and stride == 1:
            store_count(fb, value, self._pointer(argument, access, k), count, access.dtype)
            return
        if not self.rows and stride == 1 and self._crosses(access):
            for mask, pointer in self._lines(argument, access, k, count):
                fb.store_masked(value, pointer, mask)
            return
        for lane in range(count if isinstance(count, int) else LANES):
            if self.rows:
                pointer = fb.at(
                    self._pointer(argument, access, k), lane * stride, dtype=access.dtype
                )
            else:
                pointer = self._pointer(argument, access, fb.iadd(k, lane))
            with nullcontext() if isinstance(count, int) else fb.when(inside(fb, lane, count)):
                fb.store(fb.b.extract_element(value, ir.Constant(I32, lane)), pointer)

    def per_row(self, index: int) -> ir.Value:
        """Of the numbering of expressions, what is the same for all of a row: in every lane when
        along, a lane a row when across."""
        return self.fixed[index] if index < self.n else self.results[index - self.n]

    def values(self, exprs: Sequence[Expr], k: Index, count: Index) -> list[ir.Value]:
        """The expressions at element k (a vector from k on when along)."""
        final_input = self.n + len(self.spec.stages)
        inputs: list[ir.Value | None] = [*[None] * (final_input + 1), *self.hoisted]
        for index in {i for e in exprs for i in input_dtypes(e)}:
            if index > final_input:
                continue
            if index == final_input:
                access = self.spec.element_outputs[0][0]
                inputs[index] = self.load(self.first_element, access, k, count)
            elif index >= self.n or index in self.fixed:
                inputs[index] = self.per_row(index)
            else:
                inputs[index] = self.load(index, self.spec.inputs[index], k, count)
        return evaluate_all(exprs, self.arith, inputs)

    def elements(self, stages: Sequence[Stage], k: Index, count: Index) -> list[ir.Value]:
        """What `stages` reduce, at element k of those that they take; that of the last of all is
        also left in the output if it is to be reused."""
        between = (stages[0].group_stride - 1) * LANES
        k = self.fb.iadd(k, self.fb.imul(self.fb.idiv(k, LANES), between)) if between else k
        values = self.values([s.element for s in stages], k, count)
        if self.reused_final is not None and len(self.results) + len(stages) == len(
            self.spec.stages
        ):
            self.store(self.first_element, self.spec.element_outputs[0][0], k, values[-1], count)
        return values

    # --- stages

    def started(self, stage: Stage, count: int) -> list[ir.Value]:
        """What so many partial results begin with. Sums of floats are no -0 if one of them begins
        with +0; the others' -0 changes no element, so that no code adds it."""
        start = self.start(stage)[0]
        if not in_blocks(stage.kind, stage.element.dtype):
            return [start] * count
        return [start, *[self.arith.const(-0.0, stage.element.dtype).value] * (count - 1)]

    def combine(self, stage: Stage, partial: ir.Value, element: ir.Value) -> ir.Value:
        """An element taken into a partial result."""
        m, dtype = self.arith, stage.element.dtype
        return m.unbind(combine(m, stage.kind, m.bind(partial, dtype), m.bind(element, dtype)))

    def join(self, stage: Stage, a: ir.Value, b: ir.Value) -> ir.Value:
        """Two partial results made one: vectors of any number of lanes, or scalars."""
        m, dtype = self.arith_of(a), stage.element.dtype
        return m.unbind(join(m, stage.kind, m.bind(a, dtype), m.bind(b, dtype)))

    def arith_of(self, value: ir.Value) -> LlvmArith:
        """The arithmetic of its number of lanes."""
        kind = value.type
        return LlvmArith(self.fb, kind.count if isinstance(kind, ir.VectorType) else 0)

    def start(self, stage: Stage) -> tuple[ir.Value, int]:
        """The identity, and how many partial results the order asks for; 0: any number."""
        kind, dtype = stage.kind, stage.element.dtype
        start = self.arith.const(identity(kind, dtype), dtype).value
        ordered = LANES if dtype in FLOATS and kind == "prod" else 0
        return start, SUMS if in_blocks(kind, dtype) else ordered


def _final_over_last_stage(spec: ReduceSpec) -> Expr | None:
    """What is written in the end, over the last stage's elements left in the output, if cheaper.

    Softmax sums e = exp(x - max) and then writes the same e / sum: the last stage leaves e in
    the output, and the final pass reads it back, as Input(inputs + stages). The output may be
    the memory of an input, so the final pass may then read nothing else that moves.
    """
    n, stages = len(spec.inputs), len(spec.stages)
    if not stages or len(spec.element_outputs) != 1:
        return None
    element = spec.stages[-1].element
    access, expr = spec.element_outputs[0]
    if not isinstance(element, Apply) or element.function in PRIMITIVES:
        return None
    if element.dtype != access.dtype:
        return None
    final = substitute(expr, {element: Input(n + stages, element.dtype)})
    moving = {i for i, a in enumerate(spec.inputs) if moves(a.strides[len(spec.outer) :])}
    return None if moving & set(input_dtypes(final)) else final


def calls(expr: Expr) -> bool:
    """Whether `expr` takes a function of many operations."""
    return any(isinstance(n, Apply) and n.function not in PRIMITIVES for n in nodes(expr))
