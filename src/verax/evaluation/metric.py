"""`--metric FILE.py:FUNCTION`: the user's own figure of merit. This runs the user's code.

The function is called with the predictions [n, classes] and the labels [n] and returns a number,
or numbers by name. What goes wrong in it is told with its file and line.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Mapping
from numbers import Real
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from verax.base.errors import UsageError

Metric = Callable[[np.ndarray, np.ndarray], Any]


def load_metric(text: str) -> Metric:
    """The function that `FILE.py:FUNCTION` names; the file is run. Raises `UsageError`."""
    file, colon, name = text.rpartition(":")
    if not colon or not file.endswith(".py") or not name:
        raise UsageError(
            f"--metric {text!r} is not of the form FILE.py:FUNCTION",
            next_step="for instance --metric my.py:balanced_accuracy",
        )
    path = Path(file)
    try:
        source = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the file: {error.strerror}", place=file) from error
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        raise _told(error, str(path), "the file of the metric fails") from error
    found = getattr(module, name, None)
    if not callable(found):
        known = [k for k, v in vars(module).items() if callable(v) and not k.startswith("_")]
        raise UsageError(
            f"the file defines no function {name!r}",
            place=file,
            next_step=f"it defines {', '.join(known) or 'none'}",
        )
    return found  # type: ignore[no-any-return]


def measured(metric: Metric, predictions: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """What the metric returns, by name. Raises `UsageError` when it fails or returns no numbers."""
    name = getattr(metric, "__name__", "metric")
    code = getattr(metric, "__code__", None)
    file = getattr(code, "co_filename", "")
    try:
        result = metric(predictions.copy(), labels.copy())
        if isinstance(result, Mapping):
            found = {str(k): _number(v) for k, v in result.items()}
        else:
            found = {name: _number(result)}
    except (Exception, SystemExit) as error:
        raise _told(error, file, f"the metric {name!r} fails") from error
    wrong = [k for k, v in found.items() if v is None]
    if wrong or not found:
        raise UsageError(
            f"the metric {name!r} returned no number"
            + (f" but a {type(result).__name__}" if not isinstance(result, Mapping) else "")
            + (f" for {wrong[0]!r}" if isinstance(result, Mapping) and wrong else ""),
            place=f"{file}:{getattr(code, 'co_firstlineno', '')}" if file else name,
            next_step="return a number, or a dict of numbers by name",
        )
    return {k: v for k, v in found.items() if v is not None}


def _number(value: Any) -> float | None:
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


def _told(error: BaseException, file: str, what: str) -> UsageError:
    """The error with the last line of `file` that was on the way to it."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    line = error.lineno if isinstance(error, SyntaxError) and not lines else lines and lines[-1]
    return UsageError(
        f"{what}: {type(error).__name__}: {error}",
        place=f"{file}:{line}" if line else file,
        next_step="correct that line; the function is given predictions [n, classes] and "
        "labels [n]",
    )
