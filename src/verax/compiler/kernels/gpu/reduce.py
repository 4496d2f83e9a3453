"""`ReduceSpec` on a GPU: threads share a row, one for each partial result of the canonical order.

A sum of floats has 32 partial results (`numerics.reductions`), which a warp's threads hold: they
take elements in turn, and join through the memory of their block in the tree that the order asks
for. Where elements of a row follow one another in memory, the threads of a warp are those of a row;
where rows are interleaved, they are neighboring rows. A row of several blocks of 1,024 elements may
have several warps: each sums a block, and all sums are added in their order.
"""

from __future__ import annotations

from collections.abc import Sequence

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.arith import LlvmArith
from verax.compiler.kernels.llvm.builder import (
    ELEMENT_SIZES,
    ELEMENT_TYPES,
    I64,
    Index,
    Kernel,
    ModuleBuilder,
)
from verax.compiler.kernels.llvm.gpu import BlockBuilder, block_kernel
from verax.compiler.kernels.loops.emit import from_register, to_register
from verax.compiler.kernels.loops.spec import Access
from verax.compiler.kernels.reduce.plan import (
    across_dim,
    outer_moved_last,
    simplified,
    with_known_groups,
)
from verax.compiler.kernels.reduce.spec import ReduceSpec, Stage
from verax.compiler.kernels.registry import emits
from verax.compiler.kernels.sizes import Size, ceil_div, moves
from verax.compiler.kernels.target import LANES
from verax.numerics.expr import Expr, evaluate_all, input_dtypes
from verax.numerics.formats import FLOATS
from verax.numerics.reductions import (
    BLOCK,
    SUMS,
    add_block,
    combine,
    elements_read,
    identity,
    in_blocks,
    join,
    sum_of_blocks,
)

ROWS_ALONG, ROWS_ACROSS = 4, 16
"""Rows of a block of threads: where elements of a row lie together, and where rows do."""
WARPS_OF_LONG_ROW = 8


@emits(ReduceSpec, dtypes=ELEMENT_TYPES, target="gpu", settle=with_known_groups)
def emit_reduce_by_block(module: ModuleBuilder, spec: ReduceSpec) -> Kernel:
    """The kernel of `spec`. args: as those of the CPU's kernel (`reduce.rows.emit_reduce`)."""
    n_args = len(spec.inputs) + len(spec.row_outputs) + len(spec.element_outputs)
    plain = simplified(spec)
    side_by_side = across_dim(plain)
    rows, warps = ROWS_ACROSS, 1
    if side_by_side is not None:
        plain = outer_moved_last(plain, side_by_side)
    elif isinstance(plain.length, int) and plain.length <= BLOCK:
        rows = ROWS_ALONG
    else:
        rows, warps = 1, WARPS_OF_LONG_ROW
    threads = SUMS * rows * warps
    widest = max((ELEMENT_SIZES[s.element.dtype] for s in spec.stages), default=0)
    fb = block_kernel(module, spec, n_args, threads, threads * widest, hint="reduce")
    if fb.finished:
        assert fb.kernel is not None
        return fb.kernel
    if spec.rows == 0:
        return fb.finish(0)
    _RowsOfBlock(fb, plain, rows, warps, side_by_side is not None).run()
    operations = spec.rows * spec.length * spec.operations
    return fb.finish(ceil_div(spec.rows, rows), operations, spec.bytes)


