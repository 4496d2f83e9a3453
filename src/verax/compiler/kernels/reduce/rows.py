"""Reduction kernels: sums, means, extremes, softmax and normalisations, in the canonical order.

A `ReduceSpec` walks each row in stages. Two ways to run it give the same bits, because the order
of `numerics.reductions` is sixteen interleaved partial results: "along" makes them the lanes of
one vector (the row is contiguous), "across" makes them sixteen vectors, each holding one partial
result of sixteen neighbouring rows (the rows are interleaved, as in NCHW16c or a reduction over
channels of a planar tensor).
"""

from __future__ import annotations

import functools
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
from verax.compiler.kernels.llvm.lanes import joined_lanes
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
from verax.numerics.expr import Apply, Expr, Input, evaluate_all, input_dtypes, nodes, substitute
from verax.numerics.formats import FLOATS
from verax.numerics.reductions import combine, identity

__all__ = ["ReduceSpec", "Stage", "emit_reduce"]

_ITEM_ELEMENTS = 4096  # rows are grouped until a work item holds about so many elements
SHORT, MOST_TOGETHER = 256, 1024
"""Elements up to which rows are walked four at a time, and those up to which they are two at a
time, or four where an element takes a function."""
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

    def elements(self, stages: Sequence[Stage], k: Index, count: int) -> list[ir.Value]:
        """What `stages` reduce, at element k; that of the last of all is also left in the output if
        it is to be reused."""
        values = self.values([s.element for s in stages], k, count)
        if self.kept is not None and len(self.results) + len(stages) == len(self.spec.stages):
            self.store(self.first_element, self.spec.element_outputs[0][0], k, values[-1], count)
        return values

    # --- stages

    def combine(self, stage: Stage, a: ir.Value, b: ir.Value) -> ir.Value:
        m, dtype = self.arith, stage.element.dtype
        return m.unbind(combine(m, stage.kind, m.bind(a, dtype), m.bind(b, dtype)))

    def start(self, stage: Stage) -> tuple[ir.Value, bool]:
        """The identity, and whether the order of combining matters."""
        dtype = stage.element.dtype
        start = self.arith.const(identity(stage.kind, dtype), dtype).value
        return start, dtype in FLOATS and stage.kind in ("sum", "prod")

    def across(self, stage: Stage) -> ir.Value:
        start, ordered = self.start(stage)
        ways = LANES if ordered else 4
        partial = [start] * ways
        length, done = self.spec.length, 0

        def step(which: int, k: Index) -> None:
            value = self.elements([stage], k, self.rows)[0]
            partial[which] = self.combine(stage, partial[which], value)

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
            partial = [self.combine(stage, partial[j], partial[j + ways]) for j in range(ways)]
        return partial[0]

    # --- writing

    def write_rows(self) -> None:
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

    def hoist(self, exprs: Sequence[Expr]) -> list[Expr]:
        """`exprs` with what is the same for all of a row, and takes long, computed once before."""
        still = {*self.fixed, *range(self.n, self.n + len(self.results))}
        first = self.n + len(self.spec.stages) + 1
        once = [e for e in row_constants(exprs, still) if is_slow(e)]
        self.hoisted = self.values(once, None, 0)
        places = {e: Input(i, e.dtype) for i, e in enumerate(once, first)}
        return [substitute(e, places) for e in exprs]


def _run(strips: Sequence[_Strip]) -> None:
    """The stages of neighbouring strips in step, then what is written of them: a row waits for what
    it has summed up before it goes on, and meanwhile another has something to do."""
    across = strips[0].rows > 0
    for stages in _walks(strips[0].spec, across):
        found = [[s.across(stages[0])] for s in strips] if across else _along(strips, stages)
        for strip, reduced in zip(strips, found, strict=True):
            for stage, value in zip(stages, reduced, strict=True):
                strip.results.append(value)
                if stage.finish is not None:
                    strip.results[-1] = strip.values([stage.finish], None, 0)[0]
    for strip in strips:
        strip.write_rows()
    if strips[0].spec.element_outputs:
        _write_elements(strips)


def _walks(spec: ReduceSpec, across: bool) -> list[list[Stage]]:
    """The stages, those together that need nothing of each other, so that a row is read once."""
    found: list[list[Stage]] = []
    for number, stage in enumerate(spec.stages):
        first = number - len(found[-1]) if found else 0
        needs = any(i >= len(spec.inputs) + first for i in input_dtypes(stage.element))
        if across or not found or needs:
            found.append([stage])
        else:
            found[-1].append(stage)
    return found


