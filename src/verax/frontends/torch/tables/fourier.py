"""Fourier transforms among ATen's operators: products with constant matrices, one for each axis.

Windows of a signal (stft) are transformed each; the way back (istft) sums them where they overlap.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from verax.frontends.common import shapes
from verax.frontends.common.context import Result
from verax.frontends.torch.rows import Aten
from verax.frontends.torch.rows import row as enter
from verax.frontends.torch.tables.complex import (
    conjugate_of,
    is_pair,
    part_type,
    parts_of,
    rank_of,
    row,
    widened,
)

LONGEST = 4096
"""Elements of an axis that is transformed: the matrix has four times their square."""


def _matrix(
    size: int, given: int, bins: int, sign: int, scale: float, pair: bool, real: bool
) -> np.ndarray:
    """[given (2), bins (2)]: exp(sign 2 pi i j k / size) for positions j and bins k. given: how
    many of the positions there are, the others being zeros; real: only the real parts, of a result
    whose other half mirrors `given`."""
    j, k = np.arange(given)[:, None], np.arange(bins)[None]
    angle = sign * 2 * np.pi * ((j * k) % size) / size
    cos, sin = scale * np.cos(angle), scale * np.sin(angle)
    if real:  # bins above the middle are conjugates of those below
        single = (j == 0) | ((size % 2 == 0) & (j == size // 2))
        weight = np.where(single, 1.0, 2.0)
        return np.stack([cos * weight, -sin * weight], 1).reshape(2 * given, bins)
    of_real = np.stack([cos, sin], -1).reshape(given, 2 * bins)
    if not pair:
        return of_real
    of_imaginary = np.stack([-sin, cos], -1).reshape(given, 2 * bins)
    return np.stack([of_real, of_imaginary], 1).reshape(2 * given, 2 * bins)


def _transformed(
    t: Aten, x: str, axis: int, pair: bool, size: int | None, sign: int, norm: Any,
    onesided: bool = False, real: bool = False,
) -> str:  # fmt: skip
    """x, transformed along an axis (of its rank without the pairs' own). size: of the transform,
    by default as long as the axis, or for a real result as long as onesided bins tell."""
    rank, dtype = rank_of(t, x, pair), part_type(t, x)
    length = t.known_size(x, axis)
    size = size if size is not None else 2 * (length - 1) if real else length
    most = size // 2 + 1 if real else size
    if size < 1 or size > LONGEST:
        t.refuse(f"a transform of {size} elements; 1 to {LONGEST} are supported")
    given = min(length, most)
    if given < length:
        x = t.add("Slice", [x, t.ints([0]), t.ints([given]), t.ints([axis])])
    bins = size // 2 + 1 if onesided else size
    scale = {None: 1.0, 0: 1.0, 1: size**-0.5, 2: 1 / size}[norm]
    matrix = t.constant(_matrix(size, given, bins, sign, scale, pair, real), dtype)
    order = [a for a in range(rank) if a != axis]
    last = axis == rank - 1
    if not last:
        behind = [rank] if pair else []
        x = t.add("Transpose", [x], perm=(*order, axis, *behind))
    front = t.add("Shape", [x], end=rank - 1)
    if pair:
        x = t.add("Reshape", [x, t.add("Concat", [front, t.ints([2 * given])], axis=0)])
    y = t.add("MatMul", [x, matrix])
    if not real:
        y = t.add("Reshape", [y, t.add("Concat", [front, t.ints([bins, 2])], axis=0)])
    if last:
        return y
    back = [0] * rank
    for new, old in enumerate([*order, axis]):
        back[old] = new
    return t.add("Transpose", [y], perm=(*back, *([] if real else [rank])))


NORMS = {
    **{(None, False): 0, ("backward", False): 0, ("ortho", False): 1, ("forward", False): 2},
    **{(None, True): 2, ("backward", True): 2, ("ortho", True): 1, ("forward", True): 0},
}
"""(norm, whether it is an inverse) -> 0: as it is, 1: by the root of the size, 2: by the size."""
KINDS = ("", "i", "r", "ir", "h", "ih")
NAMES = [f"fft_{kind}fft{axes}.default" for kind in KINDS for axes in ("", "2", "n")]
REAL = [f"fft_{kind}fft{axes}.default" for kind in ("ir", "h") for axes in ("", "2", "n")]
"""Those that give real numbers, for real ones too."""


@enter(*REAL)
@row(*NAMES)
def fourier(t: Aten) -> Result:
    """fft, ifft, rfft, irfft, along one axis, two or several; hfft and ihfft are irfft and rfft of
    conjugates, scaled as the other direction."""
    kind = t.kind.removeprefix("fft_").rstrip("2n")
    inverse, pair = kind.startswith("i"), is_pair(t, "self")
    x = t.tensor("self")
    if kind in ("irfft", "hfft") and not pair:
        x, pair = widened(t, x, t.type(x).dtype), True
    mirrored, kind = kind in ("hfft", "ihfft"), {"hfft": "irfft", "ihfft": "rfft"}.get(kind, kind)
    if mirrored and pair:
        x = conjugate_of(t, x)
    rank = rank_of(t, x, pair)
    norm = NORMS.get((t.text("norm"), inverse))
    if norm is None:
        t.wrong("norm", t.text("norm"), "backward, ortho or forward")
    axes: Any
    sizes: Any
    if t.kind.endswith("fft"):
        axes, sizes = (t.integer("dim", -1),), (t.integer("n"),)
    else:
        axes, sizes = t.integers("dim", (-2, -1) if t.kind.endswith("2") else None), t.integers("s")
        if axes is None:
            axes = tuple(range(rank))[-len(sizes) if sizes else 0 :]
        sizes = sizes or (None,) * len(axes)
    if any(not -rank <= a < rank for a in axes) or len(sizes) != len(axes):
        t.wrong("dim", axes, f"axes of rank {rank}, one for each size")
    steps = [(a % rank, None if n == -1 else n) for a, n in zip(axes, sizes)]
    if kind == "rfft":  # the real axis first, then those of complex numbers
        axis, size = steps.pop()
        x = _transformed(t, x, axis, False, size, -1, norm, onesided=True)
        pair = True
    end = steps.pop() if kind == "irfft" else None
    sign = 1 if inverse != mirrored else -1
    for axis, size in steps:
        x = _transformed(t, x, axis, pair, size, sign, norm)
        pair = True
    if end is not None:
        x = _transformed(t, x, end[0], True, end[1], 1, norm, real=True)
    return t.result("Identity", [conjugate_of(t, x) if mirrored and end is None else x])


@row("_fft_r2c.default", "_fft_c2c.default", "_fft_c2r.default")
def core_fourier(t: Aten) -> Result:
    """What decompositions leave: along the axes `dim`, the last one being the real one."""
    x, pair, norm = t.tensor("self"), t.kind != "_fft_r2c", t.integer("normalization")
    rank = rank_of(t, x, pair)
    axes = [a % rank for a in t.integers("dim")]
    sign = -1 if t.kind == "_fft_r2c" else 1
    if t.kind == "_fft_c2c" and t.flag("forward"):
        sign = -1
    if not pair:
        x = _transformed(t, x, axes.pop(), False, None, -1, norm, onesided=t.flag("onesided"))
    real = axes.pop() if t.kind == "_fft_c2r" else None
    for axis in axes:
        x = _transformed(t, x, axis, True, None, sign, norm)
    if real is not None:
        size = t.integer("last_dim_size")
        x = _transformed(t, x, real, True, size, 1, norm, real=True)
    return t.result("Identity", [x])


@row("stft.default")
def short_time_fourier(t: Aten) -> Result:
    """Windows along the last axis, each transformed: [.., bins, windows]. Padding came before."""
    if is_pair(t, "self"):
        t.refuse("a complex input")
    size, x = t.integer("n_fft"), t.tensor("self")
    hop, width = t.integer("hop_length"), t.integer("win_length")
    hop, width = hop if hop is not None else size // 4, width if width is not None else size
    if t.flag("return_complex", True) is False:
        t.a.refuse("return_complex", "results are complex")
    if t.a.get("align_to_window") not in (None, False):
        t.a.refuse("align_to_window", "windows begin where the transform does")
    rank = t.rank(x)
    x = t.append(shapes.windows_along(t, x, rank - 1, size, hop))
    window = t.maybe("window")
    before = (size - width) // 2
    if window is None:
        ones = np.pad(np.ones(width), (before, size - width - before))
        window = t.constant(ones, part_type(t, x))
    elif width != size:
        zero = t.constant(0, part_type(t, x))
        window = t.add("Pad", [window, t.ints([before, size - width - before]), zero])
    onesided = t.a.get("onesided") is not False
    norm = 1 if t.flag("normalized") else 0
    windowed = t.add("Mul", [x, window])
    y = _transformed(t, windowed, rank, False, None, -1, norm, onesided=onesided)
    return t.result("Transpose", [y], perm=(*range(rank - 1), rank, rank - 1, rank + 1))


@row("istft.default")
def inverse_short_time_fourier(t: Aten) -> Result:
    """Each column back to its window, windows summed where they overlap, and divided by the sum of
    the squared window."""
    x, size = t.tensor("self"), t.integer("n_fft")
    hop, width = t.integer("hop_length"), t.integer("win_length")
    hop, width = hop if hop is not None else size // 4, width if width is not None else size
    if t.flag("return_complex"):
        t.a.refuse("return_complex", "its result is real")
    rank = t.rank(x) - 1
    bins, count = t.known_sizes(x, (rank - 2, rank - 1), "its windows")
    batch = t.known_sizes(x, range(rank - 2), "its windows")
    onesided = t.a.get("onesided")
    onesided = bins != size if onesided is None else onesided is True
    turned = t.add("Transpose", [x], perm=(*range(rank - 2), rank - 1, rank - 2, rank))
    norm = 1 if t.flag("normalized") else 2
    frames = _transformed(t, turned, rank - 1, True, size, 1, norm, real=onesided)
    if not onesided:
        frames = parts_of(t, frames)[0]
    dtype, before = part_type(t, frames), (size - width) // 2
    around = [before, size - width - before]
    window = t.maybe("window")
    if window is None:
        window = t.constant(np.pad(np.ones(width), around), dtype)
    elif width != size:
        window = t.add("Pad", [window, t.ints(around), t.constant(0, dtype)])
    frames = t.add("Mul", [frames, window])
    frames = t.add("Reshape", [frames, t.ints([math.prod(batch), count, size])])
    places = t.constant(np.eye(size)[:, None], dtype)

    def summed(values: str) -> str:
        columns = t.add("Transpose", [values], perm=(0, 2, 1))
        return t.add("ConvTranspose", [columns, places], strides=(hop,))

    squares = t.add("Expand", [t.add("Mul", [window, window]), t.ints([1, count, size])])
    length, total = t.integer("length"), (count - 1) * hop + size
    first = size // 2 if t.flag("center", True) else 0
    last = total - first if length is None else min(first + length, total)
    bounds = [t.ints([n]) for n in (first, last, 2)]
    y, weight = (t.add("Slice", [v, *bounds]) for v in (summed(frames), summed(squares)))
    y = t.add("Div", [y, weight])
    if length is not None and length > last - first:
        behind = t.ints([0, 0, 0, 0, 0, length - (last - first)])
        y = t.add("Pad", [y, behind, t.constant(0, dtype)])
    shape = [*batch, last - first if length is None else length]
    return t.result("Reshape", [y, t.ints(shape)])
