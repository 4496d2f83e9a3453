"""`examine`: judges a compiled network before it is delivered, node by node and at its outputs.

Stricter than a verdict where a layer is approximated: the judge accepts the errors of the fast
algorithm, a certificate only errors that direct summation in its worst order could have, in the
tiles around, or in the four quarters (errors are spread over these).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from verax.base.figures import times
from verax.ir.graph import Graph, Node, same_bits, specialize
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
from verax.records.certificate import ILL_CONDITIONED, UNIT, CertifiedLayer, Draw, Output
from verax.records.environment import array_hash
from verax.records.recipe import BFLOAT16_PRODUCTS
from verax.records.verdict import Finding, InputRecord, Kind
from verax.reference.evaluate import bind_symbols

Arrays = Mapping[str, np.ndarray]
ACCEPTED = (Kind.identical, Kind.rounding, Kind.precision)
WINDOWS = {NAMES[tile]: window for tile, window in st.WINOGRAD_POOL.items()}
"""By algorithm, the window in which it mixes magnitudes."""


@dataclass(frozen=True)
class Examined:
    """The result. failing: nodes whose approximation errs too much, with the reason; problems:
    other mistakes; power: the largest of the smallest visible errors."""

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
    """Judge the values of `subject` for `graph` on `inputs`.

    origins: descriptions of the inputs; algorithms: of nodes that are approximated, by name.
    memory: as for `check`. ahead: waits for the result of `outputs_ahead` for the same inputs.
    Raises whatever `VeraxError` the subject fails with.
    """
    fixed = specialize(graph, bind_symbols(graph, inputs))
    outputs_alone = subject.run(graph, inputs)
    inner = [v for node in fixed.nodes for v in node.outputs]
    problems, notes = [], []
    observed = subject.run(
        graph, inputs, inner
    )  # alone: it may load code, whose place others disturb
    for v in graph.outputs:
        if not same_bits(np.asarray(outputs_alone[v]), np.asarray(observed[v])):
            problems.append(f"output {v!r} has other bits when inner values are shown")
    inner_values = {v: a for v, a in observed.items() if v in fixed.producers}
    with ThreadPoolExecutor(1) as pool:
        bf16_products = frozenset(
            n for n, algorithm in algorithms.items() if algorithm == BFLOAT16_PRODUCTS
        )
        later = pool.submit(
            in_context(_outputs), fixed, inputs, outputs_alone, seed, ahead, bf16_products
        )
        result = survey(
            fixed,
            inputs,
            inner_values,
            seed=seed,
            progress=progress,
            find_precision=bf16_products or True,
        )
        outputs, output_problems = later.result()
    values = {**inputs, **inner_values}
    failing: dict[str, str] = {}
    layers = []
    for finding in result.findings:
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
            layers += [CertifiedLayer(n, algorithms[n], share, finding.kind, cost) for n in names]
            if not share <= 1:
                rounds = any(n in bf16_products for n in names)
                bound = "rounding both factors" if rounds else "direct summation around it"
                words = f"its error is {times(share)} times the bound of {bound}"
                failing |= dict.fromkeys(names, words)
        elif finding.kind is Kind.undecided:
            notes.append(f"{finding.node} ({finding.operator}) is undecided: {finding.reason}")
    seen = {layer.node for layer in layers} | failing.keys()
    failing |= dict.fromkeys(algorithms.keys() - seen, "no value that it leads to was shown")
    problems += output_problems
    draw = Draw(
        tuple(
            InputRecord(v, str(fixed.types[v]), array_hash(inputs[v]), origins.get(v, "given"))
            for v in graph.inputs
        ),
        {str(kind): n for kind, n in Counter(f.kind for f in result.findings).items()},
        tuple(layers),
        outputs,
        dict(result.unchecked),
    )
    return Examined(draw, failing, tuple(problems), tuple(notes), _weakest(result, inner_values))


def _is_fast(node: Node, algorithms: Mapping[str, str]) -> bool:
    """True if a node is computed by a fast algorithm. Names need not be unique."""
    algorithm = algorithms.get(node.name or node.outputs[0])
    if algorithm == strassen.NAME:
        return node.op.kind in ("MatMul", "Conv")
    return (
        node.op.kind in (PRODUCTS if algorithm == BFLOAT16_PRODUCTS else ("Conv",))
        and algorithm is not None
    )


def _behind(graph: Graph, value: str, observed: Arrays) -> list[Node]:
    """The nodes that compute `value` from other observed values, in order."""
    nodes_of: dict[str, Node] = {}
    waiting = [value]
    while waiting:
        node = graph.producers[waiting.pop()]
        if node.outputs[0] not in nodes_of:
            nodes_of[node.outputs[0]] = node
            hidden = [v for v in node.inputs if v in graph.producers and v not in observed]
            waiting += [v for v in hidden if v is not None]
    return [n for n in graph.nodes if n.outputs[0] in nodes_of]


def _share(
    graph: Graph,
    finding: Finding,
    nodes: Sequence[Node],
    algorithms: Mapping[str, str],
    values: Arrays,
) -> float:
    """The largest error over the bound of direct summation around it, propagated through `nodes`,
    of which some are computed by fast algorithms, to the finding's value."""
    if len(nodes) == 1 and finding.bound_ratio is not None and finding.bound_ratio <= 1:
        return finding.bound_ratio
    value, actual = finding.value, values[finding.value]
    values = {v: a for v, a in values.items() if v != value}
    exact: dict[str, np.ndarray] = {}
    shifted: list[dict[str, np.ndarray]] = [{}, {}]
    for node in nodes:
        arrays = [_value_of(graph, v, exact, values) for v in node.inputs]
        types, outputs = graph.input_types(node), graph.output_types(node)
        fast = _is_fast(node, algorithms)
        reference = meaning(node, arrays, types, outputs, errors=fast)
        exact.update(zip(node.outputs, reference.outputs, strict=True))
        reach = np.zeros(())
        if fast:
            rounding = reference.roundings[0]
            if rounding is None:
                return np.inf
            algorithm = algorithms[node.name or node.outputs[0]]
            if algorithm == BFLOAT16_PRODUCTS:
                reach = rounding.bound + _factors_bound(node, arrays, reference.ev)
            elif algorithm == strassen.NAME:
                reach = quarters_maximum(node, arrays, rounding.bound)
            else:
                reach = pooled_maximum(rounding.bound, WINDOWS[algorithm])
        for sign, side in zip((1, -1), shifted, strict=True):
            if any(v in side for v in node.inputs):
                shifted_inputs = [
                    _value_of(graph, v, side, {**values, **exact}) for v in node.inputs
                ]
                results = meaning(node, shifted_inputs, types, outputs, errors=False).outputs
            elif fast:
                results = reference.outputs
            else:
                continue
            side.update(zip(node.outputs, (results[0] + sign * reach, *results[1:]), strict=True))
    if any(value not in side for side in shifted):
        return np.inf
    bound = np.max([np.abs(side[value] - exact[value]) for side in shifted], axis=0)
    error = np.abs(np.asarray(actual, np.float64) - exact[value])
    share = float((error / (bound + TINY)).max(initial=0.0))
    return share if np.isfinite(share) else np.inf


