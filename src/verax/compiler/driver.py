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
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from verax.base import memory
from verax.base.arrays import as_arrays
from verax.base.deprecation import renamed_property
from verax.base.errors import InputError, UnsupportedError
from verax.base.forks import on_fork
from verax.base.notebooks import of_text
from verax.base.printing import OneLine
from verax.base.settings import Settings
from verax.base.tensors import named_inputs
from verax.compiler.cache import ProgramCache, is_cached
from verax.compiler.decide.steps import Decisions
from verax.compiler.kernels.target import Target
from verax.compiler.levels import CLASSES, Change, run_passes
from verax.compiler.lower.lowering import ReferenceCall, ScheduleOf
from verax.compiler.lower.program import LoweredProgram, lower
from verax.compiler.notes import notes_of
from verax.compiler.plan import Plan
from verax.compiler.profiling import profile_of
from verax.compiler.recipe import follow, network_hash, recipe_of, require_same
from verax.compiler.saved import calls_of
from verax.compiler.tune.lookup import ScheduleLookup, Tuned
from verax.ir.graph import Graph, reinfer
from verax.ir.types import DType, TensorType
from verax.records.certificate import Certificate
from verax.records.profile import Profile
from verax.records.recipe import Recipe
from verax.records.trace import Trace
from verax.reference.evaluate import bind_symbols, evaluate_node
from verax.reference.sizes import output_bytes
from verax.runtime.foreign_program import load_program
from verax.runtime.program import Program
from verax.runtime.program_binary import ProgramBinary
from verax.runtime.state_buffers import StateBuffers, state_buffers_of
from verax.runtime.stateful import Arrays, StatefulExecutable

MAX_PROGRAMS = 16
"""Specialised programs an executable keeps; the least recently used is dropped."""


@dataclasses.dataclass(frozen=True)
class Translation:
    """What the passes and the lowering made. changes: what passes did that may change numbers.
    tuning: see `Plan`."""

    graph: Graph
    lowered: LoweredProgram
    trace: Trace
    changes: tuple[Change, ...]
    tuning: str = ""


class Specialized(OneLine):
    """One program with the graph that it was made from.

    given: the graph before the passes; network: its hash, "" if it was not needed; kept: the notes
    of a program that was not made but found in the cache. How such a one came about is found out by
    making it again when somebody asks.
    """

    def __init__(
        self,
        source: Graph,
        binary: ProgramBinary,
        program: Program,
        plan: Plan,
        translate: Callable[[], Translation],
        network: str = "",
        cached_notes: dict[str, Any] | None = None,
    ) -> None:
        self.source, self.binary, self.program, self.plan = source, binary, program, plan
        self.inputs = tuple(s.name for s in binary.inputs)
        self.network, self.cached_notes, self._translate = network, cached_notes, translate

    def _brief(self) -> str:
        return f"{self.source.name}; {self.plan._brief()}"

    @cached_property
    def state_buffers(self) -> StateBuffers | None:
        """Runs that go on from one another, if the network remembers anything."""
        return state_buffers_of(self.program)

    @cached_property
    def translation(self) -> Translation:
        return self._translate()

    @property
    def graph(self) -> Graph:
        """After the passes."""
        return self.translation.graph

    @property
    def lowered(self) -> LoweredProgram:
        return self.translation.lowered

    @property
    def lowered_graph(self) -> Graph:
        """What `graph` became for the target; steps on the reference count its nodes."""
        return self.lowered.graph

    @property
    def trace(self) -> Trace:
        return self.translation.trace

    def recipe(self, settings: Settings) -> Recipe:
        """What decides its numbers, given the settings that it was made with."""
        if self.cached_notes is not None:
            return Recipe.from_json(self.cached_notes["recipe"])
        translation = self.translation
        return recipe_of(
            self.source, translation.graph, translation.changes, settings, self.network
        )

    def notes(self, settings: Settings) -> dict[str, Any]:
        """What is written beside it in a file."""
        return self.cached_notes or notes_of(self, settings.opt_level, self.recipe(settings))


