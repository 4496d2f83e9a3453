"""Judging by one operator, in the accumulation that is declared."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from verax.api import check
from verax.base.arrays import as_array
from verax.base.errors import UsageError, VeraxError
from verax.base.tensors import is_tensor
from verax.ir.graph import Graph
from verax.ir.operator import Operator
from verax.ir.types import TensorType
from verax.judge.decide.local import finding, meaning
from verax.judge.inputs import untelling
from verax.numerics.error_model import U
from verax.records.environment import array_hash, environment
from verax.records.verdict import Blame, InputRecord, Kind, Verdict
from verax.reference.evaluate import evaluate
from verax.runners.functions import TensorFunction
from verax.testing.accumulation import (
    decide_accumulated,
    likely_accumulation,
    reproduced_accumulation,
    unit_of,
)
from verax.testing.attention_shares import has_stored_shares
from verax.testing.failure_message import FailureEvidence
from verax.testing.input_power import constant_inputs, saturated_outputs
from verax.testing.missing_tap import missing_tap
from verax.testing.operator_meaning import OperatorCase, counted_inputs, operator_case
from verax.testing.outcome import ITSELF, AssertionOptions, Outcome, with_repeats
from verax.testing.subjects import Answers, with_inputs


def by_operator(actual: Any, op: Operator, inputs: Any, request: AssertionOptions) -> Outcome:
    """Judge by one operator, in the accumulation that is declared."""
    answers = Answers(actual, list(counted_inputs(op, inputs).values()))
    kinds = answers.kinds()
    case = operator_case(op, inputs, kinds[0] if kinds else None)
    evidence = FailureEvidence(str(op))
    subject = actual
    if answers.is_function:
        subject = with_inputs(actual, case.inputs, list(case.feeds))
        if any(is_tensor(v) for v in case.inputs.values()):
            subject = TensorFunction(subject)
    elif isinstance(actual, Mapping) and answers.first is not None:
        output_names = set(case.graph.outputs)
        subject = actual if output_names & set(actual) else tuple(actual.values())
    feeds = {k: v for k, v in case.inputs.items() if k in case.feeds}
    default = _default_accumulation(case)
    declared = request.accumulate or default
    special = declared != default or request.split_k > 1
    verdict = _judged_operator(case, subject, feeds, answers, request, declared, special)
    _explain_operator(case, answers, evidence, declared, verdict)
    verdict = with_repeats(verdict, answers)
    blind: list[str] = []
    if not request.allow_blind and verdict.kind is not Kind.mistake:
        blind = _operator_blindness(case, answers, request)
        notes = tuple(untelling({k: np.asarray(v) for k, v in case.feeds.items()}))
        verdict = dataclasses.replace(verdict, notes=(*verdict.notes, *notes))
    accepted: list[str] = []
    if verdict.kind is Kind.precision and answers.first:
        formats = [
            p.format for p in verdict.precisions if p.format.startswith(tuple(ITSELF.values()))
        ]
        accepted = formats if has_stored_shares(case, answers.first[0]) else []
    return Outcome(verdict, evidence, blind, accepted)


def _default_accumulation(case: OperatorCase) -> str:
    kinds = [a.dtype for a in case.feeds.values()]
    if any(k == np.float64 for k in kinds):
        return "float64"
    return "float32" if any(k.kind in "fV" for k in kinds) else "int32"


def _judged_operator(
    case: OperatorCase,
    subject: Any,
    feeds: Mapping[str, Any],
    answers: Answers,
    request: AssertionOptions,
    declared: str,
    special: bool,
) -> Verdict:
    """The judge's verdict; where another accumulation is declared, the decision under that one."""
    if not special:
        return check(case.graph, subject, feeds, options=request.options)
    if answers.first is None:
        raise UsageError(
            "an accumulation is declared, and the answer is neither arrays nor a function",
            place="accumulate",
            next_step="give the function itself, or the arrays that it gave",
        )
    if declared == "int32":
        raise UsageError(
            "int32 is declared for floating-point inputs",
            place="accumulate",
            next_step="give integers as inputs, or a type of floats",
        )
    decision, expected, _ = decide_accumulated(case, answers.first[0], declared, request.split_k)
    node = next(n for n in case.graph.nodes if n.op is case.op)
    record = finding(node, case.graph.outputs[0], decision, answers.first[0], expected)
    blame: tuple[Blame, ...] = ()
    if decision.kind is Kind.mistake:
        explained = check(case.graph, subject, feeds, options=request.options)
        blame = explained.blame
    return Verdict(
        kind=decision.kind,
        reasons=(f"with sums accumulated in {declared}: {decision.reason}",),
        subject={"name": answers.name},
        method="the operator's output",
        outputs=(record,),
        nodes=(record,),
        blame=blame,
        inputs=tuple(
            InputRecord(n, str(TensorType.of(a)), array_hash(a), "given")
            for n, a in case.feeds.items()
        ),
        environment=environment(),
        seed=request.options.seed,
        notes=(f"accumulation declared: {declared}, {request.split_k} partial sums",),
    )


def _explain_operator(
    case: OperatorCase, answers: Answers, evidence: FailureEvidence, declared: str, verdict: Verdict
) -> None:
    """Fill in what is known of the operator's outputs: values, rounding, accumulation."""
    if answers.first is None:
        return
    node = next(n for n in case.graph.nodes if n.op is case.op)
    names = case.graph.outputs
    try:
        values = evaluate(case.graph, case.feeds)
    except VeraxError:
        return
    arrays = [None if v is None else np.asarray(as_array(v)) for v in case.inputs.values()]
    types = [None if a is None else TensorType.of(a) for a in arrays]
    try:
        roundings = meaning(node, arrays, types, case.graph.output_types(node)).roundings
    except VeraxError:
        roundings = (None,) * len(names)
    scale = max(1.0, unit_of(declared) / U)
    for name, array, rounding in zip(names, answers.first, roundings):
        evidence.actual = {**evidence.actual, name: array}
        evidence.expected = {**evidence.expected, name: np.asarray(values[name])}
        sigma = None if rounding is None else rounding.sigma * scale
        evidence.sigma = {**evidence.sigma, name: sigma}
    if verdict.kind not in (Kind.mistake, Kind.precision, Kind.precision_lost):
        return
    tap = missing_tap(case, answers.first[0])
    if tap:
        evidence.causes = (tap,)
        return
    finer = unit_of(declared)
    cause = reproduced_accumulation(case, answers.first[0], finer)
    confirmed = [p.format for p in verdict.precisions if not p.format.startswith("arithmetic in")]
    explained = any(b.explanations for b in verdict.blame)
    if not cause and not confirmed and not explained:
        cause = likely_accumulation(case, answers.first[0], finer)
    evidence.causes = tuple(filter(None, (cause, *confirmed)))


def _operator_blindness(
    case: OperatorCase, answers: Answers, request: AssertionOptions
) -> list[str]:
    graph: Graph = case.graph
    names = [v for v in graph.outputs]

    def with_input(name: str, array: np.ndarray) -> list[np.ndarray]:
        changed_feeds = {**case.feeds, name: array.astype(case.feeds[name].dtype)}
        values = evaluate(graph, changed_feeds)
        return [np.asarray(values[v]) for v in names]

    try:
        values = evaluate(graph, case.feeds)
        expected = [np.asarray(values[v]) for v in names]
        kinds = [graph.types[v].dtype.numpy for v in names]
        saturated = list(
            saturated_outputs(expected, case.feeds, with_input, names, kinds, request.options.seed)
        )
    except VeraxError:
        saturated = []
    return [*constant_inputs(case.feeds), *saturated]
