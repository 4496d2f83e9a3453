"""Telling explanations apart: an input on which the surviving rivals differ, and what came of it.

On the input of the check several rival meanings may give the same numbers: a Relu before a max-pool
hides what the padding counts as. Here other values (the shapes stay, where they can) are drawn
until the rivals, and the truth, lie further apart than rounding; the subject runs the single node
on them, and rivals that no longer fit are refuted.
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
from verax.judge.explain.probes import drawn, on
from verax.records.verdict import Explanation

Run = Callable[[Node, Sequence[Any]], Sequence[np.ndarray | None]]
"""Runs the subject on a network of this one node: inputs in their declared dtypes (None where
omitted) -> outputs. Raises `VeraxError` when the subject cannot."""
ROUNDS = 3
"""Inputs that the subject is asked to run at most."""


@dataclass(frozen=True)
class Proposal:
    """Inputs under which rivals differ. words: what they are; suspect: the node on them, the truth
    as its answer; rivals: what each of the fits predicts there; apart: pairs that it separates."""

    words: str
    suspect: Suspect
    rivals: tuple[Prediction | None, ...]
    apart: frozenset[tuple[int, int]]

    @property
    def inputs(self) -> tuple[Any, ...]:
        return self.suspect.inputs


def tell_apart(
    node: Node,
    inputs: Sequence[Any],
    given: np.ndarray,
    types: tuple[TensorType, ...],
    run: Run | None,
    *,
    output: int = 0,
    seed: int = 0,
) -> tuple[tuple[Explanation, ...], str]:
    """The explanations of a wrong output, told apart by running the subject where that is possible.

    Arguments as of `node.explain`; run: see `Run`, or None when the subject cannot run single
    nodes. Returns the explanations, refuted ones last and marked, and a sentence on how they were
    told apart or why not ("" when there is at most one).
    """
    suspect = suspect_of(node, inputs, given, types, output)
    if suspect is None:
        return (), ""
    found = fits(suspect)
    return narrow_down(suspect, found, run, seed)


def narrow_down(
    suspect: Suspect, found: Sequence[Fit], run: Run | None, seed: int = 0
) -> tuple[tuple[Explanation, ...], str]:
    """`tell_apart` for fits that are already known."""
    explanations = [fit.explanation for fit in found]
    if len(found) < 2:
        return tuple(explanations), ""
    alive = set(range(len(found)))
    said: list[str] = []
    refused: dict[str, str] = {}
    for _ in range(ROUNDS):
        fits_alive = [found[i] for i in sorted(alive)]
        proposal = propose(suspect, fits_alive, seed, without=refused)
        if proposal is None:
            said.append(_refused(refused) or _inseparable(len(alive), bool(said)))
            break
        if run is None:
            return tuple(explanations), (
                f"{len(found)} explanations fit this input; {proposal.words} would tell them apart"
            )
        try:
            statistics = _tried(proposal, sorted(alive), found, run)
        except VeraxError as error:
            refused[proposal.words] = error.cause
            continue
        if statistics is None:
            said.append(
                f"the node alone, on {proposal.words}, is computed rightly: the mistake needs the "
                "network around it (fusion, layout)"
            )
            break
        gone = {i for i, statistic in statistics.items() if statistic is None}
        said.append(_sentence(proposal, len(gone), len(alive)))
        alive -= gone
        if len(alive) < 2:
            break
    else:
        said += [_refused(refused)] if refused else []
    marked = [
        e if i in alive else dataclasses.replace(e, refuted=True)
        for i, e in enumerate(explanations)
    ]
    return tuple(sorted(marked, key=lambda e: e.refuted)), "; ".join(said)


def _sentence(proposal: Proposal, gone: int, count: int) -> str:
    if gone == count:
        return f"none of the {count} explanations holds on {proposal.words}"
    return f"{gone} of {count} explanations were refuted by running the node on {proposal.words}"


def _refused(refused: Mapping[str, str]) -> str:
    """What the subject would not run, and why; "" for nothing."""
    if not refused:
        return ""
    words, cause = next(iter(refused.items()))
    return (
        f"the subject could not run the node alone ({cause}); {words} would tell the explanations "
        "apart"
    )


def _inseparable(count: int, tried: bool) -> str:
    more = "further " if tried else ""
    return (
        f"no {more}input that was tried tells the {count} explanations apart: they differ by no "
        "more than rounding"
    )


def _tried(
    proposal: Proposal, numbers: list[int], found: Sequence[Fit], run: Run
) -> dict[int, float | None] | None:
    """T of the subject's answer under each rival by number, None where it does not fit.

    None altogether when the subject gives the truth.
    """
    suspect = proposal.suspect
    answer = run(suspect.node, suspect.inputs)[suspect.output]
    if answer is None:
        raise VeraxError("it does not show the value", next_step="nothing")
    given = conform(np.asarray(answer), suspect.outputs[suspect.output].dtype)
    tried = dataclasses.replace(suspect, given=given)
    truth = Prediction(suspect.expected, suspect.meaning.roundings[suspect.output])
    if given.shape == suspect.expected.shape and _fits(tried, found[0], truth) is not None:
        return None
    return {
        i: None if rival is None else _fits(tried, found[i], rival)
        for i, rival in zip(numbers, proposal.rivals)
    }


def _fits(suspect: Suspect, fit: Fit, prediction: Prediction) -> float | None:
    if prediction.value.shape != suspect.given.shape:
        return None
    return fit_statistic(suspect, fit.hypothesis, prediction)


def propose(
    suspect: Suspect, found: Sequence[Fit], seed: int = 0, *, without: Collection[str] = ()
) -> Proposal | None:
    """The input that separates most pairs of rivals, all of them from the truth; None when no input
    that was tried separates any pair. Deterministic for a seed.

    without: the words of inputs that are not wanted.
    """
    best: Proposal | None = None
    pairs = len(found) * (len(found) - 1) // 2
    for words, arrays in drawn(suspect, np.random.default_rng(seed)):
        proposal = None if words in without else _evaluated(suspect, found, words, arrays)
        if proposal is None or not proposal.apart:
            continue
        if best is None or len(proposal.apart) > len(best.apart):
            best = proposal
        if len(best.apart) == pairs:
            break
    return best


def _evaluated(
    suspect: Suspect, found: Sequence[Fit], words: str, arrays: list[Any]
) -> Proposal | None:
    """What the rivals predict on other inputs; None when one of them is not told from the truth."""
    fresh = on(suspect, arrays)
    if fresh is None:
        return None
    same_shapes = fresh.outputs is suspect.outputs
    known = {} if same_shapes else {h.name: h for h in hypotheses(fresh)}
    rivals = [
        predict(fresh, h) if (h := known.get(f.hypothesis.name, f.hypothesis)) is not None else None
        for f in found
    ]
    truth = Prediction(fresh.expected, fresh.meaning.roundings[suspect.output])
    if any(r is not None and not separated(r, truth) for r in rivals):
        return None
    apart = frozenset(
        (i, j)
        for (i, a), (j, b) in itertools.combinations(enumerate(rivals), 2)
        if a is not None and b is not None and separated(a, b)
    )
    return Proposal(words, fresh, tuple(rivals), apart)
