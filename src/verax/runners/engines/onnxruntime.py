"""ONNX Runtime's CPU provider."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from verax.base.errors import UsageError
from verax.base.optional import optional
from verax.runners.engines import Inputs, Prepared

LEVELS = {
    "disabled": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
"""Graph optimisation levels of ONNX Runtime, and what it calls them itself."""


def runtime() -> Any:
    """The package; raises `MissingPackageError` where it is not installed."""
    return optional("onnxruntime", "to run the subject 'onnxruntime'")


def session(
    model: str | bytes, threads: int, level: str = "all", options: Mapping[str, Any] | None = None
) -> Any:
    """A session on a file or its bytes. level: one of LEVELS. options: attributes of its
    SessionOptions, or configuration entries when they hold a dot; raises `UsageError` for others.
    """
    package = runtime()
    asked = package.SessionOptions()
    asked.intra_op_num_threads = threads
    asked.log_severity_level = 3
    asked.graph_optimization_level = getattr(package.GraphOptimizationLevel, LEVELS[level])
    for name, value in (options or {}).items():
        if "." in name:
            asked.add_session_config_entry(name, str(value))
        elif hasattr(asked, name):
            setattr(asked, name, value)
        else:
            raise UsageError(
                f"ONNX Runtime has no session option {name!r}",
                next_step="attributes of SessionOptions, or entries with a dot, can be set",
            )
    return package.InferenceSession(model, asked, providers=["CPUExecutionProvider"])


def prepared(model: str, threads: int, settings: Mapping[str, Any]) -> Prepared:
    """As `Engine` says. settings: as of `session`."""
    loaded = session(model, threads, **settings)

    def bind(inputs: Inputs) -> Callable[[], Sequence[np.ndarray]]:
        given = dict(inputs)
        return lambda: loaded.run(None, given)

    return Prepared(runtime().__version__, bind)
