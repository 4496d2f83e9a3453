"""TensorFlow operators that make, mix or take apart complex numbers, Fourier transforms among them.

Each complex operand is two here, its real and its imaginary part, and so is a complex result (see
`complex_parts`, which calls these rows).
"""

from __future__ import annotations

from collections.abc import Callable

from verax.base.errors import ModelError
from verax.frontends.common import formulas, layers
from verax.frontends.common.channels_last import constant_ints
from verax.frontends.common.context import Conversion, Result
from verax.frontends.common.fourier import PLAIN, WHOLE, on_parts
from verax.frontends.common.fourier_matrix import Parts
from verax.frontends.tensorflow.complex_parts import COMPLEX_OF, DOMAIN, REAL
from verax.frontends.tensorflow.rows import row as enter
from verax.ir.types import DType

Row = Callable[[Conversion], Result]


def row(*operators: str) -> Callable[[Row], Row]:
    """Enter a function as the row of operators on complex numbers."""
    return enter(*operators, domain=DOMAIN)


def _types(c: Conversion, **stated: bool) -> None:
    """Hold the attributes that name types (True: of complex numbers) against the operands."""
    real = str(c.type(0).dtype)
    if real not in COMPLEX_OF:
        c.refuse(f"complex numbers of {real}")
    for name, is_complex in stated.items():
        expected = COMPLEX_OF[real] if is_complex else real
        c.attributes.expect(name, expected, reason="it repeats a type")


def _pair(c: Conversion, first: int = 0) -> tuple[str, str]:
    return c.required(first), c.required(first + 1)


def _named_parts(c: Conversion, components: Parts) -> Result:
    """Results under the names of the node's outputs."""
    return c.named([component for component in components if component is not None])


AXES = {"2D": 2, "3D": 3}


@row(*(f"{kind}FFT{axes}" for kind in ("", "I", "R", "IR") for axes in ("", "2D", "3D")))
def fourier(c: Conversion) -> Result:
    """Along the last axes. Those of real signals have the sizes of the signal as last operand, to
    which it, or its bins, are cut; inverse ones divide by the size."""
    kind, _, axes = c.node.op_type.partition("FFT")
    count, inverse = AXES.get(axes, 1), kind.startswith("I")
    sign, norm = (1, WHOLE) if inverse else (-1, PLAIN)
    _types(c, Tcomplex=True, Treal=False)
    components: Parts = (c.required(0), None) if kind == "R" else _pair(c)
    rank = c.rank(0)
    if rank < count:
        raise ModelError(f"{count} axes of {c.type(0)}", place=c.node.place)
    sizes: tuple[int | None, ...] = (None,) * count
    if kind in ("R", "IR"):
        sizes = constant_ints(c, len(c.inputs) - 1, "the transform's length")
        if len(sizes) != count:
            raise ModelError(f"{len(sizes)} sizes of {count} axes", place=c.node.place)
    steps = list(zip(range(rank - count, rank), sizes))
    if kind == "R":  # the axis of real numbers first, then those of complex ones
        axis, size = steps.pop()
        components = on_parts(c, components, axis, size, sign, norm, onesided=True)
    last = steps.pop() if kind == "IR" else None
    for axis, size in steps:
        components = on_parts(c, components, axis, size, sign, norm)
    if last is not None:
        components = on_parts(c, components, last[0], last[1], sign, norm, real=True)
    return _named_parts(c, components)


@row("Complex")
def of_components(c: Conversion) -> Result:
    """Operands: real and imaginary part, broadcast to each other."""
    _types(c, Tout=True)
    components = list(_pair(c))
    if c.type(0).dims != c.type(1).dims:
        broadcast = c.add("Add", components)  # for its shape alone
        shape = c.add("Shape", [broadcast])
        components = [c.add("Expand", [component, shape]) for component in components]
    return c.named(components)


@row("Cast")
def cast(c: Conversion) -> Result:
    """Real to complex numbers, complex ones to others, or to their real parts."""
    a, pair = c.attributes, len(c.inputs) == 2
    a.expect("Truncate", False, reason="it changes how numbers are rounded")
    operand_type = str(c.type(0).dtype)
    a.expect(
        "SrcT",
        COMPLEX_OF.get(operand_type, operand_type) if pair else operand_type,
        reason="it repeats a type",
    )
    target = a.text("DstT")
    if target not in REAL:
        return c.result("Cast", [c.required(0)], to=DType(target))
    dtype = DType(REAL[target])
    real = c.cast(c.required(0), dtype)
    if pair:
        return c.named([real, c.cast(c.required(1), dtype)])
    return c.named([real, c.append(formulas.filled_like(c, real, 0))])


@row("Real", "Imag")
def component(c: Conversion) -> Result:
    _types(c, Tout=False)
    return c.result("Identity", [c.required(int(c.node.op_type == "Imag"))])


