"""Cases, each judged by itself, and their outcomes: baseline runs and injected faults."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from verax.base.errors import VeraxError
from verax.campaign.deep_networks import deep_network
from verax.campaign.explaining import explained
from verax.campaign.faults import NodeRewrite
from verax.campaign.hostile_inputs import draw
from verax.campaign.placements import FAULTS, Placement, find_placement, place_two
from verax.campaign.random_networks import Network, random_network
from verax.campaign.subjects import CachedAnswers, FaultyFile, FaultyNumbers
from verax.campaign.torch_subject import TorchSubject
from verax.export.onnx.writer import to_bytes
from verax.judge import check
from verax.judge.locate.truncate import locate
from verax.judge.protocol import Runner
from verax.numerics.statistics import REACHES_OUTPUTS, root_mean_square
from verax.records.verdict import Kind, Verdict
from verax.reference.evaluate import evaluate
from verax.runners.onnx_runtime import OnnxRuntimeRunner
from verax.runners.openvino import OpenVinoRunner
from verax.runners.subjects.factory import runner_of

DEEP_EVERY = 5
"""One baseline network in so many is a deep one."""


@dataclass(frozen=True)
class BaselineCase:
    """A correct implementation on a random network. style: of the inputs (`hostile_inputs`)."""

    seed: int
    runner: str
    style: str = "normal"

    @property
    def kind(self) -> str:
        return self.runner


@dataclass(frozen=True)
class FaultCase:
    """An injected fault. index: of the placement; in_file: run by ONNX Runtime."""

    fault: str
    index: int
    deep: bool
    in_file: bool = False

    @property
    def kind(self) -> str:
        return self.fault


@dataclass(frozen=True)
class PairCase:
    """Two mistakes at once, in a deep network."""

    first: str
    second: str
    index: int

    @property
    def kind(self) -> str:
        return "two at once"


Case = BaselineCase | FaultCase | PairCase
CASES: dict[str, type[Case]] = {k.__name__: k for k in (BaselineCase, FaultCase, PairCase)}


def case_to_plain(case: Case) -> dict[str, Any]:
    """A case as workers of a pool are sent it."""
    return {"case": type(case).__name__, **dataclasses.asdict(case)}


def run_plain_case(plain: dict[str, Any]) -> dict[str, Any]:
    """`run_case` of what `case_to_plain` gave, as data."""
    fields = {k: v for k, v in plain.items() if k != "case"}
    return dataclasses.asdict(run_case(CASES[plain["case"]](**fields)))


@dataclass
class CaseOutcome:
    """What came of a case; fields that do not apply keep their defaults.

    skipped: why nothing was judged. alarms: what an honest subject was accused of, in words.
    effect: of the planted change, in T at its node. detected, located: with every value shown;
    reaches: whether the change shows at the outputs; without: the verdict on the outputs alone,
    located_without: found by cutting the network, cuts: how often the subject was run for that.
    explanations: names, best first; true: those that are the planted meaning; outside: nothing in
    the library can explain it; seconds: of the whole case.
    """

    kind: str
    case: str
    skipped: str = ""
    verdict: str = ""
    alarms: list[str] = field(default_factory=list)
    network: str = ""
    node: str = ""
    operator: str = ""
    effect: float = 0.0
    detected: bool = False
    located: bool = False
    blamed: list[str] = field(default_factory=list)
    reaches: bool = False
    without: str = ""
    located_without: bool | None = None
    cuts: int = 0
    explanations: list[str] = field(default_factory=list)
    true: list[str] = field(default_factory=list)
    outside: bool = False
    seconds: float = 0.0


def run_case(case: Case) -> CaseOutcome:
    """Judge one case. What a subject refuses becomes `skipped`; nothing is raised for it."""
    began = time.perf_counter()
    outcome = CaseOutcome(case.kind, repr(case))
    try:
        if isinstance(case, BaselineCase):
            _run_baseline(case, outcome)
        elif isinstance(case, PairCase):
            _run_pair(case, outcome)
        else:
            _run_fault(case, outcome)
    except Exception as error:  # a foreign runtime may raise anything
        cause = error.cause if isinstance(error, VeraxError) else str(error)
        outcome.skipped = f"{type(error).__name__}: {cause}".splitlines()[0][:160]
    outcome.seconds = time.perf_counter() - began
    return outcome


def lost(case: Case, loss: str) -> CaseOutcome:
    """The outcome of a case that took its process down. loss: why, as the pool says."""
    return CaseOutcome(case.kind, repr(case), skipped=f"the process died: {loss}")


RUNNERS: dict[str, Callable[[], Runner]] = {
    "onnxruntime": lambda: OnnxRuntimeRunner(writer=to_bytes, threads=1, isolated=False),
    "openvino": lambda: OpenVinoRunner(writer=to_bytes, threads=1, isolated=False),
    "torch": TorchSubject,
    "verax:O0": lambda: runner_of("verax:O0", threads=1),
    "verax:O1": lambda: runner_of("verax:O1", threads=1),
    "reference": lambda: runner_of("reference"),
}
"""Correct implementations, in this process."""


def baseline_network(seed: int, style: str = "normal") -> Network:
    """The network of a baseline case: mostly small, one in DEEP_EVERY deep."""
    network = deep_network(seed) if seed % DEEP_EVERY == 0 else random_network(seed)
    if style == "normal":
        return network
    inputs = {v: draw(style, seed, a.shape) for v, a in network.inputs.items()}
    return dataclasses.replace(network, inputs=inputs)


def _run_baseline(case: BaselineCase, outcome: CaseOutcome) -> None:
    network = baseline_network(case.seed, case.style)
    outcome.network = network.graph.name
    subject = CachedAnswers(RUNNERS[case.runner]())
    for watch in (True, False):
        verdict = check(
            network.graph, subject, network.inputs, watch=watch, explain=False, twice=False
        )
        view = "watched" if watch else "outputs only"
        for finding in verdict.nodes:
            if finding.kind is Kind.mistake:
                node = network.graph.producers[finding.value]
                outcome.alarms.append(
                    f"{view}: {finding.value} = {node.op} T={finding.statistic:.3g} "
                    f"test={finding.test} ({finding.group}): {finding.reason}"
                )
        if watch:
            outcome.verdict = str(verdict.kind)
        else:
            outcome.without = str(verdict.kind)


def placement_of(case: FaultCase) -> Placement | None:
    """The placement of a case's fault."""
    return find_placement(FAULTS[case.fault], case.index, deep=case.deep, in_file=case.in_file)


