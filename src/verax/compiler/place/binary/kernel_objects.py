"""Objects of single kernels as data: made for any target, taken where they were made elsewhere.

An object is decided by spec, schedule, target and version alone, so the process that makes it need
not be the one that runs it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from verax.compiler.kernels.llvm.builder import Kernel
from verax.compiler.kernels.registry import Schedule, Spec, emitter
from verax.compiler.kernels.target import Target
from verax.compiler.place.binary.assembly import COMPILED_KERNELS, Assembly, CompiledKernel


def kernel_object(spec: Spec, schedule: Schedule, target: Target) -> dict[str, Any]:
    """The kernel's facts as texts and numbers under "kernel", its object file's bytes under "code".

    `target` need not run here. CompileError: LLVM refuses the code.
    """
    with Assembly(target) as assembly:
        assembly.kernel(spec, schedule)
        assembly.wait()
    compiled = COMPILED_KERNELS.find(_key(spec, schedule, target))
    assert compiled is not None and compiled.kernel is not None
    return {"kernel": dataclasses.asdict(compiled.kernel), "code": compiled.code.result()}


def take_object(spec: Spec, schedule: Schedule, target: Target, product: Mapping[str, Any]) -> None:
    """Keep an object that `kernel_object` gave in another process of the same version: programs of
    this process that call the kernel link it. TypeError: it is something else."""
    code: Future[bytes] = Future()
    code.set_result(bytes(product["code"]))
    kernel = Kernel(**product["kernel"])
    COMPILED_KERNELS.keep(_key(spec, schedule, target), CompiledKernel(kernel, code))


def is_made(spec: Spec, schedule: Schedule, target: Target) -> bool:
    """True if this process has the kernel's object."""
    return COMPILED_KERNELS.find(_key(spec, schedule, target)) is not None


def _key(spec: Spec, schedule: Schedule, target: Target) -> tuple[Any, ...]:
    return spec, schedule, target, emitter(spec, target).emit