@row("ComplexAbs")
def magnitude(c: Conversion) -> Result:
    _types(c, Tout=False)
    return c.result("Hypot", list(_pair(c)))


@row("Angle")
def angle(c: Conversion) -> Result:
    _types(c, Tout=False)
    return c.result("Atan2", [c.required(1), c.required(0)])


@row("Conj")
def conjugate(c: Conversion) -> Result:
    return c.named([c.required(0), c.add("Neg", [c.required(1)])])


@row("Mul", "Square")
def product(c: Conversion) -> Result:
    second = 0 if c.node.op_type == "Square" else 2
    return c.named(layers.complex_product(c, _pair(c), _pair(c, second)))


@row("RealDiv", "Div", "Reciprocal")
def quotient(c: Conversion) -> Result:
    """The divisor is scaled by its larger part, so that no square of it overflows."""
    inverse = c.node.op_type == "Reciprocal"
    p, q = _pair(c, 0 if inverse else 2)
    scale = c.add("Max", [c.add("Abs", [p]), c.add("Abs", [q])])
    r, s = (c.add("Div", [component, scale]) for component in (p, q))
    below = c.add("Add", [c.add("Mul", [p, r]), c.add("Mul", [q, s])])
    if inverse:
        above = [r, c.add("Neg", [s])]
    else:
        a, b = _pair(c)
        above = [
            c.add("Add", [c.add("Mul", [a, r]), c.add("Mul", [b, s])]),
            c.add("Sub", [c.add("Mul", [b, r]), c.add("Mul", [a, s])]),
        ]
    return c.named([c.add("Div", [component, below]) for component in above])


@row("Exp")
def exponential(c: Conversion) -> Result:
    size = c.add("Exp", [c.required(0)])
    return c.named([c.add("Mul", [size, c.add(kind, [c.required(1)])]) for kind in ("Cos", "Sin")])


@row("Log")
def logarithm(c: Conversion) -> Result:
    return c.named(_logarithm(c, *_pair(c)))


def _logarithm(c: Conversion, real: str, imaginary: str) -> list[str]:
    """The logarithm of the size, and the angle."""
    size = c.add("Log", [c.add("Hypot", [real, imaginary])])
    return [size, c.add("Atan2", [imaginary, real])]


@row("Sqrt")
def root(c: Conversion) -> Result:
    """The root in the right half plane, below the real axis where the number is, -0 included.

    The larger part is computed first; the other is half the imaginary part over it, since
    (p + qi)^2 = p^2 - q^2 + 2pqi, so that nothing cancels.
    """
    real, imaginary = _pair(c)
    zero, half = c.like(0), c.like(0.5)
    sizes = [c.add("Hypot", [real, imaginary]), c.add("Abs", [real])]
    halved = [c.add("Mul", [size, half]) for size in sizes]
    large = c.add("Sqrt", [c.add("Add", halved)])
    is_zero = c.add("Equal", [large, zero])
    divisor = c.add("Where", [is_zero, c.like(1), large])
    small = c.add("Div", [c.add("Mul", [c.add("Abs", [imaginary]), half]), divisor])
    # Of 0 and -0 the reciprocals differ in sign.
    signed = c.add("Add", [imaginary, c.add("Reciprocal", [imaginary])])
    below = c.add("Less", [signed, zero])
    behind = c.add("Less", [real, zero])
    size = c.add("Where", [behind, large, small])
    imaginary_root = c.add("Where", [below, c.add("Neg", [size]), size])
    return c.named([c.add("Where", [behind, small, large]), imaginary_root])


@row("Pow")
def power(c: Conversion) -> Result:
    """The exponential of the exponent times the logarithm. A power of 0, whose logarithm is -inf,
    has the angle 0: it is 0, NaN or infinite by the sign of the exponent's real part."""
    (a, b), (p, q) = _pair(c), _pair(c, 2)
    zero = c.like(0)
    is_zero = c.add("And", [c.add("Equal", [component, zero]) for component in (a, b)])
    size, angle = _logarithm(c, a, b)
    exponent = c.add("Sub", [c.add("Mul", [p, size]), c.add("Mul", [q, angle])])
    rotation = c.add("Add", [c.add("Mul", [p, angle]), c.add("Mul", [q, size])])
    rotation = c.add("Where", [is_zero, zero, rotation])
    length = c.add("Exp", [exponent])
    return c.named([c.add("Mul", [length, c.add(kind, [rotation])]) for kind in ("Cos", "Sin")])


@row("Equal", "NotEqual")
def equal(c: Conversion) -> Result:
    c.attributes.expect(
        "incompatible_shape_error", True, reason="it changes what unequal shapes mean"
    )
    (a, b), (p, q) = _pair(c), _pair(c, 2)
    same = c.add("And", [c.add("Equal", [a, p]), c.add("Equal", [b, q])])
    return c.result("Not" if c.node.op_type == "NotEqual" else "Identity", [same])
