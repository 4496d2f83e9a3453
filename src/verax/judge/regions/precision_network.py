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
from verax.ir.graph import Graph, Node, specialize
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
class SubjectProgram:
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
class ArithmeticMatch:
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
        """`finding` changed to `precision` if this match is confirmed, to undecided if only the
        size of the errors fits; else unchanged."""
        if not self.confirmed and self.statistic > st.ROUNDING_T:
            return finding
        precision = Precision(finding.value, finding.node, self.name, self.unit, self.confirmed)
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
            finding, kind=kind, reason=reason, test=test, statistic=statistic, precision=precision
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
    fixed = specialize(graph, bind_symbols(graph, inputs))
    values = {v for node in fixed.nodes for v in node.outputs}
    observed = tuple(v for v in fixed.outputs if v in outputs and v in values)
    region = Region(fixed.nodes, frozenset(values - set(observed)), observed)
    sampler = Sampler(fixed, region, {**fixed.constants, **inputs}, seed)
    actual = {v: np.asarray(outputs[v]).astype(np.float64) for v in observed}
    match = best_match(sampler, {v: g for v, g in actual.items() if g.dtype.kind == "f"})
    if match is None or match.statistic > st.ROUNDING_T:
        return None
    value = observed[-1]
    node = fixed.producers[value]
    return Precision(value, node.name or value, match.name, match.unit, match.confirmed)


def best_match(
    sampler: Sampler, actual: Values, names: frozenset[str] | None = None
) -> ArithmeticMatch | None:
    """The program whose runs are most like `actual` (float64 by observed value); None where no
    run's errors resemble its errors. names: of the products in bfloat16, if that is the only
    candidate."""
    try:
        return _ArithmeticSearch(sampler, actual, names).best()
    except VeraxError:
        return None  # the meaning of a coarser run cannot be evaluated (an index out of range)


class _ArithmeticSearch:
    """Runs of one region in coarser arithmetics."""

    def __init__(self, sampler: Sampler, actual: Values, names: frozenset[str] | None) -> None:
        self.sampler, self.names = sampler, names
        self.actual = {
            v: g
            for v, g in actual.items()
            if g.shape == sampler.expected[v].shape and np.isfinite(g - sampler.expected[v]).all()
        }
        self.errors = {v: g - sampler.expected[v] for v, g in self.actual.items()}
        self.partner = _norms_to_fold(sampler)

    def best(self) -> ArithmeticMatch | None:
        """One run of each program, then several of the likeliest."""
        if not self.actual or not any(e.any() for e in self.errors.values()):
            return None
        far = [_ratio(e, self.sampler.expected[v]) for v, e in self.errors.items()]
        if min(far) > st.FARTHEST_COARSE:
            return None
        likeness, program = self._likeliest(self._programs())
        if program is None:
            return None
        candidates: list[tuple[float, SubjectProgram | None]] = [(likeness, program)]
        if self.partner and st.LIKENESS <= likeness < st.LIKE_ENOUGH:
            folded = (replace(p, folded=True) for p in self._programs() if not p.last)
            candidates = [max(candidates[0], self._likeliest(folded), key=lambda t: t[0])]
        elif program and self.partner and (likeness >= st.LIKE_ENOUGH or self.names is not None):
            # what was folded may be all that parts them
            folded_too = replace(program, folded=not program.last)
            candidates.append((self._likeness(self.run(folded_too, 0.0)), folded_too))
            candidates.sort(key=lambda t: t[0], reverse=True)
        elements = sum(e.size for e in self.errors.values())
        matches = [
            match
            for likeness, program in candidates
            if program is not None and likeness >= st.least_likeness(elements)
            if (match := self._match(program)) is not None
        ]
        return next((m for m in matches if m.confirmed), matches[0] if matches else None)

    def _match(self, program: SubjectProgram) -> ArithmeticMatch | None:
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
        return ArithmeticMatch(program.name, statistic, left**0.5, program.unit * size)

    def _likeliest(self, programs: Iterable[SubjectProgram]) -> tuple[float, SubjectProgram | None]:
        """The program one of whose runs errs most like the subject; stops when one surely does."""
        best: tuple[float, SubjectProgram | None] = (0.0, None)
        for program in programs:
            likeness = self._likeness(self.run(program, 0.0))
            if likeness > best[0]:
                best = likeness, program
            if likeness >= st.LIKE_ENOUGH:
                break
        return best

    def _programs(self) -> Iterator[SubjectProgram]:
        """Yield the candidates, the usual ones first."""
        named = {a.name: a for a in ARITHMETICS}
        if self.names is not None:
            yield SubjectProgram("bf16 inputs", named["bf16 inputs"])
            return
        short_types = (("bf16", FORMATS["bfloat16"]), ("fp16", FORMATS["float16"]))
        for fused in (True, False):
            for short, fmt in short_types:
                name = f"{short} throughout"
                yield SubjectProgram(name, named[name], fmt, fused=fused)
        for name in IN_NETWORKS:
            yield SubjectProgram(name, named[name])
        for short, fmt in short_types:
            name = f"{short} output"
            yield SubjectProgram(name, named[name], fmt, last=True)

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

    def run(self, program: SubjectProgram, noise: float) -> Values:
        """Shown values as the program gives them, with `noise` times float32's rounding."""
        return self.sampler.run(partial(self._step, program, noise))

    def _step(
        self, program: SubjectProgram, noise: float, node: Node, arrays: Sequence[Any]
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
        return tuple(self._stored(program, node, v, y) for v, y in zip(node.outputs, noisy))

    def _stored(self, program: SubjectProgram, node: Node, value: str, y: np.ndarray) -> np.ndarray:
        """A value as the program stores it."""
        if program.store is None or y.dtype.kind != "f":
            return y
        is_observed = value in self.sampler.region.observed
        if program.last and not is_observed:
            return y
        readers = self.sampler.graph.consumers.get(value, ())
        if program.fused and not is_observed and len(readers) == 1:
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
            self.sampler.observed[v].astype(np.float64) for v in norm.inputs[1:] if v is not None
        )
        factor = scale / np.sqrt(variance + norm.op.epsilon)
        data, weights, bias = (*wide, None)[:3]
        before = 0.0 if bias is None else bias
        folded = weights * factor.reshape(-1, *(1,) * (weights.ndim - 1))
        return [data, folded, (before - mean) * factor + shift]


def _norms_to_fold(sampler: Sampler) -> dict[str, str]:
    """Output of each convolution that one BatchNorm with known numbers reads -> its output."""
    norm_of: dict[str, str] = {}
    for node in sampler.region.nodes:
        readers = sampler.graph.consumers.get(node.outputs[0], ())
        if not isinstance(node.op, Conv) or len(readers) != 1:
            continue
        norm = readers[0]
        has_constants = all(v in sampler.observed for v in norm.inputs[1:])
        hidden = node.outputs[0] in sampler.region.hidden
        if (
            isinstance(norm.op, BatchNormalization)
            and has_constants
            and hidden
            and len(norm.outputs) == 1
        ):
            norm_of[node.outputs[0]] = norm.outputs[0]
    return norm_of


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> float:
    size = st.root_mean_square(denominator)
    return st.root_mean_square(numerator) / size if size > 0 else 0.0
