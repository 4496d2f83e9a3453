"""Going through the rows of a reduction: all of a row at once, or, for sums of floats, in blocks.

Of rows along a vector, the partial results of `numerics.reductions` are its lanes; of rows side by
side, each is a vector. What blocks come to is added by the two-sums of that module, a few
operations in a block.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import (
    ELEMENT_TYPES,
    FunctionBuilder,
    Index,
)
from verax.compiler.kernels.llvm.lanes import joined_lanes, joined_rows
from verax.compiler.kernels.reduce.spec import Stage, elements_of_stage
from verax.compiler.kernels.reduce.strips import Strip, calls
from verax.compiler.kernels.sizes import Size, equal, maximum, minimum
from verax.compiler.kernels.target import LANES
from verax.numerics.reductions import (
    BLOCK,
    SUMS,
    add_block,
    in_blocks,
    sum_of_blocks,
)

_UNROLLED = 64  # rows this short in several dims, or of at most 16 elements, need no loop
_SHORT = 8
"""Vectors of a row that need no loop: LayerNorm of 96 takes 0.93 of the time."""


_MOST_HELD = 4
"""Partial results, at most, of rows side by side that are in hand together, of each stage."""
_ROUNDS = 2
"""Elements of each of them that need no loop."""
_IN_HAND, _TURNS = 8, 4
"""Elements of each, up to which they are taken one after the other, so that none waits in memory;
of more, so many at a time: memory is read in order, which rows that lie apart ask for."""


def along(strips: Sequence[Strip], stages: Sequence[Stage]) -> list[ir.Value | list[ir.Value]]:
    """What `stages`, which are walked together, reduce to: sums of floats as a value of a lane for
    each strip (of one a scalar), others by strip, in every lane of a vector."""
    stage_walk = _StageWalk(strips, stages)
    if any(stage_walk.blocked):
        return stage_walk.in_blocks()
    return stage_walk.at_once()


def across(strip: Strip, stages: Sequence[Stage]) -> list[ir.Value]:
    """What `stages`, which are walked together, reduce to: a vector of rows each. Several are sums
    of floats."""
    length = _length(strip, stages)
    if not in_blocks(stages[0].kind, stages[0].element.dtype):
        return [_across_at_once(strip, stages[0], length)]
    if isinstance(length, int) and length <= BLOCK:
        return _across_block(strip, stages, 0, length)
    state = [strip.start(stage)[0] for stage in stages for _ in range(2)]
    full, remainder = length // BLOCK * BLOCK, length % BLOCK
    with strip.fb.loop(full, step=BLOCK, carry=state) as loop:
        sums = _across_block(strip, stages, loop.index, BLOCK)
        loop.next(_added(strip, stages, loop.values, sums))
    state = list(loop.results)
    if remainder != 0:
        state = _added(strip, stages, state, _across_block(strip, stages, full, remainder))
    return [
        _final_sum(strip, s, pair) for s, pair in zip(stages, _groups_of(state, 2), strict=True)
    ]


def _length(strip: Strip, stages: Sequence[Stage]) -> Size:
    """Elements of a row that `stages` take, all of them the same."""
    return elements_of_stage(strip.spec.length, stages[0].group_stride)


def _groups_of(values: Sequence[ir.Value], size: int) -> list[list[ir.Value]]:
    return [list(values[i : i + size]) for i in range(0, len(values), size)]


def _split(values: Sequence[ir.Value], sizes: Sequence[int]) -> list[list[ir.Value]]:
    left = list(values)
    return [[left.pop(0) for _ in range(size)] for size in sizes]


def _flat(groups: Sequence[Sequence[ir.Value]]) -> list[ir.Value]:
    return [value for group in groups for value in group]


def _tree(strip: Strip, stage: Stage, values: Sequence[ir.Value]) -> ir.Value:
    """The values joined, each with the one half as many places on."""
    while len(values) > 1:
        half = len(values) // 2
        values = [strip.join(stage, a, b) for a, b in zip(values[:half], values[half:])]
    return values[0]


def _with_block(
    strip: Strip, stage: Stage, state: Sequence[ir.Value], more: ir.Value
) -> list[ir.Value]:
    """`state`, a total and what its rounding lost, with the sum of a block added."""
    m, dtype = strip.arith_of(more), stage.element.dtype
    return [m.unbind(v) for v in add_block(m, *(m.bind(v, dtype) for v in (*state, more)))]


def _final_sum(strip: Strip, stage: Stage, state: Sequence[ir.Value]) -> ir.Value:
    """The sum, from its total and what that lost."""
    m, dtype = strip.arith_of(state[0]), stage.element.dtype
    return m.unbind(sum_of_blocks(m, *(m.bind(v, dtype) for v in state)))


# --- rows side by side


def _added(
    strip: Strip, stages: Sequence[Stage], state: Sequence[ir.Value], sums: Sequence[ir.Value]
) -> list[ir.Value]:
    stage_states = zip(stages, _groups_of(state, 2), sums, strict=True)
    return _flat([_with_block(strip, *stage_state) for stage_state in stage_states])


def _across_at_once(strip: Strip, stage: Stage, length: Size) -> ir.Value:
    """A product of floats, or what comes out the same in any order."""
    start, ordered = strip.start(stage)
    accumulators = ordered or 4
    partial = [start] * accumulators
    done: Size = 0

    def step(accumulator: int, k: Index) -> None:
        value = strip.elements([stage], k, strip.rows)[0]
        partial[accumulator] = strip.combine(stage, partial[accumulator], value)

    if not _is_unrolled(strip, length):
        done = length // accumulators * accumulators
        with strip.fb.loop(done, step=accumulators, carry=partial) as loop:
            partial = list(loop.values)
            for j in range(accumulators):
                step(j, strip.fb.iadd(loop.index, j))
            loop.next(partial)
        partial = list(loop.results)
    for j in range(accumulators - 1 if not isinstance(length, int) else length - done):
        there_is = minimum(1, maximum(length - done - j, 0))
        if isinstance(there_is, int) and not there_is:
            break  # an open length may be a multiple of four all the same
        with strip.fb.loop(there_is, carry=partial) as last:  # once, or not at all
            partial = list(last.values)
            step(j % accumulators, done + j)
            last.next(partial)
        partial = list(last.results)
    return _tree(strip, stage, partial)


def _is_unrolled(strip: Strip, length: Size) -> bool:
    if not isinstance(length, int):
        return False
    return length <= (_UNROLLED if len(strip.spec.reduced) > 1 else LANES)


def _across_block(
    strip: Strip, stages: Sequence[Stage], first: Index, size: Size
) -> list[ir.Value]:
    """Sums of `size` elements from `first` on.

    The partial results are more than registers hold. A few that are joined with one another go
    through all of their elements at a time; what they come to waits in memory for the rest of the
    tree.
    """
    fb = strip.fb
    if not isinstance(size, int):
        return _Partial(strip, stages).one_by_one(first, size)
    if _is_unrolled(strip, size):
        partial = [strip.started(stage, SUMS) for stage in stages]
        for k in range(size):
            values = strip.elements(stages, strip.fb.iadd(first, k), strip.rows)
            for own, stage, value in zip(partial, stages, values, strict=True):
                own[k % SUMS] = strip.combine(stage, own[k % SUMS], value)
        return [_tree(strip, s, own) for s, own in zip(stages, partial, strict=True)]
    rounds, remainder = divmod(size, SUMS)
    sums = _Partial(strip, stages)
    tiles = max(0, rounds - 1) // _TURNS if rounds > _IN_HAND else 0
    if tiles:
        sums.begin()
        with fb.loop(tiles * _TURNS * SUMS, step=_TURNS * SUMS) as tile:
            sums.add(fb.iadd(first, tile.index), _TURNS)
    done = tiles * _TURNS
    return sums.end(fb.iadd(first, done * SUMS), rounds - done, remainder, begun=tiles > 0)


class _Partial:
    """The partial results of sums of rows side by side. A few of each stage's, those that are
    joined with one another, are taken in hand at a time."""

    def __init__(self, strip: Strip, stages: Sequence[Stage]) -> None:
        self.strip, self.stages, self.fb = strip, stages, strip.fb
        self.is_long = any(calls(stage.element) for stage in stages)
        """Whether an element's code is."""
        sums_per_stage = max(1, _registers(strip.fb) // len(stages))
        self.sums_in_registers = (
            2 if self.is_long else min(_MOST_HELD, 1 << (sums_per_stage.bit_length() - 1))
        )
        self.gap = SUMS // self.sums_in_registers
        with self.fb.beginning():
            kinds = (ELEMENT_TYPES[stage.element.dtype] for stage in stages)
            self.memory = [self.fb.b.alloca(ir.ArrayType(kind, SUMS * LANES)) for kind in kinds]

    def _slot_pointer(self, stage: int, slot: Index) -> ir.Value:
        dtype = self.stages[stage].element.dtype
        return self.fb.at(self.memory[stage], (slot, LANES), dtype=dtype)

    def _loaded(self, slots: Sequence[Index]) -> list[list[ir.Value]]:
        """By stage, the partial results that lie in memory."""
        return [
            [self.fb.load(self._slot_pointer(i, slot), stage.element.dtype) for slot in slots]
            for i, stage in enumerate(self.stages)
        ]

    def begin(self) -> None:
        """Leave the partial results of no elements in memory."""
        with self.fb.loop(SUMS) as slot:
            for i, stage in enumerate(self.stages):
                self.fb.store(self.strip.start(stage)[0], self._slot_pointer(i, slot.index))

    def add(self, first: Index, turns: int) -> None:
        """To the partial results in memory, `turns` elements of each from `first` on; read in
        their order, but for so many at a time."""
        with self.fb.loop(SUMS) as slot:
            sums = self._loaded([slot.index])
            for turn in range(turns):
                self._take(sums, 0, self.fb.iadd(self.fb.iadd(first, turn * SUMS), slot.index))
            for i, own in enumerate(sums):
                self.fb.store(own[0], self._slot_pointer(i, slot.index))

    def one_by_one(self, first: Index, size: Size) -> list[ir.Value]:
        """The sums of `size` elements from `first` on, as many as are known when it runs."""
        self.begin()
        with self.fb.loop(size) as element:
            slot = self.fb.split(element.index, SUMS)[1]
            sums = self._loaded([slot])
            self._take(sums, 0, self.fb.iadd(first, element.index))
            for i, own in enumerate(sums):
                self.fb.store(own[0], self._slot_pointer(i, slot))
        left = self._loaded(range(SUMS))
        return [_tree(self.strip, s, own) for s, own in zip(self.stages, left, strict=True)]

    def _take(self, sums: list[list[ir.Value]], index: int, k: Index) -> None:
        """Add element k to accumulator `index` of every stage's `sums`."""
        values = self.strip.elements(self.stages, k, self.strip.rows)
        for own, stage, value in zip(sums, self.stages, values, strict=True):
            own[index] = self.strip.combine(stage, own[index], value)

    def end(self, first: Index, rounds: int, remainder: int, begun: bool) -> list[ir.Value]:
        """The sums, when each has taken `rounds` elements from `first` on, and of `rest` more in
        order one. begun: whether there are some in memory, or none before."""
        fb, gap = self.fb, self.gap
        for start, stop, more in (
            (0, remainder % gap, remainder // gap + 1),
            (remainder % gap, gap, remainder // gap),
        ):
            if start == stop:
                continue
            with fb.loop(stop, start=start) as slot:
                slots = [fb.iadd(slot.index, j * gap) for j in range(self.sums_in_registers)]
                if begun:
                    sums = self._loaded(slots)
                else:
                    sums = [
                        self.strip.started(stage, self.sums_in_registers) for stage in self.stages
                    ]
                sums = self._rounds(sums, fb.iadd(first, slot.index), rounds)
                here = fb.iadd(fb.iadd(first, rounds * SUMS), slot.index)
                for j in range(more):
                    self._take(sums, j, fb.iadd(here, j * gap))
                for i, (stage, own) in enumerate(zip(self.stages, sums, strict=True)):
                    fb.store(_tree(self.strip, stage, own), self._slot_pointer(i, slot.index))
        left = self._loaded(range(gap))
        return [_tree(self.strip, s, own) for s, own in zip(self.stages, left, strict=True)]

    def _rounds(
        self, sums: list[list[ir.Value]], first: Index, rounds: int
    ) -> list[list[ir.Value]]:
        def one(here: Index) -> None:
            for j in range(self.sums_in_registers):
                self._take(sums, j, self.fb.iadd(here, j * self.gap))

        if rounds <= (1 if self.is_long else _ROUNDS):
            for turn in range(rounds):
                one(self.fb.iadd(first, turn * SUMS))
            return sums
        with self.fb.loop(rounds * SUMS, step=SUMS, carry=_flat(sums)) as loop:
            sums = _groups_of(loop.values, self.sums_in_registers)
            one(self.fb.iadd(first, loop.index))
            loop.next(_flat(sums))
        return _groups_of(loop.results, self.sums_in_registers)


def _registers(fb: FunctionBuilder) -> int:
    """Half of the logical vectors that registers hold."""
    target = fb.module.target
    return max(1, target.registers // target.physical // 2)


# --- rows along a vector


class _StageWalk:
    """Rows that some stages go through together; `each` is a stage of a row."""

    def __init__(self, strips: Sequence[Strip], stages: Sequence[Stage]) -> None:
        self.fb, self.strips, self.stages = strips[0].fb, strips, stages
        self.length = _length(strips[0], stages)
        self.stages_of_strips = [(strip, stage) for strip in strips for stage in stages]
        orders = [strip.start(stage)[1] // LANES for strip, stage in self.stages_of_strips]
        max_vectors = max(orders) or max(1, 4 // len(strips))
        self.vector_counts = [order or max_vectors for order in orders]
        """Vectors of partial results."""
        self.blocked = [
            (not isinstance(self.length, int) or self.length > BLOCK)
            and in_blocks(stage.kind, stage.element.dtype)
            for _, stage in self.stages_of_strips
        ]

    def at_once(self) -> list[ir.Value | list[ir.Value]]:
        """All of a row, and the tree of lanes in the end."""
        partial = self._accumulate(0, self.length, self._started())
        return [
            self._reduced_lanes(s, partial[s :: len(self.stages)]) for s in range(len(self.stages))
        ]

    def _started(self) -> list[list[ir.Value]]:
        accumulators = zip(self.stages_of_strips, self.vector_counts, strict=True)
        return [strip.started(stage, count) for (strip, stage), count in accumulators]

    def in_blocks(self) -> list[ir.Value | list[ir.Value]]:
        """Sums of floats block by block; what else there is all along. Of one row."""
        state = [
            [self.fb.constant(0.0, stage.element.dtype, lanes=0)] * 2 if blocked else started
            for (_, stage), started, blocked in zip(
                self.stages_of_strips, self._started(), self.blocked, strict=True
            )
        ]
        full, remainder = self.length // BLOCK * BLOCK, self.length % BLOCK
        with self.fb.loop(full, step=BLOCK, carry=_flat(state)) as loop:
            loop.next(_flat(self._with_elements(loop.index, BLOCK, self._states(loop.values))))
        state = self._states(loop.results)
        if remainder != 0:
            state = self._with_elements(full, remainder, state)
        return [
            _final_sum(*self.stages_of_strips[i], values)
            if self.blocked[i]
            else self._reduced_lanes(i, [values])
            for i, values in enumerate(state)
        ]

    def _states(self, values: Sequence[ir.Value]) -> list[list[ir.Value]]:
        """By stage of a row: total and what it lost, or the partial results of all until now."""
        counts = zip(self.blocked, self.vector_counts, strict=True)
        return _split(values, [2 if blocked else count for blocked, count in counts])

    def _with_elements(
        self, first: Index, size: Size, state: Sequence[list[ir.Value]]
    ) -> list[list[ir.Value]]:
        """The state with `size` elements from `first` on, a block or the last, added."""
        partial = [
            started if blocked else values
            for started, blocked, values in zip(self._started(), self.blocked, state, strict=True)
        ]
        after = self._accumulate(first, size, partial)
        for i, (before, blocked) in enumerate(zip(state, self.blocked, strict=True)):
            if blocked:
                block = self._reduced_lanes(i, [after[i]])
                assert not isinstance(block, list)  # it is of sums of floats
                after[i] = _with_block(*self.stages_of_strips[i], before, block)
        return after

    def _accumulate(
        self, first: Index, size: Size, partial: list[list[ir.Value]]
    ) -> list[list[ir.Value]]:
        """`partial` with `size` elements from `first` on taken in, of as many rows at a time as
        registers hold the sums of; of those of a stage of a row, each takes sixteen in turn."""
        stages = len(self.stages)
        max_rows = max(1, _registers(self.fb) // len(_flat(partial[:stages])))
        results = []
        for at in range(0, len(self.strips), max_rows):
            strips = self.strips[at : at + max_rows]
            own = partial[at * stages : (at + len(strips)) * stages]
            results += self._walk_rows(strips, first, size, own)
        return results

    def _walk_rows(
        self, strips: Sequence[Strip], first: Index, size: Size, partial: list[list[ir.Value]]
    ) -> list[list[ir.Value]]:
        fb, counts = self.fb, self.vector_counts[: len(self.stages)] * len(strips)
        strip_stages = [(strip, stage) for strip in strips for stage in self.stages]
        turns = max(counts)

        def step(turn: int, k: Index, count: Index) -> None:
            values = [v for strip in strips for v in strip.elements(self.stages, k, count)]
            for i, ((strip, stage), value) in enumerate(zip(strip_stages, values, strict=True)):
                accumulator = turn % counts[i]
                total = strip.combine(stage, partial[i][accumulator], value)
                if not isinstance(count, int) or count < LANES:
                    total = fb.b.select(fb.first(count), total, partial[i][accumulator])
                partial[i][accumulator] = total

        full, left = divmod(size, LANES)
        is_short = (
            isinstance(full, int)
            and full <= _SHORT
            and not any(calls(stage.element) for stage in self.stages)
        )
        done = 0 if is_short else full // turns * turns
        if done != 0:
            with fb.loop(done * LANES, step=turns * LANES, carry=_flat(partial)) as loop:
                partial = _split(loop.values, counts)
                here = fb.iadd(first, loop.index)
                for turn in range(turns):
                    step(turn, fb.iadd(here, turn * LANES), LANES)
                loop.next(_flat(partial))
            partial = _split(loop.results, counts)
        if isinstance(full, int):
            for k in range(done, full):
                step(k, fb.iadd(first, k * LANES), LANES)
            if left:
                step(full, fb.iadd(first, full * LANES), left)
            return partial
        for turn in range(turns):  # the last whole vectors, then what is left of one
            is_last = equal(full - done, turn) * minimum(1, left)
            has_full = minimum(1, maximum(full - done - turn, 0))
            for trips, count in ((has_full, LANES), (is_last, left)):
                if trips == 0:
                    continue
                with fb.loop(trips, carry=_flat(partial)) as once:
                    partial = _split(once.values, counts)
                    step(turn, fb.iadd(first, (done + turn) * LANES), count)
                    once.next(_flat(partial))
                partial = _split(once.results, counts)
        return partial

    def _reduced_lanes(
        self, stage_index: int, rows: Sequence[Sequence[ir.Value]]
    ) -> ir.Value | list[ir.Value]:
        """Partial results of a stage of all rows, and their lanes, as `along` gives them."""
        stage = self.stages[stage_index]
        row_values = [_tree(strip, stage, values) for strip, values in zip(self.strips, rows)]
        join = functools.partial(self.strips[0].join, stage)
        if in_blocks(stage.kind, stage.element.dtype):
            return joined_rows(self.fb, row_values, join)
        return [joined_lanes(self.fb, value, join) for value in row_values]
