"""From a network with given sizes to a program: passes, plan, placed calls, object code.

This is the only place that assembles them. A program that was made before comes from the cache.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from verax.base.collector import collector_paused
from verax.base.errors import UnsupportedError
from verax.base.gpu.targets import GPU_TARGETS, card_of
from verax.base.lazy import deferred
from verax.base.machine import memory
from verax.base.option_groups.settings import Settings
from verax.compiler.artifacts.cache import RECORD, ProgramCache, entry_name, is_cached
from verax.compiler.artifacts.saved_program import calls_of
from verax.compiler.kernels.target import Target
from verax.compiler.plan.counting import counts_size
from verax.compiler.specialized import Specialized, Translation, largest_value
from verax.ir.assumptions import (
    Assumptions,
    Condition,
    NotOpenError,
    assumed_sizes,
    assuming,
    assumptions,
    counts_open,
)
from verax.ir.deferred import DeferredGraph, release
from verax.ir.deferred import with_symbols as open_graph
from verax.ir.deferred import with_symbols_later as open_graph_later
from verax.ir.dim import symbol
from verax.ir.graph import Graph
from verax.ir.types import TensorType
from verax.records.plan import Plan
from verax.records.recipe import Recipe
from verax.reference.evaluate import evaluate_node
from verax.runtime.foreign_program import load_program
from verax.runtime.program_binary import ELEMENT_TYPES, ProgramBinary, PythonStep

if TYPE_CHECKING:
    from verax.compiler.artifacts.notes import notes_of
    from verax.compiler.artifacts.shipped import ShippedSchedules
    from verax.compiler.pipeline.levels import Change, classes_at, run_passes
    from verax.compiler.pipeline.recipe import follow, network_hash, recipe_of, require_same
    from verax.compiler.place.calls import ScheduleOf
    from verax.compiler.place.program import LoweredProgram, lower
    from verax.compiler.plan.steps import Decisions
    from verax.compiler.tune.lookup import ScheduleLookup, Tuned

    decisions_of = Decisions.of
else:  # what makes programs: one from the cache starts without it
    notes_of = deferred("verax.compiler.artifacts.notes:notes_of")
    classes_at = deferred("verax.compiler.pipeline.levels:classes_at")
    run_passes = deferred("verax.compiler.pipeline.levels:run_passes")
    follow = deferred("verax.compiler.pipeline.recipe:follow")
    network_hash = deferred("verax.compiler.pipeline.recipe:network_hash")
    recipe_of = deferred("verax.compiler.pipeline.recipe:recipe_of")
    require_same = deferred("verax.compiler.pipeline.recipe:require_same")
    lower = deferred("verax.compiler.place.program:lower")
    decisions_of = deferred("verax.compiler.plan.steps:Decisions.of")


class Specializer:
    """Makes the programs of one network, one for each set of input sizes.

    settings: those of the recipe where one is followed; target: the machine that they name.
    """

    def __init__(
        self,
        settings: Settings,
        recipe: Recipe | None = None,
        cache: ProgramCache | None = None,
        tuned: Tuned | ShippedSchedules | None = None,
        origin: str = "",
    ) -> None:
        """recipe: what every program must promise; its options take the place of the settings'.
        cache: where programs are looked for before they are made, and kept. tuned: schedules that
        measuring found; they change no bit. origin: decides the network, where it was read
        from files (`frontends.origin`): its hash need not be computed then if the cache has it."""
        self.settings = settings if recipe is None else follow(recipe, settings)
        self._required_recipe = recipe
        self._cache = cache if is_cached(self.settings) else None
        self.opens = self.settings.open_sizes and is_cached(self.settings) and recipe is None
        """Whether programs may be made for many sizes: not while looking for a fault."""
        self._tuned = tuned if is_cached(self.settings) else None
        self._origin = origin
        self._constant_hashes: dict[int, tuple[np.ndarray, str]] = {}
        self._hash_of: dict[str, str] = {}
        """Of constants that were released, by name: whoever reads them again reads the same bytes
        (`frontends.origin`), and inputs that become constants have other names."""
        self.target = Target.named(settings.target)
        self.card = card_of(settings.target) or 0
        """Of NVIDIA's, where the target is a GPU."""
        self.opens &= self.target.runs_here(self.card)  # elsewhere a process is for each program
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
        """The program that `specialize` would find in the cache, if there is one. Of a network that
        was read from files and is new to the cache there is none: its constants are not hashed."""
        if self._cache is None:
            return None
        name = self._network_name(graph, {v: value.tobytes() for v, value in values.items()})
        if name and self._cache.text(name, RECORD) is None:
            return None
        with memory.limited(self.settings.memory or None):
            network, key = self._key(graph, values)
            return self._from_cache_entry(self._cache.program(key), graph, network)

    def _key(self, graph: Graph, values: Mapping[str, np.ndarray]) -> tuple[str, str]:
        """The hash of a network, and the name of its program in the cache."""
        decisive = {name: value.tobytes() for name, value in values.items()}
        return self._key_with(self._network(graph, decisive), decisive)

    def _key_with(self, network: str, decisive: Mapping[str, bytes]) -> tuple[str, str]:
        """As `_key`. decisive: what the program depends on beside the network."""
        assert self._cache is not None
        schedules = "" if self._tuned is None else self._tuned.digest
        return network, self._cache.key(network, decisive, self.target, self.settings, schedules)

    def _network(self, graph: Graph, values: Mapping[str, bytes]) -> str:
        """The hash of a network; of one that was read from files it is kept."""
        assert self._cache is not None
        name = self._network_name(graph, values)
        if name:
            text = self._cache.text(name, RECORD)
            if text is not None:
                return text
        hashes = self._constant_hashes
        for v in self._hash_of.keys() & graph.constants.keys():
            a = graph.constants[v]
            hashes[id(a)] = (a, self._hash_of[v])
        network = network_hash(graph, hashes)
        if name:
            self._cache.keep_text(name, network, RECORD)
        return network

    def _network_name(self, graph: Graph, values: Mapping[str, bytes]) -> str:
        """What decides a network that was read from files, without a look at it; "" of others."""
        if not self._origin:
            return ""
        types = [f"{v}: {graph.types[v]}" for v in graph.inputs]
        decisive = [f"{v} = {value.hex()}" for v, value in values.items()]
        decisive += [f"{v} -> {output}" for v, output in graph.updates.items()]
        return entry_name("network", self._origin, *types, *decisive)

    def release(self, graph: Graph) -> None:
        """Give up the constants of the network, where they can be had again."""
        loaded = graph.loaded_graph if isinstance(graph, DeferredGraph) else None
        if loaded is not None:
            hashes, self._constant_hashes = self._constant_hashes, {}  # others may be reading it
            constants = loaded.constants.items()
            hash_of = {v: hashes[id(a)][1] for v, a in constants if id(a) in hashes}
            self._hash_of = {**self._hash_of, **hash_of}  # nor is this one changed under them
            del hashes, constants, loaded
            release(graph)
            gc.collect()  # what made a program refers to itself, and to constants
            memory.give_back()

    def specialize_open(
        self, graph: Graph, sizes: Mapping[str, int], counts: Mapping[str, int] | None = None
    ) -> Specialized | None:
        """The program of `graph` for all sizes of its symbols that decide as `sizes` do; None where
        some node has no kernel that reads sizes at run time.

        counts: sizes that data decided in a run that it shall serve, by their names."""
        with self._assuming(graph, sizes, counts) as assumed:
            try:
                opened = _opened(graph, sizes, assumed)
                return self._compile(opened, assumed=assumed)
            except NotOpenError:
                return None

    def keep_open(self, specialized: Specialized, graph: Graph, index: int) -> None:
        """Keep a program for many sizes of `graph` as its number `index`."""
        if self._cache is not None:
            key = self._open_key(graph, index)
            self._cache.keep_program(key, specialized.binary, specialized.notes(self.settings))

    def cached_open(
        self,
        graph: Graph,
        index: int,
        sizes: Mapping[str, int],
        counts: Mapping[str, int] | None = None,
    ) -> Specialized | None:
        """The program for many sizes of `graph` that was kept as its number `index`, if there is
        one. sizes: of its symbols; counts: of those that data decide, as far as they are known.
        Raises `NotServedError` where it does not serve the sizes."""
        if self._cache is None:
            return None
        with memory.limited(self.settings.memory or None):
            entry = self._cache.program(self._open_key(graph, index), tuple(sizes.values()))
        if entry is None or entry[0].open_sizes is None:
            return None
        with self._assuming(graph, sizes, counts) as assumed:
            # without a look at the nodes, which may not have been read
            opened = _with_symbols(graph, sizes, assumed, open_graph_later)
            return self._from_cache_entry(entry, opened, "", assumed)

    def _open_key(self, graph: Graph, index: int) -> str:
        decisive = {"open": np.array(index).tobytes()}
        if graph.bounds:  # under which others are made; that sizes are within is their condition
            decisive["bounds"] = json.dumps(dict(graph.bounds), sort_keys=True).encode()
        name = self._network_name(graph, {})  # no recipe, which states the hash of a network
        return self._key_with(name or self._network(graph, {}), decisive)[1]

    @contextlib.contextmanager
    def _assuming(
        self, graph: Graph, sizes: Mapping[str, int], counts: Mapping[str, int] | None
    ) -> Iterator[Assumptions]:
        """Sizes of the symbols "d0", "d1", ... that stand for those named, within the bounds that
        the network states; counts of those that data decide, as far as they are known."""
        in_order = {f"d{i}": size for i, size in enumerate(sizes.values())}
        bounds = {d: graph.bounds[s] for d, s in zip(in_order, sizes) if s in graph.bounds}
        assumed = Assumptions(in_order, counts=counts or {}, bounds=bounds, stated=_within(bounds))
        with memory.limited(self.settings.memory or None), assuming(assumed):
            yield assumed

    def _translation_of(
        self, graph: Graph, assumed: Assumptions | None
    ) -> Callable[[], Translation]:
        """How the program of `graph` comes about, when it is asked; assumed: of its sizes, if it is
        open."""
        fresh = None if assumed is None else assumed.renewed()

        def translate() -> Translation:
            with memory.limited(self.settings.memory or None), assuming(fresh and fresh.renewed()):
                return self._translate(graph)

        return translate

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
        return decisions_of(self.settings, classes_at(self.settings.opt_level), done)

    def _from_cache_entry(
        self,
        entry: tuple[ProgramBinary, dict[str, Any]] | None,
        graph: Graph,
        network: str,
        assumed: Assumptions | None = None,
    ) -> Specialized | None:
        """The specialized program of a cache entry; None without an entry."""
        if entry is None:
            return None
        binary, notes = entry
        at = notes.get("largest_at", "")
        memory.require(notes.get("largest", 0), "what this node gives", at)
        if self._required_recipe is not None:
            require_same(self._required_recipe, Recipe.from_json(notes["recipe"]))
        program = load_program(
            binary, self.settings.thread_count, calls_of(binary, notes, "the cache"), self.card
        )
        plan = Plan(
            tuple(notes["plan"]), _arena_bytes(binary), binary.weight_bytes,
            tuple(notes["on_reference"]), notes.get("tuning", ""), tuple(notes.get("refused", ())),
            tuple(notes.get("choices", ())), _copied_bytes(binary),
        )  # fmt: skip
        return Specialized(
            graph,
            binary,
            program,
            plan,
            self._translation_of(graph, assumed),
            network,
            notes,
        )

    def _compile(
        self,
        graph: Graph,
        network: str = "",
        assumed: Assumptions | None = None,
    ) -> Specialized:
        settings, translate = self.settings, self._translation_of(graph, assumed)
        with contextlib.nullcontext() if self._cache is None else self._cache.packing():
            translation = self._translate(graph)
        if settings.require_native:
            _require_native(translation.lowered)
        binary = translation.lowered.binary
        program = load_program(
            binary, settings.thread_count, reference_call(translation.lowered.graph), self.card
        )
        plan = Plan(
            translation.lowered.lines,
            _arena_bytes(binary),
            binary.weight_bytes,
            translation.lowered.on_reference,
            translation.tuning,
            translation.trace.refused,
            translation.lowered.choices,
            _copied_bytes(binary),
        )
        specialized = Specialized(graph, binary, program, plan, translate, network)
        specialized.translation = translation
        return specialized

    def _translate(self, graph: Graph) -> Translation:
        settings = self.settings
        with collector_paused():
            changes: list[Change] = []
            with counts_open():
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
    """Raises `InputError` where a node gives more than may be had, before it is compiled."""
    size, location = largest_value(graph)
    memory.require(size, "what this node gives", location)


