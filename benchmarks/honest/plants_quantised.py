"""Kinds of mistakes in quantising and dequantising, planted beside the campaign's others."""

from __future__ import annotations

import numpy as np

from verax.campaign.faults import Change, Fault, Site

BOTH = ("QuantizeLinear", "DequantizeLinear")


def zero_point_moved(site: Site) -> Change | None:
    """The zero point is off by one."""
    zero = site.constant(2)
    return None if zero is None else site.rewrite({2: _moved(zero)})


def zero_point_missing(site: Site) -> Change | None:
    """The zero point is taken for the middle of the other signedness."""
    zero = site.constant(2)
    if zero is None or zero.dtype.itemsize > 1:
        return None
    middle = np.full_like(zero, 128 if zero.dtype == np.uint8 else 0)
    return None if np.array_equal(middle, zero) else site.rewrite({2: middle})


def scale_off(site: Site) -> Change | None:
    """The scale is 1 % too large."""
    scale = site.constant(1)
    return None if scale is None else site.rewrite({1: _scaled(scale * 1.01)})


def scale_rounded(site: Site) -> Change | None:
    """The scale was rounded to a power of two."""
    scale = site.constant(1)
    return None if scale is None else site.rewrite({1: _scaled(np.exp2(np.rint(np.log2(scale))))})


def scales_rolled(site: Site) -> Change | None:
    """Each channel has its neighbour's scale."""
    scale = site.constant(1)
    return None if scale is None or scale.size < 2 else site.rewrite({1: np.roll(scale, 1)})


def _scaled(scale: np.ndarray) -> np.ndarray:
    return np.asarray(scale, np.float32)


def _moved(zero: np.ndarray) -> np.ndarray:
    top = np.iinfo(zero.dtype).max
    return np.where(zero < top, zero.astype(np.int64) + 1, top - 1).astype(zero.dtype)


QUANTISED_PLANTS = {
    p.name: p
    for p in (
        Fault("zero point off by one", BOTH, zero_point_moved),
        Fault("zero point left in the middle", BOTH, zero_point_missing),
        Fault("scale off by 1 %", BOTH, scale_off),
        Fault("scale rounded to a power of two", BOTH, scale_rounded),
        Fault("scales of the channels rolled", BOTH, scales_rolled),
    )
}
