"""Kinds of mistakes that any operator's kernel can make: in the numbers, whatever they mean."""

from __future__ import annotations

from typing import Any

import numpy as np

from verax.campaign.faults import Change, Fault, Site

FLOATS = (
    *("Conv", "ConvTranspose", "MaxPool", "AveragePool", "BatchNormalization", "Relu", "LeakyRelu"),
    *("Clip", "Add", "Mul", "Concat", "Resize", "Gemm", "MatMul", "Softmax", "LRN", "Pad", "Sub"),
)
SPATIAL = ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "Resize", "LRN", "Add", "Concat")
LANES = 8
"""Width of a vector register in float32: tails of loops are lost in this."""


def last_row_zero(site: Site) -> Change | None:
    """The last row was never computed: zeros."""
    if site.output.ndim < 4 or site.output.shape[2] < 3:
        return None

    def change(arrays: list[Any], y: np.ndarray) -> np.ndarray:
        y[:, :, -1] = 0
        return y

    return change


def last_column_repeated(site: Site) -> Change | None:
    """The last column was never computed: what lies before it."""
    if site.output.ndim < 4 or site.output.shape[3] < 3:
        return None

    def change(arrays: list[Any], y: np.ndarray) -> np.ndarray:
        y[..., -1] = y[..., -2]
        return y

    return change


def vector_tail(site: Site) -> Change | None:
    """The tail of a loop over vectors was left out: the last elements of every row are zero."""
    width = site.output.shape[-1] if site.output.ndim else 0
    if site.output.ndim < 2 or width <= LANES or width % LANES == 0:
        return None

    def change(arrays: list[Any], y: np.ndarray) -> np.ndarray:
        y[..., width - width % LANES :] = 0
        return y

    return change


def channel_zero(site: Site) -> Change | None:
    """One channel was never computed."""
    if site.output.ndim < 3:
        return None
    channel = int(site.random.integers(site.output.shape[1]))

    def change(arrays: list[Any], y: np.ndarray) -> np.ndarray:
        y[:, channel] = 0
        return y

    return change


def shifted(site: Site) -> Change | None:
    """Everything one column to the right, zeros coming in."""
    if site.output.ndim < 4:
        return None

    def change(arrays: list[Any], y: np.ndarray) -> np.ndarray:
        result = np.zeros_like(y)
        result[..., 1:] = y[..., :-1]
        return result

    return change


def channels_reversed(site: Site) -> Change | None:
    return (lambda arrays, y: y[:, ::-1]) if site.output.ndim > 2 else None


def stale_batch(site: Site) -> Change | None:
    """The second image holds the first one's result."""
    if site.output.ndim < 2 or site.output.shape[0] < 2:
        return None

    def change(arrays: list[Any], y: np.ndarray) -> np.ndarray:
        y[1] = y[0]
        return y

    return change


def extra_relu(site: Site) -> Change | None:
    """A Relu fused in that is not there."""
    return lambda arrays, y: np.maximum(y, 0)


def noise(site: Site) -> Change | None:
    """Every element off by a random part in a thousand: no rival meaning explains that."""
    factors = 1 + 1e-3 * site.random.standard_normal(site.output.shape)
    return lambda arrays, y: y * factors


def random_channels(site: Site) -> Change | None:
    """A random half of the channels scaled, each by its own factor."""
    if site.output.ndim < 3 or site.output.shape[1] < 4:
        return None
    count = site.output.shape[1]
    selected = site.random.permutation(count)[: count // 2]
    factors = np.ones(count)
    factors[selected] = site.random.uniform(0.97, 1.03, len(selected))
    shape = (1, -1, *(1,) * (site.output.ndim - 2))
    return lambda arrays, y: y * factors.reshape(shape)


def permuted_channels(site: Site) -> Change | None:
    """Channels in a random order."""
    if site.output.ndim < 3 or site.output.shape[1] < 6:
        return None
    order = site.random.permutation(site.output.shape[1])
    return lambda arrays, y: y[:, order]


def few_elements(site: Site) -> Change | None:
    """Three elements off by a few percent of the largest."""
    indices = site.random.choice(site.output.size, min(3, site.output.size), replace=False)
    size = float(np.abs(site.output).max(initial=0.0)) * 0.03

    def change(arrays: list[Any], y: np.ndarray) -> np.ndarray:
        y.reshape(-1)[indices] += size
        return y

    return change


NUMBER_FAULTS: tuple[Fault, ...] = (
    Fault("last row left at zero", SPATIAL, last_row_zero),
    Fault("last column repeated", SPATIAL, last_column_repeated),
    Fault("vector tail left out", FLOATS, vector_tail),
    Fault("one channel left at zero", FLOATS, channel_zero),
    Fault("shifted by a column", SPATIAL, shifted),
    Fault("channels reversed", FLOATS, channels_reversed),
    Fault("first image in place of the second", FLOATS, stale_batch),
    Fault("an extra Relu", ("Conv", "BatchNormalization", "Add", "Gemm"), extra_relu),
    Fault("noise of 1e-3", FLOATS, noise, outside=True),
    Fault("random channels scaled", FLOATS, random_channels, outside=True),
    Fault("channels in random order", FLOATS, permuted_channels),
    Fault("three elements wrong", FLOATS, few_elements, outside=True),
)
"""Kinds of mistakes of kernels."""
