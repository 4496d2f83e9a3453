"""ATen operators that core ATen leaves composite, in simpler ones, so that a file needs no PyTorch
to decompose them; the ledger says which were."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from verax.frontends.common import formulas, shapes
from verax.frontends.common.context import Result
from verax.frontends.torch.rows import Aten, composite
from verax.frontends.torch.tables.elementwise import in_type, operand, promoted
from verax.frontends.torch.tables.order import distances
from verax.ir.dim import DimLike
from verax.ir.types import DType


def _floating(t: Aten, name: str = "self") -> str:
    x = t.tensor(name)
    return x if t.type(x).dtype.is_float else t.cast(x, DType.float32)


def _promoted_operands(
    t: Aten, first: str = "self", second: str = "other"
) -> tuple[str, str, DType]:
    """Two operands in their common type."""
    a, b = operand(t, first), operand(t, second)
    dtype = promoted(t, [a, b])
    return in_type(t, a, dtype), in_type(t, b, dtype), dtype


# Elements


@composite("fmax.default", "fmin.default")
def extreme(t: Aten) -> Result:
    """The larger or smaller one, and the other one where one is NaN."""
    a, b, dtype = _promoted_operands(t)
    kind = "Max" if t.kind == "fmax" else "Min"
    if not dtype.is_float:
        return t.result(kind, [a, b])
    extremes = t.add("Where", [t.add("IsNaN", [b]), a, t.add(kind, [a, b])])
    return t.result("Where", [t.add("IsNaN", [a]), b, extremes])


def _is_minus(t: Aten, x: str) -> str:
    """Whether the sign of x is set, that of -0 too."""
    none = t.like(0, x)
    if not t.type(x).dtype.is_float:
        return t.add("Less", [x, none])
    return t.add("Or", [t.add("Less", [x, none]), t.add("Less", [t.add("Reciprocal", [x]), none])])


@composite("signbit.default")
def signbit(t: Aten) -> Result:
    return t.result("Identity", [_is_minus(t, t.tensor("self"))])


@composite("copysign.Tensor", "copysign.Scalar")
def copysign(t: Aten) -> Result:
    a, b, dtype = _promoted_operands(t)
    if not dtype.is_float:
        a, b = (t.cast(v, DType.float32) for v in (a, b))
    size = t.add("Abs", [a])
    return t.result("Where", [_is_minus(t, b), t.add("Neg", [size]), size])


@composite("deg2rad.default", "rad2deg.default")
def angles(t: Aten) -> Result:
    x = _floating(t)
    factor = math.pi / 180 if t.kind == "deg2rad" else 180 / math.pi
    return t.result("Mul", [x, t.like(factor, x)])


@composite("ldexp.Tensor")
def ldexp(t: Aten) -> Result:
    """self 2^other."""
    a, b = operand(t, "self"), operand(t, "other")
    dtype = promoted(t, [a, b])
    dtype = dtype if dtype.is_float else DType.float32
    x, y = in_type(t, a, dtype), in_type(t, b, dtype)
    return t.result("Mul", [x, t.add("Pow", [t.like(2, x), y])])


@composite("logaddexp2.default")
def log_add_exp2(t: Aten) -> Result:
    a, b, _ = _promoted_operands(t)
    factor = t.like(math.log(2), a)
    wide = [t.add("Mul", [v, factor]) for v in (a, b)]
    return t.result("Div", [t.append(formulas.log_add_exp(t, *wide)), factor])


@composite("heaviside.default")
def heaviside(t: Aten) -> Result:
    """0 below 0, `values` at 0, 1 above."""
    x, values = t.tensor("self"), t.tensor("values")
    none = t.like(0, x)
    above = t.cast(t.add("Greater", [x, none]), t.type(x).dtype)
    return t.result("Where", [t.add("Equal", [x, none]), values, above])


@composite("isclose.default")
def isclose(t: Aten) -> Result:
    """Equal, or finite and |self - other| <= atol + rtol |other|."""
    a, b, dtype = _promoted_operands(t)
    close = t.add("Equal", [a, b])
    if not dtype.is_float:
        t.irrelevant("equal_nan", reason="integers are never NaN")
    elif t.flag("equal_nan"):
        close = t.add("Or", [close, t.add("And", [t.add("IsNaN", [v]) for v in (a, b)])])
    if not dtype.is_float:
        a, b = (t.cast(v, DType.float64) for v in (a, b))
    limit = t.add("Mul", [t.add("Abs", [b]), t.like(t.scalar("rtol", 1e-5), b)])
    limit = t.add("Add", [limit, t.like(t.scalar("atol", 1e-8), b)])
    apart = t.add("Abs", [t.add("Sub", [a, b])])
    near = t.add("LessOrEqual", [apart, limit])
    finite = t.append(formulas.is_finite(t, apart)) if dtype.is_float else None
    near = near if finite is None else t.add("And", [near, finite])
    return t.result("Or", [close, near])


@composite("sinc.default")
def sinc(t: Aten) -> Result:
    """sin(pi x) / (pi x), and 1 at 0."""
    x = _floating(t)
    none = t.add("Equal", [x, t.like(0, x)])
    angle = t.add("Mul", [t.add("Where", [none, t.like(1, x), x]), t.like(math.pi, x)])
    quotient = t.add("Div", [t.add("Sin", [angle]), angle])
    return t.result("Where", [none, t.like(1, x), quotient])


@composite("float_power.Tensor_Tensor", "float_power.Tensor_Scalar", "float_power.Scalar")
def float_power(t: Aten) -> Result:
    """The power in double precision."""
    a, b = operand(t, "self"), operand(t, "exponent")
    return t.result("Pow", [in_type(t, v, DType.float64) for v in (a, b)])


@composite("round.decimals")
def round_decimals(t: Aten) -> Result:
    """The nearest multiple of 10^-decimals."""
    x, digits = t.tensor("self"), t.integer("decimals", 0)
    if not t.type(x).dtype.is_float:
        t.refuse("integers")
    unit, inside, outside = t.like(10.0 ** abs(digits), x), "Mul", "Div"
    if digits < 0:
        inside, outside = outside, inside
    return t.result(outside, [t.add("Round", [t.add(inside, [x, unit])]), unit])


@composite("isin.Tensor_Tensor")
def isin(t: Aten) -> Result:
    """Whether each element is one of the test's."""
    x, test = t.tensor("elements"), t.tensor("test_elements")
    t.irrelevant("assume_unique", reason="it chooses an implementation")
    dtype = promoted(t, [x, test])
    elements = t.add("Unsqueeze", [t.cast(x, dtype), t.ints([-1])])
    flat = t.add("Reshape", [t.cast(test, dtype), t.ints([-1])])
    same = t.add("Equal", [elements, flat])
    is_member = t.append(formulas.any_or_all(t, same, "ReduceMax", t.ints([-1]), keepdims=False))
    return t.result("Not" if t.flag("invert") else "Identity", [is_member])


