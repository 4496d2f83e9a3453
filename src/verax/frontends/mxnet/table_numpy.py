"""Operators of MXNet's NumPy interface (mx.np, mx.npx), which Gluon writes under npx.set_np().

Most bear the old names; those here have names or rules of their own: scalars have no axes, and
comparisons give booleans. Arithmetic is for floats of one type; NumPy's promotion is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from verax.base.errors import ModelError
from verax.frontends.common import shapes
from verax.frontends.common.context import Conversion, Result
from verax.frontends.mxnet.rows import TABLE, ints, keep_dtype, row, sizes_along
from verax.frontends.mxnet.table_arithmetic import compared, number_beside, remainder
from verax.ir.dim import DimLike


def _floats(c: Conversion, *more: str) -> None:
    """Refuse what NumPy would bring to another type."""
    types = {c.type(v).dtype for v in (*(v for v in c.inputs if v), *more)}
    if len(types) != 1 or not next(iter(types)).is_float:
        c.refuse(f"element types {', '.join(sorted(types))}: only one float type is supported")


def _alike(old: str, *names: str) -> None:
    """Rows that mean what an old name means, on floats."""
    meant = TABLE["", old]

    def convert(c: Conversion) -> Any:
        _floats(c)
        return meant(c)

    row(*names)(convert)


for _old, _name in {
    "relu": "_npx_relu",
    "sigmoid": "_npx_sigmoid",
    "exp": "_npi_exp",
    "log": "_npi_log",
    "sqrt": "_npi_sqrt",
    "abs": "_npi_absolute",
    "negative": "_npi_negative",
    "floor": "_npi_floor",
    "ceil": "_npi_ceil",
    "tanh": "_npi_tanh",
    "sign": "_npi_sign",
    "sin": "_npi_sin",
    "cos": "_npi_cos",
    "tan": "_npi_tan",
    "square": "_npi_square",
    "reciprocal": "_npi_reciprocal",
    "broadcast_add": "_npi_add",
    "broadcast_sub": "_npi_subtract",
    "broadcast_mul": "_npi_multiply",
    "broadcast_div": "_npi_true_divide",
    "broadcast_power": "_npi_power",
    "_plus_scalar": "_npi_add_scalar",
    "_minus_scalar": "_npi_subtract_scalar",
    "_rminus_scalar": "_npi_rsubtract_scalar",
    "_mul_scalar": "_npi_multiply_scalar",
    "_div_scalar": "_npi_true_divide_scalar",
    "_rdiv_scalar": "_npi_rtrue_divide_scalar",
    "_power_scalar": "_npi_power_scalar",
    "_rpower_scalar": "_npi_rpower_scalar",
}.items():
    _alike(_old, _name)


def _remainder(name: str, divisor: Callable[[Conversion], str]) -> None:
    def convert(c: Conversion) -> Result:
        _floats(c)
        return remainder(c, c.required(0), divisor(c))

    row(name)(convert)


_remainder("_npi_mod", lambda c: c.required(1))
_remainder("_npi_mod_scalar", number_beside)


def _compared(name: str, kind: str, *, negated: bool = False) -> None:
    def convert(c: Conversion) -> Result:
        _floats(c)
        return compared(c, kind, negated)

    row(f"_npi_{name}", f"_npi_{name}_scalar")(convert)


_compared("equal", "Equal")
_compared("not_equal", "Equal", negated=True)
_compared("less", "Less")
_compared("less_equal", "LessOrEqual")
_compared("greater", "Greater")
_compared("greater_equal", "GreaterOrEqual")


@row("_npi_where")
def select(c: Conversion) -> Result:
    condition = c.add("Cast", [c.required(0)], to="bool")
    return c.result("Where", [condition, c.required(1), c.required(2)])


# Reductions: without axes they give a scalar.


def _reduce(kind: str, *names: str) -> None:
    def convert(c: Conversion) -> Result:
        a, rank = c.attributes, c.rank()
        _floats(c)
        a.expect("initial", None, reason="a first value is not supported")
        keep_dtype(c)
        stated = ints(c, "axis")
        axes = range(rank) if stated is None else sorted({axis % rank for axis in stated})
        keep = a.flag("keepdims", False)
        return c.result(
            kind, [c.required(0), c.ints(tuple(axes))], keepdims=keep, noop_with_empty_axes=True
        )

    row(*names)(convert)


_reduce("ReduceSum", "_np_sum")
_reduce("ReduceMean", "_npi_mean")
_reduce("ReduceMax", "_np_max", "_np_amax")
_reduce("ReduceMin", "_np_min", "_np_amin")
_reduce("ReduceProd", "_np_prod", "_np_product")


def _position(name: str, kind: str) -> None:
    def convert(c: Conversion) -> Result:
        a, axis = c.attributes, ints(c, "axis")
        if axis is None or len(axis) != 1:
            c.refuse("an axis is needed")
        return c.result(kind, [c.required(0)], axis=axis[0], keepdims=a.flag("keepdims", False))

    row(name)(convert)


_position("_npi_argmax", "ArgMax")
_position("_npi_argmin", "ArgMin")


# Shapes.


@row("_np_reshape")
def reshape(c: Conversion) -> Result:
    """As NumPy's: every size is given, one of them perhaps as -1."""
    a = c.attributes
    a.expect("order", "C", reason="only C order is supported")
    shape = ints(c, "newshape")
    if shape is None or min(shape, default=0) < -1:
        a.refuse("newshape", "only sizes and -1 are supported")
    if 0 in shape:
        a.refuse("newshape", "arrays without elements are not supported")
    return c.result("Reshape", [c.required(0), c.ints(shape)])


