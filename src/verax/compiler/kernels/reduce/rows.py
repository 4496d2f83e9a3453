"""Reduction kernels: sums, means, extremes, softmax and normalisations, in the canonical order.

A `ReduceSpec` walks each row in stages. Two ways to run it give the same bits, because the order
of `numerics.reductions` is sixteen interleaved partial results: "along" makes them the lanes of
one vector (the row is contiguous), "across" makes them sixteen vectors, each holding one partial
result of sixteen neighbouring rows (the rows are interleaved, as in NCHW16c or a reduction over
channels of a planar tensor).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.arith import LlvmArith
from verax.compiler.kernels.llvm.builder import (
    ELEMENT_SIZES,
    ELEMENT_TYPES,
    I32,
    FunctionBuilder,
    Index,
    Kernel,
    ModuleBuilder,
)
from verax.compiler.kernels.loops.emit import (
    from_register,
    load_strided,
    store_count,
    to_register,
)
from verax.compiler.kernels.loops.spec import Access
from verax.compiler.kernels.reduce.plan import (
    across_dim,
    is_slow,
    outer_moved_last,
    row_constants,
    simplified,
    with_unit_reduced,
)
from verax.compiler.kernels.reduce.spec import ReduceSpec, Stage
from verax.compiler.kernels.registry import emits
from verax.compiler.kernels.target import LANES
from verax.numerics.arith import PRIMITIVES
from verax.numerics.expr import Apply, Expr, Input, evaluate_all, input_dtypes, substitute
from verax.numerics.formats import FLOATS
from verax.numerics.reductions import combine, identity

__all__ = ["ReduceSpec", "Stage", "emit_reduce"]

_ITEM_ELEMENTS = 4096  # rows are grouped until a work item holds about so many elements
_UNROLLED = 64  # rows this short in several dims, or of at most 16 elements, need no loop


@emits(ReduceSpec, dtypes=ELEMENT_TYPES)
def emit_reduce(module: ModuleBuilder, spec: ReduceSpec) -> Kernel:
    """The kernel of `spec`; the same spec gives the same kernel.

    args: a pointer per input, per row output, per element output. An element output may be the
    very memory of an input with equal strides.
    """
    n_args = len(spec.inputs) + len(spec.row_outputs) + len(spec.element_outputs)
    fb = module.kernel(spec, n_args, hint="reduce")
    if fb.finished:
        assert fb.kernel is not None
        return fb.kernel
    plain = simplified(spec)
    if spec.rows == 0:
        return fb.finish(0)
    across = across_dim(plain)
    if across is None:
        items = _emit_along(fb, plain)
    else:
        items = _emit_across(fb, outer_moved_last(plain, across))
    return fb.finish(items, spec.rows * spec.length * spec.operations, spec.bytes)


def _kept(spec: ReduceSpec) -> Expr | None:
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
    kept = substitute(expr, {element: Input(n + stages, element.dtype)})
    moving = {i for i, a in enumerate(spec.inputs) if any(a.strides[len(spec.outer) :])}
    return None if moving & set(input_dtypes(kept)) else kept


# --- emission


class _Strip:
    """One row (along), or up to 16 neighbouring rows (across), being emitted.

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
        self.kept = _kept(spec)
        self.results: list[ir.Value] = []
        self.fixed: dict[int, ir.Value] = {}
        self.hoisted: list[ir.Value] = []
        for number, access in enumerate(spec.inputs):
            if not any(access.strides[self.outer :]):
                stride = access.strides[self.outer - 1] if rows else 0
                value = load_strided(fb, self.base[number], stride, access.dtype, rows or LANES)
                self.fixed[number] = to_register(fb, value, access.dtype)

    def _at_outer(
        self, access: Access, pointer: ir.Value, coordinates: Sequence[Index]
    ) -> ir.Value:
        terms = [(c, s) for c, s in zip(coordinates, access.strides[: self.outer], strict=True)]
        return self.fb.at(pointer, access.offset, *terms, dtype=access.dtype)

    # --- elements of the row

    def _pointer(self, number: int, access: Access, k: Index) -> ir.Value:
        """Element k of the row, of the argument `number`."""
        strides = access.strides[self.outer :]
        coordinates = self.fb.split(k, *self.spec.reduced[1:]) if len(strides) > 1 else [k]
        terms = list(zip(coordinates, strides, strict=False))
        return self.fb.at(self.base[number], *terms, dtype=access.dtype)

    def _contiguous(self) -> bool:
        """Whether 16 elements from a multiple of 16 on lie in one stride."""
        return len(self.spec.reduced) <= 1 or self.spec.reduced[-1] % LANES == 0

    def _crosses(self, access: Access) -> bool:
        """Whether 16 elements lie in two lines of the last dim, each a run or one element."""
        line = self.spec.reduced[-1] if len(self.spec.reduced) > 1 else 0
        whole = ELEMENT_SIZES[access.dtype] >= 4  # narrower ones have no masked instructions
        return not self._contiguous() and line >= LANES and access.strides[-1] in (0, 1) and whole

    def _lines(
        self, number: int, access: Access, k: Index, count: int
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
            which = fb.clamp(fb.iadd(line, step), 0, math.prod(lines) - 1)
            places = fb.split(which, *lines[1:])
            terms = [*zip(places, strides[:-1], strict=True), (start, strides[-1])]
            yield mask, fb.at(self.base[number], *terms, dtype=access.dtype)

    def load(self, number: int, access: Access, k: Index, count: int) -> ir.Value:
        fb = self.fb
        if self.rows:
            stride = access.strides[self.outer - 1]
            pointer = self._pointer(number, access, k)
            value = load_strided(fb, pointer, stride, access.dtype, self.rows)
        elif self._contiguous():
            pointer = self._pointer(number, access, k)
            value = load_strided(fb, pointer, access.strides[-1], access.dtype, count)
        elif self._crosses(access):
            value = ir.Constant(fb.vector_type(access.dtype), None)
            for mask, pointer in self._lines(number, access, k, count):
                if access.strides[-1]:
                    value = fb.load_masked(pointer, mask, value, access.dtype)
                else:
                    value = fb.b.select(mask, fb.broadcast(pointer, access.dtype), value)
        else:
            value = ir.Constant(fb.vector_type(access.dtype), None)
            for lane in range(count):
                pointer = self._pointer(number, access, fb.iadd(k, lane))
                one = fb.load(pointer, access.dtype, lanes=0)
                value = fb.b.insert_element(value, one, ir.Constant(I32, lane))
        return to_register(fb, value, access.dtype)

    def store(self, number: int, access: Access, k: Index, value: ir.Value, count: int) -> None:
        fb = self.fb
        value = from_register(fb, value, access.dtype)
        stride = access.strides[self.outer - 1] if self.rows else access.strides[-1]
        if (self.rows or self._contiguous()) and stride == 1:
            store_count(fb, value, self._pointer(number, access, k), count, access.dtype)
            return
        if not self.rows and stride == 1 and self._crosses(access):
            for mask, pointer in self._lines(number, access, k, count):
                fb.store_masked(value, pointer, mask)
            return
        for lane in range(count):
            if self.rows:
                pointer = fb.at(self._pointer(number, access, k), lane * stride, dtype=access.dtype)
            else:
                pointer = self._pointer(number, access, fb.iadd(k, lane))
            fb.store(fb.b.extract_element(value, ir.Constant(I32, lane)), pointer)

    def values(self, exprs: Sequence[Expr], k: Index | None, count: int) -> list[ir.Value]:
        """The expressions at element k (a vector from k on when along); None: per row."""
        kept = self.n + len(self.spec.stages)
        inputs: list[ir.Value | None] = [*[None] * (kept + 1), *self.hoisted]
        for number in {i for e in exprs for i in input_dtypes(e)}:
            if number > kept:
                continue
            if number == kept:
                assert k is not None
                access = self.spec.element_outputs[0][0]
                inputs[number] = self.load(self.first_element, access, k, count)
            elif number >= self.n:
                inputs[number] = self.results[number - self.n]
            elif number in self.fixed:
                inputs[number] = self.fixed[number]
            else:
                assert k is not None
                inputs[number] = self.load(number, self.spec.inputs[number], k, count)
        return evaluate_all(exprs, self.arith, inputs)

    def element(self, stage: Stage, k: Index, count: int) -> ir.Value:
        """What `stage` reduces, at element k; also left in the output if that is to be reused."""
        value = self.values([stage.element], k, count)[0]
        if self.kept is not None and len(self.results) == len(self.spec.stages) - 1:
            self.store(self.first_element, self.spec.element_outputs[0][0], k, value, count)
        return value

    # --- stages

    def run(self) -> None:
        for stage in self.spec.stages:
            reduced = (self._across if self.rows else self._along)(stage)
            self.results.append(reduced)
            if stage.finish is not None:
                finished = self.values([stage.finish], None, 0)[0]
                self.results[-1] = finished
        self._write_rows()
        if self.spec.element_outputs:
            self._write_elements()

    def _combine(self, stage: Stage, a: ir.Value, b: ir.Value) -> ir.Value:
        m, dtype = self.arith, stage.element.dtype
        return m.unbind(combine(m, stage.kind, m.bind(a, dtype), m.bind(b, dtype)))

    def _start(self, stage: Stage) -> tuple[ir.Value, bool]:
        """The identity, and whether the order of combining matters."""
        dtype = stage.element.dtype
        start = self.arith.const(identity(stage.kind, dtype), dtype).value
        return start, dtype in FLOATS and stage.kind in ("sum", "prod")

    def _across(self, stage: Stage) -> ir.Value:
        start, ordered = self._start(stage)
        ways = LANES if ordered else 4
        partial = [start] * ways
        length, done = self.spec.length, 0

        def step(which: int, k: Index) -> None:
            value = self.element(stage, k, self.rows)
            partial[which] = self._combine(stage, partial[which], value)

        if length > (_UNROLLED if len(self.spec.reduced) > 1 else LANES):
            done = length // ways * ways
            with self.fb.loop(done, step=ways, carry=partial) as loop:
                partial = list(loop.values)
                for j in range(ways):
                    step(j, self.fb.iadd(loop.index, j))
                loop.next(partial)
            partial = list(loop.results)
        for k in range(done, length):
            step(k % ways, k)
        while ways > 1:
            ways //= 2
            partial = [self._combine(stage, partial[j], partial[j + ways]) for j in range(ways)]
        return partial[0]

    def _along(self, stage: Stage) -> ir.Value:
        fb = self.fb
        start, ordered = self._start(stage)
        ways = 1 if ordered else 4
        partial = [start] * ways
        full = self.spec.length // LANES * LANES
        done = full // (ways * LANES) * (ways * LANES)

        def step(which: int, k: Index, count: int) -> None:
            value = self.element(stage, k, count)
            if count < LANES:
                value = fb.b.select(fb.first(count), value, start)
            partial[which] = self._combine(stage, partial[which], value)

        if done:
            with fb.loop(done, step=ways * LANES, carry=partial) as loop:
                partial = list(loop.values)
                for j in range(ways):
                    step(j, fb.iadd(loop.index, j * LANES), LANES)
                loop.next(partial)
            partial = list(loop.results)
        for k in range(done, full, LANES):
            step(0, k, LANES)
        if self.spec.length % LANES:
            step(0, full, self.spec.length % LANES)
        while ways > 1:
            ways //= 2
            partial = [self._combine(stage, partial[j], partial[j + ways]) for j in range(ways)]
        value = partial[0]
        for distance in (8, 4, 2, 1):
            value = self._combine(stage, value, self._lanes_from(value, distance))
        zeros = ir.Constant(ir.VectorType(I32, LANES), [0] * LANES)
        return fb.b.shuffle_vector(value, value, zeros)

    def _lanes_from(self, value: ir.Value, first: int) -> ir.Value:
        lanes = [(first + j) % LANES for j in range(LANES)]
        return self.fb.b.shuffle_vector(value, value, ir.Constant(ir.VectorType(I32, LANES), lanes))

    # --- writing

    def _write_rows(self) -> None:
        fb = self.fb
        if not self.spec.row_outputs:
            return
        values = self.values([e for _, e in self.spec.row_outputs], None, 0)
        for number, ((access, _), value) in enumerate(
            zip(self.spec.row_outputs, values, strict=True), self.n
        ):
            value = from_register(fb, value, access.dtype)
            stride = access.strides[-1] if self.rows else 0
            if stride == 1:
                store_count(fb, value, self.base[number], self.rows, access.dtype)
                continue
            for lane in range(self.rows or 1):
                pointer = fb.at(self.base[number], lane * stride, dtype=access.dtype)
                fb.store(fb.b.extract_element(value, ir.Constant(I32, lane)), pointer)

    def _hoist(self, exprs: Sequence[Expr]) -> list[Expr]:
        """`exprs` with what is the same for all of a row, and takes long, computed once before."""
        still = {*self.fixed, *range(self.n, self.n + len(self.results))}
        first = self.n + len(self.spec.stages) + 1
        once = [e for e in row_constants(exprs, still) if is_slow(e)]
        self.hoisted = self.values(once, None, 0)
        places = {e: Input(i, e.dtype) for i, e in enumerate(once, first)}
        return [substitute(e, places) for e in exprs]

    def _write_elements(self) -> None:
        exprs = [e for _, e in self.spec.element_outputs]
        if self.kept is not None:
            exprs = [self.kept]
        exprs = self._hoist(exprs)

        def write(places: Sequence[tuple[Index, int]]) -> None:
            results = [self.values(exprs, k, count) for k, count in places]
            for (k, count), values in zip(places, results, strict=True):
                for i, (access, _) in enumerate(self.spec.element_outputs):
                    self.store(self.first_element + i, access, k, values[i], count)

        length = self.spec.length
        width, count = (1, self.rows) if self.rows else (LANES, LANES)
        step = 2 * width
        done = length // step * step
        if done:
            with self.fb.loop(done, step=step) as loop:
                write([(self.fb.iadd(loop.index, u * width), count) for u in range(2)])
        if length - done >= width:
            write([(done, count)])
            done += width
        if length > done:
            write([(done, length - done)])


def _grouped_loop(fb: FunctionBuilder, units: int, group: int) -> tuple[int, ir.Value, ir.Value]:
    """(items, first unit, end) of a call when `group` units make an item; the last is shorter."""
    items = -(-units // group)
    first = fb.b.mul(fb.begin, fb.i64(group))
    end = fb.b.mul(fb.end, fb.i64(group))
    past = fb.b.icmp_signed(">", end, fb.i64(units))
    return items, first, fb.b.select(past, fb.i64(units), end)


def _emit_along(fb: FunctionBuilder, spec: ReduceSpec) -> int:
    """One row at a time, vectorised along it; the number of work items."""
    if not spec.reduced:  # rows of one element
        spec = with_unit_reduced(spec)
    group = max(1, _ITEM_ELEMENTS // max(spec.length, 1))
    items, first, end = _grouped_loop(fb, spec.rows, group)
    with fb.loop(end, start=first) as loop:
        coordinates = fb.split(loop.index, *spec.outer[1:]) if spec.outer else []
        _Strip(fb, spec, coordinates, rows=0).run()
    return items


def _emit_across(fb: FunctionBuilder, spec: ReduceSpec) -> int:
    """Sixteen rows at a time, vectorised across them; the number of work items."""
    if not spec.reduced:
        spec = with_unit_reduced(spec)
    extent = spec.outer[-1]
    strips = -(-extent // LANES)
    units = spec.rows // extent * strips
    group = max(1, _ITEM_ELEMENTS // (max(spec.length, 1) * LANES))
    items, first, end = _grouped_loop(fb, units, group)
    rest = extent % LANES
    with fb.loop(end, start=first) as loop:
        *outer, strip = fb.split(loop.index, *spec.outer[1:-1], strips)
        if len(spec.outer) == 1:
            outer = []
        coordinates = [*outer, fb.imul(strip, LANES)]
        if not rest:
            _Strip(fb, spec, coordinates, rows=LANES).run()
        elif strips == 1:
            _Strip(fb, spec, coordinates, rows=rest).run()
        else:
            is_last = fb.b.icmp_signed("==", fb.i64(strip), fb.i64(strips - 1))
            with fb.b.if_else(is_last) as (last, other):
                with last:
                    _Strip(fb, spec, coordinates, rows=rest).run()
                with other:
                    _Strip(fb, spec, coordinates, rows=LANES).run()
    return items
