"""Attention by blocks of threads: some queries of a head against all its keys.

The scores of a block's queries stay in shared memory, or in memory of the block's own where they
are more, or of a number that is read at run time. They are computed in small tiles, a chain of
multiply-adds over the features each; sixteen threads take the Softmax of a row, each those elements
that a lane of a vector has on the CPU (`numerics.reductions`); the shares are multiplied with the
values in small tiles again. So the bits are those of `products.attention`. Keys and values that are
not packed, for few queries, are read as rows (`attention_of_rows`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from verax.compiler.kernels.gpu.attention_block import PackedKeys, shared_bytes
from verax.compiler.kernels.gpu.attention_of_rows import MOST_COLUMNS, KeysAsRows
from verax.compiler.kernels.gpu.tiles import MULTIPROCESSORS, shared_limit
from verax.compiler.kernels.llvm.builder import Kernel, ModuleBuilder
from verax.compiler.kernels.llvm.gpu import block_kernel
from verax.compiler.kernels.products import attention as elsewhere
from verax.compiler.kernels.products.attention_spec import (
    AttentionSchedule,
    AttentionSpec,
)
from verax.compiler.kernels.registry import ANY_TARGET, EMITTERS, Space, Stage, emits
from verax.compiler.kernels.sizes import Size, ceil_div, minimum
from verax.compiler.kernels.target import LANES, Target

ROW_THREADS = 256
"""Of a block whose keys are not packed, which few queries share."""
MOST_BLOCKS = 512
"""Whose scores are in memory of their own; they go on to further queries."""


@dataclasses.dataclass(frozen=True)
class HeadSchedule(AttentionSchedule):
    """`rows` queries of a head are a block's. Keys and values are packed in panels of 16, or not at
    all. stored: the scores are in memory of the block's own, as they always are where the number of
    keys is open.

    A spec of open sizes has the schedule of the sizes there are now.
    """

    rows: int = 8
    blocks: int = 1
    tiles: int = 1
    stored: bool = False

    def __str__(self) -> str:
        return f"{self.rows} queries of a block"

    def threads(self, spec: AttentionSpec) -> int:
        """Sixteen for each query at smallest."""
        return self.rows * LANES if spec.rows_of is None else ROW_THREADS

    def stores_scores(self, spec: AttentionSpec) -> bool:
        """Whether scores are in memory of the block's own."""
        return self.stored or not isinstance(spec.m, int)

    def items(self, spec: AttentionSpec) -> Size:
        """Blocks."""
        units = spec.outer * spec.inner * ceil_div(spec.n, self.rows)
        return minimum(MOST_BLOCKS, units) if self.stores_scores(spec) else units

    def scratch_elements(self, spec: AttentionSpec) -> Size:
        """Of a block: none where scores are in shared memory."""
        return self.rows * spec.row if self.stores_scores(spec) else 0

    def scratch_bytes(self, spec: AttentionSpec) -> Size:
        return self.items(spec) * self.scratch_elements(spec) * 4 + LANES


MOST_ITEMS = 1024
"""Of the CPU's kernel here: each has scratch memory of its own."""


@dataclasses.dataclass(frozen=True)
class ItemSchedule(AttentionSchedule):
    """The CPU's kernel, a thread for each item, of which there are more than a processor has
    threads."""

    def items(self, spec: AttentionSpec) -> Size:
        return minimum(MOST_ITEMS, spec.outer * spec.inner * self.groups(spec))


ROWS = (16, 8, 4)
BY_ITEM = ItemSchedule(rows=4, blocks=1, tiles=1)


def takes(spec: AttentionSpec, target: Target) -> bool:
    """Whether `emit_heads` makes the kernel: float32, and a query's features and a row of values
    that fit shared memory."""
    if spec.dtype != "float32":
        return False
    smallest = HeadSchedule(ROWS[-1], stored=True)
    if spec.rows_of is not None and spec.e > MOST_COLUMNS:
        return False
    return _fits(spec, smallest, target)


def _fits(spec: AttentionSpec, schedule: HeadSchedule, target: Target, share: int = 1) -> bool:
    """Whether what a block keeps is no more than a part of the shared memory that it may have."""
    stored, threads = schedule.stores_scores(spec), schedule.threads(spec)
    return shared_bytes(spec, schedule.rows, threads, stored) <= shared_limit(target) // share


