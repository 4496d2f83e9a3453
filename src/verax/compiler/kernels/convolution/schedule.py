"""How a convolution is computed: tiles, order of work and prefetch, as data.

None of it changes a bit of the result. `direct_schedule` chooses by a small model of the register
file and the two multiply-add units; measuring may choose better.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from verax.compiler.kernels.convolution.spec import ConvSpec, Phase
from verax.compiler.kernels.layout import Strides
from verax.compiler.kernels.sizes import Size, ceil_div, entries, static_size, with_dims
from verax.compiler.kernels.target import LANES, Target

L2_BYTES = 1 << 19
"""What a chunk of the input may take of the second-level cache."""
PASS_BYTES = L2_BYTES // 4
"""Weights that a pass over an item's tiles reads again and again."""
MIN_ITEMS = 16
"""Fewer work items than this split badly over a few threads."""


@dataclasses.dataclass(frozen=True)
class ConvSchedule:
    """A choice for one convolution.

    blocks: output channel blocks of 16 per tile; rows, cols: outputs per tile. chunk: rows of tiles
    per work item. filters_outer: an item's filters change last, so that weights are read once;
    otherwise the image is walked once. unroll: channel steps written out. near: channel steps that
    weights are prefetched ahead into L1 (0: none). ahead: prefetch the weights of the next item, or
    pass, into L2.
    fetch_block: prefetch the next input block into L1. pass_blocks: input blocks per walk over an
    item's tiles, partial sums waiting in y (0: all at once; y must then not overlap an operand).
    spare: lanes of the last block that are not computed, as no filter has them.
    """

    blocks: int = 2
    rows: int = 1
    cols: int = 14
    chunk: int = 1
    filters_outer: bool = False
    unroll: int = 4
    near: int = 16
    ahead: bool = False
    fetch_block: bool = False
    pass_blocks: int = 0
    spare: int = 0

    def __str__(self) -> str:
        """The tile, and whatever is not as it is by default."""
        items = [f"tile {self.rows}x{self.cols} by {self.blocks * LANES} channels"]
        for field in dataclasses.fields(self)[3:]:
            value = getattr(self, field.name)
            if value != field.default:
                items.append(field.name if value is True else f"{field.name}={value}")
        return ", ".join(items)


def flattened(spec: ConvSpec, phase: Phase) -> bool:
    """Whether rows may be taken as one: where they are read, pixels lie one after another."""
    if phase.tap_counts != (1, 1, 1) or phase.step[1:] != (1, 1):
        return False
    if phase.out_step[1:] != (1, 1):
        return False
    return _dense_rows(spec.x, phase.count[2]) and (
        phase.count[2] != 1 or written_densely(spec, phase)
    )


def written_densely(spec: ConvSpec, phase: Phase) -> bool:
    """Whether rows follow one another in the output too, and in what is added to it."""
    tensors = [spec.y]
    if spec.epilogue:
        tensors += [o.strides for o in spec.epilogue.operands if o.strides]
    return all(_dense_rows(t, phase.count[2]) for t in tensors)


def _dense_rows(strides: Strides, columns: Size) -> bool:
    return strides.row == columns * strides.pixel


def grid(spec: ConvSpec, phase: Phase) -> tuple[Size, Size]:
    """Rows and columns to be tiled; flattened pixels count as rows."""
    _, rows, cols = phase.count
    return (rows * cols, 1) if flattened(spec, phase) else (rows, cols)


def passes(spec: ConvSpec, schedule: ConvSchedule) -> int:
    """How many times an item walks its tiles; 1 unless the input blocks divide evenly."""
    if not schedule.pass_blocks or not isinstance(spec.group_channels, int):
        return 1
    blocks, remainder = divmod(spec.group_channels, LANES)
    if remainder or blocks % schedule.pass_blocks:
        return 1
    return blocks // schedule.pass_blocks


def filter_blocks(spec: ConvSpec) -> Size:
    """Output channel blocks of one group."""
    return ceil_div(spec.group_filters, LANES)


def spare_lanes(spec: ConvSpec, target: Target) -> int:
    """Lanes of the last block, in whole registers, that no filter has. Only sums of floats are
    written for a part of a block."""
    if spec.groups > 1 or spec.types.sum != "float32" or not isinstance(spec.filters, int):
        return 0
    if spec.step > 1:  # weights of a step are no vector of 16
        return 0
    register_lanes = LANES // target.physical
    return -spec.filters % LANES // register_lanes * register_lanes


def registers_of(blocks: int, target: Target, spare: int = 0) -> int:
    """Registers that a vector of so many blocks takes, less `spare` lanes."""
    return blocks * target.physical - spare * target.physical // LANES


def step_cycles(
    blocks: int, pixels: int, target: Target, paired: bool = False, spare: int = 0
) -> float:
    """Cycles of one channel step of a tile: multiply-adds, loads, or latency."""
    vectors = registers_of(blocks, target, spare)
    if paired:  # two multiplications for each, and the shuffle and the weights are loaded too
        return max(vectors * pixels, (pixels + vectors + 1) / 2)
    return max(vectors * pixels / 2, (pixels + vectors) / 2, 4.0)


