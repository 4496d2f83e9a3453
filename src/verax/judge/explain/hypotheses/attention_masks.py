"""Masks of attention: windows, another corner of the causal mask, and how a mask is applied."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np

from verax.judge.explain.hypotheses.base import (
    After,
    Arrays,
    Edit,
    Hypothesis,
    Prior,
    Suspect,
    edited,
)
from verax.ops.sums.attention import Attention

WINDOWS = (*range(1, 17), *(1 << i for i in range(5, 13)))
"""Lengths of windows that are tried."""
CAPS = (5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 50.0, 100.0)
"""Limits of scores in use (Gemma 2 has 50)."""


def masks(suspect: Suspect, op: Attention) -> Iterator[Hypothesis]:
    """Yield hypotheses on which keys a query sees, and how the mask takes part."""
    yield from _visible_keys(suspect, op)
    if suspect.has(3):
        yield from _applied(suspect, op)
        yield from _misread(suspect, op)
    for cap in CAPS:
        yield Hypothesis(
            f"scores capped at {cap:g}",
            f"scores were capped at {cap:g} by a tanh (softcap)",
            Prior.uncommon,
            after=After(lambda y, inputs, cap=cap: _capped(op, inputs, cap), roundings=8),
            attributes={"softcap": f"{cap:g}"},
        )


def _visible_keys(suspect: Suspect, op: Attention) -> Iterator[Hypothesis]:
    """Causal masks of another corner or diagonal, and windows."""
    rows, keys = _sizes(suspect, op)
    distance = np.arange(rows)[:, None] - np.arange(keys)
    bare = dataclasses.replace(op, causal=False, masked_to_zero=True)  # type: ignore[call-arg]
    candidates = [
        ("causal from the lower right", "the causal mask was aligned to the lower right corner: "
         "the last query sees the last key", Prior.usual, distance + keys - rows >= 0, True),
        ("own place hidden", "a query did not see its own place", Prior.usual, distance > 0, True),
        ("one later key", "a query saw one key behind its own place", Prior.common, distance >= -1,
         True),
    ]  # fmt: skip
    for size in (w for w in WINDOWS if w < max(rows, keys)):
        before = (distance >= 0) & (distance < size)
        candidates.append(
            (f"window of {size}", f"a query saw its last {size} keys alone (a window)",
             Prior.common, before, True)
        )  # fmt: skip
        candidates.append(
            (f"window of {size} to both sides", f"a query saw the keys less than {size} away alone "
             "(a window to both sides)", Prior.uncommon, np.abs(distance) < size, False)
        )  # fmt: skip
    for name, words, prior, allowed, causal in candidates:
        if causal and not op.causal and not suspect.has(3):
            prior = Prior(min(prior + 1, Prior.rare))
        yield Hypothesis(name, words, prior, op=bare, inputs=_seen(allowed))
        if suspect.has(3) and name.startswith("window"):
            yield Hypothesis(
                f"{name}, the mask left out", f"{words}, whatever the mask says", Prior.uncommon,
                op=bare, inputs=_seen(allowed, keep_mask=False),
            )  # fmt: skip


def _sizes(suspect: Suspect, op: Attention) -> tuple[int, int]:
    """Counts of queries and keys."""
    q, k = suspect.inputs[:2]
    return (q.shape[-3] if "q" in op.heads_inside else q.shape[-2]), (
        k.shape[-3] if "k" in op.heads_inside else k.shape[-2]
    )


def _seen(allowed: np.ndarray, keep_mask: bool = True) -> Edit:
    """The mask with all keys hidden that are not `allowed`, [queries, keys]."""

    def edit(arrays: Arrays) -> Arrays:
        mask = arrays[3] if len(arrays) > 3 and keep_mask else None
        if mask is None:
            combined = allowed
        elif mask.dtype == bool:
            combined = mask & allowed
        else:
            combined = np.where(allowed, mask, -math.inf).astype(mask.dtype)
        return [*arrays[:3], combined]

    return edit


def _applied(suspect: Suspect, op: Attention) -> Iterator[Hypothesis]:
    """A mask that takes part at another step."""
    mask = suspect.inputs[3]
    if mask.dtype != bool:
        factor = op.scale / op.divisor
        yield Hypothesis(
            "mask scaled",
            "the mask was scaled with the scores: it was added before the scale",
            Prior.usual,
            inputs=edited(3, lambda m: m.astype(np.float64) * factor),
        )
        yield Hypothesis(
            "mask subtracted", "the mask was subtracted", Prior.uncommon,
            inputs=edited(3, np.negative),
        )  # fmt: skip
        yield Hypothesis(
            "mask taken as true or false",
            "the mask was taken as true where it is not 0, not added",
            Prior.common,
            inputs=edited(3, lambda m: np.where(m != 0, 0.0, -math.inf)),
        )
        return
    yield Hypothesis(
        "mask added as numbers",
        "the mask's values were added as numbers (1 and 0), which hides nothing",
        Prior.usual,
        inputs=edited(3, lambda m: m.astype(np.float64)),
    )
    yield Hypothesis(
        "mask behind the Softmax",
        "hidden keys were left out behind the Softmax, so that the shares of a query do not add up "
        "to 1",
        Prior.common,
        after=After(lambda y, inputs: _hidden_late(op, inputs), roundings=8),
    )


def _misread(suspect: Suspect, op: Attention) -> Iterator[Hypothesis]:
    """A mask read from another place."""
    mask = suspect.inputs[3]
    names = {mask.ndim - 3: "head", mask.ndim - 4: "batch"}
    for axis, n in enumerate(mask.shape[:-2]):
        if n > 1:
            name = names.get(axis, f"place of axis {axis}")
            yield Hypothesis(
                f"mask of the first {name}",
                f"the mask of the first {name} was taken for all",
                Prior.usual,
                inputs=edited(3, lambda m, a=axis: np.take(m, [0], a)),
            )
    for axis, label in ((-1, "key"), (-2, "query")):
        for by in (1, -1):
            if mask.ndim >= -axis and mask.shape[axis] > 1:
                yield Hypothesis(
                    f"mask shifted by {by} {label}",
                    f"the mask was shifted by {by} {label}",
                    Prior.uncommon,
                    inputs=edited(3, lambda m, a=axis, by=by: np.roll(m, by, a)),
                )
    if mask.ndim >= 2 and mask.shape[-1] == mask.shape[-2] > 1:
        yield Hypothesis(
            "mask transposed",
            "queries and keys were exchanged in the mask",
            Prior.common,
            inputs=edited(3, lambda m: m.swapaxes(-1, -2)),
        )


def _scores(op: Attention, inputs: Arrays) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """(scaled scores, V, mask) in float64."""
    wide = [a if a is None or a.dtype == bool else a.astype(np.float64) for a in inputs]
    q, k, v = op.operands(*wide[:3])
    scores = np.matmul(q, np.swapaxes(k, -1, -2)) * op.scale / op.divisor
    return scores, v, wide[3] if len(wide) > 3 else None


def _shares(scores: np.ndarray) -> np.ndarray:
    e = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    return np.asarray(e / np.sum(e, axis=-1, keepdims=True))


def _capped(op: Attention, inputs: Arrays, cap: float) -> np.ndarray:
    scores, v, mask = _scores(op, inputs)
    scores = op.masked(cap * np.tanh(scores / cap), mask, op.hidden)
    return np.asarray(op.result(np.matmul(_shares(scores), v)))


def _hidden_late(op: Attention, inputs: Arrays) -> np.ndarray:
    scores, v, mask = _scores(op, inputs)
    shares = _shares(op.masked(scores, None, op.hidden))
    if mask is None:
        raise ValueError("another mistake has left the mask out")
    return np.asarray(op.result(np.matmul(np.where(mask, shares, 0.0), v)))