class _RowsOfBlock:
    """The rows of a block of threads, as this thread sees them."""

    def __init__(
        self, fb: BlockBuilder, spec: ReduceSpec, rows: int, warps: int, is_across: bool
    ) -> None:
        """rows, warps: of a block, and of a row."""
        self.fb, self.spec, self.warps = fb, spec, warps
        self.arith = LlvmArith(fb, 0)
        b = fb.b
        thread = b.zext(fb.thread, I64)
        self.slot_step = rows if is_across else 1
        if is_across:
            row, self.partial = b.urem(thread, fb.i64(rows)), b.udiv(thread, fb.i64(rows))
            self.slot, self.warp = row, fb.i64(0)
        else:
            unit = b.udiv(thread, fb.i64(SUMS))
            self.partial = b.urem(thread, fb.i64(SUMS))
            row, self.warp = b.udiv(unit, fb.i64(warps)), b.urem(unit, fb.i64(warps))
            self.slot = b.mul(b.sub(unit, self.warp), fb.i64(SUMS))
        row_index = b.add(b.mul(fb.begin, fb.i64(rows)), row)
        last = fb.i64(spec.rows - 1)
        self.is_row = b.icmp_signed("<=", row_index, last)
        row_index = b.select(self.is_row, row_index, last)  # all threads go to the barriers
        self.coordinates = fb.split(row_index, *spec.outer[1:]) if spec.outer else []
        accesses = (*spec.inputs, *(a for a, _ in (*spec.row_outputs, *spec.element_outputs)))
        self.bases = [self._base(a, p) for a, p in zip(accesses, fb.args, strict=True)]
        outer = len(spec.outer)
        self.fixed = {
            i: self._load(i, a, 0)
            for i, a in enumerate(spec.inputs)
            if not moves(a.strides[outer:])
        }
        self.results: list[ir.Value] = []

    def _base(self, access: Access, pointer: ir.Value) -> ir.Value:
        terms = zip(self.coordinates, access.strides[: len(self.spec.outer)], strict=True)
        return self.fb.at(pointer, access.offset, *terms, dtype=access.dtype)

    def run(self) -> None:
        """Reduce in stages, and write."""
        for stages in _read_together(self.spec):
            values = self._reduce(stages)
            for stage, value in zip(stages, values, strict=True):
                self.results.append(value)
                if stage.finish is not None:
                    self.results[-1] = self._values([stage.finish], 0)[0]
        self._write_rows()
        self._write_elements()

    # --- elements

    def _load(self, argument: int, access: Access, k: Index) -> ir.Value:
        fb, dtype = self.fb, access.dtype
        return to_register(fb, fb.load(self._element(argument, access, k), dtype, lanes=0), dtype)

    def _element(self, argument: int, access: Access, k: Index) -> ir.Value:
        """Where element k of the row is, of the kernel's argument of that number."""
        strides = access.strides[len(self.spec.outer) :]
        at = self.fb.split(k, *self.spec.reduced[1:]) if len(strides) > 1 else [k]
        terms = zip(at, strides, strict=False)
        return self.fb.at(self.bases[argument], *terms, dtype=access.dtype)

    def _store(self, argument: int, access: Access, k: Index, value: ir.Value) -> None:
        self.fb.store(
            from_register(self.fb, value, access.dtype), self._element(argument, access, k)
        )

    def _values(self, exprs: Sequence[Expr], k: Index) -> list[ir.Value]:
        """The expressions at element k."""
        n = len(self.spec.inputs)
        inputs: list[ir.Value | None] = [None] * (n + len(self.results))
        for index in {i for e in exprs for i in input_dtypes(e)}:
            if index >= n:
                inputs[index] = self.results[index - n]
            else:
                of_row = self.fixed.get(index)
                value = self._load(index, self.spec.inputs[index], k) if of_row is None else of_row
                inputs[index] = value
        return evaluate_all(exprs, self.arith, inputs)

    # --- stages

    def _reduce(self, stages: Sequence[Stage]) -> list[ir.Value]:
        length = self.spec.length
        if isinstance(length, int):
            length = elements_read(length, stages[0].group_stride)
        is_one_block = self.warps == 1 and isinstance(length, int) and length <= BLOCK
        if _is_blocked(stages[0]) and not is_one_block:
            return self._reduce_blocks(stages, length)
        # All of the row's threads take part in turn, or those of one warp if the order matters.
        first = self.partial if _is_ordered(stages[0]) else self._in_row()
        partials = self._take(stages, 0, length, self._step_of(stages[0]), first)
        return [self._reduced(s, p) for s, p in zip(stages, partials, strict=True)]

    def _in_row(self) -> ir.Value:
        b = self.fb.b
        return b.add(b.mul(self.warp, self.fb.i64(SUMS)), self.partial)

    def _step_of(self, stage: Stage) -> int:
        """From an element of a thread to its next."""
        if not _is_ordered(stage):
            return SUMS * self.warps
        return SUMS if _is_blocked(stage) else LANES

    def _take(
        self, stages: Sequence[Stage], start: Index, stop: Index, step: int, first: Index
    ) -> list[ir.Value]:
        """Partial results of the elements start + first, and each `step` on, before `stop`."""
        fb, carry = self.fb, [self._identity(stage) for stage in stages]
        begin = fb.i64(fb.iadd(start, first))
        if step == LANES:  # half of the threads have no partial result
            is_used = fb.b.icmp_signed("<", self.partial, fb.i64(LANES))
            begin = fb.b.select(is_used, begin, fb.i64(stop))
        with fb.loop(fb.i64(stop), start=begin, step=step, carry=carry) as loop:
            k = self._position(stages[0], loop.index)
            values = self._values([s.element for s in stages], k)
            following = [
                self._combined(stage, partial, value)
                for stage, partial, value in zip(stages, loop.values, values, strict=True)
            ]
            loop.next(following)
        return list(loop.results)

    def _position(self, stage: Stage, index: Index) -> Index:
        """The element of that index among those that a stage takes."""
        gap = (stage.group_stride - 1) * LANES
        return self.fb.iadd(index, self.fb.imul(self.fb.idiv(index, LANES), gap)) if gap else index

    def _identity(self, stage: Stage) -> ir.Value:
        dtype = stage.element.dtype
        return self.arith.const(identity(stage.kind, dtype), dtype).value

    def _combined(self, stage: Stage, partial: ir.Value, value: ir.Value) -> ir.Value:
        m, dtype = self.arith, stage.element.dtype
        return m.unbind(combine(m, stage.kind, m.bind(partial, dtype), m.bind(value, dtype)))

    def _join_two(self, stage: Stage, left: ir.Value, right: ir.Value) -> ir.Value:
        m, dtype = self.arith, stage.element.dtype
        return m.unbind(join(m, stage.kind, m.bind(left, dtype), m.bind(right, dtype)))

    def _reduced(self, stage: Stage, partial: ir.Value) -> ir.Value:
        """The partial results of the row's threads joined in the order of the tree."""
        (total, *remaining) = self._sums_of_warps(stage, partial)
        for of_warp in remaining:
            total = self._join_two(stage, total, of_warp)
        return total

    def _sums_of_warps(self, stage: Stage, partial: ir.Value) -> list[ir.Value]:
        """What each of the row's warps has, seen by all of the row's threads."""
        fb, dtype = self.fb, stage.element.dtype
        own = fb.b.add(self.slot, fb.b.mul(self.warp, fb.i64(SUMS)))
        own = fb.b.add(own, fb.b.mul(self.partial, fb.i64(self.slot_step)))
        self._put(own, partial, dtype)
        fb.barrier()
        distance = LANES // 2 if self._step_of(stage) == LANES else LANES
        while distance:
            with fb.when(fb.b.icmp_signed("<", self.partial, fb.i64(distance))):
                partner = fb.b.add(own, fb.i64(distance * self.slot_step))
                two = self._get(own, dtype), self._get(partner, dtype)
                self._put(own, self._join_two(stage, *two), dtype)
            fb.barrier()
            distance //= 2
        warps = range(1 if _is_ordered(stage) and not _is_blocked(stage) else self.warps)
        sums = [self._get(fb.b.add(self.slot, fb.i64(w * SUMS)), dtype) for w in warps]
        fb.barrier()  # before anything else is put there
        return sums

    def _put(self, slot: ir.Value, value: ir.Value, dtype: str) -> None:
        address = self.fb.at(self.fb.shared, slot, dtype=dtype)
        self.fb.store(from_register(self.fb, value, dtype), address)

    def _get(self, slot: ir.Value, dtype: str) -> ir.Value:
        value = self.fb.load(self.fb.at(self.fb.shared, slot, dtype=dtype), dtype, lanes=0)
        return to_register(self.fb, value, dtype)

    def _reduce_blocks(self, stages: Sequence[Stage], length: Size) -> list[ir.Value]:
        """Sums of floats of any length: as many blocks of elements at a time as the row has warps,
        added in their order."""
        fb, turn = self.fb, BLOCK * self.warps
        state = [self._identity(stage) for stage in stages for _ in range(2)]
        with fb.loop(fb.i64(length), step=turn, carry=state) as loop:
            start = fb.b.add(fb.i64(loop.index), fb.b.mul(self.warp, fb.i64(BLOCK)))
            stop = fb.clamp(fb.iadd(start, BLOCK), 0, length)
            partials = self._take(stages, start, stop, SUMS, self.partial)
            following: list[ir.Value] = []
            for i, (stage, partial) in enumerate(zip(stages, partials, strict=True)):
                total, lost = loop.values[2 * i : 2 * i + 2]
                for w, block in enumerate(self._sums_of_warps(stage, partial)):
                    begin = fb.iadd(loop.index, w * BLOCK)
                    is_there = fb.b.icmp_signed("<", fb.i64(begin), fb.i64(length))
                    new_total, new_lost = self._added(stage, total, lost, block)
                    total = fb.b.select(is_there, new_total, total)
                    lost = fb.b.select(is_there, new_lost, lost)
                following += [total, lost]
            loop.next(following)
        return [
            self._final_sum(stage, *loop.results[2 * i : 2 * i + 2])
            for i, stage in enumerate(stages)
        ]

    def _added(
        self, stage: Stage, total: ir.Value, lost: ir.Value, block: ir.Value
    ) -> tuple[ir.Value, ir.Value]:
        m, dtype = self.arith, stage.element.dtype
        new_total, new_lost = add_block(m, *(m.bind(v, dtype) for v in (total, lost, block)))
        return m.unbind(new_total), m.unbind(new_lost)

    def _final_sum(self, stage: Stage, total: ir.Value, lost: ir.Value) -> ir.Value:
        m, dtype = self.arith, stage.element.dtype
        return m.unbind(sum_of_blocks(m, m.bind(total, dtype), m.bind(lost, dtype)))

    # --- results

    def _write_rows(self) -> None:
        fb, spec = self.fb, self.spec
        if not spec.row_outputs:
            return
        values = self._values([e for _, e in spec.row_outputs], 0)
        is_first = fb.b.icmp_signed("==", self._in_row(), fb.i64(0))
        with fb.when(fb.b.and_(self.is_row, is_first)):
            for i, ((access, _), value) in enumerate(zip(spec.row_outputs, values, strict=True)):
                element = from_register(fb, value, access.dtype)
                fb.store(element, self.bases[len(spec.inputs) + i])

    def _write_elements(self) -> None:
        fb, spec = self.fb, self.spec
        if not spec.element_outputs:
            return
        first = len(spec.inputs) + len(spec.row_outputs)
        exprs = [e for _, e in spec.element_outputs]
        with fb.when(self.is_row):
            start, step = self._in_row(), SUMS * self.warps
            with fb.loop(fb.i64(spec.length), start=start, step=step) as loop:
                for i, value in enumerate(self._values(exprs, loop.index)):
                    access = spec.element_outputs[i][0]
                    self._store(first + i, access, loop.index, value)


def _is_blocked(stage: Stage) -> bool:
    return in_blocks(stage.kind, stage.element.dtype)


def _is_ordered(stage: Stage) -> bool:
    """Whether the order of elements decides bits."""
    return _is_blocked(stage) or (stage.kind == "prod" and stage.element.dtype in FLOATS)


def _read_together(spec: ReduceSpec) -> list[list[Stage]]:
    """The stages, those together that need nothing of each other, and take the same elements in the
    same order, so that a row is read once."""
    groups: list[list[Stage]] = []
    for index, stage in enumerate(spec.stages):
        last = groups[-1] if groups else []
        first_result = len(spec.inputs) + index - len(last)
        needs = any(i >= first_result for i in input_dtypes(stage.element))
        if last and not needs and _order(last[0]) == _order(stage):
            last.append(stage)
        else:
            groups.append([stage])
    return groups


def _order(stage: Stage) -> tuple[object, ...]:
    return _is_blocked(stage), _is_ordered(stage), stage.group_stride