def head_schedule(spec: AttentionSpec, target: Target) -> HeadSchedule:
    """By rule: as many queries as leave a block for each multiprocessor, and fit; of keys that are
    not packed, all queries."""
    if spec.rows_of is not None:
        rows = spec.n if spec.n <= 4 else ceil_div(spec.n, 4) * 4
        assert isinstance(rows, int), "queries of keys that are not packed are few and known"
        schedule = HeadSchedule(rows)
        return schedule if _fits(spec, schedule, target) else HeadSchedule(rows, stored=True)
    heads, queries = spec.outer * spec.inner, spec.n
    for rows in ROWS[:-1]:
        blocks = heads * ceil_div(queries, rows)
        enough = not isinstance(blocks, int) or blocks >= MULTIPROCESSORS
        if enough and _fits(spec, HeadSchedule(rows), target, 2):
            return HeadSchedule(rows)
    if _fits(spec, HeadSchedule(ROWS[-1]), target):
        return HeadSchedule(ROWS[-1])
    rows = ROWS[1] if heads * ceil_div(queries, ROWS[1]) >= MULTIPROCESSORS else ROWS[-1]
    stored = HeadSchedule(rows, stored=True)
    return stored if _fits(spec, stored, target) else HeadSchedule(ROWS[-1], stored=True)


_CPU = EMITTERS[AttentionSpec, ANY_TARGET]
KNOWN = elsewhere.KNOWN


def _schedules(spec: AttentionSpec, target: Target) -> Sequence[AttentionSchedule]:
    return (head_schedule(spec, target),) if takes(spec, target) else (BY_ITEM,)


def _stages(spec: AttentionSpec, target: Target) -> tuple[Stage, ...]:
    if not takes(spec, target) or spec.rows_of is not None:
        return ()
    return (lambda best: map(HeadSchedule, ROWS),)


def _admits(spec: AttentionSpec, target: Target, schedule: object) -> bool:
    return (
        takes(spec, target)
        and spec.rows_of is None
        and isinstance(schedule, HeadSchedule)
        and schedule.rows in ROWS
        and schedule == HeadSchedule(schedule.rows, stored=schedule.stored)
        and _fits(spec, schedule, target)
    )


@emits(
    AttentionSpec,
    dtypes=KNOWN,
    schedules=_schedules,
    target="gpu",
    space=Space(HeadSchedule, _stages, _admits),
    settle=_CPU.settle,
)
def emit_attention(
    module: ModuleBuilder, spec: AttentionSpec, schedule: AttentionSchedule
) -> Kernel:
    """By heads where that can be, else as on the CPU."""
    if not isinstance(schedule, HeadSchedule):
        return _CPU.emit(module, spec, schedule)
    return emit_heads(module, spec, schedule)


def emit_heads(module: ModuleBuilder, spec: AttentionSpec, schedule: HeadSchedule) -> Kernel:
    """Items: `schedule.rows` queries of a head, or some such groups after one another."""
    n_args = 5 + (spec.mask is not None) + (spec.counts is not None or spec.skips_later)
    stored, threads = schedule.stores_scores(spec), schedule.threads(spec)
    memory = shared_bytes(spec, schedule.rows, threads, stored)
    key = ("attention", spec, schedule)
    f = block_kernel(module, key, n_args, threads, memory, hint="attention")
    if f.kernel is not None:
        return f.kernel
    items = schedule.items(spec)
    queries = (PackedKeys if spec.rows_of is None else KeysAsRows)(f, spec, schedule.rows, stored)
    if stored:
        units = spec.outer * spec.inner * ceil_div(spec.n, schedule.rows)
        first, last = (f.idiv(f.imul(at, units), items) for at in (f.begin, f.end))
        with f.loop(last, start=first) as unit:
            queries.emit(unit.index)
    else:
        queries.emit(f.begin)
    heads = spec.outer * spec.inner
    flops = heads * spec.n * spec.m * (2 * spec.d + 2 * spec.e + 24)
    touched = heads * (spec.n * (spec.d + spec.e) + spec.m * (spec.d + spec.e))
    return f.finish(items, flops, 4 * touched)
