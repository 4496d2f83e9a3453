"""Whether a GPU's matrix units explain an error inside a region: products of 8- or 16-bit factors.

Such factors lose nothing; the unit's sum does (`decide.unit_sums`). Where the region is one short
product, the units are simulated and every number has to be theirs. Else the products' errors become
what their units show, mean and noise, and the samples' scatter is the yardstick as in `region`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from verax.ir.graph import Graph, Node
from verax.judge.decide.criterion import Decision
from verax.judge.decide.local import finding
from verax.judge.decide.possible import may_be_device
from verax.judge.decide.precision import PRODUCTS, to_float64
from verax.judge.decide.unit_sums import (
    EXACT_FACTORS,
    FP8,
    UnitSum,
    factor_format,
    unit_error,
    unit_sums,
)
from verax.judge.regions.sampler import MOVES, Region, Sampler, Values
from verax.numerics import statistics as st
from verax.numerics.error_model import TINY, U
from verax.numerics.formats import FORMATS, round_to
from verax.numerics.matrix_units.routes import predicted
from verax.numerics.matrix_units.units import E4M3
from verax.ops.sums.linear import MatMul
from verax.records.verdict import Finding, Kind, Precision

SCALES = ("Mul", "Div", "DequantizeLinear")
"""What may stand between the codes of a factor and the product, beside casts and moves."""
MOST_WORK = 4_000_000
"""Most products that are simulated for one way to add them up."""


class _Factors(NamedTuple):
    """Formats of a product's two factors. is_declared: by their types, not by their numbers;
    is_bare: the factors are multiplied as they are in these formats, without a scale."""

    formats: tuple[str, str]
    is_declared: bool
    is_bare: bool


def unit_decision(
    sampler: Sampler, value: str, actual: np.ndarray, error: np.ndarray, sigma: np.ndarray
) -> Decision | None:
    """Decision `precision` where sums of matrix units explain an observed value; None where no GPU
    can have computed it, where no product of the region has such factors, or where they do not.

    sigma: of ordinary rounding, for the record.
    """
    if not may_be_device():
        return None
    products = {
        n.outputs[0]: factors
        for n in sampler.region.nodes
        if n.op.kind in PRODUCTS and (factors := _factors_of(sampler, n)) is not None
    }
    if not products:
        return None
    sizes = st.root_mean_square(sigma), st.root_mean_square(error)
    options = _options(products, actual)
    equal, reproduced = _by_bits(sampler, value, actual, products, options)
    if reproduced is not None:
        words = f"{equal:,} of {actual.size:,} numbers are predicted bit for bit"
        reason, is_all = f"{reproduced.route.arithmetic}: {words}", equal == actual.size
        if is_all:
            return Decision(Kind.precision, reason, reproduced.name, 0.0, "all", None, *sizes)
        # The size of the others says nothing where a unit of so few bits gives these.
        reason += "; the others are not, and nothing else explains them"
        return Decision(Kind.undecided, reason, reproduced.name, 0.0, "", None, *sizes)
    # Numbers that happen to be a format's do not say that a unit of 13 bits multiplied them.
    is_coarse = any(f in FP8 for factors in products.values() for f in factors.formats)
    if is_coarse and not all(factors.is_declared for factors in products.values()):
        return None
    for option in options:
        test = _test(sampler, value, error, products, option)
        if test is not None and test.statistic <= st.ROUNDING_T:
            reason = (
                f"the difference is {test.statistic:.3g} of the most that these "
                f"{len(sampler.region.nodes)} nodes show with {option.name}"
            )
            numbers = test.statistic, test.group, None, *sizes
            return Decision(Kind.precision, reason, option.name, *numbers)
    return None


def _options(products: Mapping[str, _Factors], actual: np.ndarray) -> tuple[UnitSum, ...]:
    """What may have added up the products: of the narrowest factors."""
    order = [factors.formats for factors in products.values()]
    formats = min(order, key=lambda pair: sum(map(EXACT_FACTORS.index, pair)))
    return unit_sums(formats, actual.astype(np.float64))


# ---------------------------------------------------------------------- which factors
def _factors_of(sampler: Sampler, node: Node) -> _Factors | None:
    sides = [_factor(sampler, v) for v in node.inputs[:2]]
    if any(side is None for side in sides):
        return None
    (left, by_left, bare_left), (right, by_right, bare_right) = (s for s in sides if s is not None)
    return _Factors((left, right), by_left and by_right, bare_left and bare_right)


def _factor(sampler: Sampler, value: str | None) -> tuple[str, bool, bool] | None:
    """Format of one factor, whether its type says so, and whether it is multiplied as it is."""
    graph, is_bare = sampler.graph, True
    start = value
    while value is not None:
        declared = str(graph.types[value].dtype)
        if declared in EXACT_FACTORS:
            return declared, True, is_bare
        node = graph.producers.get(value)
        if node is None or node.op.kind not in ("Cast", *SCALES, *MOVES):
            break
        if node.op.kind in SCALES:
            scales = [v for v in node.inputs[1:] if v is not None]
            if any(not _is_scale(sampler, v) for v in scales):
                break
            is_bare = False
        value = node.inputs[0]
    array = sampler.observed.get(start) if start is not None else None
    if array is None or start in sampler.region.hidden or array.dtype != np.float32:
        return None
    name = factor_format(array.astype(np.float64))
    return None if name is None else (name, False, True)


def _is_scale(sampler: Sampler, value: str) -> bool:
    """Whether a value has one number for each row."""
    dims = sampler.graph.types[value].dims
    return not dims or dims[-1] == 1


# ---------------------------------------------------------------------- whether they explain it
def _by_bits(
    sampler: Sampler,
    value: str,
    actual: np.ndarray,
    products: Mapping[str, _Factors],
    options: Sequence[UnitSum],
) -> tuple[int, UnitSum | None]:
    """How many numbers of `actual` the best unit gives, and that unit; 0 and None where none gives
    all, or in float32 nearly all of them, or where the region is more than one product of bare
    factors and what is exact around it."""
    none = 0, None
    remaining = [n for n in sampler.region.nodes if n.outputs[0] not in products]
    if len(products) != 1 or any(n.op.kind not in ("Cast", *MOVES) for n in remaining):
        return none
    (product,) = (n for n in sampler.region.nodes if n.outputs[0] in products)
    if not isinstance(product.op, MatMul) or not products[product.outputs[0]].is_bare:
        return none
    counts = [(0, -1)]
    for i, option in enumerate(options):
        run = _simulated(sampler, product, option)
        if run is not None:
            counts.append((int((run[value] == actual.astype(np.float64)).sum()), i))
    equal, best = max(counts)
    # In 16 bits any order of summation gives most of the numbers.
    needed = 1.0 if actual.dtype.itemsize < np.dtype(np.float32).itemsize else st.NEARLY_ALL_BITS
    return (equal, options[best]) if equal and equal >= needed * actual.size else none


def _simulated(sampler: Sampler, product: Node, option: UnitSum) -> Values | None:
    """Shown values with the product's bits as the unit gives them; None where that takes too long
    or the factors are no matrices."""
    is_possible = True

    def step(node: Node, arrays: Sequence[Any]) -> tuple[np.ndarray, ...]:
        nonlocal is_possible
        wide = [to_float64(a) for a in arrays]
        if node is not product:
            outputs = sampler.evaluate_wide(node, wide)
            return tuple(_as_declared(sampler, v, y) for v, y in zip(node.outputs, outputs))
        left, right = (np.asarray(w, np.float32) for w in wide)
        if min(left.ndim, right.ndim) < 2:
            is_possible = False
            return sampler.evaluate_wide(node, wide)
        (exact,) = sampler.evaluate_wide(node, wide)
        if exact.size * left.shape[-1] > MOST_WORK:
            is_possible = False
            return (exact,)
        return (predicted(option.route, left, right).astype(np.float64),)

    run = sampler.run(step)
    return run if is_possible else None


def _as_declared(sampler: Sampler, value: str, y: np.ndarray) -> np.ndarray:
    fmt = FORMATS.get(str(sampler.graph.types[value].dtype))
    return y if fmt is None or y.dtype.kind != "f" else round_to(y, fmt)


def _test(
    sampler: Sampler,
    value: str,
    error: np.ndarray,
    products: Mapping[str, _Factors],
    option: UnitSum,
) -> st.GroupTest | None:
    """T of the errors against those that the unit shows, about their mean."""
    moments: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def run(noise: float) -> np.ndarray:
        def step(node: Node, arrays: Sequence[Any]) -> tuple[np.ndarray, ...]:
            outputs = sampler.evaluate(node, arrays).outputs
            noisy = [sampler.noise(node, v, y, noise) for v, y in zip(node.outputs, outputs)]
            own = node.outputs[0]
            if own not in products:
                return tuple(noisy)
            if own not in moments:
                wide = [to_float64(a) for a in arrays[:2]]
                ev = sampler.wide_evaluation(node, wide)
                moments[own] = unit_error(node, ev, wide, option.route)
            mean, spread = moments[own]
            drawn = sampler.random.standard_normal(noisy[0].shape)
            return (noisy[0] + mean + noise * spread * drawn, *noisy[1:])

        return sampler.run(step)[value]

    middle = run(0.0)
    distances = [run(1.0) - middle for _ in range(st.SAMPLES_FEW)]
    if any(d.shape != error.shape for d in distances):
        return None
    squares = np.mean([d * d for d in distances], axis=0)
    left = error - (middle - sampler.expected[value])
    return st.group_test(st.standardised(left, st.sampled_sigma(squares) + TINY))


def single_product(
    graph: Graph,
    region: Region,
    observed: Mapping[str, np.ndarray],
    findings: list[Finding],
    seed: int,
) -> list[Finding]:
    """`findings` on a region whose last node was judged by itself, a product of FP8 numbers that
    are cast before it: `precision` where sums of matrix units explain its error.

    The casts are exact, and the product knows nothing of the types before them.
    """
    node = region.nodes[-1]
    is_open = any(f.kind in (Kind.mistake, Kind.undecided) for f in findings)
    if not is_open or len(findings) != 1 or node.op.kind not in PRODUCTS or not may_be_device():
        return findings
    if not any(str(graph.types[v].dtype) in FP8 for n in region.nodes for v in n.inputs if v):
        return findings
    sampler, (value,) = Sampler(graph, region, observed, seed), region.observed
    actual, expected = observed[value], sampler.expected[value]
    if actual.shape != expected.shape or not np.isfinite(actual.astype(np.float64)).all():
        return findings
    error = actual.astype(np.float64) - expected
    decision = unit_decision(sampler, value, actual, error, sampler.sigma[value])
    if decision is None:
        return findings
    named = finding(node, value, decision, actual, expected, region.names)
    return [replace(named, precision=_record(node, value, decision.test))]


def _record(node: Node, value: str, name: str) -> Precision:
    unit = 2.0**-E4M3.kept_bits if name.startswith("fp8") else U
    return Precision(value, node.name or value, name, unit, True)