class Executable(StatefulExecutable):
    """A compiled network. `run` takes and gives dictionaries of arrays; calls positional ones."""

    def __init__(
        self,
        graph: Graph,
        settings: Settings,
        recipe: Recipe | None = None,
        cache: ProgramCache | None = None,
        tuned: Tuned | None = None,
    ) -> None:
        """recipe: what every program must promise; its options take the place of the settings'.
        cache: where programs are looked for before they are made, and kept. tuned: schedules that
        measuring found; they change no bit. `certificate` is for whoever judges the program to
        set."""
        super().__init__(graph.state, graph.initial)
        self.graph = graph
        self._output_names = graph.outputs
        self.settings = settings if recipe is None else follow(recipe, settings)
        self._required_recipe = recipe
        self._cache = cache if is_cached(self.settings) else None
        self._tuned = tuned if is_cached(self.settings) else None
        self.certificate: Certificate | None = None
        self._target = Target.named(settings.target)
        if settings.quick:
            self._target = dataclasses.replace(self._target, effort=0)
        self._by_value = shape_defining_inputs(graph)
        self._by_types_alone = not self._by_value and not self.settings.memory
        self._programs: OrderedDict[tuple[Any, ...], Specialized] = OrderedDict()
        self._lock = threading.Lock()
        self._last: tuple[tuple[Any, ...], Specialized] | None = None
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

    def _brief(self) -> str:
        return f"O{self.settings.opt_level}; {self.graph._brief()}"

    def _plan_text(self) -> str:
        """The plan of the program used last, or what is compiled for the first run."""
        try:
            return str(self.plan)
        except InputError as error:
            return str(error)

    def __str__(self) -> str:
        return f"{self!r}\n{self._plan_text()}"

    def _repr_html_(self) -> str:
        title = f"{self.graph.name or 'network'}, compiled at O{self.settings.opt_level}"
        return of_text(title, self._plan_text())

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
        return self._current().recipe(self.settings)

    def _current(self) -> Specialized:
        if self._last is None:
            raise InputError(
                "no program has been made yet: shapes are symbolic",
                next_step="run once, or give the shapes when loading",
            )
        return self._last[1]

    @property
    def specialized(self) -> Specialized:
        """The program of the last shapes. Raises `InputError` before there is one."""
        return self._current()

    specialised = renamed_property("specialised", "specialized")

    def _run_in_place(
        self, inputs: Arrays, state: Arrays
    ) -> tuple[list[np.ndarray], Arrays] | None:
        if self._last is None or not self._by_types_alone:
            return None
        state_buffers = self._last[1].state_buffers
        return state_buffers.run(inputs, state) if state_buffers else None

    def _outputs_of(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        last = self._last
        if last is not None and self._by_types_alone:
            outputs = last[1].program.run_if_exact(inputs)
            if outputs is not None:
                names = self._output_names
                return {names[0]: outputs[0]} if len(names) == 1 else dict(zip(names, outputs))
        inputs = as_arrays(inputs)
        program = self._lookup(inputs)
        arrays = [inputs[v] for v in program.inputs]
        with memory.limited(self.settings.memory or None):
            return dict(zip(self.graph.outputs, program.program.run(arrays)))

    def profile(self, inputs: Mapping[str, np.ndarray], runs: int = 20) -> Profile:
        """Time every step by itself: median of `runs` after two more to warm up; beside it the
        machine's peak of multiply-adds.

        State is read as it is and stays so. Raises `InputError` when inputs do not fit.
        """
        inputs = {**as_arrays(named_inputs(inputs, self.inputs)), **self.state}
        specialized = self._lookup(inputs)
        lowered = self.lowered_again(specialized, self._schedule_lookup(), separate=True)
        threads = self.settings.thread_count
        program = Program(lowered.binary, threads, reference_call(lowered.graph))
        arrays = [inputs[v] for v in specialized.inputs]
        step_times = program.time_steps(arrays, runs + 2, chunk_count=lowered.chunk_count)
        times = np.median(step_times[2:], axis=0) / 1e3
        program.close()
        return profile_of(lowered, times.tolist(), runs, self.settings, self._target)

    def lowered_again(
        self, specialized: Specialized, tuned: ScheduleOf | None, *, separate: bool = False
    ) -> LoweredProgram:
        """The same program with other schedules. separate: as `lower` takes it."""
        passed = specialized.trace.rewrites - specialized.lowered.trace.rewrites
        decisions = self._decisions(passed)
        return lower(specialized.graph, self._target, self.settings, separate, decisions, tuned)

    def _schedule_lookup(self) -> ScheduleLookup | None:
        return None if self._tuned is None else self._tuned.lookup()

    def _lookup(self, inputs: Mapping[str, np.ndarray]) -> Specialized:
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
    ) -> Specialized:
        key = tuple((s, self.graph.types[v].dtype.numpy) for v, s in shapes.items()) + tuple(
            a.tobytes() for a in values.values()
        )
        with self._lock:
            if key in self._programs:
                self._programs.move_to_end(key)
            else:
                types = {v: TensorType(self.graph.types[v].dtype, s) for v, s in shapes.items()}
                self._programs[key] = self._build(reinfer(self.graph, types, values), values)
                if len(self._programs) > MAX_PROGRAMS:
                    self._programs.popitem(last=False)
            specialized = self._programs[key]
            self._last = (key, specialized)
        return specialized

    def _build(self, graph: Graph, values: Mapping[str, np.ndarray]) -> Specialized:
        with memory.limited(self.settings.memory or None):
            for node in graph.nodes:
                size = output_bytes(graph.output_types(node))
                memory.require(size, "what this node gives", node.place)
            if self._cache is None:
                return self._compile(graph)
            network = network_hash(graph)
            decisive = {name: value.tobytes() for name, value in values.items()}
            schedules = "" if self._tuned is None else self._tuned.digest
            key = self._cache.key(network, decisive, self._target, self.settings, schedules)
            specialized = self._from_cache_entry(self._cache.program(key), graph, network)
            if specialized is None:
                specialized = self._compile(graph, network)
                self._cache.keep_program(key, specialized.binary, specialized.notes(self.settings))
        return specialized

    def _from_cache_entry(
        self, entry: tuple[ProgramBinary, dict[str, Any]] | None, graph: Graph, network: str
    ) -> Specialized | None:
        """The specialized program of a cache entry; None without an entry."""
        if entry is None:
            return None
        binary, notes = entry
        if self._required_recipe is not None:
            require_same(self._required_recipe, Recipe.from_json(notes["recipe"]))
        program = load_program(
            binary, self.settings.thread_count, calls_of(binary, notes, "the cache")
        )
        plan = Plan(
            tuple(notes["plan"]), binary.arena_bytes, binary.weights.nbytes,
            tuple(notes["on_reference"]), notes.get("tuning", ""), tuple(notes.get("refused", ())),
        )  # fmt: skip
        return Specialized(
            graph, binary, program, plan, lambda: self._translated(graph), network, notes
        )

    def _compile(self, graph: Graph, network: str = "") -> Specialized:
        settings = self.settings
        translation = self._translated(graph)
        if settings.require_native:
            _require_native(translation.lowered)
        binary = translation.lowered.binary
        program = load_program(
            binary, settings.thread_count, reference_call(translation.lowered.graph)
        )
        plan = Plan(
            translation.lowered.lines,
            binary.arena_bytes,
            binary.weights.nbytes,
            translation.lowered.on_reference,
            translation.tuning,
            translation.trace.refused,
        )
        return Specialized(graph, binary, program, plan, lambda: translation, network)

    def _translated(self, graph: Graph) -> Translation:
        settings = self.settings
        with _collector_paused():
            changes: list[Change] = []
            optimised, trace = run_passes(graph, settings, changes)
            if self._required_recipe is not None:
                require_same(self._required_recipe, recipe_of(graph, optimised, changes, settings))
            decisions, lookup = self._decisions(trace.rewrites), self._schedule_lookup()
            lowered = lower(optimised, self._target, settings, decisions=decisions, tuned=lookup)
        tuning = "" if lookup is None else lookup.summary
        return Translation(optimised, lowered, trace.then(lowered.trace), tuple(changes), tuning)


