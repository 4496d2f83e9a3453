"""`LoopSpec` on a GPU: a thread computes one element; neighbors in memory are neighbors in a warp.

The expressions are those of the CPU's kernel, evaluated on scalars.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from verax.compiler.kernels.gpu.index32 import Index32
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.arith import LlvmArith
from verax.compiler.kernels.llvm.builder import (
    ELEMENT_TYPES,
    FunctionBuilder,
    Index,
    Kernel,
    ModuleBuilder,
)
from verax.compiler.kernels.loops.emit import from_register, to_register
from verax.compiler.kernels.loops.indices import index_scalar
from verax.compiler.kernels.loops.loop import normalized
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
    plain = normalized(spec)
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
        self.n = Index32(fb)
        dims = spec.dims[1:]
        self.coordinates: Sequence[Index] = (
            self.n.split(self.n.truncated(index), *map(self.n.of, dims))
            if self.is_short
            else fb.split(index, *dims)
        )

    def _extents(self) -> list[Size]:
        """How far numbers of elements and offsets reach."""
        reach: list[Size] = [math.prod(self.spec.dims)]
        for access in (*self.spec.inputs, *self.spec.outputs):
            reach += [access.offset, *access.strides]
            if all(isinstance(s, int) for s in (*access.strides, *self.spec.dims)):
                steps = zip(access.strides, self.spec.dims, strict=True)
                reach.append(sum(abs(int(s) * int(n)) for s, n in steps))
        return reach

    def _offset(self, access: Access) -> ir.Value:
        """Elements from the pointer to this element, without lookups (i64)."""
        fb, n = self.fb, self.n
        steps = list(zip(self.coordinates, access.strides, strict=True))
        if not self.is_short:
            offset: Index = access.offset
            for coordinate, stride in steps:
                offset = fb.iadd(offset, fb.imul(coordinate, stride))
            return fb.i64(offset)
        total = n.of(access.offset)
        for coordinate, stride in steps:
            total = n.add(total, n.mul(coordinate, n.of(stride)))  # type: ignore[arg-type]
        return fb.i64(n.wide(total))

    def compute(self) -> None:
        """Read, evaluate, and write."""
        fb, used = self.fb, set(self.spec.value_inputs)
        values: list[ir.Value | None] = [None] * len(self.inputs)
        for position, (access, pointer) in enumerate(self.inputs):
            if position in used:
                values[position] = self._read(access, pointer)
        results = evaluate_all(self.spec.exprs, LlvmArith(fb, 0), values)
        for (access, pointer), result in zip(self.outputs, results, strict=True):
            address = fb.at(pointer, self._offset(access), dtype=access.dtype)
            fb.store(from_register(fb, result, access.dtype), address)

    def _read(self, access: Access, pointer: ir.Value) -> ir.Value:
        """The element as a register value."""
        fb, offset = self.fb, self._offset(access)
        for lookup in access.lookups:
            step = fb.imul(self._looked_up(lookup), lookup.stride)
            offset = fb.b.add(offset, fb.i64(step))
        value = fb.load(fb.at(pointer, offset, dtype=access.dtype), access.dtype, lanes=0)
        return to_register(fb, value, access.dtype)

    def _looked_up(self, lookup: Lookup) -> ir.Value:
        """The index that a lookup reads (i64)."""
        access, pointer = self.inputs[lookup.input]
        at = self.fb.at(pointer, self._offset(access), dtype=access.dtype)
        return index_scalar(self.fb, at, access.dtype, lookup, self.fb.args[-1])


def _is_short(size: Size) -> bool:
    return isinstance(size, int) and abs(size) <= LARGEST
