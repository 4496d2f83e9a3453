"""From a network with given sizes to a program: passes, plan, placed calls, object code.

This is the only place that assembles them. A program that was made before comes from the cache.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from verax.base import memory
from verax.base.errors import UnsupportedError
from verax.base.forks import on_fork
from verax.base.printing import OneLine
from verax.base.settings import Settings
from verax.compiler.artifacts.cache import ProgramCache, is_cached
from verax.compiler.artifacts.notes import notes_of
from verax.compiler.artifacts.saved_program import calls_of
from verax.compiler.kernels.target import Target
from verax.compiler.pipeline.levels import CLASSES, Change, run_passes
from verax.compiler.pipeline.recipe import follow, network_hash, recipe_of, require_same
from verax.compiler.place.calls import ReferenceCall, ScheduleOf
from verax.compiler.place.program import LoweredProgram, lower
from verax.compiler.plan.steps import Decisions
from verax.compiler.tune.lookup import ScheduleLookup, Tuned
from verax.ir.assumptions import Assumptions, NotOpenError, assumed_sizes, assuming, assumptions
from verax.ir.dim import symbol
from verax.ir.graph import Graph
from verax.ir.graph import specialize as open_graph
from verax.ir.types import TensorType
from verax.records.plan import Plan
from verax.records.recipe import Recipe
from verax.records.trace import Trace
from verax.reference.evaluate import evaluate_node
from verax.reference.sizes import output_bytes
from verax.runtime.foreign_program import load_program
from verax.runtime.open_sizes import OpenSizes, SizedProgram
from verax.runtime.program import Program
from verax.runtime.program_binary import ProgramBinary
from verax.runtime.state_buffers import StateBuffers, state_buffers_of

MANY_BYTES = 16 << 20
"""Of constants that passes rewrote: fewer are held for whoever asks how a program was made."""


@dataclasses.dataclass(frozen=True)
class Translation:
    """What the passes and the lowering made. changes: what passes did that may change numbers.
    tuning: see `Plan`."""

    graph: Graph
    lowered: LoweredProgram
    trace: Trace
    changes: tuple[Change, ...]
    tuning: str = ""


MOST_BUFFERS = 4
"""Sets of sizes for which a program that serves many keeps buffers of state."""


class Specialized(OneLine):
    """One program with the graph that it was made from.

    source: the graph before the passes; network: its hash, "" if it was not needed; cached_notes:
    those of a program that was not made but found in the cache. How such a one came about is found
    out by making it again when somebody asks.
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
        self._notes = cached_notes
        self._state_buffers: dict[tuple[int, ...], StateBuffers | None] = {}

    def _brief(self) -> str:
        return f"{self.source.name}; {self.plan._brief()}"

    @property
    def open_sizes(self) -> OpenSizes:
        """Of a program that serves many sizes."""
        assert self.binary.open_sizes is not None
        return self.binary.open_sizes

    @cached_property
    def state_buffers(self) -> StateBuffers | None:
        """Runs that go on from one another, if the network remembers anything."""
        return state_buffers_of(self.program)

    def state_buffers_for(self, sized: SizedProgram | None) -> StateBuffers | None:
        """The same of a program that serves many sizes, for these."""
        if sized is None:
            return self.state_buffers
        buffers = self._state_buffers.pop(sized.sizes, None) or state_buffers_of(
            self.program, sized
        )
        self._state_buffers[sized.sizes] = buffers
        if len(self._state_buffers) > MOST_BUFFERS:
            del self._state_buffers[next(iter(self._state_buffers))]
        return buffers

    @cached_property
    def translation(self) -> Translation:
        return self._translate()

    def release_translation(self) -> None:
        """Forget how it was made, where that holds many rewritten constants: the program has them
        packed. Who asks afterwards has it made again."""
        translation: Translation | None = self.__dict__.get("translation")
        if translation is not None:
            graphs = (translation.graph, translation.lowered.graph)
            arrays = {id(a): a for graph in graphs for a in graph.constants.values()}
            held_by_source = set(map(id, self.source.constants.values()))
            if sum(a.nbytes for i, a in arrays.items() if i not in held_by_source) > MANY_BYTES:
                del self.__dict__["translation"]

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
        if self._notes is not None:
            return Recipe.from_json(self._notes["recipe"])
        translation = self.translation
        return recipe_of(
            self.source, translation.graph, translation.changes, settings, self.network
        )

    def notes(self, settings: Settings) -> dict[str, Any]:
        """What is written beside it in a file. A recipe is for known sizes."""
        if self._notes is None:
            recipe = None if self.binary.open_sizes is not None else self.recipe(settings)
            self._notes = notes_of(self, settings.opt_level, recipe)
        return self._notes


