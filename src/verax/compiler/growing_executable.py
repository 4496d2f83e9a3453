"""`GrowingExecutable`: a network that keeps caches which grow by its new rows at every run.

Each cache is one buffer with room that doubles (`runtime.cache_rows`), in which a program for many
sizes writes new rows behind the old ones and attention reads where they lie (`plan.growing`). What
no such program serves, such as the first run, for which nothing is cached, is answered by the
network as it is, and the rows that it gives are copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from verax.base.arrays import as_arrays
from verax.base.errors import InputError, UsageError
from verax.base.machine import memory
from verax.base.tensors import named_inputs
from verax.compiler.executable import Executable
from verax.compiler.open_programs import OpenPrograms, Served
from verax.compiler.plan.growing import ROOM, ROWS, empty_past, with_room
from verax.compiler.specialize import Specializer
from verax.compiler.specialized import Specialized
from verax.ir.dim import evaluated
from verax.ir.graph import Graph
from verax.ir.types import TensorType
from verax.records.plan import Plan
from verax.reference.evaluate import bind_symbols
from verax.runtime.cache_rows import CacheRows, rows_of
from verax.runtime.stateful import Arrays
from verax.runtime.stateful_runs import run_on_rows


class GrowingExecutable(Executable):
    """As `Executable`; its state are caches of any length, empty at first."""

    def __init__(
        self,
        graph: Graph,
        specializer: Specializer,
        caches: Mapping[str, str],
        initial: Arrays | None = None,
    ) -> None:
        """caches: input -> output, of which `plan.growing.grows` is true. initial: what they hold
        at first, of one length. Raises `UsageError` where that does not fit."""
        super().__init__(graph, specializer)
        self._caches = dict(caches)
        roomy = with_room(graph, caches)
        assert roomy is not None
        self._roomy = OpenPrograms(roomy, specializer)
        self._order = sorted(roomy.symbols())
        (self._room,) = roomy.types[ROOM].symbols()
        self._in_place = {roomy.updates[past]: past for past in caches}
        self._interfaces: dict[tuple[str, ...], Graph] = {}
        self._first_rows = CacheRows({})
        try:
            self._first_rows = self._checked(initial or {}, self._first_rows)
        except InputError as error:
            raise UsageError(error.cause, place=error.place, next_step=error.next_step) from None
        self._rows = self._first_rows.copied()
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._last_roomy: Specialized | None = None

    # --- what it takes and gives

    @property
    def inputs(self) -> dict[str, TensorType]:
        return {v: t for v, t in super().inputs.items() if v not in self._caches}

    @property
    def outputs(self) -> dict[str, TensorType]:
        own = set(self._caches.values())
        return {v: t for v, t in super().outputs.items() if v not in own}

    @property
    def updates(self) -> dict[str, str]:
        return dict(self._caches)

    def run(self, inputs: Arrays | np.ndarray) -> dict[str, np.ndarray]:
        """Outputs by name, computed from the current state, which gets longer.

        A run that fails or is interrupted leaves the state as it is. Raises `InputError` when
        inputs do not fit.
        """
        with self._run_lock:
            outputs, self._rows = self._continued(inputs, self._rows)
        return outputs

    def step(
        self, inputs: Arrays | np.ndarray, state: Arrays | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        rows = self._checked(state or {}, self._first_rows.copied())
        outputs, rows = self._continued(inputs, rows)
        return outputs, {v: np.array(a) for v, a in rows.views().items()}

    @property
    def state(self) -> dict[str, np.ndarray]:
        """Copies of the caches as they are now, by name; none before there is anything.

        May be set to caches of any length, the same for all; raises `InputError` when one does not
        fit.
        """
        with self._run_lock:
            return {v: np.array(a) for v, a in self._rows.views().items()}

    @state.setter
    def state(self, values: Arrays) -> None:
        with self._run_lock:
            self._rows = self._checked(values, self._rows)

    def exchange_state(self, state: Arrays) -> dict[str, np.ndarray]:
        """Go on from `state` and give the state so far: its rows, which nothing writes any more."""
        rows = self._checked(state, self._first_rows.copied())
        with self._run_lock:
            former, self._rows = self._rows, rows
        return _HeldRows(former)

    def reset(self) -> None:
        with self._run_lock:
            first, rows = self._first_rows, self._rows
            self._rows = first.copied() if first.length else rows.of_length(0)

    def prepare(self, inputs: Arrays) -> None:
        arguments, rows, sizes = self._bind(inputs, self._rows)
        if self._served(sizes, rows) is None:
            self._lookup(self._all_inputs(arguments, rows))

    @property
    def plan(self) -> Plan:
        return super().plan if self._last_roomy is None else self._last_roomy.plan

    # --- a run

    def _continued(
        self, inputs: Arrays | np.ndarray, rows: CacheRows
    ) -> tuple[dict[str, np.ndarray], CacheRows]:
        """Outputs that are no cache, and the rows with the new ones behind them."""
        arguments, rows, sizes = self._bind(inputs, rows)
        served = self._served(sizes, rows)
        if served is None:
            return self._copied(arguments, rows)
        (specialized, sized), rows, total = served
        arrays = {v: np.ascontiguousarray(a) for v, a in arguments.items()}
        with memory.limited(self.settings.memory or None):
            new, rows = run_on_rows(specialized.program, sized, arrays, rows, self._in_place)
        self._last_roomy = specialized
        self._shapes = {
            v: arguments[v].shape if v in arguments else rows.shape(v) for v in self.graph.inputs
        }
        return dict(zip(self._result_names, new, strict=True)), rows.of_length(total)

    def _copied(
        self, arguments: Mapping[str, np.ndarray], rows: CacheRows
    ) -> tuple[dict[str, np.ndarray], CacheRows]:
        """The same by the network as it is."""
        self._last_roomy, self._shapes = None, {}
        outputs = self._outputs_of(self._all_inputs(arguments, rows))
        presents = {past: outputs.pop(present) for past, present in self._caches.items()}
        return outputs, rows.appended(presents)

    def _all_inputs(
        self, arguments: Mapping[str, np.ndarray], rows: CacheRows
    ) -> dict[str, np.ndarray]:
        arrays = {**arguments, **rows.views()}
        return {v: np.ascontiguousarray(arrays[v]) for v in self.graph.inputs}

    def _bind(
        self, inputs: Arrays | np.ndarray, rows: CacheRows
    ) -> tuple[Mapping[str, np.ndarray], CacheRows, dict[str, int]]:
        """The caller's arrays, the rows that there are for them, and sizes of symbols. Raises
        `InputError` where they do not fit."""
        arguments = as_arrays(named_inputs(inputs, self._argument_names))
        for name in self._caches:
            if name in arguments:
                raise InputError(
                    f"{name!r} is state of the network, not an input",
                    next_step="set executable.state, or give it to executable.step as state",
                )
        if not rows.length:
            rows = self._empty(bind_symbols(self._interface(self._argument_names), arguments), rows)
        first = next(iter(self._caches))
        past = rows.types()[first]
        names = (first, *self._argument_names)
        return arguments, rows, bind_symbols(self._interface(names), {**arguments, first: past})

    def _empty(self, sizes: Mapping[str, int], rows: CacheRows) -> CacheRows:
        """Caches without rows, in the buffers of `rows` where these fit."""
        try:
            empty = {v: empty_past(self.graph, v, sizes) for v in self._caches}
        except KeyError as error:
            raise InputError(
                f"no input tells the size {error.args[0]!r} of the caches",
                next_step="give it when loading, or set executable.state",
            ) from None
        have = {v: rows.of_length(0).shape(v) for v in rows.buffers}
        fits = have == {v: a.shape for v, a in empty.items()}
        return rows if fits else CacheRows(empty)

    def _served(
        self, sizes: Mapping[str, int], rows: CacheRows
    ) -> tuple[Served, CacheRows, int] | None:
        """A program that writes in place, rows with enough room, and how many there will be."""
        if not self._can_be_open or not rows.length:
            return None
        try:
            present = next(iter(self._caches.values()))
            total = evaluated(self.graph.types[present].dims[ROWS], sizes)
            rows = rows.with_room(total)
            by_name = {v: ({self._room: rows.room} | dict(sizes))[v] for v in self._order}
        except KeyError:  # a size that data decide
            return None
        with self._lock:
            served = self._roomy.serving(by_name)
            if served is None:
                served = self._roomy.make(by_name)
                self.specializer.release(self.graph)
            if served is not None:
                served[0].release_translation()
        if served is None or not served[0].program.is_native:
            return None
        return served, rows, total

    # --- programs that are asked about

    def _lookup(self, inputs: Mapping[str, np.ndarray]) -> Any:
        self._last_roomy, self._shapes = None, {}
        return super()._lookup(inputs)

    def _current(self) -> Specialized:
        """Of the sizes of the last run alone, without room."""
        if not self._shapes:
            return super()._current()
        return self._alone(self._key_of(self._shapes, {}), self._shapes).specialized

    # --- state

    def _checked(self, values: Arrays, rows: CacheRows) -> CacheRows:
        """`rows` with these caches instead, copied. Raises `InputError` where they do not fit."""
        if not values:
            return rows
        if isinstance(values, _HeldRows):
            return values.claimed()
        names = ", ".join(self._caches)
        for name in values:
            if name not in self._caches:
                raise InputError(f"the network has no state {name!r}", next_step=f"it has {names}")
        arrays = {**rows.views(), **as_arrays(values)}
        missing = [v for v in self._caches if v not in arrays]
        if missing:
            raise InputError("caches have one length", place=f"state {missing[0]!r}",
                             next_step=f"give all of them: {names}")  # fmt: skip
        bind_symbols(self._interface(tuple(self._caches)), arrays)
        return rows_of({v: arrays[v] for v in self._caches})

    def _interface(self, inputs: Sequence[str]) -> Graph:
        """A network that takes these of its inputs alone, to check them."""
        if inputs not in self._interfaces:
            types = {v: self.graph.types[v] for v in inputs}
            self._interfaces[tuple(inputs)] = Graph(tuple(inputs), (), (), {}, types)
        return self._interfaces[tuple(inputs)]


class _HeldRows(dict[str, np.ndarray]):
    """State that was given for another. Whoever hands it back first goes on in its buffers, later
    ones in copies."""

    def __init__(self, rows: CacheRows) -> None:
        super().__init__(rows.views())
        self._rows, self._is_claimed = rows, False

    def claimed(self) -> CacheRows:
        """What it holds."""
        if self._is_claimed:
            return self._rows.copied()
        self._is_claimed = True
        return self._rows


def bind_growing(
    executable: Executable, caches: Mapping[str, str], initial: Arrays | None = None
) -> GrowingExecutable:
    """The executable that keeps `caches` of `executable`'s network."""
    return GrowingExecutable(executable.graph, executable.specializer, caches, initial)