def _require_native(lowered: LoweredProgram) -> None:
    slow = [f"{s.label}: {s.reason}" for s in lowered.steps if isinstance(s, ReferenceCall)]
    if slow:
        more = f"; and {len(slow) - 1} more" if len(slow) > 1 else ""
        raise UnsupportedError(
            f"no kernel takes {slow[0]}{more}",
            next_step="compile without require_native, and see exe.plan for all of them",
        )


def compile(
    graph: Graph,
    settings: Settings | None = None,
    recipe: Recipe | None = None,
    cache: ProgramCache | None = None,
    tuned: Tuned | None = None,
) -> Executable:
    """Compile `graph`. Static shapes are compiled at once, symbolic ones at the first run.

    recipe: followed instead of the settings' level and passes. cache, tuned: see `Executable`.
    Raises `VeraxError`s that name the node when something cannot be compiled, or say why the recipe
    cannot be followed.
    """
    return Executable(graph, settings or Settings(), recipe, cache, tuned)


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
    defining: set[str] = set()
    for node in graph.nodes:
        sources = frozenset().union(
            *(from_input.get(v, frozenset()) for v in node.inputs if v is not None)
        )
        dynamic = any(not t.is_static for t in graph.output_types(node))
        if dynamic:
            data = None if node.op.kind in ("Range", "ConstantOfShape") else node.inputs[0]
            defining |= {
                v
                for v in node.inputs
                if v in graph.inputs and _sets_shapes(graph.types[v]) and v != data
            }
            if len(node.inputs) and not any(v in defining for v in node.inputs):
                defining |= {v for v in sources if _sets_shapes(graph.types[v])}
        for output in node.outputs:
            from_input[output] = sources if _sets_shapes(graph.types[output]) else frozenset()
    return tuple(v for v in graph.inputs if v in defining)


def _sets_shapes(type_: TensorType) -> bool:
    if not type_.is_static or type_.rank > 1 or int(type_.size) > 64:
        return False
    return type_.dtype in (DType.int64, DType.int32) or type_.dtype.is_float
