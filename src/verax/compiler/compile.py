"""compile(graph, settings): an `Executable`, with its first program where all sizes are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from verax.base.lazy import deferred
from verax.base.option_groups.settings import Settings
from verax.compiler.artifacts.cache import ProgramCache
from verax.compiler.executable import Executable
from verax.compiler.specialize import Specializer
from verax.ir.graph import Graph
from verax.records.recipe import Recipe

if TYPE_CHECKING:
    from verax.compiler.artifacts.shipped import ShippedSchedules
    from verax.compiler.tune.lookup import Tuned

E = TypeVar("E", bound=Executable)
Executable.bind_growing = staticmethod(deferred("verax.compiler.growing_executable:bind_growing"))


def compile(
    graph: Graph,
    settings: Settings | None = None,
    recipe: Recipe | None = None,
    cache: ProgramCache | None = None,
    tuned: Tuned | ShippedSchedules | None = None,
) -> Executable:
    """Compile `graph`. Static shapes are compiled at once, symbolic ones at the first run.

    recipe: followed instead of the settings' level and passes. cache, tuned: see `Specializer`.
    Raises `VeraxError`s that name the node when something cannot be compiled, or say why the recipe
    cannot be followed.
    """
    return compile_as(Executable, graph, settings, recipe, cache, tuned)


def compile_as(
    kind: type[E],
    graph: Graph,
    settings: Settings | None = None,
    recipe: Recipe | None = None,
    cache: ProgramCache | None = None,
    tuned: Tuned | ShippedSchedules | None = None,
    origin: str = "",
) -> E:
    """The same with a class of `Executable` of the caller's own. origin: see `Specializer`."""
    specializer = Specializer(settings or Settings(), recipe, cache, tuned, origin)
    executable = kind(graph, specializer)
    executable.specialize_for_static_sizes()
    return executable
