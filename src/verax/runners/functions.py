"""Python callables as subjects: a function from arrays to arrays, or from tensors to tensors."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from verax.base.arrays import as_array
from verax.base.errors import InputError, UsageError, VeraxError
from verax.base.machine.devices import device_of
from verax.ir.graph import Graph
from verax.judge.protocol import ENVIRONMENT
from verax.runners.array_forms import form_like, form_words, library_facts, torch_device
from verax.runners.memory import InProcess, poisoned_memory

TENSORS = "verax.runners.pytorch.torch_tensors"
TORCH_DEVICE = "verax.runners.pytorch.torch_device"
"""Loaded when tensors are handed over."""


@dataclass(frozen=True)
class TensorFunction:
    """A function that takes and gives tensors of PyTorch, not arrays."""

    function: Callable[..., Any]

    @property
    def __name__(self) -> str:
        return function_name(self.function)

    def __call__(self, *tensors: Any) -> Any:
        return self.function(*tensors)


def function_name(function: Callable[..., Any]) -> str:
    """What a callable is called in reports: its name, else its type's."""
    return str(getattr(function, "__name__", type(function).__name__))


class FunctionRunner(InProcess):
    """Calls `function` with the inputs in the model's order.

    The result is an array, a sequence of arrays in the order of the model's outputs, or a mapping
    from names of values (inner ones welcome) to arrays. State is none of these inputs and outputs:
    a function that has some keeps it itself. tensors: whether it is given tensors of PyTorch, in
    memory of their own; complex_inputs: inputs among these that hold complex numbers, as pairs.
    like: by input, an array whose library and device the function is given this input as.
    """

    capabilities = dataclasses.replace(InProcess.capabilities, resets=False)

    def __init__(
        self,
        function: Callable[..., Any],
        name: str = "",
        *,
        tensors: bool = False,
        complex_inputs: Collection[str] = (),
        like: Mapping[str, Any] | None = None,
    ) -> None:
        self.function, self.tensors, self.complex_inputs = (
            function,
            tensors,
            frozenset(complex_inputs),
        )
        self.name = name or function_name(function)
        self._forms = {v: form_like(one) for v, one in (like or {}).items()}
        self._facts = {k: v for one in (like or {}).values() for k, v in library_facts(one).items()}
        self._form_words = dict.fromkeys(map(form_words, (like or {}).values()))
        self.torch_device: Any = None
        if self.tensors:
            device = next(filter(None, (torch_device(v) for v in (like or {}).values())), None)
            self.torch_device = import_module(TORCH_DEVICE).TorchDevice(device)
            self.capabilities = self.torch_device.capable(self.capabilities)
        if any(map(device_of, (like or {}).values())):  # of JAX and CuPy, too
            self.capabilities = dataclasses.replace(self.capabilities, any_device=True)

    def describe(self) -> dict[str, str]:
        kinds = [kind for kind in self._form_words if kind] or ["tensors"] * self.tensors
        takes = {"takes": ", ".join(kinds)} if kinds else {}
        device = {} if self.torch_device is None else self.torch_device.describe()
        facts = {f"{ENVIRONMENT}{k}": v for k, v in self._facts.items()}
        return {"kind": "Python callable", **takes, **facts, **device}

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        names = graph.inputs if all(v in inputs for v in graph.inputs) else graph.arguments
        arguments = [self._argument(v, inputs[v]) for v in names]
        with contextlib.nullcontext() if self.torch_device is None else self.torch_device.entered():
            result = called(self.function, arguments, self.name)
        return named_results(graph, result, self.name)

    def _poisoned(self, fill: int) -> contextlib.AbstractContextManager[None]:
        return (
            poisoned_memory(fill) if self.torch_device is None else self.torch_device.poisoned(fill)
        )

    def _argument(self, name: str, array: np.ndarray) -> Any:
        """What the function is given for an input: its own copy."""
        form = self._forms.get(name)
        if not self.tensors or form is not None:
            argument = np.array(array) if form is None else form(np.array(array))
        else:
            argument = import_module(TENSORS).to_torch(array)
        if name in self.complex_inputs:
            return import_module("torch").view_as_complex(argument)
        return argument

    def run_steps(
        self,
        graph: Graph,
        steps: Sequence[Mapping[str, np.ndarray]],
        state: Mapping[str, np.ndarray],
        keep: Sequence[str] | None = None,
        *,
        fill: int | None = None,
    ) -> list[dict[str, np.ndarray]]:
        """As `judge.protocol.Remembering.run_steps`. The function is taken to be where it begins;
        it shows its state if it gives a mapping that names the new values."""
        with contextlib.nullcontext() if fill is None else self._poisoned(fill):
            return [self.run(graph, inputs, keep) for inputs in steps]


def called(function: Callable[..., Any], arguments: Sequence[Any], name: str) -> Any:
    """`function(*arguments)`. Raises `UsageError` that quotes whatever the subject raised."""
    try:
        return function(*arguments)
    except VeraxError:
        raise
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"the subject raised {type(error).__name__}: {error}",
            place=name,
            next_step="run it by itself on these inputs",
        ) from error


def named_results(graph: Graph, result: Any, name: str) -> dict[str, np.ndarray]:
    """A callable's result as arrays by name. Raises `UsageError` when their number is wrong."""
    if isinstance(result, Mapping):
        return {str(k): _array(v, f"value {k!r} of {name}") for k, v in result.items()}
    listed = list(result) if isinstance(result, tuple | list) else [result]
    names = next((w for w in (graph.returned, graph.results) if len(w) == len(listed)), None)
    if names is None:
        raise UsageError(
            f"the subject gave {len(listed)} arrays, the model has {len(graph.returned)} "
            f"outputs ({', '.join(graph.returned)})",
            place=name,
            next_step="return them in this order, or a dictionary by name",
        )
    return {v: _array(r, f"output {v!r} of {name}") for v, r in zip(names, listed)}


def _array(value: Any, location: str) -> np.ndarray:
    try:
        return as_array(value)
    except InputError as error:
        raise UsageError(f"the subject gave no array ({error.cause})", place=location) from error
