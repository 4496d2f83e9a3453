"""A program that is run for one part of a batch after the other."""

from __future__ import annotations

from collections.abc import Sequence

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import I8, I64, PTR, VOID, ModuleBuilder
from verax.compiler.kernels.llvm.thread_pool import i64
from verax.runtime.program_binary import CTX_ARRAYS


def emit_chunk_loop(
    module: ModuleBuilder, segments: Sequence[ir.Function], steps: Sequence[int], chunk_count: int
) -> str:
    """Write the function that calls `segments`, in order, `chunk_count` times; returns its name.

    steps: bytes from a chunk to the next in each of the callers' arrays, whose addresses it hands
    on in a table of its own: that of whoever called it stays as it is.
    """
    name = f"segment_{len(segments)}"
    function = module.function(name, VOID, [PTR])
    b = ir.IRBuilder(function.append_basic_block("entry"))
    head, body, end = (function.append_basic_block(f"parts_{n}") for n in ("head", "body", "end"))
    table = b.alloca(PTR, size=i64(CTX_ARRAYS + len(steps)))

    def slot(of: ir.Value, i: int) -> ir.Value:
        return b.gep(of, [i64(i)], source_etype=PTR)

    for i in range(CTX_ARRAYS):
        b.store(b.load(slot(function.args[0], i), typ=PTR), slot(table, i))
    arrays = [b.load(slot(function.args[0], CTX_ARRAYS + i), typ=PTR) for i in range(len(steps))]
    before = b.block
    b.branch(head)
    b.position_at_end(head)
    chunk = b.phi(I64)
    chunk.add_incoming(i64(0), before)
    b.cbranch(b.icmp_signed("<", chunk, i64(chunk_count)), body, end)
    b.position_at_end(body)
    for i, (array, step) in enumerate(zip(arrays, steps, strict=True)):
        address = b.gep(array, [b.mul(chunk, i64(step))], source_etype=I8)
        b.store(address, slot(table, CTX_ARRAYS + i))
    for segment in segments:
        b.call(segment, [table])
    chunk.add_incoming(b.add(chunk, i64(1)), b.block)
    b.branch(head)
    b.position_at_end(end)
    b.ret_void()
    return name
