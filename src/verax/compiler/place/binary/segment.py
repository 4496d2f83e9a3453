"""A native function for a run of kernel calls: branches, loops and calls one after the other."""

from __future__ import annotations

import contextlib
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
from verax.compiler.kernels.llvm.thread_pool import i64
from verax.compiler.kernels.sizes import Size
from verax.compiler.place.binary.lifetimes import touched
from verax.compiler.place.calls import (
    BranchCall,
    KernelCall,
    LoopCall,
    Native,
    RepeatCall,
    kernel_calls,
)
from verax.compiler.place.size_table import SizeTable
from verax.compiler.place.storage import Buffer, MemorySpace, Pointer
from verax.ir.assumptions import assumed_sizes
from verax.ir.dim import evaluated, same
from verax.runtime.program_binary import (
    CTX_ARENA,
    CTX_ARRAYS,
    CTX_POOL,
    CTX_WEIGHTS,
    OWN_WEIGHTS,
)

SERIAL_FLOPS = 40_000
SERIAL_BYTES = 64_000
"""Below both, waking another thread costs more than it gains (about 2 microseconds)."""


def runs_alone(kernel: Kernel) -> bool:
    """Whether the caller's thread does all of it, however many there are."""
    sizes = (kernel.items, kernel.flops, kernel.bytes)
    items, flops, bytes_ = (evaluated(size, assumed_sizes()) for size in sizes)
    return items < 2 or (flops < SERIAL_FLOPS and bytes_ < SERIAL_BYTES)


class SegmentWriter:
    """`void name(ptr ctx)`: calls one after the other, chosen and repeated as they say."""

    def __init__(
        self,
        module: ModuleBuilder,
        name: str,
        steps: Sequence[Native],
        kernels: Mapping[int, Kernel],
        pool: ir.Function | None,
        table: SizeTable | None,
        table_slot: int,
    ) -> None:
        """table: of a program of open sizes, whose address is in the context at `table_slot`."""
        self.table, self.table_slot = table, table_slot
        self.module, self.steps, self.kernels, self.pool = module, steps, kernels, pool
        self.fn = module.function(name, VOID, [PTR])
        self.b = ir.IRBuilder(self.fn.append_basic_block("entry"))
        self.bases: dict[int, ir.Value] = {}
        self.runs: list[ir.Value] = []  # of the loops around, how often they ran

    def emit(self) -> ir.Function:
        calls = list(kernel_calls(self.steps))
        max_args = max((len(c.args) for c in calls), default=1)
        self.pointers = self.b.alloca(PTR, size=i64(max_args + 1))
        for buffer in (b for step in self.steps for b in touched(step)):
            self._base(buffer)
        for flag in _flags(self.steps):
            self._base(flag.buffer)
        if self.table is not None:
            self.sizes = self._slot(self.table_slot)
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
        if self.table is not None:
            slot = b.gep(self.pointers, [i64(len(call.args))], source_etype=PTR)
            b.store(self.sizes, slot)
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
