"""How a kernel multiplies and adds: one step of a sum of products, by element types.

Floats are multiplied and added by one FMA per channel. Integers of 16 bits are taken in pairs of
neighboring channels, x0 w0 + x1 w1 into 32 bits: x86 has an instruction for that (pmaddwd, with
the addition vpdpwssd), which unlike its 8-bit relative (vpmaddubsw) does not saturate in between;
other machines widen and multiply. Where there is VNNI, four neighboring channels of unsigned bytes
are taken by signed ones (vpdpbusd, which does not saturate either). All give the same integers,
whatever the order. Factors in bfloat16 are taken in pairs where there is AVX512_BF16 (vdpbf16ps):
two FMAs, one after the other.
"""

from __future__ import annotations

from typing import Any, Protocol

from verax.compiler.kernels.dtypes import ContractionTypes
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import I32, FunctionBuilder
from verax.compiler.kernels.target import LANES


class Products(Protocol):
    """The steps of a sum over 16 filters. zero: what sums start from."""

    def zero(self) -> ir.Value: ...

    def weights(self, pointer: ir.Value) -> Any:
        """The weights of one step for 16 filters."""

    def value(self, pointer: ir.Value) -> Any:
        """The input of one step, for all filters."""

    def add(self, value: Any, weights: Any, total: ir.Value) -> ir.Value:
        """total + value * weights."""

    def after(self, pointers: list[ir.Value], total: ir.Value) -> tuple[list[ir.Value], ir.Value]:
        """The same values, instructions kept in order where that matters: the sum, then loads."""


def products(f: FunctionBuilder, types: ContractionTypes, paired: bool = False) -> Products:
    """The products of `types`: floats, pairs of int16, or whatever widens to the sum."""
    if paired:
        return Paired(f, types)
    if types.x == types.weights == "bfloat16":
        return Halves(f)
    if types.sum.startswith("float"):
        return _Floats(f, types)
    if (types.x, types.weights) == ("uint8", "int8"):
        return _Quads(f)
    is_int16 = types.x == types.weights == "int16"
    return _Pairs(f, types) if is_int16 else _Wide(f, types)


class _Floats:
    def __init__(self, f: FunctionBuilder, types: ContractionTypes) -> None:
        self.f, self.types = f, types

    def zero(self) -> ir.Value:
        return self.f.constant(0.0, self.types.sum)

    def weights(self, pointer: ir.Value) -> ir.Value:
        return self.f.load(pointer, self.types.weights)

    def value(self, pointer: ir.Value) -> ir.Value:
        return self.f.broadcast(pointer, self.types.x)

    def add(self, value: ir.Value, weights: ir.Value, total: ir.Value) -> ir.Value:
        return self.f.fma(value, weights, total)

    def after(self, pointers: list[ir.Value], total: ir.Value) -> tuple[list[ir.Value], ir.Value]:
        return pointers, total


class _Wide:
    """Every factor is widened to the sum first."""

    def __init__(self, f: FunctionBuilder, types: ContractionTypes) -> None:
        self.f, self.types = f, types

    def zero(self) -> ir.Value:
        return self.f.constant(0, self.types.sum)

    def weights(self, pointer: ir.Value) -> ir.Value:
        return widened(self.f, self.f.load(pointer, self.types.weights), self.types)

    def value(self, pointer: ir.Value) -> ir.Value:
        return widened(self.f, self.f.broadcast(pointer, self.types.x), self.types)

    def add(self, value: ir.Value, weights: ir.Value, total: ir.Value) -> ir.Value:
        return self.f.b.add(total, self.f.b.mul(value, weights))

    def after(self, pointers: list[ir.Value], total: ir.Value) -> tuple[list[ir.Value], ir.Value]:
        return pointers, total


def widened(f: FunctionBuilder, vector: ir.Value, types: ContractionTypes) -> ir.Value:
    """Signed integers as the sum has them."""
    kind = f.vector_type(types.sum)
    if vector.type == kind:
        return vector
    return (f.b.sitofp if types.sum.startswith("float") else f.b.sext)(vector, kind)


