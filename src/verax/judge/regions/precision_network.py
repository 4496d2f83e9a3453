"""Which coarser arithmetic a whole network, or a region of one, was computed in.

Only the shown values can be compared, and a coarse arithmetic is chaotic: a last bit that falls the
other way early moves everything after it by whole units of the coarse format. So the region is
computed several times in an arithmetic, with float32's noise on top, and what the subject gave has
to be one more such run: as near to their mean as they are to each other, and much nearer to them
than to the exact meaning.

A network seldom has one arithmetic throughout: attention stays in float32 beside linear layers in
TF32, autocast leaves norms alone. From the likeliest program on, node after node is computed in
another way where that brings the run nearer to what was given (`programs.Exceptional`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from verax.base.errors import VeraxError
from verax.ir.graph import Graph, specialize
from verax.judge.decide.coarse import on_grid
from verax.judge.decide.possible import may_be_device, stated_formats
from verax.judge.decide.precision import ARITHMETICS, AUTOCASTS, PRODUCTS
from verax.judge.decide.recurrent_precision import RECURRENT, TABLE
from verax.judge.regions.arithmetic_match import ArithmeticMatch
from verax.judge.regions.exceptional import Exceptional
from verax.judge.regions.product_assignment import assigned
from verax.judge.regions.programs import ProgramRunner, SubjectProgram
from verax.judge.regions.sampler import Region, Sampler, Values
from verax.numerics import statistics as st
from verax.numerics.error_model import TINY
from verax.numerics.formats import FORMATS, FloatFormat
from verax.ops.recurrent.recurrent import Recurrent
from verax.records.verdict import Precision
from verax.reference.evaluate import bind_symbols

IN_NETWORKS = (
    *("TF32 inputs", "TF32 inputs, truncated", "bf16 inputs", "fp16 inputs"),
    *("bf16 weights", "fp16 weights", "int8 weights per channel", "int8 weights per tensor"),
    *("int8 per channel", "int8 per tensor"),
)
"""Arithmetics of products that are tried on whole networks, everything else being float32."""
RUNS = 4
"""Runs in the most likely arithmetic, whose scatter is the yardstick."""
MATCHED, REFINED = 2, 4
"""Likeliest programs that are held against their own runs, and in which exceptions are sought."""
FEW_BITS = FloatFormat("four bits", 4, -126, 127)
"""Numbers like 0, 1 and 3 say nothing about the type that they were stored in."""
SWEEPS = 2
"""How often all nodes are looked at for exceptions."""


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
    if match is None or not (match.confirmed or match.statistic <= st.ROUNDING_T):
        return None
    value = observed[-1]
    node = fixed.producers[value]
    return Precision(value, node.name or value, match.name, match.unit, match.confirmed)


def best_match(
    sampler: Sampler,
    actual: Values,
    names: frozenset[str] | None = None,
    wrong: Collection[str] | None = None,
) -> ArithmeticMatch | None:
    """The program whose runs are most like `actual` (float64 by observed value); None where no
    run's errors resemble its errors. names: of the products in bfloat16, if that is the only
    candidate. wrong: the values whose errors are to be explained; the rest err as float32 does."""
    try:
        return _ArithmeticSearch(sampler, actual, names, wrong).best()
    except VeraxError:
        return None  # the meaning of a coarser run cannot be evaluated (an index out of range)


class _Likely(NamedTuple):
    """A program, the part of the error that a run of it leaves, and how much it errs like the
    subject, at best 1."""

    left: float
    likeness: float
    program: SubjectProgram

    def order(self) -> tuple[float, float]:
        """Those first that leave least of the error, then the likeliest."""
        return min(self.left, 1.0), -self.likeness


class _ArithmeticSearch:
    """Runs of one region in coarser arithmetics."""

    def __init__(
        self,
        sampler: Sampler,
        actual: Values,
        names: frozenset[str] | None,
        wrong: Collection[str] | None,
    ) -> None:
        self.sampler, self.names = sampler, names
        self.actual = {
            v: g
            for v, g in actual.items()
            if g.shape == sampler.expected[v].shape and np.isfinite(g - sampler.expected[v]).all()
        }
        self.errors = {v: g - sampler.expected[v] for v, g in self.actual.items()}
        self.wrong = [v for v, e in self.errors.items() if e.any() and (not wrong or v in wrong)]
        self.runner = ProgramRunner(sampler, names)
        self.attempted = 0

    def best(self) -> ArithmeticMatch | None:
        """One run of each program, then several of the likeliest."""
        if not self.actual or not any(e.any() for e in self.errors.values()):
            return None
        far = [_ratio(e, self.sampler.expected[v]) for v, e in self.errors.items()]
        if min(far) > st.FARTHEST_COARSE:
            return None
        likely = self._with_folded(self._likeliest(self._programs()))
        if not likely:
            return self._stated()
        threshold = st.least_likeness(self._elements)
        matches = [
            m
            for like in likely[:MATCHED]
            if like.likeness >= threshold and (m := self._match(like.program)) is not None
        ]
        confirmed = next((m for m in matches if m.confirmed), None)
        if confirmed is not None or self.names is not None:
            return confirmed or (matches[0] if matches else None)
        decided = self._by_product(likely)
        if decided is not None and decided.confirmed:
            return decided
        for like in likely[:REFINED]:
            refined = self._refined(like.program) if like.likeness >= st.LIKENESS else None
            match = self._match(refined) if refined is not None else None
            if match is not None and match.confirmed:
                return match
        if decided is not None:
            matches = sorted([decided, *matches], key=lambda m: m.left)
        return self._by_size() or self._stated() or (matches[0] if matches else None)

    def _by_product(self, likely: list[_Likely]) -> ArithmeticMatch | None:
        """The likeliest arithmetic of factors, each product decided by itself; None where there is
        nothing to decide."""
        matches: list[ArithmeticMatch] = []
        inner = sum(a.size for a in self.sampler.inner.values())
        max_runs = int(st.ASSIGNING_WORK / max(1, inner))
        factors = [
            like.program.with_exceptions({})
            for like in likely
            if like.program.store is None and like.likeness >= st.LIKENESS
        ]
        actual = {v: self.actual[v] for v in self.wrong}
        for program in list(dict.fromkeys(p.name for p in factors))[:MATCHED]:
            own = next(p for p in factors if p.name == program)
            assignment = assigned(self.runner, own, actual, max_runs)
            if assignment is None:
                continue
            self.attempted += assignment.runs
            match = self._match(assignment.program)
            if match is not None:
                matches.append(match)
            if match is not None and match.confirmed:
                break
        return min(matches, key=lambda m: (not m.confirmed, m.left), default=None)

    def _by_size(self) -> ArithmeticMatch | None:
        """The arithmetic whose errors are at least as large, where so few numbers are shown that
        no run could be recognized among all that assign it to some of the products: 16 bits where
        all that is shown is stored so, TF32 where a GPU may have computed it."""
        if self.sampler.quanta:
            return None  # a step that falls the other way is as large as any mistake
        if not self._are_few:
            return None
        for program in self._programs():
            if program.last or program.name not in (*AUTOCASTS, "TF32 inputs"):
                continue
            if program.store is None and not may_be_device():
                continue
            if program.store is not None and not self._is_stored_in(program.store.name):
                continue
            statistic = self._statistic(program)
            if statistic <= st.ROUNDING_T:
                return ArithmeticMatch(program.name, statistic, 1.0, program.unit, by_size=True)
        return None

    def _stated(self) -> ArithmeticMatch | None:
        """Of a subject that says which 16 bits it stores in: a program that does so and whose
        errors are at least as large. `by_size` where few numbers are shown, as in `_by_size`."""
        stated = stated_formats()
        for program in self._programs() if stated else ():
            if program.last or program.store is None or program.store.name not in stated:
                continue
            statistic = self._statistic(program)
            if statistic <= st.ROUNDING_T:
                by_size = self._are_few
                return ArithmeticMatch(program.name, statistic, 1.0, program.unit, by_size=by_size)
        return None

    @property
    def _are_few(self) -> bool:
        """Whether too few numbers are shown for a run to be recognized among all that give some of
        the products another arithmetic."""
        products = sum(n.op.kind in PRODUCTS for n in self.sampler.region.nodes)
        can_tell = st.most_left(self._elements, 1) >= st.CONFIRMED
        return not can_tell or self._elements < st.NUMBERS_PER_PRODUCT * products

    def _statistic(self, program: SubjectProgram) -> float:
        """T of the errors beside those of a program's runs."""
        runs = [self.runner.run(program, 1.0) for _ in range(RUNS)]
        statistic = 0.0
        for value, error in self.errors.items():
            expected = self.sampler.expected[value]
            squares = np.mean([(r[value] - expected) ** 2 for r in runs], axis=0)
            z = st.standardised(error, st.sampled_sigma(squares) + TINY)
            statistic = max(statistic, st.group_test(z).statistic)
        return statistic

    def _with_folded(self, likely: list[_Likely]) -> list[_Likely]:
        """The programs with those that fold BatchNorm into the convolution before it, where what
        was folded may be all that parts them."""
        if not self.runner.norm_of or not likely:
            return likely
        likeness, program = likely[0].likeness, likely[0].program
        folded: Iterable[SubjectProgram] = ()
        if st.LIKENESS <= likeness < st.LIKE_ENOUGH:
            folded = (replace(p, folded=True) for p in self._programs() if not p.last)
        elif likeness >= st.LIKE_ENOUGH or self.names is not None:
            folded = [replace(program, folded=not program.last)]
        return sorted([*likely, *self._likeliest(folded)], key=_Likely.order)

    @cached_property
    def _elements(self) -> int:
        """Numbers that tell arithmetics apart: repeated ones (rows of a constant input) and exact
        ones (zeros behind a Relu) say nothing new."""
        count = 0
        for value, error in self.errors.items():
            if error.size > st.MANY_NUMBERS:
                count += error.size
                continue
            wrong = error != 0
            count += np.unique(self.actual[value][wrong] + 1j * error[wrong]).size
        return count

    def _refined(self, program: SubjectProgram) -> SubjectProgram | None:
        """The program with the exceptions that bring its run nearest to what was given; None where
        no exception does. A larger region gets fewer attempts (`statistics.REFINING_WORK`)."""
        inner = sum(a.size for a in self.sampler.inner.values())
        attempts = min(st.MOST_ATTEMPTS, int(st.REFINING_WORK / max(1, inner)))
        best, left = program, self._left(self.runner.run(program, 0.0))
        for _ in range(SWEEPS):
            before = left
            for node in self.sampler.region.nodes:
                for option in self.runner.options(program, node):
                    if self.attempted >= attempts:
                        return best if best is not program else None
                    value = node.outputs[0]
                    is_taken = best.exceptions.get(value) is option
                    candidate = best.but(value, None if is_taken else option)
                    self.attempted += 1
                    own = self._left(self.runner.run(candidate, 0.0))
                    if own < st.NEARER * left:
                        best, left = candidate, own
            if left <= st.EXPLAINED_WELL or left > st.NEARER * before:
                break
        return best if best is not program else None

    def _left(self, run: Values) -> float:
        """Part of the error that a run leaves: the root of the mean square over the values.
        Infinite for a run that is not finite or not of the same shapes."""
        shares = []
        for value, error in self.errors.items():
            if run[value].shape != error.shape or not np.isfinite(run[value]).all():
                return math.inf
            if value in self.wrong:
                shares.append(_ratio(self.actual[value] - run[value], error) ** 2)
        return math.sqrt(sum(shares) / max(1, len(shares)))

    def _match(self, program: SubjectProgram) -> ArithmeticMatch | None:
        """How well several runs of a program fit; None where their errors are of another size."""
        exact = self.runner.run(program, 0.0)
        runs = [self.runner.run(program, 1.0) for _ in range(RUNS)]
        left, size = 0.0, 0.0
        wrong = {v: e for v, e in self.errors.items() if e.any()}
        for value, error in wrong.items():
            if value in self.wrong:
                middle = np.mean([r[value] - self.sampler.expected[value] for r in runs], axis=0)
                own = self.actual[value] - exact[value]
                nearest = np.fmin(_ratio(error - middle, error), _ratio(own, error))
                left += nearest**2 / len(self.wrong)
                size += _ratio(error, middle) / len(self.wrong)
        if not 1 / st.SAME_SIZE <= size <= st.SAME_SIZE:
            return None
        limit = min(st.CONFIRMED, st.most_left(self._elements, self.attempted))
        fmt, values = program.store, {v: self.actual[v] for v in wrong}
        statistic = self._beside(program, values, runs)
        # A value that is stored in 16 bits falls either way; that is in the scatter already.
        is_near = st.ROUNDING_T < statistic <= st.SUSPICIOUS_T and left**0.5 <= limit
        if is_near and fmt is None:
            statistic = self._calibrated(program, values, runs)
        return ArithmeticMatch(
            program.name,
            statistic,
            left**0.5,
            program.unit * size,
            limit,
            program.in_words(),
            is_stored=fmt is None
            or all(on_grid(a, fmt) or not on_grid(exact[v], fmt) for v, a in self.actual.items()),
            size_counts=fmt is None
            or program.autocast
            or program.last
            or any(on_grid(a, fmt) for a in self.actual.values()),
        )

    def _beside(self, program: SubjectProgram, values: Values, runs: Sequence[Values]) -> float:
        """T of values beside runs of a program, the worst of all values."""
        statistic = 0.0
        for value, array in values.items():
            expected = self.sampler.expected[value]
            apart = [r[value] - expected for r in runs]
            # The given run and the mean of n others differ by 1 + 1 / n of the variance.
            scatter = np.var(apart, axis=0, ddof=1) * (1 + 1 / len(runs))
            if program.store is not None:  # the last rounding may fall either way
                scatter = scatter + (program.unit * expected) ** 2
            distance = array - expected - np.mean(apart, axis=0)
            z = st.standardised(distance, st.sampled_sigma(scatter) + TINY)
            statistic = max(statistic, st.group_test(z).statistic / st.ROUNDING_T)
        return statistic

    def _calibrated(self, program: SubjectProgram, values: Values, runs: Sequence[Values]) -> float:
        """The same with more runs, in units of the farthest of them from the others: the worst of
        many values, by a scatter of few runs, exceeds 1 among the program's own."""
        more = [*runs, *(self.runner.run(program, 1.0) for _ in range(RUNS))]
        farthest = max(
            self._beside(program, {v: r[v] for v in values}, [o for o in more if o is not r])
            for r in more
        )
        return self._beside(program, values, more) / max(1.0, farthest)

    def _likeliest(self, programs: Iterable[SubjectProgram]) -> list[_Likely]:
        """Programs by one run of each, in `_Likely.order`, none twice that gives the same numbers.
        Stops when one surely is the subject's."""
        ranked: list[_Likely] = []
        for program in programs:
            run = self.runner.run(program, 0.0)
            like = _Likely(self._left(run), self._likeness(run), program)
            is_repeated = any(
                abs(like.likeness - candidate.likeness) < 1e-9 for candidate in ranked
            )
            if like.likeness > 0 and not is_repeated:
                ranked.append(like)
            if like.left <= st.EXPLAINED_BEST:
                break
        return sorted(ranked, key=_Likely.order)

    def _programs(self) -> Iterator[SubjectProgram]:
        """Yield the candidates, the usual ones first: where all that is shown has 16 bits, those
        that store so."""
        named = {a.name: a for a in ARITHMETICS}
        if self.names is not None:
            yield SubjectProgram("bf16 inputs", named["bf16 inputs"])
            return
        short_types = [("bf16", FORMATS["bfloat16"]), ("fp16", FORMATS["float16"])]
        fitting = [t for t in short_types if self._is_stored_in(t[1].name)]
        gates = {r.name: r for r in RECURRENT}
        recurs = any(isinstance(n.op, Recurrent) for n in self.sampler.region.nodes)
        half, tf32 = gates["fp16 gates"], gates["TF32 inputs of the gates"]
        short_types.sort(key=lambda t: t not in fitting)
        # Factors in TF32 give the same as fp16 that is stored nowhere else, and are likelier.
        last: list[SubjectProgram] = []
        stated = stated_formats()
        for short, fmt in short_types:
            if fmt.name in stated:
                yield from self._with_tail(short, fmt)
        for short, fmt in short_types:
            plain = named[f"{short} throughout"]
            first: list[SubjectProgram] = []
            for fused in (True, False):
                program = SubjectProgram(plain.name, plain, fmt, fused=fused, recurrent=half)
                unstored = dict.fromkeys(self._unstored_outputs(fmt), Exceptional.in_float32)
                (last if unstored else first).append(program.with_exceptions(unstored))
            yield from first
            listed = SubjectProgram(f"{short} autocast", plain, fmt, autocast=True, recurrent=half)
            yield listed
            if self.runner.with_bias:
                twice = dict.fromkeys(self.runner.with_bias, Exceptional.before_bias)
                yield listed.with_exceptions(twice)
        departures = (Exceptional.float32, Exceptional.as_given)
        of_attention = [dict.fromkeys(self.runner.between_values, d) for d in departures]
        of_attention.append(self.runner.of_unfused_attention)
        for name in IN_NETWORKS:
            is_tf32 = name.startswith("TF32")
            yield SubjectProgram(name, named[name], recurrent=tf32 if is_tf32 else gates[TABLE])
            if self.runner.between_values and is_tf32:
                for exceptions in of_attention:
                    yield SubjectProgram(name, named[name], recurrent=tf32, exceptions=exceptions)
            if recurs and is_tf32:
                yield SubjectProgram(name, named[name], recurrent=gates["TF32 gates"])
        for short, fmt in short_types:
            name = f"{short} output"
            yield SubjectProgram(name, named[name], fmt, last=True)
        for short, fmt in short_types:
            if fmt.name not in stated:
                yield from self._with_tail(short, fmt)
        yield from last

    def _with_tail(self, short: str, fmt: FloatFormat) -> Iterator[SubjectProgram]:
        """Yield the programs that store in a format all but the network's last nodes."""
        factors = next(a for a in ARITHMETICS if a.name == f"{short} inputs")
        name = f"{short}, float32 tail"
        unscaled = dict.fromkeys(self.runner.between_values, Exceptional.as_given)
        folded = bool(self.runner.norm_of)
        plain = SubjectProgram(name, factors, fmt, tail=True, folded=folded)
        yield plain.with_exceptions(unscaled)
        if unscaled:
            yield plain

    def _unstored_outputs(self, fmt: FloatFormat) -> list[str]:
        """Outputs of the network that do not have the bits of a format: a runtime that stores in it
        hands the last kernel's float32 over."""
        outputs = self.sampler.graph.outputs
        return [v for v, a in self.actual.items() if v in outputs and not on_grid(a, fmt)]

    def _is_stored_in(self, name: str) -> bool:
        """Whether all that is shown has the format's bits, and needs more than a few of them."""
        values = list(self.actual.values())
        fits = all(on_grid(a, FORMATS[name]) for a in values)
        return fits and not all(on_grid(a, FEW_BITS) for a in values)

    def _likeness(self, run: Values) -> float:
        """Correlation between the errors that were given and those of a run, at best 1; the mean
        over the shown values, weighted by their elements."""
        total, elements = 0.0, 0
        for value, error in self.errors.items():
            own = np.nan_to_num(run[value] - self.sampler.expected[value])
            if not error.any() and not own.any():
                continue
            norms = np.linalg.norm(error) * np.linalg.norm(own)
            total += error.size * float(np.vdot(error, own) / norms) if norms > 0 else 0.0
            elements += error.size
        return total / max(1, elements)


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> float:
    size = st.root_mean_square(denominator)
    return st.root_mean_square(numerator) / size if size > 0 else 0.0
