"""LiteRT's interpreter of .tflite files."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from verax.base.optional import optional
from verax.runners.engines import Inputs, Prepared

KERNELS = {
    "default": "AUTO",
    "builtin": "BUILTIN_WITHOUT_DEFAULT_DELEGATES",
    "reference": "BUILTIN_REF",
}
"""Implementations of the operators that LiteRT brings, and what it calls them itself."""


def runtime() -> Any:
    """The package; raises `MissingPackageError` where it is not installed."""
    return optional("ai_edge_litert.interpreter", "to run the subject 'litert'")


def interpreter(path: str, threads: int, kernels: str = "default", *, watched: bool = False) -> Any:
    """An interpreter of a file. kernels: one of KERNELS; watched: whether inner tensors stay."""
    package = runtime()
    options: dict[str, Any] = {"num_threads": threads or None}
    if watched:
        options["experimental_preserve_all_tensors"] = True
    options["experimental_op_resolver_type"] = getattr(package.OpResolverType, KERNELS[kernels])
    return package.Interpreter(model_path=path, **options)


def prepared(model: str, threads: int, settings: Mapping[str, Any]) -> Prepared:
    """As `Engine` says. settings: the kernels."""
    loaded = interpreter(model, threads, **settings)
    slots = {d["name"]: d for d in loaded.get_input_details()}

    def bind(inputs: Inputs) -> Callable[[], Sequence[np.ndarray]]:
        for name, array in inputs.items():
            loaded.resize_tensor_input(slots[name]["index"], array.shape)
        loaded.allocate_tensors()
        outputs = [d["index"] for d in loaded.get_output_details()]

        def run() -> Sequence[np.ndarray]:
            for name, array in inputs.items():
                loaded.set_tensor(slots[name]["index"], array)
            loaded.invoke()
            return [loaded.get_tensor(index) for index in outputs]

        return run

    return Prepared(importlib.metadata.version("ai-edge-litert"), bind)
