"""Judging answers by a plain function: derived bounds into a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from verax.ir.types import TensorType
from verax.judge.decide.criterion import Decision
from verax.judge.decide.local import plain, worst_elements
from verax.numerics import statistics as st
from verax.numerics.formats import FORMATS, dtype_name
from verax.records.environment import array_hash, environment
from verax.records.verdict import Finding, InputRecord, Kind, Verdict
from verax.testing.accumulation import unit_of
from verax.testing.derived_bound import DerivedBound, blind, decide_by, derive
from verax.testing.random_rounding import SampledFunction

SURE = (
    f"the bound is derived from {2 * st.DERIVED_SAMPLES} runs under random rounding, not proven; "
    "see docs/derived_bounds.md"
)
SEVERITY = (Kind.identical, Kind.rounding, Kind.undecided, Kind.mistake)


@dataclass(frozen=True)
class JudgedFunction:
    """A verdict by derived bounds, with the bounds by output."""

    verdict: Verdict
    bounds: Mapping[str, DerivedBound]


def units(
    inputs: Sequence[np.ndarray], answers: Sequence[np.ndarray], accumulate: str = ""
) -> tuple[float, float]:
    """Unit roundoffs of the types that results of operations are stored in and that sums are
    accumulated in.

    Where nothing is declared: the coarsest type of the float inputs (float32 where the answer is
    float32, as what computes it keeps that inside), and float32 or better.
    """
    if accumulate and accumulate in FORMATS:
        return unit_of(accumulate), unit_of(accumulate)
    names = [dtype_name(a.dtype) for a in inputs if dtype_name(a.dtype) in FORMATS]
    answer_types = [dtype_name(a.dtype) for a in answers if dtype_name(a.dtype) in FORMATS]
    single, double = unit_of("float32"), unit_of("float64")
    coarsest = max((unit_of(n) for n in names), default=single)
    finest_answer = min((unit_of(n) for n in answer_types), default=single)
    if finest_answer <= single < coarsest:
        coarsest = single
    if coarsest <= double:
        # The meaning itself is computed in this type: both sides err.
        coarsest = 2 * double if finest_answer <= double else single
    return coarsest, min(coarsest, single)


def judge_function(
    function: SampledFunction,
    names: Sequence[str],
    answers: Sequence[np.ndarray],
    outputs: Sequence[str],
    *,
    subject: Mapping[str, str],
    accumulate: str = "",
    seed: int = 0,
    operator: str = "function",
    notes: Sequence[str] = (),
) -> JudgedFunction:
    """The verdict on answers by a plain function.

    names: of its inputs. outputs: names of its outputs, made up where there are fewer.
    """
    result, sums = units(function.inputs, answers, accumulate)
    bounds = derive(function, [a.dtype for a in answers], result, sums, seed)
    labels = [outputs[i] if i < len(outputs) else f"output_{i}" for i in range(len(bounds))]
    findings = []
    if len(answers) != len(bounds):
        reason = f"{len(answers)} arrays are given, {function.label} gives {len(bounds)}"
        decision = Decision(Kind.mistake, reason, "shape", np.inf)
        findings.append(_finding(labels[0], function.label, operator, decision, None, None))
    else:
        for label, actual, bound in zip(labels, answers, bounds):
            decision = blind(decide_by(actual, bound), bound, actual.dtype)
            findings.append(
                _finding(label, function.label, operator, decision, actual, bound.expected)
            )
    kind = max((f.kind for f in findings), key=SEVERITY.index, default=Kind.identical)
    worst = max(findings, key=lambda f: SEVERITY.index(f.kind), default=None)
    visible = max((b.visible() for b in bounds), default=0.0)
    reasons = [] if worst is None else [f"{worst.value}: {worst.reason}"]
    reasons.append(f"a relative error of {visible:.2g}, spread over an output, would have shown")
    verdict = Verdict(
        kind=kind,
        reasons=tuple(reasons),
        subject=subject,
        method=f"outputs of {function.label}, by a derived bound",
        outputs=tuple(findings),
        nodes=(),
        blame=(),
        inputs=tuple(
            InputRecord(name, str(TensorType.of(a)), array_hash(a), "given")
            for name, a in zip(names, function.inputs)
        ),
        environment=environment(),
        seed=seed,
        notes=(SURE, *notes),
    )
    return JudgedFunction(verdict, dict(zip(labels, bounds)))


def _finding(
    value: str,
    node: str,
    operator: str,
    decision: Decision,
    actual: np.ndarray | None,
    expected: np.ndarray | None,
) -> Finding:
    empty = np.zeros(0)
    actual = empty if actual is None else actual
    expected = empty if expected is None else expected
    return Finding(
        value=value,
        node=node,
        operator=operator,
        kind=decision.kind,
        reason=decision.reason,
        test=decision.test,
        elements=int(actual.size),
        statistic=decision.statistic,
        group=decision.group,
        bound_ratio=decision.bound_ratio,
        sigma=decision.sigma,
        error=decision.error,
        plain=plain(actual, expected),
        worst=worst_elements(actual, expected),
    )