def multiply_add(
    f: FunctionBuilder, types: ContractionTypes, x: ir.Value, w: ir.Value, total: ir.Value
) -> ir.Value:
    """total + x w, lane by lane, of factors as wide as the sum."""
    if types.sum.startswith("float"):
        return f.fma(x, w, total)
    return f.b.add(total, f.b.mul(x, w))


PAIRS = 2 * LANES
_EVEN, _ODD = list(range(0, PAIRS, 2)), list(range(1, PAIRS, 2))
X86 = {
    256: ("llvm.x86.avx2.pmadd.wd", 16),
    512: ("llvm.x86.avx512.pmaddw.d.512", 32),
}
"""By width of x86's registers the instruction on pairs, and how many int16 it takes. LLVM makes one
of it and the addition where the machine has that."""


class _Pairs:
    """Two neighboring channels a step; weights [16 filters][2]."""

    def __init__(self, f: FunctionBuilder, types: ContractionTypes) -> None:
        self.f, self.types = f, types
        self.name, self.width = X86.get(f.module.target.vector_bits, ("", 0))

    def zero(self) -> ir.Value:
        return self.f.constant(0, "int32")

    def weights(self, pointer: ir.Value) -> Any:
        w = self.f.load(pointer, "int16", PAIRS)
        if self.name:
            return w
        return [self._wide(self.f.shuffle(w, lanes)) for lanes in (_EVEN, _ODD)]

    def value(self, pointer: ir.Value) -> Any:
        f = self.f
        if self.name:
            pair = f.b.load(pointer, align=2, typ=I32)
            return f.b.bitcast(f.splat(pair), f.vector_type("int16", PAIRS))
        pointers = pointer, f.at(pointer, 1, dtype="int16")
        return [
            self._wide(f.broadcast(pointer_of_element, "int16")) for pointer_of_element in pointers
        ]

    def _wide(self, vector: ir.Value) -> ir.Value:
        return self.f.b.sext(vector, self.f.vector_type("int32"))

    def add(self, value: Any, weights: Any, total: ir.Value) -> ir.Value:
        b = self.f.b
        if self.name:
            products = self._concatenated(
                [self._multiply(*operands) for operands in self._split(value, weights)]
            )
            return b.add(total, products)
        for x, w in zip(value, weights, strict=True):
            total = b.add(total, b.mul(x, w))
        return total

    def _split(self, *vectors: ir.Value) -> list[list[ir.Value]]:
        """Parts as wide as a register."""
        if self.width == PAIRS:
            return [list(vectors)]
        starts = range(0, PAIRS, self.width)
        lanes = [list(range(first, first + self.width)) for first in starts]
        return [[self.f.shuffle(v, lane_range) for v in vectors] for lane_range in lanes]

    def _concatenated(self, vectors: list[ir.Value]) -> ir.Value:
        if len(vectors) == 1:
            return vectors[0]
        lanes = ir.Constant(ir.VectorType(I32, LANES), list(range(LANES)))
        return self.f.b.shuffle_vector(vectors[0], vectors[1], lanes)

    def _multiply(self, x: ir.Value, w: ir.Value) -> ir.Value:
        sums = ir.VectorType(I32, self.width // 2)
        instruction = self.f.module.intrinsic(self.name, sums, [x.type, w.type])
        return self.f.b.call(instruction, [x, w])

    def after(self, pointers: list[ir.Value], total: ir.Value) -> tuple[list[ir.Value], ir.Value]:
        """An instruction that is none takes them all, so that what is loaded from `pointers` comes
        after the sum: else LLVM multiplies ahead of sums, in more registers than there are."""
        if not self.name:
            return pointers, total
        half = self.width // 2
        lanes = [list(range(first, first + half)) for first in range(0, LANES, half)]
        register_sums = [
            self.f.shuffle(total, lane_range) if len(lanes) > 1 else total for lane_range in lanes
        ]
        values, count = [*pointers, *register_sums], len(pointers)
        types = [v.type for v in values]
        constraints = ["=r" if i < count else "=v" for i in range(len(values))]
        code = ",".join([*constraints, *map(str, range(len(values)))])
        kind = ir.FunctionType(ir.LiteralStructType(types), types)
        tied = self.f.b.call(ir.InlineAsm(kind, "", code), values)
        results = [self.f.b.extract_value(tied, i) for i in range(len(values))]
        return results[:count], self._concatenated(results[count:])


class Paired(_Pairs):
    """Four channels a step, which `shuffle` has named: unsigned bytes by signed ones, added up in
    pairs in 16 bits, which none of them leaves (`paired_bytes`); weights [16 filters][4]."""

    def shuffle(self, pointer: ir.Value) -> None:
        """The channels of what follows: 16 numbers, four times the same four."""
        self.order = self._load_repeated(pointer)

    def _load_repeated(self, pointer: ir.Value) -> ir.Value:
        """16 bytes, in both halves of a register."""
        return self.f.shuffle(self.f.load(pointer, "int8"), [*range(LANES)] * 2)

    def weights(self, pointer: ir.Value) -> Any:
        addresses = [pointer, self.f.at(pointer, PAIRS, dtype="int8")]
        return [self.f.load(address, "int8", PAIRS) for address in addresses]

    def value(self, pointer: ir.Value) -> Any:
        data = self._load_repeated(pointer)
        return self._call("llvm.x86.avx2.pshuf.b", data.type, data, self.order)

    def add(self, value: Any, weights: Any, total: ir.Value) -> ir.Value:
        f, partial_sums = self.f, []
        words, sums = ir.VectorType(ir.IntType(16), LANES), ir.VectorType(I32, LANES // 2)
        for w in weights:
            pair_sums = self._call("llvm.x86.avx2.pmadd.ub.sw", words, value, w)
            partial_sums.append(
                self._call("llvm.x86.avx2.pmadd.wd", sums, pair_sums, f.constant(1, "int16"))
            )
        return f.b.add(total, self._concatenated(partial_sums))

    def _call(self, name: str, result: ir.Type, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.f.b.call(self.f.module.intrinsic(name, result, [a.type, b.type]), [a, b])


class Halves:
    """Two neighboring channels a step, in bfloat16; weights [16 filters][2].

    vdpbf16ps adds the product of the upper halves first, and then that of the lower halves, each by
    an FMA in float32 that rounds to nearest even, whatever MXCSR says, and takes subnormal numbers
    for zero on the way in and out. (Intel's description; 20 million random operands gave these bits
    on a Zen 5.) In memory the first channel is the lower half, so both factors are turned. What
    `Bfloat16Factor` gives makes no subnormal number: so these are the FMAs of float32.
    """

    def __init__(self, f: FunctionBuilder) -> None:
        self.f, self.target = f, f.module.target

    def zero(self) -> ir.Value:
        return self.f.constant(0.0)

    def weights(self, pointer: ir.Value) -> ir.Value:
        """Both of a filter in one number of 32 bits, turned when they were packed."""
        return self.f.b.load(pointer, align=4, typ=ir.VectorType(I32, LANES))

    def value(self, pointer: ir.Value) -> ir.Value:
        """Turned before it is in a vector: to rotate those takes a unit that multiplies, and a
        fifth of the time."""
        pair = self.f.b.load(pointer, align=2, typ=I32)
        turn = self.f.module.intrinsic("llvm.fshl.i32", I32, [I32] * 3)
        return self.f.splat(self.f.b.call(turn, [pair, pair, ir.Constant(I32, 16)]))

    def add(self, value: ir.Value, weights: ir.Value, total: ir.Value) -> ir.Value:
        if not self.target.has_bf16_dot:
            return self._plainly(value, weights, total)
        kind = ir.VectorType(ir.BFloatType(), 2 * LANES)
        name, types = "llvm.x86.avx512bf16.dpbf16ps.512", [total.type, kind, kind]
        instruction = self.f.module.intrinsic(name, total.type, types)
        operands = [self.f.b.bitcast(v, kind) for v in (value, weights)]
        return self.f.b.call(instruction, [total, *operands])

    def _plainly(self, value: ir.Value, weights: ir.Value, total: ir.Value) -> ir.Value:
        """What the instruction does, in ordinary ones: slow, and right on every machine."""
        b, floats = self.f.b, self.f.vector_type()
        upper = ir.Constant(value.type, [0xFFFF0000] * LANES)
        sixteen = ir.Constant(value.type, [16] * LANES)
        for half in (lambda v: b.and_(v, upper), lambda v: b.shl(v, sixteen)):
            x, w = (b.bitcast(half(v), floats) for v in (value, weights))
            total = self.f.fma(x, w, total)
        return total

    def after(self, pointers: list[ir.Value], total: ir.Value) -> tuple[list[ir.Value], ir.Value]:
        return pointers, total


class _Quads:
    """Four neighboring channels a step: unsigned bytes by signed ones; weights [16 filters][4]."""

    def __init__(self, f: FunctionBuilder) -> None:
        self.f, self.target = f, f.module.target

    def zero(self) -> ir.Value:
        return self.f.constant(0, "int32")

    def weights(self, pointer: ir.Value) -> ir.Value:
        """The four of a filter in one number of 32 bits."""
        return self.f.b.load(pointer, align=4, typ=ir.VectorType(I32, LANES))

    def value(self, pointer: ir.Value) -> ir.Value:
        return self.f.splat(self.f.b.load(pointer, align=1, typ=I32))

    def add(self, value: ir.Value, weights: ir.Value, total: ir.Value) -> ir.Value:
        if self.target.gpu or not self.target.has_int8_dot:
            return add_quads(self.f, value, weights, total)
        bits = self.target.vector_bits
        register_lanes = bits // 32
        kind = ir.VectorType(I32, register_lanes)
        name = f"llvm.x86.avx512.vpdpbusd.{bits}"
        instruction = self.f.module.intrinsic(name, kind, [kind] * 3)
        results = []
        for first in range(0, LANES, register_lanes):
            lanes = list(range(first, first + register_lanes))
            is_full = register_lanes == LANES
            of = [v if is_full else self.f.shuffle(v, lanes) for v in (total, value, weights)]
            results.append(self.f.b.call(instruction, of))
        if len(results) == 1:
            return results[0]
        all_lanes = ir.Constant(ir.VectorType(I32, LANES), list(range(LANES)))
        return self.f.b.shuffle_vector(results[0], results[1], all_lanes)

    def after(self, pointers: list[ir.Value], total: ir.Value) -> tuple[list[ir.Value], ir.Value]:
        return pointers, total


def add_quads(f: FunctionBuilder, x: ir.Value, w: ir.Value, total: ir.Value) -> ir.Value:
    """`total` and four products of unsigned bytes by signed ones, in every lane of vectors of
    int32: by dp4a on NVIDIA's machines, else by ordinary instructions, which are right on all."""
    b, kind = f.b, total.type
    if f.module.target.gpu == "cuda":
        dot = f.module.intrinsic("llvm.nvvm.idp4a.u.s", I32, [I32] * 3)
        for i in range(kind.count):
            lane = ir.Constant(I32, i)
            operands = [b.extract_element(vector, lane) for vector in (x, w, total)]
            total = b.insert_element(total, b.call(dot, operands), lane)
        return total

    def all_lanes(value: int) -> ir.Constant:
        return ir.Constant(kind, [value] * kind.count)

    for bit in range(0, 32, 8):
        byte = b.and_(b.lshr(x, all_lanes(bit)), all_lanes(255))
        weight = b.ashr(b.shl(w, all_lanes(24 - bit)), all_lanes(24))
        total = b.add(total, b.mul(byte, weight))
    return total