def _factors_bound(node: Node, arrays: Sequence[np.ndarray | None], ev: Evaluation) -> np.ndarray:
    """Bound of a product's error by rounding both factors: each by half a step of bfloat16, or
    entirely where it is rounded to 0."""
    sizes = [np.abs(np.asarray(a, np.float64)) for a in arrays[:2]]
    enlarged = [
        s + np.where(s < SMALLEST_FACTOR, s, (BFLOAT16.unit_roundoff + UNIT) * s) for s in sizes
    ]
    size, reach = (as_tuple(node.op.reference(ev, *pair))[0] for pair in (sizes, enlarged))
    return np.asarray(reach - size)


def _value_of(graph: Graph, value: str | None, first: Arrays, then: Arrays) -> np.ndarray | None:
    """A value by name, from `first`, the constants, or `then`."""
    if value is None:
        return None
    for source in (first, graph.constants, then):
        if value in source:
            return source[value]
    return None


def outputs_ahead(graph: Graph, inputs: Arrays, seed: int = 0) -> Ahead:
    """The samplers that `examine` needs for the outputs, drawn before these are known."""
    fixed = specialize(graph, bind_symbols(graph, inputs))
    return survey_ahead(fixed, inputs, fixed.outputs, seed)


def _outputs(
    graph: Graph,
    inputs: Arrays,
    actual: Arrays,
    seed: int,
    ahead: Callable[[], Ahead] | None,
    bf16_products: frozenset[str],
) -> tuple[tuple[Output, ...], list[str]]:
    """The outputs against the reference of the whole network, and their problems. bf16_products:
    products in bfloat16, by name."""
    computed = {v: np.asarray(a) for v, a in actual.items() if v in graph.producers}
    result = survey(
        graph,
        inputs,
        computed,
        seed=seed,
        measure_power=False,
        find_precision=bf16_products,
        ahead=ahead() if ahead else None,
    )
    outputs, problems = [], []
    for f in result.findings:
        size = root_mean_square(computed[f.value])
        units = f.plain.max_abs / f.sigma if f.sigma else 0.0
        kind, reason = f.kind, f.reason
        output = Output(
            f.value, str(graph.types[f.value]), kind, reason, f.plain.max_abs, size, f.sigma,
            units, f.statistic, f.ratio,
        )  # fmt: skip
        outputs.append(output)
        if kind in ACCEPTED:
            continue
        if kind is Kind.undecided and output.condition * UNIT > ILL_CONDITIONED:
            continue
        problems.append(f"output {f.value!r} is {kind}: {reason}")
    return tuple(outputs), problems


def _weakest(result: Survey, values: Arrays) -> float:
    """The smallest relative error, spread over a whole value, that is visible in every judged
    node."""
    seen = [p.smallest_visible for p in result.power]
    for f in result.findings:
        size = root_mean_square(values[f.value]) if f.sigma and f.kind in ACCEPTED else 0.0
        if size and not f.region:
            seen.append(f.sigma * st.SUSPICIOUS_T * st.group_limit(f.elements) / size)
    return float(max(seen, default=0.0))


def root_mean_square(array: np.ndarray) -> float:
    """Of all elements, in float64; 0 without any."""
    return st.root_mean_square(np.asarray(array, np.float64)) if array.size else 0.0