class Specializer:
    """Makes the programs of one network, one for each set of input sizes.

    settings: those of the recipe where one is followed; target: the machine that they name.
    """

    def __init__(
        self,
        settings: Settings,
        recipe: Recipe | None = None,
        cache: ProgramCache | None = None,
        tuned: Tuned | None = None,
    ) -> None:
        """recipe: what every program must promise; its options take the place of the settings'.
        cache: where programs are looked for before they are made, and kept. tuned: schedules that
        measuring found; they change no bit."""
        self.settings = settings if recipe is None else follow(recipe, settings)
        self._required_recipe = recipe
        self._cache = cache if is_cached(self.settings) else None
        self.opens = self.settings.open_sizes and is_cached(self.settings) and recipe is None
        """Whether programs may be made for many sizes: not while looking for a fault."""
        self._tuned = tuned if is_cached(self.settings) else None
        self._constant_hashes: dict[int, tuple[np.ndarray, str]] = {}
        self.target = Target.named(settings.target)
        self.opens &= self.target.runs_here()  # elsewhere a process is started for each program
        if settings.quick:
            self.target = dataclasses.replace(self.target, effort=0)

    def specialize(self, graph: Graph, values: Mapping[str, np.ndarray]) -> Specialized:
        """The program of `graph`, whose inputs have static shapes; from the cache if it is there.

        values: inputs whose values set shapes; they are part of what the program depends on.
        Raises `UnsupportedError` where settings want kernels for all nodes and one has none, and
        `CompileError` where the recipe cannot be followed.
        """
        with memory.limited(self.settings.memory or None):
            if self._cache is None:
                return self._compile(graph)
            network, key = self._key(graph, values)
            specialized = self._from_cache_entry(self._cache.program(key), graph, network)
            if specialized is None:
                specialized = self._compile(graph, network)
                self._cache.keep_program(key, specialized.binary, specialized.notes(self.settings))
        return specialized

    def cached_program(self, graph: Graph, values: Mapping[str, np.ndarray]) -> Specialized | None:
        """The program that `specialize` would find in the cache, if there is one."""
        if self._cache is None:
            return None
        with memory.limited(self.settings.memory or None):
            network, key = self._key(graph, values)
            return self._from_cache_entry(self._cache.program(key), graph, network)

    def _key(self, graph: Graph, values: Mapping[str, np.ndarray]) -> tuple[str, str]:
        """The hash of a network, and the name of its program in the cache."""
        assert self._cache is not None
        network = network_hash(graph, self._constant_hashes)
        decisive = {name: value.tobytes() for name, value in values.items()}
        schedules = "" if self._tuned is None else self._tuned.digest
        return network, self._cache.key(network, decisive, self.target, self.settings, schedules)

    def specialize_open(self, graph: Graph, sizes: Mapping[str, int]) -> Specialized | None:
        """The program of `graph` for all sizes of its symbols that decide as `sizes` do; None where
        some node has no kernel that reads sizes at run time."""
        with self._assuming(sizes) as assumed:
            try:
                opened = open_graph(graph, {n: symbol(d) for n, d in zip(sizes, assumed.sizes)})
                _require_sizes_from(opened, assumed.sizes)
                return self._compile(opened, sizes=sizes)
            except NotOpenError:
                return None

    def keep_open(self, specialized: Specialized, graph: Graph, index: int) -> None:
        """Keep a program for many sizes of `graph` as its number `index`."""
        if self._cache is not None:
            key = self._open_key(graph, index)
            self._cache.keep_program(key, specialized.binary, specialized.notes(self.settings))

    def cached_open(self, graph: Graph, index: int, sizes: Mapping[str, int]) -> Specialized | None:
        """The program for many sizes of `graph` that was kept as its number `index`, if there is
        one. sizes: of its symbols, for which how it was made is asked, if it serves them."""
        if self._cache is None:
            return None
        entry = self._cache.program(self._open_key(graph, index))
        if entry is None or entry[0].open_sizes is None:
            return None
        with self._assuming(sizes) as assumed:
            opened = open_graph(graph, {n: symbol(d) for n, d in zip(sizes, assumed.sizes)})
            return self._from_cache_entry(entry, opened, "", sizes)

    def _open_key(self, graph: Graph, index: int) -> str:
        return self._key(graph, {"open": np.array(index)})[1]

    @contextlib.contextmanager
    def _assuming(self, sizes: Mapping[str, int]) -> Iterator[Assumptions]:
        """Sizes of the symbols "d0", "d1", ... that stand for those named."""
        assumed = Assumptions({f"d{i}": size for i, size in enumerate(sizes.values())})
        with memory.limited(self.settings.memory or None), assuming(assumed):
            yield assumed

    def _translate_again(self, graph: Graph, sizes: Mapping[str, int] | None) -> Translation:
        """How the program of `graph` comes about; sizes: that are assumed of it, if it is open."""
        with contextlib.nullcontext() if sizes is None else self._assuming(sizes):
            return self._translate(graph)

    def lower(self, specialized: Specialized, *, separate: bool = False) -> LoweredProgram:
        """The same program made again with measured schedules. separate: one native function per
        kernel call, for profiling."""
        return self.lower_with(specialized, self._schedule_lookup(), separate=separate)

    def lower_with(
        self, specialized: Specialized, schedules: ScheduleOf | None, *, separate: bool = False
    ) -> LoweredProgram:
        """The same program made again with these schedules."""
        passed = specialized.trace.rewrites - specialized.lowered.trace.rewrites
        decisions = self._decisions(passed)
        return lower(specialized.graph, self.target, self.settings, separate, decisions, schedules)

    def _schedule_lookup(self) -> ScheduleLookup | None:
        return None if self._tuned is None else self._tuned.lookup()

    def _decisions(self, done: int) -> Decisions:
        """What may still be decided after so many rewrites."""
        return Decisions.of(self.settings, CLASSES[self.settings.opt_level], done)

    def _from_cache_entry(
        self,
        entry: tuple[ProgramBinary, dict[str, Any]] | None,
        graph: Graph,
        network: str,
        sizes: Mapping[str, int] | None = None,
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
            tuple(notes["plan"]), _arena_bytes(binary), binary.weight_bytes,
            tuple(notes["on_reference"]), notes.get("tuning", ""), tuple(notes.get("refused", ())),
            tuple(notes.get("choices", ())),
        )  # fmt: skip
        return Specialized(
            graph,
            binary,
            program,
            plan,
            lambda: self._translate_again(graph, sizes),
            network,
            notes,
        )

    def _compile(
        self,
        graph: Graph,
        network: str = "",
        sizes: Mapping[str, int] | None = None,
    ) -> Specialized:
        settings = self.settings
        translation = self._translate(graph)
        if settings.require_native:
            _require_native(translation.lowered)
        binary = translation.lowered.binary
        program = load_program(
            binary, settings.thread_count, reference_call(translation.lowered.graph)
        )
        plan = Plan(
            translation.lowered.lines,
            _arena_bytes(binary),
            binary.weight_bytes,
            translation.lowered.on_reference,
            translation.tuning,
            translation.trace.refused,
            translation.lowered.choices,
        )
        specialized = Specialized(
            graph, binary, program, plan, lambda: self._translate_again(graph, sizes), network
        )
        specialized.translation = translation
        return specialized

    def _translate(self, graph: Graph) -> Translation:
        settings = self.settings
        with _collector_paused():
            changes: list[Change] = []
            optimized, trace = run_passes(graph, settings, changes)
            if assumptions() is None:
                _require_memory(optimized)
            if self._required_recipe is not None:
                require_same(self._required_recipe, recipe_of(graph, optimized, changes, settings))
            decisions, lookup = self._decisions(trace.rewrites), self._schedule_lookup()
            lowered = lower(optimized, self.target, settings, decisions=decisions, tuned=lookup)
        tuning = "" if lookup is None else lookup.summary
        return Translation(optimized, lowered, trace.then(lowered.trace), tuple(changes), tuning)


