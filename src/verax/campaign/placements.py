"""Placements of injected faults: a network, a node, and a change that rounding cannot hide.

Every kind of mistake is placed ten times and more, in small random networks and in deep ones, at
random nodes. A place counts when the change is visible: it moves the node's true outcome by more
than three sigmas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from verax.base.errors import VeraxError
from verax.campaign.deep_networks import deep_network
from verax.campaign.faults import Change, Fault, NodeRewrite, Site
from verax.campaign.faults_in_nodes import NODE_FAULTS
from verax.campaign.faults_in_numbers import NUMBER_FAULTS
from verax.campaign.faults_in_windows import WINDOW_FAULTS
from verax.campaign.random_networks import Network, random_network
from verax.campaign.random_nodes import EXACTLY
from verax.campaign.subjects import FaultyNumbers
from verax.numerics.statistics import VISIBLE_T
from verax.reference.evaluate import evaluate

FAULTS: dict[str, Fault] = {p.name: p for p in (*WINDOW_FAULTS, *NODE_FAULTS, *NUMBER_FAULTS)}
"""Every kind of mistake by name."""
ATTEMPTS = 30
"""Networks that are tried for one placement."""
STRIDE = 1000
"""Distance between the seeds of placements, so that they never share a network."""


@dataclass(frozen=True)
class Placement:
    """A mistake in its place. effect: T of the difference that it makes at its node."""

    fault: Fault
    network: Network
    node: str
    operator: str
    change: Change
    effect: float

    @property
    def in_file(self) -> bool:
        """Whether it can be written into an ONNX file."""
        return isinstance(self.change, NodeRewrite)


def find_placement(
    fault: Fault, index: int, *, deep: bool, in_file: bool = False
) -> Placement | None:
    """The placement with this index, None when no visible one was found.

    deep: in a deep network; where those lack the operator, in a small one. in_file: only changes
    that can be written into a file. Deterministic for its arguments.
    """
    for attempt in range(ATTEMPTS):
        seed = index * STRIDE + attempt
        # Deep networks lack rare operators: half of the attempts fall back.
        network = deep_network(seed) if deep and attempt < ATTEMPTS // 2 else _small(fault, seed)
        for placement in placements(fault, network):
            if not in_file or placement.in_file:
                return placement
    return None


def _small(fault: Fault, seed: int) -> Network:
    random = np.random.default_rng(seed)
    kind = fault.operators[int(random.integers(len(fault.operators)))]
    must = [kind] if kind in EXACTLY else []
    if kind == "Conv":
        must = ["GroupedConv", "Conv"]
    if kind == "Relu":
        must = ["BatchNormalization", "Relu"]
    return random_network(seed, must, nodes=int(random.integers(3, 14)))


def place_two(first: Fault, second: Fault, index: int) -> tuple[Placement, Placement] | None:
    """Two mistakes at different nodes of one deep network, the second visible beside the first."""
    for attempt in range(ATTEMPTS):
        network = deep_network(index * STRIDE + attempt)
        for one in placements(first, network):
            subject = FaultyNumbers({one.node: one.change})
            all_values = [v for node in network.graph.nodes for v in node.outputs]
            values = subject.run(network.graph, network.inputs, all_values)
            for second_placement in placements(second, network, values):
                if second_placement.node != one.node:
                    return one, second_placement
            break
    return None


def placements(
    fault: Fault, network: Network, actual: Mapping[str, np.ndarray] | None = None
) -> Iterator[Placement]:
    """Yield visible placements of a kind of mistake in a network, in random order.

    values: outputs of nodes, where they differ from correct float32 ones.
    """
    graph = network.graph
    random = np.random.default_rng([network.seed, len(fault.name)])
    nodes = [n for n in graph.nodes if n.op.kind in fault.operators]
    if not nodes:
        return
    baseline = evaluate(graph, network.inputs, work=np.float32, keep="all")
    values = {**baseline, **(actual or {})}
    for i in random.permutation(len(nodes)):
        node = nodes[i]
        arrays = tuple(None if v is None else values[v] for v in node.inputs)
        if not any(a is not None and a.dtype.kind == "f" for a in arrays):
            continue  # integers alone: the changes are those of floats
        site = Site(graph, node, arrays, values[node.outputs[0]], random)
        try:
            change = fault.make(site)
            effect = 0.0 if change is None else site.effect(change)
        except VeraxError:
            continue
        if change is not None and effect >= VISIBLE_T:
            yield Placement(fault, network, node.name, node.op.kind, change, effect)
