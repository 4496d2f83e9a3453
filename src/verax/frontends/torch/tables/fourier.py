"""Fourier transforms among ATen's operators: products with constant matrices, one for each axis.

Windows of a signal (stft) are transformed each; the way back (istft) sums them where they overlap.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from verax.frontends.common import shapes
from verax.frontends.common.context import Result
from verax.frontends.common.fourier import PLAIN, ROOT, WHOLE, transformed
from verax.frontends.torch.rows import Aten
from verax.frontends.torch.rows import row as enter
from verax.frontends.torch.tables.complex import (
    component_type,
    conjugate_of,
    is_pair,
    parts_of,
    rank_of,
    row,
    widened,
)

NORMS: dict[tuple[str | None, bool], int] = {
    **{(None, False): PLAIN, ("backward", False): PLAIN, ("ortho", False): ROOT},
    **{(None, True): WHOLE, ("backward", True): WHOLE, ("ortho", True): ROOT},
    **{("forward", False): WHOLE, ("forward", True): PLAIN},
}
"""What a transform is divided by, by (norm, whether it is an inverse)."""
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
        x = transformed(t, x, axis, False, size, -1, norm, onesided=True)
        pair = True
    end = steps.pop() if kind == "irfft" else None
    sign = 1 if inverse != mirrored else -1
    for axis, size in steps:
        x = transformed(t, x, axis, pair, size, sign, norm)
        pair = True
    if end is not None:
        x = transformed(t, x, end[0], True, end[1], 1, norm, real=True)
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
        x = transformed(t, x, axes.pop(), False, None, -1, norm, onesided=t.flag("onesided"))
    real = axes.pop() if t.kind == "_fft_c2r" else None
    for axis in axes:
        x = transformed(t, x, axis, True, None, sign, norm)
    if real is not None:
        size = t.integer("last_dim_size")
        x = transformed(t, x, real, True, size, 1, norm, real=True)
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
        window = t.constant(ones, component_type(t, x))
    elif width != size:
        zero = t.constant(0, component_type(t, x))
        window = t.add("Pad", [window, t.ints([before, size - width - before]), zero])
    onesided = t.a.get("onesided") is not False
    norm = ROOT if t.flag("normalized") else PLAIN
    windowed = t.add("Mul", [x, window])
    y = transformed(t, windowed, rank, False, None, -1, norm, onesided=onesided)
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
    frames_first = t.add("Transpose", [x], perm=(*range(rank - 2), rank - 1, rank - 2, rank))
    norm = ROOT if t.flag("normalized") else WHOLE
    frames = transformed(t, frames_first, rank - 1, True, size, 1, norm, real=onesided)
    if not onesided:
        frames = parts_of(t, frames)[0]
    dtype, before = component_type(t, frames), (size - width) // 2
    around = [before, size - width - before]
    window = t.maybe("window")
    if window is None:
        window = t.constant(np.pad(np.ones(width), around), dtype)
    elif width != size:
        window = t.add("Pad", [window, t.ints(around), t.constant(0, dtype)])
    frames = t.add("Mul", [frames, window])
    frames = t.add("Reshape", [frames, t.ints([math.prod(batch), count, size])])
    identity_kernel = t.constant(np.eye(size)[:, None], dtype)

    def summed(values: str) -> str:
        columns = t.add("Transpose", [values], perm=(0, 2, 1))
        return t.add("ConvTranspose", [columns, identity_kernel], strides=(hop,))

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
