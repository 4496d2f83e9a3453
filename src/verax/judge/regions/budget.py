"""The memory of a check: what judging a region will take, and who may begin when.

Judging is float64 and keeps many arrays of the size of a node's tensors, so a network that fits
into memory easily may not be judged so easily. Before a region is judged its needs are estimated
from shapes. Regions whose needs fit side by side are judged side by side; a node that needs more
than the whole budget is judged in pieces, and what cannot be cut is called unchecked, with the
numbers. The budget is half of what is free unless it is set: the other half is the subject's.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

import numpy as np

from verax.base.deadline import OutOfTime, require_time
from verax.base.errors import InputError, UsageError
from verax.base.machine import memory
from verax.ir.graph import Graph, Node
from verax.judge.decide.local import undecided
from verax.judge.decide.pieces import check_in_pieces, cuts
from verax.judge.regions.sampler import Region
from verax.numerics.statistics import SAMPLES_FEW
from verax.ops.windows.convolution import CHUNK
from verax.records.verdict import Finding, Power

SHARE = 0.5
"""Of what is free, what a check may take: the subject needs memory as well."""
PER_NODE, PER_VALUE, PER_SAMPLE = 16, 3.5, 3
"""float64 arrays held at a time: for a node of the size of all its tensors, for each value of a
region, and for each sample of a shown value. Measured with tracemalloc, the worst operator."""
FIXED = 3 * 8 * CHUNK
"""Bytes that a convolution's unfolded input may take beside that."""

Judged = tuple[list[Finding], list[Power], bool]
P = ParamSpec("P")
R = TypeVar("R")
_holding: ContextVar[bool] = ContextVar("holds some of a budget", default=False)
_current: ContextVar[Budget | None] = ContextVar("budget of the check", default=None)


class Budget:
    """Bytes that may be in use at a time, shared between threads."""

    def __init__(self, size: int) -> None:
        self.size, self._free, self._changed = size, size, threading.Condition()

    @staticmethod
    def of(size: int | str | None) -> Budget:
        """A budget of a given size ("8G", or bytes), or of half of what is free for None.

        Raises `UsageError` for a text that is no amount of memory.
        """
        if size is None:
            limit = memory.set_limit()
            return Budget(int(SHARE * memory.available_bytes()) if limit is None else limit)
        if isinstance(size, int) and size <= 0:
            raise UsageError(f"memory is {size}", next_step="give a number of bytes, or like 8G")
        return Budget(memory.parse_bytes(size) if isinstance(size, str) else size)

    @contextlib.contextmanager
    def as_current(self) -> Iterator[Budget]:
        """Make this the budget of the current thread, and the limit of single values."""
        token = _current.set(self)
        try:
            with memory.limited(self.size):
                yield self
        finally:
            _current.reset(token)

    @contextlib.contextmanager
    def reserve(self, size: int) -> Iterator[None]:
        """Reserve `size` bytes (at most the whole budget), waiting until they are free.

        Code that already holds a reservation does not wait: it would wait for itself.
        """
        if _holding.get():
            yield
            return
        token = _holding.set(True)
        with self._changed:
            self._changed.wait_for(lambda: self._free >= size)
            self._free -= size
        try:
            yield
        finally:
            _holding.reset(token)
            with self._changed:
                self._free += size
                self._changed.notify_all()


def current() -> Budget:
    """The budget of this thread; a new one of the default size where none is set."""
    return _current.get() or Budget.of(None)


def in_context(function: Callable[P, R]) -> Callable[P, R]:
    """`function` bound to this thread's context (its budget), to be called in another thread."""
    context = contextvars.copy_context()

    def run(*args: P.args, **options: P.kwargs) -> R:
        return context.run(function, *args, **options)

    return run


@contextlib.contextmanager
def keeping_to_memory(size: int | str | None) -> Iterator[None]:
    """Inside, judging keeps to a budget of `size` bytes; for None to the one that it has, else to
    one of the default size."""
    if size is None and _current.get() is not None:
        yield
        return
    with Budget.of(size).as_current():
        yield


