"""ATen operators on complex numbers, which are pairs here: a last axis of two, real and imaginary.

The reader gives operators that take or give complex tensors the domain "complex" and says which of
their inputs are such (`complex_inputs`), so that none is read as if its tensors were real.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from verax.frontends.common import layers
from verax.frontends.common.context import Result
from verax.frontends.torch.arguments import Ref
from verax.frontends.torch.rows import Aten
from verax.frontends.torch.rows import row as enter
from verax.ir.types import DType

DOMAIN = "complex"


def row(*operators: str) -> Callable[[Callable[[Aten], Result]], Callable[[Aten], Result]]:
    """Enter a function as the row of operators on complex numbers."""

    def entered(function: Callable[[Aten], Result]) -> Callable[[Aten], Result]:
        def read(t: Aten) -> Result:
            t.a.get("complex_inputs")  # that it is a pair is what these rows are about
            return function(t)

        enter(*operators, domain=DOMAIN)(read)
        return function

    return entered


def is_pair(t: Aten, name: str) -> bool:
    value = t.a.get(name)
    return isinstance(value, Ref) and value.index in t.a.get("complex_inputs", ())


def rank_of(t: Aten, x: str, pair: bool) -> int:
    return t.rank(x) - pair


def _paired(t: Aten, components: Sequence[str]) -> Result:
    """Real and imaginary parts, broadcast to each other, as one tensor."""
    behind = t.ints([-1])
    if len({t.type(p).dims for p in components}) > 1:
        shape = t.ints(np.broadcast_shapes(*(t.known_sizes(p) for p in components)))
        components = [t.add("Expand", [p, shape]) for p in components]
    return t.result("Concat", [t.add("Unsqueeze", [p, behind]) for p in components], axis=-1)


def parts_of(t: Aten, x: str) -> list[str]:
    """Real and imaginary part of a pair."""
    return [t.add("Gather", [x, t.constant(i, np.int64)], axis=-1) for i in (0, 1)]


def widened(t: Aten, x: str, dtype: DType) -> str:
    """Real numbers as pairs."""
    x = t.cast(x, dtype)
    zeros = t.add("Mul", [x, t.constant(0, dtype.numpy)])
    return t.add("Concat", [t.add("Unsqueeze", [v, t.ints([-1])]) for v in (x, zeros)], axis=-1)


def conjugate_of(t: Aten, x: str) -> str:
    return t.add("Mul", [x, t.constant([1, -1], component_type(t, x))])


def component_type(t: Aten, x: str) -> np.dtype:
    dtype = t.type(x).dtype
    if dtype not in (DType.float32, DType.float64):
        t.refuse(f"complex numbers of {dtype}")
    return dtype.numpy


# Between real and complex numbers


@row("view_as_real.default", "view_as_complex.default")
@row("resolve_conj.default", "resolve_neg.default", "alias.default")
@row("detach.default", "clone.default", "lift_fresh_copy.default")
def same_pairs(t: Aten) -> Result:
    t.irrelevant("memory_format", reason="it says how a tensor is stored")
    return t.result("Identity", [t.tensor("self")])


@row("real.default", "imag.default")
def component(t: Aten) -> Result:
    index = t.constant(0 if t.kind == "real" else 1, np.int64)
    return t.result("Gather", [t.tensor("self"), index], axis=-1)


@row("complex.default")
def complex_of_parts(t: Aten) -> Result:
    return _paired(t, [t.tensor("real"), t.tensor("imag")])


@row("polar.default")
def polar(t: Aten) -> Result:
    size, angle = t.tensor("abs"), t.tensor("angle")
    components = [t.add("Mul", [size, t.add(kind, [angle])]) for kind in ("Cos", "Sin")]
    return _paired(t, components)


@row("abs.default")
def magnitude(t: Aten) -> Result:
    return t.result("Hypot", [*parts_of(t, t.tensor("self"))])


@row("angle.default")
def angle(t: Aten) -> Result:
    real, imaginary = parts_of(t, t.tensor("self"))
    return t.result("Atan2", [imaginary, real])


@row("_conj.default", "conj.default", "_conj_physical.default", "conj_physical.default")
def conjugate(t: Aten) -> Result:
    return t.result("Identity", [conjugate_of(t, t.tensor("self"))])


PARTS = {
    **{"element type 9": DType.float16, "element type 10": DType.float32},
    "element type 11": DType.float64,
}
"""Complex types as the file has them, with the type of their parts."""


@row("to.dtype", "_to_copy.default")
def converted(t: Aten) -> Result:
    """To complex numbers of another size, from real ones, or to their real parts."""
    names = ("layout", "device", "pin_memory", "non_blocking", "copy", "memory_format")
    t.irrelevant(*names, reason="it says where or how a tensor is stored")
    x, pair, type_name = t.tensor("self"), is_pair(t, "self"), t.text("dtype")
    component_type = PARTS.get(type_name)
    if component_type is None and (not pair or type_name not in {str(d) for d in DType}):
        t.a.refuse("dtype")
    if component_type is None:
        t.a.get("dtype")
        return t.converted(parts_of(t, x)[0], DType(type_name))
    if pair:
        return t.result("Cast", [x], to=component_type)
    return t.result("Identity", [widened(t, x, component_type)])


@row("chalf.default")
def halved(t: Aten) -> Result:
    """To complex numbers of two float16."""
    t.irrelevant("memory_format", reason="it says how a tensor is stored")
    x = t.tensor("self")
    if is_pair(t, "self"):
        return t.result("Cast", [x], to=DType.float16)
    return t.result("Identity", [widened(t, x, DType.float16)])


@row("_assert_tensor_metadata.default")
def assertion(t: Aten) -> Result:
    for name in list(t.a.values):
        t.irrelevant(name, reason="an assertion computes nothing")
    return ()


# Arithmetic


def _operand(t: Aten, name: str) -> tuple[str, bool]:
    """An operand, and whether it is a pair. Real ones get a last axis of one number."""
    value = t.a.get(name)
    if not isinstance(value, Ref):
        if type(value) not in (int, float):
            t.wrong(name, value, "a real number or a tensor")
        kind = next(t.type(v).dtype.numpy for v in t.inputs if v is not None)
        return t.constant(value, kind), False
    tensor = t.tensor(name)
    if is_pair(t, name):
        return tensor, True
    return t.add("Unsqueeze", [tensor, t.ints([-1])]), False


@row(*(f"{kind}.Tensor" for kind in ("add", "sub", "mul", "div")))
def arithmetic(t: Aten) -> Result:
    (a, left), (b, right) = _operand(t, "self"), _operand(t, "other")
    if t.kind in ("add", "sub"):
        if t.scalar("alpha", 1) != 1:
            t.a.refuse("alpha", "sums of complex numbers have no factor")
        if not left or not right:
            first = t.constant([1, 0], component_type(t, a if left else b))
            a, b = (a, t.add("Mul", [b, first])) if left else (t.add("Mul", [a, first]), b)
        return t.result("Add" if t.kind == "add" else "Sub", [a, b])
    if t.kind == "div" or not left or not right:
        if right and t.kind == "div":
            t.refuse("a division by complex numbers")
        return t.result("Mul" if t.kind == "mul" else "Div", [a, b])
    return _paired(t, layers.complex_product(t, parts_of(t, a), parts_of(t, b)))


@row("neg.default")
def negative(t: Aten) -> Result:
    return t.result("Neg", [t.tensor("self")])


# Movement


def _axis(t: Aten, name: str, x: str, default: Any = None, more: int = 0) -> int:
    """An axis of a pair, its own last one not among them."""
    rank = t.rank(x) - 1 + more
    index = t.integer(name, default)
    if index is None or not -rank <= index < rank:
        t.wrong(name, index, f"an axis of rank {rank}")
    return int(index) % rank


@row("reshape.default", "view.default")
@row("_unsafe_view.default")
def reshaped(t: Aten) -> Result:
    shape = t.sizes("shape" if "shape" in t.a.values else "size")
    shape_with_pair = t.add("Concat", [shape, t.ints([2])], axis=0)
    return t.result("Reshape", [t.tensor("self"), shape_with_pair])


@row("flatten.using_ints")
def flattened(t: Aten) -> Result:
    x = t.tensor("self")
    first, last = _axis(t, "start_dim", x, 0), _axis(t, "end_dim", x, -1)
    sizes = [t.known_size(x, a) for a in range(t.rank(x))]
    flat_size = math.prod(sizes[first : last + 1])
    return t.result("Reshape", [x, t.ints([*sizes[:first], flat_size, *sizes[last + 1 :]])])


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
def rotated(t: Aten) -> Result:
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
        indices = t.constant((np.arange(size) - shift) % size, np.int64)
        x = t.add("Gather", [x, indices], axis=axis % rank)
    return t.result("Identity", [x])


@row("cat.default")
def concatenated(t: Aten) -> Result:
    tensors = t.tensors("tensors")
    if len(t.a.get("complex_inputs", ())) != len(tensors):
        t.refuse("real parts among complex ones")
    return t.result("Concat", tensors, axis=_axis(t, "dim", tensors[0] or "", 0))