@row("_npx_reshape")
def coded_reshape(c: Conversion) -> Result:
    """Codes: -1 infers, -2 copies, -3 drops a 1, -4 copies the rest, -5 joins two, -6 splits."""
    a = c.attributes
    a.expect("order", "C", reason="only C order is supported")
    a.expect("reverse", False, reason="only reading from the first axis on is supported")
    codes = list(ints(c, "newshape", ()))
    sizes = coded(c, codes)
    pieces = [
        c.ints((s,)) if isinstance(s, int) else sizes_along(c, 0, s[:1]) if len(s) == 1 else
        c.add("ReduceProd", [sizes_along(c, 0, s), c.ints((0,))], keepdims=True)
        for s in sizes
    ]  # fmt: skip
    return c.result("Reshape", [c.required(0), c.add("Concat", pieces, axis=0)])


Size = int | tuple[int, ...]
"""A number, or the axes of the input whose product it is."""


def coded(c: Conversion, codes: list[int]) -> list[Size]:
    """Sizes that the codes of `npx.reshape` mean."""
    dims, axes = c.type(0).dims, list(range(c.rank()))
    sizes: list[Size] = []

    def axis() -> int:
        if not axes:
            raise ModelError(f"newshape {codes} for an input {c.type(0)}", place=c.node.place)
        return axes.pop(0)

    pending = list(codes)
    while pending:
        code = pending.pop(0)
        if code >= 0 or code == -1:
            sizes.append(code)
            del axes[:1]
        elif code == -2:
            sizes.append((axis(),))
        elif code == -3:
            if dims[axis()] != 1:
                c.attributes.refuse("newshape", "-3 drops an axis whose size is not 1")
        elif code == -4:
            sizes += [(i,) for i in axes]
            axes.clear()
        elif code == -5:
            sizes.append((axis(), axis()))
        elif code == -6 and len(pending) > 1:
            sizes += _split_sizes(c, dims[axis()], pending.pop(0), pending.pop(0))
        else:
            c.attributes.refuse("newshape", f"there is no code {code}")
    if sizes.count(-1) > 1:
        raise ModelError(f"newshape {codes} infers two sizes", place=c.node.place)
    return sizes


