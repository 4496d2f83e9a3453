"""Draws other inputs for a node: of the same shapes, or larger ones.

Hypotheses that coincide on the input of the check may differ on them; those that never differ are
the same under two names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from verax.base.errors import VeraxError
from verax.ir.graph import Builder, Node
from verax.ir.types import TensorType
from verax.judge.decide.local import meaning
from verax.judge.explain.hypotheses.base import Suspect
from verax.ops.windows.convolution import Conv
from verax.ops.windows.deconvolution import ConvTranspose
from verax.ops.windows.pooling import Pool

WIDE = 10.0
"""Factor by which one of the draws reaches further than the input at hand."""


def probe_inputs(suspect: Suspect, random: np.random.Generator) -> Iterator[tuple[str, list[Any]]]:
    """Yield (description, arrays) of inputs for the suspect's node, the least changed first.

    Nothing when its first input is not a float tensor.
    """
    arrays, x = list(suspect.inputs), suspect.x
    if x.dtype.kind != "f" or x.ndim == 0:
        return
    size = _size(x)

    def normal(like: np.ndarray, scale: float) -> np.ndarray:
        return (random.standard_normal(like.shape) * scale).astype(like.dtype)

    def data(change: Callable[[np.ndarray], np.ndarray]) -> list[Any]:
        """The first input changed, and with it those of its shape and type."""
        alike = [
            a is not None and a.dtype == x.dtype and (i == 0 or a.shape == x.shape)
            for i, a in enumerate(arrays)
        ]
        return [change(a) if same else a for a, same in zip(arrays, alike)]

    yield "random numbers of both signs", data(lambda a: normal(a, size))
    yield "negative random numbers", data(lambda a: -np.abs(normal(a, size)))
    yield f"random numbers {WIDE:g} times as large", data(lambda a: normal(a, WIDE * size))
    yield (
        "random numbers of both signs, the parameters drawn anew too",
        [_redrawn(a, random) for a in arrays],
    )
    if isinstance(suspect.op, Conv | ConvTranspose | Pool):
        for step in (1, 2):
            shape = (*x.shape[:2], *(n + step for n in x.shape[2:]))
            larger = (random.standard_normal(shape) * size).astype(x.dtype)
            yield f"random numbers of the shape {shape}", [larger, *arrays[1:]]


def _size(array: np.ndarray) -> float:
    """Root mean square, 1 where that is 0 or not finite."""
    size = float(np.sqrt(np.mean(np.square(array, dtype=np.float64)))) if array.size else 1.0
    return size if np.isfinite(size) and size > 0 else 1.0


def _redrawn(array: Any, random: np.random.Generator) -> Any:
    """Random numbers of an array's size, and sign where it has one; integers stay."""
    if array is None or array.dtype.kind != "f":
        return array
    numbers = random.standard_normal(array.shape) * _size(array)
    return (np.abs(numbers) if (array >= 0).all() and array.ndim < 2 else numbers).astype(
        array.dtype
    )


def suspect_on(suspect: Suspect, arrays: Sequence[Any], *, errors: bool = True) -> Suspect | None:
    """The suspect's node on other inputs, with the reference as its output; None where that is not
    finite.

    errors: whether to compute the reference's rounding.
    """
    same_shapes = all(a is None or a.shape == b.shape for a, b in zip(arrays, suspect.inputs))
    types = suspect.outputs if same_shapes else _inferred(suspect.node, arrays)
    if types is None:
        return None
    try:
        declared = [None if x is None else TensorType.of(x) for x in arrays]
        reference = meaning(suspect.node, arrays, declared, types, errors=errors)
    except VeraxError:
        return None
    truth = reference.outputs[suspect.output]
    if reference.problem or not np.isfinite(truth.astype(np.float64)).all():
        return None
    with np.errstate(all="ignore"):
        actual = truth.astype(types[suspect.output].dtype.numpy)
    return dataclasses.replace(
        suspect, inputs=tuple(arrays), outputs=types, actual=actual, meaning=reference
    )


def _inferred(node: Node, arrays: Sequence[Any]) -> tuple[TensorType, ...] | None:
    """Output types of the node on inputs of other shapes."""
    b = Builder("one")
    try:
        names = [None if a is None else b.constant(np.array(a)) for a in arrays]
        outputs = b.add_all(node.op, names)
        types = tuple(b.types[v] for v in outputs)
    except VeraxError:
        return None
    return types if all(t.is_static for t in types) else None
