"""Going through the rows of a reduction: all of a row at once, or, for sums of floats, in blocks.

Of rows along a vector, the partial results of `numerics.reductions` are its lanes; of rows side by
side, each is a vector. What blocks come to is added by the two-sums of that module, a few
operations in a block.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import ELEMENT_TYPES, Index
from verax.compiler.kernels.llvm.lanes import joined_lanes, joined_rows
from verax.compiler.kernels.reduce.spec import Stage
from verax.compiler.kernels.reduce.strips import Strip, calls
from verax.compiler.kernels.target import LANES
from verax.numerics.reductions import BLOCK, SUMS, add_block, in_blocks, sum_of_blocks

_UNROLLED = 64  # rows this short in several dims, or of at most 16 elements, need no loop
_SHORT = 8
"""Vectors of a row that need no loop: LayerNorm of 96 takes 0.93 of the time."""


def along(strips: Sequence[Strip], stages: Sequence[Stage]) -> list[ir.Value | list[ir.Value]]:
    """What `stages`, which are walked together, reduce to: sums of floats as a value of a lane for
    each strip (of one a scalar), others by strip, in every lane of a vector."""
    walk = _Walk(strips, stages)
    return walk.in_blocks() if any(walk.blocked) else walk.at_once()


def across(strip: Strip, stages: Sequence[Stage]) -> list[ir.Value]:
    """What `stages`, which are walked together, reduce to: a vector of rows each. Several are sums
    of floats."""
    length = _length(strip, stages)
    if not in_blocks(stages[0].kind, stages[0].element.dtype):
        return [_across_at_once(strip, stages[0], length)]
    if length <= BLOCK:
        return _across_block(strip, stages, 0, length)
    state = [strip.start(stage)[0] for stage in stages for _ in range(2)]
    full, rest = length // BLOCK * BLOCK, length % BLOCK
    with strip.fb.loop(full, step=BLOCK, carry=state) as loop:
        sums = _across_block(strip, stages, loop.index, BLOCK)
        loop.next(_added(strip, stages, loop.values, sums))
    state = list(loop.results)
    if rest:
        state = _added(strip, stages, state, _across_block(strip, stages, full, rest))
    return [_settled(strip, s, pair) for s, pair in zip(stages, _parts(state, 2), strict=True)]


def _length(strip: Strip, stages: Sequence[Stage]) -> int:
    """Elements of a row that `stages` take, all of them the same."""
    return strip.spec.length if stages[0].first is None else stages[0].first


def _parts(values: Sequence[ir.Value], size: int) -> list[list[ir.Value]]:
    return [list(values[i : i + size]) for i in range(0, len(values), size)]


def _split(values: Sequence[ir.Value], sizes: Sequence[int]) -> list[list[ir.Value]]:
    left = list(values)
    return [[left.pop(0) for _ in range(size)] for size in sizes]


def _flat(parts: Sequence[Sequence[ir.Value]]) -> list[ir.Value]:
    return [value for part in parts for value in part]


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


def _settled(strip: Strip, stage: Stage, state: Sequence[ir.Value]) -> ir.Value:
    """The sum, from its total and what that lost."""
    m, dtype = strip.arith_of(state[0]), stage.element.dtype
    return m.unbind(sum_of_blocks(m, *(m.bind(v, dtype) for v in state)))


# --- rows side by side


def _added(
    strip: Strip, stages: Sequence[Stage], state: Sequence[ir.Value], sums: Sequence[ir.Value]
) -> list[ir.Value]:
    pairs = zip(stages, _parts(state, 2), sums, strict=True)
    return _flat([_with_block(strip, *each) for each in pairs])


def _across_at_once(strip: Strip, stage: Stage, length: int) -> ir.Value:
    """A product of floats, or what comes out the same in any order."""
    start, ordered = strip.start(stage)
    ways = ordered or 4
    partial = [start] * ways
    done = 0

    def step(which: int, k: Index) -> None:
        value = strip.elements([stage], k, strip.rows)[0]
        partial[which] = strip.combine(stage, partial[which], value)

    if not _is_unrolled(strip, length):
        done = length // ways * ways
        with strip.fb.loop(done, step=ways, carry=partial) as loop:
            partial = list(loop.values)
            for j in range(ways):
                step(j, strip.fb.iadd(loop.index, j))
            loop.next(partial)
        partial = list(loop.results)
    for k in range(done, length):
        step(k % ways, k)
    return _tree(strip, stage, partial)


def _is_unrolled(strip: Strip, length: int) -> bool:
    return length <= (_UNROLLED if len(strip.spec.reduced) > 1 else LANES)


def _across_block(strip: Strip, stages: Sequence[Stage], first: Index, size: int) -> list[ir.Value]:
    """Sums of `size` elements from `first` on."""
    if not _is_unrolled(strip, size):
        return _Held(strip, stages).sums(first, size)
    partial = [strip.started(stage, SUMS) for stage in stages]
    for k in range(size):
        values = strip.elements(stages, strip.fb.iadd(first, k), strip.rows)
        for sums, stage, value in zip(partial, stages, values, strict=True):
            sums[k % SUMS] = strip.combine(stage, sums[k % SUMS], value)
    return [_tree(strip, s, sums) for s, sums in zip(stages, partial, strict=True)]


class _Held:
    """The partial results of sums of rows side by side, which are more than registers hold: in
    memory, from where a few are taken in hand, for a few elements each."""

    def __init__(self, strip: Strip, stages: Sequence[Stage]) -> None:
        self.strip, self.stages, self.fb = strip, stages, strip.fb
        many = any(calls(stage.element) for stage in stages)
        self.parts, self.turns = 4, 4 if len(stages) > 1 and not many else 1
        """Taken in hand at once, and elements for each. One sum alone waits for what it reads, and
        reading is quickest in order."""
        with self.fb.beginning():
            kinds = (ELEMENT_TYPES[stage.element.dtype] for stage in stages)
            self.memory = [self.fb.b.alloca(ir.ArrayType(kind, SUMS * LANES)) for kind in kinds]

    def sums(self, first: Index, size: int) -> list[ir.Value]:
        """Of `size` elements from `first` on."""
        fb = self.fb
        with fb.loop(SUMS) as part:
            for stage, place in zip(self.stages, self._places(part.index), strict=True):
                fb.store(self.strip.start(stage)[0], place)
        done = 0
        for turns in dict.fromkeys((self.turns, size // SUMS % self.turns)):
            trips = (size - done) // (turns * SUMS) if turns else 0
            if trips:
                with fb.loop(trips) as trip:
                    here = fb.iadd(fb.iadd(first, done), fb.imul(trip.index, turns * SUMS))
                    with fb.loop(SUMS, step=self.parts) as part:
                        self._take(here, part.index, self.parts, turns)
                done += trips * turns * SUMS
        if done < size:
            with fb.loop(size - done) as part:
                self._take(fb.iadd(first, done), part.index, 1, 1)
        found = []
        for i, stage in enumerate(self.stages):
            pointers = [self._places(part)[i] for part in range(SUMS)]
            values = [fb.load(pointer, stage.element.dtype) for pointer in pointers]
            found.append(_tree(self.strip, stage, values))
        return found

    def _places(self, part: Index) -> list[ir.Value]:
        return [
            self.fb.at(pointer, (part, LANES), dtype=stage.element.dtype)
            for stage, pointer in zip(self.stages, self.memory, strict=True)
        ]

    def _take(self, here: Index, part: Index, parts: int, turns: int) -> None:
        """Into each of `parts` from `part` on, the elements that come to it of `turns` rounds from
        `here` on."""
        fb = self.fb
        for j in range(parts):
            which = fb.iadd(part, j)
            places = self._places(which)
            held = [
                fb.load(place, stage.element.dtype)
                for stage, place in zip(self.stages, places, strict=True)
            ]
            for turn in range(turns):
                k = fb.iadd(fb.iadd(here, turn * SUMS), which)
                values = self.strip.elements(self.stages, k, self.strip.rows)
                for i, (stage, value) in enumerate(zip(self.stages, values, strict=True)):
                    held[i] = self.strip.combine(stage, held[i], value)
            for value, place in zip(held, places, strict=True):
                fb.store(value, place)


# --- rows along a vector


class _Walk:
    """Rows that some stages go through together; `each` is a stage of a row."""

    def __init__(self, strips: Sequence[Strip], stages: Sequence[Stage]) -> None:
        self.fb, self.strips, self.stages = strips[0].fb, strips, stages
        self.length = _length(strips[0], stages)
        self.each = [(strip, stage) for strip in strips for stage in stages]
        orders = [strip.start(stage)[1] // LANES for strip, stage in self.each]
        most = max(orders) or max(1, 4 // len(strips))
        self.ways = [order or most for order in orders]
        """Vectors of partial results."""
        self.blocked = [
            self.length > BLOCK and in_blocks(stage.kind, stage.element.dtype)
            for _, stage in self.each
        ]

    def at_once(self) -> list[ir.Value]:
        """All of a row, and the tree of lanes in the end."""
        partial = self._walk(0, self.length, self._started())
        return [self._joined(s, partial[s :: len(self.stages)]) for s in range(len(self.stages))]

    def _started(self) -> list[list[ir.Value]]:
        pairs = zip(self.each, self.ways, strict=True)
        return [strip.started(stage, ways) for (strip, stage), ways in pairs]

    def in_blocks(self) -> list[ir.Value | list[ir.Value]]:
        """Sums of floats block by block; what else there is all along. Of one row."""
        state = [
            [self.fb.constant(0.0, stage.element.dtype, lanes=0)] * 2 if blocked else started
            for (_, stage), started, blocked in zip(
                self.each, self._started(), self.blocked, strict=True
            )
        ]
        full, rest = self.length // BLOCK * BLOCK, self.length % BLOCK
        with self.fb.loop(full, step=BLOCK, carry=_flat(state)) as loop:
            loop.next(_flat(self._with_elements(loop.index, BLOCK, self._states(loop.values))))
        state = self._states(loop.results)
        if rest:
            state = self._with_elements(full, rest, state)
        return [
            _settled(*self.each[i], values) if self.blocked[i] else self._joined(i, [values])
            for i, values in enumerate(state)
        ]

    def _states(self, values: Sequence[ir.Value]) -> list[list[ir.Value]]:
        """By stage of a row: total and what it lost, or the partial results of all until now."""
        pairs = zip(self.blocked, self.ways, strict=True)
        return _split(values, [2 if blocked else ways for blocked, ways in pairs])

    def _with_elements(
        self, first: Index, size: int, state: Sequence[list[ir.Value]]
    ) -> list[list[ir.Value]]:
        """The state with `size` elements from `first` on, a block or the last, added."""
        partial = [
            started if blocked else values
            for started, blocked, values in zip(self._started(), self.blocked, state, strict=True)
        ]
        after = self._walk(first, size, partial)
        for i, (before, blocked) in enumerate(zip(state, self.blocked, strict=True)):
            if blocked:
                after[i] = _with_block(*self.each[i], before, self._joined(i, [after[i]]))
        return after

    def _walk(self, first: Index, size: int, partial: list[list[ir.Value]]) -> list[list[ir.Value]]:
        """`partial` with `size` elements from `first` on taken in, of as many rows at a time as
        registers hold the sums of; of those of a stage of a row, each takes sixteen in turn."""
        target, stages = self.fb.module.target, len(self.stages)
        held = target.registers // target.physical // 2
        most = max(1, held // len(_flat(partial[:stages])))
        found = []
        for at in range(0, len(self.strips), most):
            strips = self.strips[at : at + most]
            own = partial[at * stages : (at + len(strips)) * stages]
            found += self._walk_rows(strips, first, size, own)
        return found

    def _walk_rows(
        self, strips: Sequence[Strip], first: Index, size: int, partial: list[list[ir.Value]]
    ) -> list[list[ir.Value]]:
        fb, ways = self.fb, self.ways[: len(self.stages)] * len(strips)
        each = [(strip, stage) for strip in strips for stage in self.stages]
        turns = max(ways)

        def step(turn: int, k: Index, count: int) -> None:
            values = [v for strip in strips for v in strip.elements(self.stages, k, count)]
            for i, ((strip, stage), value) in enumerate(zip(each, values, strict=True)):
                place = turn % ways[i]
                taken = strip.combine(stage, partial[i][place], value)
                if count < LANES:
                    taken = fb.b.select(fb.first(count), taken, partial[i][place])
                partial[i][place] = taken

        full = size // LANES
        is_short = full <= _SHORT and not any(calls(stage.element) for stage in self.stages)
        done = 0 if is_short else full // turns * turns
        if done:
            with fb.loop(done * LANES, step=turns * LANES, carry=_flat(partial)) as loop:
                partial = _split(loop.values, ways)
                here = fb.iadd(first, loop.index)
                for turn in range(turns):
                    step(turn, fb.iadd(here, turn * LANES), LANES)
                loop.next(_flat(partial))
            partial = _split(loop.results, ways)
        for k in range(done, full):
            step(k, fb.iadd(first, k * LANES), LANES)
        if size % LANES:
            step(full, fb.iadd(first, full * LANES), size % LANES)
        return partial

    def _joined(
        self, number: int, rows: Sequence[Sequence[ir.Value]]
    ) -> ir.Value | list[ir.Value]:
        """Partial results of a stage of all rows, and their lanes, as `along` gives them."""
        stage = self.stages[number]
        each = [_tree(strip, stage, values) for strip, values in zip(self.strips, rows)]
        join = functools.partial(self.strips[0].join, stage)
        if in_blocks(stage.kind, stage.element.dtype):
            return joined_rows(self.fb, each, join)
        return [joined_lanes(self.fb, value, join) for value in each]
