"""`examine`: a compiled network judged before it is handed over, node by node and at its outputs.

Stricter than a verdict where a layer is approximated: the judge accepts whatever errs as the fast
algorithm does, a certificate only what errs no more than direct summation in its worst order might
have, in the tiles around, or in the four quarters (errors are spread over these).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from verax.base.figures import times
from verax.ir.graph import Graph, Node, same_bits, specialise
from verax.ir.operator import Evaluation, as_tuple
from verax.judge.decide.criterion import pooled_maximum
from verax.judge.decide.local import meaning
from verax.judge.decide.precision import PRODUCTS
from verax.judge.decide.strassen import quarters_maximum
from verax.judge.protocol import Runner
from verax.judge.regions.budget import held_to_memory, in_context
from verax.judge.regions.network import Ahead, Progress, Survey, survey, survey_ahead
from verax.numerics import statistics as st
from verax.numerics import strassen
from verax.numerics.error_model import TINY
from verax.numerics.formats import BFLOAT16
from verax.numerics.winograd import NAMES
from verax.ops.pointwise.factors import SMALLEST_FACTOR
from verax.records.certificate import ILL_CONDITIONED, UNIT, Draw, Layer, Output
from verax.records.environment import array_hash
from verax.records.recipe import BFLOAT16_PRODUCTS
from verax.records.verdict import Finding, Input, Kind
from verax.reference.evaluate import bind_symbols

Arrays = Mapping[str, np.ndarray]
ACCEPTED = (Kind.identical, Kind.rounding, Kind.precision)
WINDOWS = {NAMES[tile]: window for tile, window in st.WINOGRAD_POOL.items()}
"""By algorithm, the window in which it mixes magnitudes."""


@dataclass(frozen=True)
class Examined:
    """What was found. failing: nodes whose approximation does not stand, with the reason; problems:
    what is wrong besides; power: the weakest smallest visible error."""

    draw: Draw
    failing: Mapping[str, str]
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    power: float


@held_to_memory
def examine(
    graph: Graph,
    subject: Runner,
    inputs: Arrays,
    origins: Mapping[str, str],
    algorithms: Mapping[str, str],
    *,
    seed: int = 0,
    progress: Progress | None = None,
    memory: int | str | None = None,
    ahead: Callable[[], Ahead] | None = None,
) -> Examined:
    """Judge what `subject` makes of `graph` on `inputs`.

    origins: how the inputs came about, in words; algorithms: of nodes that are approximated, by
    name. memory: as for `check`. ahead: waits for what `outputs_ahead` gave for the same inputs.
    Raises whatever `VeraxError` the subject fails with.
    """
    fixed = specialise(graph, bind_symbols(graph, inputs))
    given = subject.run(graph, inputs)
    inner = [v for node in fixed.nodes for v in node.outputs]
    problems, notes = [], []
    shown = subject.run(graph, inputs, inner)  # alone: it may load code, whose place others disturb
    for v in graph.outputs:
        if not same_bits(np.asarray(given[v]), np.asarray(shown[v])):
            problems.append(f"output {v!r} has other bits when inner values are shown")
    known = {v: a for v, a in shown.items() if v in fixed.producers}
    with ThreadPoolExecutor(1) as pool:
        halves = frozenset(n for n, how in algorithms.items() if how == BFLOAT16_PRODUCTS)
        later = pool.submit(in_context(_outputs), fixed, inputs, given, seed, ahead, halves)
        found = survey(
            fixed, inputs, known, seed=seed, progress=progress, find_precision=halves or True
        )
        outputs, said = later.result()
    values = {**inputs, **known}
    failing: dict[str, str] = {}
    layers = []
    for finding in found.findings:
        nodes = _behind(fixed, finding.value, values)
        names = [n.name or n.outputs[0] for n in nodes if _is_fast(n, algorithms)]
        if finding.kind is Kind.mistake:
            if names:
                failing |= dict.fromkeys(names, f"a mistake: {finding.reason}")
            else:
                problems.append(f"{finding.node} ({finding.operator}): {finding.reason}")
        elif names:
            share = _share(fixed, finding, nodes, algorithms, values)
            size = root_mean_square(values[finding.value])
            cost = finding.error / size if size else 0.0
            layers += [Layer(n, algorithms[n], share, finding.kind, cost) for n in names]
            if not share <= 1:
                rounds = any(n in halves for n in names)
                bound = "rounding both factors" if rounds else "direct summation around it"
                words = f"its error is {times(share)} times the bound of {bound}"
                failing |= dict.fromkeys(names, words)
        elif finding.kind is Kind.undecided:
            notes.append(f"{finding.node} ({finding.operator}) is undecided: {finding.reason}")
    seen = {layer.node for layer in layers} | failing.keys()
    failing |= dict.fromkeys(algorithms.keys() - seen, "no value that it leads to was shown")
    problems += said
    draw = Draw(
        tuple(
            Input(v, str(fixed.types[v]), array_hash(inputs[v]), origins.get(v, "given"))
            for v in graph.inputs
        ),
        {str(kind): n for kind, n in Counter(f.kind for f in found.findings).items()},
        tuple(layers),
        outputs,
        dict(found.unchecked),
    )
    return Examined(draw, failing, tuple(problems), tuple(notes), _weakest(found, known))


def _is_fast(node: Node, algorithms: Mapping[str, str]) -> bool:
    """Whether a node is computed by a fast algorithm. Names need not be of one node."""
    how = algorithms.get(node.name or node.outputs[0])
    if how == strassen.NAME:
        return node.op.kind in ("MatMul", "Conv")
    return node.op.kind in (PRODUCTS if how == BFLOAT16_PRODUCTS else ("Conv",)) and how is not None


def _behind(graph: Graph, value: str, known: Arrays) -> list[Node]:
    """The nodes that `value` is computed by from other known values, in order."""
    found: dict[str, Node] = {}
    waiting = [value]
    while waiting:
        node = graph.producers[waiting.pop()]
        if node.outputs[0] not in found:
            found[node.outputs[0]] = node
            hidden = [v for v in node.inputs if v in graph.producers and v not in known]
            waiting += [v for v in hidden if v is not None]
    return [n for n in graph.nodes if n.outputs[0] in found]


def _share(
    graph: Graph,
    finding: Finding,
    nodes: Sequence[Node],
    algorithms: Mapping[str, str],
    values: Arrays,
) -> float:
    """The largest error over the bound of direct summation around it, as `nodes`, of which some are
    computed by fast algorithms, hand it on to the finding's value."""
    if len(nodes) == 1 and finding.bound_ratio is not None and finding.bound_ratio <= 1:
        return finding.bound_ratio
    value, shown = finding.value, values[finding.value]
    values = {v: a for v, a in values.items() if v != value}
    exact: dict[str, np.ndarray] = {}
    moved: list[dict[str, np.ndarray]] = [{}, {}]
    for node in nodes:
        arrays = [_known(graph, v, exact, values) for v in node.inputs]
        types, outputs = graph.input_types(node), graph.output_types(node)
        fast = _is_fast(node, algorithms)
        found = meaning(node, arrays, types, outputs, errors=fast)
        exact.update(zip(node.outputs, found.outputs, strict=True))
        reach = np.zeros(())
        if fast:
            rounding = found.roundings[0]
            if rounding is None:
                return np.inf
            how = algorithms[node.name or node.outputs[0]]
            if how == BFLOAT16_PRODUCTS:
                reach = rounding.bound + _factors_bound(node, arrays, found.ev)
            elif how == strassen.NAME:
                reach = quarters_maximum(node, arrays, rounding.bound)
            else:
                reach = pooled_maximum(rounding.bound, WINDOWS[how])
        for sign, side in zip((1, -1), moved, strict=True):
            if any(v in side for v in node.inputs):
                given = [_known(graph, v, side, {**values, **exact}) for v in node.inputs]
                results = meaning(node, given, types, outputs, errors=False).outputs
            elif fast:
                results = found.outputs
            else:
                continue
            side.update(zip(node.outputs, (results[0] + sign * reach, *results[1:]), strict=True))
    if any(value not in side for side in moved):
        return np.inf
    bound = np.max([np.abs(side[value] - exact[value]) for side in moved], axis=0)
    error = np.abs(np.asarray(shown, np.float64) - exact[value])
    share = float((error / (bound + TINY)).max(initial=0.0))
    return share if np.isfinite(share) else np.inf


