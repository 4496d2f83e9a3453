"""An answer in a coarser arithmetic, judged from the network's inputs to its outputs.

Each node by itself may err as its arithmetic does, and the network may still make those errors too
large: whatever divides by a norm, takes a logarithm or compares with zero makes 1e-7 of a
neighbor's value out of an exact zero into 1. So where the arithmetic is coarser than float32's,
the outputs are held against what float32 rounding does there, and the node with the largest gain is
named.

A format coarser than float32 errs more than float32 in every network; only its errors by far beyond
one roundoff of the output's own size count, and only where a single node amplifies them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from verax.base.deadline import OutOfTime
from verax.base.errors import UsageError, VeraxError
from verax.ir.graph import Graph, Node
from verax.judge.decide import difference_of_squares
from verax.judge.decide.orders import fft_applies, fft_run, winograd_applies, winograd_runs
from verax.judge.decide.precision import (
    ARITHMETICS,
    AUTOCASTS,
    BEFORE_BIAS,
    IN_UNITS,
    PRODUCTS,
    Arithmetic,
    to_float64,
    with_factors,
)
from verax.judge.decide.recurrent_precision import RECURRENT
from verax.judge.decide.strassen import Variant, strassen_applies, strassen_run
from verax.judge.regions.adjoint import NoRule, spreads
from verax.judge.regions.budget import needs, why_too_large
from verax.judge.regions.sampler import Region, Sampler, Values
from verax.numerics import statistics as st
from verax.numerics import strassen
from verax.numerics.error_model import KAPPA, TINY, U
from verax.numerics.formats import FORMATS, round_to
from verax.numerics.winograd import NAMES
from verax.records.verdict import Finding, Kind, Loss, is_allowed

FFT = "FFT"
FAST = (strassen.NAME, *NAMES.values(), FFT)
"""Algorithms whose arithmetic is float32's."""
OWN = "arithmetic in {} itself"
"""What a declared 16-bit type computed in itself is called, by the type's name."""
EITHER = "TF32 or fp16 inputs"
WORDS = ("TF32", "bf16", "fp16", "int8", "Winograd", "Strassen", FFT, difference_of_squares.NAME)
"""What an error suggests for `allow`: beginnings of the names in `NAMED`."""
NAMED = (
    *FAST,
    *(a.name for a in ARITHMETICS),
    *(a.name + IN_UNITS for a in ARITHMETICS if a.factors),
    *(a.name + BEFORE_BIAS for a in ARITHMETICS if a.bias is not None),
    EITHER,
    *AUTOCASTS,
    *(r.name for r in RECURRENT),
    *(OWN.format(f) for f in FORMATS),
    difference_of_squares.NAME,
)
"""All arithmetics that a verdict of precision may name."""

Arrays = Mapping[str, np.ndarray]


def require_known(allow: Collection[str] | str) -> tuple[str, ...]:
    """The names in `allow`. Raises `UsageError` for one with which no arithmetic begins, and which
    so would allow nothing (`records.verdict.is_allowed`)."""
    names = (allow,) if isinstance(allow, str) else tuple(allow)
    for name in names:
        if not any(is_allowed(arithmetic, (name,)) for arithmetic in NAMED):
            raise UsageError(
                f"no arithmetic is called {name!r}, nor begins so",
                place="allow",
                next_step=f"name one of {', '.join(WORDS)}",
            )
    return names


def losses(
    graph: Graph,
    inputs: Arrays,
    outputs: Arrays,
    observed: Arrays,
    findings: Sequence[Finding],
    *,
    seed: int = 0,
    allow: Collection[str] = (),
) -> tuple[tuple[Loss, ...], str]:
    """Outputs whose end-to-end error is too large for the arithmetics in `findings`, and the reason
    why they were not judged ("" where they were).

    outputs: the subject's outputs; observed: its inner values, as far as it gives them.
    allow: prefixes of arithmetics whose losses are accepted. Deterministic for a seed.
    """
    formats = formats_of(findings)
    units = [unit_of(name) for name in formats]
    if not formats or any(u is None for u in units):
        return (), ""  # kernels of quantized networks: steps, which are judged by themselves
    region = region_of(graph, [v for v in graph.outputs if v in outputs])
    if region is None:
        return (), ""
    actual = {v: np.asarray(outputs[v], np.float64) for v in region.observed}
    arrays = {**graph.constants, **inputs}
    reason = why_too_large(needs(graph, region, {**arrays, **outputs}))
    if reason:
        return (), f"the outputs were not judged from start to end: {reason}"
    unit = max(u for u in units if u is not None)
    try:
        sampler = Sampler(graph, region, arrays, seed)
        ratios = ratios_to_rounding(sampler, actual, unit)
        large = {v: r for v, r in ratios.items() if r > st.LOST}
        if not large:
            return (), ""
        search = _GainSearch(
            sampler, observed, formats, {f.node for f in findings if _is_coarse(f)}
        )
        lost = [search.loss(v, r, actual[v]) for v, r in large.items()]
    except OutOfTime as error:
        return (), f"the outputs were not judged from start to end: {error}"
    except VeraxError as error:
        return (), f"the outputs could not be judged from start to end: {error.cause}"
    accepted = all(is_allowed(f, allow) for f in formats)
    lost = [x for x in lost if unit == 0 or x.gain >= st.AMPLIFIES]
    return tuple(replace(x, allowed=accepted) for x in lost), ""


