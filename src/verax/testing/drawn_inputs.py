"""Inputs of a test, drawn by a seed: of a model as `verax check` draws them, else by shapes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from verax.base.errors import UsageError
from verax.base.optional import optional
from verax.compiling import graph_of
from verax.frontends.model import Model
from verax.ir.graph import Graph
from verax.ir.types import NARROW_INTEGERS, DType
from verax.judge.inputs import INTEGERS, draw_inputs, require_seed

Shape: TypeAlias = int | Sequence[int]
Shapes: TypeAlias = Mapping[str, Shape] | Sequence[Shape]
"""Shapes by the input's name, or in order. Of a model: sizes by symbol."""
LIBRARIES = ("numpy", "torch")


def draw(
    meaning: Any = None,
    shapes: Shapes = (),
    *,
    seed: int = 0,
    dtype: str | Mapping[str, str] = "float32",
    library: str = "numpy",
) -> Any:
    """Arrays by name where the shapes, or the model's inputs, have names; a tuple of them else.

    meaning: a model, whose declared types are drawn as `verax check` does, and whose open sizes are
    given by symbol in `shapes`; None to draw by `shapes`: floating-point numbers are standard
    normal, integers are below 10 and at least 0, truth values are a fair coin. dtype: of all, or by
    name. library: whose arrays, "numpy" or "torch".
    Raises `UsageError` for what cannot be drawn.
    """
    if library not in LIBRARIES:
        raise UsageError(
            f"there are no arrays of the library {library!r}",
            next_step=f"choose from {', '.join(LIBRARIES)}",
        )
    if meaning is not None:
        return _of_model(meaning, shapes, seed, library)
    if not shapes:
        raise UsageError(
            "no shapes are given to draw inputs by",
            next_step="give some: judge.inputs(a=(3, 5)), or shapes={...} in the marker",
        )
    require_seed(seed)
    random = np.random.default_rng(seed)
    if isinstance(shapes, Mapping):
        return {
            name: _as(library, *_draw(random, shape, _dtype_of(dtype, name), f"input {name!r}"))
            for name, shape in shapes.items()
        }
    return tuple(
        _as(library, *_draw(random, shape, _dtype_of(dtype, str(i)), f"input {i}"))
        for i, shape in enumerate(shapes)
    )


def has_inputs(meaning: Any) -> bool:
    """True for a network that declares its inputs: one that is loaded, or the path of a file."""
    if isinstance(meaning, str | os.PathLike):
        return os.path.exists(meaning)
    return isinstance(meaning, Graph | Model)


def _of_model(meaning: Any, shapes: Shapes, seed: int, library: str) -> dict[str, Any]:
    sizes = dict(shapes) if isinstance(shapes, Mapping) else None
    if sizes is None and shapes:
        raise UsageError(
            "a model's inputs have shapes of their own",
            next_step='give the sizes that it leaves open, by symbol: {"batch": 3}',
        )
    graph = graph_of(meaning)
    symbols = sorted({s for name in graph.inputs for s in graph.types[name].symbols()})
    unknown = [name for name, size in (sizes or {}).items() if name not in symbols]
    if unknown:
        raise UsageError(
            f"the model leaves no size {unknown[0]!r} open",
            next_step=f"it leaves open: {', '.join(symbols) or 'none'}",
        )
    for name, size in (sizes or {}).items():
        _require_sizes((size,), f"size {name!r}")
    arrays, _ = draw_inputs(graph, seed, sizes)  # type: ignore[arg-type]
    return {name: _as(library, array, DType.of(array)) for name, array in arrays.items()}


def _dtype_of(dtype: str | Mapping[str, str], name: str) -> str:
    return dtype if isinstance(dtype, str) else dtype.get(name, "float32")


def _draw(
    random: np.random.Generator, shape: Shape, dtype: str, location: str
) -> tuple[np.ndarray, DType]:
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    _require_sizes(sizes, location)
    try:
        type_ = DType(dtype)
    except ValueError as error:
        raise UsageError(
            f"there is no element type {dtype!r}",
            place=location,
            next_step=f"choose from {', '.join(DType)}",
        ) from error
    if type_ is DType.bool_:
        return random.integers(0, 2, sizes).astype(bool), type_
    if type_.is_float:
        return random.standard_normal(sizes).astype(type_.numpy), type_
    limit = min(INTEGERS, int(type_.ends[1]) + 1)
    return random.integers(0, limit, sizes).astype(type_.numpy), type_


def _require_sizes(sizes: Sequence[Any], location: str) -> None:
    if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in sizes):
        raise UsageError(
            f"{tuple(sizes)} is no shape",
            place=location,
            next_step="a shape is a tuple of whole numbers, 0 or more",
        )


def _as(library: str, array: np.ndarray, type_: DType) -> Any:
    """The array, or a tensor of PyTorch with the same numbers and type."""
    if library == "numpy":
        return array
    torch = optional("torch", "to draw tensors")
    if not hasattr(torch, type_.value) or type_ in NARROW_INTEGERS:
        raise UsageError(f"PyTorch has no tensors of {type_.value}", next_step="draw another type")
    wide = array.astype(np.float32) if type_.numpy.kind == "V" else array
    return torch.from_numpy(np.ascontiguousarray(wide)).to(getattr(torch, type_.value))
