"""The processor's rounding mode: generated code runs in the default one, whatever the caller set.

A host library may have switched this thread to flush subnormal numbers to zero, or to another
rounding; the promised bits would then change. The mode is saved on entry and restored on exit.
"""

from __future__ import annotations

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import I32, I64, PTR, VOID, ModuleBuilder

_X86_DEFAULT = 0x1F80  # round to nearest, no flushing, exceptions masked


def enter_default_mode(module: ModuleBuilder, b: ir.IRBuilder) -> ir.Value | None:
    """Switch to the default mode; gives what `leave_default_mode` needs."""
    if module.target.triple.startswith("x86_64"):
        saved, default_mode = b.alloca(I32), b.alloca(I32)
        b.call(module.intrinsic("llvm.x86.sse.stmxcsr", VOID, [PTR]), [saved])
        b.store(ir.Constant(I32, _X86_DEFAULT), default_mode)
        b.call(module.intrinsic("llvm.x86.sse.ldmxcsr", VOID, [PTR]), [default_mode])
        return saved
    if module.target.name == "neon":
        saved_fpcr = b.call(module.intrinsic("llvm.aarch64.get.fpcr", I64, []), [])
        write = module.intrinsic("llvm.aarch64.set.fpcr", VOID, [I64])
        b.call(write, [ir.Constant(I64, 0)])
        return saved_fpcr
    return None


def leave_default_mode(module: ModuleBuilder, b: ir.IRBuilder, saved: ir.Value | None) -> None:
    """Put back what the caller had."""
    if saved is None:
        return
    if module.target.name == "neon":
        b.call(module.intrinsic("llvm.aarch64.set.fpcr", VOID, [I64]), [saved])
    else:
        b.call(module.intrinsic("llvm.x86.sse.ldmxcsr", VOID, [PTR]), [saved])