def _factors_bound(node: Node, arrays: Sequence[np.ndarray | None], ev: Evaluation) -> np.ndarray:
    """How far rounding both factors of a product may move it: each by half a step of bfloat16, all
    of it where it counts as 0."""
    sizes = [np.abs(np.asarray(a, np.float64)) for a in arrays[:2]]
    moved = [
        s + np.where(s < SMALLEST_FACTOR, s, (BFLOAT16.unit_roundoff + UNIT) * s) for s in sizes
    ]
    size, reach = (as_tuple(node.op.reference(ev, *pair))[0] for pair in (sizes, moved))
    return np.asarray(reach - size)


def _known(graph: Graph, value: str | None, first: Arrays, then: Arrays) -> np.ndarray | None:
    """A value by name, from wherever it is known."""
    if value is None:
        return None
    for source in (first, graph.constants, then):
        if value in source:
            return source[value]
    return None


def outputs_ahead(graph: Graph, inputs: Arrays, seed: int = 0) -> Ahead:
    """What `examine` finds out about the outputs before it knows them."""
    fixed = specialise(graph, bind_symbols(graph, inputs))
    return survey_ahead(fixed, inputs, fixed.outputs, seed)


def _outputs(
    graph: Graph,
    inputs: Arrays,
    given: Arrays,
    seed: int,
    ahead: Callable[[], Ahead] | None,
    halves: frozenset[str],
) -> tuple[tuple[Output, ...], list[str]]:
    """The outputs against the meaning of the whole network, and what is wrong with them. halves:
    products in bfloat16, by name."""
    known = {v: np.asarray(a) for v, a in given.items() if v in graph.producers}
    whole = survey(
        graph,
        inputs,
        known,
        seed=seed,
        measure_power=False,
        find_precision=halves,
        ahead=ahead() if ahead else None,
    )
    outputs, problems = [], []
    for f in whole.findings:
        size = root_mean_square(known[f.value])
        units = f.plain.max_abs / f.sigma if f.sigma else 0.0
        kind, reason = f.kind, f.reason
        found = Output(
            f.value, str(graph.types[f.value]), kind, reason, f.plain.max_abs, size, f.sigma,
            units, f.statistic, f.ratio,
        )  # fmt: skip
        outputs.append(found)
        if kind in ACCEPTED:
            continue
        if kind is Kind.undecided and found.condition * UNIT > ILL_CONDITIONED:
            continue
        problems.append(f"output {f.value!r} is {kind}: {reason}")
    return tuple(outputs), problems


def _weakest(found: Survey, values: Arrays) -> float:
    """The smallest relative error, spread over a whole value, that every judged node would have
    shown."""
    seen = [p.smallest_visible for p in found.power]
    for f in found.findings:
        size = root_mean_square(values[f.value]) if f.sigma and f.kind in ACCEPTED else 0.0
        if size and not f.region:
            seen.append(f.sigma * st.SUSPICIOUS_T * st.group_limit(f.elements) / size)
    return float(max(seen, default=0.0))


def root_mean_square(array: np.ndarray) -> float:
    """Of all elements, in float64; 0 without any."""
    return st.root_mean_square(np.asarray(array, np.float64)) if array.size else 0.0
