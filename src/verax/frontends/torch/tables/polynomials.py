"""ATen operators with as many steps as their data say: gcd, lcm, orthogonal polynomials."""

from __future__ import annotations

from collections.abc import Callable

from verax.frontends.common.context import Result
from verax.frontends.common.loops import looped
from verax.frontends.torch.rows import Aten, row
from verax.frontends.torch.tables.elementwise import in_type, operand, promoted
from verax.ir.types import DType

MOST_STEPS = 512
"""Degrees of a polynomial that are written out."""

# Whole numbers


def _euclid(t: Aten, _: str, carried: list[str], __: list[str]) -> tuple[str, list[str]]:
    """(a, b) -> (b, a mod b) where b is not 0; on while some b is not 0."""
    a, b = carried
    zero = t.constant(0, "int64")
    done = t.add("Equal", [b, zero])
    divisor = t.add("Where", [done, t.constant(1, "int64"), b])
    left = t.add("Where", [done, zero, t.add("Mod", [a, divisor])])
    largest = t.add("ReduceMax", [left], keepdims=False)
    return t.add("Greater", [largest, zero]), [t.add("Where", [done, a, b]), left]


@row("gcd.default", "lcm.default")
def divisor(t: Aten) -> Result:
    """The largest common divisor by Euclid's algorithm, or the smallest common multiple
    |a / gcd b|; 0 of zeros."""
    a, b = operand(t, "self"), operand(t, "other")
    dtype = promoted(t, [a, b])
    wide = [t.add("Abs", [t.cast(in_type(t, v, dtype), DType.int64)]) for v in (a, b)]
    broadcast = t.add("Add", wide)  # its shape is that of the result
    if 0 in t.type(broadcast).dims:
        return t.result("Cast", [broadcast], to=dtype)
    zeros = t.add("Sub", [broadcast, broadcast])
    x, y = (t.add("Add", [v, zeros]) for v in wide)
    gcd = looped(t, [x, y], [], _euclid)[0]
    if t.kind == "gcd":
        return t.result("Cast", [gcd], to=dtype)
    one = t.constant(1, "int64")
    quotient = t.add("Div", [x, t.add("Max", [gcd, one])])
    return t.result("Cast", [t.add("Mul", [quotient, y])], to=dtype)


# Polynomials by their recurrences

Numbers = Callable[[Aten, str], str]


def _times(t: Aten, x: str, factor: float) -> str:
    return t.add("Mul", [x, t.like(factor, x)])


def _plus(t: Aten, x: str, more: float) -> str:
    return t.add("Add", [x, t.like(more, x)])


FIRST: dict[str, Numbers] = {
    "chebyshev_polynomial_t": lambda t, x: x,
    "chebyshev_polynomial_u": lambda t, x: _times(t, x, 2),
    "chebyshev_polynomial_v": lambda t, x: _plus(t, _times(t, x, 2), -1),
    "chebyshev_polynomial_w": lambda t, x: _plus(t, _times(t, x, 2), 1),
    "hermite_polynomial_h": lambda t, x: _times(t, x, 2),
    "hermite_polynomial_he": lambda t, x: x,
    "laguerre_polynomial_l": lambda t, x: t.add("Sub", [t.like(1, x), x]),
    "legendre_polynomial_p": lambda t, x: x,
}
"""The polynomials of degree 1; those of degree 0 are 1."""
KINDS = (*FIRST, *(f"shifted_chebyshev_polynomial_{k}" for k in "tuvw"))


def _next(t: Aten, kind: str, x: str, k: str, before: str, last: str) -> str:
    """The polynomial of degree k + 1, of those of degrees k - 1 and k; k: a number like x."""

    def by(a: str, b: str) -> str:
        return t.add("Mul", [a, b])

    if kind.startswith("chebyshev"):
        return t.add("Sub", [by(_times(t, x, 2), last), before])
    if kind.startswith("hermite"):
        own, factor = (x, k) if kind.endswith("he") else (_times(t, x, 2), _times(t, k, 2))
        return t.add("Sub", [by(own, last), by(factor, before)])
    odd = _plus(t, _times(t, k, 2), 1)
    factor = by(odd, x) if kind.startswith("legendre") else t.add("Sub", [odd, x])
    upper = t.add("Sub", [by(factor, last), by(k, before)])
    return t.add("Div", [upper, _plus(t, k, 1)])


@row(*(f"special_{k}.{o}" for k in KINDS for o in ("default", "n_scalar", "x_scalar")))
def polynomial(t: Aten) -> Result:
    """A polynomial of degree n, rounded towards 0, at x; 0 for negative degrees. A degree that is a
    number is written out, degrees that are computed make a loop to the largest of them."""
    kind = t.kind.removeprefix("special_")
    x, n = operand(t, "x"), operand(t, "n")
    dtype = promoted(t, [x, n])
    dtype = dtype if dtype.is_float else DType.float32
    x = in_type(t, x, dtype)
    if kind.startswith("shifted"):
        x, kind = _plus(t, _times(t, x, 2), -1), kind.removeprefix("shifted_")
    if not isinstance(n, str):
        return _written_out(t, kind, x, int(n))
    return _by_degree(t, kind, x, t.cast(n, DType.int64))


def _written_out(t: Aten, kind: str, x: str, n: int) -> Result:
    if n > MOST_STEPS:
        t.a.refuse("n", f"degrees up to {MOST_STEPS} are written out")
    before = t.add("Expand", [t.like(1, x), t.add("Shape", [x])])
    if n < 1:
        return t.result("Identity", [_times(t, before, 0) if n < 0 else before])
    last = FIRST[kind](t, x)
    for k in range(1, n):
        before, last = last, _next(t, kind, x, t.like(k, x), before, last)
    return t.result("Identity", [last])


def _by_degree(t: Aten, kind: str, x: str, n: str) -> Result:
    dtype = t.type(x).dtype
    with_degree = t.add("Add", [x, t.cast(n, dtype)])
    shape = t.known_sizes(with_degree)
    if 0 in shape:
        return t.result("Identity", [with_degree])
    x, n = (t.add("Expand", [v, t.ints(shape)]) for v in (x, n))
    one, first = t.add("Expand", [t.like(1, x), t.ints(shape)]), FIRST[kind](t, x)

    def step(c: Aten, run: str, carried: list[str], outside: list[str]) -> tuple[str, list[str]]:
        before, last, values = carried
        at, degrees = outside
        k = c.add("Add", [run, c.constant(1, "int64")])
        new = _next(c, kind, at, c.cast(k, dtype), before, last)
        degree = c.add("Add", [run, c.constant(2, "int64")])
        more = c.add("Less", [degree, c.add("ReduceMax", [degrees], keepdims=False)])
        return more, [last, new, c.add("Where", [c.add("Equal", [degrees, degree]), new, values])]

    below = t.add("Less", [n, t.constant(0, "int64")])
    values = t.add("Where", [below, t.like(0, x), one])
    values = t.add("Where", [t.add("Equal", [n, t.constant(1, "int64")]), first, values])
    return t.result("Identity", [looped(t, [one, first, values], [x, n], step)[2]])
