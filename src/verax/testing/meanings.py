"""What a caller gives as a meaning, told apart: an operator, a network, or a plain function."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from verax.base.arrays import as_array
from verax.base.errors import UsageError
from verax.base.machine.devices import require_one_array
from verax.base.tensors import is_array, is_from, is_function, is_tensor
from verax.formats import FORMATS as FILE_FORMATS
from verax.ir.operator import Operator
from verax.runners.functions import function_name
from verax.testing.operator_meaning import parse_operator
from verax.testing.random_rounding import SampledFunction
from verax.testing.random_rounding_numpy import NumpyFunction

LIBRARIES = ("numpy", "torch", "jax")
HOMES = {
    "torch": "verax.testing.random_rounding_torch",
    "jax": "verax.testing.random_rounding_jax",
}
"""Loaded when a function of that library is judged."""
CLASSES = {"torch": "TorchFunction", "jax": "JaxFunction"}
"""What makes a `SampledFunction` of a function there."""


def resolved(meaning: Any) -> Any:
    """An `Operator`, a function, or what `load` takes. Raises `UsageError` for a text that is
    neither an operator nor a file."""
    if isinstance(meaning, type) and issubclass(meaning, Operator):
        return meaning()
    if meaning is None or is_array(meaning) or isinstance(meaning, list | tuple | Mapping):
        pair = isinstance(meaning, tuple) and any(map(callable, meaning))
        if not pair:
            raise UsageError(
                f"a {type(meaning).__name__} is no meaning",
                next_step="give an operator or its text, a model or its path, or a function",
            )
    if not isinstance(meaning, str):
        return meaning
    suffixes = {s for f in FILE_FORMATS for s in f.suffixes}
    if os.path.exists(meaning) or os.sep in meaning or Path(meaning).suffix in suffixes:
        return meaning
    return parse_operator(meaning)


def is_plain_function(meaning: Any) -> bool:
    return is_function(meaning) and not isinstance(meaning, Operator)


def positional(inputs: Any) -> dict[str, Any]:
    """A plain function's inputs by name, in the order in which it takes them.

    Raises `InputError` for an array of which other processes hold parts.
    """
    if isinstance(inputs, Mapping):
        named = dict(inputs)
    elif is_array(inputs):
        named = {"input_0": inputs}
    elif isinstance(inputs, Sequence) and not isinstance(inputs, str):
        named = {f"input_{i}": v for i, v in enumerate(inputs)}
    else:
        raise UsageError(
            f"inputs are an array, several, or arrays by name, and a {type(inputs).__name__} is "
            "given"
        )
    for value in named.values():
        require_one_array(value)
    return named


def library_of(function: Callable[..., Any], inputs: Sequence[Any], library: str = "") -> str:
    """The library whose arrays a function computes with: as said, as where it comes from, or as
    its inputs are."""
    if library:
        if library not in LIBRARIES:
            raise UsageError(
                f"there is no library {library!r}",
                place="library",
                next_step=f"give one of {', '.join(LIBRARIES)}",
            )
        return library
    if isinstance(function, np.ufunc):
        return "numpy"
    module = str(getattr(function, "__module__", "") or "")
    for name in LIBRARIES:
        if module.partition(".")[0] in (name, f"_{name}") or is_from(function, name):
            return name
    if any(map(is_tensor, inputs)):
        return "torch"
    if any(is_from(v, "jax") or is_from(v, "jaxlib") for v in inputs):
        return "jax"
    return "numpy"


def function_of(
    meaning: Callable[..., Any], named: Mapping[str, Any], library: str = ""
) -> SampledFunction:
    """A plain function on its inputs, ready to be run in float64 and under random rounding."""
    arrays = [np.asarray(as_array(v, f"input {k!r}")) for k, v in named.items()]
    kind = library_of(meaning, list(named.values()), library)
    label = function_name(meaning)
    if kind == "numpy":
        return NumpyFunction(meaning, arrays, label)
    home = import_module(HOMES[kind])
    ready: SampledFunction = getattr(home, CLASSES[kind])(meaning, arrays, label)
    return ready


def called_as(function: Callable[..., Any]) -> str:
    """A function's name in a message."""
    name = str(getattr(function, "__name__", "the function"))
    return "the function" if name == "<lambda>" else name