def _along(strips: Sequence[_Strip], stages: Sequence[Stage]) -> list[list[ir.Value]]:
    """Of every strip what its stages, which are walked together, reduce to."""
    fb, length = strips[0].fb, strips[0].spec.length
    each = [(strip, stage) for strip in strips for stage in stages]
    starts = [strip.start(stage) for strip, stage in each]
    ways = 1 if any(ordered for _, ordered in starts) else max(1, 4 // len(strips))
    partial = [start for start, _ in starts for _ in range(ways)]
    full = length // LANES * LANES
    done = full // (ways * LANES) * (ways * LANES)

    def step(which: int, k: Index, count: int) -> None:
        values = [value for strip in strips for value in strip.elements(stages, k, count)]
        for i, ((strip, stage), value) in enumerate(zip(each, values, strict=True)):
            if count < LANES:
                value = fb.b.select(fb.first(count), value, starts[i][0])
            place = i * ways + which
            partial[place] = strip.combine(stage, partial[place], value)

    if done:
        with fb.loop(done, step=ways * LANES, carry=partial) as loop:
            partial = list(loop.values)
            for j in range(ways):
                step(j, fb.iadd(loop.index, j * LANES), LANES)
            loop.next(partial)
        partial = list(loop.results)
    for k in range(done, full, LANES):
        step(0, k, LANES)
    if length % LANES:
        step(0, full, length % LANES)
    found = []
    for i, (strip, stage) in enumerate(each):
        mine = partial[i * ways : (i + 1) * ways]
        while len(mine) > 1:
            half = len(mine) // 2
            mine = [strip.combine(stage, a, b) for a, b in zip(mine[:half], mine[half:])]
        found.append(joined_lanes(fb, mine[0], functools.partial(strip.combine, stage)))
    return [found[i : i + len(stages)] for i in range(0, len(found), len(stages))]


def _write_elements(strips: Sequence[_Strip]) -> None:
    first = strips[0]
    exprs = [e for _, e in first.spec.element_outputs] if first.kept is None else [first.kept]
    exprs = [strip.hoist(exprs) for strip in strips][-1]  # the same for each

    def write(places: Sequence[tuple[Index, int]]) -> None:
        each = [(strip, k, count) for k, count in places for strip in strips]
        results = [strip.values(exprs, k, count) for strip, k, count in each]
        for (strip, k, count), values in zip(each, results, strict=True):
            for i, (access, _) in enumerate(first.spec.element_outputs):
                strip.store(first.first_element + i, access, k, values[i], count)

    length = first.spec.length
    width, count = (1, first.rows) if first.rows else (LANES, LANES)
    unroll = max(1, 2 // len(strips))
    step = unroll * width
    done = length // step * step
    if done:
        with first.fb.loop(done, step=step) as loop:
            write([(first.fb.iadd(loop.index, u * width), count) for u in range(unroll)])
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
    together = _rows_together(spec)
    group = max(1, _ITEM_ELEMENTS // max(spec.length, 1) // together) * together
    items, first, end = _grouped_loop(fb, spec.rows, group)

    def rows(first: Index, count: int) -> None:
        places = [fb.iadd(first, i) for i in range(count)]
        each = [fb.split(r, *spec.outer[1:]) if spec.outer else [] for r in places]
        _run([_Strip(fb, spec, coordinates, rows=0) for coordinates in each])

    if together > 1:
        count = fb.b.sub(end, first)
        whole = fb.b.mul(fb.b.udiv(count, fb.i64(together)), fb.i64(together))
        middle = fb.b.add(first, whole)
        with fb.loop(middle, step=together, start=first) as loop:
            rows(loop.index, together)
        first = middle
    with fb.loop(end, start=first) as loop:
        rows(loop.index, 1)
    return items


def _rows_together(spec: ReduceSpec) -> int:
    """Rows that are walked in step: those so short that what a row ends with is much of it. Softmax
    of 103 elements takes 0.64 of the time, LayerNorm of 96 0.78."""
    if spec.rows < 4 or not spec.stages or spec.length > MOST_TOGETHER:
        return 1
    exprs = [s.element for s in spec.stages] + [e for _, e in spec.element_outputs]
    applied = (n for e in exprs for n in nodes(e) if isinstance(n, Apply))
    calls = any(n.function not in PRIMITIVES for n in applied)
    return 4 if spec.length <= SHORT or calls else 2


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
            _run([_Strip(fb, spec, coordinates, rows=LANES)])
        elif strips == 1:
            _run([_Strip(fb, spec, coordinates, rows=rest)])
        else:
            is_last = fb.b.icmp_signed("==", fb.i64(strip), fb.i64(strips - 1))
            with fb.b.if_else(is_last) as (last, other):
                with last:
                    _run([_Strip(fb, spec, coordinates, rows=rest)])
                with other:
                    _run([_Strip(fb, spec, coordinates, rows=LANES)])
    return items
