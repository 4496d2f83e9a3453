"""ATen operators on complex numbers, which are pairs here: a last axis of two, real and imaginary.

The reader gives operators that take or give complex tensors the domain "complex" and says which of
their inputs are such (`complex_inputs`), so that none is read as if its tensors were real. Fourier
transforms are products with constant matrices, one for each axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from verax.frontends.common import shapes
from verax.frontends.common.context import Result
from verax.frontends.torch.arguments import Ref
from verax.frontends.torch.rows import Aten
from verax.frontends.torch.rows import row as enter
from verax.frontends.torch.table_order import angle_of
from verax.ir.types import DType

DOMAIN = "complex"
LONGEST = 4096
"""Elements of an axis that is transformed: the matrix has four times their square."""


def row(*operators: str) -> Callable[[Callable[[Aten], Result]], Callable[[Aten], Result]]:
    """Enter a function as the row of operators on complex numbers."""

    def entered(function: Callable[[Aten], Result]) -> Callable[[Aten], Result]:
        def read(t: Aten) -> Result:
            t.a.get("complex_inputs")  # that it is a pair is what these rows are about
            return function(t)

        enter(*operators, domain=DOMAIN)(read)
        return function

    return entered


def _is_pair(t: Aten, name: str) -> bool:
    value = t.a.get(name)
    return isinstance(value, Ref) and value.index in t.a.get("complex_inputs", ())


def _rank(t: Aten, x: str, pair: bool) -> int:
    return t.rank(x) - pair


def _paired(t: Aten, parts: Sequence[str]) -> Result:
    """Real and imaginary parts as one tensor."""
    behind = t.ints([-1])
    return t.result("Concat", [t.add("Unsqueeze", [p, behind]) for p in parts], axis=-1)


def _parts(t: Aten, x: str) -> list[str]:
    """Real and imaginary part of a pair."""
    return [t.add("Gather", [x, t.constant(i, np.int64)], axis=-1) for i in (0, 1)]


def _dtype(t: Aten, x: str) -> np.dtype:
    found = t.type(x).dtype
    if found not in (DType.float32, DType.float64):
        t.refuse(f"complex numbers of {found}")
    return found.numpy


# Fourier transforms


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
    rank, dtype = _rank(t, x, pair), _dtype(t, x)
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
NAMES = [f"fft_{kind}fft{axes}.default" for kind in ("", "i", "r", "ir") for axes in ("", "2", "n")]


@row(*NAMES)
def fourier(t: Aten) -> Result:
    """fft, ifft, rfft, irfft, along one axis, two or several."""
    kind = t.kind.removeprefix("fft_").rstrip("2n")
    inverse, pair = kind.startswith("i"), _is_pair(t, "self")
    x = t.tensor("self")
    rank = _rank(t, x, pair)
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
    if kind == "irfft" and not pair:
        t.refuse("a real input")
    if kind == "rfft":  # the real axis first, then those of complex numbers
        axis, size = steps.pop()
        x = _transformed(t, x, axis, False, size, -1, norm, onesided=True)
        pair = True
    end = steps.pop() if kind == "irfft" else None
    for axis, size in steps:
        x = _transformed(t, x, axis, pair, size, 1 if inverse else -1, norm)
        pair = True
    if end is not None:
        x = _transformed(t, x, end[0], True, end[1], 1, norm, real=True)
    return t.result("Identity", [x])


@row("_fft_r2c.default", "_fft_c2c.default", "_fft_c2r.default")
def core_fourier(t: Aten) -> Result:
    """What decompositions leave: along the axes `dim`, the last one being the real one."""
    x, pair, norm = t.tensor("self"), t.kind != "_fft_r2c", t.integer("normalization")
    rank = _rank(t, x, pair)
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
    if _is_pair(t, "self"):
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
        window = t.constant(ones, _dtype(t, x))
    elif width != size:
        zero = t.constant(0, _dtype(t, x))
        window = t.add("Pad", [window, t.ints([before, size - width - before]), zero])
    onesided = t.a.get("onesided") is not False
    norm = 1 if t.flag("normalized") else 0
    windowed = t.add("Mul", [x, window])
    y = _transformed(t, windowed, rank, False, None, -1, norm, onesided=onesided)
    return t.result("Transpose", [y], perm=(*range(rank - 1), rank, rank - 1, rank + 1))


# Between real and complex numbers


@row("view_as_real.default", "view_as_complex.default")
@row("resolve_conj.default", "resolve_neg.default", "alias.default")
@row("detach.default", "clone.default", "lift_fresh_copy.default")
def same_pairs(t: Aten) -> Result:
    t.irrelevant("memory_format", reason="it says how a tensor is stored")
    return t.result("Identity", [t.tensor("self")])


@row("real.default", "imag.default")
def part(t: Aten) -> Result:
    which = t.constant(0 if t.kind == "real" else 1, np.int64)
    return t.result("Gather", [t.tensor("self"), which], axis=-1)


@row("complex.default")
def complex_of_parts(t: Aten) -> Result:
    return _paired(t, [t.tensor("real"), t.tensor("imag")])


@row("polar.default")
def polar(t: Aten) -> Result:
    size, angle = t.tensor("abs"), t.tensor("angle")
    parts = [t.add("Mul", [size, t.add(kind, [angle])]) for kind in ("Cos", "Sin")]
    return _paired(t, parts)


@row("abs.default")
def magnitude(t: Aten) -> Result:
    """The root of the sum of squares."""
    x = t.tensor("self")
    total = t.add("ReduceSum", [t.add("Mul", [x, x]), t.ints([-1])], keepdims=False)
    return t.result("Sqrt", [total])


@row("angle.default")
def angle(t: Aten) -> Result:
    real, imaginary = _parts(t, t.tensor("self"))
    return angle_of(t, imaginary, real)


@row("_conj.default", "conj.default", "_conj_physical.default", "conj_physical.default")
def conjugate(t: Aten) -> Result:
    x = t.tensor("self")
    return t.result("Mul", [x, t.constant([1, -1], _dtype(t, x))])


# Arithmetic


def _operand(t: Aten, name: str) -> tuple[str, bool]:
    """An operand, and whether it is a pair. Real ones get a last axis of one number."""
    value = t.a.get(name)
    if not isinstance(value, Ref):
        if type(value) not in (int, float):
            t.wrong(name, value, "a real number or a tensor")
        kind = next(t.type(v).dtype.numpy for v in t.inputs if v is not None)
        return t.constant(value, kind), False
    found = t.tensor(name)
    if _is_pair(t, name):
        return found, True
    return t.add("Unsqueeze", [found, t.ints([-1])]), False


@row(*(f"{kind}.Tensor" for kind in ("add", "sub", "mul", "div")))
def arithmetic(t: Aten) -> Result:
    (a, left), (b, right) = _operand(t, "self"), _operand(t, "other")
    if t.kind in ("add", "sub"):
        if t.number("alpha", 1) != 1:
            t.a.refuse("alpha", "sums of complex numbers have no factor")
        if not left or not right:
            first = t.constant([1, 0], _dtype(t, a if left else b))
            a, b = (a, t.add("Mul", [b, first])) if left else (t.add("Mul", [a, first]), b)
        return t.result("Add" if t.kind == "add" else "Sub", [a, b])
    if t.kind == "div" or not left or not right:
        if right and t.kind == "div":
            t.refuse("a division by complex numbers")
        return t.result("Mul" if t.kind == "mul" else "Div", [a, b])
    (p, q), (r, s) = _parts(t, a), _parts(t, b)
    real = t.add("Sub", [t.add("Mul", [p, r]), t.add("Mul", [q, s])])
    imaginary = t.add("Add", [t.add("Mul", [p, s]), t.add("Mul", [q, r])])
    return _paired(t, [real, imaginary])


@row("neg.default")
def negative(t: Aten) -> Result:
    return t.result("Neg", [t.tensor("self")])


# Movement


def _axis(t: Aten, name: str, x: str, default: Any = None, more: int = 0) -> int:
    """An axis of a pair, its own last one not among them."""
    rank = t.rank(x) - 1 + more
    found = t.integer(name, default)
    if found is None or not -rank <= found < rank:
        t.wrong(name, found, f"an axis of rank {rank}")
    return int(found) % rank


@row("reshape.default", "view.default")
@row("_unsafe_view.default")
def reshaped(t: Aten) -> Result:
    shape = t.sizes("shape" if "shape" in t.a.values else "size")
    whole = t.add("Concat", [shape, t.ints([2])], axis=0)
    return t.result("Reshape", [t.tensor("self"), whole])


@row("flatten.using_ints")
def flattened(t: Aten) -> Result:
    x = t.tensor("self")
    first, last = _axis(t, "start_dim", x, 0), _axis(t, "end_dim", x, -1)
    sizes = [t.known_size(x, a) for a in range(t.rank(x))]
    joined = math.prod(sizes[first : last + 1])
    return t.result("Reshape", [x, t.ints([*sizes[:first], joined, *sizes[last + 1 :]])])


@row("unsqueeze.default")
def unsqueezed(t: Aten) -> Result:
    x = t.tensor("self")
    return t.result("Unsqueeze", [x, t.ints([_axis(t, "dim", x, more=1)])])


@row("squeeze.dim")
def squeezed(t: Aten) -> Result:
    x = t.tensor("self")
    axis = _axis(t, "dim", x)
    if t.known_size(x, axis) != 1:
        return t.result("Identity", [x])
    return t.result("Squeeze", [x, t.ints([axis])])


@row("permute.default", "transpose.int")
def permuted(t: Aten) -> Result:
    x = t.tensor("self")
    rank = t.rank(x) - 1
    order = list(range(rank))
    if t.kind == "transpose":
        a, b = _axis(t, "dim0", x), _axis(t, "dim1", x)
        order[a], order[b] = order[b], order[a]
    else:
        order = [a % rank for a in t.integers("dims")]
    return t.result("Transpose", [x], perm=(*order, rank))


@row("select.int")
def selected(t: Aten) -> Result:
    x = t.tensor("self")
    return t.result(
        "Gather", [x, t.constant(t.integer("index"), np.int64)], axis=_axis(t, "dim", x)
    )


@row("slice.Tensor")
def sliced(t: Aten) -> Result:
    x = t.tensor("self")
    axis, end = _axis(t, "dim", x, 0), t.integer("end")
    begin, step = t.integer("start") or 0, t.integer("step", 1)
    end = np.iinfo(np.int64).max if end is None else end
    return t.result("Slice", [x, *(t.ints([n]) for n in (begin, end, axis, step))])


@row("fft_fftshift.default", "fft_ifftshift.default", "roll.default")
def turned(t: Aten) -> Result:
    """Elements moved along axes, those that leave at the end coming in at the beginning."""
    x = t.tensor("self")
    rank = t.rank(x) - 1
    axes = t.integers("dims" if t.kind == "roll" else "dim") or tuple(range(rank))
    shifts = t.integers("shifts") if t.kind == "roll" else (None,) * len(axes)
    if len(shifts) != len(axes):
        t.refuse("a shift of all elements as one line")
    for axis, shift in zip(axes, shifts):
        size = t.known_size(x, axis % rank)
        if shift is None:
            shift = size // 2 if t.kind == "fft_fftshift" else -(size // 2)
        places = t.constant((np.arange(size) - shift) % size, np.int64)
        x = t.add("Gather", [x, places], axis=axis % rank)
    return t.result("Identity", [x])


@row("cat.default")
def joined(t: Aten) -> Result:
    parts = t.tensors("tensors")
    if len(t.a.get("complex_inputs", ())) != len(parts):
        t.refuse("real parts among complex ones")
    return t.result("Concat", parts, axis=_axis(t, "dim", parts[0] or "", 0))
