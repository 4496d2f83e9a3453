"""The numbers 0, 1, 2, ...: positions along an axis whose size is read at run time.

Of a known size they are a constant; from an open one they are written when the program runs.
"""

from __future__ import annotations

import dataclasses

from verax.compiler.kernels.llvm.builder import ELEMENT_SIZES, ELEMENT_TYPES, Kernel, ModuleBuilder
from verax.compiler.kernels.registry import emits
from verax.compiler.kernels.sizes import Size, all_open

INTEGERS = ("int32", "int64")


@dataclasses.dataclass(frozen=True)
class IotaSpec:
    """y[i] = i for i in range(count), of an integer type. Argument of the kernel: y."""

    count: Size
    dtype: str = "int32"

    def __str__(self) -> str:
        return f"{self.dtype} iota of {self.count}"

    @property
    def dtypes(self) -> tuple[str, ...]:
        """What is written."""
        return (self.dtype,)


@emits(IotaSpec, dtypes=INTEGERS, settle=all_open)
def emit_iota(module: ModuleBuilder, spec: IotaSpec) -> Kernel:
    """One item: there are as many numbers as an axis is long."""
    f = module.kernel(spec, 1, hint="iota")
    if f.kernel is not None:
        return f.kernel
    if isinstance(spec.count, int) and not spec.count:
        return f.finish(0)
    with f.items(), f.loop(spec.count) as numbers:
        value = f.i64(numbers.index)
        if spec.dtype != "int64":
            value = f.b.trunc(value, ELEMENT_TYPES[spec.dtype])
        f.store(value, f.at(f.args[0], numbers.index, dtype=spec.dtype))
    return f.finish(1, 0, spec.count * ELEMENT_SIZES[spec.dtype])
