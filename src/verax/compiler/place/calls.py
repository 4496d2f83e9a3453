"""Kernel calls as data, and `Calls`, which records them in order.

What is computed how is the plan's; a call that was planned has a kernel, so recording cannot fail.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from verax.compiler.kernels.gpu import families  # noqa: F401  (registers those of GPUs)
from verax.compiler.kernels.loops.loop import LoopSpec
from verax.compiler.kernels.registry import Schedule, Spec, refusal, schedules, with_known_sizes
from verax.compiler.kernels.sizes import Size, entries, with_sizes
from verax.compiler.kernels.target import Target
from verax.compiler.place.copies import copies
from verax.compiler.place.memory import align
from verax.compiler.place.size_table import SizeTable
from verax.compiler.place.storage import Buffer, MemorySpace, Physical, Placed, Pointer
from verax.ir.assumptions import (
    NotOpenError,
    assumed_sizes,
    assuming,
    assumptions,
    require_nonzero,
    while_there_are,
)
from verax.ir.types import DType, TensorType
from verax.numerics.expr import Expr


@dataclasses.dataclass(frozen=True)
class KernelCall:
    """One call of a kernel, as data: what it computes, how, and its pointers in the order that the
    spec documents. The kernel is written when all calls are known. elements: numbers of elements
    that data decide: it does nothing where one of them is 0."""

    spec: Spec
    schedule: Schedule
    args: tuple[Pointer, ...]
    label: str
    elements: tuple[Size, ...] = ()


@dataclasses.dataclass(frozen=True)
class Dynamic:
    """A value whose shape only running can tell; it lives in Python."""

    name: str
    type: TensorType


@dataclasses.dataclass(frozen=True)
class ReferenceCall:
    """A node evaluated by its meaning, in Python."""

    node: int
    inputs: tuple[Placed | Dynamic | None, ...]
    outputs: tuple[Placed | Dynamic, ...]
    label: str
    reason: str


@dataclasses.dataclass(frozen=True)
class CountedCall:
    """The first rows along an axis of an array that kernels wrote, as many as they counted, as a
    value in Python."""

    rows: Placed
    count: Placed
    output: Dynamic
    label: str
    axis: int = 0


@dataclasses.dataclass(frozen=True)
class SizeCall:
    """The count that kernels wrote, at most `limit`, becomes the size called `symbol`, with all
    that follows from it."""

    symbol: str
    limit: Size
    count: Placed
    label: str


@dataclasses.dataclass(frozen=True)
class BranchCall:
    """One of two lists of calls, by a bool in memory. Where nothing may be done, `then` or `orelse`
    is None and `flag` is set."""

    condition: Pointer
    then: tuple[Native, ...] | None
    orelse: tuple[Native, ...] | None
    flag: Pointer
    label: str


@dataclasses.dataclass(frozen=True)
class LoopCall:
    """Calls that are repeated: at most `limit` (int64) and `max_trips` times, as long as `going`
    (bool) is true after a run and `first` before all. `trip_index` (int64) counts the runs. `flag`
    is set when the loop is not done after `max_trips` runs."""

    limit: Pointer | None
    first: Pointer | None
    max_trips: int
    trip_index: Pointer
    going: Pointer
    body: tuple[Native, ...]
    flag: Pointer
    label: str


@dataclasses.dataclass(frozen=True)
class RepeatCall:
    """Calls that are repeated so many times, where that depends on open sizes; pointers with a step
    go on by it."""

    times: Size
    body: tuple[KernelCall, ...]
    label: str


Native = KernelCall | BranchCall | LoopCall | RepeatCall
Step = Native | ReferenceCall | CountedCall | SizeCall
ScheduleOf = Callable[[Spec], Schedule | None]


class Calls:
    """The steps of a program in the order in which they run, and what its kernels check."""

    def __init__(self, target: Target, tuned: ScheduleOf | None = None) -> None:
        """tuned: the schedule that measuring found for a spec; None for those chosen by rule."""
        self.target, self._tuned = target, tuned
        assumed = assumptions()
        self.sizes = None if assumed is None else SizeTable(len(assumed.sizes))
        self.steps: list[Step] = []
        self.checks: list[str] = []
        self._status = Buffer(MemorySpace.arena, 0, offset=0)
        self._elements: Size = 1
        self._schedules: dict[Spec, Schedule] = {}

    def inside(self) -> Calls:
        """Calls of a body, whose checks are this program's."""
        inner = Calls(self.target, self._tuned)
        inner.checks, inner._status, inner.sizes = self.checks, self._status, self.sizes
        return inner

    @contextlib.contextmanager
    def making(self, elements: Size) -> Iterator[None]:
        """Calls that make so many elements, and do nothing where there are none."""
        before, self._elements = self._elements, elements
        try:
            with while_there_are(elements):
                yield
        finally:
            self._elements = before

    def schedule(self, spec: Spec) -> Schedule:
        """The schedule that a call of `spec` gets; of open sizes that of the sizes there are now,
        for a schedule serves all."""
        if spec not in self._schedules:
            self._schedules[spec] = self._choose_schedule(spec)
        return self._schedules[spec]

    def _choose_schedule(self, spec: Spec) -> Schedule:
        if self.sizes is not None and entries(spec):
            typical = with_sizes(spec, assumed_sizes())
            with assuming(None):
                return schedules(typical, self.target)[0]
        tuned = None if self._tuned is None else self._tuned(spec)
        return schedules(spec, self.target)[0] if tuned is None else tuned

    def call(
        self,
        spec: Spec,
        args: Iterable[Pointer | Placed],
        label: str,
        schedule: Schedule = None,
    ) -> None:
        """Append a kernel call; a Placed argument means its first logical element.

        schedule: by default the one that rules choose.
        """
        spec = with_known_sizes(spec, self.target)
        reason = refusal(spec, self.target)
        assert not reason, f"{label} was planned: {reason}"
        pointers = tuple(a.pointer if isinstance(a, Placed) else a for a in args)
        selected = self.schedule(spec) if schedule is None else schedule
        self.steps.append(KernelCall(spec, selected, pointers, label, self._counted_elements(spec)))

    def _counted_elements(self, spec: Spec) -> tuple[Size, ...]:
        """Those of which there may be none: of the step that is placed, and of a loop itself."""
        assumed = assumptions()
        if assumed is None or not assumed.counted:
            return ()
        own = math.prod(spec.dims) if isinstance(spec, LoopSpec) else 1
        return tuple(dict.fromkeys(n for n in (self._elements, own) if assumed.is_counted(n)))

    def count(self, size: Size, limit: Size, count: Placed, label: str) -> None:
        """A size that data decide is what kernels counted. Raises `NotOpenError` where it is not
        a size of its own."""
        assumed = assumptions()
        if assumed is None or str(size) not in assumed.counted:
            raise NotOpenError(f"the size {size} is counted and stated")
        if any(isinstance(s, SizeCall) and s.symbol == str(size) for s in self.steps):
            return
        if assumed.is_counted(self._elements):  # no kernel counts where there is nothing to look at
            with while_there_are(limit):
                require_nonzero(self._elements)
        self.steps.append(SizeCall(str(size), limit, count, label))

    @contextlib.contextmanager
    def repeated(self, times: Size, label: str) -> Iterator[None]:
        """Kernel calls that are appended inside are one step, which is done so many times."""
        begin = len(self.steps)
        yield
        body = tuple(s for s in self.steps[begin:] if isinstance(s, KernelCall))
        assert len(body) == len(self.steps) - begin, "only calls of kernels are repeated"
        self.steps[begin:] = [RepeatCall(times, body, label)]

    def copy(self, source: Placed, target: Placed, label: str, expr: Expr | None = None) -> None:
        """Copy a value from one layout to another. expr: what becomes of an element (input 0)."""
        with self.making(1):  # others may read the target, whatever the step that is placed makes
            for spec in copies(source.physical, target.physical, expr):
                self.call(spec, (source, target), label)

    def flag(self, label: str) -> Pointer:
        """Where a kernel reports a bad index: an int32 of the status block, read after each run."""
        self.checks.append(label)
        return Pointer(self._status, 4 * (len(self.checks) - 1))

    def sizes_tensor(self, array: np.ndarray) -> Placed:
        """A tensor of sizes, which the table holds."""
        assert self.sizes is not None, "sizes are open only where some are assumed"
        physical = Physical(TensorType(DType.int64, array.shape))
        return Placed(physical, self.sizes.block(array.ravel().tolist()))

    @property
    def status(self) -> Pointer:
        """The status block: an int32 for each check."""
        return Pointer(self._status)

    @property
    def status_bytes(self) -> int:
        """Size of the status block at the start of the arena."""
        return align(4 * len(self.checks))


def kernel_calls(steps: Iterable[Step]) -> Iterator[KernelCall]:
    """Every kernel call, those inside of branches and loops too, in order."""
    for step in steps:
        if isinstance(step, KernelCall):
            yield step
        elif isinstance(step, BranchCall):
            yield from kernel_calls((*(step.then or ()), *(step.orelse or ())))
        elif isinstance(step, LoopCall | RepeatCall):
            yield from kernel_calls(step.body)
