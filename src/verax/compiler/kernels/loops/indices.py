"""Indices that loops read from memory: widened, and checked where they are the network's."""

from __future__ import annotations

from collections.abc import Sequence

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import I32, I64, FunctionBuilder
from verax.compiler.kernels.loops.spec import Lookup
from verax.compiler.kernels.sizes import Size


def index_scalar(
    fb: FunctionBuilder, pointer: ir.Value, dtype: str, look: Lookup, flag: ir.Value | None
) -> ir.Value:
    """The index at `pointer` (i64); of a checked lookup wrapped, or 0 and the flag raised where it
    is out of range."""
    raw = fb.load(pointer, dtype, lanes=0)
    position = raw if dtype == "int64" else widened(fb, raw, dtype, I64)
    return checked(fb, position, look.size, flag, None) if look.checked else position


def widened(fb: FunctionBuilder, index: ir.Value, dtype: str, kind: ir.Type) -> ir.Value:
    """Indices of fewer than 64 bits as int64 numbers."""
    extend = fb.b.zext if dtype == "uint8" else fb.b.sext
    return extend(index, kind)


def checked(
    fb: FunctionBuilder,
    position: ir.Value,
    size: Size,
    flag: ir.Value | None,
    active: ir.Value | None,
) -> ir.Value:
    """`position` with negatives wrapped; 0 and the flag raised where it is out of range."""
    b, kind = fb.b, position.type
    vector = isinstance(kind, ir.VectorType)

    def constant(value: Size) -> ir.Value:
        return wide(fb, [value] * kind.count) if vector else fb.i64(value)

    wrapped = b.select(
        b.icmp_signed("<", position, constant(0)), b.add(position, constant(size)), position
    )
    good = b.icmp_unsigned("<", wrapped, constant(size))
    bad = b.not_(good)
    if active is not None:
        bad = b.and_(bad, active)
    if vector:
        bits = b.bitcast(bad, ir.IntType(kind.count))
        bad = b.icmp_unsigned("!=", bits, ir.Constant(ir.IntType(kind.count), 0))
    assert flag is not None
    with fb.when(bad):
        b.store(ir.Constant(I32, 1), flag, align=4)
    return b.select(good, wrapped, constant(0))


def wide(fb: FunctionBuilder, sizes: Sequence[Size]) -> ir.Value:
    """A vector of i64."""
    if all(isinstance(s, int) for s in sizes):
        return ir.Constant(ir.VectorType(I64, len(sizes)), list(sizes))
    vector: ir.Value = ir.Constant(ir.VectorType(I64, len(sizes)), ir.Undefined)
    for lane, size in enumerate(sizes):
        vector = fb.b.insert_element(vector, fb.i64(size), ir.Constant(I32, lane))
    return vector