def fits(blocks: int, pixels: int, target: Target, paired: bool = False, spare: int = 0) -> bool:
    """Whether a tile's accumulators, weights and two inputs fit the register file; of paired bytes
    one block of filters; six registers are for what is between. spare: as `ConvSchedule` has it, of
    a tile with all filters; one input will do then."""
    if paired:
        return blocks == 1 and target.physical * (pixels + 2) + 4 <= target.registers
    vectors = registers_of(blocks, target, spare)
    return vectors * (pixels + 1) + (1 if spare else 2) <= target.registers


FEW_REGISTERS = 16
"""With so few, tiles of several rows and columns were 6 % slower where the next inputs are fetched:
their addresses lie on no line, so a whole block is written out."""
TYPICAL = 512
"""What dims that are read at run time are taken for when a schedule is chosen."""


def for_sums(spec: ConvSpec, target: Target) -> Target:
    """The target with registers that hold half as many sums, where these are float64."""
    half = target.vector_bits // (2 if spec.types.sum == "float64" else 1)
    return dataclasses.replace(target, vector_bits=half)


def direct_schedule(spec: ConvSpec, target: Target) -> ConvSchedule:
    """A schedule by rule."""
    target = for_sums(spec, target)
    spare = spare_lanes(spec, target)
    spec = with_dims(spec, [TYPICAL] * entries(spec))
    phase = largest_phase(spec)
    rows, cols = map(static_size, grid(spec, phase))
    total = static_size(filter_blocks(spec))
    max_pixels = _most_pixels(spec)
    best: tuple[float, ConvSchedule] | None = None
    straight = _fetches(spec, phase) and target.registers <= FEW_REGISTERS
    for cost, tile in _tiles(rows, cols, total, max_pixels, target, spec.paired, spare):
        if straight and tile.rows > 1 and tile.cols > 1:
            continue
        if best is None or cost < best[0] - 1e-9:
            best = cost, tile
    assert best is not None
    return _arrange(spec, phase, best[1])


def direct_tiles(spec: ConvSpec, target: Target) -> list[ConvSchedule]:
    """Schedules with all tiles that fit the register file, the cheapest by the model first; the
    rest of each is chosen by rule. For known sizes."""
    target, phase = for_sums(spec, target), largest_phase(spec)
    rows, cols = map(static_size, grid(spec, phase))
    blocks = static_size(filter_blocks(spec))
    spare = spare_lanes(spec, target)
    tiles = list(_tiles(rows, cols, blocks, MOST_OUTPUTS, target, spec.paired, spare))
    return [_arrange(spec, phase, tile) for _, tile in sorted(tiles, key=lambda pair: pair[0])]


def largest_phase(spec: ConvSpec) -> Phase:
    """The one with the most products."""
    return max(
        spec.phases(), key=lambda r: static_size(math.prod(r.tap_counts) * math.prod(r.count))
    )


MOST_BLOCKS, MOST_OUTPUTS = 4, 30
"""Of a tile: blocks of 16 channels, and outputs along an axis."""


def _tiles(
    rows: int, cols: int, total: int, max_pixels: int, target: Target, paired: bool, spare: int
) -> Iterator[tuple[float, ConvSchedule]]:
    """Tiles of at most `most` pixels that fit the register file, with their cost."""
    for blocks in range(1, min(MOST_BLOCKS, total) + 1):
        left = spare if blocks == total else 0
        if not fits(blocks, 1, target, paired, left):
            break
        for tile_cols in range(1, min(cols, MOST_OUTPUTS) + 1):
            for tile_rows in range(1, min(rows, MOST_OUTPUTS) + 1):
                pixels = tile_rows * tile_cols
                if pixels > max_pixels or not fits(blocks, pixels, target, paired, left):
                    break
                tile = ConvSchedule(blocks, tile_rows, tile_cols, spare=spare)
                yield _cost(tile, rows, cols, total, target, paired), tile


def _most_pixels(spec: ConvSpec) -> int:
    """How many pixels may be read side by side before their lines evict one another.

    Only the rows of a matrix lie so far apart, and at a power of two they share sets of the L1
    cache. Six rows by four blocks was as fast or faster than taller tiles on every size measured.
    """
    far = spec.x.lane == 1 and static_size(spec.x.pixel) > LANES
    if not far:
        return 1 << 30
    return 6 if static_size(filter_blocks(spec)) >= 4 else 12


