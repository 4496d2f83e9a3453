"""From steps to an image: plan memory, write one native function per run of kernel calls, assemble
the weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from verax.compiler.kernels import llvm_text as ir
from verax.compiler.kernels.builder import I8, I64, KERNEL_TYPE, PTR, VOID, Kernel, ModuleBuilder
from verax.compiler.kernels.float_mode import enter_default_mode, leave_default_mode
from verax.compiler.kernels.sizes import known
from verax.compiler.kernels.thread_pool import POOL_RUN, POOL_RUN_ARGS, emit_thread_pool
from verax.compiler.lower.assembly import Assembly
from verax.compiler.lower.borders import write_borders
from verax.compiler.lower.lowering import (
    CountedCall,
    Dynamic,
    KernelCall,
    Lowering,
    ReferenceCall,
    Step,
)
from verax.compiler.lower.memory import Lifetime, align, kept_bytes, plan_arena
from verax.compiler.lower.storage import Buffer, MemorySpace, Placed, Pointer
from verax.ir.types import TensorType
from verax.runtime.image import (
    CONTRACT,
    CTX_ARENA,
    CTX_ARRAYS,
    CTX_POOL,
    CTX_WEIGHTS,
    CountedStep,
    Image,
    PythonStep,
    Scheduled,
    Segment,
    Signature,
    State,
    Tensor,
    contract,
)

SERIAL_FLOPS = 40_000
SERIAL_BYTES = 64_000
"""Below both, waking another thread costs more than it gains (about 2 microseconds)."""


MAX_RUN = 512
"""Kernel calls in one native function: LLVM takes more than linear time over longer ones."""


def runs_alone(kernel: Kernel) -> bool:
    """Whether the caller's thread does all of it, however many there are."""
    small = known(kernel.flops) < SERIAL_FLOPS and known(kernel.bytes) < SERIAL_BYTES
    return known(kernel.items) < 2 or small


def build_image(lowering: Lowering, separate: bool = False) -> tuple[Image, dict[int, Kernel]]:
    """The finished program of a lowered graph, and the kernel of each step that has one.

    separate: a native function for every kernel call, so that each can be timed.
    """
    with Assembly(lowering.target) as assembly:
        return _built(lowering, assembly, separate)


def _built(
    lowering: Lowering, assembly: Assembly, separate: bool
) -> tuple[Image, dict[int, Kernel]]:
    write_borders(lowering, _lifetimes(lowering.steps))
    steps = lowering.steps
    kernels = {
        i: assembly.kernel(step.spec, step.schedule)
        for i, step in enumerate(steps)
        if isinstance(step, KernelCall)
    }
    lifetimes = _lifetimes(steps)
    arena_bytes = plan_arena(lifetimes, start=lowering.status_bytes)
    weights = _room_for_weights(lowering)
    threads = lowering.settings.thread_count
    schedule: list[Scheduled] = []
    run: list[tuple[KernelCall, Kernel]] = []
    module, pool = assembly.module, None
    if threads > 1:
        assembly.common(emit_thread_pool)
        pool = module.intrinsic(POOL_RUN, VOID, POOL_RUN_ARGS)

    def close_run() -> None:
        if run:
            name = f"segment_{len(schedule)}"
            _emit_segment(module, name, run, pool)
            schedule.append(Segment(name))
            run.clear()

    for i, step in enumerate(steps):
        if isinstance(step, KernelCall):
            run.append((step, kernels[i]))
            if separate or len(run) == MAX_RUN:
                close_run()
            continue
        close_run()
        if isinstance(step, CountedCall):
            schedule.append(_counted_step(step))
        else:
            schedule.append(_python_step(step))
    close_run()
    native = any(isinstance(s, Segment) for s in schedule)
    graph = lowering.graph
    image = Image(
        target=lowering.target.name,
        object_code=b"",
        weights=weights,
        arena_bytes=arena_bytes,
        kept_bytes=kept_bytes(lifetimes, start=lowering.status_bytes),
        inputs=tuple(_signature(v, graph.types[v]) for v in graph.inputs),
        outputs=tuple(_signature(v, graph.types[v]) for v in graph.outputs),
        schedule=tuple(schedule),
        python_outputs=graph.outputs if any(v in lowering.dynamic for v in graph.outputs) else (),
        checks=tuple(lowering.checks),
        pool=pool is not None and native,
        state=tuple(State(v, new, graph.initial[v]) for v, new in graph.state.items()),
    )
    _lay_out_weights(lowering, weights)  # while LLVM is at work
    if native:
        module.exported(CONTRACT, contract(image))  # of the weights as they are laid out
        image = dataclasses.replace(image, object_code=assembly.object_code())
    return image, kernels


def _signature(name: str, type_: TensorType) -> Signature:
    """A dynamic output is declared empty; its shape is known when it was computed."""
    shape = type_.shape if type_.is_static else (0,) * type_.rank
    return Signature(name, str(type_.dtype), shape)