def _within(bounds: Mapping[str, tuple[int, int | None]]) -> tuple[Condition, ...]:
    """The conditions that symbols are within bounds: whatever is decided by these holds."""
    conditions: list[Condition] = []
    for name, (low, high) in bounds.items():
        if low > 1:
            conditions.append(Condition(symbol(name) - low, ">="))  # type: ignore[arg-type]
        if high is not None:
            conditions.append(Condition(high - symbol(name), ">="))  # type: ignore[arg-type]
    return tuple(conditions)


def _opened(graph: Graph, sizes: Mapping[str, int], assumed: Assumptions) -> Graph:
    """The network over the symbols of `assumed`, which stand for those named. Raises `NotOpenError`
    where the size of some value is not known when it is needed."""
    opened = _with_symbols(graph, sizes, assumed)
    _require_sizes_known(opened, assumed)
    return opened


def _with_symbols(
    graph: Graph,
    sizes: Mapping[str, int],
    assumed: Assumptions,
    put: Callable[[Graph, Mapping[str, Any]], Graph] = open_graph,
) -> Graph:
    return put(graph, {n: symbol(d) for n, d in zip(sizes, assumed.sizes)})


def _require_sizes_known(graph: Graph, assumed: Assumptions) -> None:
    """Raises `NotOpenError` where a size follows from data and no kernel counts it, or in a way
    that is not written."""
    defined = assumed.sizes.keys() - assumed.counted.keys()
    for node in graph.nodes:
        for value in node.outputs:
            names = graph.types[value].symbols()
            if not names <= defined and counts_size(node.op):
                defined |= names & assumed.counted.keys()
            if not names <= defined:
                type_ = graph.types[value]
                raise NotOpenError(f"the sizes of {value}, {type_}, do not follow from the inputs'")


def _arena_bytes(binary: ProgramBinary) -> int:
    """Of a program for many sizes, for those that it was made for."""
    if binary.open_sizes is None:
        return binary.arena_bytes
    sizes = tuple(assumed_sizes().values())[: len(binary.open_sizes.symbols)]
    return binary.open_sizes.at(sizes).arena_bytes


def _copied_bytes(binary: ProgramBinary) -> int:
    """What steps on the reference copy from and to a GPU in each run; 0 on the processor."""
    if binary.target not in GPU_TARGETS:
        return 0
    input_count = len(binary.inputs)
    return sum(
        ELEMENT_TYPES[t.dtype] * math.prod(t.shape)
        for step in binary.schedule
        if isinstance(step, PythonStep)
        for t in (*step.inputs, *step.outputs)
        if t is not None and (t.region == "arena" or (t.region == "io" and t.offset >= input_count))
    )


def _require_native(lowered: LoweredProgram) -> None:
    slow = lowered.reasons
    if slow:
        more = f"; and {len(slow) - 1} more" if len(slow) > 1 else ""
        raise UnsupportedError(
            f"no kernel takes {slow[0]}{more}",
            next_step="compile without require_native, and see exe.plan for all of them",
        )


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