# Products


def _mixed(t: Aten, product: str) -> Result:
    """beta self + alpha product; with a beta of 0 nothing of self counts, NaN neither."""
    x = t.tensor("self")
    dtype = t.type(product).dtype.numpy
    beta, alpha = t.scalar("beta", 1), t.scalar("alpha", 1)
    if alpha != 1:
        product = t.add("Mul", [product, t.constant(alpha, dtype)])
    if beta == 0:
        return t.result("Identity", [product])
    if beta != 1:
        x = t.add("Mul", [x, t.constant(beta, dtype)])
    return t.result("Add", [x, product])


@composite("addmv.default", "addr.default", "addbmm.default")
def added_product(t: Aten) -> Result:
    if t.kind == "addmv":
        return _mixed(t, t.add("MatMul", [t.tensor("mat"), t.tensor("vec")]))
    if t.kind == "addr":
        column = t.add("Unsqueeze", [t.tensor("vec1"), t.ints([1])])
        return _mixed(
            t, t.add("Mul", [column, t.add("Unsqueeze", [t.tensor("vec2"), t.ints([0])])])
        )
    products = t.add("MatMul", [t.tensor("batch1"), t.tensor("batch2")])
    return _mixed(t, t.add("ReduceSum", [products, t.ints([0])], keepdims=False))


@composite("vdot.default")
def vdot(t: Aten) -> Result:
    return t.result("MatMul", [t.tensor("self"), t.tensor("other")])


@composite("linalg_cross.default", "cross.default")
def cross(t: Aten) -> Result:
    """Of vectors along an axis of three; without one the first such axis."""
    a, b = t.tensor("self"), t.tensor("other")
    if t.rank(a) != t.rank(b):
        t.refuse("factors of different ranks")
    if t.kind == "cross" and t.a.get("dim") is None:
        axis = next((i for i, d in enumerate(t.type(a).dims) if d == 3), -1)
    else:
        axis = t.axis("dim", a, -1)
    if axis < 0 or t.known_size(a, axis) != 3:
        t.refuse("no axis of three")

    def rotated(x: str, by: int) -> str:
        indices = t.constant([(i + by) % 3 for i in range(3)], np.int64)
        return t.add("Gather", [x, indices], axis=axis)

    first = t.add("Mul", [rotated(a, 1), rotated(b, 2)])
    return t.result("Sub", [first, t.add("Mul", [rotated(a, 2), rotated(b, 1)])])


