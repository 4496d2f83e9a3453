"""compile(graph, settings): the only place that assembles passes, lowering and code generation.

An `Executable` specialises itself for the shapes it is run with (and, where a tensor's value sets a
shape, for that value), keeps the programs it made, and runs them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from verax.base import memory
from verax.base.arrays import as_arrays
from verax.base.errors import InputError, UnsupportedError
from verax.base.forks import on_fork
from verax.base.settings import Settings
from verax.compiler.decide.steps import Decisions
from verax.compiler.kernels.sizes import known
from verax.compiler.kernels.target import Target
from verax.compiler.levels import CLASSES, Change, run_passes
from verax.compiler.lower.lowering import ReferenceCall
from verax.compiler.lower.program import LoweredProgram, lower
from verax.compiler.recipe import follow, recipe_of, require_same
from verax.ir.graph import Graph, reinfer
from verax.ir.types import DType, TensorType
from verax.records.certificate import Certificate
from verax.records.profile import Profile, StepTime
from verax.records.recipe import Recipe
from verax.records.trace import Trace
from verax.reference.evaluate import bind_symbols, evaluate_node
from verax.reference.sizes import output_bytes
from verax.runtime.carried import Remembers
from verax.runtime.program import Program

MAX_PROGRAMS = 16
"""Specialised programs an executable keeps; the least recently used is dropped."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """What one specialised program does: a line per kernel call or reference step."""

    lines: tuple[str, ...]
    arena_bytes: int
    weight_bytes: int
    on_reference: tuple[str, ...]

    def __str__(self) -> str:
        head = f"arena {self.arena_bytes / 1e6:.2f} MB, weights {self.weight_bytes / 1e6:.2f} MB"
        if self.on_reference:
            head += f"; {len(self.on_reference)} nodes run on the reference (no kernel)"
        return "\n".join([head, *self.lines])


@dataclasses.dataclass(frozen=True)
class Specialised:
    """One program with the graph it was made from. given: that before the passes; changes: what
    those did that may change numbers."""

    graph: Graph
    lowered: LoweredProgram
    program: Program
    plan: Plan
    trace: Trace
    inputs: tuple[str, ...]
    given: Graph
    changes: tuple[Change, ...]


class Executable(Remembers):
    """A compiled network. `run` takes and gives dictionaries of arrays; calls positional ones."""

    def __init__(self, graph: Graph, settings: Settings, recipe: Recipe | None = None) -> None:
        """recipe: what every program must promise; its options take the place of the settings'.
        `certificate` is for whoever judges the program to set."""
        super().__init__(graph.state, graph.initial)
        self.graph = graph
        self.settings = settings if recipe is None else follow(recipe, settings)
        self._wanted = recipe
        self.certificate: Certificate | None = None
        self._target = Target.named(settings.target)
        if settings.quick:
            self._target = dataclasses.replace(self._target, effort=0)
        self._by_value = shape_defining_inputs(graph)
        self._programs: OrderedDict[tuple[Any, ...], Specialised] = OrderedDict()
        self._lock = threading.Lock()
        self._last: tuple[tuple[Any, ...], Specialised] | None = None
        static = all(graph.types[v].is_static for v in graph.inputs) and not self._by_value
        if static:
            self._specialise({v: graph.types[v].shape for v in graph.inputs}, {})

    def renew_in_child(self) -> None:
        """See `base.forks`: a program that another thread was making is made again."""
        super().renew_in_child()
        self._lock = threading.Lock()

    @property
    def inputs(self) -> dict[str, TensorType]:
        return {v: self.graph.types[v] for v in self.graph.arguments}

    @property
    def outputs(self) -> dict[str, TensorType]:
        return {v: self.graph.types[v] for v in self.graph.results}

    @property
    def plan(self) -> Plan:
        """The plan of the program used last; raises `InputError` before shapes are known."""
        return self._current().plan

    @property
    def trace(self) -> Trace:
        """What the passes did to the program used last: how many rewrites, and each in words.

        Raises `InputError` before shapes are known.
        """
        return self._current().trace

    @property
    def recipe(self) -> Recipe:
        """What decides the numbers of the program used last.

        Raises `InputError` before shapes are known.
        """
        found = self._current()
        return recipe_of(found.given, found.graph, found.changes, self.settings)

    def _current(self) -> Specialised:
        if self._last is None:
            raise InputError(
                "no program has been made yet: shapes are symbolic",
                next_step="run once, or give the shapes when loading",
            )
        return self._last[1]

    @property
    def specialised(self) -> Specialised:
        """The program used last."""
        return self._current()

    def _outputs_of(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        inputs = as_arrays(inputs)
        found = self._lookup(inputs)
        arrays = [inputs[v] for v in found.inputs]
        with memory.limited(self.settings.memory or None):
            return dict(zip(self.graph.outputs, found.program.run(arrays)))

    def profile(self, inputs: Mapping[str, np.ndarray], runs: int = 20) -> Profile:
        """Time every step by itself: median of `runs` after two more to warm up.

        State is read as it is and stays so. Raises `InputError` when inputs do not fit.
        """
        inputs = {**as_arrays(inputs), **self.state}
        found = self._lookup(inputs)
        passed = found.trace.rewrites - found.lowered.trace.rewrites
        decisions = self._decisions(passed)
        lowered = lower(found.graph, self._target, self.settings, True, decisions)
        threads = self.settings.thread_count
        program = Program(lowered.image, threads, reference_call(found.graph))
        arrays = [inputs[v] for v in found.inputs]
        times = np.median(program.time_steps(arrays, runs + 2)[2:], axis=0) / 1e3
        program.close()
        steps = []
        for i, (step, taken) in enumerate(zip(lowered.steps, times, strict=True)):
            if i in lowered.kernels:
                kernel = lowered.kernels[i]
                name, flops, moved = kernel.name, known(kernel.flops), known(kernel.bytes)
            else:
                name, flops, moved = "reference", 0, 0
            steps.append(StepTime(step.label, name, float(taken), flops, moved))
        return Profile(tuple(steps), runs, threads)

    def _lookup(self, inputs: Mapping[str, np.ndarray]) -> Specialised:
        last = self._last
        if last is not None and len(inputs) == len(self.graph.inputs):
            try:
                key = self._key(inputs)
            except (KeyError, AttributeError):
                key = ()
            if key == last[0]:
                return last[1]
        bind_symbols(self.graph, inputs)
        return self._specialise(
            {v: inputs[v].shape for v in self.graph.inputs},
            {v: inputs[v] for v in self._by_value},
        )

    def _decisions(self, done: int) -> Decisions:
        """What may still be decided after so many rewrites."""
        return Decisions.of(self.settings, CLASSES[self.settings.opt_level], done)

    def _key(self, inputs: Mapping[str, np.ndarray]) -> tuple[Any, ...]:
        arrays = [inputs[v] for v in self.graph.inputs]
        return tuple((a.shape, a.dtype) for a in arrays) + tuple(
            inputs[v].tobytes() for v in self._by_value
        )

    def _specialise(
        self, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, np.ndarray]
    ) -> Specialised:
        key = tuple((s, self.graph.types[v].dtype.numpy) for v, s in shapes.items()) + tuple(
            a.tobytes() for a in values.values()
        )
        with self._lock:
            if key in self._programs:
                self._programs.move_to_end(key)
            else:
                types = {v: TensorType(self.graph.types[v].dtype, s) for v, s in shapes.items()}
                self._programs[key] = self._build(reinfer(self.graph, types, values))
                if len(self._programs) > MAX_PROGRAMS:
                    self._programs.popitem(last=False)
            found = self._programs[key]
            self._last = (key, found)
        return found

    def _build(self, graph: Graph) -> Specialised:
        settings = self.settings
        with memory.limited(settings.memory or None):
            for node in graph.nodes:
                size = output_bytes(graph.output_types(node))
                memory.require(size, "what this node gives", node.place)
            with _collector_paused():
                changes: list[Change] = []
                optimised, trace = run_passes(graph, settings, changes)
                if self._wanted is not None:
                    require_same(self._wanted, recipe_of(graph, optimised, changes, settings))
                lowered = lower(
                    optimised, self._target, settings, decisions=self._decisions(trace.rewrites)
                )
            if settings.require_native:
                _require_native(lowered)
            program = Program(lowered.image, settings.thread_count, reference_call(optimised))
        plan = Plan(
            lowered.lines,
            lowered.image.arena_bytes,
            lowered.image.weights.nbytes,
            lowered.on_reference,
        )
        trace = trace.then(lowered.trace)
        return Specialised(
            optimised, lowered, program, plan, trace, optimised.inputs, graph, tuple(changes)
        )


def _require_native(lowered: LoweredProgram) -> None:
    slow = [f"{s.label}: {s.why}" for s in lowered.steps if isinstance(s, ReferenceCall)]
    if slow:
        more = f"; and {len(slow) - 1} more" if len(slow) > 1 else ""
        raise UnsupportedError(
            f"no kernel takes {slow[0]}{more}",
            next_step="compile without require_native, and see exe.plan for all of them",
        )


def compile(
    graph: Graph, settings: Settings | None = None, recipe: Recipe | None = None
) -> Executable:
    """Compile `graph`. Static shapes are compiled at once, symbolic ones at the first run.

    recipe: followed instead of the settings' level and passes. Raises `VeraxError`s that name the
    node when something cannot be compiled, or say why the recipe cannot be followed.
    """
    return Executable(graph, settings or Settings(), recipe)


_pauses = 0


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Without the cycle collector: an IR of a million live objects costs it a fifth of the time."""
    global _pauses
    was_on = gc.isenabled()
    gc.disable()
    _pauses += was_on
    try:
        yield
    finally:
        if was_on:
            _pauses -= 1
            gc.enable()


