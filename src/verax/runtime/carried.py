"""What a compiled network remembers from run to run, and the ways to run it that follow from that.

`Remembers` is what every executable is to its user: `run` continues from `state` and updates it,
`step` is the pure function behind it, `reset` goes back to the beginning.
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
from verax.base.forks import renew_in_child
from verax.base.printing import OneLine
from verax.base.tensors import named_inputs

Arrays = Mapping[str, np.ndarray]


class Remembers(OneLine, ABC):
    """An executable. Runs that share its state come one after the other, in whatever thread.

    updates: state -> the output of the network that is its new value. initial: its values at the
    beginning. Both are empty for a network that remembers nothing.
    """

    def __init__(self, updates: Mapping[str, str], initial: Arrays) -> None:
        self._updates = dict(updates)
        self._initial = {v: np.array(a) for v, a in initial.items()}
        self._now: Arrays = dict(self._initial)
        self._turn = threading.RLock()
        renew_in_child(self)

    def renew_in_child(self) -> None:
        """See `base.forks`: a run of another thread does not go on, and changed nothing."""
        self._turn = threading.RLock()

    @property
    @abstractmethod
    def inputs(self) -> Mapping[str, Any]:
        """Types of what the caller gives, by name, in order."""

    @property
    @abstractmethod
    def outputs(self) -> Mapping[str, Any]:
        """Types of what the caller is given, by name, in order."""

    @cached_property
    def _argument_names(self) -> tuple[str, ...]:
        return tuple(self.inputs)

    @abstractmethod
    def _outputs_of(self, inputs: Arrays) -> dict[str, np.ndarray]:
        """Every output, the state's new values too, for every input, the state too."""

    @cached_property
    def _result_names(self) -> tuple[str, ...]:
        return tuple(self.outputs)

    def _continued(self, inputs: Arrays, state: Arrays) -> tuple[list[np.ndarray], Arrays] | None:
        """Outputs that are no state, in order, and the new state, without a dictionary of all
        arrays; None where `_outputs_of` has to find out what is to be done."""
        return None

    def run(self, inputs: Arrays | np.ndarray) -> dict[str, np.ndarray]:
        """Outputs by name, as the state has them now; the state then has its new values.

        inputs: by name; the array itself where there is one. A run that fails leaves the state as
        it is. Raises `InputError` when inputs do not fit.
        """
        if type(inputs) is not dict:
            inputs = named_inputs(inputs, self._argument_names)
        if not self._updates:
            return self._outputs_of(inputs)
        with self._turn:
            continued = self._continued(inputs, self._now)
            if continued is None:
                outputs, self._now = self._stepped(inputs, self._now)
                return outputs
            arrays, self._now = continued
        return dict(zip(self._result_names, arrays))

    def step(
        self, inputs: Arrays | np.ndarray, state: Arrays | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Outputs and the new state for `state`, by name; the executable's own state is not used.

        inputs: as of `run`. state: what it lacks has its initial value. Raises `InputError` when
        something does not fit.
        """
        inputs = named_inputs(inputs, self._argument_names)
        return self._stepped(inputs, {**self._initial, **self._fitting(state or {})})

    @property
    def updates(self) -> dict[str, str]:
        """What the network calls the new value of each state."""
        return dict(self._updates)

    @property
    def state(self) -> dict[str, np.ndarray]:
        """Copies of what is remembered, by name; empty for a network that remembers nothing.

        May be set to a mapping from some or all of these names to arrays of the same types, which
        are copied; raises `InputError` when one does not fit.
        """
        with self._turn:
            return {v: np.array(a) for v, a in self._now.items()}

    @state.setter
    def state(self, values: Arrays) -> None:
        with self._turn:
            copies = {v: np.array(a) for v, a in self._fitting(values).items()}
            self._now = {**self._now, **copies}

    def reset(self) -> None:
        """Put the initial values of the state back."""
        with self._turn:
            self._now = dict(self._initial)

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

    def _fitting(self, values: Arrays) -> Arrays:
        """`values` as arrays. Raises `InputError` for one that is no state, or of another type."""
        found = as_arrays(values)
        for name, array in found.items():
            if name not in self._updates:
                names = ", ".join(self._updates) or "nothing"
                raise InputError(f"the network has no state {name!r}", next_step=f"it has {names}")
            wanted = self._initial[name]
            if array.dtype != wanted.dtype or array.shape != wanted.shape:
                raise InputError(
                    f"the state is {array.dtype}{list(array.shape)}, the network has "
                    f"{wanted.dtype}{list(wanted.shape)}",
                    place=f"state {name!r}",
                )
        return found
