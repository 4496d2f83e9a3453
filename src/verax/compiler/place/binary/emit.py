"""From steps to a binary: plan memory, write one native function per run of kernel calls, assemble
the weights."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import (
    I8,
    I32,
    I64,
    KERNEL_TYPE,
    PTR,
    VOID,
    Kernel,
    ModuleBuilder,
)
from verax.compiler.kernels.llvm.float_mode import enter_default_mode, leave_default_mode
from verax.compiler.kernels.llvm.thread_pool import POOL_RUN, POOL_RUN_ARGS, emit_thread_pool, i64
from verax.compiler.kernels.sizes import Size, index_of, static_size
from verax.compiler.place.binary.assembly import Assembly
from verax.compiler.place.binary.chunk_loop import emit_chunk_loop
from verax.compiler.place.binary.counted import open_sizes_of
from verax.compiler.place.binary.shared_kernels import CallSizes
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
    Step,
    kernel_calls,
)
from verax.compiler.place.convolution.borders import write_borders
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.memory import Lifetime, kept_bytes, plan_arena
from verax.compiler.place.size_table import SizeTable
from verax.compiler.place.storage import Buffer, MemorySpace, Placed, Pointer
from verax.ir.assumptions import (
    assumed_sizes,
)
from verax.ir.dim import Symbol, evaluated, same
from verax.ir.types import TensorType
from verax.runtime.open_sizes import CountedSize
from verax.runtime.program_binary import (
    CONTRACT,
    CTX_ARENA,
    CTX_ARRAYS,
    CTX_POOL,
    CTX_WEIGHTS,
    OWN_WEIGHTS,
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

SERIAL_FLOPS = 40_000
SERIAL_BYTES = 64_000
"""Below both, waking another thread costs more than it gains (about 2 microseconds)."""

MAX_RUN = 512
"""Kernel calls in one native function: LLVM takes more than linear time over longer ones."""


def runs_alone(kernel: Kernel) -> bool:
    """Whether the caller's thread does all of it, however many there are."""
    sizes = (kernel.items, kernel.flops, kernel.bytes)
    items, flops, bytes_ = (evaluated(size, assumed_sizes()) for size in sizes)
    return items < 2 or (flops < SERIAL_FLOPS and bytes_ < SERIAL_BYTES)


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
    write_borders(lowering, _lifetimes(lowering.calls.steps), _times(lowering.calls.steps))
    steps = lowering.calls.steps
    table, module = lowering.calls.sizes, assembly.module
    sizes = CallSizes(kernel_calls(steps), lowering.target, table)
    kernels = {
        i: sizes.kernel(assembly, step)
        for i, step in enumerate(steps)
        if isinstance(step, KernelCall)
    }
    inner = {
        id(call): sizes.kernel(assembly, call)
        for step in steps
        if isinstance(step, BranchCall | LoopCall | RepeatCall)
        for call in kernel_calls([step])
    }
    inner |= {id(steps[i]): kernel for i, kernel in kernels.items()}
    lifetimes = _lifetimes(steps)
    if table is None:
        arena_bytes = plan_arena(lifetimes, start=lowering.calls.status_bytes)
    else:
        table.place_buffers(lifetimes)
        arena_bytes = 0
    own_bytes = place_weights(lowering.weights, _used_buffers(lowering))
    threads = lowering.settings.thread_count
    schedule: list[Scheduled] = []
    functions: list[ir.Function] = []
    run: list[Native] = []
    counted: list[CountedSize] = []
    pool = None
    if threads > 1:
        assembly.common(emit_thread_pool)
        pool = module.intrinsic(POOL_RUN, VOID, POOL_RUN_ARGS)

    def close_run() -> None:
        if run:
            name = f"segment_{len(schedule)}"
            slot = CTX_ARRAYS + len(lowering.values.io)
            functions.append(_Segment(module, name, run, inner, sizes, pool, table, slot).emit())
            schedule.append(Segment(name))
            run.clear()

    for step in steps:
        if isinstance(step, Native):
            run.append(step)
            if separate or len(run) == MAX_RUN:
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
        module.exported(CONTRACT, contract(binary))  # of the weights as they are laid out
        binary = dataclasses.replace(binary, object_code=assembly.object_code())
    return binary, kernels


