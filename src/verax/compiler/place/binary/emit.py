"""From steps to a binary: plan memory, write one native function per run of kernel calls, assemble
the weights."""

from __future__ import annotations

import dataclasses

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import (
    VOID,
    Kernel,
)
from verax.compiler.kernels.llvm.thread_pool import POOL_RUN, POOL_RUN_ARGS, emit_thread_pool
from verax.compiler.kernels.sizes import index_of, static_size
from verax.compiler.place.binary.assembly import Assembly
from verax.compiler.place.binary.chunk_loop import emit_chunk_loop
from verax.compiler.place.binary.counted import open_sizes_of
from verax.compiler.place.binary.gpu_launches import LaunchWriter
from verax.compiler.place.binary.lifetimes import lifetimes_of, times_of, touched
from verax.compiler.place.binary.segment import SegmentWriter
from verax.compiler.place.binary.weight_layout import pack_weights, place_weights
from verax.compiler.place.calls import (
    BranchCall,
    CountedCall,
    Dynamic,
    KernelCall,
    LoopCall,
    Native,
    ReferenceCall,
    RepeatCall,
    SizeCall,
    kernel_calls,
)
from verax.compiler.place.convolution.borders import write_borders
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.memory import kept_bytes, plan_arena
from verax.compiler.place.storage import Buffer, MemorySpace, Placed
from verax.ir.dim import Symbol
from verax.ir.types import TensorType
from verax.runtime.gpu.code import packed
from verax.runtime.gpu.launches import DeviceStep
from verax.runtime.open_sizes import CountedSize
from verax.runtime.program_binary import (
    CONTRACT,
    CTX_ARRAYS,
    CountedStep,
    ProgramBinary,
    PythonStep,
    Scheduled,
    Segment,
    Signature,
    SizeStep,
    State,
    Tensor,
    contract,
)

MAX_RUN = 512
"""Kernel calls in one native function: LLVM takes more than linear time over longer ones."""


def build_binary(
    lowering: Lowering, separate: bool = False
) -> tuple[ProgramBinary, dict[int, Kernel]]:
    """The finished program of a lowered graph, and the kernel of each step that has one.

    separate: a native function for every kernel call, so that each can be timed.
    """
    with Assembly(lowering.target) as assembly:
        return _built(lowering, assembly, separate)


