"""`Program`: a binary loaded into this process, ready to run."""

from __future__ import annotations

import atexit
import collections
import contextlib
import ctypes
import itertools
import math
import operator
import sys
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from verax.base import memory
from verax.base.arrays import address_writer
from verax.base.errors import InputError
from verax.base.forks import renew_in_child
from verax.base.printing import OneLine, first_few
from verax.base.processor import require_runs_here
from verax.runtime.arguments import ArraySpec, add_outputs, contiguous_if_exact, types_of
from verax.runtime.engine import LoadedObject, load_object
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
)
from verax.runtime.python_steps import (
    BoundCount,
    BoundPython,
    PythonCall,
    numpy_dtype,
)
from verax.runtime.threads import ThreadPool

Clock = Callable[[], int]
"""Nanoseconds since some time."""
_ALIGNMENT = 64
MOST_SIZES = 64
"""Sets of sizes whose tables a program of open sizes keeps."""
MAX_CONTEXTS = 8
"""Runs of one program at the same time."""
_programs: weakref.WeakSet[Program] = weakref.WeakSet()
_leaving = False


def aligned_zeros(nbytes: int) -> np.ndarray:
    """Zeroed uint8 array on a 64-byte boundary; its pages are touched only when used.

    Raises `InputError` when so much memory cannot be had, or is more than the limit.
    """
    memory.require(nbytes, "what the network computes in between")
    try:
        raw = np.zeros(nbytes + _ALIGNMENT, np.uint8)
    except (MemoryError, ValueError) as error:
        raise InputError(
            f"the network needs {nbytes / 2**30:.3g} GiB for intermediate values",
            next_step="run it on smaller inputs",
        ) from error
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + nbytes]


