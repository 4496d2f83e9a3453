"""`StatefulExecutable`: the interface of every executable, with or without state.

`run` continues from `state` and updates it, `step` is the pure function behind it, `reset` restores
the initial state.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from verax.base.arrays import as_arrays
from verax.base.errors import InputError
from verax.base.printing import OneLine
from verax.base.process.forks import renew_in_child
from verax.base.tensors import named_inputs
from verax.runtime.state_buffers import ResidentArray, owned, writable

Arrays = Mapping[str, np.ndarray]


class StatefulExecutable(OneLine, ABC):
    """An executable. Runs that share its state are serialized across threads.

    updates: state -> the output of the network that is its new value. initial: its initial
    values. Both are empty for a network without state.
    """

    def __init__(self, updates: Mapping[str, str], initial: Arrays) -> None:
        self._updates = dict(updates)
        self._initial = {v: np.array(a) for v, a in initial.items()}
        self._state: Arrays = dict(self._initial)
        self._run_lock = threading.RLock()
        renew_in_child(self)

    def renew_in_child(self) -> None:
        """See `base.process.forks`: a run of another thread does not go on, and changed nothing."""
        self._run_lock = threading.RLock()

    @property
    @abstractmethod
    def inputs(self) -> Mapping[str, Any]:
        """Types of the inputs that are no state, by name, in order."""

    @property
    @abstractmethod
    def outputs(self) -> Mapping[str, Any]:
        """Types of the outputs that are no state, by name, in order."""

    @cached_property
    def _argument_names(self) -> tuple[str, ...]:
        return tuple(self.inputs)

    @abstractmethod
    def _outputs_of(self, inputs: Arrays) -> dict[str, np.ndarray]:
        """All outputs, new state included, for all inputs, state included."""

    @cached_property
    def _result_names(self) -> tuple[str, ...]:
        return tuple(self.outputs)

    def _run_in_place(
        self, inputs: Arrays, state: Arrays
    ) -> tuple[list[np.ndarray], Arrays] | None:
        """(outputs that are no state, in order; new state), without a dictionary of all arrays;
        None where `_outputs_of` has to check and convert the inputs first."""
        return None

    def run(self, inputs: Arrays | np.ndarray) -> dict[str, np.ndarray]:
        """Outputs by name, computed from the current state, which is updated.

        inputs: by name; the array itself where there is one. A run that fails leaves the state as
        it is. Raises `InputError` when inputs do not fit.
        """
        if type(inputs) is not dict:
            inputs = named_inputs(inputs, self._argument_names)
        if not self._updates:
            return self._outputs_of(inputs)
        with self._run_lock:
            continued = self._run_in_place(inputs, self._state)
            if continued is None:
                on_host = {v: np.asarray(a) for v, a in self._state.items()}
                outputs, self._state = self._stepped(inputs, on_host)
                return outputs
            arrays, self._state = continued
        names = self._result_names
        return {names[0]: arrays[0]} if len(names) == 1 else dict(zip(names, arrays))

    def step(
        self, inputs: Arrays | np.ndarray, state: Arrays | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Outputs and the new state for `state`, by name; the executable's own state is not used.

        inputs: as of `run`. state: what it lacks has its initial value. Raises `InputError` when
        something does not fit.
        """
        inputs = named_inputs(inputs, self._argument_names)
        return self._stepped(inputs, {**self._initial, **self._checked_state(state or {})})

    @property
    def updates(self) -> dict[str, str]:
        """State name -> name of the output that is its new value."""
        return dict(self._updates)

    @property
    def state(self) -> dict[str, np.ndarray]:
        """Copies of the current state, by name; empty for a network without state.

        May be set to a mapping from some or all of these names to arrays of the same types, which
        are copied; raises `InputError` when one does not fit.
        """
        with self._run_lock:
            return {v: np.array(a) for v, a in self._state.items()}

    @state.setter
    def state(self, values: Arrays) -> None:
        with self._run_lock:
            copies = {v: np.array(a) for v, a in self._checked_state(values).items()}
            self._state = {**self._state, **copies}

    def exchange_state(self, state: Arrays) -> dict[str, np.ndarray]:
        """Go on from `state` and give the state so far. Nothing that is written in place is copied:
        buffers of the one belong to the executable now, those of the other to the caller. Those of
        a program for a GPU stay in its memory; `numpy.asarray` copies one.

        state: what this method gave before, or arrays, which are copied; what it lacks has its
        initial value. Raises `InputError` when something does not fit.
        """
        resident = {v: a for v, a in state.items() if isinstance(a, ResidentArray)}
        on_host = {v: a for v, a in state.items() if v not in resident}
        checked = {**self._checked_state(on_host), **self._require_types(resident)}
        with self._run_lock:
            former = {v: owned(a) for v, a in self._state.items()}
            self._state = {v: writable(checked.get(v, a)) for v, a in self._initial.items()}
        return former

    def reset(self) -> None:
        """Restore the initial values of the state."""
        with self._run_lock:
            self._state = dict(self._initial)

    def __call__(self, *arrays: np.ndarray) -> np.ndarray | tuple[np.ndarray, ...]:
        """`run` with inputs by position; one array, or a tuple of several outputs."""
        names = self._argument_names
        if len(arrays) == 1 and isinstance(arrays[0], Mapping):
            raise InputError(
                "a call takes arrays by position, and a dictionary is given",
                next_step="call run(inputs)",
            )
        if len(arrays) != len(names):
            raise InputError(f"{len(arrays)} arrays given, the model takes {len(names)}")
        results = tuple(self.run(dict(zip(names, arrays))).values())
        return results[0] if len(results) == 1 else results

    def _stepped(
        self, inputs: Arrays, state: Arrays
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        for name in self._updates:
            if name in inputs:
                raise InputError(
                    f"{name!r} is state of the network, not an input",
                    next_step="set executable.state, or give it to executable.step as state",
                )
        outputs = self._outputs_of({**inputs, **state})
        return outputs, {v: outputs.pop(o) for v, o in self._updates.items()}

    def _checked_state(self, values: Arrays) -> Arrays:
        """`values` as arrays. Raises `InputError` for one that is no state, or of another type."""
        return self._require_types(as_arrays(values))

    def _require_types(self, arrays: Arrays) -> Arrays:
        """`arrays`. Raises as `_checked_state`."""
        for name, array in arrays.items():
            if name not in self._updates:
                names = ", ".join(self._updates) or "nothing"
                raise InputError(f"the network has no state {name!r}", next_step=f"it has {names}")
            initial = self._initial[name]
            if array.dtype != initial.dtype or array.shape != initial.shape:
                raise InputError(
                    f"the state is {array.dtype}{list(array.shape)}, the network has "
                    f"{initial.dtype}{list(initial.shape)}",
                    place=f"state {name!r}",
                )
        return arrays
