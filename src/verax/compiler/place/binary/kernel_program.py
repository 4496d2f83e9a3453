"""Kernel calls without a network: a program whose every pointer is into an array of the caller's.

For measuring and comparing kernels: the code, the thread pool and the calls are those of networks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from verax.base.option_groups.settings import Settings
from verax.compiler.kernels.registry import Schedule, Spec
from verax.compiler.kernels.target import Target
from verax.compiler.place.binary.assembly import Assembly
from verax.compiler.place.binary.emit import build_binary
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.storage import Pointer
from verax.ir.graph import Graph
from verax.ir.types import DType, TensorType
from verax.runtime.program_binary import ProgramBinary

Place = tuple[int, int]
"""Number of an array, and a byte offset into it."""


def calls_alone(
    spec: Spec,
    schedule: Schedule,
    calls: Sequence[Sequence[Place]],
    sizes: Sequence[int],
    target: Target,
    threads: int,
) -> ProgramBinary:
    """A program that takes arrays of bytes (`sizes` of them) and calls the kernel of `spec` once
    for each of `calls`, whose places are the kernel's arguments. Kernels write into the arrays."""
    names = [f"a{i}" for i in range(len(sizes))]
    types = {n: TensorType(DType.uint8, (size,)) for n, size in zip(names, sizes, strict=True)}
    lowering = Lowering(Graph(tuple(names), (), (), {}, types), target, Settings(threads=threads))
    for locations in calls:
        pointers = [Pointer(lowering.values.io[array], offset) for array, offset in locations]
        lowering.calls.call(spec, pointers, "alone", schedule)
    return build_binary(lowering)[0]


def make_ahead(
    spec: Spec, schedules: Sequence[Schedule], target: Target, stop: Callable[[], bool]
) -> None:
    """Make the kernels of several schedules at once, as far as this process keeps them: programs
    that call them are made sooner. stop: asked now and then whether it is time to end."""
    with Assembly(target) as assembly:
        for schedule in schedules:
            if stop():
                break
            assembly.kernel(spec, schedule)
        assembly.wait()
