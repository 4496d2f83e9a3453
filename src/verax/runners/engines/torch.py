"""PyTorch, eager or compiled by `torch.compile`: a .pt2 file, or FILE.py:FUNCTION that gives a
module."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from verax.base.errors import UsageError
from verax.base.optional import optional
from verax.runners.engines import Inputs, Prepared


def runtime() -> Any:
    """The package; raises `MissingPackageError` where it is not installed."""
    return optional("torch", "to time PyTorch")


def prepared(model: str, threads: int, settings: Mapping[str, Any]) -> Prepared:
    """As `Engine` says. settings: compiled; backend, of `torch.compile`: Inductor by default, or
    "zentorch", which is a package of its own and takes weights for constants (as AMD advises)."""
    package = runtime()
    package.set_num_threads(threads)
    version, backend = package.__version__, settings.get("backend", "inductor")
    if backend == "zentorch":
        version = optional("zentorch", "to time AMD's zentorch").__version__
        package._inductor.config.freezing = True
    module = _module(package, model)
    call = package.compile(module, backend=backend) if settings.get("compiled") else module

    def bind(inputs: Inputs) -> Callable[[], Sequence[np.ndarray]]:
        tensors = [package.from_numpy(array) for array in inputs.values()]

        def run() -> Sequence[np.ndarray]:
            with package.no_grad() if backend == "zentorch" else package.inference_mode():
                result = call(*tensors)
            leaves = package.utils._pytree.tree_leaves(result)
            return [t.numpy() for t in leaves if isinstance(t, package.Tensor)]

        return run

    return Prepared(version, bind)


def _module(package: Any, model: str) -> Any:
    if model.endswith(".pt2"):
        return package.export.load(model).module()
    file, _, function = model.rpartition(":")
    if not file.endswith(".py"):
        raise UsageError(
            "PyTorch cannot read this model",
            place=model,
            next_step="give a .pt2 file, or name it as FILE.py:FUNCTION",
        )
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    if spec is None or spec.loader is None:
        raise UsageError("this is not a Python file", place=file)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return getattr(loaded, function)()
