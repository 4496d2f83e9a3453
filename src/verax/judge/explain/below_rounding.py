"""Mistakes that are smaller than one rounding to 16 bits, told by the bits of thousands of numbers.

An epsilon of 1e-3 moves no number of a bfloat16 tensor by as much as its rounding does, and no test
of sizes sees it. But what a node gives is then no longer its meaning rounded once: some numbers
have fallen to the other side. Where a known mistake, rounded once, gives every number, and the
meaning does not, the mistake was made. With `FEWEST` numbers that the meaning misses, a wrong
hypothesis gives all of them with a chance of 2^-FEWEST.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from verax.ir.graph import Graph, Node
from verax.ir.types import DType, TensorType
from verax.judge.decide.coarse import Coarse, on_grid
from verax.judge.decide.precision import PRODUCTS
from verax.judge.explain.hypotheses.base import Hypothesis, Suspect
from verax.judge.explain.hypotheses.library import hypotheses
from verax.judge.explain.node import predict, suspect_of
from verax.judge.explain.region import search_region
from verax.judge.explain.region_hypothesis import region_nodes
from verax.judge.regions.programs import SHORT
from verax.numerics.error_model import Rounding
from verax.numerics.formats import FORMATS, FloatFormat, round_to
from verax.records.verdict import Finding, Kind

FEWEST = 32
"""Numbers that the meaning has to miss, and a hypothesis to give, before it is believed."""
MOST_WORK = 1 << 22
"""Largest tensors that are looked at, in elements."""
TEST = "bits of a known mistake"


def found_below_rounding(
    graph: Graph, values: Mapping[str, np.ndarray], findings: Sequence[Finding], seed: int = 0
) -> list[Finding]:
    """`findings`, those changed to *mistake* whose numbers a known mistake gives and the meaning
    does not: bit for bit where one node gives a value in 16 bits, and within float32's rounding
    where the size of the errors alone was taken for a coarser arithmetic's.

    graph: specialized; values: inputs and the subject's values by name. Deterministic for a seed.
    """
    arrays = {**graph.constants, **values}
    return [
        _held_against_known(graph, arrays, f, seed) if f.region else _judged(graph, arrays, f)
        for f in findings
    ]


def _held_against_known(
    graph: Graph, arrays: Mapping[str, np.ndarray], finding: Finding, seed: int
) -> Finding:
    """A finding that is *precision* by its size alone, changed to *mistake* where a known mistake
    in one of the nodes leaves no more than float32's rounding."""
    precision = finding.precision
    if finding.kind is not Kind.precision or precision is None or precision.confirmed:
        return finding
    nodes, read = region_nodes(graph, finding.region, finding.value)
    if not nodes or nodes[-1].outputs[0] != finding.value or not read <= arrays.keys():
        return finding
    explanations, _ = search_region(
        nodes,
        {v: arrays[v] for v in read},
        np.asarray(arrays[finding.value]),
        graph.types,
        constants=graph.constants.keys(),
        seed=seed,
        only_known=True,
    )
    if not explanations:
        return finding
    reason = (
        f"{explanations[0].words}: that gives all {finding.elements} numbers within float32's "
        f"rounding, where {precision.format} gives their size alone"
    )
    return dataclasses.replace(finding, kind=Kind.mistake, reason=reason, test=TEST, precision=None)


def _judged(graph: Graph, arrays: Mapping[str, np.ndarray], finding: Finding) -> Finding:
    agrees = finding.kind in (Kind.rounding, Kind.precision, Kind.undecided)
    if not agrees or not FEWEST <= finding.elements <= MOST_WORK:
        return finding
    for missed, hypothesis in known_by_bits(graph, arrays, finding.value):
        reason = (
            f"{hypothesis.words}: rounded once, that gives all of {finding.elements} numbers to "
            f"the last bit, and the meaning misses {missed} of them"
        )
        return dataclasses.replace(finding, kind=Kind.mistake, reason=reason, test=TEST)
    return finding


def known_by_bits(
    graph: Graph, arrays: Mapping[str, np.ndarray], value: str
) -> Iterator[tuple[int, Hypothesis]]:
    """Yield the known mistakes that, rounded once to the 16 bits in which a value is stored, give
    all of its numbers, and how many of them the meaning misses; nothing if fewer than `FEWEST`."""
    node = graph.producers.get(value)
    if node is None or any(v is not None and v not in arrays for v in node.inputs):
        return
    fmt = _stored_in(graph.types[value], np.asarray(arrays[value]))
    suspect = None if fmt is None else _suspect(graph, node, arrays, value, fmt)
    if fmt is None or suspect is None or suspect.actual.shape != suspect.expected.shape:
        return
    missed = _missed(suspect, suspect.expected, suspect.meaning.roundings[suspect.output], fmt)
    if missed >= FEWEST:
        for hypothesis in _that_give_all(suspect, fmt):
            yield missed, hypothesis


def _stored_in(declared: TensorType, actual: np.ndarray) -> FloatFormat | None:
    """The 16-bit format of a value, by its declared type or because all its numbers have it."""
    name = str(declared.dtype)
    if name in SHORT:
        return FORMATS[name]
    if declared.dtype is not DType.float32 or not np.isfinite(actual.astype(np.float64)).all():
        return None
    return next((FORMATS[n] for n in SHORT if on_grid(actual, FORMATS[n])), None)


def _suspect(
    graph: Graph, node: Node, arrays: Mapping[str, np.ndarray], value: str, fmt: FloatFormat
) -> Suspect | None:
    """The node as float32 computes it, from factors in that format where it is a product."""
    inputs = [None if v is None else np.asarray(arrays[v]) for v in node.inputs]
    if node.op.kind in PRODUCTS:
        inputs = [
            x
            if x is None or x.dtype != np.float32
            else round_to(x.astype(np.float64), fmt).astype(np.float32)
            for x in inputs
        ]
    types = tuple(
        t.with_dtype(DType.float32) if str(t.dtype) in SHORT else t
        for t in graph.output_types(node)
    )
    return suspect_of(node, inputs, arrays[value], types, node.outputs.index(value))


def _missed(
    suspect: Suspect, value: np.ndarray, rounding: Rounding | None, fmt: FloatFormat
) -> int:
    """How many of the subject's numbers `value`, rounded once, is not, wherever float32 may have
    left it before."""
    own = rounding or Rounding(np.zeros(()), np.zeros(()))
    with np.errstate(all="ignore"):
        inside = Coarse("", value, own).given_by_rounding(suspect.wide, fmt)
    return int((~inside & np.isfinite(value)).sum())


def _that_give_all(suspect: Suspect, fmt: FloatFormat) -> Iterator[Hypothesis]:
    """Yield the hypotheses that give every number, those with no number of their own."""
    for hypothesis in hypotheses(suspect):
        if hypothesis.fitted:
            continue
        prediction = predict(suspect, hypothesis)
        if prediction is None or prediction.value.shape != suspect.wide.shape:
            continue
        if not np.isfinite(prediction.value).all():
            continue
        if not _missed(suspect, prediction.value, prediction.rounding, fmt):
            yield hypothesis