def _pieces(extent: int, tile: int) -> list[tuple[int, int]]:
    """(how many, size) of the tiles that cover `extent`."""
    return [(n, size) for n, size in ((extent // tile, tile), (1, extent % tile)) if n and size]


def _cost(
    tile: ConvSchedule, rows: int, cols: int, total: int, target: Target, paired: bool
) -> float:
    """Cycles per channel step for one image, plus a little for each tile and block change."""
    cost = 0.0
    groups = [(n, b, 0) for n, b in _pieces(total, tile.blocks)]
    if tile.spare:  # in the last group of blocks
        n, b, _ = groups.pop()
        groups += [(n - 1, b, 0), (1, b, tile.spare)]
    for n_blocks, b, spare in groups:
        for n_rows, r in _pieces(rows, tile.rows):
            for n_cols, c in _pieces(cols, tile.cols):
                trips = n_blocks * n_rows * n_cols
                cost += trips * (step_cycles(b, r * c, target, paired, spare) + 0.3)
                cost += trips * 0.02 * b * r  # a wide row beats a tall tile, few weights win
    return cost


def _fetches(spec: ConvSpec, phase: Phase) -> bool:
    """Whether inputs are fetched ahead: each is used once, and blocks lie far apart."""
    pointwise, deep = phase.tap_counts == (1, 1, 1), static_size(spec.group_channels) >= 2 * LANES
    return pointwise and deep and spec.x.lane == 1 and spec.step == 1


def _waits(spec: ConvSpec) -> bool:
    """Whether partial sums may wait in y."""
    return spec.types.sum == spec.types.y and not spec.paired


def _arrange(spec: ConvSpec, phase: Phase, tile: ConvSchedule) -> ConvSchedule:
    """Split `tile`'s work into items, and choose what stays in cache."""
    rows, cols = map(static_size, grid(spec, phase))
    channels, group_channels = static_size(spec.channels), static_size(spec.group_channels)
    taps = math.prod(phase.tap_counts)
    item = 4 // spec.step  # bytes of a factor
    weight_bytes = item * static_size(spec.filters) * group_channels * taps
    image_bytes = item * channels * static_size(math.prod(phase.count)) * math.prod(phase.step)
    filters_outer = weight_bytes > image_bytes
    tiles = max(1, rows // tile.rows)
    groups_of_filters = spec.groups * -(-static_size(filter_blocks(spec)) // tile.blocks)
    outer_items = static_size(spec.batch * phase.count[0])
    pointwise, several_tiles = taps == 1, rows * cols > tile.rows * tile.cols
    per_item = item * group_channels * taps * tile.blocks * LANES
    # Weights that each image has for itself are read once either way, and so in sequence.
    outer = filters_outer and spec.weight_strides == (0, 0)
    passes = 0
    if _waits(spec) and (outer or not pointwise):
        few_tiles = filters_outer and rows * cols <= 64 and not pointwise
        passes = _in_passes(spec, per_item, few_tiles, several_tiles)
    enough = MIN_ITEMS // 2 if pointwise and passes else MIN_ITEMS
    if filters_outer and groups_of_filters >= enough:
        chunk = tiles
    else:
        row_bytes = item * channels * tile.rows * cols * phase.step[1] * phase.step[2]
        chunk = max(1, min(tiles, L2_BYTES // 2 // max(1, row_bytes)))
        min_chunks = -(-MIN_ITEMS // (outer_items * groups_of_filters))
        chunk = max(1, min(chunk, tiles // min_chunks if min_chunks > 1 else chunk))
        count = -(-tiles // chunk)
        chunk = -(-tiles // (count + count % 2 if count > 1 else count))
    several = several_tiles and (passes > 0 or per_item <= L2_BYTES // 2 + L2_BYTES // 8)
    # Each image's own weights are read once, the next item's behind this one's: 10 % faster.
    in_turn = several and spec.step == 2 and spec.weight_strides != (0, 0) and chunk >= tiles
    return dataclasses.replace(
        tile,
        unroll=LANES // 2 if spec.step == 2 else tile.unroll,  # 2 to 10 % faster with a whole block
        chunk=chunk,
        filters_outer=outer,
        fetch_block=_fetches(spec, phase),
        ahead=pointwise and ((filters_outer and several and spec.step == 1) or in_turn),
        pass_blocks=passes,
    )


def _in_passes(spec: ConvSpec, weights: int, few_tiles: bool, several: bool) -> int:
    """Input blocks of a pass, 0 for one pass: one, where tiles are few; some, where the weights of
    an item, in bytes, do not stay in the cache from one of `several` tiles to the next.

    Measured with 64 to 256 KiB a pass (AVX2, Zen 3): DeepLab's 960 channels take 0.83 of the time
    with a quarter of the cache, 2,048 channels 0.75, 512 to 1,024 channels 0.9 to 1. Products of
    49 rows with sums of 2,048 and 3,072 take 0.9 and 0.85 (Zen 5), as the next pass's weights are
    fetched meanwhile.
    """
    if few_tiles:
        return 1
    channels = static_size(spec.group_channels)
    if not several or weights <= 3 * L2_BYTES // 4 or channels % LANES:
        return 0
    blocks = channels // LANES
    divisors = [n for n in range(1, blocks) if blocks % n == 0]
    return max((n for n in divisors if weights * n <= blocks * PASS_BYTES), default=0)
