"""The epilogue of a few neighboring channels of an output, or of one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from verax.compiler.kernels.layout import Epilogue, Strides
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.arith import LlvmArith
from verax.compiler.kernels.llvm.builder import FunctionBuilder, Index
from verax.compiler.kernels.target import LANES
from verax.numerics.expr import evaluate


@dataclasses.dataclass(frozen=True)
class Channels:
    """`lanes` channels of a pixel, one if 0, from number `within` of a block on."""

    f: FunctionBuilder
    lanes: int
    image: Index
    block: Index
    within: Index
    position: Sequence[Index]

    def of_tensor(self, strides: Strides, pointer: ir.Value, dtype: str) -> ir.Value:
        """Where they lie in a tensor."""
        f = self.f
        there = strides.at(f, pointer, self.image, self.block, self.position, dtype=dtype)
        return f.at(there, (self.within, strides.lane), dtype=dtype)

    def of_vector(self, pointer: ir.Value, dtype: str = "float32") -> ir.Value:
        """Where they lie in a vector of all channels."""
        return self.f.at(pointer, (self.block, LANES), self.within, dtype=dtype)

    def finished(
        self, epilogue: Epilogue | None, pointers: Sequence[ir.Value], value: ir.Value
    ) -> ir.Value:
        """`value` after the epilogue, whose operands lie at `pointers`."""
        f = self.f
        if epilogue is None:
            return value
        inputs = [value]
        for operand, pointer in zip(epilogue.operands, pointers, strict=True):
            kind, strides = operand.dtype, operand.strides
            if strides is None:
                inputs.append(f.load(self.of_vector(pointer, kind), kind, self.lanes))
                continue
            address = self.of_tensor(strides, pointer, kind)
            is_one = strides.lane == 0 and self.lanes
            load = f.broadcast if is_one else f.load
            inputs.append(load(address, kind, self.lanes))
        return evaluate(epilogue.expr, LlvmArith(f, self.lanes), inputs)  # type: ignore[no-any-return]