def _end_pauses() -> None:
    """In a forked child: the thread that would end the pause does not exist."""
    global _pauses
    if _pauses:
        gc.enable()
    _pauses = 0


on_fork(_end_pauses)


def reference_call(graph: Graph) -> Any:
    """call(node index, arrays) -> arrays: promised bits of a node by its meaning."""

    def call(index: int, arrays: Sequence[np.ndarray | None]) -> Sequence[np.ndarray]:
        node = graph.nodes[index]
        types = tuple(
            None if a is None or v is None else TensorType(graph.types[v].dtype, a.shape)
            for v, a in zip(node.inputs, arrays)
        )
        return evaluate_node(
            node, arrays, types, graph.output_types(node), np.float32, promised_bits=True
        )

    return call


def shape_defining_inputs(graph: Graph) -> tuple[str, ...]:
    """Graph inputs whose values set shapes: small integer tensors that type rules ask for.

    A program is specialised for their values, as it is for shapes.
    """
    from_input: dict[str, frozenset[str]] = {v: frozenset([v]) for v in graph.inputs}
    found: set[str] = set()
    for node in graph.nodes:
        sources = frozenset().union(
            *(from_input.get(v, frozenset()) for v in node.inputs if v is not None)
        )
        dynamic = any(not t.is_static for t in graph.output_types(node))
        if dynamic:
            data = None if node.op.kind in ("Range", "ConstantOfShape") else node.inputs[0]
            found |= {
                v
                for v in node.inputs
                if v in graph.inputs and _sets_shapes(graph.types[v]) and v != data
            }
            if len(node.inputs) and not any(v in found for v in node.inputs):
                found |= {v for v in sources if _sets_shapes(graph.types[v])}
        for output in node.outputs:
            from_input[output] = sources if _sets_shapes(graph.types[output]) else frozenset()
    return tuple(v for v in graph.inputs if v in found)


def _sets_shapes(type_: TensorType) -> bool:
    if not type_.is_static or type_.rank > 1 or int(type_.size) > 64:
        return False
    return type_.dtype in (DType.int64, DType.int32) or type_.dtype.is_float
