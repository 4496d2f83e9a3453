"""`--metric FILE.py:FUNCTION`: the user's own figure of merit. This runs the user's code.

The function is called with the predictions [n, classes] and the labels [n] and returns a number,
or numbers by name. What goes wrong in it is told with its file and line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

import numpy as np

from verax.base.errors import UsageError
from verax.base.process.scripts import run_file, script_error

Metric = Callable[[np.ndarray, np.ndarray], Any]
GIVEN = "correct that line; the function is given predictions [n, classes] and labels [n]"


def load_metric(text: str) -> Metric:
    """The function that `FILE.py:FUNCTION` names; the file is run. Raises `UsageError`."""
    file, colon, name = text.rpartition(":")
    if not colon or not file.endswith(".py") or not name:
        raise UsageError(
            f"--metric {text!r} is not of the form FILE.py:FUNCTION",
            next_step="for instance --metric my.py:balanced_accuracy",
        )
    module = run_file(file, "the file of the metric", GIVEN)
    function = getattr(module, name, None)
    if not callable(function):
        functions = [k for k, v in vars(module).items() if callable(v) and not k.startswith("_")]
        raise UsageError(
            f"the file defines no function {name!r}",
            place=file,
            next_step=f"it defines {', '.join(functions) or 'none'}",
        )
    return function  # type: ignore[no-any-return]


def measured(metric: Metric, predictions: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """What the metric returns, by name. Raises `UsageError` when it fails or returns no numbers."""
    name = getattr(metric, "__name__", "metric")
    code = getattr(metric, "__code__", None)
    file = getattr(code, "co_filename", "")
    try:
        result = metric(predictions.copy(), labels.copy())
        if isinstance(result, Mapping):
            values = {str(k): _as_float(v) for k, v in result.items()}
        else:
            values = {name: _as_float(result)}
    except (Exception, SystemExit) as error:
        raise script_error(error, file, f"the metric {name!r} fails", GIVEN) from error
    wrong = [k for k, v in values.items() if v is None]
    if wrong or not values:
        raise UsageError(
            f"the metric {name!r} returned no number"
            + (f" but a {type(result).__name__}" if not isinstance(result, Mapping) else "")
            + (f" for {wrong[0]!r}" if isinstance(result, Mapping) and wrong else ""),
            place=f"{file}:{getattr(code, 'co_firstlineno', '')}" if file else name,
            next_step="return a number, or a dict of numbers by name",
        )
    return {k: v for k, v in values.items() if v is not None}


def _as_float(value: Any) -> float | None:
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.reshape(-1)[0]
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf
