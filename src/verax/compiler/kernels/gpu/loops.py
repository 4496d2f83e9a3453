"""`LoopSpec` on a GPU: a thread computes one element; neighbors in memory are neighbors in a warp.

The expressions are those of the CPU's kernel, evaluated on scalars.
"""

from __future__ import annotations

import math

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.arith import LlvmArith
from verax.compiler.kernels.llvm.builder import (
    ELEMENT_TYPES,
    I32,
    I64,
    FunctionBuilder,
    Index,
    Kernel,
    ModuleBuilder,
)
from verax.compiler.kernels.loops.loop import simplified
from verax.compiler.kernels.loops.spec import Access, Lookup, LoopSpec
from verax.compiler.kernels.registry import emits
from verax.compiler.kernels.sizes import Size, all_open
from verax.numerics.expr import evaluate_all

LARGEST = (1 << 31) - 1
"""Element numbers and offsets up to it are computed with 32 bits, in a third of the time."""


@emits(LoopSpec, dtypes=ELEMENT_TYPES, target="gpu", settle=all_open)
def emit_loop_by_element(module: ModuleBuilder, spec: LoopSpec) -> Kernel:
    """The kernel of `spec`. args: as those of the CPU's kernel (`loops.loop.emit_loop`)."""
    n_args = len(spec.inputs) + len(spec.outputs) + spec.checked
    fb = module.kernel(spec, n_args, hint="loop")
    if fb.finished:
        assert fb.kernel is not None
        return fb.kernel
    plain = simplified(spec)
    elements = math.prod(plain.dims)
    if elements == 0:
        return fb.finish(0)
    with fb.items() as items:
        _Element(fb, plain, items.index).compute()
    return fb.finish(elements, elements * spec.operations, spec.bytes)


class _Element:
    """One element of a loop: its coordinates, and what is read and written for it."""

    def __init__(self, fb: FunctionBuilder, spec: LoopSpec, index: Index) -> None:
        self.fb, self.spec = fb, spec
        count = len(spec.inputs)
        self.inputs = list(zip(spec.inputs, fb.args, strict=False))
        self.outputs = list(zip(spec.outputs, fb.args[count:], strict=False))
        self.is_short = all(map(_is_short, self._extents()))
        if self.is_short:
            index = fb.b.trunc(fb.i64(index), I32)
        self.coordinates = self._split(index)

    def _extents(self) -> list[Size]:
        """How far numbers of elements and offsets reach."""
        reach: list[Size] = [math.prod(self.spec.dims)]
        for access in (*self.spec.inputs, *self.spec.outputs):
            reach += [access.offset, *access.strides]
            if all(isinstance(s, int) for s in (*access.strides, *self.spec.dims)):
                steps = zip(access.strides, self.spec.dims, strict=True)
                reach.append(sum(abs(int(s) * int(n)) for s, n in steps))
        return reach

    def _split(self, index: Index) -> list[Index]:
        """Row-major coordinates of the element."""
        fb, b = self.fb, self.fb.b
        if not self.is_short:
            return fb.split(index, *self.spec.dims[1:])
        coordinates: list[Index] = []
        for extent in reversed(self.spec.dims[1:]):
            divisor = ir.Constant(I32, extent)
            quotient = b.udiv(index, divisor)  # type: ignore[arg-type]
            coordinates.append(b.sub(index, b.mul(quotient, divisor)))  # type: ignore[arg-type]
            index = quotient
        return [index, *reversed(coordinates)]

    def _offset(self, access: Access) -> ir.Value:
        """Elements from the pointer to this element, without lookups (i64)."""
        fb, b = self.fb, self.fb.b
        if not self.is_short:
            offset: Index = access.offset
            for coordinate, stride in zip(self.coordinates, access.strides, strict=True):
                offset = fb.iadd(offset, fb.imul(coordinate, stride))
            return fb.i64(offset)
        total: ir.Value = ir.Constant(I32, access.offset)
        for coordinate, stride in zip(self.coordinates, access.strides, strict=True):
            if stride != 0:
                total = b.add(total, b.mul(coordinate, ir.Constant(I32, stride)))  # type: ignore[arg-type]
        return b.sext(total, I64)

    def compute(self) -> None:
        """Read, evaluate, and write."""
        fb, used = self.fb, set(self.spec.value_inputs)
        values: list[ir.Value | None] = [None] * len(self.inputs)
        for position, (access, pointer) in enumerate(self.inputs):
            if position in used:
                values[position] = self._read(access, pointer)
        results = evaluate_all(self.spec.exprs, LlvmArith(fb, 0), values)
        for (access, pointer), result in zip(self.outputs, results, strict=True):
            element = fb.b.zext(result, ELEMENT_TYPES["bool"]) if access.dtype == "bool" else result
            fb.store(element, fb.at(pointer, self._offset(access), dtype=access.dtype))

    def _read(self, access: Access, pointer: ir.Value) -> ir.Value:
        """The element as a register value: a bool is any byte but zero."""
        fb, offset = self.fb, self._offset(access)
        for lookup in access.lookups:
            step = fb.imul(self._looked_up(lookup), lookup.stride)
            offset = fb.b.add(offset, fb.i64(step))
        value = fb.load(fb.at(pointer, offset, dtype=access.dtype), access.dtype, lanes=0)
        if access.dtype == "bool":
            return fb.b.icmp_unsigned("!=", value, ir.Constant(value.type, None))
        return value

    def _looked_up(self, lookup: Lookup) -> ir.Value:
        """The index that a lookup reads (i64); 0, and the flag raised, where it is out of range."""
        fb, b = self.fb, self.fb.b
        access, pointer = self.inputs[lookup.input]
        at = fb.at(pointer, self._offset(access), dtype=access.dtype)
        raw = fb.load(at, access.dtype, lanes=0)
        index = (b.zext if access.dtype == "uint8" else b.sext)(raw, I64)
        if not lookup.checked:
            return index
        zero, size = fb.i64(0), fb.i64(lookup.size)
        wrapped = b.select(b.icmp_signed("<", index, zero), b.add(index, size), index)
        is_inside = b.icmp_unsigned("<", wrapped, size)
        with fb.when(b.not_(is_inside)):
            b.store(ir.Constant(I32, 1), fb.args[-1], align=4)
        return b.select(is_inside, wrapped, zero)


def _is_short(size: Size) -> bool:
    return isinstance(size, int) and abs(size) <= LARGEST
