"""How a product or a convolution is divided among the threads of a GPU: `TileSchedule`.

A block of threads computes a tile of outputs, each thread a small tile of it in registers. Factors
come to shared memory in stages of some 16 terms of the sums, each copied while earlier ones are
multiplied. None of it changes a bit.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator

from verax.compiler.kernels.convolution.schedule import TYPICAL, ConvSchedule, filter_blocks
from verax.compiler.kernels.convolution.spec import ConvSpec, Phase
from verax.compiler.kernels.llvm.gpu import MOST_THREADS, WARP
from verax.compiler.kernels.registry import Space, Stage
from verax.compiler.kernels.sizes import Size, ceil_div, entries, static_size, with_dims
from verax.compiler.kernels.target import LANES, Target

TERMS = 16
"""Terms of a step: those of a block of channels at a kernel position."""
MULTIPROCESSORS = 132
"""Of the GPU that rules choose for (H100, H200). Others have more or fewer; tiles suit them."""
SHARED_BYTES = 227 * 1024
"""Of a multiprocessor at compute capability 9.0."""
_SMALL_BLOCKS = dict.fromkeys(("sm_70", "sm_75"), 64 * 1024)
_BLOCK_BYTES = 99 * 1024


def shared_limit(target: Target) -> int:
    """Bytes of shared memory that a block may have on a GPU of the target's compute capability and
    on all later ones: 7.5 has the least of all, 8.6 and 8.9 from 8.0 on."""
    return _SMALL_BLOCKS.get(target.name, _BLOCK_BYTES)


@dataclasses.dataclass(frozen=True)
class TileSchedule(ConvSchedule):
    """A choice for one product or convolution. Of what `ConvSchedule` has, `blocks` is the panels
    of 16 filters in which weights are packed, and nothing else says anything.

    pixels, filters: outputs of a block of threads; thread_pixels, thread_filters: of a thread.
    stages: buffers of factors; steps: of 16 terms, in a stage. resident: blocks on a multiprocessor
    that registers must suffice for.
    """

    blocks: int = 1
    pixels: int = 64
    filters: int = 64
    thread_pixels: int = 8
    thread_filters: int = 4
    stages: int = 3
    steps: int = 2
    resident: int = 4

    def __str__(self) -> str:
        """The tiles, and how the factors come."""
        thread = f"{self.thread_pixels}x{self.thread_filters}"
        return (
            f"tile {self.pixels}x{self.filters} by threads of {thread}, "
            f"{self.stages} stages of {self.steps * TERMS} terms"
        )

    @property
    def down(self) -> int:
        """Threads along the pixels."""
        return self.pixels // self.thread_pixels

    @property
    def across(self) -> int:
        """Threads along the filters."""
        return self.filters // self.thread_filters

    @property
    def threads(self) -> int:
        return self.down * self.across

    @property
    def x_bytes(self) -> int:
        """Of a step's data in shared memory."""
        return 4 * TERMS * self.pixels

    @property
    def weight_bytes(self) -> int:
        """Of a step's weights in shared memory."""
        return 4 * TERMS * self.filters

    @property
    def stage_bytes(self) -> int:
        return self.steps * (self.x_bytes + self.weight_bytes)

    @property
    def shared_bytes(self) -> int:
        return self.stages * self.stage_bytes


TILES = tuple(
    TileSchedule(
        pixels=m, filters=n, thread_pixels=tm, thread_filters=tn, stages=stages, steps=steps,
        resident=resident,
    )
    for m, n, tm, tn, stages, steps, resident in (
        (256, 128, 8, 16, 3, 1, 1),
        (128, 256, 8, 16, 3, 1, 1),
        (128, 128, 8, 16, 3, 1, 2),
        (128, 128, 8, 8, 3, 1, 2),
        (128, 64, 8, 8, 3, 1, 4),
        (64, 128, 8, 8, 3, 1, 4),
        (64, 64, 8, 4, 3, 2, 4),
        (64, 32, 4, 4, 3, 2, 4),
        (32, 64, 4, 4, 3, 2, 4),
        (32, 32, 2, 4, 3, 2, 6),
        (16, 64, 2, 4, 3, 2, 6),
        (16, 32, 1, 4, 3, 4, 6),
        (16, 16, 1, 4, 4, 4, 8),
        (8, 64, 1, 4, 3, 4, 6),
        (8, 32, 1, 4, 4, 4, 8),
    )
)  # fmt: skip
"""Those that were measured and won somewhere, on an H100."""


def own_weights(spec: ConvSpec) -> bool:
    """Whether images have weights of their own, so that no tile has pixels of two of them."""
    return spec.weight_strides != (0, 0)


def pixels_of(spec: ConvSpec, phase: Phase) -> Size:
    """Outputs that are tiled together."""
    _, rows, cols = phase.count
    return rows * cols if own_weights(spec) else spec.batch * math.prod(phase.count)


