"""Attention: another scale, the mask left out, other heads shared, the future seen."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from verax.judge.explain.hypotheses.attention_masks import masks
from verax.judge.explain.hypotheses.base import (
    After,
    Arrays,
    Hypothesis,
    Prior,
    Suspect,
    edited,
    hypotheses_of,
)
from verax.ops.sums.attention import Attention


@hypotheses_of("Attention")
def attention(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on attention."""
    op = suspect.op
    assert isinstance(op, Attention)
    yield from _scales(suspect, op)
    shows = "from later keys, too" if op.causal else "only from keys up to its own place"
    yield Hypothesis(
        f"causal {not op.causal}",
        f"a query took {shows}",
        Prior.usual,
        op=dataclasses.replace(op, causal=not op.causal),  # type: ignore[call-arg]
        attributes={"causal": str(not op.causal)},
    )
    if suspect.has(3):
        yield Hypothesis(
            "mask missing",
            "the mask was left out",
            Prior.usual,
            inputs=lambda arrays: [*arrays[:3], None],
        )
        if suspect.inputs[3].dtype == bool:
            yield Hypothesis(
                "mask inverted",
                "the mask hid what it should have kept",
                Prior.usual,
                inputs=edited(3, np.logical_not),
            )
    if suspect.inputs[1].shape == suspect.inputs[2].shape:
        yield Hypothesis(
            "keys and values exchanged",
            "keys and values were exchanged",
            Prior.common,
            inputs=lambda arrays: [arrays[0], arrays[2], arrays[1], *arrays[3:]],
        )
    yield from _sharing(op, suspect)
    yield from masks(suspect, op)
    yield Hypothesis(
        "Softmax over the queries",
        "the scores of a key were normalized over the queries, not those of a query over the keys",
        Prior.common,
        after=After(lambda y, inputs: _over_queries(op, inputs), roundings=8),
    )


def _scales(suspect: Suspect, op: Attention) -> Iterator[Hypothesis]:
    features, heads = suspect.x.shape[-1], suspect.x.shape[-3] if suspect.x.ndim > 2 else 1
    own = op.scale / op.divisor
    for words, scale in (
        ("no scale", 1.0),
        ("1 / sqrt(features)", 1 / math.sqrt(features)),
        ("1 / features", 1 / features),
        ("sqrt(features)", math.sqrt(features)),
        ("1 / sqrt(all features)", 1 / math.sqrt(features * heads)),
        ("the scale applied twice", own**2),
    ):
        if not math.isclose(scale, own, rel_tol=1e-6):
            yield Hypothesis(
                f"scale: {words}",
                f"scores were multiplied by {scale:.6g} ({words}), not by {own:.6g}",
                Prior.usual,
                op=dataclasses.replace(op, scale=scale, divisor=1.0),  # type: ignore[call-arg]
                attributes={"scale": f"{scale:.6g}"},
            )


def _sharing(op: Attention, suspect: Suspect) -> Iterator[Hypothesis]:
    """Shared heads repeated in turn (0 1 0 1), not side by side (0 0 1 1)."""
    if suspect.x.ndim < 3:
        return
    axes = [-2 if operand in op.heads_inside else -3 for operand in "qkv"]
    heads, *shared = (a.shape[axis] for a, axis in zip(suspect.inputs, axes))
    if all(own in (1, heads) for own in shared):
        return

    def turns(arrays: Arrays) -> Arrays:
        repeated: list[Any] = [
            np.concatenate([a] * (heads // a.shape[axis]), axis=axis)
            for a, axis in zip(arrays[1:3], axes[1:])
        ]
        return [arrays[0], *repeated, *arrays[3:]]

    yield Hypothesis(
        "heads shared in turn",
        "neighboring heads of queries took different heads of keys and values",
        Prior.usual,
        inputs=turns,
    )


def _over_queries(op: Attention, inputs: Arrays) -> np.ndarray:
    wide = [a if a is None or a.dtype == bool else a.astype(np.float64) for a in inputs]
    q, k, v = op.operands(*wide[:3])
    scores = np.matmul(q, np.swapaxes(k, -1, -2)) * op.scale / op.divisor
    scores = op.masked(scores, wide[3] if len(wide) > 3 else None, op.hidden)
    with np.errstate(all="ignore"):
        e = np.exp(scores - np.max(scores, axis=-2, keepdims=True))
        return np.asarray(op.result(np.matmul(e / np.sum(e, axis=-2, keepdims=True), v)))