def _lifetimes(steps: Sequence[Step]) -> dict[Buffer, Lifetime]:
    """First and last step that touches each arena buffer."""
    found: dict[Buffer, Lifetime] = {}
    for i, step in enumerate(steps):
        if isinstance(step, KernelCall):
            buffers = [p.buffer for p in step.args]
        elif isinstance(step, CountedCall):
            buffers = [step.rows.buffer, step.count.buffer]
        else:
            buffers = [v.buffer for v in (*step.inputs, *step.outputs) if isinstance(v, Placed)]
        for buffer in buffers:
            if buffer.space is MemorySpace.arena and buffer.nbytes:
                found[buffer] = (found.get(buffer, (i, i))[0], i)
    return found


def _room_for_weights(lowering: Lowering) -> np.ndarray:
    """Offsets for the weights that steps read, and an array of zeros that will hold them."""
    used = {p.buffer for s in lowering.steps if isinstance(s, KernelCall) for p in s.args} | {
        v.buffer
        for s in lowering.steps
        if isinstance(s, ReferenceCall)
        for v in s.inputs
        if isinstance(v, Placed)
    }
    end = 0
    lowering.weights = [(b, made) for b, made in lowering.weights if b in used]
    for buffer, _ in lowering.weights:
        buffer.offset = end
        end += align(buffer.nbytes) + 64
    raw = np.zeros(end + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + end]


def _lay_out_weights(lowering: Lowering, weights: np.ndarray) -> None:
    """Put them where `_room_for_weights` said, one after the other; none is held twice."""
    waiting = lowering.weights[::-1]
    lowering.weights = []
    while waiting:
        buffer, made = waiting.pop()
        packed = made() if callable(made) else made
        assert packed.nbytes == buffer.nbytes, "packed into the room that was asked for"
        content = np.ascontiguousarray(packed).reshape(-1).view(np.uint8)
        weights[buffer.offset : buffer.offset + buffer.nbytes] = content


def _tensor(value: Placed | Dynamic) -> Tensor:
    if isinstance(value, Dynamic):
        return Tensor(value.name, "python", 0, str(value.type.dtype), ())
    physical, buffer = value.physical, value.buffer
    offset = buffer.slot if buffer.space is MemorySpace.io else buffer.offset + value.byte_offset
    return Tensor("", str(buffer.space), offset, str(physical.type.dtype), physical.type.shape)


def _python_step(step: ReferenceCall) -> PythonStep:
    inputs = tuple(None if v is None else _tensor(v) for v in step.inputs)
    return PythonStep(step.node, inputs, tuple(map(_tensor, step.outputs)))


def _counted_step(step: CountedCall) -> CountedStep:
    return CountedStep(_tensor(step.rows), _tensor(step.count), _tensor(step.output))


def _emit_segment(
    module: ModuleBuilder,
    name: str,
    calls: Sequence[tuple[KernelCall, Kernel]],
    pool: ir.Function | None,
) -> None:
    """`void name(ptr ctx)`: the kernel calls one after the other."""
    fn = module.function(name, VOID, [PTR])
    b = ir.IRBuilder(fn.append_basic_block("entry"))

    def constant(value: int) -> ir.Constant:
        return ir.Constant(I64, value)

    def load(slot: int) -> ir.Value:
        return b.load(b.gep(fn.args[0], [constant(slot)], source_etype=PTR), typ=PTR)

    most = max(len(c.args) for c, _ in calls)
    table = b.alloca(PTR, size=constant(most))
    bases: dict[int, ir.Value] = {}

    def base(pointer: Pointer) -> ir.Value:
        slot = {MemorySpace.arena: CTX_ARENA, MemorySpace.weights: CTX_WEIGHTS}.get(
            pointer.buffer.space, CTX_ARRAYS + pointer.buffer.slot
        )
        if slot not in bases:
            bases[slot] = load(slot)
        return bases[slot]

    for call, _ in calls:
        for pointer in call.args:
            base(pointer)
    workers = load(CTX_POOL) if pool else None
    mode = enter_default_mode(module, b)
    for call, kernel in calls:
        for i, pointer in enumerate(call.args):
            offset = max(pointer.buffer.offset, 0) + pointer.byte_offset
            address = b.gep(base(pointer), [constant(offset)], source_etype=I8)
            b.store(address, b.gep(table, [constant(i)], source_etype=PTR))
        target = module.intrinsic(kernel.name, VOID, KERNEL_TYPE.args)
        items = known(kernel.items)
        if pool is None or workers is None or runs_alone(kernel):
            b.call(target, [table, constant(0), constant(items)])
        else:
            b.call(pool, [workers, target, table, constant(items)])
    leave_default_mode(module, b, mode)
    b.ret_void()
