"""Which coarser arithmetic a whole network, or a region of one, was computed in.

Only the shown values can be compared, and a coarse arithmetic is chaotic: a last bit that falls the
other way early moves everything after it by whole units of the coarse format. So the region is
computed several times in an arithmetic, with float32's noise on top, and what the subject gave has
to be one more such run: as near to their mean as they are to each other, and much nearer to them
than to the exact meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from verax.base.errors import VeraxError
from verax.ir.graph import Graph, Node, specialise
from verax.judge.decide.precision import ARITHMETICS, PRODUCTS, Arithmetic, to_float64, with_factors
from verax.judge.regions.sampler import Region, Sampler, Values
from verax.numerics import statistics as st
from verax.numerics.error_model import TINY
from verax.numerics.formats import FORMATS, FloatFormat, round_to
from verax.ops.pointwise.elementwise import Elementwise
from verax.ops.sums.normalization import BatchNormalization
from verax.ops.windows.convolution import Conv
from verax.records.verdict import Finding, Kind, Precision
from verax.reference.evaluate import bind_symbols

IN_NETWORKS = (
    *("TF32 inputs", "TF32 inputs, truncated", "bf16 inputs", "fp16 inputs"),
    *("bf16 weights", "fp16 weights", "int8 weights per channel", "int8 weights per tensor"),
    *("int8 per channel", "int8 per tensor"),
)
"""Arithmetics of products that are tried on whole networks, everything else being float32."""
RUNS = 4
"""Runs in the most likely arithmetic, whose scatter is the yardstick."""


@dataclass(frozen=True)
class Program:
    """How a subject may have computed a network.

    factors: the arithmetic of its products. store: the format of every value that is kept in
    memory (None: float32). last: only the shown values are stored in it. fused: a value that only
    an elementwise operator reads stays in float32. folded: BatchNorm was folded into the
    convolution before it, and the folded weights were rounded.
    """

    name: str
    factors: Arithmetic
    store: FloatFormat | None = None
    last: bool = False
    fused: bool = False
    folded: bool = False

    @property
    def unit(self) -> float:
        """Unit roundoff of the coarsest step."""
        return self.factors.unit


@dataclass(frozen=True)
class Match:
    """The program that fits best; statistic: at most 1 when what was given is one of its runs;
    left: part of the error that it leaves; unit: the unit roundoff that the errors have."""

    name: str
    statistic: float
    left: float
    unit: float

    @property
    def confirmed(self) -> bool:
        """Whether recomputing in that arithmetic gave the subject's numbers."""
        return self.statistic <= st.ROUNDING_T and self.left <= st.CONFIRMED

    def explain(self, finding: Finding) -> Finding:
        """The finding, no mistake if this was confirmed, and at most undecided if only the size of
        the errors fits."""
        if not self.confirmed and self.statistic > st.ROUNDING_T:
            return finding
        how = Precision(finding.value, finding.node, self.name, self.unit, self.confirmed)
        if self.confirmed:
            reason = (
                f"computing these nodes with {self.name}, which is coarser than float32, gives the "
                f"same numbers: it explains all but {self.left:.1g} of the error, and two such "
                "runs differ by as much"
            )
            kind, test = Kind.precision, self.name
        else:
            reason = (
                f"the errors have the size that {self.name} would give, but computing the nodes so "
                f"does not give the same numbers; {finding.reason}"
            )
            kind, test = Kind.undecided, finding.test
        statistic = self.statistic if self.confirmed else finding.statistic
        return replace(
            finding, kind=kind, reason=reason, test=test, statistic=statistic, precision=how
        )


def network_precision(
    graph: Graph,
    inputs: Mapping[str, np.ndarray],
    outputs: Mapping[str, np.ndarray],
    *,
    seed: int = 0,
) -> Precision | None:
    """The arithmetic of a subject that shows nothing but `outputs`; None when none fits.

    inputs: in their declared types. Raises `VeraxError` when the meaning cannot be evaluated.
    """
    fixed = specialise(graph, bind_symbols(graph, inputs))
    values = {v for node in fixed.nodes for v in node.outputs}
    shown = tuple(v for v in fixed.outputs if v in outputs and v in values)
    region = Region(fixed.nodes, frozenset(values - set(shown)), shown)
    sampler = Sampler(fixed, region, {**fixed.constants, **inputs}, seed)
    given = {v: np.asarray(outputs[v]).astype(np.float64) for v in shown}
    match = best_match(sampler, {v: g for v, g in given.items() if g.dtype.kind == "f"})
    if match is None or match.statistic > st.ROUNDING_T:
        return None
    value = shown[-1]
    node = fixed.producers[value]
    return Precision(value, node.name or value, match.name, match.unit, match.confirmed)


