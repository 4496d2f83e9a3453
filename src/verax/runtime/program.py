"""`Program`: an image loaded into this process, ready to run."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import math
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from verax.base import memory
from verax.base.arrays import address_writer
from verax.base.errors import InputError
from verax.base.forks import renew_in_child
from verax.base.printing import OneLine, first_few
from verax.base.processor import require_runs_here
from verax.runtime.arguments import add_outputs, contiguous_if_taken, types_of
from verax.runtime.engine import LoadedObject, load_object
from verax.runtime.image import (
    CTX_ARENA,
    CTX_ARRAYS,
    CTX_POOL,
    CTX_WEIGHTS,
    CountedStep,
    Image,
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
MOST_ARENAS = 8
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
    """Runs an `Image`. Callers in several threads run side by side, each in an arena of its own.

    The first has the worker threads; whoever comes while it runs computes in his own thread. At
    most `MOST_ARENAS` run at once, further callers wait.
    """

    def __init__(
        self, image: Image, threads: int = 1, python_call: PythonCall | None = None
    ) -> None:
        """Load the code, allocate an arena, start `threads - 1` parked workers if it can use any.

        python_call(node, arrays) -> arrays evaluates a node that has no kernel. Raises
        `CompileError` for code that this processor does not run.
        """
        self.image = image
        if image.object_code:
            require_runs_here(image.target)
        self._python_call = python_call
        memory.require(sum(map(_bytes, image.outputs)), "the network's outputs")
        self._weights = _aligned(image.weights)
        self._library = load_object(image.object_code) if image.object_code else None
        self._pools: list[ThreadPool] = []
        self._first = self._new_place(threads)
        self._places = [self._first]
        self._new_turns()
        self._finalizer = weakref.finalize(self, _close_all, self._pools)
        self._finalizer.atexit = False
        renew_in_child(self)
        _programs.add(self)
        if _leaving:
            self._keep_for_ever()

    def _brief(self) -> str:
        inputs = first_few(s.name for s in self.image.inputs) or "no input"
        outputs = first_few(s.name for s in self.image.outputs) or "no output"
        return f"{len(self.image.schedule)} entries; {inputs} -> {outputs}"

    def _new_place(self, threads: int) -> Place:
        call, library = self._python_call, self._library
        return Place(self.image, self._weights, library, self._pools, call, threads)

    def _new_turns(self) -> None:
        self._lock = threading.Lock()
        self._given_back, self._waiting = threading.Condition(self._lock), 0
        self._free = list(reversed(self._places))

    def take(self) -> Place:
        """An arena that nobody else uses meanwhile: the first if it is free."""
        try:
            return self._free.pop()
        except IndexError:
            return self._another()

    def _another(self) -> Place:
        """An arena when none is free."""
        with self._lock:
            self._find_lost()
            with contextlib.suppress(IndexError):
                return self._free.pop()
            if len(self._places) < MOST_ARENAS:
                self._places.append(self._new_place(1))
                return self._places[-1]
            return self._wait()

    def _find_lost(self) -> None:
        """Lay down arenas whose takers were interrupted (Ctrl-C) before they knew what they had.

        Whoever uses an arena refers to it; one that only this program knows is nobody's. Where
        threads count references without the interpreter's lock, it stays lost.
        """
        if getattr(sys, "_is_gil_enabled", lambda: True)():
            (known,) = _references([object()])
            for i, count in enumerate(_references(self._places)):
                if count == known + (i == 0):  # the first has a name, too
                    self._lay_down(self._places[i])

    def _wait(self) -> Place:
        """An arena as soon as one is free; the lock is held.

        Arenas are taken and given back without it. Whoever gives one back looks for those who wait
        after it lies there, and they count themselves before they look for it: one sees the other.
        """
        self._waiting += 1
        try:
            while True:
                with contextlib.suppress(IndexError):
                    return self._free.pop()
                self._given_back.wait()
        finally:
            self._waiting -= 1

    def give_back(self, place: Place) -> None:
        self._lay_down(place)
        if self._waiting:
            self._tell_waiting()

    def _tell_waiting(self) -> None:
        with self._lock:
            self._given_back.notify_all()

    def _lay_down(self, place: Place) -> None:
        """Among the free ones: the first is taken before others."""
        if place is self._first:
            self._free.append(place)
        else:
            self._free.insert(0, place)

    @property
    def is_native(self) -> bool:
        """Whether it can run here without a step in Python."""
        return self._first.is_native

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Outputs for inputs in the image's order; shapes and dtypes are already checked.

        Raises `InputError` when an index computed by the network lies outside its tensor, or there
        is no memory for another arena.
        """
        place = self.take()
        try:
            return place.run(arrays)
        finally:
            self.give_back(place)

    def run_if_taken(self, values: Mapping[str, Any]) -> list[np.ndarray] | None:
        """As `run`, by name; None unless the values are arrays of exactly the types that it takes
        and no others, and whoever asked finds out what is to be done."""
        try:
            place = self._free.pop()
        except IndexError:
            place = self._another()
        try:
            return place.run_if_taken(values)
        finally:
            if place is self._first:
                self._free.append(place)
            else:
                self._free.insert(0, place)
            if self._waiting:
                self._tell_waiting()

    def poison(self, fill: int) -> None:
        """Fill every byte of the arenas that holds nothing between runs with `fill` (0 to 255).

        A right program gives the same bits afterwards: it reads nothing that it did not write.
        """
        with self._lock:
            for place in self._free:
                place.arena[self.image.kept_bytes :] = fill

    def time_steps(
        self,
        arrays: Sequence[np.ndarray],
        runs: int,
        clock: Clock = time.perf_counter_ns,
        parts: int = 1,
    ) -> list[list[int]]:
        """Nanoseconds of every schedule entry, per run; for images of separate kernel calls.

        parts: of a batch, for each of which all entries are run, one after the other.
        """
        place = self.take()
        try:
            return place.time_steps(arrays, runs, clock, parts)
        finally:
            self.give_back(place)

    def close(self) -> None:
        """Stop the worker threads; later runs do everything in the caller's."""
        with self._lock:
            held: list[Place] = []
            while len(held) < len(self._places):
                held.append(self._wait())
            _close_all(self._pools)
            for place in held:
                place.start_workers(1)
                self._lay_down(place)
            self._given_back.notify_all()

    def renew_in_child(self) -> None:
        """See `base.forks`. A run that was under way in another thread never ends here; what it
        computed is overwritten by the next one."""
        lost = bool(self._pools)
        self._pools.clear()  # the memory of the lost pools is the parent's to free, and is leaked
        for place in self._places:
            place.renew(lost)
        self._new_turns()

    def _keep_for_ever(self) -> None:
        """Never free what native code may be using: arenas, arrays of callers, workers."""
        self._finalizer.detach()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))