def _built(
    lowering: Lowering, assembly: Assembly, separate: bool
) -> tuple[ProgramBinary, dict[int, Kernel]]:
    write_borders(lowering, lifetimes_of(lowering.calls.steps), times_of(lowering.calls.steps))
    steps = lowering.calls.steps
    kernels = {
        i: assembly.kernel(step.spec, step.schedule)
        for i, step in enumerate(steps)
        if isinstance(step, KernelCall)
    }
    inner = {
        id(call): assembly.kernel(call.spec, call.schedule)
        for step in steps
        if isinstance(step, BranchCall | LoopCall | RepeatCall)
        for call in kernel_calls([step])
    }
    inner |= {id(steps[i]): kernel for i, kernel in kernels.items()}
    lifetimes = lifetimes_of(steps)
    table = lowering.calls.sizes
    if table is None:
        arena_bytes = plan_arena(lifetimes, start=lowering.calls.status_bytes)
    else:
        table.place_buffers(lifetimes)
        arena_bytes = 0
    own_bytes = place_weights(lowering.weights, _used_buffers(lowering))
    is_gpu, launched = bool(lowering.target.gpu), dict[str, tuple[DeviceStep, ...]]()
    threads = 1 if is_gpu else lowering.settings.thread_count
    schedule: list[Scheduled] = []
    functions: list[ir.Function] = []
    run: list[Native] = []
    counted: list[CountedSize] = []
    module, pool = assembly.module, None
    if threads > 1:
        assembly.common(emit_thread_pool)
        pool = module.intrinsic(POOL_RUN, VOID, POOL_RUN_ARGS)

    def close_run() -> None:
        if run:
            name = f"segment_{len(schedule)}"
            if is_gpu:
                launched[name] = LaunchWriter(inner, table).steps(run)
            else:
                slot = CTX_ARRAYS + len(lowering.values.io)
                functions.append(SegmentWriter(module, name, run, inner, pool, table, slot).emit())
            schedule.append(Segment(name))
            run.clear()

    for step in steps:
        if isinstance(step, Native):
            run.append(step)
            if separate or (len(run) == MAX_RUN and not is_gpu):
                close_run()
            continue
        close_run()
        if isinstance(step, SizeCall):
            assert table is not None
            schedule.append(SizeStep(len(counted)))
            count = table.offset_of(step.count.buffer)
            counted.append(CountedSize(index_of(Symbol(step.symbol)), "", str(step.limit), count))
        elif isinstance(step, CountedCall):
            schedule.append(_counted_step(step))
        else:
            schedule.append(_python_step(step))
    close_run()
    if lowering.chunk_count > 1 and not separate:
        steps_of_arrays = [buffer.nbytes for buffer in lowering.values.io]
        schedule = [
            Segment(emit_chunk_loop(module, functions, steps_of_arrays, lowering.chunk_count))
        ]
    native = any(isinstance(s, Segment) for s in schedule)
    graph, in_place = lowering.full_graph, {w.state for w in lowering.written_state}
    # While LLVM is at work:
    weights, blocks = pack_weights(lowering.weights, own_bytes, lowering.target)
    binary = ProgramBinary(
        target=lowering.target.name,
        object_code=b"",
        weights=weights,
        blocks=blocks,
        arena_bytes=arena_bytes,
        kept_bytes=0
        if table is not None
        else kept_bytes(lifetimes, start=lowering.calls.status_bytes),
        inputs=tuple(_signature(v, graph.types[v]) for v in graph.inputs),
        outputs=tuple(_signature(v, graph.types[v]) for v in graph.outputs),
        schedule=tuple(schedule),
        python_outputs=graph.outputs
        if any(v in lowering.values.dynamic for v in graph.outputs)
        else (),
        checks=tuple(lowering.calls.checks),
        pool=pool is not None and native,
        state=tuple(
            State(v, new, graph.initial[v], v in in_place) for v, new in graph.state.items()
        ),
        open_sizes=None if table is None else open_sizes_of(lowering, table, counted),
    )
    if native:
        digest = contract(binary)  # of the weights as they are laid out
        if is_gpu:
            code = packed(assembly.gpu_code(digest, launched))
        else:
            module.exported(CONTRACT, digest)
            code = assembly.object_code()
        binary = dataclasses.replace(binary, object_code=code)
    return binary, kernels


def _signature(name: str, type_: TensorType) -> Signature:
    """A dynamic output is declared empty; its shape is known when it was computed."""
    shape = type_.shape if type_.is_fixed else (0,) * type_.rank
    return Signature(name, str(type_.dtype), shape)


def _used_buffers(lowering: Lowering) -> set[Buffer]:
    """All that steps read or write."""
    used = {p.buffer for call in kernel_calls(lowering.calls.steps) for p in call.args}
    return used | {buffer for step in lowering.calls.steps for buffer in touched(step)}


def _tensor(value: Placed | Dynamic) -> Tensor:
    if isinstance(value, Dynamic):
        return Tensor(value.name, "python", 0, str(value.type.dtype), ())
    physical, buffer = value.physical, value.buffer
    offset = buffer.slot if buffer.space is MemorySpace.io else buffer.offset + value.byte_offset
    at = static_size(offset)
    return Tensor("", str(buffer.space), at, str(physical.type.dtype), physical.type.shape)


def _python_step(step: ReferenceCall) -> PythonStep:
    inputs = tuple(None if v is None else _tensor(v) for v in step.inputs)
    return PythonStep(step.node, inputs, tuple(map(_tensor, step.outputs)))


def _counted_step(step: CountedCall) -> CountedStep:
    return CountedStep(_tensor(step.rows), _tensor(step.count), _tensor(step.output), step.axis)