def best_match(
    sampler: Sampler, given: Values, names: frozenset[str] | None = None
) -> Match | None:
    """The program whose runs are most like `given` (float64 by shown value); None when no run
    has anything of its errors. names: of the products in bfloat16, where no other program is in
    question."""
    try:
        return _Search(sampler, given, names).best()
    except VeraxError:
        return None  # the meaning of a coarser run cannot be evaluated (an index out of range)


class _Search:
    """Runs of one region in coarser arithmetics."""

    def __init__(self, sampler: Sampler, given: Values, names: frozenset[str] | None) -> None:
        self.sampler, self.names = sampler, names
        self.given = {
            v: g
            for v, g in given.items()
            if g.shape == sampler.expected[v].shape and np.isfinite(g - sampler.expected[v]).all()
        }
        self.errors = {v: g - sampler.expected[v] for v, g in self.given.items()}
        self.partner = _norms_to_fold(sampler)

    def best(self) -> Match | None:
        """One run of each program, then several of the likeliest."""
        if not self.given or not any(e.any() for e in self.errors.values()):
            return None
        far = [_ratio(e, self.sampler.expected[v]) for v, e in self.errors.items()]
        if min(far) > st.FARTHEST_COARSE:
            return None
        likeness, program = self._likeliest(self._programs())
        if program is None:
            return None
        tried: list[tuple[float, Program | None]] = [(likeness, program)]
        if self.partner and st.LIKENESS <= likeness < st.LIKE_ENOUGH:
            folded = (replace(p, folded=True) for p in self._programs() if not p.last)
            tried = [max(tried[0], self._likeliest(folded), key=lambda t: t[0])]
        elif program and self.partner and (likeness >= st.LIKE_ENOUGH or self.names is not None):
            # what was folded may be all that parts them
            folded_too = replace(program, folded=not program.last)
            tried.append((self._likeness(self.run(folded_too, 0.0)), folded_too))
            tried.sort(key=lambda t: t[0], reverse=True)
        elements = sum(e.size for e in self.errors.values())
        found = [
            match
            for likeness, program in tried
            if program is not None and likeness >= st.least_likeness(elements)
            if (match := self._match(program)) is not None
        ]
        return next((m for m in found if m.confirmed), found[0] if found else None)

    def _match(self, program: Program) -> Match | None:
        """How well several runs of a program fit; None where their errors are of another size."""
        runs = [self.run(program, 1.0) for _ in range(RUNS)]
        statistic, left, size = 0.0, 0.0, 0.0
        for value, error in self.errors.items():
            apart = [r[value] - self.sampler.expected[value] for r in runs]
            middle = np.mean(apart, axis=0)
            # The given run and the mean of RUNS others differ by 1 + 1 / RUNS of the variance.
            scatter = np.var(apart, axis=0, ddof=1) * (1 + 1 / RUNS)
            if program.store is not None:  # the last rounding may fall either way
                scatter = scatter + (program.unit * self.sampler.expected[value]) ** 2
            z = st.standardised(error - middle, st.sampled_sigma(scatter) + TINY)
            statistic = max(statistic, st.group_test(z).statistic / st.ROUNDING_T)
            left += _ratio(error - middle, error) ** 2 / len(self.errors)
            size += _ratio(error, middle) / len(self.errors)
        if not 1 / st.SAME_SIZE <= size <= st.SAME_SIZE:
            return None
        return Match(program.name, statistic, left**0.5, program.unit * size)

    def _likeliest(self, programs: Iterable[Program]) -> tuple[float, Program | None]:
        """The program one of whose runs errs most like the subject; stops when one surely does."""
        best: tuple[float, Program | None] = (0.0, None)
        for program in programs:
            likeness = self._likeness(self.run(program, 0.0))
            if likeness > best[0]:
                best = likeness, program
            if likeness >= st.LIKE_ENOUGH:
                break
        return best

    def _programs(self) -> Iterator[Program]:
        """What is tried, the usual ones first."""
        named = {a.name: a for a in ARITHMETICS}
        if self.names is not None:
            yield Program("bf16 inputs", named["bf16 inputs"])
            return
        halves = (("bf16", FORMATS["bfloat16"]), ("fp16", FORMATS["float16"]))
        for fused in (True, False):
            for short, fmt in halves:
                name = f"{short} throughout"
                yield Program(name, named[name], fmt, fused=fused)
        for name in IN_NETWORKS:
            yield Program(name, named[name])
        for short, fmt in halves:
            name = f"{short} output"
            yield Program(name, named[name], fmt, last=True)

    def _likeness(self, run: Values) -> float:
        """Correlation between the errors that were given and those of a run, at best 1; the mean
        over the shown values, weighted by their elements."""
        total, elements = 0.0, 0
        for value, error in self.errors.items():
            own = np.nan_to_num(run[value] - self.sampler.expected[value])
            norms = np.linalg.norm(error) * np.linalg.norm(own)
            total += error.size * float(np.vdot(error, own) / norms) if norms > 0 else 0.0
            elements += error.size
        return total / max(1, elements)

    def run(self, program: Program, noise: float) -> Values:
        """Shown values as the program gives them, with `noise` times float32's rounding."""
        return self.sampler.run(partial(self._step, program, noise))

    def _step(
        self, program: Program, noise: float, node: Node, arrays: Sequence[Any]
    ) -> tuple[np.ndarray, ...]:
        wide = [to_float64(a) for a in arrays]
        if program.folded and node.outputs[0] in self.partner.values():
            return (wide[0],)
        if node.op.kind in PRODUCTS:
            if program.folded and node.outputs[0] in self.partner:
                wide = self._fold(node, wide)
                bare = node.inputs if len(node.inputs) == 3 else (*node.inputs, "folded bias")
                node = replace(node, inputs=tuple(bare))
            if self.names is None or (node.name or node.outputs[0]) in self.names:
                wide = with_factors(node.op, wide, program.factors, {})
        outputs = self.sampler.evaluate_wide(node, wide)
        noisy = [self.sampler.noise(node, v, y, noise) for v, y in zip(node.outputs, outputs)]
        return tuple(self._kept(program, node, v, y) for v, y in zip(node.outputs, noisy))

    def _kept(self, program: Program, node: Node, value: str, y: np.ndarray) -> np.ndarray:
        """A value as it lies in memory."""
        if program.store is None or y.dtype.kind != "f":
            return y
        shown = value in self.sampler.region.shown
        if program.last and not shown:
            return y
        readers = self.sampler.graph.consumers.get(value, ())
        if program.fused and not shown and len(readers) == 1:
            joins = node.op.kind in PRODUCTS or isinstance(node.op, Elementwise)
            if joins and isinstance(readers[0].op, Elementwise):
                return y
        if program.folded and value in self.partner:
            return y
        return round_to(y, program.store)

    def _fold(self, node: Node, wide: list[Any]) -> list[Any]:
        """A convolution's inputs with the BatchNorm after it folded in."""
        (norm,) = self.sampler.graph.consumers[node.outputs[0]]
        assert isinstance(norm.op, BatchNormalization)
        scale, shift, mean, variance = (
            self.sampler.shown[v].astype(np.float64) for v in norm.inputs[1:] if v is not None
        )
        factor = scale / np.sqrt(variance + norm.op.epsilon)
        data, weights, bias = (*wide, None)[:3]
        before = 0.0 if bias is None else bias
        folded = weights * factor.reshape(-1, *(1,) * (weights.ndim - 1))
        return [data, folded, (before - mean) * factor + shift]


def _norms_to_fold(sampler: Sampler) -> dict[str, str]:
    """Output of each convolution that one BatchNorm with known numbers reads -> its output."""
    found: dict[str, str] = {}
    for node in sampler.region.nodes:
        readers = sampler.graph.consumers.get(node.outputs[0], ())
        if not isinstance(node.op, Conv) or len(readers) != 1:
            continue
        norm = readers[0]
        known = all(v in sampler.shown for v in norm.inputs[1:])
        hidden = node.outputs[0] in sampler.region.hidden
        if isinstance(norm.op, BatchNormalization) and known and hidden and len(norm.outputs) == 1:
            found[node.outputs[0]] = norm.outputs[0]
    return found


def _ratio(part: np.ndarray, whole: np.ndarray) -> float:
    size = st.root_mean_square(whole)
    return st.root_mean_square(part) / size if size > 0 else 0.0
