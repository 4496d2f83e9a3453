"""What an assertion was asked for, what it came to, and whether that passes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.base.errors import UsageError
from verax.base.option_groups.options import CHECKED_AS_USUAL, CheckOptions
from verax.judge.harness.repeat import ORDER
from verax.records.verdict import Kind, Repeat, Verdict, is_allowed
from verax.testing.failure_message import FailureEvidence, failure_message
from verax.testing.failures import BlindCheckError, IncorrectError
from verax.testing.subjects import Answers, same_answers

COARSE = ("TF32", "bf16", "fp16", "int8", "arithmetic in")
"""How names of arithmetics begin that are coarser than declared; fast algorithms are not."""
ITSELF = {"bf16": "arithmetic in bfloat16", "fp16": "arithmetic in float16"}
FURTHER_CALLS = 2
"""Calls of a function beside the judge's own, to see whether it repeats itself."""


@dataclasses.dataclass(frozen=True)
class AssertionOptions:
    """What an assertion was asked for beside its three arguments."""

    accumulate: str = ""
    split_k: int = 1
    atomics: bool = False
    allow_blind: bool = False
    library: str = ""
    options: CheckOptions = CHECKED_AS_USUAL


@dataclasses.dataclass
class Outcome:
    """A verdict, what its message needs, and why the check is blind.

    accepted: names of coarser arithmetics that keep to what is declared.
    """

    verdict: Verdict
    evidence: FailureEvidence
    blind: Sequence[str] = ()
    accepted: Sequence[str] = ()


def passed_verdict(outcome: Outcome, request: AssertionOptions) -> Verdict:
    """The verdict of an outcome that passes. Raises `IncorrectError` or `BlindCheckError`."""
    verdict, evidence = outcome.verdict, outcome.evidence
    if verdict.kind in (Kind.mistake, Kind.precision_lost):
        raise IncorrectError(failure_message(verdict, evidence), verdict)
    coarse = [p.format for p in verdict.precisions if _is_coarse(p.format)]
    allowed = (*request.options.allow, *outcome.accepted)
    refused = [name for name in coarse if not _is_allowed(name, allowed)]
    if verdict.kind is Kind.precision and (refused or verdict.exit_code):
        names = refused or [p.format for p in verdict.precisions]
        short = _short_name(names[0]) if refused else names[0]
        evidence.next_step = f"allow=({short!r},) if that is meant; print(error.verdict)"
        raise IncorrectError(failure_message(verdict, evidence), verdict)
    repeat = verdict.repeat
    if repeat is not None and not repeat.same_bits and not request.atomics:
        evidence.next_step = "atomics=True allows it, if sums are meant to be added in any order"
        raise IncorrectError(failure_message(verdict, evidence, "not reproducible"), verdict)
    if verdict.kind is Kind.undecided and not any(f.test == "power" for f in all_findings(verdict)):
        raise IncorrectError(failure_message(verdict, evidence), verdict)
    reasons = [*outcome.blind, *_blind_reasons(verdict)]
    if reasons and not request.allow_blind:
        raise BlindCheckError(_blind_message(verdict, evidence, reasons), verdict)
    return verdict


def all_findings(verdict: Verdict) -> list[Any]:
    return [*verdict.nodes, *verdict.outputs]


def _blind_reasons(verdict: Verdict) -> list[str]:
    if verdict.kind is not Kind.undecided:
        return []
    reasons = [f.reason for f in all_findings(verdict) if f.test == "power"]
    return reasons[:1] or list(verdict.reasons[:1])


def _is_coarse(name: str) -> bool:
    return name.startswith(COARSE)


def _is_allowed(name: str, allowed: Sequence[str]) -> bool:
    """As `is_allowed`; "bf16" also allows "arithmetic in bfloat16 itself"."""
    return is_allowed(name, [*allowed, *(ITSELF[a] for a in allowed if a in ITSELF)])


def _short_name(name: str) -> str:
    """What allows an arithmetic: "bf16" for "bf16 inputs and output"."""
    return next((k for k, v in ITSELF.items() if name.startswith(v)), name.split()[0])


def _blind_message(verdict: Verdict, evidence: FailureEvidence, reasons: Sequence[str]) -> str:
    name = verdict.subject.get("name", "the answer")
    lines = [f"this check of {name} against {evidence.meaning} is blind: agreement proves nothing"]
    lines += [f"  because: {reason}"[:200] for reason in list(reasons)[:4]]
    lines.append(
        "  next: draw inputs that differ, as np.random.default_rng(0).standard_normal(shape)"
    )
    lines.append("  or: allow_blind=True, if these are the inputs that are meant")
    return "\n".join(lines)


def with_repeats(verdict: Verdict, answers: Answers) -> Verdict:
    """The verdict with further calls of a function in its record, where the judge's two agreed."""
    seen = verdict.repeat
    if not answers.is_function or (seen is not None and not seen.same_bits):
        return verdict
    assert answers.first is not None
    for call in range(FURTHER_CALLS):
        again = answers.again()
        if same_answers(answers.first, again):
            continue
        gaps = {
            f"output {i}": float(
                np.nanmax(np.abs(a.astype(np.float64) - b.astype(np.float64)), initial=0.0)
            )
            for i, (a, b) in enumerate(zip(answers.first, again))
            if a.shape == b.shape
        }
        return dataclasses.replace(verdict, repeat=Repeat(2 + call, False, "", gaps, ORDER))
    if seen is not None:
        return verdict
    return dataclasses.replace(verdict, repeat=Repeat(1 + FURTHER_CALLS, True))


def require_undeclared(request: AssertionOptions, subject: str) -> None:
    """Raise `UsageError` for what is declared of single operators alone."""
    if request.split_k > 1 or (request.accumulate and request.accumulate != "float32"):
        raise UsageError(
            f"accumulate and split_k are declared of one operator, and the meaning is {subject}",
            next_step="give an operator such as \"MatMul()\", or use allow=('bf16',)",
        )
