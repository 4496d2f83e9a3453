"""Mistakes planted in the campaign's networks: are they still found where nobody honest is accused?

A placement has a stable key, `architecture/planted/subject/number`, and always is the same mistake
in the same node: its kinds are tried in an order drawn from the key until one of them is visible
at its node. The subject that makes it is float32 NumPy (`numbers`), or a runtime on the changed
file, which may fuse around it (`onnxruntime`, `openvino`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from benchmarks.honest.files import PER_GROUP, QUANTISED, form_of
from benchmarks.honest.inputs import PLAIN
from benchmarks.honest.networks import Forms
from benchmarks.honest.outcomes import from_verax
from benchmarks.honest.plants_quantised import QUANTISED_PLANTS
from benchmarks.honest.runs import FILE, FLOAT32, INT8, ONNX

from verax.campaign import random_networks
from verax.campaign.explaining import explained
from verax.campaign.faults import NodeRewrite
from verax.campaign.faults_in_numbers import NUMBER_FAULTS
from verax.campaign.placements import FAULTS, Placement, placements
from verax.campaign.subjects import FaultyFile, FaultyNumbers
from verax.export.onnx.writer import to_bytes
from verax.judge import check
from verax.judge.protocol import Runner
from verax.numerics.statistics import REACHES_OUTPUTS, root_mean_square
from verax.records.verdict import Kind
from verax.reference.evaluate import evaluate
from verax.runners.openvino import OpenVinoRunner

NUMBERS, ORT, OPENVINO = "numbers", "onnxruntime", "openvino"
SUBJECTS = (NUMBERS, ORT, NUMBERS, OPENVINO, NUMBERS, ORT)
"""Of an architecture's placements, in order."""
JUDGED, SKIPPED, FAILED = "judged", "skipped", "failed"


@dataclass
class PlantedOutcome:
    """One placement's outcome. result: whether it was judged; detected: the whole verdict is
    `mistake`; located: the guilty node is blamed, and no other; among: it is blamed, perhaps with
    others; reaches: the outputs err clearly more than honest float32's; without: the verdict on
    the outputs alone; explained: an explanation holds on fresh inputs too."""

    key: str
    family: str
    result: str
    plant: str = ""
    node: str = ""
    operator: str = ""
    effect: float = 0.0
    verdict: str = ""
    detected: bool = False
    located: bool = False
    among: bool = False
    blamed: list[str] = field(default_factory=list)
    reaches: bool = False
    without: str = ""
    explanations: list[str] = field(default_factory=list)
    explained: bool = False
    outside: bool = False
    reasons: list[str] = field(default_factory=list)
    seconds: float = 0.0
    judge: str = ""


def keys_of(name: str) -> Iterator[str]:
    """Every placement in an architecture; in a group of quantised networks one in each of them."""
    subjects = SUBJECTS
    if name.startswith(QUANTISED):
        subjects = tuple(SUBJECTS[i % len(SUBJECTS)] for i in range(PER_GROUP))
    for number, subject in enumerate(subjects):
        yield f"{name}/planted/{subject}/{number}"


def run_planted(key: str, forms: Forms) -> PlantedOutcome:
    """Plant the mistake of `key` and judge what comes of it."""
    outcome = PlantedOutcome(key, forms.family, SKIPPED)
    try:
        _judge(key, forms, outcome)
    except Exception as error:  # a foreign runtime may raise anything
        outcome.result = FAILED if from_verax(error) else SKIPPED
        outcome.reasons = [f"{type(error).__name__}: {error}"[:300]]
    return outcome


