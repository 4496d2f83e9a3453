"""One run's memory: an arena, the table of pointers that native code takes, and worker threads."""

from __future__ import annotations

import collections
import ctypes
import itertools
import operator
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from verax.base.arrays import address_writer
from verax.base.errors import InputError
from verax.base.machine import memory
from verax.runtime.arguments import (
    ArraySpec,
    add_outputs,
    contiguous_if_exact,
    types_of,
)
from verax.runtime.counted_sizes import CountedStage, CountsNotServedError
from verax.runtime.engine import LoadedObject
from verax.runtime.open_sizes import SizedProgram
from verax.runtime.program_binary import (
    CTX_ARENA,
    CTX_ARRAYS,
    CTX_POOL,
    CTX_WEIGHTS,
    CountedStep,
    ProgramBinary,
    Scheduled,
    Segment,
    Signature,
    SizeStep,
)
from verax.runtime.python_steps import BoundCount, BoundPython, PythonCall
from verax.runtime.threads import ThreadPool

Clock = Callable[[], int]
"""Nanoseconds since some time."""
ALIGNMENT = 64
"""Bytes: of arenas and weights."""


def aligned_zeros(nbytes: int) -> np.ndarray:
    """Zeroed uint8 array on a 64-byte boundary; its pages are touched only when used.

    Raises `InputError` when so much memory cannot be had, or is more than the limit.
    """
    memory.require(nbytes, "what the network computes in between")
    try:
        raw = np.zeros(nbytes + ALIGNMENT, np.uint8)
    except (MemoryError, ValueError) as error:
        raise InputError(
            f"the network needs {nbytes / 2**30:.3g} GiB for intermediate values",
            next_step="run it on smaller inputs",
        ) from error
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes]


