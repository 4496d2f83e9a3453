"""When the buffers of a program are touched, step by step."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from verax.compiler.place.calls import (
    BranchCall,
    CountedCall,
    KernelCall,
    LoopCall,
    RepeatCall,
    SizeCall,
    Step,
    kernel_calls,
)
from verax.compiler.place.memory import Lifetime
from verax.compiler.place.storage import Buffer, MemorySpace, Placed
from verax.ir.dim import same


def lifetimes_of(steps: Sequence[Step]) -> dict[Buffer, Lifetime]:
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
            touch(own_buffers(step))
            start = now
            now += 1
            if isinstance(step, BranchCall):
                visit(step.then or ())
                visit(step.orelse or ())
            elif isinstance(step, LoopCall):
                visit(step.body)
                touch(own_buffers(step))
                # What comes from before the loop is read again by the next run, and rows that were
                # stacked have to outlive it.
                stacked = {p.buffer for c in kernel_calls([step]) for p in c.args if p.step}
                lifetimes.update({b: (start, lifetimes[b][1]) for b in stacked & lifetimes.keys()})
                touch([b for b, (first, last) in lifetimes.items() if first <= start <= last])
                now += 1

    visit(steps)
    return lifetimes


def times_of(steps: Sequence[Step]) -> dict[int, int]:
    """The number of each step by its time, as `_lifetimes` counts; not of those inside others."""
    ends = itertools.accumulate(map(_duration, steps), initial=0)
    return {time: i for i, time in zip(range(len(steps)), ends)}


def _duration(step: Step) -> int:
    if isinstance(step, BranchCall):
        return 1 + sum(map(_duration, (*(step.then or ()), *(step.orelse or ()))))
    if isinstance(step, LoopCall):
        return 2 + sum(map(_duration, step.body))
    return 1


def own_buffers(step: Step) -> list[Buffer]:
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


def touched(step: Step) -> Iterator[Buffer]:
    """What a step and those inside of it touch, kernel calls aside."""
    yield from own_buffers(step)
    inside: Iterable[Step] = ()
    if isinstance(step, BranchCall):
        inside = (*(step.then or ()), *(step.orelse or ()))
    elif isinstance(step, LoopCall):
        inside = step.body
    for inner in inside:
        yield from touched(inner)