def _is_coarse(finding: Finding) -> bool:
    return finding.kind is Kind.precision


def formats_of(findings: Sequence[Finding]) -> tuple[str, ...]:
    """Names of the arithmetics that explain findings, in order."""
    return tuple(dict.fromkeys(f.test for f in findings if _is_coarse(f)))


def unit_of(name: str) -> float | None:
    """Unit roundoff of an arithmetic by its name; 0 for algorithms in float32 and for declared
    types, whose rounding sigma has; None for one that is unknown."""
    if name in FAST or name in {OWN.format(f) for f in FORMATS}:
        return 0.0
    plain = name.removesuffix(IN_UNITS).removesuffix(BEFORE_BIAS)
    named = {a.name: a.unit for a in ARITHMETICS} | {r.name: r.unit for r in RECURRENT}
    named |= {name: named[f"{name.split()[0]} throughout"] for name in AUTOCASTS}
    return named.get("TF32 inputs" if plain == EITHER else plain)


def region_of(graph: Graph, outputs: Sequence[str]) -> Region | None:
    """All nodes that these outputs are computed from, as one region; None for no computed
    output."""
    targets = tuple(dict.fromkeys(v for v in outputs if v in graph.producers))
    needed, waiting = set(targets), list(targets)
    while waiting:
        for v in graph.producers[waiting.pop()].inputs:
            if v is not None and v in graph.producers and v not in needed:
                needed.add(v)
                waiting.append(v)
    nodes = tuple(n for n in graph.nodes if any(v in needed for v in n.outputs))
    produced = {v for n in nodes for v in n.outputs}
    return Region(nodes, frozenset(produced), targets) if targets else None


def ratios_to_rounding(
    sampler: Sampler, actual: Arrays, unit: float = 0.0, own: Arrays | None = None
) -> dict[str, float]:
    """By float output, the worst group's error over what rounding may do there (`statistics.LOST`).

    actual: float64 by name; unit: roundoff of a coarser format, of the output's own size. own: the
    measured errors of a baseline program there, which are allowed for as well.
    """
    floats = [v for v in sampler.region.observed if sampler.expected[v].dtype.kind == "f"]
    sigma = _sigma(sampler, floats, 1.0)
    ratios = {}
    for v in floats:
        expected = sampler.expected[v]
        if actual[v].shape != expected.shape:
            ratios[v] = np.inf
            continue
        extra = unit * st.root_mean_square(np.nan_to_num(expected, posinf=0.0, neginf=0.0))
        allowed = np.maximum(sigma[v], extra)
        if own is not None and v in own:
            allowed = np.maximum(allowed, st.rounding_sigma(np.square(own[v])))
        ratios[v] = ratio(actual[v], expected, allowed)
    jumping = [v for v in floats if ratios[v] > st.LOST and sampler.jump]
    if jumping:
        # A choice inside may fall otherwise without any number being far off: tip it too.
        far = _sigma(sampler, jumping, st.LOST)
        for v in jumping:
            if actual[v].shape == sampler.expected[v].shape:
                is_explained = ratio(actual[v], sampler.expected[v], far[v]) <= 2 * st.ROUNDING_T
                ratios[v] = st.LOST if is_explained else ratios[v]
    return ratios


