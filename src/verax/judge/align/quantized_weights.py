"""Whether the second network's weights are the first's, stored in fewer bits.

Steps and axes are read off the numbers, not off the file: a weight counts as quantized where the
other's differ from it by half a step at most and lie on a grid of few enough steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from verax.ir.graph import Graph
from verax.judge.align.permutations import arrangements
from verax.numerics import statistics as st
from verax.numerics.formats import BFLOAT16, FLOAT16, round_to

LEAST = 32
"""Elements of a weight from which its grid shows."""
LEAST_STEPS = 8
"""Elements of a channel for each of which there has to be more than one, so that steps show."""
LEVELS = {"int4": 15, "int8": 255}
"""Steps that numbers of a type span at most."""
TOLD = 0.5
"""Share of the first's weights that have to be found in the second."""


Values = Mapping[str, np.ndarray]


def quantization_in_words(
    first: Graph, second: Graph, values: tuple[Values, Values] = ({}, {}), second_is: str = "second"
) -> list[str]:
    """A sentence if at least half of the first's weights are the second's in fewer bits.

    values: what nodes of either give, where they were evaluated. second_is: which of the two that
    the reader gave the second is, "first" or "second".
    """
    weights = [w for w in _weights(first, values[0]) if w.dtype.kind == "f"]
    candidates = _weights(second, values[1])
    schemes: Counter[str] = Counter()
    for a in weights:
        scheme = next(filter(None, (scheme_of(a, b) for b in candidates)), "")
        if scheme:
            schemes[scheme] += 1
    if not schemes or sum(schemes.values()) < TOLD * len(weights):
        return []
    phrases = [f"{words} ({n} of {len(weights)})" for words, n in schemes.most_common()]
    first_is = "first" if second_is == "second" else "second"
    return [f"the {second_is}'s weights are the {first_is}'s, {', and '.join(phrases)}"]


def _weights(graph: Graph, values: Values) -> list[np.ndarray]:
    """Values of two axes and more that depend on constants alone: floats and codes of the file,
    and floats that a DequantizeLinear makes of codes."""
    dequantized = [
        n.outputs[0]
        for n in graph.nodes
        if n.op.kind == "DequantizeLinear"
        and n.outputs[0] in values
        and all(v is None or v in graph.constants for v in n.inputs)
    ]
    read = dict.fromkeys(
        v for n in graph.nodes for v in n.inputs if v is not None and v in graph.constants
    )
    arrays = [*(graph.constants[v] for v in read), *(np.asarray(values[v]) for v in dequantized)]
    arrays = [a for a in arrays if a.ndim >= 2 and a.size >= LEAST]
    return [a for a in arrays if a.dtype.kind == "f" or a.dtype in (np.int8, np.uint8)]


def scheme_of(a: np.ndarray, b: np.ndarray) -> str:
    """How `b` holds the numbers of `a` in fewer bits, in words; "" where it does not."""
    if a.size != b.size:
        return ""
    a, codes = a.astype(np.float64), b.dtype.kind in "iu"
    for arrangement in arrangements(b.shape, a.shape):
        reading = arrangement.apply(b.astype(np.float64))
        if codes:
            scheme = _codes(a, reading)
            if scheme:
                return scheme
            continue
        if not _alike(a, reading):
            continue
        if np.array_equal(a, reading):
            return ""
        for fmt in (FLOAT16, BFLOAT16):
            if np.array_equal(round_to(a, fmt), reading):
                return f"rounded to {fmt.name}"
        return _integers(a, reading)
    return ""


def _codes(a: np.ndarray, codes: np.ndarray) -> str:
    """The scheme by which codes of bytes stand for `a`: one factor, or one per channel."""
    for axis in (None, *range(a.ndim)):
        if axis is not None and (a.shape[axis] < 2 or a.size // a.shape[axis] < LEAST_STEPS):
            continue
        axes = tuple(i for i in range(a.ndim) if i != axis)
        square = np.square(codes).sum(axes, keepdims=True)
        step = (a * codes).sum(axes, keepdims=True) / np.where(square == 0, 1, square)
        if (step >= 0).all() and (np.abs(a - step * codes) <= st.FITTED_STEP * step).all():
            scope = "per tensor" if axis is None else f"per channel (axis {axis})"
            return f"quantized to int8 {scope}, symmetric"
    return ""


def _alike(a: np.ndarray, b: np.ndarray) -> bool:
    size = float(np.sqrt(np.mean(a * a)))
    return bool(float(np.sqrt(np.mean((a - b) ** 2))) <= st.QUANTIZED_WEIGHTS * size)


def _integers(a: np.ndarray, b: np.ndarray) -> str:
    """The scheme of whole numbers: per tensor if one step fits, else per channel of an axis."""
    per_tensor = _grid(a.ravel(), b.ravel())
    if per_tensor is not None:
        return f"quantized to {per_tensor[0]} per tensor, {per_tensor[1]}"
    for axis, n in enumerate(a.shape):
        if n < 2 or a.size // n < LEAST_STEPS:
            continue
        rows = [np.moveaxis(v, axis, 0).reshape(n, -1) for v in (a, b)]
        grids = [_grid(x, y) for x, y in zip(*rows) if np.any(y)]
        row_grids = [g for g in grids if g is not None]
        if row_grids and len(row_grids) == len(grids):
            kind = "int8" if any(g[0] == "int8" for g in row_grids) else "int4"
            form = "symmetric" if all(g[1] == "symmetric" for g in row_grids) else "asymmetric"
            return f"quantized to {kind} per channel (axis {axis}), {form}"
    return ""


def _grid(a: np.ndarray, b: np.ndarray) -> tuple[str, str] | None:
    """The type whose numbers can be those of `b`, and "symmetric" if 0 and the extremes lie so;
    None where `b` is on no grid of few steps, or is not `a` rounded to it."""
    levels = np.unique(b)
    if not 2 <= len(levels) <= LEVELS["int8"] + 1:
        return None
    wide = float(levels[-1] - levels[0])
    spans = np.arange(len(levels) - 1, LEVELS["int8"] + 1)
    counts = (levels - levels[0])[None] / wide * spans[:, None]
    fitting = spans[(np.abs(counts - np.rint(counts)) <= st.ON_GRID).all(1)]
    if not fitting.size:
        return None
    span = int(fitting[0])
    step = wide / span
    kind = next(k for k, max_levels in LEVELS.items() if span <= max_levels)
    inner = (b > levels[0]) & (b < levels[-1])  # the ends may stand for what lies beyond
    if (np.abs(a - b)[inner] > (0.5 + st.ON_GRID) * step).any():
        return None
    zero = levels[0] / step
    on_zero = abs(zero - np.rint(zero)) <= st.ON_GRID * max(1.0, abs(zero))
    limit = LEVELS[kind] // 2 + 1
    ends = np.abs(levels[[0, -1]]).max() <= limit * step * (1 + st.ON_GRID)
    return kind, "symmetric" if on_zero and ends else "asymmetric"
