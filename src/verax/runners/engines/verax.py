"""Verax itself, loaded as a user loads it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from verax.runners.engines import Inputs, Prepared


def runtime() -> Any:
    """The package, whose parts this room may not import."""
    return importlib.import_module("verax")


def prepared(model: str, threads: int, settings: Mapping[str, Any]) -> Prepared:
    """As `Engine` says: a model that is compiled, or a .vx program that is loaded. settings: as of
    `verax.compile`."""
    package = runtime()
    if model.endswith(".vx"):
        exe = package.load(model)  # threads: as the environment says
    else:
        exe = package.compile(model, threads=threads, cache=False, **settings)

    def bind(inputs: Inputs) -> Callable[[], Sequence[np.ndarray]]:
        arrays = dict(inputs)
        return lambda: tuple(exe.run(arrays).values())

    return Prepared(package.__version__, bind)
