"""The verdict in sentences, the most important first."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from verax.base.figures import times
from verax.judge.harness.repeat import CHANCE, UNINITIALISED
from verax.judge.regions.end_to_end import unit_of
from verax.numerics.statistics import LOST
from verax.records.verdict import Blame, Coverage, Finding, Kind, Loss, Verdict, disallowed

LISTED = 6
"""Blind nodes that are named."""


def reasons_of(verdict: Verdict, weak: str = "") -> list[str]:
    """Why the verdict is what it is. weak: what it lacks in power, if that was required."""
    return [*_outside(verdict), *([weak] if weak else []), *_reasons(verdict)]


def _outside(verdict: Verdict) -> list[str]:
    """Sentences on faults outside the network: the harness, and a subject that is not
    repeatable."""
    name = verdict.subject["name"]
    reasons = [f"the harness, not the network: {c.words}" for c in verdict.causes[:1]]
    repeat = verdict.repeat
    if repeat is not None and repeat.cause == UNINITIALISED:
        reasons.append(f"{name} reads uninitialized memory: its answer changes with what was there")
    elif repeat is not None and repeat.cause == CHANCE:
        reasons.append(f"{name} changes its answer from run to run by more than rounding")
    return reasons


def _reasons(verdict: Verdict) -> list[str]:
    name = verdict.subject["name"]
    if verdict.kind is Kind.mistake:
        return [_fault_reason(name, b) for b in verdict.blame]
    lost = [f"{name}, output {x.value!r}: {loss_in_words(x)}" for x in verdict.losses]
    if verdict.kind is Kind.precision_lost:
        return lost
    worst = max((f.statistic for f in verdict.nodes), default=0.0)
    count = len(verdict.nodes)
    judged = f"{count} value{'s' * (count != 1)} judged against the float64 meaning"
    if verdict.kind is Kind.identical:
        reasons = [f"{name} gives every bit of the meaning rounded once; {judged}"]
    elif verdict.kind is Kind.rounding:
        reasons = [
            f"{name} differs only as honest float32 arithmetic does: {judged}, the worst at "
            f"{worst:.2g} of what rounding may reach"
        ]
    else:
        reasons = [
            f"{f.node} ({f.operator}), value {f.value!r}: {f.reason}"
            for f in verdict.nodes
            if f.kind is verdict.kind
        ]
        names = disallowed(verdict.precisions, verdict.allowed)
        reasons += [
            f"more digits are lost than may pass unasked; --allow {n!r} accepts it" for n in names
        ]
        reasons = reasons or [
            f"{judged}, none of them wrong" if verdict.nodes else "no value could be judged"
        ]
    reasons += [f"allowed: {text}" for text in lost]
    if verdict.power and all(p.smallest_visible == np.inf for p in verdict.power):
        reasons.append(
            "only choices were shown (integers): a mistake inside that tips none of them is unseen"
        )
    elif verdict.coverage is not None and verdict.coverage.tried:
        reasons.append(_seen(verdict.coverage, verdict.method))
    return reasons


def with_losses(outputs: Sequence[Finding], losses: Sequence[Loss]) -> tuple[Finding, ...]:
    """The findings on outputs, *precision lost* where that is not allowed."""
    lost = {x.value: x for x in losses if not x.allowed}
    return tuple(
        dataclasses.replace(f, kind=Kind.precision_lost, reason=loss_in_words(lost[f.value]))
        if f.value in lost and f.kind is not Kind.mistake
        else f
        for f in outputs
    )


def loss_in_words(loss: Loss) -> str:
    """Sentence on how much precision is lost, and where."""
    formats = " and ".join(loss.formats)
    far = f"{loss.error:.2g} of its size" if loss.error < np.inf else "where it has to be 0"
    coarse = any(unit_of(f) for f in loss.formats)
    yardstick = f"one rounding to {formats}" if coarse else "float32 rounding"
    size = (
        f"from the inputs on it errs by {far}, {times(loss.ratio)} times what {yardstick} does "
        f"there (up to {LOST:g} is {Kind.precision})"
    )
    if not loss.amplifier:
        return f"{size}; no single node does it: the errors of {formats} add up"
    origin = f" of {loss.source} ({loss.source_operator})" if loss.source else ""
    return (
        f"{size}: {loss.amplifier} ({loss.operator}) makes the relative error{origin} by "
        f"{formats} {times(loss.gain)} times larger"
    )


def _seen(coverage: Coverage, method: str) -> str:
    """Sentence on the share of nodes in which an error would have been visible, and the method."""
    is_partial = 2 * coverage.tried < coverage.nodes
    tried_text = f"{coverage.tried} nodes" + (
        f" that were tried, of {coverage.nodes}" if is_partial else ""
    )
    text = (
        f"judged by {method}, a relative error of {coverage.level:.2g} would have shown in "
        f"{coverage.seen} of {tried_text}"
    )
    if coverage.blind:
        text += f"; blind: {_listed(coverage.blind)}"
    if coverage.hidden_factors:
        text += (
            "; were it one factor of the whole value, what is behind would have hidden it in: "
            f"{_listed(coverage.hidden_factors)}"
        )
    return text


def _listed(names: Sequence[str]) -> str:
    more = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f" and {more} more" if more > 0 else "")


def _fault_reason(name: str, blame: Blame) -> str:
    if blame.region:
        nodes = blame.region
        inside = ", ".join(nodes) if len(nodes) <= 6 else f"{nodes[0]} ... {nodes[-1]}"
        return (
            f"{name} is wrong somewhere in {len(nodes)} nodes judged together ({inside}), seen at "
            f"{blame.value!r}: {blame.reason}"
        )
    return f"{name} is wrong in node {blame.node} ({blame.operator}): {blame.reason}"
