"""Samples on which two implementations choose differently: does rounding explain it?

As the judge's `agree` does: the margin in float64 between what should be chosen and what was, and
how far honest rounding moves that margin.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from verax.base.errors import InputError, UnsupportedError
from verax.ir.graph import Graph
from verax.judge.agreement import MEASURED, margin_sigma
from verax.judge.decide.ties import rounds_to_integers
from verax.numerics import statistics as st
from verax.records.evaluation import Flip
from verax.reference.evaluate import evaluate

EXACT = 64
"""Flips whose margin is computed in float64, widest first; further ones have the model's own."""
Load = Callable[[str], Mapping[str, np.ndarray]]
"""The network's inputs for one sample, by the sample's name."""
Progress = Callable[[str, float], None]


def explained(
    graph: Graph, value: str, flips: Sequence[Flip], load: Load, seed: int, progress: Progress
) -> tuple[Flip, ...]:
    """The flips with margin, sigma and whether rounding may decide; those that it does not explain
    first, the widest first. The margins that are given are the model's own; a flip that is `near`
    False already stays so, unless float64 fails there, too."""
    ordered = sorted(flips, key=lambda f: -f.margin)
    exact = []
    for i, flip in enumerate(ordered[:EXACT]):
        progress(f"float64 scores of {flip.sample}", 0.5 * i / min(len(ordered), EXACT))
        exact.append(_in_float64(graph, value, flip, load))
    result, widest = [], 0.0
    steps = any(rounds_to_integers(node.op) for node in graph.nodes)
    for i, (flip, pair) in enumerate(sorted(exact, key=lambda e: -e[0].margin)):
        if flip.near is None and pair is not None:
            if i < MEASURED:
                progress(f"rounding of {flip.sample}", 0.5 + 0.5 * i / MEASURED)
                sigma = margin_sigma(graph, value, pair, load(flip.sample), seed)
                widest = max(widest, sigma)
            else:
                sigma = widest
            flip = _decided(flip, sigma, steps)
        result.append(flip)
    remaining = ordered[EXACT:]
    result += [flip if flip.near is False else _decided(flip, widest, steps) for flip in remaining]
    order = {False: 0, None: 1, True: 2}
    return tuple(sorted(result, key=lambda f: (order[f.near], -f.margin)))


def _decided(flip: Flip, sigma: float, steps: bool) -> Flip:
    """The flip with what sigma says. steps: whether the network rounds to integers inside."""
    near: bool | None = bool(flip.margin <= st.group_limit(1) * sigma)
    reason = ""
    if not near and (steps or not np.isfinite(sigma)):
        # One honest step to the next integer may grow through all layers behind it, and a sample of
        # sixteen need not hold it; `check` follows it from node to node.
        near = None
        reason = "a network of integers: `verax check` judges its steps one by one"
        reason = reason if steps else "rounding moves the margin without bound"
    return dataclasses.replace(flip, sigma=sigma, near=near, why=reason)


def _in_float64(
    graph: Graph, value: str, flip: Flip, load: Load
) -> tuple[Flip, tuple[int, int] | None]:
    """The flip as the meaning sees it, and the two classes whose margin counts, if that tells."""
    try:
        scores = evaluate(graph, load(flip.sample))[value]
    except (InputError, UnsupportedError, MemoryError) as error:
        reason = f"its float64 scores cannot be computed ({getattr(error, 'cause', error)})"
        return dataclasses.replace(flip, near=None, why=reason), None
    y = scores.reshape(-1, scores.shape[-1])[0].astype(np.float64)
    if np.isnan(y).any():
        reason = "its float64 scores hold a NaN, too"
        return dataclasses.replace(flip, near=None, why=reason), None
    best = int(y.argmax())
    if flip.near is False:
        return dataclasses.replace(flip, meaning=best), None
    lower = min((flip.model, flip.subject), key=lambda c: y[c])
    margin = float(y[best] - y[lower])
    return dataclasses.replace(flip, meaning=best, margin=margin), (best, lower)
