"""Diagnoses a faulty node: its explanations, the structure of its error, wrong weights.

Combines `node`, `distinguish`, `structure` and `weights` and fills them into a `Blame`. A subject
that runs parts of a network runs the node by itself where explanations coincide.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from verax.ir.graph import Builder, Graph, Node, same_bits
from verax.ir.types import TensorType
from verax.judge.explain.below_rounding import known_by_bits
from verax.judge.explain.coarse_noise import possible_noises
from verax.judge.explain.distinguish import Run, narrow_down
from verax.judge.explain.hypotheses.base import Hypothesis, Prior, Suspect, edited
from verax.judge.explain.matched_test import explanations_by_projection
from verax.judge.explain.node import fits, suspect_of
from verax.judge.explain.region import search_region
from verax.judge.explain.region_hypothesis import region_nodes
from verax.judge.explain.structure import structure
from verax.judge.explain.two_mistakes import two_mistakes
from verax.judge.explain.weights import weights
from verax.judge.protocol import Runner
from verax.judge.regions.budget import needs_of_node, why_too_large
from verax.records.verdict import Blame, Explanation

WIRES = 32
"""Values that are tried in place of an input, the nearest in the order of nodes first."""
NAMED = 3
"""Values that a sentence names."""


def diagnose(
    blame: Blame,
    graph: Graph,
    values: Mapping[str, np.ndarray],
    subject: Runner | None = None,
    *,
    seed: int = 0,
) -> Blame:
    """`blame` with explanations, how they were distinguished, and the structure of the error.

    graph: any graph with the faulty node; values: the subject's inputs and outputs of that node by
    name, in declared dtypes. subject: runs the node on further inputs if it can run parts.
    Several nodes reported together get the hypotheses of the whole region. A blame whose values are
    missing is returned unchanged.
    """
    node = graph.producers.get(blame.value)
    arrays = {**graph.constants, **values}
    if node is None or blame.value not in values:
        return blame
    if blame.region:
        return _diagnose_region(blame, graph, arrays, seed)
    large = why_too_large(needs_of_node(graph, node, arrays))
    if large:
        return dataclasses.replace(blame, told_apart=f"its causes were not sought: {large}")
    if any(v is not None and v not in arrays for v in node.inputs):
        return blame
    output = node.outputs.index(blame.value)
    suspect = suspect_of(
        node,
        [None if v is None else arrays[v] for v in node.inputs],
        values[blame.value],
        graph.output_types(node),
        output,
    )
    if suspect is None:
        return blame
    run = (
        isolated_run(subject, graph)
        if subject is not None and subject.capabilities.truncates
        else None
    )
    candidates = fits(suspect)
    if not candidates or all(fit.hypothesis.fitted for fit in candidates):
        # A wire needs no number of its own, as long as one other value explains all elements.
        candidates = fits(suspect, wires(suspect, graph, arrays)) or candidates
    if not candidates:
        candidates = fits(suspect, two_mistakes(suspect))
    if not candidates:
        explanations = _in_coarse_arithmetic(blame, graph, arrays, seed)
        if explanations:
            return dataclasses.replace(blame, explanations=explanations)
    explanations, told_apart = narrow_down(suspect, candidates, run, seed)
    rounding = suspect.meaning.roundings[output]
    sigma = None if rounding is None else rounding.sigma
    looks = structure(suspect.actual, suspect.expected, sigma)
    return dataclasses.replace(
        blame,
        explanations=explanations,
        told_apart=told_apart,
        # Wrong weights that a hypothesis explains too would be noise.
        structure=(*(() if explanations else weights(suspect)), *looks),
    )


def _in_coarse_arithmetic(
    blame: Blame, graph: Graph, arrays: Mapping[str, np.ndarray], seed: int
) -> tuple[Explanation, ...]:
    """What explains a node's numbers in a coarser arithmetic that may have given them: bit for bit
    if possible, else by the size of what is left."""
    by_bits = [
        Explanation(h.name, h.words, dict(h.attributes), 0.0)
        for _, h in known_by_bits(graph, arrays, blame.value)
    ]
    noises = tuple(possible_noises(graph.types[blame.value], np.asarray(arrays[blame.value])))
    node = graph.producers[blame.value]
    if by_bits or not noises or node.outputs[0] != blame.value:
        return tuple(by_bits[:NAMED])
    read = {v: arrays[v] for v in node.inputs if v is not None}
    constants = graph.constants.keys()
    return search_region(
        [node], read, arrays[blame.value], graph.types,
        constants=constants, seed=seed, noises=noises,
    )[0]  # fmt: skip


def wires(suspect: Suspect, graph: Graph, arrays: Mapping[str, np.ndarray]) -> Iterator[Hypothesis]:
    """Yield hypotheses that an input of the node was another value of the same type, the nearest
    values in the order of nodes first."""
    node = suspect.node
    order = {v: i for i, n in enumerate(graph.nodes) for v in n.outputs}
    here = order.get(node.outputs[0], len(order))
    after = _after(graph, node)
    for i, (own, x) in enumerate(zip(node.inputs, suspect.inputs)):
        if own is None or x is None or own in graph.constants:
            continue
        alternatives = [
            v
            for v, array in arrays.items()
            if v not in graph.constants and v not in after and v != own
            if (array.shape, array.dtype) == (x.shape, x.dtype)
        ]
        for v in sorted(alternatives, key=lambda v: abs(order.get(v, -1) - here))[:WIRES]:
            maker = graph.producers.get(v)
            whose = f"what {maker.place} gives" if maker is not None else "an input"
            yield Hypothesis(
                f"input {i} taken from {v}",
                f"input {i} was {v!r}, {whose}, and not {own!r}",
                Prior.common,
                inputs=edited(i, lambda _, v=v: arrays[v]),
            )


def _after(graph: Graph, node: Node) -> set[str]:
    """Values that depend on a node, which therefore cannot be its inputs."""
    dependent = set(node.outputs)
    for later in graph.nodes:
        if not dependent.isdisjoint(later.inputs):
            dependent.update(later.outputs)
    return dependent


def _diagnose_region(
    blame: Blame, graph: Graph, observed: Mapping[str, np.ndarray], seed: int
) -> Blame:
    """As `diagnose`, for nodes that were judged together, from their inputs to the last output."""
    nodes, read = region_nodes(graph, blame.region, blame.value)
    inner = [n.outputs[0] for n in nodes[:-1] if n.outputs[0] not in observed]
    explanations: tuple[Explanation, ...] = ()
    left = f"any, as the subject did not give {', '.join(sorted(read - observed.keys())[:NAMED])}"
    if nodes and nodes[-1].outputs[0] == blame.value and read <= observed.keys():
        arrays = {v: observed[v] for v in read}
        explanations, left = search_region(
            nodes,
            arrays,
            observed[blame.value],
            graph.types,
            constants=graph.constants.keys(),
            seed=seed,
            noises=possible_noises(graph.types[blame.value], np.asarray(observed[blame.value])),
        )
        if not explanations:
            explanations = tuple(
                explanations_by_projection(graph, observed, blame.region, blame.value, seed)
            )
    note = "" if len(explanations) == 1 else _next_step(len(nodes), inner, len(explanations), left)
    return dataclasses.replace(blame, explanations=explanations, told_apart=note)


def _next_step(count: int, inner: Sequence[str], explanations: int, left: str) -> str:
    """Advice on which values to record to leave one of several nodes, or of several
    explanations."""
    if not inner:
        return ""
    middle = inner[len(inner) // 2]
    if explanations:
        claim = f"{explanations} mistakes in these {count} nodes would give this answer"
    else:
        claim = f"no single mistake in these {count} nodes that is known here explains it"
        claim += f" (not tried: {left})" if left else ""
    return (
        f"{claim}: record values inside them too, {middle!r} first, and the half that is wrong is "
        "named, then the node"
    )


def isolated_run(subject: Runner, graph: Graph) -> Run:
    """A function that runs the subject on a single node of `graph`.

    Constants of `graph` stay constants while they keep their numbers: a subject with a file of its
    own uses its own weights then, and refuses (`VeraxError`) to have them replaced.
    """

    def run(node: Node, inputs: Sequence[Any]) -> Sequence[np.ndarray | None]:
        b = Builder(graph.name)
        fed: dict[str, np.ndarray] = {}
        for name, array in zip(node.inputs, inputs):
            if name is None or array is None or name in b.types:
                continue
            array = np.asarray(array)
            if name in graph.constants and same_bits(graph.constants[name], array):
                b.constant(array, name)
            else:
                b.input(name, TensorType.of(array))
                fed[name] = array
        names = [None if a is None else v for v, a in zip(node.inputs, inputs)]
        outputs = b.add_all(node.op, names, node.outputs, node.name)
        results = subject.run(b.graph(outputs), fed)
        return [results.get(v) for v in node.outputs]

    return run