def _split_sizes(c: Conversion, axis_size: DimLike, first: int, second: int) -> list[Size]:
    """The two sizes that an axis is split into; one may be -1."""
    divisor = second if first == -1 else first
    if (
        not isinstance(axis_size, int)
        or divisor < 1
        or axis_size % divisor
        or min(first, second) < -1
    ):
        c.attributes.refuse("newshape", f"{axis_size} is not split into {first} and {second}")
    assert isinstance(axis_size, int)
    sizes = [axis_size // divisor, divisor] if first == -1 else [divisor, axis_size // divisor]
    if second not in (-1, sizes[1]):
        c.attributes.refuse("newshape", f"{first} x {second} is not {axis_size}")
    return list(sizes)


@row("_np_transpose")
def transpose(c: Conversion) -> Result:
    axes = ints(c, "axes") or tuple(reversed(range(c.rank())))
    return c.operator("Transpose", perm=tuple(a % c.rank() for a in axes))


TABLE["", "_np_squeeze"] = TABLE["", "squeeze"]


@row("_npi_concatenate")
def concatenate(c: Conversion) -> Result:
    if c.attributes.get("axis", 0) is not None:
        return c.operator("Concat", axis=c.integer("axis", 0))
    flat = [c.add("Reshape", [c.required(i), c.ints((-1,))]) for i in range(len(c.inputs))]
    return c.result("Concat", flat, axis=0)


TABLE["", "_npi_stack"] = TABLE["", "stack"]


@row("_np_moveaxis")
def move_axis(c: Conversion) -> Result:
    return shapes.move_axes(c, c.required(0), ints(c, "source"), ints(c, "destination"))


@row("_npi_flip")
def flip(c: Conversion) -> Result:
    stated = ints(c, "axis")
    axes = range(c.rank()) if stated is None else [c.from_front(a, c.rank()) for a in stated]
    return shapes.turned_round(c, c.required(0), axes)


@row("_npi_broadcast_to")
def broadcast_to(c: Conversion) -> Result:
    shape = ints(c, "shape", ())
    if min(shape, default=1) < 1:
        c.attributes.refuse("shape", "only plain sizes are supported")
    return c.result("Expand", [c.required(0), c.ints(shape)])


@row("_npi_matmul")
def matmul(c: Conversion) -> Result:
    _floats(c)
    return c.operator("MatMul")


@row("_np_dot")
def dot(c: Conversion) -> Result:
    _floats(c)
    if c.rank(0) < 1 or c.rank(1) not in (1, 2):
        c.refuse(f"{c.type(0)} and {c.type(1)} are not supported")
    return c.operator("MatMul")


@row("_npi_pad")
def pad(c: Conversion) -> Result:
    a, widths = c.attributes, c.attributes.get("pad_width")
    begins_and_ends = widths if isinstance(widths, tuple) else ()
    fits = (
        all(isinstance(p, tuple) and len(p) == 2 for p in begins_and_ends)
        and len(begins_and_ends) == c.rank()
    )
    flat = [v for pair in begins_and_ends for v in pair] if fits else []
    if not fits or any(type(v) is not int or v < 0 for v in flat):
        a.refuse("pad_width", "it must hold two sizes per axis")
    mode = c.choice("mode", ("constant", "edge", "reflect"), "constant")
    if mode == "reflect":
        a.expect("reflect_type", "even", reason="only even is supported")
    else:
        a.irrelevant("reflect_type", f"mode {mode} does not read it")
    pads = c.ints([*flat[::2], *flat[1::2]])
    if mode != "constant":
        a.irrelevant("constant_value", f"mode {mode} does not read it")
        return c.result("Pad", [c.required(0), pads], mode=mode)
    value = c.like(a.scalar("constant_value", 0.0))
    return c.result("Pad", [c.required(0), pads, value], mode=mode)