def held_to_memory(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator of a function with a keyword `memory`: the budget that it runs under."""

    @functools.wraps(function)
    def limited(*args: P.args, **options: P.kwargs) -> R:
        with keeping_to_memory(options.get("memory")):  # type: ignore[arg-type]
            return function(*args, **options)

    return limited


def needs(graph: Graph, region: Region, observed: Mapping[str, np.ndarray]) -> int:
    """Estimated bytes that judging a region takes; sizes unknown before a run count as 0."""

    def size(value: str) -> int:
        return int(observed[value].size) if value in observed else _elements(graph, value)

    own = [sum(size(v) for v in {*n.inputs, *n.outputs} if v is not None) for n in region.nodes]
    elements = PER_NODE * max(own)
    if len(region.nodes) > 1:
        elements += int(PER_VALUE * sum(size(v) for n in region.nodes for v in n.outputs))
        elements += PER_SAMPLE * SAMPLES_FEW * max(map(size, region.observed))
    return 8 * elements + max(_fixed(graph, n) for n in region.nodes)


def _fixed(graph: Graph, node: Node) -> int:
    """Bytes that a node takes besides, however it is cut: a convolution's unfolded input."""
    weights = None if len(node.inputs) < 2 else node.inputs[1]
    if "Conv" not in node.op.kind or weights is None or not graph.types[weights].is_static:
        return 0
    shape = graph.types[weights].shape
    taps = int(np.prod(shape)) // max(1, min(shape[:2]))
    return min(FIXED, 3 * 8 * taps * _elements(graph, node.outputs[0]))


def needs_of_node(graph: Graph, node: Node, values: Mapping[str, np.ndarray]) -> int:
    """Bytes that a node takes by itself, judged or explained."""
    return needs(graph, Region((node,), frozenset(), node.outputs), values)


def _elements(graph: Graph, value: str) -> int:
    type_ = graph.types[value]
    return int(type_.size) if type_.is_static else 0


def why_too_large(need: int) -> str:
    """Why work that takes `need` bytes is not done, "" where the budget allows for it."""
    size = current().size
    if need <= size:
        return ""
    return (
        f"it takes about {memory.shown_bytes(need)}, more than the {memory.shown_bytes(size)} "
        "that this check may take (--memory)"
    )


def require_room_for_meaning(graph: Graph) -> None:
    """Raise an `InputError` where the float64 values of a whole network, each freed after its last
    use, do not fit into the budget."""
    last = {v: i for i, n in enumerate(graph.nodes) for v in n.inputs if v is not None}
    outputs, live, peak = set(graph.outputs), 0, 0
    size = functools.partial(_elements, graph)
    for i, node in enumerate(graph.nodes):
        live += sum(map(size, node.outputs))
        touched = {v for v in (*node.inputs, *node.outputs) if v is not None}
        peak = max(peak, live + PER_NODE // 4 * sum(map(size, touched)))
        freed = (v for v in touched - outputs if v in graph.producers and last.get(v, -1) <= i)
        live -= sum(map(size, freed))
    reason = why_too_large(8 * peak)
    if reason:
        raise InputError(reason, next_step="give the check more memory, or a smaller input")


def limit_to_budget(
    budget: Budget,
    graph: Graph,
    observed: Mapping[str, np.ndarray],
    unchecked: dict[str, str],
    judge: Callable[[Region], Judged],
) -> Callable[[Region], Judged]:
    """`judge` limited to a budget. Nodes that do not fit go into `unchecked` with the reason;
    the network's outputs among them are undecided.
    """

    def judge_within_budget(region: Region) -> Judged:
        need = needs(graph, region, observed)
        try:
            require_time()
            if need <= budget.size:
                with budget.reserve(need), budget.as_current():
                    return judge(region)
            finding = _in_pieces(graph, region, observed, need, budget)
            if finding is not None:
                return [finding], [], False
            with budget.as_current():
                reason = f"not judged: {why_too_large(need)}"
        except MemoryError:
            reason = "not judged: there was not enough memory"
        except OutOfTime as error:
            reason = f"not judged: {error}"
        unchecked.update(dict.fromkeys(region.names, reason))
        return (
            [
                _not_judged(graph.producers[v], v, observed[v], reason, region.names)
                for v in region.observed
                if v in graph.outputs
            ],
            [],
            False,
        )

    return judge_within_budget


def _in_pieces(
    graph: Graph,
    region: Region,
    observed: Mapping[str, np.ndarray],
    need: int,
    budget: Budget,
) -> Finding | None:
    """The finding on a single node from its pieces, None where it cannot be cut finely enough."""
    (node, *more), (value, *more_values) = region.nodes, region.observed
    if more or more_values or any(v is not None and v not in observed for v in node.inputs):
        return None
    inputs, actual = [None if v is None else observed[v] for v in node.inputs], observed[value]
    for cut in cuts(node, inputs, actual):
        uncut = sum(x.size for x, a in zip(inputs, cut.inputs) if x is not None and a is None)
        fixed = 8 * PER_NODE * uncut + _fixed(graph, node)
        count = -(-(need - fixed) // max(1, budget.size - fixed))
        if budget.size <= fixed or not 0 < count <= cut.length:
            continue
        with budget.reserve(budget.size), budget.as_current():
            finding = check_in_pieces(node, inputs, actual, cut, count)
        if finding is not None:
            return finding
    return None


def _not_judged(
    node: Node, value: str, actual: np.ndarray, reason: str, region: Sequence[str]
) -> Finding:
    """An undecided finding that looks at one element only: the rest may not fit."""
    finding = undecided(node, value, actual.ravel()[:1], reason, tuple(region))
    return dataclasses.replace(finding, elements=int(actual.size), worst=())
