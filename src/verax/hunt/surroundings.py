"""Data movement around an operator: what optimizers move, merge and absorb.

In front of it the input is stored otherwise and brought back (transposed, flattened, reversed,
padded from less, cropped from more, joined from pieces); behind it the result is moved on.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from verax.hunt.case import Draft, NoCase, pick
from verax.ir.operator import REGISTRY

Before = Callable[[Draft, np.ndarray], str]
After = Callable[[Draft, str], str]
BORDER = 2
"""Elements padded or cropped at most at each end."""


def _transposed(draft: Draft, array: np.ndarray) -> str:
    order = draft.random.permutation(array.ndim)
    x = draft.input(array.transpose(np.argsort(order)))
    return draft.add(REGISTRY["Transpose"](perm=tuple(map(int, order))), x)


def _flat(draft: Draft, array: np.ndarray) -> str:
    x = draft.input(array.reshape(-1))
    return draft.add(REGISTRY["Reshape"](), x, draft.constant(array.shape, np.int64))


def _reversed(draft: Draft, array: np.ndarray) -> str:
    axis = int(draft.random.integers(array.ndim))
    x = draft.input(np.flip(array, axis))
    bounds = ([-1], [np.iinfo(np.int64).min], [axis - array.ndim], [-1])
    return draft.add(REGISTRY["Slice"](), x, *(draft.constant(b, np.int64) for b in bounds))


def _borders(draft: Draft, array: np.ndarray) -> np.ndarray:
    """Elements at the begins, then at the ends, of each axis from the third (or of the last)."""
    widths = draft.random.integers(0, BORDER + 1, (2, array.ndim))
    widths[:, : max(array.ndim - 2, 0) if draft.random.random() < 0.8 else 0] = 0
    sizes = np.array(array.shape)
    widths[:, widths.sum(0) >= sizes] = 0
    if not widths.any():
        raise NoCase
    return widths


def _padded(draft: Draft, array: np.ndarray) -> str:
    widths = _borders(draft, array)
    inside = tuple(slice(a, d - b) for a, b, d in zip(*widths, array.shape))
    mode = pick(draft.random, ("constant", "constant", "edge", "reflect"))
    x = draft.input(array[inside])
    if mode == "reflect" and (widths >= np.array(array[inside].shape)).any():
        raise NoCase
    operands = [x, draft.constant(widths.reshape(-1), np.int64)]
    if mode == "constant":
        operands.append(draft.constant(pick(draft.random, (0.0, 0.0, 0.75, -1.5)), array.dtype))
    return draft.add(REGISTRY["Pad"](mode=mode), *operands)


def _cropped(draft: Draft, array: np.ndarray) -> str:
    widths = _borders(draft, array)
    larger = np.pad(array, list(zip(*widths)), mode="edge")
    x = draft.input(larger)
    pads = draft.constant(-widths.reshape(-1), np.int64)
    return draft.add(REGISTRY["Pad"](mode="constant"), x, pads)


def _concatenated(draft: Draft, array: np.ndarray) -> str:
    axis = int(draft.random.integers(array.ndim))
    if array.shape[axis] < 2:
        raise NoCase
    pieces = np.split(array, [1], axis)
    names = [draft.input(p) for p in pieces]
    return draft.add(REGISTRY["Concat"](axis=axis - array.ndim), *names)


def _unsqueezed(draft: Draft, array: np.ndarray) -> str:
    axis = int(draft.random.integers(array.ndim + 1))
    x = draft.input(np.expand_dims(array, axis))
    return draft.add(REGISTRY["Squeeze"](), x, draft.constant([axis - array.ndim - 1], np.int64))


def _behind_transposed(draft: Draft, value: str) -> str:
    order = draft.random.permutation(len(draft.shape(value)))
    return draft.add(REGISTRY["Transpose"](perm=tuple(map(int, order))), value)


def _behind_flat(draft: Draft, value: str) -> str:
    shape = draft.shape(value)
    return draft.add(REGISTRY["Reshape"](), value, draft.constant([-1, *shape[-1:]], np.int64))


def _behind_reversed(draft: Draft, value: str) -> str:
    rank = len(draft.shape(value))
    axis = int(draft.random.integers(rank))
    bounds = ([-1], [np.iinfo(np.int64).min], [axis], [pick(draft.random, (-1, -2))])
    return draft.add(REGISTRY["Slice"](), value, *(draft.constant(b, np.int64) for b in bounds))


def _behind_scaled(draft: Draft, value: str) -> str:
    """A product with numbers along one axis, which need not be that of the channels."""
    shape = draft.shape(value)
    axis = int(draft.random.integers(len(shape)))
    sizes = [d if i == axis else 1 for i, d in enumerate(shape)][axis:]
    scale = draft.random.uniform(0.5, 1.5, sizes)
    kind = pick(draft.random, ("Mul", "Add", "Div"))
    return draft.add(REGISTRY[kind](), value, draft.constant(scale, np.float32))


def _behind_padded(draft: Draft, value: str) -> str:
    rank = len(draft.shape(value))
    widths = draft.random.integers(0, BORDER + 1, 2 * rank)
    fill = draft.constant(pick(draft.random, (0.0, 1.25)), np.float32)
    pads = draft.constant(widths, np.int64)
    return draft.add(REGISTRY["Pad"](mode="constant"), value, pads, fill)


BEFORE: dict[str, Before] = {
    "Transpose": _transposed,
    "Reshape": _flat,
    "Slice backwards": _reversed,
    "Pad": _padded,
    "Pad that crops": _cropped,
    "Concat": _concatenated,
    "Squeeze": _unsqueezed,
}
AFTER: dict[str, After] = {
    "Transpose": _behind_transposed,
    "Reshape": _behind_flat,
    "Slice backwards": _behind_reversed,
    "scale": _behind_scaled,
    "Pad": _behind_padded,
}