def tiles_of(spec: ConvSpec, phase: Phase, schedule: TileSchedule) -> tuple[Size, Size, Size, Size]:
    """How many images that are apart, groups, tiles of pixels, and tiles of filters."""
    images = spec.batch * phase.count[0] if own_weights(spec) else 1
    down = ceil_div(pixels_of(spec, phase), schedule.pixels)
    across = ceil_div(filter_blocks(spec), schedule.filters // LANES)
    return images, spec.groups, down, across


def tile_schedule(spec: ConvSpec, target: Target) -> TileSchedule:
    """A schedule by rule: the tile for which a model of an H100 needs the fewest cycles."""
    return min(_fitting(target), key=lambda tile: cycles(spec, tile))


def cycles(spec: ConvSpec, tile: TileSchedule) -> float:
    """An estimate, by rounds of blocks on the multiprocessor that has the most of them."""
    spec = with_dims(spec, [TYPICAL] * entries(spec))
    blocks, terms = 0, 0
    for phase in spec.phases():
        blocks += static_size(math.prod(tiles_of(spec, phase, tile)))
        taps = math.prod(phase.tap_counts)
        terms = max(terms, static_size(spec.group_channels) * taps)
    together = min(tile.resident, SHARED_BYTES // tile.shared_bytes)
    full, remainder = divmod(-(-blocks // MULTIPROCESSORS), together)
    rounds = [together] * full + [remainder] * bool(remainder)
    return sum(START + terms * _cycles_of_a_term(tile, n) for n in rounds)


START = 1500.0
"""Cycles in which a block fetches its first stage and stores its outputs."""
BYTES_OF_L2 = 20.0
"""That a multiprocessor gets from the second-level cache in a cycle."""
OVERHEAD = 3.0
"""Instructions of a thread for each term beside multiply-adds and loads: addresses, copies."""


def _cycles_of_a_term(tile: TileSchedule, blocks: int) -> float:
    """Of a term of the sums of `blocks` blocks on a multiprocessor: what its four schedulers issue,
    its shared memory gives, its threads wait for, or the cache gives."""
    loads = (tile.thread_pixels + tile.thread_filters) / 4
    instructions = tile.thread_pixels * tile.thread_filters + loads + OVERHEAD
    warps = blocks * tile.threads / WARP
    return max(
        warps * instructions / 4,
        warps * loads * 1.5,
        instructions + 2 * loads,
        blocks * 4 * (tile.pixels + tile.filters) / BYTES_OF_L2,
    )


def _fitting(target: Target) -> Iterator[TileSchedule]:
    """Tiles whose stages fit the shared memory."""
    return (t for t in TILES if t.shared_bytes <= shared_limit(target))


def _stages(spec: ConvSpec, target: Target) -> tuple[Stage, ...]:
    """Tiles, the cheapest by the model first; then how factors come."""
    if entries(spec):
        return ()

    def tiles(best: TileSchedule) -> Iterable[TileSchedule]:
        return sorted(TILES, key=lambda tile: cycles(spec, tile))

    def staging(best: TileSchedule) -> Iterator[TileSchedule]:
        for stages in (2, 3, 4):
            for steps in (1, 2, 4):
                yield dataclasses.replace(best, stages=stages, steps=steps)

    def residence(best: TileSchedule) -> Iterator[TileSchedule]:
        for resident in (1, 2, 3, 4, 6, 8):
            yield dataclasses.replace(best, resident=resident)

    return tiles, staging, residence


_RANGES = {
    "pixels": (8, 16, 32, 64, 128, 256),
    "filters": (16, 32, 64, 128, 256),
    "thread_pixels": (1, 2, 4, 8, 16),
    "thread_filters": (4, 8, 16),
    "stages": (2, 3, 4),
    "steps": (1, 2, 4),
    "resident": tuple(range(1, 17)),
}
_REGISTERS = 65536
"""Of a multiprocessor."""


def admissible(schedule: object, target: Target) -> bool:
    """Whether a kernel may have a schedule."""
    if not isinstance(schedule, TileSchedule):
        return False
    values = {name: getattr(schedule, name) for name in _RANGES}
    if not all(type(v) is int and v in _RANGES[name] for name, v in values.items()):
        return False
    unused_fields = dataclasses.replace(
        schedule, **{name: getattr(_PLAIN, name) for name in _RANGES}
    )
    threads, sums = schedule.threads, schedule.thread_pixels * schedule.thread_filters
    return (
        unused_fields == _PLAIN
        and schedule.down % 8 == 0
        and schedule.across % 4 == 0
        and threads % (2 * WARP) == 0
        and threads <= MOST_THREADS
        and 2 * sums <= 256
        and schedule.resident * threads * (sums + 32) <= _REGISTERS
        and schedule.shared_bytes <= shared_limit(target)
    )


_PLAIN = TileSchedule()


def _admits(spec: ConvSpec, target: Target, schedule: object) -> bool:
    return not entries(spec) and admissible(schedule, target)


TILED = Space(TileSchedule, _stages, _admits)
