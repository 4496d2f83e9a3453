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
from verax.judge.decide.precision import ARITHMETICS, PRODUCTS, Arithmetic, to_float64, with_factors
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
    EITHER,
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
        if not any(is_allowed(known, (name,)) for known in NAMED):
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
    shown: Arrays,
    findings: Sequence[Finding],
    *,
    seed: int = 0,
    allow: Collection[str] = (),
) -> tuple[tuple[Loss, ...], str]:
    """Outputs whose error from start to end is too large for the arithmetics in `findings`, and
    why that could not be found out, "" where it could.

    outputs: what the subject gave as its answer; shown: its values inside, as far as it shows them.
    allow: beginnings of arithmetics whose losses are accepted. Deterministic for a seed.
    """
    formats = formats_of(findings)
    units = [unit_of(name) for name in formats]
    if not formats or any(u is None for u in units):
        return (), ""  # kernels of quantized networks: steps, which are judged by themselves
    whole = region_of(graph, [v for v in graph.outputs if v in outputs])
    if whole is None:
        return (), ""
    given = {v: np.asarray(outputs[v], np.float64) for v in whole.shown}
    known = {**graph.constants, **inputs}
    reason = why_too_large(needs(graph, whole, {**known, **outputs}))
    if reason:
        return (), f"the outputs were not judged from start to end: {reason}"
    unit = max(u for u in units if u is not None)
    try:
        sampler = Sampler(graph, whole, known, seed)
        ratios = ratios_to_rounding(sampler, given, unit)
        large = {v: r for v, r in ratios.items() if r > st.LOST}
        if not large:
            return (), ""
        search = _Search(sampler, shown, formats, {f.node for f in findings if _is_coarse(f)})
        found = [search.loss(v, r, given[v]) for v, r in large.items()]
    except OutOfTime as error:
        return (), f"the outputs were not judged from start to end: {error}"
    except VeraxError as error:
        return (), f"the outputs could not be judged from start to end: {error.cause}"
    accepted = all(is_allowed(f, allow) for f in formats)
    found = [x for x in found if unit == 0 or x.gain >= st.AMPLIFIES]
    return tuple(replace(x, allowed=accepted) for x in found), ""


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
    named = {a.name: a.unit for a in ARITHMETICS}
    return named.get("TF32 inputs" if name == EITHER else name)


def region_of(graph: Graph, outputs: Sequence[str]) -> Region | None:
    """All that these outputs are computed from, as one region; None for no computed output."""
    shown = tuple(dict.fromkeys(v for v in outputs if v in graph.producers))
    needed, waiting = set(shown), list(shown)
    while waiting:
        for v in graph.producers[waiting.pop()].inputs:
            if v is not None and v in graph.producers and v not in needed:
                needed.add(v)
                waiting.append(v)
    nodes = tuple(n for n in graph.nodes if any(v in needed for v in n.outputs))
    made = {v for n in nodes for v in n.outputs}
    return Region(nodes, frozenset(made), shown) if shown else None


def ratios_to_rounding(
    sampler: Sampler, given: Arrays, unit: float = 0.0, own: Arrays | None = None
) -> dict[str, float]:
    """By float output, the worst group's error over what rounding may do there (`statistics.LOST`).

    given: float64 by name; unit: roundoff of a coarser format, of the output's own size. own: the
    errors that an ordinary program was seen to make there, which are allowed for as well.
    """
    floats = [v for v in sampler.region.shown if sampler.expected[v].dtype.kind == "f"]
    sigma = _sigma(sampler, floats, 1.0)
    found = {}
    for v in floats:
        expected = sampler.expected[v]
        if given[v].shape != expected.shape:
            found[v] = np.inf
            continue
        extra = unit * st.root_mean_square(np.nan_to_num(expected, posinf=0.0, neginf=0.0))
        least = np.maximum(sigma[v], extra)
        if own is not None and v in own:
            least = np.maximum(least, st.rounding_sigma(np.square(own[v])))
        found[v] = ratio(given[v], expected, least)
    jumping = [v for v in floats if found[v] > st.LOST and sampler.jump]
    if jumping:
        # A choice inside may fall otherwise without any number being far off: tip it too.
        far = _sigma(sampler, jumping, st.LOST)
        for v in jumping:
            if given[v].shape == sampler.expected[v].shape:
                honest = ratio(given[v], sampler.expected[v], far[v]) <= 2 * st.ROUNDING_T
                found[v] = st.LOST if honest else found[v]
    return found


def ratio(given: np.ndarray, expected: np.ndarray, sigma: np.ndarray) -> float:
    """The worst group's error in units of `sigma`, at least of one rounding to float32. Infinite
    where the reference is finite and the subject is not; elements of which the reference is not
    finite do not count."""
    ordinary = np.isfinite(expected)
    if not np.isfinite(given[ordinary]).all():
        return np.inf
    error = np.where(ordinary, given - np.where(ordinary, expected, given), 0.0)
    least = KAPPA * U * np.abs(np.where(ordinary, expected, 0.0)) + TINY
    return st.ratio(st.standardised(error, np.maximum(np.nan_to_num(sigma), least)))


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
    """A node's result: relative error of what it reads (`before`, of `source`), and of what it
    makes of that without any error of its own (`after`)."""

    node: Node
    before: float
    after: float
    source: str

    @property
    def gain(self) -> float:
        return self.after / max(self.before, U)


