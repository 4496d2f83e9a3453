"""`KernelBench`: a kernel by itself, as a network would call it, with any of its schedules.

Buffers have the sizes that they have in the network. Weights are read from further copies at every
call, as many as the network has weights, or the caches' worth: a network reads each weight once a
run, and finds it as far away as all the others are large. What is computed stays where it is: the
kernel before has just written it.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from verax.compiler.kernels.registry import Schedule, Spec
from verax.compiler.kernels.sizes import static_size
from verax.compiler.kernels.target import Target
from verax.compiler.place.binary.kernel_program import Place, calls_alone, make_ahead
from verax.compiler.place.calls import KernelCall
from verax.compiler.place.memory import align
from verax.compiler.place.storage import MemorySpace
from verax.compiler.tune.arguments import Argument, arguments, drawn, packing_of, seed_of
from verax.compiler.tune.host import Host
from verax.runtime.clocks import thread_clock
from verax.runtime.execution_context import aligned_zeros
from verax.runtime.program import Program
from verax.runtime.program_binary import ProgramBinary

TURN_SECONDS = 1.2e-3
"""How long a turn takes at least, if no single call takes longer."""
MOST_CALLS = 16
"""Calls in one program."""
BEYOND_CACHE = 1.25
"""Copies of weights, in caches' worth."""
UNKNOWN_CACHE, MOST_CACHE = 32 << 20, 64 << 20
SLACK = 256
"""Bytes behind an array that may be read."""
Buffer: TypeAlias = Any
"""Bytes that can be sliced: an array of the host's, or what a device has in its place."""


@dataclasses.dataclass(frozen=True)
class Workload:
    """A kernel as a network calls it. sizes, offsets: bytes of each argument's buffer, and where in
    it the argument begins. cold: whether its weights are the network's. reuse: bytes that a run of
    the network reads between two uses of them."""

    spec: Spec
    schedule: Schedule
    sizes: tuple[int, ...]
    offsets: tuple[int, ...]
    cold: bool
    reuse: int

    @staticmethod
    def of(call: KernelCall, weight_bytes: int) -> Workload:
        """That of a call in a network with so many bytes of weights."""
        packed = [a.packed is not None for a in arguments(call.spec)]
        spaces = [p.buffer.space for p in call.args]
        cold = any(
            a and space is MemorySpace.weights for a, space in zip(packed, spaces, strict=True)
        )
        return Workload(
            call.spec,
            call.schedule,
            tuple(p.buffer.nbytes for p in call.args),
            tuple(static_size(p.byte_offset) for p in call.args),
            cold,
            weight_bytes,
        )


def nanoseconds(threads: int) -> Callable[[], int]:
    """The clock to time a program with: of one thread the processor time, to which other programs
    add little; of several the real time, for they wait for one another."""
    return thread_clock() if threads == 1 else time.perf_counter_ns


class Bench(Protocol):
    """Whoever times schedules of one kernel."""

    def prepare(self, schedules: Sequence[Schedule]) -> None:
        """Make several at once; what fails is told later."""

    def result(self, schedule: Schedule) -> bytes:
        """All that the kernel writes. CompileError: it cannot be made."""

    def turn(self, schedule: Schedule) -> float:
        """Seconds of one call, timed now."""

    def drop(self, schedule: Schedule) -> None:
        """It is not asked for again."""


@dataclasses.dataclass(frozen=True)
class _Pool:
    """`count` copies of what is packed, `stride` bytes apart."""

    data: Buffer
    stride: int
    count: int


@dataclasses.dataclass
class _Built:
    """A program; arrays: what it takes, without what is packed; pools: that, by argument."""

    program: Program
    arrays: list[Buffer]
    pools: dict[int, _Pool]
    at: int = 0

    def window(self, calls: int) -> list[Buffer]:
        """The arrays of the next run, which makes so many calls: other weights than the last."""
        arrays, step = list(self.arrays), 0
        for i, pool in self.pools.items():
            if pool.count > 1:
                start = self.at if self.at + calls <= pool.count else 0
                step = start + calls
                arrays[i] = pool.data[start * pool.stride : step * pool.stride]
            else:
                arrays[i] = pool.data
        self.at = step
        return arrays


