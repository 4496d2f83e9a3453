"""A program with the graph that it was made from, and how it came about."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from verax.base.lazy import deferred
from verax.base.option_groups.settings import Settings
from verax.base.printing import OneLine
from verax.ir.deferred import DeferredGraph, release
from verax.ir.graph import Graph
from verax.records.plan import Plan
from verax.records.recipe import Recipe
from verax.reference.sizes import output_bytes
from verax.runtime.open_sizes import OpenSizes, SizedProgram
from verax.runtime.program import Program
from verax.runtime.program_binary import ProgramBinary
from verax.runtime.state_buffers import RunsWithState
from verax.runtime.stateful_runs import state_buffers_of

if TYPE_CHECKING:
    from verax.compiler.artifacts.notes import notes_of
    from verax.compiler.pipeline.levels import Change
    from verax.compiler.pipeline.recipe import recipe_of
    from verax.compiler.place.program import LoweredProgram
    from verax.records.trace import Trace
else:  # what makes programs: one from the cache starts without it
    notes_of = deferred("verax.compiler.artifacts.notes:notes_of")
    recipe_of = deferred("verax.compiler.pipeline.recipe:recipe_of")

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
        self._state_buffers: dict[tuple[int, ...], RunsWithState | None] = {}

    def _brief(self) -> str:
        return f"{self.source.name}; {self.plan._brief()}"

    @property
    def open_sizes(self) -> OpenSizes:
        """Of a program that serves many sizes."""
        assert self.binary.open_sizes is not None
        return self.binary.open_sizes

    @cached_property
    def state_buffers(self) -> RunsWithState | None:
        """Runs that go on from one another, if the network remembers anything."""
        return state_buffers_of(self.program)

    def state_buffers_for(self, sized: SizedProgram | None) -> RunsWithState | None:
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
        """Forget how it was made, where that holds many rewritten constants, and what it was made
        from, where that can be had again: the program has them packed. Who asks afterwards has it
        made again."""
        translation: Translation | None = self.__dict__.get("translation")
        if translation is not None:
            graphs = (translation.graph, translation.lowered.graph)
            arrays = {id(a): a for graph in graphs for a in graph.constants.values()}
            stays = not isinstance(self.source, DeferredGraph)
            held_by_source = set(map(id, self.source.constants.values())) if stays else set()
            if sum(a.nbytes for i, a in arrays.items() if i not in held_by_source) > MANY_BYTES:
                del self.__dict__["translation"]
        release(self.source)

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
            if recipe is not None:
                self._notes["largest"], self._notes["largest_at"] = largest_value(self.graph)
        return self._notes


def largest_value(graph: Graph) -> tuple[int, str]:
    """The most bytes that a node gives, and its place. Of a network after the passes: the scores of
    an attention are stored by none of its kernels."""
    sizes = ((output_bytes(graph.output_types(node)), node.place) for node in graph.nodes)
    return max(sizes, default=(0, ""), key=lambda pair: pair[0])