def _zeros_with_room(nbytes: int) -> np.ndarray:
    """As `aligned_zeros`; if there is memory, larger by a quarter, so that what kernels count
    seldom makes it grow."""
    try:
        return aligned_zeros(nbytes + nbytes // 4)
    except InputError:
        return aligned_zeros(nbytes)


class ExecutionContext:
    """One run's memory: an arena, the table of pointers that the code takes, and worker threads."""

    def __init__(
        self,
        binary: ProgramBinary,
        weights: Any,
        library: LoadedObject | None,
        pools: list[ThreadPool],
        python_call: PythonCall | None,
        threads: int,
    ) -> None:
        """weights: as `weight_table` gives it. pools: the thread pool of this context is appended
        to it."""
        self.binary, self._library, self._pools = binary, library, pools
        self._weights, self._python_call = weights, python_call
        self._input_specs, self._output_specs = types_of(binary.inputs), types_of(binary.outputs)
        self._sized: SizedProgram | None = None
        self.kept_bytes = binary.kept_bytes
        open_sizes = binary.open_sizes
        self._lacks_sizes = open_sizes is not None
        counted_count = 0 if open_sizes is None else len(open_sizes.counted)
        self._table = np.zeros(0, np.int64)
        self._sizes = [0] * (0 if open_sizes is None else open_sizes.size_count)
        self._ends = [0] * (counted_count + 1)  # of the arena, with so many counts; -1: not yet
        self._zeros: list[list[tuple[int, int]]] = [[] for _ in range(counted_count)]
        status_bytes = 4 * len(binary.checks)
        self.arena = aligned_zeros(max(binary.arena_bytes, status_bytes))
        self._pool_is_lost = False
        self.pool_handle: int | None = None
        self._in_flight: Any = ()
        self._input_count = len(binary.inputs)
        count = len(binary.inputs) + len(binary.outputs)
        self._table_slot = CTX_ARRAYS + count
        self.pointers = (ctypes.c_void_p * (self._table_slot + 1))()
        self.pointers[CTX_ARENA] = self.arena.ctypes.data
        self.pointers[CTX_WEIGHTS] = ctypes.addressof(weights)
        self._write_addresses = address_writer(self.pointers, range(CTX_ARRAYS, CTX_ARRAYS + count))
        self._checks = binary.checks
        self._status = self.arena[: 4 * len(binary.checks)].data
        self._passed = bytes(len(self._status))
        self._schedule = [self._bind(step) for step in binary.schedule]
        self.is_native = all(isinstance(step, Segment | SizeStep) for step in binary.schedule)
        self._argument = ctypes.byref(self.pointers)
        self.start_workers(threads)

    def use(self, sized: SizedProgram) -> None:
        """Have the arena and the table for these sizes."""
        if self._sized is sized:
            return
        self._sized, self._lacks_sizes = None, True
        counted_sizes = self.binary.open_sizes is not None and self.binary.open_sizes.counted
        if sized.arena_bytes > self.arena.nbytes:
            make = _zeros_with_room if counted_sizes else aligned_zeros
            self.arena = make(sized.arena_bytes)
        else:
            self.arena[len(self._passed) : sized.kept_bytes] = 0
        # Outside of the branch: Ctrl-C may have come behind a new arena.
        self.pointers[CTX_ARENA] = self.arena.ctypes.data
        self._status = self.arena[: len(self._passed)].data
        self.kept_bytes = max(sized.kept_bytes, len(self._passed))
        self._input_specs = with_shapes(self.binary.inputs, sized.inputs)
        self._output_specs = with_shapes(self.binary.outputs, sized.outputs)
        self._table = sized.table
        if counted_sizes:
            self._table = sized.table.copy()  # kernels' counts go there
            self._sizes[:] = [*sized.sizes, *[0] * (len(self._sizes) - len(sized.sizes))]
            self._ends[:] = [sized.arena_bytes, *[-1] * len(counted_sizes)]
        self.pointers[self._table_slot] = self._table.ctypes.data
        self._sized, self._lacks_sizes = sized, False

    def _reserve(self, nbytes: int) -> None:
        """Have an arena of so many bytes that holds what this one does."""
        if nbytes > self.arena.nbytes:
            larger = _zeros_with_room(nbytes)
            larger[: self.arena.nbytes] = self.arena
            self.arena = larger
            self.pointers[CTX_ARENA] = larger.ctypes.data
            self._status = larger[: len(self._passed)].data

    def _count(self, index: int, stage: CountedStage) -> None:
        """What kernels counted becomes a size, and what follows from it is placed and allocated.

        Raises `CountsNotServedError` where the code that follows is not for such a count.
        """
        sizes, table, counted = self._sizes, self._table, stage.counted
        try:
            limit = stage.limit(sizes)
        except ArithmeticError as error:
            raise CountsNotServedError(self._counts(index)) from error
        at = int(table[counted.entry])
        count = 0
        if limit > 0:
            count = min(max(int(self.arena[at : at + 8].view(np.int64)[0]), 0), limit)
        if self._ends[index + 1] < 0 or sizes[counted.symbol] != count:
            sizes[counted.symbol] = count
            self._ends[index + 1 :] = [-1] * (len(self._ends) - index - 1)
            if not stage.holds(sizes):
                raise CountsNotServedError(self._counts(index + 1))
            try:
                values, end, self._zeros[index] = stage.layout(sizes, self._ends[index])
                self._reserve(end)
                table[stage.entries] = values
            except ArithmeticError as error:
                raise CountsNotServedError(self._counts(index + 1)) from error
            table[counted.symbol] = count
            self._ends[index + 1] = end
        for start, nbytes in self._zeros[index]:
            self.arena[start : start + nbytes] = 0
        for slot, shape in zip(stage.outputs, stage.shapes(sizes), strict=True):
            name, _, dtype = self._output_specs[slot]
            arrays: list[np.ndarray] = []
            add_outputs(arrays, [(name, shape, dtype)])
            (array,) = arrays
            self._in_flight[self._input_count + slot] = array
            self.pointers[CTX_ARRAYS + self._input_count + slot] = array.ctypes.data

    def _counts(self, index: int) -> dict[str, int]:
        """The first counts by the network's names."""
        assert self.binary.open_sizes is not None
        counted = self.binary.open_sizes.counted[:index]
        return {c.name: self._sizes[c.symbol] for c in counted}

    @property
    def output_specs(self) -> list[ArraySpec]:
        """Names, shapes and dtypes of the outputs, for the sizes that it is used for."""
        return self._output_specs

    def start_workers(self, threads: int) -> None:
        """A pool wherever the code asks for one, if only of the caller: code in older files
        cannot do without."""
        self._threads = threads
        if self.binary.pool and self._library:
            pool = ThreadPool(self._library, threads)
            self._pools.append(pool)
            self.pool_handle = self.pointers[CTX_POOL] = pool.handle

    def renew(self, pool_is_lost: bool) -> None:
        """In a forked child: nothing runs here; workers are started when they are needed."""
        self._status[:] = self._passed
        self._in_flight = ()
        self._pool_is_lost = pool_is_lost

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """As `Program.run`, here."""
        return self._run([a if a.flags.c_contiguous else np.ascontiguousarray(a) for a in arrays])

    def run_in_place(
        self, arrays: list[np.ndarray], reused: Sequence[np.ndarray | None]
    ) -> list[np.ndarray]:
        """As `run` of native code, for contiguous arrays. reused: by output the array in which it
        is made; the others are allocated, and given back."""
        new: list[np.ndarray] = []
        add_outputs(new, [s for s, k in zip(self._output_specs, reused, strict=True) if k is None])
        remaining = iter(new)
        arrays += [next(remaining) if array is None else array for array in reused]
        self._write_addresses(arrays)
        self.start_lost_workers()
        self.run_prepared(self._argument, arrays)
        return new

    def run_if_exact(self, values: Mapping[str, Any]) -> list[np.ndarray] | None:
        """As `Program.run_if_exact`, here."""
        if len(values) != self._input_count or self._lacks_sizes:
            return None
        callers = contiguous_if_exact(values, self._input_specs)
        return None if callers is None else self._run(callers)

    def _run(self, callers: list[np.ndarray]) -> list[np.ndarray]:
        """Outputs for inputs that are contiguous, to which they are added."""
        self._set_pointers(callers)
        if self.is_native:
            try:
                self.run_prepared(self._argument, callers)
            except CountsNotServedError:
                self._in_flight = ()
                self._status[:] = self._passed
                raise
            return callers[self._input_count :]
        outputs = self._run_steps(callers)
        self._finish()
        return outputs

    def run_prepared(self, argument: Any, arrays: Sequence[np.ndarray]) -> None:
        """Run native code on a table of addresses like `context`, by reference.

        arrays: that the table refers to; they are kept until the code is done. Raises `InputError`
        when a check of the network fails.
        """
        self._in_flight = arrays
        # No bytecode runs in between, so that Ctrl-C cannot leave state half written in place.
        collections.deque(map(operator.call, self._schedule, itertools.repeat(argument)), 0)
        self._in_flight = ()
        if self._checks and self._status != self._passed:
            self._raise_failed()

    def _finish(self) -> None:
        self._in_flight = ()
        if self._checks and self._status != self._passed:
            self._raise_failed()

    def _raise_failed(self) -> NoReturn:
        """The error of the first check that the last run did not pass."""
        failed = self._checks[int(np.frombuffer(self._status, np.int32).argmax())]
        self._status[:] = self._passed
        cause, _, location = failed.rpartition("\n")
        raise InputError(cause or "an index lies outside of the tensor it indexes", place=location)

    def _run_steps(self, callers: list[np.ndarray]) -> list[np.ndarray]:
        """Outputs of a network that has steps in Python."""
        values: dict[str, np.ndarray] = {}
        for step in self._schedule:
            self._execute(step, values, callers)
        outputs = callers[self._input_count :]
        if self.binary.python_outputs:
            return [values.get(n, o) for n, o in zip(self.binary.python_outputs, outputs)]
        return outputs

    def time_steps(
        self, arrays: Sequence[np.ndarray], runs: int, clock: Clock, chunk_count: int
    ) -> list[list[int]]:
        """As `Program.time_steps`, here."""
        times: list[list[int]] = []
        callers = [a if a.flags.c_contiguous else np.ascontiguousarray(a) for a in arrays]
        self._set_pointers(callers)
        for _ in range(runs):
            values: dict[str, np.ndarray] = {}
            elapsed = [0] * len(self._schedule)
            for chunk in range(chunk_count):
                for i, array in enumerate(callers, CTX_ARRAYS):
                    self.pointers[i] = array.ctypes.data + chunk * (array.nbytes // chunk_count)
                for i, step in enumerate(self._schedule):
                    start = clock()
                    self._execute(step, values, callers)
                    elapsed[i] += clock() - start
            times.append(elapsed)
        self._in_flight = ()
        return times

    def _set_pointers(self, callers: list[np.ndarray]) -> None:
        """Add new outputs to the caller's inputs; the addresses of all go into the context."""
        add_outputs(callers, self._output_specs)
        self._write_addresses(callers)
        self.start_lost_workers()
        self._in_flight = callers

    def start_lost_workers(self) -> None:
        """In a forked child, those that a program of its parent had."""
        if self._pool_is_lost:
            self.start_workers(self._threads)
            self._pool_is_lost = False

    def _execute(
        self, step: Any, values: dict[str, np.ndarray], callers: Sequence[np.ndarray]
    ) -> None:
        if isinstance(step, BoundPython | BoundCount):
            step(values, callers)
        else:
            step(self._argument)

    def _bind(self, step: Scheduled) -> Any:
        if isinstance(step, SizeStep):
            assert self.binary.open_sizes is not None
            stage = CountedStage(self.binary.open_sizes, step.counted + 1)
            return _count_in(weakref.ref(self), step.counted, stage)
        if isinstance(step, CountedStep):
            return BoundCount(step, self.arena)
        if isinstance(step, Segment):
            assert self._library is not None
            # Its argument is made once (`byref`); a declared one would be converted every time.
            return ctypes.CFUNCTYPE(None)(self._library.address(step.function))
        assert self._python_call is not None
        return BoundPython(step, self._python_call, self.arena, self.binary.weight_regions())


def _count_in(
    context: weakref.ref[ExecutionContext], index: int, stage: CountedStage
) -> Callable[[Any], None]:
    """A step that counts. It does not hold its context: whether anybody uses one is told by the
    number of references to it (`Program`)."""

    def count(argument: Any) -> None:
        running = context()
        assert running is not None
        running._count(index, stage)

    return count


def with_shapes(
    signatures: Sequence[Signature], shapes: Sequence[tuple[int, ...]]
) -> list[ArraySpec]:
    """The types of arrays, for one set of open sizes."""
    return [
        (name, shape, dtype)
        for (name, _, dtype), shape in zip(types_of(signatures), shapes, strict=True)
    ]