def _signature(name: str, type_: TensorType) -> Signature:
    """A dynamic output is declared empty; its shape is known when it was computed."""
    shape = type_.shape if type_.is_fixed else (0,) * type_.rank
    return Signature(name, str(type_.dtype), shape)


def _lifetimes(steps: Sequence[Step]) -> dict[Buffer, Lifetime]:
    """First and last time that each arena buffer is touched; calls inside of branches and loops
    have times of their own."""
    lifetimes: dict[Buffer, Lifetime] = {}
    now = 0

    def touch(buffers: Iterable[Buffer]) -> None:
        for buffer in buffers:
            if buffer.space is MemorySpace.arena and not same(buffer.nbytes, 0):
                lifetimes[buffer] = (lifetimes.get(buffer, (now, now))[0], now)

    def visit(steps: Iterable[Step]) -> None:
        nonlocal now
        for step in steps:
            touch(_buffers(step))
            start = now
            now += 1
            if isinstance(step, BranchCall):
                visit(step.then or ())
                visit(step.orelse or ())
            elif isinstance(step, LoopCall):
                visit(step.body)
                touch(_buffers(step))
                # What comes from before the loop is read again by the next run, and rows that were
                # stacked have to outlive it.
                stacked = {p.buffer for c in kernel_calls([step]) for p in c.args if p.step}
                lifetimes.update({b: (start, lifetimes[b][1]) for b in stacked & lifetimes.keys()})
                touch([b for b, (first, last) in lifetimes.items() if first <= start <= last])
                now += 1

    visit(steps)
    return lifetimes


def _times(steps: Sequence[Step]) -> dict[int, int]:
    """The number of each step by its time, as `_lifetimes` counts; not of those inside others."""
    ends = itertools.accumulate(map(_duration, steps), initial=0)
    return {time: i for i, time in zip(range(len(steps)), ends)}


def _duration(step: Step) -> int:
    if isinstance(step, BranchCall):
        return 1 + sum(map(_duration, (*(step.then or ()), *(step.orelse or ()))))
    if isinstance(step, LoopCall):
        return 2 + sum(map(_duration, step.body))
    return 1


def _buffers(step: Step) -> list[Buffer]:
    """What a step itself touches."""
    if isinstance(step, KernelCall):
        return [p.buffer for p in step.args]
    if isinstance(step, RepeatCall):  # what one run writes, the next one reads and writes again
        return [p.buffer for call in step.body for p in call.args]
    if isinstance(step, BranchCall):
        return [step.condition.buffer]
    if isinstance(step, LoopCall):
        pointers = (step.limit, step.first, step.trip_index, step.going)
        return [p.buffer for p in pointers if p is not None]
    if isinstance(step, SizeCall):
        return [step.count.buffer]
    if isinstance(step, CountedCall):
        return [step.rows.buffer, step.count.buffer]
    return [v.buffer for v in (*step.inputs, *step.outputs) if isinstance(v, Placed)]


def _used_buffers(lowering: Lowering) -> set[Buffer]:
    """All that steps read or write."""
    used = {p.buffer for call in kernel_calls(lowering.calls.steps) for p in call.args}
    return used | {buffer for step in lowering.calls.steps for buffer in _touched(step)}


def _touched(step: Step) -> Iterator[Buffer]:
    """What a step and those inside of it touch, kernel calls aside."""
    yield from _buffers(step)
    inside: Iterable[Step] = ()
    if isinstance(step, BranchCall):
        inside = (*(step.then or ()), *(step.orelse or ()))
    elif isinstance(step, LoopCall):
        inside = step.body
    for inner in inside:
        yield from _touched(inner)


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


