"""`LlvmArith`: the arithmetic of operators as LLVM code, with the bits of `NumpyArith`.

Values are vectors of 16 lanes (or scalars) with a dtype: LLVM's types do not tell int32 from
uint32. A bool is a vector of i1, a bfloat16 its 16 bits, a narrow number the byte it is stored in.
No fast-math flag is ever set, and no operation can trap or be undefined, whatever the lanes hold:
divisors are made safe, shift counts are masked, conversions to integers saturate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import ELEMENT_TYPES, I32, FunctionBuilder
from verax.compiler.kernels.target import LANES, Target
from verax.ir.dim import Dim
from verax.numerics import functions, narrow
from verax.numerics.arith import COMPARISONS, ROUNDINGS, Arith, result_dtype
from verax.numerics.formats import FLOATS, NARROW, SIGNED, numpy_dtype
from verax.numerics.functions_short import SHORT_WAYS, certain

SHORT = ("float16", "bfloat16")
_SYMBOLS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_INTRINSICS = {"floor": "floor", "ceil": "ceil", "rint": "roundeven", "trunc": "trunc",
               "sqrt": "sqrt", "min": "minimum", "max": "maximum"}  # fmt: skip
RANGES = {"min": 0b0100, "max": 0b0101}
"""What VRANGEPS is told: which of two, with the sign that it has."""
_AS_USUAL = 4  # rounding and exceptions as the processor is set
_QUOTIENT_BITS = 28  # of a part of a remainder's quotient
_BITS = {"float16": 16, "bfloat16": 16, "float32": 32, "float64": 64, "bool": 1}
_BITS |= dict.fromkeys(NARROW, 8)


def bits_of(dtype: str) -> int:
    """Width of a value in a register: 1 for bool."""
    return _BITS.get(dtype) or int(dtype.lstrip("uint"))


def lanes_in_step(target: Target) -> int:
    """Lanes of float64 that an elementary function is computed for together.

    Of a dozen values that live at once none should be spilled: on AVX2 one register at a time takes
    half of what all 16 lanes take.
    """
    return max(1, target.registers // 16) * target.vector_bits // 64


@dataclass(frozen=True)
class Typed:
    """An LLVM value and the dtype it stands for."""

    value: ir.Value
    dtype: str


class LlvmArith(Arith[Typed]):
    """Emits code at the position of `fb.b`. lanes: lanes of the vectors; 0 for scalars."""

    def __init__(self, fb: FunctionBuilder, lanes: int = LANES) -> None:
        self.fb, self.b, self.lanes = fb, fb.b, lanes

    # --- types and constants

    def register_type(self, dtype: str) -> ir.Type:
        """LLVM type of a value of `dtype`."""
        element = ir.IntType(1) if dtype == "bool" else ELEMENT_TYPES[dtype]
        return ir.VectorType(element, self.lanes) if self.lanes else element

    def bind(self, raw: Any, dtype: str) -> Typed:
        if raw.type != self.register_type(dtype):
            raise TypeError(f"expected {self.register_type(dtype)} for {dtype}, got {raw.type}")
        return Typed(raw, dtype)

    def unbind(self, value: Typed) -> ir.Value:
        return value.value

    def dtype(self, x: Typed) -> str:
        return x.dtype

    def const(self, value: float | int | bool, dtype: str) -> Typed:
        plain: float | int
        if isinstance(value, Dim):
            return self._read(value, dtype)
        if dtype == "bfloat16":
            plain = int(np.asarray(value).astype(numpy_dtype(dtype)).view(np.int16))
        elif dtype in NARROW:
            plain = int(np.asarray(value).astype(numpy_dtype(dtype)).view(np.uint8))
        elif dtype in FLOATS:
            with np.errstate(over="ignore"):
                plain = float(np.asarray(value).astype(numpy_dtype(dtype)))
        else:
            plain = int(value)
        kind = self.register_type(dtype)
        return Typed(kind(plain), dtype)

    def _read(self, size: Dim, dtype: str) -> Typed:
        """A size of the table of dims as a number."""
        integer, kind = self.fb.size(size), ELEMENT_TYPES[dtype]
        if dtype in ("float32", "float64"):
            value = self.b.sitofp(integer, kind)
        else:
            value = integer if dtype in ("int64", "uint64") else self.b.trunc(integer, kind)
        return Typed(self.fb.splat(value, self.lanes) if self.lanes else value, dtype)

    def call(self, function: str, *args: Typed) -> Typed:
        if args[0].dtype == "float64" and self.lanes > lanes_in_step(self.fb.module.target):
            return self._in_pieces(function, args)
        is_slow = not self.lanes and not self.fb.module.target.gpu  # a scalar on a CPU is rare
        if function not in SHORT_WAYS or is_slow or args[0].dtype != "float32":
            return functions.call(self, function, args)
        exact_lanes, short = certain(self, SHORT_WAYS[function], args[0])
        lanes = self.b.bitcast(exact_lanes.value, ir.IntType(self.lanes or 1))
        before = self.b.block
        with self.b.if_then(self.b.icmp_unsigned("!=", lanes, lanes.type(-1))):
            promised = functions.call(self, function, args)
            there = self.b.block
        return self._either(before, short, there, promised)

    def _in_pieces(self, function: str, args: tuple[Typed, ...]) -> Typed:
        """A function of float64, of as many lanes at a time as registers hold its values for."""
        size = lanes_in_step(self.fb.module.target)
        arith, results = LlvmArith(self.fb, size), []
        for first in range(0, self.lanes, size):
            lanes = range(first, first + size)
            pieces = [Typed(self.fb.shuffle(a.value, lanes), a.dtype) for a in args]
            results.append(arith.call(function, *pieces).value)
        return Typed(concatenated(self.fb, results), args[0].dtype)

    def _either(self, before: ir.Block, usual: Typed, there: ir.Block, exceptional: Typed) -> Typed:
        """Phi of `usual` from block `before` and `exceptional` from block `there`."""
        phi = self.b.phi(usual.value.type)
        phi.add_incoming(usual.value, before)
        phi.add_incoming(exceptional.value, there)
        return Typed(phi, usual.dtype)

    def rarely(
        self,
        mask: Typed,
        compute: Callable[..., Any],
        args: tuple[Typed, ...],
        otherwise: tuple[Typed, ...],
    ) -> tuple[Typed, ...]:
        """Jumps over `compute` where no lane needs it."""
        any_lane = mask.value
        if self.lanes:
            bits = self.b.bitcast(mask.value, ir.IntType(self.lanes))
            any_lane = self.b.icmp_unsigned("!=", bits, bits.type(0))
        before = self.b.block
        with self.b.if_then(any_lane):
            computed = super().rarely(mask, compute, args, otherwise)
            there = self.b.block
        return tuple(
            self._either(before, usual, there, exceptional)
            for usual, exceptional in zip(otherwise, computed, strict=True)
        )

    def primitive(self, name: str, args: tuple[Typed, ...], target: str | None = None) -> Typed:
        dtype = result_dtype(name, tuple(a.dtype for a in args), target)
        if name == "select":
            return Typed(self.b.select(*(a.value for a in args)), dtype)
        if name == "convert":
            return self._convert(args[0], dtype)
        if name == "bitcast":
            return self._bitcast(args[0], dtype)
        source = args[0].dtype
        if source in SHORT:
            wide = self.primitive(name, tuple(self._convert(a, "float32") for a in args))
            return wide if name in COMPARISONS else self._convert(wide, source)
        values = [a.value for a in args]
        if name in COMPARISONS:
            return Typed(self._compare(name, source, values), dtype)
        emit = self._float if source in FLOATS else self._integer
        return Typed(emit(name, source, values), dtype)

    # --- primitives by kind

    def _intrinsic(self, name: str, *values: ir.Value, over: tuple[ir.Type, ...] = ()) -> ir.Value:
        kinds = over or (values[0].type,)
        full = f"llvm.{name}." + ".".join(_suffix(k) for k in kinds)
        fn = self.fb.module.intrinsic(full, kinds[0], [v.type for v in values])
        return self.b.call(fn, values)

    def _float(self, name: str, dtype: str, v: list[ir.Value]) -> ir.Value:
        b = self.b
        if name in RANGES and self._has_ranges(*v):
            return self._range(RANGES[name], *v)
        if name in _INTRINSICS:
            return self._intrinsic(_INTRINSICS[name], *v)
        if name == "fma":
            return self._intrinsic("fma", *v)
        if name == "abs":
            return self._intrinsic("fabs", *v)
        if name == "rem":
            return self._remainder(dtype, *v)
        if name == "neg":
            return b.fneg(*v)
        return {"add": b.fadd, "sub": b.fsub, "mul": b.fmul, "div": b.fdiv}[name](*v)

    def _has_ranges(self, a: ir.Value, b: ir.Value) -> bool:
        """True if AVX-512's `vrangeps` gives min and max of a and b, ordering -0 below +0.

        Not for constants: with those LLVM needs no more than one instruction by itself."""
        is_zmm = str(a.type) == "<16 x float>" and self.fb.module.target.vector_bits == 512
        return is_zmm and not isinstance(a, ir.Constant) and not isinstance(b, ir.Constant)

    def _range(self, operation: int, a: ir.Value, b: ir.Value) -> ir.Value:
        """min or max of a and b by `vrangeps`; NaN where either is NaN.

        The instruction alone gives the operand that is not NaN, hence the select. Half the
        instructions and half the latency of LLVM's `maximum`."""
        small, kind = ir.IntType(16), a.type
        fn = self.fb.module.intrinsic(
            "llvm.x86.avx512.mask.range.ps.512", kind, [kind, kind, I32, kind, small, I32]
        )
        plain = ir.Constant(small, -1), ir.Constant(I32, _AS_USUAL)
        beside = ir.Constant(kind, None)
        result = self.b.call(fn, [a, b, ir.Constant(I32, operation), beside, *plain])
        return self.b.select(self.b.unordered(a, b), self.b.fadd(a, b), result)

    def _compare(self, name: str, dtype: str, v: list[ir.Value]) -> ir.Value:
        if dtype in FLOATS:
            ordered = self.b.fcmp_unordered if name == "ne" else self.b.fcmp_ordered
            return ordered(_SYMBOLS[name], *v)
        compare = self.b.icmp_signed if dtype in SIGNED else self.b.icmp_unsigned
        return compare(_SYMBOLS[name], *v)

    def _integer(self, name: str, dtype: str, v: list[ir.Value]) -> ir.Value:
        b, signed = self.b, dtype in SIGNED
        zero = self.const(0, dtype).value
        if name == "multiply_high":
            return self._multiply_high(*v)
        if name in ("add", "sub", "mul", "and_", "or_", "xor"):
            plain = {"add": b.add, "sub": b.sub, "mul": b.mul}
            bitwise = {"and_": b.and_, "or_": b.or_, "xor": b.xor}
            return {**plain, **bitwise}[name](*v)
        if name == "not_":
            return b.xor(v[0], self.const(1 if dtype == "bool" else -1, dtype).value)
        if name == "neg":
            return b.sub(zero, v[0])
        if name == "abs":
            return b.select(b.icmp_signed("<", v[0], zero), b.sub(zero, v[0]), v[0]) if (
                signed
            ) else v[0]  # fmt: skip
        if name in ("min", "max"):
            return self._intrinsic(f"{'s' if signed else 'u'}{name}", *v)
        if name in ("shift_left", "shift_right"):
            count = b.and_(v[1], self.const(bits_of(dtype) - 1, dtype).value)
            if name == "shift_left":
                return b.shl(v[0], count)
            return b.ashr(v[0], count) if signed else b.lshr(v[0], count)
        quotient = self._divide(dtype, *v)
        return quotient if name == "div" else b.sub(v[0], b.mul(quotient, v[1]))

    def _multiply_high(self, x: ir.Value, y: ir.Value, c: ir.Value) -> ir.Value:
        """On x86 every other lane at a time, as its products of 64 bits take them."""
        b, wide, target = self.b, self.register_type("int64"), self.fb.module.target
        if not self.lanes or target.name == "neon" or target.gpu:
            product = b.mul(b.sext(x, wide), b.sext(y, wide))
            high = b.ashr(b.add(product, b.sext(c, wide)), wide(32))
            return b.trunc(high, x.type)
        wide_type = self.fb.vector_type("int64", self.lanes // 2)
        x, y, c = (b.bitcast(v, wide_type) for v in (x, y, c))
        half, products = wide_type(32), []
        for second in (False, True):
            one, two, addend = (b.ashr(v if second else b.shl(v, half), half) for v in (x, y, c))
            products.append(b.bitcast(b.add(b.mul(one, two), addend), self.register_type("int32")))
        upper = [n + side for n in range(1, self.lanes, 2) for side in (0, self.lanes)]
        even, odd = products
        return b.shuffle_vector(even, odd, ir.Constant(self.register_type("int32"), upper))

    def _divide(self, dtype: str, a: ir.Value, d: ir.Value) -> ir.Value:
        b = self.b
        zero, one = self.const(0, dtype).value, self.const(1, dtype).value
        by_zero = b.icmp_signed("==", d, zero)
        if dtype not in SIGNED:
            return b.select(by_zero, zero, b.udiv(a, b.select(by_zero, one, d)))
        by_minus_one = b.icmp_signed("==", d, self.const(-1, dtype).value)
        quotient = b.sdiv(a, b.select(b.or_(by_zero, by_minus_one), one, d))
        quotient = b.select(by_minus_one, b.sub(zero, a), quotient)
        return b.select(by_zero, zero, quotient)

    def _remainder(self, dtype: str, a: ir.Value, d: ir.Value) -> ir.Value:
        """fmod of float32 or float64, exactly, in float64.

        A quotient of at most 28 bits times the divisor, taken away in one rounding, leaves what is
        a float64 number; while a lane has more left than 2**28 divisors, it is as many doublings of
        the divisor that go.
        """
        if dtype not in ("float32", "float64"):
            raise TypeError(f"the remainder of {dtype} has no kernel")
        x = self.convert(self.abs(Typed(a, dtype)), "float64")
        divisor = self.convert(self.abs(Typed(d, dtype)), "float64")
        wide = dtype == "float64"
        before, again, end = self.b.block, self.fb.block("reduce"), self.fb.block("reduced")
        self.b.branch(again)
        self.b.position_at_end(again)
        remainder = self.b.phi(x.value.type)
        remainder.add_incoming(x.value, before)
        r = Typed(remainder, "float64")
        doublings = self.sub(self._exponent(r, wide), self._exponent(divisor, wide))
        quotient_bits, none = self.const(_QUOTIENT_BITS, "int64"), self.const(0, "int64")
        doublings = self.sub(doublings, quotient_bits)
        far = self.gt(doublings, none)
        doublings = self.select(far, doublings, none)
        if wide:  # of up to 2,069 doublings a few may stay: quotients of 51 bits will do as well
            max_doublings = self.const(2 * 1023, "int64")
            doublings = self.select(self.gt(doublings, max_doublings), max_doublings, doublings)
            half = self.shift_right(doublings, self.const(1, "int64"))
            unit = self.mul(divisor, self._power_of_two(half))
            unit = self.mul(unit, self._power_of_two(self.sub(doublings, half)))
        else:
            unit = self.mul(divisor, self._power_of_two(doublings))
        left = self.fma(self.neg(self.trunc(self.div(r, unit))), unit, r)
        left = self.select(self.lt(left, self.const(0.0, "float64")), self.add(left, unit), left)
        # an infinite divisor leaves all of it; by zero, or of infinity, there is none: NaN
        is_done = self.lt(r, divisor)
        left = self.select(is_done, r, left)
        remainder.add_incoming(left.value, self.b.block)
        more = self.and_(far, self.lt(r, self.const(math.inf, "float64")))
        lanes = more.value
        if self.lanes:
            bits = self.b.bitcast(lanes, ir.IntType(self.lanes))
            lanes = self.b.icmp_unsigned("!=", bits, bits.type(0))
        self.b.cbranch(lanes, again, end)
        self.b.position_at_end(end)
        return self.copysign(self.convert(left, dtype), Typed(a, dtype)).value

    def _exponent(self, x: Typed, subnormal: bool) -> Typed:
        """Biased exponent (int64) of a float64 x >= 0. subnormal: True if x may be subnormal."""
        mantissa_bits = self.const(52, "int64")
        exponent = self.shift_right(self.bitcast(x, "int64"), mantissa_bits)
        if not subnormal:
            return exponent
        larger = self.mul(x, self.const(2.0**64, "float64"))
        subnormal_exponent = self.shift_right(self.bitcast(larger, "int64"), mantissa_bits)
        subnormal_exponent = self.sub(subnormal_exponent, self.const(64, "int64"))
        return self.select(self.eq(exponent, self.const(0, "int64")), subnormal_exponent, exponent)

    def _power_of_two(self, exponent: Typed) -> Typed:
        """2**exponent as a float64, of 0 to 1023."""
        biased = self.add(exponent, self.const(1023, "int64"))
        return self.bitcast(self.shift_left(biased, self.const(52, "int64")), "float64")

    # --- conversions

    def _bitcast(self, x: Typed, dtype: str) -> Typed:
        kind = self.register_type(dtype)
        return Typed(x.value if x.value.type == kind else self.b.bitcast(x.value, kind), dtype)

    def _convert(self, x: Typed, dtype: str) -> Typed:
        b, v, source, kind = self.b, x.value, x.dtype, self.register_type(dtype)
        if source == dtype:
            return x
        if source in NARROW:
            return self._convert(narrow.widened(self, x), dtype)
        if dtype in NARROW:
            return narrow.narrowed(self, x, dtype)
        if source == "bfloat16":
            word = b.shl(b.zext(v, self.register_type("uint32")), self.const(16, "uint32").value)
            return self._convert(self._bitcast(Typed(word, "uint32"), "float32"), dtype)
        if source == "float16" and dtype not in ("float32", "float64"):
            return self._convert(self._convert(x, "float32"), dtype)
        if dtype == "bool":
            return self.ne(x, self.const(0, source))
        if source in FLOATS:
            if dtype in FLOATS:
                return self._refloat(x, dtype)
            sign = "s" if dtype in SIGNED else "u"
            return Typed(self._intrinsic(f"fpto{sign}i.sat", v, over=(kind, v.type)), dtype)
        if dtype in SHORT:
            return self._refloat(narrow.odd_float32(self, x), dtype)
        if dtype in FLOATS:
            convert = b.sitofp if source in SIGNED else b.uitofp
            return Typed(convert(v, kind), dtype)
        if bits_of(dtype) > bits_of(source):
            return Typed((b.sext if source in SIGNED else b.zext)(v, kind), dtype)
        return Typed(b.trunc(v, kind) if bits_of(dtype) < bits_of(source) else v, dtype)

    def _refloat(self, x: Typed, dtype: str) -> Typed:
        """Between float formats; x is float16, float32 or float64."""
        if dtype in SHORT and x.dtype == "float64":
            x = narrow.odd_float32(self, x)
        if dtype == "bfloat16":
            return self._round_bfloat16(x)
        kind = self.register_type(dtype)
        wider = bits_of(dtype) > bits_of(x.dtype)
        return Typed((self.b.fpext if wider else self.b.fptrunc)(x.value, kind), dtype)

    def _round_bfloat16(self, x: Typed) -> Typed:
        word = self.bitcast(x, "uint32")
        sixteen, one = self.const(16, "uint32"), self.const(1, "uint32")
        odd = self.and_(self.shift_right(word, sixteen), one)
        rounded = self.add(word, self.add(self.const(0x7FFF, "uint32"), odd))
        rounded = self.select(self.is_nan(x), self.const(0x7FC00000, "uint32"), rounded)
        half = self.convert(self.shift_right(rounded, sixteen), "int16")
        return Typed(half.value, "bfloat16")


def concatenated(fb: FunctionBuilder, pieces: Sequence[ir.Value]) -> ir.Value:
    """Vectors of one type, a power of two of them, as one."""
    vectors = list(pieces)
    while len(vectors) > 1:
        count = 2 * vectors[0].type.count
        lanes = ir.Constant(fb.vector_type("int32", count), list(range(count)))
        vectors = [
            fb.b.shuffle_vector(a, b, lanes)
            for a, b in zip(vectors[::2], vectors[1::2], strict=True)
        ]
    return vectors[0]


def _suffix(kind: ir.Type) -> str:
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{_suffix(kind.element)}"
    return {"float": "f32", "double": "f64", "half": "f16"}.get(str(kind), str(kind))


assert set(_INTRINSICS) >= set(ROUNDINGS)
