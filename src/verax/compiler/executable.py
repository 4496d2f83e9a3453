"""`Executable`: a compiled network that runs.

It has a program for each set of input shapes that it was run with (and, where a tensor's value sets
a shape, for each such value), and keeps the last ones.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from verax.base.arrays import as_arrays
from verax.base.errors import GraphError, InputError, UnsupportedError, UsageError
from verax.base.lazy import deferred
from verax.base.machine import memory
from verax.base.notebooks import of_text
from verax.base.option_groups.deprecation import renamed_property
from verax.base.tensors import named_inputs
from verax.compiler import hot_sizes
from verax.compiler.held_programs import HeldPrograms
from verax.compiler.hot_sizes import HotSizes
from verax.compiler.open_inputs import (
    has_counted_sizes,
    leaves_symbols_open,
    naming_sizes,
    shape_defining_inputs,
)
from verax.compiler.open_programs import OpenPrograms
from verax.compiler.specialize import Specializer, reference_call
from verax.compiler.specialized import Specialized
from verax.ir.deferred import DeferredGraph, deferred_from, reinferred, release
from verax.ir.graph import Graph
from verax.ir.types import TensorType
from verax.records.plan import Plan
from verax.records.recipe import Recipe
from verax.reference.evaluate import bind_symbols
from verax.runtime.counted_sizes import CountsNotServedError
from verax.runtime.foreign_program import load_program
from verax.runtime.open_sizes import SizedProgram
from verax.runtime.program import Program
from verax.runtime.state_buffers import RunsWithState
from verax.runtime.stateful import Arrays, StatefulExecutable

if TYPE_CHECKING:
    from verax.compiler.caches import bind_caches
    from verax.compiler.describe.step_times import profile_of
    from verax.compiler.plan.growing import grows as caches_grow
    from verax.records.certificate import Certificate
    from verax.records.profile import Profile
    from verax.records.trace import Trace
    from verax.runtime.gpu.calls import DeviceInputs, any_on_device, run_on_device, run_through_host
else:
    any_on_device = deferred("verax.runtime.gpu.calls:any_on_device")
    run_on_device = deferred("verax.runtime.gpu.calls:run_on_device")
    run_through_host = deferred("verax.runtime.gpu.calls:run_through_host")
    bind_caches = deferred("verax.compiler.caches:bind_caches")
    caches_grow = deferred("verax.compiler.plan.growing:grows")
    profile_of = deferred("verax.compiler.describe.step_times:profile_of")


@dataclasses.dataclass(frozen=True)
class _Bound:
    """A program and, if it serves many sizes, what it is for one of them."""

    specialized: Specialized
    sized: SizedProgram | None = None

    @cached_property
    def may_weigh_twice(self) -> bool:
        """Whether another program may hold its weights again."""
        return self.specialized.binary.weight_bytes <= hot_sizes.MOST_BYTES

    @property
    def state_buffers(self) -> RunsWithState | None:
        """Of the program for these sizes."""
        return self.specialized.state_buffers_for(self.sized)


class Executable(StatefulExecutable):
    """A compiled network. `run` takes and gives dictionaries of arrays; calls positional ones."""

    bind_growing: ClassVar[Callable[..., Executable]]
    """See `compiler.growing_executable`; `compiler.compile` names it, as it makes executables."""

    def __init__(self, graph: Graph, specializer: Specializer) -> None:
        """specializer: makes the program for each set of sizes. `certificate` is for whoever judges
        the program to set."""
        super().__init__(graph.state, graph.initial)
        self.graph = graph
        self._output_names = graph.outputs
        self.specializer = specializer
        self.settings = specializer.settings
        self.certificate: Certificate | None = None
        self._by_value = shape_defining_inputs(graph)
        self._by_types_alone = not self._by_value and not self.settings.memory
        self._programs: HeldPrograms[_Bound] = HeldPrograms(graph.name, self.settings)
        self._open = OpenPrograms(graph, specializer)
        self._hot = HotSizes()
        self._can_be_open = specializer.opens and leaves_symbols_open(graph)
        self._counts = has_counted_sizes(graph)
        self._lock = threading.Lock()
        self._last: tuple[tuple[Any, ...], _Bound] | None = None

    def bind(self, caches: Mapping[str, str], initial: Arrays | None = None) -> Executable:
        """A further executable that keeps `caches` (input -> the output that is its next value) as
        its state, and writes their new rows in place (`compiler.caches.bind_caches`).

        initial: what they hold at first, else zeros. `run` neither takes nor gives them; `state`,
        `step` and `reset` do. Caches that grow by concatenation are empty at first, and get buffers
        with room (`compiler.growing_executable`). Raises `UsageError` where names or types do not
        fit.
        """
        if self.grows(caches):
            return self.bind_growing(self, caches, initial)
        unbound = self.graph

        def make() -> Graph:
            graph = bind_caches(unbound, caches, initial)
            release(unbound)  # not held beside what was made of it
            return graph

        is_deferred = isinstance(unbound, DeferredGraph)
        bound = Executable(deferred_from(make(), make) if is_deferred else make(), self.specializer)
        bound.specialize_for_static_sizes()
        return bound

    def grows(self, caches: Mapping[str, str]) -> bool:
        """Whether all `caches`, as `bind` takes them, grow by concatenation."""
        return caches_grow(self.graph, caches)

    def specialize_for_static_sizes(self) -> None:
        """Make the program where the graph states all sizes; else the first run makes one."""
        if all(self.graph.types[v].is_static for v in self.graph.inputs) and not self._by_value:
            self._specialize({v: self.graph.types[v].shape for v in self.graph.inputs}, {})

    @property
    def is_decided_by_shapes(self) -> bool:
        """True if no input's value decides sizes, and no data that kernels count."""
        return not self._by_value and not self._counts

    def release_translations(self) -> None:
        """See `Specialized.release_translation`."""
        with self._lock:
            for bound in self._programs.values():
                bound.specialized.release_translation()
            if self._programs:  # else the first run needs it
                self.specializer.release(self.graph)

    def renew_in_child(self) -> None:
        """See `base.process.forks`: a program that another thread was making is made again."""
        super().renew_in_child()
        self._lock = threading.Lock()
        self._hot.renew()

    @property
    def inputs(self) -> dict[str, TensorType]:
        return {v: self.graph.types[v] for v in self.graph.arguments}

    @property
    def outputs(self) -> dict[str, TensorType]:
        return {v: self.graph.types[v] for v in self.graph.results}

    @property
    def plan(self) -> Plan:
        """The plan of the program used last; raises `InputError` before shapes are known."""
        return self._bound().specialized.plan

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

    def _bound(self) -> _Bound:
        if self._last is None:
            raise InputError(
                "no program has been made yet: shapes are symbolic",
                next_step="run once, or give the shapes when loading",
            )
        return self._last[1]

    def _current(self) -> Specialized:
        """The program of the last shapes alone; made now if one for many served them."""
        bound = self._bound()
        if bound.sized is None:
            return bound.specialized
        shapes = dict(zip(self.graph.inputs, bound.sized.inputs, strict=True))
        key = self._key_of(shapes, {})
        return self._alone(key, shapes).specialized

    def _alone(self, key: tuple[Any, ...], shapes: Mapping[str, tuple[int, ...]]) -> _Bound:
        """The program of these shapes alone, made now if there is none."""
        with self._lock:
            if key in self._programs:
                return self._programs[key]
        alone = self.specializer.specialize(self._at(shapes, {}), {})
        with self._lock:
            if key not in self._programs:
                self._programs.hold(key, _Bound(alone))
            return self._programs[key]

    def _note_call(self, last: tuple[tuple[Any, ...], _Bound], started: float) -> None:
        """Sizes that a program for many served, which may prove hot; not where it counts others,
        which a program of these sizes alone leaves to the reference."""
        key, bound = last
        if bound.sized is None or self._counts or not self.settings.background:
            return
        if not bound.may_weigh_twice:
            return
        shapes = dict(zip(self.graph.inputs, bound.sized.inputs, strict=True))

        def make() -> None:
            alone = self._alone(key, shapes)
            alone.specialized.release_translation()
            self.specializer.release(self.graph)
            with self._lock:
                if self._last is not None and self._last[0] == key:
                    self._last = (key, alone)

        self._hot.note(key, time.perf_counter() - started, make)

    @property
    def program(self) -> Program:
        """What ran last. Raises `InputError` before anything has."""
        return self._bound().specialized.program

    @property
    def specialized(self) -> Specialized:
        """The program of the last shapes. Raises `InputError` before there is one."""
        return self._current()

    specialised = renamed_property("specialised", "specialized")

    def _run_in_place(
        self, inputs: Arrays, state: Arrays
    ) -> tuple[list[np.ndarray], Arrays] | None:
        if not self._by_types_alone:
            return None
        last, started = self._last, time.perf_counter()
        if last is not None:
            state_buffers = last[1].state_buffers
            outputs = state_buffers.run(inputs, state) if state_buffers else None
            if outputs is not None:
                if last[1].sized is not None:
                    self._note_call(last, started)
                return outputs
        if self._updates.keys() & inputs.keys():
            return None
        # Of other sizes than those of the last run: the buffers of caches are handed on.
        arrays = as_arrays(inputs)
        bound = self._lookup({**arrays, **state})
        bound.specialized.release_translation()
        state_buffers = bound.state_buffers
        return state_buffers.run(arrays, state) if state_buffers else None

    def _outputs_of(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        last, started = self._last, time.perf_counter()
        if last is not None and self._by_types_alone:
            try:
                outputs = last[1].specialized.program.run_if_exact(inputs)
            except CountsNotServedError as refused:
                return self._run_for_counts(as_arrays(inputs), last[1], refused.counts)
            if outputs is not None:
                if last[1].sized is not None:
                    self._note_call(last, started)
                names = self._output_names
                return {names[0]: outputs[0]} if len(names) == 1 else dict(zip(names, outputs))
        if self.specializer.target.gpu and any_on_device(inputs):
            return self._run_on_device(inputs)
        inputs = as_arrays(inputs)
        bound = self._lookup(inputs)
        bound.specialized.release_translation()
        try:
            by_name = self._run_bound(inputs, bound)
        except CountsNotServedError as refused:
            return self._run_for_counts(inputs, bound, refused.counts)
        if bound.sized is not None:
            self._note_call((self._key(inputs), bound), started)
        return by_name

    def _run_on_device(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Outputs on the GPU on which inputs lie."""

        def program_for(resident: DeviceInputs) -> tuple[Program, SizedProgram | None]:
            bound = self._lookup(resident.arrays_with(self._by_value))
            return bound.specialized.program, bound.sized

        device = self.specializer.target.name, self.specializer.card
        if self._counts:
            return run_through_host(inputs, *device, self._outputs_of)
        outputs = run_on_device(inputs, *device, program_for)
        return dict(zip(self._output_names, outputs))

    def _run_bound(self, inputs: Mapping[str, np.ndarray], bound: _Bound) -> dict[str, np.ndarray]:
        arrays = [inputs[v] for v in bound.specialized.inputs]
        with memory.limited(self.settings.memory or None):
            outputs = bound.specialized.program.run(arrays, bound.sized)
        return dict(zip(self.graph.outputs, outputs))

    def _run_for_counts(
        self, inputs: Mapping[str, np.ndarray], bound: _Bound, counts: Mapping[str, int]
    ) -> dict[str, np.ndarray]:
        """Outputs where a program does not serve what its kernels counted: those of another one, or
        of a new one that is made for these counts, or of one that counts nothing in advance."""
        assert bound.sized is not None
        shapes = {v: inputs[v].shape for v in self.graph.inputs}
        sizes = dict(zip(sorted(self.graph.symbols()), bound.sized.sizes, strict=True))
        key, attempted = self._key_of(shapes, {}), [bound.specialized]
        while True:
            with self._lock:
                served = self._open.serving_counts(sizes, counts, attempted)
            if served is None:
                return self._run_bound(inputs, self._alone(key, shapes))
            another = _Bound(*served)
            attempted.append(another.specialized)
            with contextlib.suppress(CountsNotServedError):
                outputs = self._run_bound(inputs, another)
                with self._lock:
                    self._programs.served.clear()
                    self._open.prefer(another.specialized)
                    self._last = (key, another)
                return outputs

    def prepare(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Have the program for inputs of these shapes ready, and run nothing.

        Raises `InputError` when inputs do not fit.
        """
        self._lookup({**as_arrays(named_inputs(inputs, self.inputs)), **self.state})

    def profile(self, inputs: Mapping[str, np.ndarray], runs: int = 20) -> Profile:
        """Time every step by itself: median of `runs` after two more to warm up; beside it the
        machine's peak of multiply-adds.

        State is read as it is and stays so. Raises `InputError` when inputs do not fit.
        """
        inputs = {**as_arrays(named_inputs(inputs, self.inputs)), **self.state}
        self._lookup(inputs)
        specialized = self._current()
        lowered = self.specializer.lower(specialized, separate=True)
        threads = self.settings.thread_count
        call, card = reference_call(lowered.graph), self.specializer.card
        program = load_program(lowered.binary, threads, call, card)
        arrays = [inputs[v] for v in specialized.inputs]
        step_times = program.time_steps(arrays, runs + 2, chunk_count=lowered.chunk_count)
        times = np.median(step_times[2:], axis=0) / 1e3
        program.close()
        return profile_of(lowered, times.tolist(), runs, self.settings, self.specializer.target)

    def _lookup(self, inputs: Mapping[str, np.ndarray]) -> _Bound:
        last = self._last
        if last is not None and len(inputs) == len(self.graph.inputs):
            with contextlib.suppress(KeyError, AttributeError):
                key = self._key(inputs)
                if key == last[0]:
                    return last[1]
                with self._lock:
                    bound = self._programs.find(key)
                    if bound is not None:
                        self._last = (key, bound)
                        return bound
        sizes = bind_symbols(self.graph, inputs)
        return self._specialize(
            {v: inputs[v].shape for v in self.graph.inputs},
            {v: np.array(inputs[v]) for v in self._by_value},  # kept by the program
            sizes,
        )

    def _key(self, inputs: Mapping[str, np.ndarray]) -> tuple[Any, ...]:
        arrays = [inputs[v] for v in self.graph.inputs]
        return tuple((a.shape, a.dtype) for a in arrays) + tuple(
            inputs[v].tobytes() for v in self._by_value
        )

    def _specialize(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        values: Mapping[str, np.ndarray],
        sizes: Mapping[str, int] | None = None,
    ) -> _Bound:
        key = self._key_of(shapes, values)
        with self._lock:
            bound = self._programs.find(key)
            if bound is None:
                bound = self._bound_for(key, shapes, values, sizes or {})
                bound.specialized.release_translation()
                self.specializer.release(self.graph)
            self._last = (key, bound)
        return bound

    def _bound_for(
        self,
        key: tuple[Any, ...],
        shapes: Mapping[str, tuple[int, ...]],
        values: Mapping[str, np.ndarray],
        sizes: Mapping[str, int],
    ) -> _Bound:
        """A program for sizes that have none of their own in memory: one that serves many, unless
        there is none yet and one of their own is kept on the disk; else their own, which is held.
        Where data decide sizes, one of their own would count none of them, and is not asked for."""
        by_name = dict(sorted(sizes.items()))
        may_open = self._can_be_open and (bool(sizes) or self._counts)
        may_open = may_open and min(sizes.values(), default=1) >= 1
        served = self._open.serving(by_name) if may_open else None
        if served is not None:
            return self._programs.remember(key, _Bound(*served))
        try:
            graph = self._at(shapes, values)
            look = may_open and not self._counts
            cached = self.specializer.cached_program(graph, values) if look else None
            if may_open and cached is None:
                program = self._open.make(by_name)
                if program is not None:
                    return self._programs.remember(key, _Bound(*program))
                self._can_be_open = self._open.is_possible
            bound = _Bound(cached or self.specializer.specialize(graph, values))
        except GraphError as error:
            raise naming_sizes(error, by_name) from error
        self._programs.hold(key, bound)
        return bound

    def open_program(self, sizes: Mapping[str, int]) -> Specialized:
        """The program for many sizes that serves these of all symbols; made now if there is none.

        Raises `UsageError` for other names, `GraphError` where the network is not valid for these
        sizes, `UnsupportedError` where there can be no such program.
        """
        names = sorted(self.graph.symbols())
        if sorted(sizes) != names or min(sizes.values(), default=0) < 1:
            raise UsageError(
                f"the open sizes are {', '.join(names) or 'none'}",
                next_step="give each of them a number from 1 on, and no others",
            )
        types = {v: self.graph.types[v].substitute(sizes) for v in self.graph.inputs}
        by_name = {name: sizes[name] for name in names}
        with self._lock:
            served = self._open.serving(by_name) if self._can_be_open else None
            if served is None and self._can_be_open:
                self._at({v: t.shape for v, t in types.items()}, {})
                served = self._open.make(by_name)
        if served is None:
            raise UnsupportedError(
                "no program of this network serves many sizes",
                place=self.graph.name,
                next_step="see docs/changing_sizes.md, or compile it for each set of sizes",
            )
        return served[0]

    def _key_of(
        self, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, np.ndarray]
    ) -> tuple[Any, ...]:
        return tuple((s, self.graph.types[v].dtype.numpy) for v, s in shapes.items()) + tuple(
            a.tobytes() for a in values.values()
        )

    def _at(self, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, np.ndarray]) -> Graph:
        """The network with these shapes."""
        types = {v: TensorType(self.graph.types[v].dtype, s) for v, s in shapes.items()}
        return reinferred(self.graph, types, values)