def subject_of(placement: Placement, in_file: bool, watches: bool) -> Runner:
    """The subject that makes the mistake."""
    if in_file:
        assert isinstance(placement.change, NodeRewrite)
        return FaultyFile(placement.node, placement.change, watches)
    return FaultyNumbers({placement.node: placement.change}, watches)


def _run_fault(case: FaultCase, outcome: CaseOutcome) -> None:
    placement = placement_of(case)
    if placement is None:
        outcome.skipped = "no visible placement"
        return
    network = placement.network
    outcome.network, outcome.node = network.graph.name, placement.node
    outcome.operator, outcome.effect = placement.operator, placement.effect
    subject = subject_of(placement, case.in_file, watches=True)
    verdict = check(network.graph, subject, network.inputs, explain=False, twice=False)
    outcome.verdict = str(verdict.kind)
    outcome.detected = verdict.kind is Kind.mistake
    outcome.blamed = [b.node for b in verdict.blame if not b.region]
    # Nodes that were judged together cannot be told apart: the guilty one must be among them.
    together = all(placement.node in b.region for b in verdict.blame if b.region)
    outcome.located = set(outcome.blamed) == {placement.node} and together
    if outcome.located:
        _explain(placement, subject, outcome)
    _without(case, placement, outcome)


def _run_pair(case: PairCase, outcome: CaseOutcome) -> None:
    """Judge two faults: both have to be reported, and no other node; by values, and by cutting."""
    pair = place_two(FAULTS[case.first], FAULTS[case.second], case.index)
    if pair is None:
        outcome.skipped = "no visible placement"
        return
    network = pair[0].network
    changes = {p.node: p.change for p in pair}
    outcome.network, outcome.node = network.graph.name, ", ".join(changes)
    outcome.operator = ", ".join(p.operator for p in pair)
    outcome.effect = min(p.effect for p in pair)
    subject = FaultyNumbers(changes)
    verdict = check(network.graph, subject, network.inputs, explain=False, twice=False)
    outcome.verdict = str(verdict.kind)
    outcome.detected = verdict.kind is Kind.mistake
    outcome.blamed = [b.node for b in verdict.blame]
    outcome.located = set(outcome.blamed) == set(changes)
    located = locate(network.graph, FaultyNumbers(changes, watches=False), network.inputs)
    outcome.cuts = located.evaluations
    outcome.located_without = {b.node for b in located.blame} == set(changes)


def _explain(placement: Placement, subject: Runner, outcome: CaseOutcome) -> None:
    """The judge's explanation of the fault, from the faulty node's own numbers."""
    graph, inputs = placement.network.graph, placement.network.inputs
    node = next(n for n in graph.nodes if n.name == placement.node)
    names = [v for v in (*node.inputs, node.outputs[0]) if v is not None]
    values = {**graph.constants, **inputs, **subject.run(graph, inputs, names)}
    arrays = [None if v is None else values[v] for v in node.inputs]
    explanations = explained(placement, arrays, values[node.outputs[0]])
    outcome.outside = placement.fault.outside
    outcome.explanations, outcome.true = list(explanations.names), sorted(explanations.true)


def _without(case: FaultCase, placement: Placement, outcome: CaseOutcome) -> None:
    """The same with nothing but the outputs, and the search by cutting the network."""
    graph, inputs = placement.network.graph, placement.network.inputs
    subject = subject_of(placement, case.in_file, watches=False)
    verdict: Verdict = check(graph, subject, inputs, watch=False, explain=False, twice=False)
    outcome.without = str(verdict.kind)
    outcome.reaches = _reaches_outputs(placement.network, subject)
    if verdict.kind is Kind.mistake:
        located = locate(graph, subject, inputs)
        outcome.cuts = located.evaluations
        outcome.located_without = [b.node for b in located.blame] == [placement.node] and all(
            set(b.region) <= {placement.node} for b in located.blame
        )


def _reaches_outputs(network: Network, subject: Runner) -> bool:
    """True if the subject's outputs err clearly more than correct float32 outputs."""
    truth = evaluate(network.graph, network.inputs)
    baseline = FaultyNumbers().run(network.graph, network.inputs)
    actual = subject.run(network.graph, network.inputs)
    return any(
        root_mean_square(actual[v] - y) > REACHES_OUTPUTS * root_mean_square(baseline[v] - y)
        for v, y in truth.items()
        if np.isfinite(y).all()
    )
