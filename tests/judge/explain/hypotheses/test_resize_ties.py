"""A nearest Resize whose coordinates lie exactly between two pixels: another choice is named."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge import check
from verax.ops.images.resize import Resize
from verax.records.verdict import Kind, Verdict
from verax.runners.arrays import ArraysRunner

SHAPE = (2, 3, 12, 8)


def network(mode: str = "round_prefer_floor") -> Graph:
    """Halves an image: every coordinate is a tie, and with half_pixel 2 i + 0.5."""
    b = Builder("net")
    x = b.input("x", TensorType.parse("float32[2, 3, 12, 8]"))
    scales = b.constant(np.array([1, 1, 0.5, 0.5], np.float32))
    return b.graph([b.add(Resize(nearest_mode=mode), [x, None, scales], ["y"], "half")])


def judged(rows: Sequence[int], columns: Sequence[int]) -> Verdict:
    """An answer that takes these rows and columns of a drawn image."""
    x = np.random.default_rng(31).standard_normal(SHAPE).astype(np.float32)
    return check(network(), ArraysRunner({"y": x[:, :, rows][..., columns]}), {"x": x})


FIRST = range(0, 12, 2), range(0, 8, 2)


def test_the_pixels_that_the_mode_takes_are_the_first() -> None:
    assert judged(*FIRST).kind is Kind.identical


@pytest.mark.parametrize(
    ("rows", "columns", "name", "count"),
    [
        (range(1, 12, 2), range(1, 8, 2), "round_prefer_ceil", 0),
        ([0, 3, 4, 7, 8, 10], FIRST[1], "ties", 2),
        (FIRST[0], range(1, 8, 2), "ties", 4),
        ([1, 3, 4, 7, 9, 11], [0, 3, 4, 6], "ties", 6),
    ],
    ids=["all", "some rows", "columns", "both"],
)
def test_another_pixel_at_a_tie_is_called_so(
    rows: Sequence[int], columns: Sequence[int], name: str, count: int
) -> None:
    found = judged(rows, columns)
    assert found.kind is Kind.mistake
    (cause, *_) = found.blame[0].explanations
    assert cause.hypothesis.startswith(name)
    assert "exactly between two pixels (ties)" in cause.words
    assert not count or f"for {count} rows or columns" in cause.words


def test_a_pixel_that_is_no_neighbor_is_no_tie() -> None:
    found = judged([0, 3, 4, 9, 8, 10], FIRST[1])
    assert found.kind is Kind.mistake
    assert all("ties" not in e.words for e in found.blame[0].explanations)