def _judge(key: str, forms: Forms, outcome: PlantedOutcome) -> None:
    made = forms.network(*_form(key, forms))
    graph, inputs, kind = made.graph, made.inputs[PLAIN], key.split("/")[2]
    found = placement_of(key, random_networks.Network(graph, inputs, _seed(key)), kind != NUMBERS)
    if found is None:
        outcome.reasons = ["no visible placement"]
        return
    outcome.plant, outcome.node, outcome.operator = found.fault.name, found.node, found.operator
    outcome.effect, outcome.outside = min(found.effect, 1e300), found.fault.outside
    subject = subject_of(found, kind, watches=True)
    verdict = check(graph, subject, inputs, explain=False, twice=False)
    outcome.result, outcome.verdict = JUDGED, str(verdict.kind)
    outcome.detected = verdict.kind is Kind.mistake
    outcome.blamed = [b.node for b in verdict.blame]
    alone = {b.node for b in verdict.blame if not b.region}
    together = all(found.node in b.region for b in verdict.blame if b.region)
    outcome.located = alone == {found.node} and together
    outcome.among = found.node in alone
    outcome.reasons = list(verdict.reasons[:3])
    if outcome.among:
        _explain(found, subject, inputs, outcome)
    outputs = subject_of(found, kind, watches=False)
    unwatched = check(graph, outputs, inputs, watch=False, explain=False, twice=False)
    outcome.without = str(unwatched.kind)
    outcome.reaches = _reaches(found, outputs, inputs)


def _form(key: str, forms: Forms) -> tuple[str, str]:
    """dtype and form of the network that a key's mistake is planted in."""
    name, _, _, number = key.split("/")
    if name.startswith(QUANTISED):
        return INT8, form_of(name, int(number))
    return FLOAT32, FILE if forms.origin == "file" else ONNX


def placement_of(key: str, network: random_networks.Network, in_file: bool) -> Placement | None:
    """The first visible placement in the order of kinds that belongs to the key."""
    known = {**FAULTS, **(QUANTISED_PLANTS if key.startswith(QUANTISED) else {})}
    names = [n for n in known if not (in_file and known[n] in NUMBER_FAULTS)]
    random.Random(key).shuffle(names)
    kinds = {n.op.kind for n in network.graph.nodes}
    names_of_nodes = [n.name for n in network.graph.nodes]
    for name in names:
        if kinds.isdisjoint(known[name].operators):
            continue
        for found in placements(known[name], network):
            if (found.in_file or not in_file) and names_of_nodes.count(found.node) == 1:
                return found
    return None


def subject_of(found: Placement, kind: str, watches: bool) -> Runner:
    """The subject that makes the mistake."""
    if kind == NUMBERS:
        return FaultyNumbers({found.node: found.change}, watches)
    assert isinstance(found.change, NodeRewrite)
    subject = FaultyFile(found.node, found.change, watches)
    if kind == OPENVINO:
        subject.runner = OpenVinoRunner(writer=to_bytes, threads=1, isolated=False)
    return subject


def _seed(key: str) -> int:
    return random.Random(key).randrange(1 << 30)


def _explain(
    found: Placement, subject: Runner, inputs: dict[str, np.ndarray], outcome: PlantedOutcome
) -> None:
    """What the judge says the mistake is, from the guilty node's own numbers."""
    graph = found.network.graph
    node = next(n for n in graph.nodes if n.name == found.node)
    wanted = [v for v in (*node.inputs, node.outputs[0]) if v is not None]
    values = {**graph.constants, **inputs, **subject.run(graph, inputs, wanted)}
    arrays = [None if v is None else values[v] for v in node.inputs]
    if not any(a is not None and a.dtype.kind == "f" for a in arrays):
        outcome.outside = True  # the library is about computed floats
        return
    told = explained(found, arrays, values[node.outputs[0]])
    outcome.explanations, outcome.explained = list(told.names), told.is_found


def _reaches(found: Placement, subject: Runner, inputs: dict[str, np.ndarray]) -> bool:
    """Whether the subject's outputs err clearly more than honest float32 does."""
    graph = found.network.graph
    truth = evaluate(graph, inputs)
    honest = FaultyNumbers().run(graph, inputs)
    given = subject.run(graph, inputs)
    return any(
        root_mean_square(given[v] - y) > REACHES_OUTPUTS * root_mean_square(honest[v] - y)
        for v, y in truth.items()
        if y.dtype.kind == "f" and v in given and np.isfinite(y).all()
    )
