"""What a caller gives as an answer: arrays as they are, or a callable that is called and whose last
answer is kept for the message."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence, ValuesView
from typing import Any

import numpy as np

from verax.base.arrays import as_array
from verax.base.errors import InputError
from verax.base.tensors import is_array, is_function, is_tensor
from verax.runners.functions import called, function_name


def copied(value: Any) -> Any:
    """A copy of an input for a function that may write to it; JAX's arrays cannot be written to."""
    if is_tensor(value):
        return value.detach().clone()
    return value.copy() if isinstance(value, np.ndarray) else value


def number_as_array(actual: Any, inputs: Any) -> Any:
    """A number of Python's, as `float(loss)` is, as an array of the type that it was computed in:
    float64 where an input is of that type, else float32. Anything else as it is."""
    if not isinstance(actual, bool | int | float):
        return actual
    if not isinstance(actual, float):
        return np.asarray(actual)
    values = inputs.values() if isinstance(inputs, Mapping) else inputs
    values = values if isinstance(values, list | tuple | ValuesView) else [values]
    is_wide = any(str(getattr(v, "dtype", "")).endswith("float64") for v in values)
    return np.asarray(actual, np.float64 if is_wide else np.float32)


def listed(result: Any, name: str) -> list[np.ndarray]:
    """An answer as arrays in order. Raises `InputError` for what is none."""
    values = list(result.values()) if isinstance(result, Mapping) else result
    values = list(values) if isinstance(values, list | tuple) else [values]
    arrays = [np.asarray(as_array(v, f"output {i} of {name}")) for i, v in enumerate(values)]
    for i, array in enumerate(arrays):
        if array.dtype.kind not in "biufV":
            raise InputError(
                f"an array of {array.dtype} is given",
                place=f"output {i} of {name}",
                next_step="give real numbers: the real and the imaginary part of complex ones",
            )
    return arrays


class Answers:
    """The answers of a subject. subject: what the judge is given in its place.

    `first` holds arrays in order, of the first call; None for a subject that is neither arrays nor
    a function (a path, a runner's name).
    """

    def __init__(self, actual: Any, arguments: Sequence[Any]) -> None:
        self.name = "the answer"
        self.arguments = arguments
        self.actual = actual
        self.first: list[np.ndarray] | None = None
        self.is_function = is_function(actual) and not is_array(actual)
        if self.is_function:
            self.name = function_name(actual)
            self.first = self.again()
        elif is_array(actual) or isinstance(actual, list | tuple | Mapping):
            self.first = listed(actual, self.name)

    def again(self) -> list[np.ndarray]:
        """The arrays of one more call. Raises `UsageError` that quotes what the function raised."""
        result = called(self.actual, [copied(v) for v in self.arguments], self.name)
        return listed(result, self.name)

    def kinds(self) -> list[np.dtype]:
        return [a.dtype for a in self.first or ()]


def with_inputs(
    function: Callable[..., Any], inputs: Mapping[str, Any], fed: Sequence[str]
) -> Callable[..., Any]:
    """The function of the inputs in `fed` alone; the others are what they are."""
    if all(v is not None and name in fed for name, v in inputs.items()):
        return function

    @functools.wraps(function)
    def filled(*feeds: Any) -> Any:
        left = iter(feeds)
        return function(
            *(next(left) if name in fed and v is not None else v for name, v in inputs.items())
        )

    return filled


def same_answers(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> bool:
    """True if two calls gave the same bits."""
    return len(first) == len(second) and all(
        a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
        for a, b in zip(first, second)
    )
