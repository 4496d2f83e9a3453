"""The boxes that a border is written in: every place of it once, and none of what it surrounds."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from verax.compiler.place.convolution.borders import _sides
from verax.compiler.place.storage import Geometry
from verax.compiler.plan.layouts import Layout

SIDE = st.integers(0, 3)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(SIDE, st.integers(1, 4), SIDE), min_size=1, max_size=3),
    st.integers(1, 3),
    st.integers(1, 2),
)
def test_the_boxes_of_a_border_are_it(
    axes: list[tuple[int, int, int]], batch: int, blocks: int
) -> None:
    extents = (batch, blocks, *(sum(axis) for axis in axes), 16)
    pads = tuple((begin, end) for begin, _, end in axes)
    strides = [math.prod(extents[i + 1 :]) for i in range(len(extents))]
    written = np.zeros(math.prod(extents), int)
    boxes = list(_sides(Geometry(Layout.blocked, 4, extents, pads), strides))
    for offset, dims, steps in boxes:
        places = sum(np.ix_(*(np.arange(n) * s for n, s in zip(dims, steps, strict=True))))
        written[offset + np.asarray(places).ravel()] += 1
    border = np.ones(extents, int)
    border[(..., *(slice(b, b + n) for b, n, _ in axes), slice(None))] = 0
    np.testing.assert_array_equal(written.reshape(extents), border)
    sides = sum(1 if b == e else 2 for b, e in pads if b and e) + sum(
        bool(b) != bool(e) for b, e in pads
    )
    assert len(boxes) == sides