class KernelBench:
    """See the module's docstring. Threads as in the network; `close` when done.

    Where buffers lie, and who runs programs on them by which clock, is for subclasses to say:
    `_placed`, `_loaded`, `_timed`, `_clear` and `_content`.
    """

    most_calls = MOST_CALLS

    def __init__(
        self,
        workload: Workload,
        target: Target,
        host: Host,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.workload, self.target, self.threads = workload, target, host.threads
        self.arguments, self._clock = arguments(workload.spec), nanoseconds(host.threads)
        reach = self._cache_bytes(host) * BEYOND_CACHE
        self._reach = int(min(workload.reuse, reach)) if workload.cold else 0
        self._stop = stop
        self._packed: dict[object, dict[int, _Pool]] = {}
        self._built: dict[Schedule, _Built] = {}
        self._shared = {
            i: self._placed(self._array(i, argument))
            for i, argument in enumerate(self.arguments)
            if argument.packed is None and argument.scratch is None
        }
        self._calls, self._runs = 1, 1
        self._choose_repeats()

    def prepare(self, schedules: Sequence[Schedule]) -> None:
        """See `Bench`."""
        make_ahead(self.workload.spec, schedules, self.target, self._stop)

    def result(self, schedule: Schedule) -> bytes:
        """See `Bench`."""
        built = self._program(schedule)
        self._clear(self._written)
        self._timed(built.program, built.window(self._calls))
        return self._content(self._written)

    def turn(self, schedule: Schedule) -> float:
        """See `Bench`."""
        built = self._program(schedule)
        runs = range(self._runs)
        total = sum(self._timed(built.program, built.window(self._calls)) for _ in runs)
        return total / (self._runs * self._calls)

    def drop(self, schedule: Schedule) -> None:
        """See `Bench`."""
        built = self._built.pop(schedule, None)
        if built is not None:
            built.program.close()

    def close(self) -> None:
        """End its threads."""
        for schedule in list(self._built):
            self.drop(schedule)

    def _choose_repeats(self) -> None:
        """Set the number of calls per program and of program runs per turn."""
        rule = self.workload.schedule
        self.turn(rule)
        call = min(self.turn(rule) for _ in range(3))
        counts = [pool.count for pool in self._pools(rule).values() if pool.count > 1]
        calls_per_turn = max(1, round(TURN_SECONDS / max(call, 1e-7)))
        self._calls = min(calls_per_turn, self.most_calls, *counts)
        self._runs = max(1, calls_per_turn // self._calls)
        if self._calls > 1:
            self.drop(rule)

    # --- where buffers lie

    def _cache_bytes(self, host: Host) -> int:
        """Of the cache beyond which the network finds its weights."""
        return min(host.caches[-1] if host.caches else UNKNOWN_CACHE, MOST_CACHE)

    def _placed(self, content: np.ndarray) -> Buffer:
        """The bytes where kernels read and write them."""
        return content

    def _loaded(self, binary: ProgramBinary) -> Program:
        return Program(binary, self.threads)

    def _timed(self, program: Program, arrays: list[Buffer]) -> float:
        """Run the program on buffers: seconds."""
        start = self._clock()
        program.run(arrays)
        return (self._clock() - start) / 1e9

    def _clear(self, buffer: Buffer) -> None:
        buffer[:] = 0

    def _content(self, buffer: Buffer) -> bytes:
        content: bytes = buffer.tobytes()
        return content

    # --- programs

    @property
    def _written(self) -> Buffer:
        return next(self._shared[i] for i, a in enumerate(self.arguments) if a.written)

    def _array(self, i: int, argument: Argument) -> np.ndarray:
        """The buffer of argument `i`, with numbers where it is read."""
        buffer = aligned_zeros(align(self.workload.sizes[i]) + SLACK)
        if not argument.written:
            content = self._numbers(argument.dtype, len(buffer), i)
            buffer[: content.nbytes] = content.view(np.uint8)
        return buffer

    def _numbers(self, dtype: str, nbytes: int, i: int) -> np.ndarray:
        item = drawn(dtype, 1, 0).itemsize
        return drawn(dtype, nbytes // item, seed_of(f"argument {i}"))

    def _program(self, schedule: Schedule) -> _Built:
        if schedule not in self._built:
            self._built[schedule] = self._make(schedule)
        return self._built[schedule]

    def _make(self, schedule: Schedule) -> _Built:
        pools = self._pools(schedule)
        arrays, offsets = [], []
        for i, argument in enumerate(self.arguments):
            if i in pools:
                pool = pools[i]
                calls = self._calls if pool.count > 1 else 1
                arrays.append(pool.data[: pool.stride * calls])
            elif argument.scratch is not None:
                zeros = aligned_zeros(align(argument.scratch(schedule)) + SLACK)
                arrays.append(self._placed(zeros))
            else:
                arrays.append(self._shared[i])
            offsets.append(self.workload.offsets[i] if i in self._shared else 0)
        steps = [pools[i].stride if i in pools and pools[i].count > 1 else 0
                 for i in range(len(arrays))]  # fmt: skip
        calls_made: list[list[Place]] = [
            [(i, offset + n * step) for i, (offset, step) in enumerate(zip(offsets, steps))]
            for n in range(self._calls)
        ]
        spec, sizes = self.workload.spec, [len(a) for a in arrays]
        binary = calls_alone(spec, schedule, calls_made, sizes, self.target, self.threads)
        return _Built(self._loaded(binary), arrays, pools)

    def _pools(self, schedule: Schedule) -> dict[int, _Pool]:
        """All copies of what is packed, by argument; one for all schedules that pack alike."""
        key = packing_of(schedule)
        if key not in self._packed:
            self._packed[key] = {
                i: self._copied(argument.packed(schedule))
                for i, argument in enumerate(self.arguments)
                if argument.packed is not None
            }
        return self._packed[key]

    def _copied(self, packed: np.ndarray) -> _Pool:
        content = np.ascontiguousarray(packed).view(np.uint8).reshape(-1)
        stride = align(len(content) + SLACK)
        count = max(1, -(-self._reach // stride))
        pool = aligned_zeros(count * stride)
        pool.reshape(count, stride)[:, : len(content)] = content
        return _Pool(self._placed(pool), stride, count)
