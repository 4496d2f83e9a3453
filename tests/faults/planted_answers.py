"""Wrong answers of single operators, written out in NumPy: what a faulty kernel would give.

None of them uses the judge's hypotheses, so that naming them proves something.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from verax.ir.operator import Operator

Array = np.ndarray


@dataclass(frozen=True)
class PlantedAnswer:
    """An operator on inputs, with the answer of a faulty kernel. cause: words that the first
    explanation has to have."""

    op: Operator
    inputs: Sequence[Array | None]
    answer: Array
    cause: str


Make = Callable[[np.random.Generator], PlantedAnswer]
PLANTED: dict[str, Make] = {}
"""What is wrong -> an operator and its answer."""


def planted(name: str) -> Callable[[Make], Make]:
    def register(make: Make) -> Make:
        assert name not in PLANTED
        PLANTED[name] = make
        return make

    return register


def normal(random: np.random.Generator, *shape: int) -> Array:
    return random.standard_normal(shape).astype(np.float32)


def convolved(
    x: Array, w: Array, begins: Sequence[int], strides: Sequence[int], out: Sequence[int]
) -> Array:
    """Convolution of [n, c, h, w] in float64, of windows that begin at `begins` before the input;
    zeros around it."""
    kernel = w.shape[2:]
    need = [(o - 1) * s + k for o, s, k in zip(out, strides, kernel)]
    big = np.zeros((*x.shape[:2], *(b + n + s for b, n, s in zip(begins, x.shape[2:], need))))
    big[:, :, begins[0] : begins[0] + x.shape[2], begins[1] : begins[1] + x.shape[3]] = x
    y = np.zeros((x.shape[0], w.shape[0], *out))
    for i, j in itertools.product(range(kernel[0]), range(kernel[1])):
        rows = slice(i, i + (out[0] - 1) * strides[0] + 1, strides[0])
        columns = slice(j, j + (out[1] - 1) * strides[1] + 1, strides[1])
        y += np.einsum("nchw,oc->nohw", big[:, :, rows, columns], w[:, :, i, j].astype(np.float64))
    return y


def transposed(
    x: Array, w: Array, strides: Sequence[int], begins: Sequence[int], out: Sequence[int]
) -> Array:
    """Transposed convolution in float64, cut to `out` from `begins` on."""
    n, _, h, wide = x.shape
    full = np.zeros((n, w.shape[1], *(
        (m - 1) * s + k for m, s, k in zip((h, wide), strides, w.shape[2:])
    )))  # fmt: skip
    for i, j in itertools.product(range(w.shape[2]), range(w.shape[3])):
        rows = slice(i, i + (h - 1) * strides[0] + 1, strides[0])
        columns = slice(j, j + (wide - 1) * strides[1] + 1, strides[1])
        full[:, :, rows, columns] += np.einsum(
            "nchw,co->nohw", x.astype(np.float64), w[:, :, i, j].astype(np.float64)
        )
    padded = np.zeros((n, w.shape[1], *(b + o for b, o in zip(begins, out))))
    cut = full[:, :, : padded.shape[2], : padded.shape[3]]
    padded[:, :, : cut.shape[2], : cut.shape[3]] = cut
    return padded[:, :, begins[0] :, begins[1] :]


def shares(scores: Array) -> Array:
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attended(
    q: Array,
    k: Array,
    v: Array,
    hidden: Array | float = 0.0,
    scale: float | None = None,
    cap: float = 0.0,
) -> Array:
    """Attention in float64; `hidden` is added to the scores."""
    q, k, v = (a.astype(np.float64) for a in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if cap:
        scores = cap * np.tanh(scores / cap)
    return shares(scores + hidden) @ v


Attributes = Mapping[str, Any]
