"""MaxUnpool: what its indices count."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from verax.judge.explain.hypotheses.attributes import by_attributes
from verax.judge.explain.hypotheses.base import (
    Arrays,
    Hypothesis,
    Prior,
    Suspect,
    from_inputs,
    hypotheses_of,
)
from verax.ops.windows.unpooling import MaxUnpool

IndexRule = Callable[[np.ndarray, tuple[int, ...]], np.ndarray]
"""Takes indices and the shape they are into, gives those into its elements in row-major order."""


@hypotheses_of("MaxUnpool")
def unpool(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on MaxUnpool."""
    op = suspect.op
    assert isinstance(op, MaxUnpool)
    yield from by_attributes(suspect)
    inferred = tuple(int(d) for d in op.unpooled_dims(suspect.x.shape))
    shape = suspect.expected.shape
    if shape != inferred:
        yield Hypothesis(
            "indices into output_shape",
            f"indices were taken relative to output_shape {shape}, not to the inferred {inferred}",
            Prior.usual,
            after=from_inputs(_scattered(shape, shape, lambda i, _: i)),
        )
    rules: tuple[tuple[str, str, Prior, IndexRule], ...] = (
        (
            "indices within channels",
            "indices were taken within each channel, not in the whole tensor",
            Prior.usual,
            _within_channels,
        ),
        (
            "indices within images",
            "indices were taken within each image, not in the whole tensor",
            Prior.common,
            _within_images,
        ),
        (
            "indices by columns",
            "indices were read column by column (storage_order 1)",
            Prior.usual,
            _by_columns,
        ),
        ("indices less one", "indices were taken to begin at 1", Prior.common, lambda i, _: i - 1),
    )
    for name, words, prior, index_rule in rules:
        yield Hypothesis(
            name, words, prior, after=from_inputs(_scattered(inferred, shape, index_rule))
        )


def _scattered(
    inner: tuple[int, ...], shape: tuple[int, ...], index_rule: IndexRule
) -> Callable[[Arrays], np.ndarray]:
    """The elements at their places in a tensor of shape `inner`, at the beginning of `shape`."""

    def value(arrays: Arrays) -> np.ndarray:
        x, indices = arrays[0].astype(np.float64), arrays[1]
        y = np.zeros(int(np.prod(inner)))
        y[index_rule(indices, inner).ravel()] = x.ravel()
        larger = np.zeros(shape)
        larger[tuple(slice(0, n) for n in inner)] = y.reshape(inner)
        return larger

    return value


def _within_channels(indices: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    size = int(np.prod(shape[2:]))
    channels = np.arange(shape[0] * shape[1]).reshape(*shape[:2], *(1,) * (len(shape) - 2))
    return np.asarray(indices % size + channels * size)


def _within_images(indices: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    size = int(np.prod(shape[1:]))
    images = np.arange(shape[0]).reshape(-1, *(1,) * (len(shape) - 1))
    return np.asarray(indices % size + images * size)


def _by_columns(indices: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    size = int(np.prod(shape[2:]))
    channel, offset = np.divmod(indices, size)
    columns = np.transpose(np.arange(size).reshape(shape[2:])).ravel()
    return np.asarray(channel * size + columns[offset])