def ratio(actual: np.ndarray, expected: np.ndarray, sigma: np.ndarray) -> float:
    """The worst group's error in units of `sigma`, at least of one rounding to float32. Infinite
    where the reference is finite and the subject is not; elements of which the reference is not
    finite do not count."""
    ordinary = np.isfinite(expected)
    if not np.isfinite(actual[ordinary]).all():
        return np.inf
    error = np.where(ordinary, actual - np.where(ordinary, expected, actual), 0.0)
    floor = KAPPA * U * np.abs(np.where(ordinary, expected, 0.0)) + TINY
    return st.ratio(st.standardised(error, np.maximum(np.nan_to_num(sigma), floor)))


def _sigma(sampler: Sampler, floats: Sequence[str], scale: float) -> Values:
    """Standard deviation of outputs under rounding `scale` times its size."""
    elements = sum(sampler.expected[v].size for v in floats)
    if scale == 1 and 0 < elements <= st.ADJOINT_ELEMENTS:
        try:
            return spreads(sampler.tape, floats, sampler.sigma)[0]
        except NoRule:
            pass
    count = st.SAMPLES_MANY if elements >= st.MANY_ELEMENTS else st.SAMPLES_FEW
    squares: dict[str, list[np.ndarray]] = {v: [] for v in floats}
    for _ in range(count):
        sample = sampler.sample(scale)
        for v in floats:
            if sample[v].shape == sampler.expected[v].shape:
                with np.errstate(all="ignore"):
                    squares[v].append(np.nan_to_num(sample[v] - sampler.expected[v]) ** 2)
    return {
        v: st.rounding_sigma(np.mean(s, axis=0)) if s else np.zeros(sampler.expected[v].shape)
        for v, s in squares.items()
    }


@dataclass(frozen=True)
class _Gain:
    """Amplification at a node: relative error of its input `source` (`before`), and of its result
    computed without any error of its own (`after`)."""

    node: Node
    before: float
    after: float
    source: str

    @property
    def gain(self) -> float:
        return self.after / max(self.before, U)