class _Segment:
    """`void name(ptr ctx)`: calls one after the other, chosen and repeated as they say."""

    def __init__(
        self,
        module: ModuleBuilder,
        name: str,
        steps: Sequence[Native],
        kernels: Mapping[int, Kernel],
        call_sizes: CallSizes,
        pool: ir.Function | None,
        table: SizeTable | None,
        table_slot: int,
    ) -> None:
        """call_sizes: of kernels that calls share; table: of a program of open sizes, whose
        address is in the context at `table_slot`."""
        self.table, self.table_slot = table, table_slot
        self.module, self.steps, self.kernels, self.pool = module, steps, kernels, pool
        self.call_sizes = call_sizes
        self.fn = module.function(name, VOID, [PTR])
        self.b = ir.IRBuilder(self.fn.append_basic_block("entry"))
        self.bases: dict[int, ir.Value] = {}
        self.runs: list[ir.Value] = []  # of the loops around, how often they ran

    def emit(self) -> ir.Function:
        calls = list(kernel_calls(self.steps))
        max_args = max((len(c.args) for c in calls), default=1)
        self.pointers = self.b.alloca(PTR, size=i64(max_args + 1))
        for buffer in (b for step in self.steps for b in _touched(step)):
            self._base(buffer)
        for flag in _flags(self.steps):
            self._base(flag.buffer)
        self.sizes = None if self.table is None else self._slot(self.table_slot)
        self.workers = self._slot(CTX_POOL) if self.pool else None
        mode = enter_default_mode(self.module, self.b)
        for step in self.steps:
            self._step(step)
        leave_default_mode(self.module, self.b, mode)
        self.b.ret_void()
        return self.fn

    def _slot(self, slot: int) -> ir.Value:
        address = self.b.gep(self.fn.args[0], [i64(slot)], source_etype=PTR)
        return self.b.load(address, typ=PTR)

    def _base(self, buffer: Buffer) -> ir.Value:
        """Where the offset of a buffer counts from: for a block of weights, the table with its
        address."""
        slot = {
            MemorySpace.arena: CTX_ARENA,
            MemorySpace.weights: CTX_WEIGHTS,
            MemorySpace.sizes: self.table_slot,
        }.get(buffer.space, CTX_ARRAYS + buffer.slot)
        if slot not in self.bases:
            self.bases[slot] = self._slot(slot)
        return self.bases[slot]

    def _address(self, pointer: Pointer) -> ir.Value:
        buffer, table = pointer.buffer, self.table
        base, start = self._base(buffer), max(buffer.offset, 0)
        if buffer.space is MemorySpace.weights:
            entry = self.b.gep(base, [i64(buffer.slot)], source_etype=PTR)
            base = self.b.load(entry, typ=PTR)
            start = buffer.offset if buffer.slot == OWN_WEIGHTS else 0
        offset = self._loaded_size(start + pointer.byte_offset)
        if table is not None and table.has_offset(buffer):
            offset = self.b.add(offset, self._entry(table.offset_of(buffer)))
        if not same(pointer.step, 0):
            ahead = self.b.mul(self.runs[-1], self._loaded_size(pointer.step))
            offset = self.b.add(offset, ahead)
        return self.b.gep(base, [offset], source_etype=I8)

    def _entry(self, index: int) -> ir.Value:
        assert self.sizes is not None, "sizes are open only where there is a table"
        address = self.b.gep(self.sizes, [i64(index)], source_etype=I64)
        return self.b.load(address, typ=I64)

    def _loaded_size(self, size: Size) -> ir.Value:
        if isinstance(size, int):
            return i64(size)
        assert self.table is not None, "sizes are open only where there is a table"
        return self._entry(self.table.index(size))

    def _step(self, step: Native) -> None:
        if isinstance(step, BranchCall):
            self._branch(step)
        elif isinstance(step, LoopCall):
            self._loop(step)
        elif isinstance(step, RepeatCall):
            self._repeat(step)
        else:
            self._call(step, self.kernels[id(step)])

    def _call(self, call: KernelCall, kernel: Kernel) -> None:
        b = self.b
        for i, pointer in enumerate(call.args):
            slot = b.gep(self.pointers, [i64(i)], source_etype=PTR)
            b.store(self._address(pointer), slot)
        sizes = self.call_sizes.address(self.module, b, call, self.sizes)
        if sizes is not None:
            slot = b.gep(self.pointers, [i64(len(call.args))], source_etype=PTR)
            b.store(sizes, slot)
        target = self.module.intrinsic(kernel.name, VOID, KERNEL_TYPE.args)
        with contextlib.ExitStack() as inside:
            for elements in call.elements:
                inside.enter_context(
                    b.if_then(b.icmp_signed(">", self._loaded_size(elements), i64(0)))
                )
            self._call_items(kernel, target)

    def _call_items(self, kernel: Kernel, target: ir.Function) -> None:
        b = self.b
        items = self._loaded_size(kernel.items)
        if self.pool is None or self.workers is None or runs_alone(kernel):
            b.call(target, [self.pointers, i64(0), items])
        else:
            b.call(self.pool, [self.workers, target, self.pointers, items])

    def _repeat(self, step: RepeatCall) -> None:
        b, before = self.b, self.b.block
        head, body, end = (
            self.fn.append_basic_block(f"repeat_{n}") for n in ("head", "body", "end")
        )
        times = self._loaded_size(step.times)
        b.branch(head)
        b.position_at_end(head)
        run = b.phi(I64)
        run.add_incoming(i64(0), before)
        b.cbranch(b.icmp_signed("<", run, times), body, end)
        b.position_at_end(body)
        self.runs.append(run)
        for call in step.body:
            self._step(call)
        self.runs.pop()
        run.add_incoming(b.add(run, i64(1)), b.block)
        b.branch(head)
        b.position_at_end(end)

    def _truth(self, pointer: Pointer) -> ir.Value:
        byte = self.b.load(self._address(pointer), typ=I8)
        return self.b.icmp_unsigned("!=", byte, ir.Constant(I8, 0))

    def _fail(self, flag: Pointer) -> None:
        self.b.store(ir.Constant(I32, 1), self._address(flag))

    def _branch(self, step: BranchCall) -> None:
        with self.b.if_else(self._truth(step.condition)) as sides:
            for side, calls in zip(sides, (step.then, step.orelse)):
                with side:
                    if calls is None:
                        self._fail(step.flag)
                    for call in calls or ():
                        self._step(call)

    def _loop(self, step: LoopCall) -> None:
        b, max_trips = self.b, i64(step.max_trips)
        requested = b.load(self._address(step.limit), typ=I64) if step.limit else max_trips
        first = self._truth(step.first) if step.first else ir.Constant(ir.IntType(1), 1)
        limit = b.select(b.icmp_signed("<", requested, max_trips), requested, max_trips)
        head, body, end = (self.fn.append_basic_block(f"loop_{n}") for n in ("head", "body", "end"))
        before = b.block
        b.branch(head)
        b.position_at_end(head)
        run, going = b.phi(I64), b.phi(ir.IntType(1))
        run.add_incoming(i64(0), before)
        going.add_incoming(first, before)
        b.cbranch(b.and_(going, b.icmp_signed("<", run, limit)), body, end)
        b.position_at_end(body)
        b.store(run, self._address(step.trip_index))
        self.runs.append(run)
        for call in step.body:
            self._step(call)
        self.runs.pop()
        again = self._truth(step.going)
        run.add_incoming(b.add(run, i64(1)), b.block)
        going.add_incoming(again, b.block)
        b.branch(head)
        b.position_at_end(end)
        left = b.icmp_signed("<", run, requested) if step.limit else ir.Constant(ir.IntType(1), 1)
        endless = b.and_(going, b.and_(left, b.icmp_signed(">=", run, max_trips)))
        with b.if_then(endless):
            self._fail(step.flag)


def _flags(steps: Iterable[Native]) -> Iterator[Pointer]:
    for step in steps:
        if isinstance(step, BranchCall):
            yield step.flag
            yield from _flags((*(step.then or ()), *(step.orelse or ())))
        elif isinstance(step, LoopCall):
            yield step.flag
            yield from _flags(step.body)
