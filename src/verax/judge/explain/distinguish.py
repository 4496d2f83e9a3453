"""Distinguishes explanations by an input on which the remaining hypotheses differ.

On the input of the check several hypotheses may give the same numbers: a Relu before a max-pool
hides what the padding counts as. Here other values (of the same shapes, if possible) are drawn
until the hypotheses, and the reference, differ by more than rounding; the subject runs the single
node on them, and hypotheses that no longer fit are refuted.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from verax.base.errors import VeraxError
from verax.ir.graph import Node
from verax.ir.types import TensorType
from verax.judge.decide.local import conform
from verax.judge.explain.hypotheses.base import Suspect
from verax.judge.explain.hypotheses.library import hypotheses
from verax.judge.explain.node import (
    Fit,
    Prediction,
    fit_statistic,
    fits,
    predict,
    separated,
    suspect_of,
)
from verax.judge.explain.probes import probe_inputs, suspect_on
from verax.records.verdict import Explanation

Run = Callable[[Node, Sequence[Any]], Sequence[np.ndarray | None]]
"""Runs the subject on a network of this one node: inputs in their declared dtypes (None where
omitted) -> outputs. Raises `VeraxError` when the subject cannot."""
ROUNDS = 3
"""Inputs that the subject is asked to run at most."""


@dataclass(frozen=True)
class Proposal:
    """Inputs under which hypotheses differ. words: their description; suspect: the node on them,
    with the reference as its output; predictions: of each fit there; apart: pairs that they
    separate."""

    words: str
    suspect: Suspect
    predictions: tuple[Prediction | None, ...]
    apart: frozenset[tuple[int, int]]

    @property
    def inputs(self) -> tuple[Any, ...]:
        return self.suspect.inputs


def tell_apart(
    node: Node,
    inputs: Sequence[Any],
    actual: np.ndarray,
    types: tuple[TensorType, ...],
    run: Run | None,
    *,
    output: int = 0,
    seed: int = 0,
) -> tuple[tuple[Explanation, ...], str]:
    """The explanations of a wrong output, distinguished by running the subject where possible, and
    a sentence on how, or why not ("" when there is at most one).

    Arguments as of `node.explain`; run: see `Run`, or None when the subject cannot run single
    nodes. Refuted explanations are last and marked.
    """
    suspect = suspect_of(node, inputs, actual, types, output)
    if suspect is None:
        return (), ""
    candidates = fits(suspect)
    return narrow_down(suspect, candidates, run, seed)


def narrow_down(
    suspect: Suspect, fitting: Sequence[Fit], run: Run | None, seed: int = 0
) -> tuple[tuple[Explanation, ...], str]:
    """`tell_apart` for fits that are already known."""
    explanations = [fit.explanation for fit in fitting]
    if len(fitting) < 2:
        return tuple(explanations), ""
    alive = set(range(len(fitting)))
    notes: list[str] = []
    refused: dict[str, str] = {}
    for _ in range(ROUNDS):
        fits_alive = [fitting[i] for i in sorted(alive)]
        proposal = propose(suspect, fits_alive, seed, without=refused)
        if proposal is None:
            notes.append(_refused(refused) or _inseparable(len(alive), bool(notes)))
            break
        if run is None:
            return tuple(explanations), (
                f"{len(fitting)} explanations fit this input; {proposal.words} would tell them "
                "apart"
            )
        try:
            statistics = _statistics_on(proposal, sorted(alive), fitting, run)
        except VeraxError as error:
            refused[proposal.words] = error.cause
            continue
        if statistics is None:
            notes.append(
                f"the node alone, on {proposal.words}, is computed rightly: the mistake needs the "
                "network around it (fusion, layout)"
            )
            break
        gone = {i for i, statistic in statistics.items() if statistic is None}
        notes.append(_sentence(proposal, len(gone), len(alive)))
        alive -= gone
        if len(alive) < 2:
            break
    else:
        notes += [_refused(refused)] if refused else []
    marked = [
        e if i in alive else dataclasses.replace(e, refuted=True)
        for i, e in enumerate(explanations)
    ]
    return tuple(sorted(marked, key=lambda e: e.refuted)), "; ".join(notes)


def _sentence(proposal: Proposal, gone: int, count: int) -> str:
    if gone == count:
        return f"none of the {count} explanations holds on {proposal.words}"
    return f"{gone} of {count} explanations were refuted by running the node on {proposal.words}"


def _refused(refused: Mapping[str, str]) -> str:
    """Sentence on inputs that the subject refused to run; "" for none."""
    if not refused:
        return ""
    words, cause = next(iter(refused.items()))
    return (
        f"the subject could not run the node alone ({cause}); {words} would tell the explanations "
        "apart"
    )


def _inseparable(count: int, has_tried: bool) -> str:
    more = "further " if has_tried else ""
    return (
        f"no {more}input that was tried tells the {count} explanations apart: they differ by no "
        "more than rounding"
    )


def _statistics_on(
    proposal: Proposal, indices: list[int], candidates: Sequence[Fit], run: Run
) -> dict[int, float | None] | None:
    """T of the subject's output under each hypothesis by index, None where it does not fit.

    None altogether when the subject's output is right.
    """
    suspect = proposal.suspect
    answer = run(suspect.node, suspect.inputs)[suspect.output]
    if answer is None:
        raise VeraxError("it does not show the value", next_step="nothing")
    actual = conform(np.asarray(answer), suspect.outputs[suspect.output].dtype)
    answered = dataclasses.replace(suspect, actual=actual)
    truth = Prediction(suspect.expected, suspect.meaning.roundings[suspect.output])
    if actual.shape == suspect.expected.shape and _fits(answered, candidates[0], truth) is not None:
        return None
    return {
        i: None if prediction is None else _fits(answered, candidates[i], prediction)
        for i, prediction in zip(indices, proposal.predictions)
    }


def _fits(suspect: Suspect, fit: Fit, prediction: Prediction) -> float | None:
    if prediction.value.shape != suspect.actual.shape:
        return None
    return fit_statistic(suspect, fit.hypothesis, prediction)


def propose(
    suspect: Suspect, candidates: Sequence[Fit], seed: int = 0, *, without: Collection[str] = ()
) -> Proposal | None:
    """The input that separates most pairs of hypotheses, all of them from the reference; None if no
    input tried separates any pair. Deterministic for a seed.

    without: descriptions of inputs to skip.
    """
    best: Proposal | None = None
    pair_count = len(candidates) * (len(candidates) - 1) // 2
    for words, arrays in probe_inputs(suspect, np.random.default_rng(seed)):
        proposal = None if words in without else _evaluated(suspect, candidates, words, arrays)
        if proposal is None or not proposal.apart:
            continue
        if best is None or len(proposal.apart) > len(best.apart):
            best = proposal
        if len(best.apart) == pair_count:
            break
    return best


def _evaluated(
    suspect: Suspect, candidates: Sequence[Fit], words: str, arrays: list[Any]
) -> Proposal | None:
    """The proposal of other inputs; None if a hypothesis is not separated from the reference
    there."""
    fresh = suspect_on(suspect, arrays)
    if fresh is None:
        return None
    same_shapes = fresh.outputs is suspect.outputs
    by_name = {} if same_shapes else {h.name: h for h in hypotheses(fresh)}
    predictions = [
        predict(fresh, h)
        if (h := by_name.get(f.hypothesis.name, f.hypothesis)) is not None
        else None
        for f in candidates
    ]
    truth = Prediction(fresh.expected, fresh.meaning.roundings[suspect.output])
    if any(r is not None and not separated(r, truth) for r in predictions):
        return None
    apart = frozenset(
        (i, j)
        for (i, a), (j, b) in itertools.combinations(enumerate(predictions), 2)
        if a is not None and b is not None and separated(a, b)
    )
    return Proposal(words, fresh, tuple(predictions), apart)
