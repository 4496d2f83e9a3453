"""A 3 x 3 convolution that is computed by Winograd's minimal filtering. O3 chooses it.

It means what `Conv` means; only the bits that it promises, and how far they may err, are its own.
No file format has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from verax.base.errors import GraphError
from verax.ir.gains import InputGain
from verax.ir.operator import Case, Evaluation, Inference, Operator, operator
from verax.ir.types import DType, TensorType
from verax.numerics import power_of_two, winograd
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.error_model import KAPPA, TINY, Rounding, U
from verax.numerics.fma import fma32
from verax.ops.windows.convolution import Conv, per_channel
from verax.ops.windows.windows import Ints, Pads, Windows

TRANSFORM_STEPS = {2: 2, 4: 5}
"""Roundings that one number of a transformed tile has seen at most, along one axis."""


@operator
class WinogradConv(Operator):
    """Cross-correlation of x [n, c, h, w] with w [o, c / groups, 3, 3], plus bias [o], by
    F(tile x tile).

    Strides and dilations are 1. pads, groups: as those of Conv. tile: 2 or 4 outputs along an axis
    are computed together; tiles begin at output 0 and hang over the end.
    """

    tile: int = 4
    pads: Pads | str = ()
    groups: int = 1

    min_inputs: ClassVar[int] = 2
    max_inputs: ClassVar[int | None] = 3
    no_derivative = "no rule is written; regions that hold it are judged by Monte Carlo"
    no_hypotheses = "its attributes at other values are what is tried"

    @property
    def plain(self) -> Conv:
        """The convolution that it stands for."""
        return Conv(kernel_shape=(winograd.KERNEL,) * 2, pads=self.pads, groups=self.groups)

    def spatial(self, x: TensorType, w: TensorType) -> Windows:
        """The windows in numbers, for types of known spatial sizes."""
        return self.plain.spatial(x, w)

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        ctx.require(
            self.tile in winograd.TILES,
            f"unknown tile {self.tile!r}; supported: {', '.join(map(str, winograd.TILES))}",
        )
        ctx.require(ctx.type(0).rank == 4, f"the input is {ctx.type(0)}; it needs two spatial axes")
        ctx.require(ctx.type(0).dtype is DType.float32, "only float32 has this algorithm")
        return self.plain.infer(ctx)

    def gain(self, ctx: Inference, index: int) -> InputGain:
        return self.plain.gain(ctx, index)

    def reference(self, ev: Evaluation, x: Any, w: Any, b: Any = None) -> Any:
        return self.plain.reference(ev, x, w, b)

    def canonical(self, ev: Evaluation, x: Any, w: Any, b: Any = None) -> Any:
        """Input transform; for each of the (tile + 2)^2 positions a sum over the input channels
        of the group, ascending, from +0, one FMA per product; output transform; then, by one FMA,
        times the output's factor plus the bias (or +0).

        By tile and group the inputs are scaled by `winograd.scales` before the transform, and the
        factor, `winograd.factor`, takes it back. It is 0 where all that an output sees is zero. A
        pixel with a channel that is not finite enters as 0 in all channels of the group. An output
        that sees one is not finite in direct summation either: it is what the terms that are not
        finite sum to, plus the bias. Weights are finite, and below `winograd.LARGEST_WEIGHT`.
        """
        m, size, tile = NumpyArith(), self.tile + 2, self.tile
        if tile not in winograd.TILES:
            raise GraphError(f"there is no tile of {tile}")
        windows = self.plain.geometry(w.shape[2:]).windows(x.shape[2:])
        tiles = [-(-n // tile) for n in windows.output]
        with np.errstate(all="ignore"):
            guard = _guard(x, windows, tile, tiles, self.groups)
            finite = guard.magnitudes < winograd.NOT_FINITE
            ordinary = np.where(_by_channel(finite, x.shape[1]), x, np.float32(0))
            scale = _by_channel(guard.scale, x.shape[1])
            seen = [[d * scale for d in row] for row in _tiles(ordinary, windows, tile, tiles)]
            grid = winograd.both_ways(lambda d: winograd.input_transform(m, tile, d), seen)
            filters = winograd.transformed_filters(w, tile)
            sums = [
                [self._sum(grid[i][j], filters[i, j], self.groups) for j in range(size)]
                for i in range(size)
            ]
            output_tiles = winograd.both_ways(lambda s: winograd.output_transform(m, tile, s), sums)
            y = _stitched_tiles(np.array(output_tiles), windows)
            bias = np.float32(0) if b is None else per_channel(b, 4)
            y = fma32(y, _by_channel(guard.factor, w.shape[0]), np.broadcast_to(bias, y.shape))
            if not finite.all():
                nowhere = np.isnan(_by_channel(guard.factor, w.shape[0]))
                y = np.where(nowhere, _not_finite(x, w, windows, self.groups) + bias, y)
        return y

    @staticmethod
    def _sum(v: np.ndarray, u: np.ndarray, groups: int) -> np.ndarray:
        """v [n, c, ty, tx], u [o, c / groups] -> [n, o, ty, tx]."""
        filters, channels = u.shape[0] // groups, u.shape[1]
        seen = v.reshape(v.shape[0], groups, channels, *v.shape[2:])
        weights = u.reshape(1, groups, filters, channels, 1, 1)
        acc = np.zeros((v.shape[0], groups, filters, *v.shape[2:]), np.float32)
        for c in range(channels):
            acc = fma32(seen[:, :, c : c + 1], weights[:, :, :, c], acc)
        return acc.reshape(v.shape[0], u.shape[0], *v.shape[2:])

    def error(
        self, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Rounding | None]:
        """Roundings of the transforms and of the sums, carried through the matrices.

        The bound takes all magnitudes, |A^T| [(|G| |g| |G^T|) * (|B^T| |d| |B|)] |A|, and counts
        the roundings that one product goes through; sigma takes squares instead, as independent
        roundings add.
        """
        x, w, b = (*inputs, None)[:3]
        tile, channels = self.tile, w.shape[1]

        def product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
            return _product(left, right, self.groups)

        windows = self.plain.geometry(w.shape[2:]).windows(x.shape[2:])
        tiles = [-(-n // tile) for n in windows.output]
        guard = _guard(x.astype(np.float32), windows, tile, tiles, self.groups)
        felt = _by_channel(guard.factor != 0, w.shape[0])
        undone = _by_channel(np.abs(guard.factor), w.shape[0])
        finite = _by_channel(guard.magnitudes < winograd.NOT_FINITE, x.shape[1])
        seen = np.array(_tiles(np.where(finite, x, 0), windows, tile, tiles))
        into, kernel = np.array(winograd.INPUT[tile], float), np.array(winograd.FILTER[tile], float)
        out = np.array(winograd.OUTPUT[tile], float)
        v, u = _both_axes(into, seen), _kernels(kernel, w)
        steps = TRANSFORM_STEPS[tile]
        v_abs, u_abs = _both_axes(abs(into), abs(seen)), _kernels(abs(kernel), abs(w))
        sums, squares = product(v, u), product(v * v, u * u)
        # of one sum: its own roundings, those of its factors
        inner = sums**2 * (channels / 3) + squares * (channels / 6 + 2)
        inner = inner + steps * product(_both_axes(into**2, seen**2), u * u)
        variance = _both_axes(out**2, inner) + steps * _both_axes(out**2, sums**2)
        size = _both_axes(abs(out), product(v_abs, u_abs))
        # where all that an output sees is zero, it is the bias
        wide, bound = (
            felt * _stitched_tiles(variance, windows),
            felt * _stitched_tiles(size, windows),
        )
        y = np.abs(outputs[0])
        count = channels + 4 * steps + 4
        bias = np.zeros(()) if b is None else np.abs(per_channel(b, 4))
        sigma = KAPPA * U * np.sqrt(wide + y * y)
        tiny = 64 * count * TINY * np.maximum(undone, 1)
        return [Rounding(sigma, 1.01 * U * (count * bound + y + bias) + tiny)]

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        def case(label: str, x: Ints, filters: int, bias: bool = False, **attributes: Any) -> Case:
            channels = x[1] // attributes.get("groups", 1)
            arrays = [rng.standard_normal(x), rng.standard_normal((filters, channels, 3, 3))]
            arrays += [rng.standard_normal(filters)] if bias else []
            return Case(cls(**attributes), tuple(a.astype(np.float32) for a in arrays), label=label)

        for tile in winograd.TILES:
            yield case(f"F({tile})", (2, 3, 6, 10), 4, tile=tile)
            yield case(f"F({tile}), bias, pads", (1, 19, 5, 7), 3, True, tile=tile,
                       pads=((2, 1), (0, 3)))  # fmt: skip
            yield case(f"F({tile}), less than a tile", (2, 2, 3, 4), 5, True, tile=tile)
            yield case(f"F({tile}), same", (2, 5, 9, 4), 2, tile=tile, pads="SAME_UPPER")
        yield case("F(2), same, lower", (1, 2, 6, 5), 3, tile=2, pads="SAME_LOWER")
        for tile in winograd.TILES:
            yield case(f"F({tile}), groups inside of blocks", (2, 6, 5, 4), 9, True, tile=tile,
                       groups=3)  # fmt: skip
            yield case(f"F({tile}), groups of blocks", (2, 32, 5, 7), 64, True, tile=tile, groups=2,
                       pads=((1, 0), (2, 1)))  # fmt: skip


class _Guard(NamedTuple):
    """What keeps zeros, infinities and large numbers of [n, c, h, w] as direct summation has them.

    magnitudes: int32 [n, groups, h, w], of pixels. scale: float32 [n, groups, ty, tx], of tiles.
    factor: float32 [n, groups, output h, output w], of outputs.
    """

    magnitudes: np.ndarray
    scale: np.ndarray
    factor: np.ndarray


def _guard(x: np.ndarray, windows: Windows, tile: int, tiles: Sequence[int], groups: int) -> _Guard:
    m = NumpyArith()
    bits = power_of_two.magnitude(m, x)
    magnitudes = bits.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]).max(axis=2)
    seen = np.array(_tiles(magnitudes, windows, tile, tiles))
    largest = np.where(seen < winograd.NOT_FINITE, seen, 0).max(axis=(0, 1))
    scale, inverse = winograd.scales(m, largest)
    fields = [
        [seen[i : i + 3, j : j + 3].max(axis=(0, 1)) for j in range(tile)] for i in range(tile)
    ]
    factor = winograd.factor(m, np.array(fields), inverse)
    return _Guard(magnitudes, scale, _stitched_tiles(factor, windows))


def _by_channel(by_group: np.ndarray, channels: int) -> np.ndarray:
    """[n, groups, ...] -> [n, channels, ...]."""
    return np.repeat(by_group, channels // by_group.shape[1], axis=1)


def _not_finite(x: np.ndarray, w: np.ndarray, windows: Windows, groups: int) -> np.ndarray:
    """The sums over the terms that are not finite: [n, o, output h, output w] of +-infinity and
    NaN; NaN as well where there is no such term. Signs of the weights are all that matters."""
    n, (rows, cols) = x.shape[0], windows.output
    padded = np.pad(x, [(0, 0), (0, 0), *windows.pads])
    kinds = padded == np.inf, padded == -np.inf, np.isnan(padded)
    signs = w > 0, w < 0, w == 0

    def count(kind: np.ndarray, sign: np.ndarray) -> np.ndarray:
        """How many products of a kind of input with a sign of weight each output has."""
        total = np.zeros((n, groups, w.shape[0] // groups, rows * cols), np.float32)
        weights = sign.reshape(groups, -1, *sign.shape[1:]).astype(np.float32)
        for i, j in np.ndindex(*sign.shape[2:]):
            window = kind[:, :, i : i + rows, j : j + cols].astype(np.float32)
            total += weights[..., i, j] @ window.reshape(n, groups, w.shape[1], rows * cols)
        return total.reshape(n, w.shape[0], rows, cols)

    plus, minus, nan = kinds
    positive, negative, zero = signs
    up = count(plus, positive) + count(minus, negative) > 0
    down = count(plus, negative) + count(minus, positive) > 0
    neither = count(nan, np.ones_like(zero)) + count(plus | minus, zero) > 0
    infinities = np.where(up, np.float32(np.inf), np.float32(-np.inf))
    return np.where(neither | (up == down), np.float32(np.nan), infinities)


def _tiles(x: np.ndarray, windows: Windows, tile: int, tiles: Sequence[int]) -> list[list[Any]]:
    """What position (i, j) of every tile sees: [tile + 2][tile + 2] of [n, c, ty, tx]."""
    widths = [
        (begin, count * tile + 2 - begin - n)
        for n, count, (begin, _) in zip(windows.input, tiles, windows.pads)
    ]
    padded = np.pad(x, [(0, 0), (0, 0), *widths])
    rows, cols = ((n - 1) * tile + 1 for n in tiles)
    size = range(tile + 2)
    return [[padded[:, :, i : i + rows : tile, j : j + cols : tile] for j in size] for i in size]


def _both_axes(matrix: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """matrix on both leading axes: [a, a, ...] -> [b, b, ...]."""
    return np.einsum("ia,jb,ab...->ij...", matrix, matrix, grid, optimize=True)


def _kernels(matrix: np.ndarray, w: np.ndarray) -> np.ndarray:
    """[o, c, 3, 3] -> [a, a, o, c]."""
    return np.einsum("ia,jb,ocab->ijoc", matrix, matrix, w, optimize=True)


def _product(v: np.ndarray, u: np.ndarray, groups: int) -> np.ndarray:
    """Sums over the channels of a group: [a, a, n, c, ty, tx] and [a, a, o, c / groups] ->
    [a, a, n, o, ty, tx]."""
    flat = v.reshape(*v.shape[:3], groups, u.shape[3], v.shape[4] * v.shape[5])
    weights = u.reshape(*u.shape[:2], 1, groups, u.shape[2] // groups, u.shape[3])
    return np.matmul(weights, flat).reshape(*v.shape[:3], u.shape[2], *v.shape[4:])


def _stitched_tiles(tiles: np.ndarray, windows: Windows) -> np.ndarray:
    """[tile, tile, n, o, ty, tx] -> [n, o, h, w], cropped to the output."""
    tile, _, n, o, ty, tx = tiles.shape
    stitched = tiles.transpose(2, 3, 4, 0, 5, 1).reshape(n, o, ty * tile, tx * tile)
    return stitched[:, :, : windows.output[0], : windows.output[1]]
