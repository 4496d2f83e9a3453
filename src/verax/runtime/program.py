"""`Program`: a binary loaded into this process, ready to run."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import math
import sys
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from verax.base.machine import memory
from verax.base.machine.processor import require_runs_here
from verax.base.printing import OneLine, first_few
from verax.base.process.forks import renew_in_child
from verax.runtime.engine import load_object
from verax.runtime.execution_context import (
    ALIGNMENT,
    Clock,
    ExecutionContext,
)
from verax.runtime.open_sizes import SizedProgram
from verax.runtime.program_binary import (
    ProgramBinary,
    Signature,
)
from verax.runtime.python_steps import (
    PythonCall,
    numpy_dtype,
)
from verax.runtime.threads import ThreadPool

MOST_SIZES = 64
"""Sets of sizes whose tables a program of open sizes keeps."""
MAX_CONTEXTS = 8
"""Runs of one program at the same time."""
_programs: weakref.WeakSet[Program] = weakref.WeakSet()
_leaving = False


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
            self._require_runs_here(binary.target)
        self._python_call = python_call
        memory.require(sum(map(_bytes, binary.outputs)), "the network's outputs")
        self._sized: OrderedDict[tuple[int, ...], SizedProgram] = OrderedDict()
        self._weights = weight_table(binary)
        self._library = self._load(binary)
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

    uses_host_memory = True
    """Whether its code takes the addresses of the caller's arrays."""

    def _require_runs_here(self, target: str) -> None:
        require_runs_here(target)

    def _load(self, binary: ProgramBinary) -> Any:
        """The code, in this process."""
        return load_object(binary.object_code) if binary.object_code else None

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

    def run_on_device(self, inputs: Any, sized: SizedProgram | None = None) -> Any:
        """Of a program on a GPU, for inputs that lie there (`runtime.gpu.calls`)."""
        raise NotImplementedError

    def code_to_save(self) -> bytes:
        """The binary's code, with what was found out about it here. Raises `VeraxError`."""
        return self.binary.object_code

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
        """See `base.process.forks`. A run that was under way in another thread never ends here;
        what it computed is overwritten by the next one."""
        lost = bool(self._pools)
        self._pools.clear()  # the memory of the lost pools is the parent's to free, and is leaked
        for context in self._contexts:
            context.renew(lost)
        self._reset_free()

    def _never_free(self) -> None:
        """Keep arenas, callers' arrays and workers alive for ever: native code may use them."""
        self._finalizer.detach()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))


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


def _bytes(tensor: Signature) -> int:
    return math.prod(tensor.shape) * numpy_dtype(tensor.dtype).itemsize


def weight_table(binary: ProgramBinary) -> Any:
    """The addresses of a binary's weights, as its code takes them. The binary must outlive it."""
    arrays = [content for _, content in binary.weight_regions()]
    assert not any(a.size and a.ctypes.data % ALIGNMENT for a in arrays), "whole vectors are read"
    return (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