class Place:
    """An arena, the table of addresses that the code is given, and who works on it."""

    def __init__(
        self,
        image: Image,
        weights: np.ndarray,
        library: LoadedObject | None,
        pools: list[ThreadPool],
        python_call: PythonCall | None,
        threads: int,
    ) -> None:
        """pools: where its workers are entered, for whoever stops them."""
        self.image, self._library, self._pools = image, library, pools
        self._weights, self._python_call = weights, python_call
        self._wanted, self._made = types_of(image.inputs), types_of(image.outputs)
        self.arena = aligned_zeros(image.arena_bytes)
        self._pool_is_lost = False
        self._in_flight: Sequence[np.ndarray] = ()
        self._count = len(image.inputs)
        count = len(image.inputs) + len(image.outputs)
        self.context = (ctypes.c_void_p * (CTX_ARRAYS + count))()
        self.context[CTX_ARENA] = self.arena.ctypes.data
        self.context[CTX_WEIGHTS] = weights.ctypes.data
        self._write_addresses = address_writer(self.context, range(CTX_ARRAYS, CTX_ARRAYS + count))
        self._checks = image.checks
        self._status = self.arena[: 4 * len(image.checks)].data
        self._passed = bytes(len(self._status))
        self._schedule = [self._bind(step) for step in image.schedule]
        self.is_native = all(isinstance(step, Segment) for step in image.schedule)
        self._argument = ctypes.byref(self.context)
        self.start_workers(threads)

    def start_workers(self, threads: int) -> None:
        """A pool wherever the code asks for one, if only of the caller: code in older files
        cannot do without."""
        self._threads = threads
        if self.image.pool and self._library:
            pool = ThreadPool(self._library, threads)
            self._pools.append(pool)
            self.context[CTX_POOL] = pool.handle

    def renew(self, pool_is_lost: bool) -> None:
        """In a forked child: nothing runs here; workers are started when they are needed."""
        self._status[:] = self._passed
        self._in_flight = ()
        self._pool_is_lost = pool_is_lost

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """As `Program.run`, here."""
        return self._run([a if a.flags.c_contiguous else np.ascontiguousarray(a) for a in arrays])

    def run_if_taken(self, values: Mapping[str, Any]) -> list[np.ndarray] | None:
        """As `Program.run_if_taken`, here."""
        callers = contiguous_if_taken(values, self._wanted)
        return None if callers is None else self._run(callers)

    def _run(self, callers: list[np.ndarray]) -> list[np.ndarray]:
        """Outputs for inputs that are contiguous, to which they are added."""
        self._hand_over(callers)
        if self.is_native:
            self.run_prepared(self._argument, callers)
            return callers[self._count :]
        outputs = self._run_steps(callers)
        self._end()
        return outputs

    def run_prepared(self, argument: Any, arrays: Sequence[np.ndarray]) -> None:
        """Run native code on a table of addresses like `context`, by reference.

        arrays: that the table refers to; they are kept until the code is done. Raises `InputError`
        when a check of the network fails.
        """
        self._in_flight = arrays
        for step in self._schedule:
            step(argument)
        self._end()

    def _end(self) -> None:
        self._in_flight = ()
        if self._checks and self._status != self._passed:
            self._raise_failed()

    def _raise_failed(self) -> NoReturn:
        """The error of the first check that the last run did not pass."""
        failed = self._checks[int(np.frombuffer(self._status, np.int32).argmax())]
        self._status[:] = self._passed
        cause, _, place = failed.rpartition("\n")
        raise InputError(cause or "an index lies outside of the tensor it indexes", place=place)

    def _run_steps(self, callers: list[np.ndarray]) -> list[np.ndarray]:
        """Outputs of a network that has steps in Python."""
        values: dict[str, np.ndarray] = {}
        for step in self._schedule:
            self._execute(step, values, callers)
        outputs = callers[self._count :]
        if self.image.python_outputs:
            return [values.get(n, o) for n, o in zip(self.image.python_outputs, outputs)]
        return outputs

    def time_steps(
        self, arrays: Sequence[np.ndarray], runs: int, clock: Clock, parts: int
    ) -> list[list[int]]:
        """As `Program.time_steps`, here."""
        times: list[list[int]] = []
        callers = [a if a.flags.c_contiguous else np.ascontiguousarray(a) for a in arrays]
        self._hand_over(callers)
        for _ in range(runs):
            values: dict[str, np.ndarray] = {}
            taken = [0] * len(self._schedule)
            for part in range(parts):
                for i, array in enumerate(callers, CTX_ARRAYS):
                    self.context[i] = array.ctypes.data + part * (array.nbytes // parts)
                for i, step in enumerate(self._schedule):
                    start = clock()
                    self._execute(step, values, callers)
                    taken[i] += clock() - start
            times.append(taken)
        self._in_flight = ()
        return times

    def _hand_over(self, callers: list[np.ndarray]) -> None:
        """Add new outputs to the caller's inputs; the addresses of all go into the context."""
        add_outputs(callers, self._made)
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
        return BoundPython(step, self._python_call, self.arena, self._weights)


def _references(found: Sequence[object]) -> list[int]:
    """How often each is referred to, by that sequence and by this function among others."""
    return [sys.getrefcount(one) for one in found]


def _close_all(pools: list[ThreadPool]) -> None:
    while pools:
        pools.pop().close()


@atexit.register
def _leave() -> None:
    """The interpreter ends, and daemon threads may be in native code: it drops their frames, and
    with them arrays, while they go on. So programs stay as they are until the process is gone."""
    global _leaving
    _leaving = True
    for program in list(_programs):
        program._keep_for_ever()


def _bytes(tensor: Signature) -> int:
    return math.prod(tensor.shape) * numpy_dtype(tensor.dtype).itemsize


def _aligned(weights: np.ndarray) -> np.ndarray:
    if weights.ctypes.data % _ALIGNMENT == 0:
        return weights
    copy = aligned_zeros(weights.nbytes)
    copy[:] = weights
    return copy
