"""Judging by a network: a model, a module, or a function that PyTorch exports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from verax.api import check
from verax.api import reference as reference_values
from verax.base.arrays import as_array
from verax.base.errors import VeraxError
from verax.base.tensors import is_array
from verax.compiling import graph_of, model_of
from verax.records.verdict import Kind, Verdict
from verax.testing.failure_message import FailureEvidence
from verax.testing.input_power import constant_inputs
from verax.testing.meanings import called_as, positional
from verax.testing.outcome import AssertionOptions, Outcome, all_findings
from verax.testing.subjects import Answers


def by_network(actual: Any, network: Any, inputs: Any, request: AssertionOptions) -> Outcome:
    """Judge by a model or a module, node by node where the subject shows them."""
    verdict = check(network, actual, inputs, options=request.options)
    label = (
        str(network) if isinstance(network, str) else getattr(network, "name", "") or "the model"
    )
    next_step = ""
    if isinstance(network, str) and isinstance(actual, str):
        next_step = f"verax bisect {network} {actual}"
    evidence = FailureEvidence(f"what {label} means", next_step=next_step)
    _show_outputs(evidence, verdict, network, inputs, actual)
    return Outcome(verdict, evidence, _network_blindness(network, inputs, verdict, request))


def _network_blindness(
    network: Any, inputs: Any, verdict: Verdict, request: AssertionOptions
) -> list[str]:
    """Reasons for which given inputs could not show a mistake; none for drawn ones."""
    if inputs is None or request.allow_blind or verdict.kind is Kind.mistake:
        return []
    try:
        expected = reference_values(network, inputs)
    except VeraxError:
        return []
    if not sum(np.size(v) for v in expected.values()):
        return ["the outputs are empty: nothing was compared"]
    named = inputs if isinstance(inputs, Mapping) else positional(inputs)
    arrays = {k: np.asarray(as_array(v)) for k, v in named.items()}
    reasons = list(constant_inputs(arrays))
    for name, value in expected.items():
        if value.dtype.kind == "f" and value.size > 1 and (value == value.flat[0]).all():
            reasons.append(f"output {name!r} is {value.flat[0]:g} everywhere: it is saturated")
    return reasons


def by_exported(
    actual: Any, function: Callable[..., Any], inputs: Any, request: AssertionOptions
) -> Outcome | None:
    """The judge's verdict by the exported function; None where it cannot be exported or judged."""
    try:
        network = model_of(function, inputs)
        graph_of(network)
    except VeraxError:
        return None
    verdict = check(function, actual, inputs, options=request.options)
    power = any(f.test == "power" for f in all_findings(verdict))
    if verdict.kind is Kind.undecided and not power:
        return None
    evidence = FailureEvidence(f"what {called_as(function)} means")
    _show_outputs(evidence, verdict, function, inputs, actual)
    return Outcome(verdict, evidence, _network_blindness(function, inputs, verdict, request))


def _show_outputs(
    evidence: FailureEvidence, verdict: Verdict, network: Any, inputs: Any, actual: Any
) -> None:
    """Fill in the outputs of a verdict that fails, where the answer is arrays or a function."""
    failed = verdict.kind in (Kind.mistake, Kind.precision, Kind.precision_lost)
    if not failed or inputs is None or not (is_array(inputs) or isinstance(inputs, list | tuple)):
        return
    answers = Answers(actual, list(positional(inputs).values()))
    expected = reference_values(network, inputs)
    if answers.first is None or len(answers.first) != len(expected):
        return
    evidence.actual = dict(zip(expected, answers.first))
    evidence.expected = expected
    sizes = {f.value: f.sigma for f in all_findings(verdict)}
    evidence.sigma = {
        v: np.full(e.shape, sizes[v]) if v in sizes and e.dtype.kind == "f" else None
        for v, e in expected.items()
    }