@composite("pairwise_distance.default")
def pairwise_distance(t: Aten) -> Result:
    """Norms along the last axis of x1 - x2 + eps."""
    apart = t.add("Sub", [t.tensor("x1"), t.tensor("x2")])
    apart = t.add("Add", [apart, t.like(t.scalar("eps", 1e-6), apart)])
    norms = t.append(distances(t, apart, float(t.scalar("p", 2))))  # type: ignore[arg-type]
    if t.flag("keepdim"):
        return t.result("Unsqueeze", [norms, t.ints([-1])])
    return t.result("Identity", [norms])


@composite("dist.default", "norm.Scalar")
def whole_norm(t: Aten) -> Result:
    """The norm of all elements, of a difference or of one tensor."""
    x = t.tensor("self")
    if t.kind == "dist":
        x = t.add("Sub", [x, t.tensor("other")])
    flat = t.add("Reshape", [x, t.ints([-1])])
    return distances(t, flat, float(t.scalar("p", 2)))


# Places


@composite("fliplr.default", "flipud.default")
def flipped(t: Aten) -> Result:
    return shapes.turned_round(t, t.tensor("self"), [1 if t.kind == "fliplr" else 0])


@composite("rot90.default")
def rot90(t: Aten) -> Result:
    """Quarter turns from the first axis of `dims` towards the second."""
    x, turns = t.tensor("self"), t.integer("k", 1) % 4
    if turns == 0:
        t.irrelevant("dims", reason="nothing is turned")
        return t.result("Identity", [x])
    first, second = (d % t.rank(x) for d in t.integers("dims", (0, 1)))
    if turns == 2:
        return shapes.turned_round(t, x, [first, second])
    y = t.append(shapes.turned_round(t, x, [second if turns == 1 else first]))
    return shapes.exchanged(t, y, first, second)


@composite("take.default")
def take(t: Aten) -> Result:
    """Elements of the flat tensor."""
    flat = t.add("Reshape", [t.tensor("self"), t.ints([-1])])
    return t.result("Gather", [flat, t.tensor("index")], axis=0)


def _common(t: Aten, values: list[str]) -> list[DimLike]:
    """The shape to which tensors broadcast."""
    rank = max(t.rank(v) for v in values)
    dims: list[DimLike] = []
    for axis in range(-rank, 0):
        sizes = [t.type(v).dims[axis] for v in values if t.rank(v) >= -axis]
        dims.append(next((d for d in sizes if d != 1), 1))
    if not all(isinstance(d, int) for d in dims):
        t.refuse("sizes that are open")
    return dims


@composite("broadcast_tensors.default")
def broadcast_tensors(t: Aten) -> Result:
    values: list[Any] = t.tensors("tensors")
    shape = t.ints([int(d) for d in _common(t, values)])  # type: ignore[call-overload]
    return t.per_output("Expand", [[v, shape] for v in values])


@composite("block_diag.default")
def block_diag(t: Aten) -> Result:
    """Matrices one behind the other along the diagonal, zeros elsewhere."""
    values = []
    for value in t.tensors("tensors"):
        assert value is not None
        rank = t.rank(value)
        if rank > 2:
            t.refuse(f"a block of rank {rank}")
        values.append(t.add("Reshape", [value, t.ints([1, -1])]) if rank < 2 else value)
    widths = [t.known_size(v, 1) for v in values]
    lines, before = [], 0
    for value, width in zip(values, widths):
        pads = t.ints([0, before, 0, sum(widths) - before - width])
        lines.append(t.add("Pad", [value, pads, t.like(0, value)]))
        before += width
    return t.result("Concat", lines, axis=0)