class Program(OneLine):
    """Runs an `ProgramBinary`. Callers in several threads run side by side, each in an arena of its
    own.

    The first has the worker threads; whoever comes while it runs computes in his own thread. At
    most `MOST_ARENAS` run at once, further callers wait.
    """

    def __init__(
        self, binary: ProgramBinary, threads: int = 1, python_call: PythonCall | None = None
    ) -> None:
        """Load the code, allocate an arena, start `threads - 1` parked workers if it can use any.

        python_call(node, arrays) -> arrays evaluates a node that has no kernel. Raises
        `CompileError` for code that this processor does not run.
        """
        self.binary = binary
        if binary.object_code:
            require_runs_here(binary.target)
        self._python_call = python_call
        memory.require(sum(map(_bytes, binary.outputs)), "the network's outputs")
        self._sized: OrderedDict[tuple[int, ...], SizedProgram] = OrderedDict()
        self._weights = weight_table(binary)
        self._library = load_object(binary.object_code) if binary.object_code else None
        self._pools: list[ThreadPool] = []
        self._first = self._new_context(threads)
        self._contexts = [self._first]
        self._reset_free()
        self._finalizer = weakref.finalize(self, _close_all, self._pools)
        self._finalizer.atexit = False
        renew_in_child(self)
        _programs.add(self)
        if _leaving:
            self._never_free()

    def _brief(self) -> str:
        inputs = first_few(s.name for s in self.binary.inputs) or "no input"
        outputs = first_few(s.name for s in self.binary.outputs) or "no output"
        return f"{len(self.binary.schedule)} entries; {inputs} -> {outputs}"

    def _new_context(self, threads: int) -> ExecutionContext:
        call, library = self._python_call, self._library
        return ExecutionContext(self.binary, self._weights, library, self._pools, call, threads)

    def _reset_free(self) -> None:
        self._lock = threading.Lock()
        self._released, self._waiting = threading.Condition(self._lock), 0
        self._free = list(reversed(self._contexts))

    def acquire(self) -> ExecutionContext:
        """A context for the caller alone, until `release`: the first if it is free."""
        try:
            return self._free.pop()
        except IndexError:
            return self._acquire_new()

    def _acquire_new(self) -> ExecutionContext:
        """A context when none is free: a new one, or the next that is released."""
        with self._lock:
            self._reclaim_lost()
            with contextlib.suppress(IndexError):
                return self._free.pop()
            if len(self._contexts) < MAX_CONTEXTS:
                self._contexts.append(self._new_context(1))
                return self._contexts[-1]
            return self._wait()

    def _reclaim_lost(self) -> None:
        """Free contexts whose users were interrupted (Ctrl-C) before `acquire` returned.

        Who uses a context holds a reference to it; one that only this program refers to is
        unused. Without the interpreter's lock references are not counted, and it stays lost.
        """
        if getattr(sys, "_is_gil_enabled", lambda: True)():
            (unused_count,) = _references([object()])
            for i, count in enumerate(_references(self._contexts)):
                if count == unused_count + (i == 0):  # the first has a name, too
                    self._add_free(self._contexts[i])

    def _wait(self) -> ExecutionContext:
        """The next context that is released; the caller holds the lock.

        `acquire` and `release` do not take the lock. `release` looks for waiting threads after it
        has freed the context, and these count themselves before they look for one: no release is
        missed.
        """
        self._waiting += 1
        try:
            while True:
                with contextlib.suppress(IndexError):
                    return self._free.pop()
                self._released.wait()
        finally:
            self._waiting -= 1

    def release(self, context: ExecutionContext) -> None:
        self._add_free(context)
        if self._waiting:
            self._notify_waiting()

    def _notify_waiting(self) -> None:
        with self._lock:
            self._released.notify_all()

    def _add_free(self, context: ExecutionContext) -> None:
        """Add to the free contexts, the first (which has the workers) so that it is acquired
        next."""
        if context is self._first:
            self._free.append(context)
        else:
            self._free.insert(0, context)

    @property
    def is_native(self) -> bool:
        """Whether it can run here without a step in Python."""
        return self._first.is_native

    def sized(self, sizes: tuple[int, ...]) -> SizedProgram:
        """What a program of open sizes is for these, which it has to serve."""
        assert self.binary.open_sizes is not None
        with self._lock:
            if sizes not in self._sized:
                self._sized[sizes] = self.binary.open_sizes.at(sizes)
                if len(self._sized) > MOST_SIZES:
                    self._sized.popitem(last=False)
            self._sized.move_to_end(sizes)
            return self._sized[sizes]

    def run(
        self, arrays: Sequence[np.ndarray], sized: SizedProgram | None = None
    ) -> list[np.ndarray]:
        """Outputs for inputs in the binary's order; shapes and dtypes are already checked.

        sized: of a program of open sizes. Raises `InputError` when an index computed by the network
        lies outside its tensor, or there is no memory for another arena.
        """
        context = self.acquire()
        try:
            if sized is not None:
                context.use(sized)
            return context.run(arrays)
        finally:
            self.release(context)

    def run_if_exact(self, values: Mapping[str, Any]) -> list[np.ndarray] | None:
        """As `run`, by name; None unless `values` are arrays of exactly the input names, shapes and
        dtypes, which the caller then has to check."""
        try:
            context = self._free.pop()
        except IndexError:
            context = self._acquire_new()
        try:
            return context.run_if_exact(values)
        finally:
            if context is self._first:
                self._free.append(context)
            else:
                self._free.insert(0, context)
            if self._waiting:
                self._notify_waiting()

    def poison(self, fill: int) -> None:
        """Fill every byte of the arenas that holds nothing between runs with `fill` (0 to 255).

        A right program gives the same bits afterwards: it reads nothing that it did not write.
        """
        with self._lock:
            for context in self._free:
                context.arena[context.kept_bytes :] = fill

    def time_steps(
        self,
        arrays: Sequence[np.ndarray],
        runs: int,
        clock: Clock = time.perf_counter_ns,
        chunk_count: int = 1,
    ) -> list[list[int]]:
        """Nanoseconds of every schedule entry, per run; for images of separate kernel calls.

        chunk_count: the batch is run in so many equal slices, every entry for each.
        """
        context = self.acquire()
        try:
            return context.time_steps(arrays, runs, clock, chunk_count)
        finally:
            self.release(context)

    def close(self) -> None:
        """Stop the worker threads; later runs do everything in the caller's."""
        with self._lock:
            acquired: list[ExecutionContext] = []
            while len(acquired) < len(self._contexts):
                acquired.append(self._wait())
            _close_all(self._pools)
            for context in acquired:
                context.start_workers(1)
                self._add_free(context)
            self._released.notify_all()

    def renew_in_child(self) -> None:
        """See `base.forks`. A run that was under way in another thread never ends here; what it
        computed is overwritten by the next one."""
        lost = bool(self._pools)
        self._pools.clear()  # the memory of the lost pools is the parent's to free, and is leaked
        for context in self._contexts:
            context.renew(lost)
        self._reset_free()

    def _never_free(self) -> None:
        """Keep arenas, callers' arrays and workers alive for ever: native code may use them."""
        self._finalizer.detach()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))


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
        status_bytes = 4 * len(binary.checks)
        self.arena = aligned_zeros(max(binary.arena_bytes, status_bytes))
        self._pool_is_lost = False
        self.pool_handle: int | None = None
        self._in_flight: Sequence[np.ndarray] = ()
        self._count = len(binary.inputs)
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
        self.is_native = all(isinstance(step, Segment) for step in binary.schedule)
        self._argument = ctypes.byref(self.pointers)
        self.start_workers(threads)

    def use(self, sized: SizedProgram) -> None:
        """Have the arena and the table for these sizes."""
        if self._sized is sized:
            return
        self._sized = None
        if sized.arena_bytes > self.arena.nbytes:
            self.arena = aligned_zeros(sized.arena_bytes)
            self.pointers[CTX_ARENA] = self.arena.ctypes.data
            self._status = self.arena[: len(self._passed)].data
        else:
            self.arena[len(self._passed) : sized.kept_bytes] = 0
        self.kept_bytes = max(sized.kept_bytes, len(self._passed))
        self._input_specs = _with_shapes(self.binary.inputs, sized.inputs)
        self._output_specs = _with_shapes(self.binary.outputs, sized.outputs)
        self.pointers[self._table_slot] = sized.table.ctypes.data
        self._sized = sized

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

    def run_if_exact(self, values: Mapping[str, Any]) -> list[np.ndarray] | None:
        """As `Program.run_if_exact`, here."""
        if len(values) != self._count:
            return None
        callers = contiguous_if_exact(values, self._input_specs)
        return None if callers is None else self._run(callers)

    def _run(self, callers: list[np.ndarray]) -> list[np.ndarray]:
        """Outputs for inputs that are contiguous, to which they are added."""
        self._set_pointers(callers)
        if self.is_native:
            self.run_prepared(self._argument, callers)
            return callers[self._count :]
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
        outputs = callers[self._count :]
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
        if isinstance(step, CountedStep):
            return BoundCount(step, self.arena)
        if isinstance(step, Segment):
            assert self._library is not None
            # Its argument is made once (`byref`); a declared one would be converted every time.
            return ctypes.CFUNCTYPE(None)(self._library.address(step.function))
        assert self._python_call is not None
        return BoundPython(step, self._python_call, self.arena, self.binary.weight_regions())


def _references(objects: Sequence[object]) -> list[int]:
    """Reference counts of `objects`, those of the sequence and of this function included."""
    return [sys.getrefcount(one) for one in objects]


def _close_all(pools: list[ThreadPool]) -> None:
    while pools:
        pools.pop().close()


@atexit.register
def _keep_programs() -> None:
    """Keep all programs alive at exit: daemon threads may still be in native code, while the
    interpreter drops their frames and the arrays in them."""
    global _leaving
    _leaving = True
    for program in list(_programs):
        program._never_free()


def _with_shapes(
    signatures: Sequence[Signature], shapes: Sequence[tuple[int, ...]]
) -> list[ArraySpec]:
    return [
        (name, shape, dtype)
        for (name, _, dtype), shape in zip(types_of(signatures), shapes, strict=True)
    ]


def _bytes(tensor: Signature) -> int:
    return math.prod(tensor.shape) * numpy_dtype(tensor.dtype).itemsize


def weight_table(binary: ProgramBinary) -> Any:
    """The addresses of a binary's weights, as its code takes them. The binary must outlive it."""
    arrays = [content for _, content in binary.weight_regions()]
    assert not any(a.size and a.ctypes.data % _ALIGNMENT for a in arrays), "whole vectors are read"
    return (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
