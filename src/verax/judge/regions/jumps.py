"""Jumps in a region: choices (comparisons, rounding to integers) that rounding may tip.

Where it does, baseline runs split between the choices, and the spread of samples is no limit for a
correct result. It is not enough that a node could jump: whether it does is tried with rounding
noise, and with more noise than a correct run may have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.base.figures import times
from verax.judge.regions.adjoint import Record
from verax.numerics import statistics as st
from verax.records.verdict import Kind

TIPPING = (st.TIE_NOISE,) * 4 + (st.group_limit(1),) * 2
"""Multiples of rounding noise under which a choice must not tip to be firm: within which candidates
count as tied, and what a single element may reach."""


def tips(exact: Record, inputs: Sequence[Any], outputs: Sequence[np.ndarray]) -> bool:
    """True if a node's choice differs on these inputs from `exact`, or may differ.

    Numbers with noise are never equal; where one passes the other they may be."""
    if exact.node.op.kind == "Equal":
        before, now = (_order(*pair) for pair in (exact.inputs, inputs))
        return not np.array_equal(before, now)
    return not all(
        np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
        for a, b in zip(exact.outputs, outputs, strict=True)
    )


def _order(a: Any, b: Any) -> np.ndarray:
    """Sign of a - b, element by element: -1, 0, 1."""
    return (a > b).astype(np.int8) - (a < b).astype(np.int8)


def varies(distances: Sequence[np.ndarray]) -> bool:
    """True if the distances of baseline runs from the reference differ so much that a jump between
    them is likely."""
    sizes = [st.root_mean_square(d) for d in distances]
    return len(sizes) > 1 and max(sizes) > st.HEAVY_TAIL * min(sizes)


def decide_at_a_jump(
    error: np.ndarray, distances: Sequence[np.ndarray], jump: str
) -> tuple[Kind, str] | None:
    """(kind, reason) of an error where some baseline runs jump and others do not; None where they
    do not differ so, or where the error is larger than any of their jumps.

    distances: of baseline runs from the reference, float64.
    """
    if not varies(distances):
        return None
    sizes = sorted(st.root_mean_square(d) for d in distances)
    size = st.root_mean_square(error)
    if size <= st.GROUP_MEAN**0.5 * sizes[0]:
        return Kind.rounding, "the difference is as small as that of the nearest honest run"
    if size > st.JUMP_REACH * sizes[-1]:
        return None
    factor = f"{times(sizes[-1] / sizes[0])} times" if sizes[0] > 0 else "from nothing"
    return Kind.undecided, (
        f"rounding at a jump inside ({jump}) decides the result: the distance of honest results "
        f"varies {factor} between samples"
    )