class _GainSearch:
    """Finds the node at which relative errors grow, along the subject's inner values or, where
    there are none, along a run in the detected arithmetics."""

    def __init__(
        self, sampler: Sampler, observed: Arrays, formats: Sequence[str], coarse: set[str]
    ) -> None:
        self.sampler, self.formats = sampler, tuple(formats)
        inside = {v: a for v, a in observed.items() if v in sampler.region.hidden}
        inner = [v for v in inside if v not in sampler.region.observed]
        self.observed = inside if inner else {}
        self.named = set(coarse)
        self.coarse: set[str] = set()
        self.errors: dict[str, float] = {}
        self.gains: dict[str, _Gain] = {}

    def loss(self, value: str, ratio: float, actual: np.ndarray) -> Loss:
        """The record of an output, with the node that amplifies and what it amplifies."""
        expected = self.sampler.expected[value]
        if actual.shape != expected.shape:
            return Loss(value, self.formats, ratio, np.inf)
        size = st.root_mean_square(expected)
        error = st.root_mean_square(actual - expected) / size if size else np.inf
        lost = Loss(value, self.formats, float(ratio), float(error))
        largest = None
        for formats in self._arithmetics():
            self._follow(formats)
            largest = self._largest(value, min(error, 1.0) / st.LOST)
            if largest is not None:
                break
        if largest is None:
            return lost
        source = self._source(largest)
        return replace(
            lost,
            amplifier=largest.node.name or largest.node.outputs[0],
            operator=largest.node.op.kind,
            gain=largest.gain,
            source=source.name or source.outputs[0] if source is not None else "",
            source_operator=source.op.kind if source is not None else "",
        )

    def _arithmetics(self) -> Iterator[tuple[str, ...]]:
        """Yield the arithmetics to imitate: as named, then with other tiles of Winograd's
        algorithm, which errors at the outputs do not distinguish."""
        yield self.formats
        tiles = {*NAMES.values()}
        if not self.observed and not tiles.isdisjoint(self.formats):
            remaining = tuple(f for f in self.formats if f not in tiles)
            yield from ((*remaining, name) for name in NAMES.values() if name not in self.formats)

    def _largest(self, value: str, min_error: float) -> _Gain | None:
        """The largest gain before output `value` whose error after it is at least `min_error`."""
        region = region_of(self.sampler.graph, [value])
        gains = [self.gains.get(n.outputs[0]) for n in (region.nodes if region is not None else ())]
        large = [g for g in gains if g is not None and g.after >= min_error]
        largest = max(large, key=lambda g: g.gain, default=None)
        return largest if largest is not None and largest.gain >= st.AMPLIFIES else None

    def _source(self, gain: _Gain) -> Node | None:
        """The nearest node before `gain`, along the largest errors, that used a coarser
        arithmetic."""
        value, producers = gain.source, self.sampler.graph.producers
        while value in producers:
            node = producers[value]
            if (node.name or node.outputs[0]) in self.coarse:
                return node
            before = [v for v in node.inputs if v is not None and self.errors.get(v, 0.0) > 0]
            if not before:
                return None
            value = max(before, key=lambda v: self.errors[v])
        return None

    def _follow(self, formats: Sequence[str]) -> None:
        """Evaluate the network on the disturbed values, and record every gain."""
        sampler = self.sampler
        disturbed: Values = {}
        self.errors, self.gains = {}, {}
        self.coarse = set(self.named) if self.observed else set()
        for node in sampler.region.nodes:
            exact = [self._exact(v) for v in node.inputs]
            arrays = [
                disturbed.get(v, x) if v is not None else None for v, x in zip(node.inputs, exact)
            ]
            with np.errstate(all="ignore"):
                results = sampler.evaluate(node, arrays).outputs
            self._note(node, results)
            own: Sequence[np.ndarray] = results
            if not self.observed:
                own = self._in_its_arithmetic(node, arrays, results, formats)
            for v, y in zip(node.outputs, own):
                seen = self.observed.get(v)
                if seen is not None and seen.shape == y.shape and y.dtype.kind == "f":
                    y = seen.astype(np.float64)
                disturbed[v] = y
                self.errors[v] = self._relative(v, y)

    def _exact(self, value: str | None) -> Any:
        if value is None:
            return None
        inner = self.sampler.inner
        return inner[value] if value in inner else self.sampler.observed[value]

    def _note(self, node: Node, results: Sequence[np.ndarray]) -> None:
        before = {v: self.errors[v] for v in node.inputs if v is not None and v in self.errors}
        if not before or not max(before.values()) > 0:
            return
        source = max(before, key=lambda v: before[v])
        after = max(self._relative(v, y) for v, y in zip(node.outputs, results))
        self.gains[node.outputs[0]] = _Gain(node, before[source], after, source)

    def _relative(self, value: str, disturbed: np.ndarray) -> float:
        """The worst group's error over the value's own size; 0 for what is no float."""
        exact = self.sampler.inner[value]
        if exact.dtype.kind != "f" or exact.shape != disturbed.shape or not exact.size:
            return 0.0
        with np.errstate(all="ignore"):
            error = np.nan_to_num(disturbed - exact, posinf=0.0, neginf=0.0)
            size = st.root_mean_square(np.nan_to_num(exact, posinf=0.0, neginf=0.0))
        if not error.any():
            return 0.0
        return st.ratio(error / size) if size > 0 else np.inf

    def _in_its_arithmetic(
        self,
        node: Node,
        arrays: Sequence[Any],
        results: Sequence[np.ndarray],
        formats: Sequence[str],
    ) -> Sequence[np.ndarray]:
        """The node's results in the first of the arithmetics that apply to it."""
        for name in formats:
            run = self._run(node, arrays, results[0], name)
            if run is not None and run.shape == results[0].shape:
                self.coarse.add(node.name or node.outputs[0])
                return (run.astype(np.float64), *results[1:])
        return results

    def _run(self, node: Node, arrays: Sequence[Any], y: np.ndarray, name: str) -> Any:
        named = {a.name: a for a in ARITHMETICS}
        arithmetic = named.get("TF32 inputs" if name == EITHER else name)
        if arithmetic is not None:
            return self._rounded(node, arrays, y, arithmetic)
        with np.errstate(all="ignore"):
            if name == strassen.NAME and strassen_applies(node, arrays):
                return strassen_run(node, arrays, np.zeros(y.shape), Variant())[0]
            if name == FFT and fft_applies(node, arrays):
                return fft_run(node, arrays)[0]
            for tile, winograd in NAMES.items():
                if name == winograd and winograd_applies(node, arrays):
                    return winograd_runs(node, arrays)[tile]
        return None

    def _rounded(
        self, node: Node, arrays: Sequence[Any], y: np.ndarray, arithmetic: Arithmetic
    ) -> np.ndarray | None:
        if y.dtype.kind != "f":
            return None
        if node.op.kind in PRODUCTS:
            wide = with_factors(node.op, [to_float64(a) for a in arrays], arithmetic, {})
            y = self.sampler.evaluate_wide(node, wide)[0]
        elif arithmetic.output is None:
            return None
        return y if arithmetic.output is None else round_to(y, arithmetic.output)