class _Search:
    """Where relative errors grow, along what the subject showed or, where it showed nothing, along
    an own run in the arithmetics that were found."""

    def __init__(
        self, sampler: Sampler, shown: Arrays, formats: Sequence[str], coarse: set[str]
    ) -> None:
        self.sampler, self.formats = sampler, tuple(formats)
        inside = {v: a for v, a in shown.items() if v in sampler.region.hidden}
        others = [v for v in inside if v not in sampler.region.shown]
        self.shown = inside if others else {}
        self.named = set(coarse)
        self.coarse: set[str] = set()
        self.errors: dict[str, float] = {}
        self.gains: dict[str, _Gain] = {}

    def loss(self, value: str, ratio: float, given: np.ndarray) -> Loss:
        """The record of an output, with the node that amplifies and what it amplifies."""
        expected = self.sampler.expected[value]
        if given.shape != expected.shape:
            return Loss(value, self.formats, ratio, np.inf)
        size = st.root_mean_square(expected)
        error = st.root_mean_square(given - expected) / size if size else np.inf
        lost = Loss(value, self.formats, float(ratio), float(error))
        most = None
        for formats in self._ways():
            self._follow(formats)
            most = self._largest(value, min(error, 1.0) / st.LOST)
            if most is not None:
                break
        if most is None:
            return lost
        source = self._source(most)
        return replace(
            lost,
            amplifier=most.node.name or most.node.outputs[0],
            operator=most.node.op.kind,
            gain=most.gain,
            source=source.name or source.outputs[0] if source is not None else "",
            source_operator=source.op.kind if source is not None else "",
        )

    def _ways(self) -> Iterator[tuple[str, ...]]:
        """The arithmetics to imitate, where nothing is shown: as named, then with other tiles of
        Winograd's algorithm, which errors at the outputs do not tell apart."""
        yield self.formats
        tiles = {*NAMES.values()}
        if not self.shown and not tiles.isdisjoint(self.formats):
            rest = tuple(f for f in self.formats if f not in tiles)
            yield from ((*rest, name) for name in NAMES.values() if name not in self.formats)

    def _largest(self, value: str, least: float) -> _Gain | None:
        """The largest gain on the way to an output that leaves at least this relative error."""
        whole = region_of(self.sampler.graph, [value])
        gains = [self.gains.get(n.outputs[0]) for n in (whole.nodes if whole is not None else ())]
        large = [g for g in gains if g is not None and g.after >= least]
        most = max(large, key=lambda g: g.gain, default=None)
        return most if most is not None and most.gain >= st.AMPLIFIES else None

    def _source(self, gain: _Gain) -> Node | None:
        """The first node back from there, along the largest errors, in a coarser arithmetic."""
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
        """Go through the network on the moved values, and note every gain."""
        sampler = self.sampler
        moved: Values = {}
        self.errors, self.gains = {}, {}
        self.coarse = set(self.named) if self.shown else set()
        for node in sampler.region.nodes:
            exact = [self._exact(v) for v in node.inputs]
            arrays = [
                moved.get(v, x) if v is not None else None for v, x in zip(node.inputs, exact)
            ]
            with np.errstate(all="ignore"):
                results = sampler.evaluate(node, arrays).outputs
            self._note(node, results)
            own: Sequence[np.ndarray] = results
            if not self.shown:
                own = self._in_its_arithmetic(node, arrays, results, formats)
            for v, y in zip(node.outputs, own):
                seen = self.shown.get(v)
                if seen is not None and seen.shape == y.shape and y.dtype.kind == "f":
                    y = seen.astype(np.float64)
                moved[v] = y
                self.errors[v] = self._relative(v, y)

    def _exact(self, value: str | None) -> Any:
        if value is None:
            return None
        inner = self.sampler.inner
        return inner[value] if value in inner else self.sampler.shown[value]

    def _note(self, node: Node, results: Sequence[np.ndarray]) -> None:
        before = {v: self.errors[v] for v in node.inputs if v is not None and v in self.errors}
        if not before or not max(before.values()) > 0:
            return
        source = max(before, key=lambda v: before[v])
        after = max(self._relative(v, y) for v, y in zip(node.outputs, results))
        self.gains[node.outputs[0]] = _Gain(node, before[source], after, source)

    def _relative(self, value: str, moved: np.ndarray) -> float:
        """The worst group's error over the value's own size; 0 for what is no float."""
        exact = self.sampler.inner[value]
        if exact.dtype.kind != "f" or exact.shape != moved.shape or not exact.size:
            return 0.0
        with np.errstate(all="ignore"):
            error = np.nan_to_num(moved - exact, posinf=0.0, neginf=0.0)
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
            for tile, known in NAMES.items():
                if name == known and winograd_applies(node, arrays):
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