def _on_diagonal(t: Aten, x: str, offset: int) -> str:
    """Matrices with the last axis of x on a diagonal, zeros elsewhere."""
    size, shift = t.known_size(x, -1), abs(offset)
    size_with_offset = size + shift
    t.check_count(size_with_offset * size_with_offset)
    pads = [0] * (2 * t.rank(x))
    pads[t.rank(x) - 1 if offset < 0 else -1] = shift
    line = t.add("Pad", [x, t.ints(pads), t.like(0, x)]) if shift else x
    column = t.add("Unsqueeze", [line, t.ints([-1])])
    diagonal = t.constant(np.eye(size_with_offset, k=offset, dtype=np.bool_))
    return t.add("Where", [diagonal, column, t.like(0, x)])


@composite("diag_embed.default")
def diag_embed(t: Aten) -> Result:
    x = t.tensor("self")
    rank = t.rank(x) + 1
    if (t.integer("dim1", -2) % rank, t.integer("dim2", -1) % rank) != (rank - 2, rank - 1):
        t.refuse("a diagonal of other axes than the last two")
    return t.result("Identity", [_on_diagonal(t, x, t.integer("offset", 0))])


@composite("diag.default")
def diag(t: Aten) -> Result:
    """A vector on a diagonal, or a diagonal as a vector."""
    x, offset = t.tensor("self"), t.integer("diagonal", 0)
    if t.rank(x) == 1:
        return t.result("Identity", [_on_diagonal(t, x, offset)])
    rows, columns = t.known_sizes(x)
    indices = np.flatnonzero(np.eye(rows, columns, k=offset))
    flat = t.add("Reshape", [x, t.ints([-1])])
    return t.result("Gather", [flat, t.constant(indices, np.int64)], axis=0)


@composite("median.default")
def median(t: Aten) -> Result:
    """The lower of the two middle elements."""
    flat = t.add("Reshape", [t.tensor("self"), t.ints([-1])])
    k = (t.known_size(flat, 0) + 1) // 2
    values = t.add_all("TopK", [flat, t.ints([k])], axis=0, largest=False)[0]
    last = t.add("Gather", [values, t.constant(k - 1, np.int64)], axis=0)
    missing = (
        t.add("ReduceMax", [t.cast(t.add("IsNaN", [flat]), DType.int32)], keepdims=False)
        if t.type(flat).dtype.is_float
        else None
    )
    if missing is None:
        return t.result("Identity", [last])
    return t.result("Where", [t.cast(missing, DType.bool_), t.like(math.nan, last), last])


# Running extremes: doubled steps, as no rounding is in them


@composite("cummax.default", "cummin.default")
def running_extreme(t: Aten) -> Result:
    """The extreme of what is before, and the last place that has it; NaN stays."""
    x = t.tensor("self")
    if not t.rank(x):
        t.refuse("a tensor without axes")
    axis = t.axis("dim", x)
    size = t.known_size(x, axis)
    beats = "GreaterOrEqual" if t.kind == "cummax" else "LessOrEqual"
    lines = t.constant(np.arange(size).reshape(-1, *(1,) * (t.rank(x) - 1 - axis)), np.int64)
    indices = t.add("Expand", [lines, t.add("Shape", [x])])
    step = 1
    while step < size:
        ends = [(axis,), (0,), (-step,)]
        earlier = [t.append(shapes.sliced(t, v, *ends)) for v in (x, indices)]
        later = [t.append(shapes.sliced(t, v, (axis,), (step,), (size,))) for v in (x, indices)]
        own = t.add(beats, [later[0], earlier[0]])
        if t.type(x).dtype.is_float:
            own = t.add("Or", [own, t.add("IsNaN", [later[0]])])
        winners = [t.add("Where", [own, b, a]) for a, b in zip(earlier, later)]
        first = [t.append(shapes.sliced(t, v, (axis,), (0,), (step,))) for v in (x, indices)]
        x, indices = (t.add("Concat", [a, b], axis=axis) for a, b in zip(first, winners))
        step *= 2
    return t.named([x, indices])


@composite("logcumsumexp.default")
def running_log_sum(t: Aten) -> Result:
    """log of the sum of exponentials of what is before, in doubled steps."""
    x = t.tensor("self")
    if not t.rank(x):
        return t.result("Identity", [x])
    axis = t.axis("dim", x)
    size, step = t.known_size(x, axis), 1
    while step < size:
        earlier = t.append(shapes.sliced(t, x, (axis,), (0,), (-step,)))
        later = t.append(shapes.sliced(t, x, (axis,), (step,), (size,)))
        first = t.append(shapes.sliced(t, x, (axis,), (0,), (step,)))
        sums = t.append(formulas.log_add_exp(t, earlier, later))
        x, step = t.add("Concat", [first, sums], axis=axis), step * 2
    return t.result("Identity", [x])