def _require_memory(graph: Graph) -> None:
    """Raises `InputError` where a node gives more than may be had, before it is compiled. After the
    passes: the scores of an attention are stored by none of its kernels."""
    for node in graph.nodes:
        size = output_bytes(graph.output_types(node))
        memory.require(size, "what this node gives", node.place)


def _require_sizes_from(graph: Graph, sizes: Mapping[str, int]) -> None:
    """Raises `NotOpenError` where a size follows from data, or in a way that is not written."""
    for value, type_ in graph.types.items():
        if not type_.symbols() <= sizes.keys():
            raise NotOpenError(f"the sizes of {value}, {type_}, do not follow from the inputs'")


def _arena_bytes(binary: ProgramBinary) -> int:
    """Of a program for many sizes, for those that it was made for."""
    if binary.open_sizes is None:
        return binary.arena_bytes
    return binary.open_sizes.at(tuple(assumed_sizes().values())).arena_bytes


def _require_native(lowered: LoweredProgram) -> None:
    slow = [f"{s.label}: {s.reason}" for s in lowered.steps if isinstance(s, ReferenceCall)]
    if slow:
        more = f"; and {len(slow) - 1} more" if len(slow) > 1 else ""
        raise UnsupportedError(
            f"no kernel takes {slow[0]}{more}",
            next_step="compile without require_native, and see exe.plan for all of them",
        )


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
    nodes, value_types = graph.nodes, graph.types  # not the graph, which holds all constants

    def call(index: int, arrays: Sequence[np.ndarray | None]) -> Sequence[np.ndarray]:
        node = nodes[index]
        types = tuple(
            None if a is None or v is None else TensorType(value_types[v].dtype, a.shape)
            for v, a in zip(node.inputs, arrays)
        )
        output_types = tuple(value_types[v] for v in node.outputs)
        return evaluate_node(node, arrays, types, output_types, np.float32, promised_bits=True)

    return call
