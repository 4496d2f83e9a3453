"""Explains a fault inside a region: several nodes judged together, because they were fused.

Each node's hypotheses are propagated through the rest of the region, and some that need two nodes
are added: a negative scale folded through an activation, two neighbors in the other order. The
spread by rounding comes from Monte Carlo arithmetic under the hypothesis.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from verax.base.deadline import clock
from verax.base.errors import VeraxError
from verax.ir.graph import Node
from verax.ir.types import TensorType
from verax.judge.decide.local import ReferenceValues, conform, meaning
from verax.judge.explain.again import Again
from verax.judge.explain.coarse_noise import CoarseNoise
from verax.judge.explain.hypotheses.base import Hypothesis, Prior, Suspect
from verax.judge.explain.hypotheses.library import hypotheses
from verax.judge.explain.node import IMPOSSIBLE, MOST, predict, same_numbers
from verax.judge.explain.region_changes import RegionError, wires, wrong_constants
from verax.judge.explain.region_hypothesis import RegionHypothesis, Values
from verax.judge.explain.region_pairs import several_nodes
from verax.judge.explain.region_screen import Screen
from verax.numerics import statistics as st
from verax.numerics.error_model import TINY
from verax.ops.pointwise.elementwise import Elementwise
from verax.ops.quantized.dynamic_quantization import DynamicQuantizeGroups
from verax.records.verdict import Explanation

LONGEST = 128
"""Nodes of a region that are still searched one by one."""
WORK = 1 << 33
"""Products and elements that the search may compute, the usual hypotheses first."""
NEAREST = 6
"""Hypotheses that are held against a coarser arithmetic: the usual ones, and the nearest."""
FINER = 128
"""How many steps stand for one where the float model is wanted of integers of 16 bits."""


def search_region(
    nodes: Sequence[Node],
    arrays: Values,
    actual: np.ndarray,
    types: Mapping[str, TensorType],
    *,
    constants: Collection[str] = (),
    seed: int = 0,
    only_known: bool = False,
    noises: Iterable[CoarseNoise] = (),
) -> tuple[tuple[Explanation, ...], str]:
    """Explanations under which the last node's output is within rounding, best first, and what was
    not tried ("" where everything was).

    nodes: in order, each reading `arrays` or earlier outputs; arrays: the region's inputs by value
    name, in declared dtypes, and `constants`; actual: the last node's first output; types: of every
    value. only_known: hypotheses with no number that is fitted to the output. noises: coarser
    arithmetics of the whole region, in which the explanations are sought where float32 has none.
    None when nothing fits or when the region is too long. In long regions the rarer hypotheses are
    not tried (`WORK`).
    """
    if len(nodes) > LONGEST:
        return (), f"the nodes one by one, which is done for up to {LONGEST}"
    try:
        region = RegionSearch(nodes, arrays, actual, types, constants, seed)
    except VeraxError as error:
        return (), f"anything, as {error.cause}"
    explanations = tuple(region.explanations(only_known, tuple(noises)))
    return explanations, region.left


class _Near(NamedTuple):
    """A hypothesis that explains most of the error, how much it leaves, and the output under it."""

    left: float
    candidate: RegionHypothesis
    value: np.ndarray


class RegionSearch:
    """The reference values inside a region, and hypotheses evaluated against them."""

    def __init__(
        self,
        nodes: Sequence[Node],
        arrays: Values,
        actual: np.ndarray,
        types: Mapping[str, TensorType],
        constants: Collection[str],
        seed: int,
    ) -> None:
        self.constants = frozenset(constants)
        self.nodes, self.types, self.left = tuple(nodes), types, ""
        self.considered = 0
        self.actual = conform(np.asarray(actual), types[self.nodes[-1].outputs[0]].dtype)
        self.wide = self.actual.astype(np.float64)
        self.random = np.random.default_rng(seed)
        self.truth: dict[str, np.ndarray] = dict(arrays)
        self.meanings: list[ReferenceValues] = []
        self.again: list[Again] = []
        for node in self.nodes:
            read = self._read(node, self.truth)
            result = meaning(*read)
            self.meanings.append(result)
            self.again.append(Again(*read, result))
            self.truth.update(zip(node.outputs, result.outputs))
        costs = [self._cost(node, result) for node, result in zip(self.nodes, self.meanings)]
        self.costs = np.cumsum(costs[::-1])[::-1]
        self.last = self.nodes[-1].outputs[0]
        self.expected = self.truth[self.last]

    def _cost(self, node: Node, reference: ReferenceValues) -> float:
        """Estimated number of operations of a node."""
        sizes = [y.size for y in reference.outputs]
        read = [self.truth[v] for v in node.inputs if v is not None]
        if isinstance(node.op, Elementwise) or len(read) < 2:
            return float(sum(sizes) + sum(x.size for x in read))
        last = read[1].shape[-1:] or (1,)
        return float(sum(sizes) * max(1, read[1].size // max(1, min(last[0], sizes[0]))))

    def _read(
        self, node: Node, values: Values
    ) -> tuple[Node, list[Any], list[TensorType | None], tuple[TensorType, ...]]:
        """A node, its inputs among `values`, and the declared types of inputs and outputs."""
        inputs = [None if v is None else values[v] for v in node.inputs]
        declared = [None if v is None else self.types[v] for v in node.inputs]
        return node, inputs, declared, tuple(self.types[v] for v in node.outputs)

    def _evaluated(self, node: Node, values: Values) -> ReferenceValues:
        return meaning(*self._read(node, values), errors=False)

    def explanations(
        self, only_known: bool = False, noises: Sequence[CoarseNoise] = ()
    ) -> Iterator[Explanation]:
        """Yield the explanations that fit, best first."""
        if self.expected.shape != self.wide.shape or self.expected.dtype.kind != "f":
            return
        if not (np.isfinite(self.expected).all() and np.isfinite(self.wide).all()):
            return
        before = st.root_mean_square(np.nan_to_num(self.wide - self.expected))
        noise = self._noise()
        coarse_noise = self._noise(noises[0]) if noises else 0.0
        error = self.wide - self.expected
        is_large = st.NEAR_EXPLAINED * before > st.EXPLAINED_NOISE * noise
        screen = Screen(self.nodes, self.meanings, self.truth, error) if is_large else None
        fitting: list[tuple[RegionHypothesis, float, np.ndarray]] = []
        spent = 0.0
        same: dict[str, list[str]] = {}
        simple = sorted(self.hypotheses(), key=lambda candidate: candidate.prior)
        near: list[_Near] = []
        fitted = self._wrong_constants(
            lambda: bool(fitting or self._coarse_fits(near, noises, before)[1])
        )
        more = () if only_known else itertools.chain(self._wires(), fitted)
        if only_known:
            simple = [candidate for candidate in simple if not candidate.fitted]
        for candidate in itertools.chain(simple, more):
            self.considered += 1
            if screen is not None and not self._is_likely(candidate, screen):
                spent += self.costs[candidate.step] - self.behind(candidate.step)
                continue
            spent += self.costs[candidate.step]
            if spent > WORK or clock().is_up:
                self.left = "the rarer mistakes, for which there was no time"
                break
            try:
                with np.errstate(all="ignore"):
                    value = self.carried(candidate)
            except IMPOSSIBLE:
                continue
            if value is None or value.shape != self.wide.shape or not np.isfinite(value).all():
                continue
            left = st.root_mean_square(np.nan_to_num(self.wide - value))
            if left > max(st.NEAR_EXPLAINED * before, st.EXPLAINED_NOISE * noise, coarse_noise):
                continue
            alike = [r for r, _, v in fitting if _is_one(candidate, r) and same_numbers(value, v)]
            if alike:
                same.setdefault(alike[0].hypothesis, []).append(candidate.hypothesis)
                continue
            statistic = self._statistic(candidate, value)
            if statistic is not None:
                fitting.append((candidate, statistic, value))
            elif noises and left <= max(st.NEAR_EXPLAINED * before, coarse_noise):
                near.append(_Near(left, candidate, value))
        computed_in = ""
        if not fitting:
            computed_in, fitting = self._coarse_fits(near, noises, before)
        fewest = min((candidate.fitted for candidate, *_ in fitting), default=0)
        fitting = [one for one in fitting if one[0].fitted == fewest]
        fitting.sort(key=lambda one: (one[0].prior, one[1]))
        for candidate, statistic, _ in fitting[:MOST]:
            words = candidate.words + self._nearer(candidate)
            if candidate.hypothesis in same:
                words += f" (the same numbers here: {', '.join(same[candidate.hypothesis])})"
            if computed_in:
                words += f"; all else in {computed_in}"
            yield Explanation(candidate.hypothesis, words, dict(candidate.attributes), statistic)

    def _is_likely(self, candidate: RegionHypothesis, screen: Screen) -> bool:
        """Whether what a hypothesis changes at its node may make the error of the output."""
        changed = self.changed(candidate)
        return changed is not None and screen.passes(self.nodes[candidate.step], changed)

    def changed(self, candidate: RegionHypothesis) -> tuple[np.ndarray, ...] | None:
        """The results of the hypothesis's node, on the reference's values; None if impossible."""
        try:
            with np.errstate(all="ignore"):
                changed = candidate.value(dict(self.truth))
        except IMPOSSIBLE:
            return None
        return changed if changed is None or isinstance(changed, tuple) else (changed,)

    def behind(self, step: int) -> float:
        """Estimated number of operations of all nodes behind one."""
        return float(self.costs[step + 1]) if step + 1 < len(self.costs) else 0.0

    def _coarse_fits(
        self, near: Sequence[_Near], noises: Sequence[CoarseNoise], before: float
    ) -> tuple[str, list[tuple[RegionHypothesis, float, np.ndarray]]]:
        """The hypotheses that fit in the first of these arithmetics in which one does, and its
        name. before: size of the error; of many hypotheses one explains most of a few numbers by
        chance."""
        error = self.wide - self.expected
        count = np.unique(error[error != 0]).size
        limit = before * st.most_left(count, self.considered)
        if count < st.FEW_OUTPUTS:  # mistakes look alike in few outputs
            limit = min(limit, before * st.EXPLAINED_BEST)
        near = [one for one in near if one.left <= limit]
        nearest = sorted(near, key=lambda one: (one.candidate.prior, one.left))[:NEAREST]
        nearest += [one for one in sorted(near, key=lambda one: one.left)[:NEAREST]
                    if not any(one is n for n in nearest)]  # fmt: skip
        for noise in noises:
            tested = [(n.candidate, self._statistic(n.candidate, n.value, noise), n.value)
                      for n in nearest]  # fmt: skip
            fitting = [(c, statistic, v) for c, statistic, v in tested if statistic is not None]
            if fitting:
                return noise.name, fitting
        return "", []

    def carried(
        self, candidate: RegionHypothesis, noisy: bool = False, coarse: CoarseNoise | None = None
    ) -> np.ndarray | None:
        """The region's output under a hypothesis; noisy: with rounding noise at every node, and
        that of a coarser arithmetic."""
        values, touched = dict(self.truth), set(self.nodes[candidate.step].outputs)
        for i, node in enumerate(self.nodes):
            if i != candidate.step and not noisy and touched.isdisjoint(node.inputs):
                continue  # before the step, or on a branch beside it: as under the truth
            touched.update(node.outputs)
            read = values
            if coarse is not None and coarse.is_product(node):
                factors = [v for v in node.inputs[:2] if v is not None]
                read = {**values, **{v: coarse.factor(values[v], self.random) for v in factors}}
            if i == candidate.step:
                changed = candidate.value(read)
                if changed is None:
                    return None
                outputs: tuple[np.ndarray, ...]
                if isinstance(changed, tuple):
                    outputs = changed
                else:
                    outputs = (changed, *self.meanings[i].outputs[1:])
            else:
                outputs = self.again[i]([None if v is None else read[v] for v in node.inputs])
            for value, y, rounding in zip(node.outputs, outputs, self.meanings[i].roundings):
                own = candidate.sigma if i == candidate.step else None
                sigma = own if own is not None or rounding is None else rounding.sigma
                if noisy and sigma is not None and sigma.shape == y.shape:
                    y = y + sigma * self.random.standard_normal(y.shape)
                values[value] = y if coarse is None else coarse.result(y, self.random)
        return values[self.last]

    def _reference_run(self) -> RegionHypothesis:
        """The reference itself as a hypothesis without a change."""
        first = self.nodes[0]
        return RegionHypothesis(
            "", "", Prior.anything, 0, lambda v: self._evaluated(first, v).outputs[0]
        )

    def _spread(
        self, candidate: RegionHypothesis, value: np.ndarray, coarse: CoarseNoise | None = None
    ) -> np.ndarray:
        count = st.SAMPLES_MANY if value.size >= st.MANY_ELEMENTS else st.SAMPLES_FEW
        with np.errstate(all="ignore"):
            samples = [self.carried(candidate, True, coarse) for _ in range(count)]
            squares = np.mean([np.square(s - value) for s in samples if s is not None], axis=0)
        return st.sampled_sigma(np.nan_to_num(squares)) + TINY

    def _noise(self, coarse: CoarseNoise | None = None) -> float:
        return st.root_mean_square(self._spread(self._reference_run(), self.expected, coarse))

    def _statistic(
        self, candidate: RegionHypothesis, value: np.ndarray, coarse: CoarseNoise | None = None
    ) -> float | None:
        """T under a hypothesis, None when it does not explain the numbers."""
        sigma = self._spread(candidate, value, coarse)
        with np.errstate(all="ignore"):
            if not np.any(np.abs(value - self.expected) > st.DISTINCT * sigma):
                return None
            z = (st.standardised(self.wide - v, sigma) for v in (value, self.expected))
            after, before = (st.group_test(errors).statistic for errors in z)
        # Sigma is sampled, and few samples leave it uncertain.
        near = after <= st.SUSPICIOUS_T and after <= st.EXPLAINED * before
        return after if near else None

    def hypotheses(self) -> Iterator[RegionHypothesis]:
        """Yield every hypothesis: zeros, then on two neighbors, then on each node."""
        if not self.wide.any():
            last = len(self.nodes) - 1
            zeros = np.zeros(self.wide.shape)
            words = "the output is all 0, as if nothing had been computed"
            bare = "nothing computed"
            yield RegionHypothesis(bare, words, Prior.common, last, lambda values: zeros, bare=bare)
        yield from several_nodes(self.nodes, self.meanings, self.truth, self.types, self._evaluated)
        for i in range(len(self.nodes)):
            suspect = self._suspect(i)
            last = i == len(self.nodes) - 1
            for hypothesis in hypotheses(suspect):
                if last or not hypothesis.fitted:
                    yield self._on_node(i, suspect, hypothesis)

    def _wires(self) -> Iterator[RegionHypothesis]:
        """Yield hypotheses that an operand of a node is another value."""
        order = {v: i for i, n in enumerate(self.nodes) for v in n.outputs}
        for i, node in enumerate(self.nodes):
            excluded = set(self.constants) | set(node.outputs)
            for later in self.nodes[i:]:
                if not excluded.isdisjoint(set(later.inputs) - self.constants):
                    excluded.update(later.outputs)
            for hypothesis in wires(node, self.truth, self.types, order, excluded):
                yield self._on_node(i, self._suspect(i), hypothesis)

    def _wrong_constants(self, is_explained: Callable[[], bool]) -> Iterator[RegionHypothesis]:
        """Yield hypotheses that a constant has other numbers, fitted to the error; none where it is
        explained without."""
        if is_explained():
            return
        suspects = [self._suspect(i) for i in range(len(self.nodes))]

        def carried(i: int, hypothesis: Hypothesis) -> np.ndarray | None:
            try:
                return self.carried(self._on_node(i, suspects[i], hypothesis))
            except IMPOSSIBLE:
                return None

        sigma = self._spread(self._reference_run(), self.expected)
        last = RegionError(self.wide, self.expected, sigma)
        for i, hypothesis in wrong_constants(suspects, last, carried, self.random):
            yield self._on_node(i, suspects[i], hypothesis)

    def _on_node(self, i: int, suspect: Suspect, hypothesis: Hypothesis) -> RegionHypothesis:
        node, sigma = self.nodes[i], None
        if hypothesis.after is not None and hypothesis.after.widens:
            prediction = predict(suspect, hypothesis)
            rounding = None if prediction is None else prediction.rounding
            sigma = None if rounding is None else rounding.sigma
        return RegionHypothesis(
            f"{node.name or node.outputs[0]}: {hypothesis.name}",
            f"in {node.place}: {hypothesis.words}",
            hypothesis.prior,
            i,
            self._predicted(suspect, hypothesis),
            hypothesis.attributes,
            sigma=sigma,
            fitted=hypothesis.fitted,
            bare=hypothesis.name,
        )

    def _suspect(self, i: int) -> Suspect:
        """Node i as a suspect with its reference as output; the last one with the subject's
        output."""
        node, result = self.nodes[i], self.meanings[i]
        inputs = tuple(None if v is None else self.truth[v] for v in node.inputs)
        outputs = tuple(self.types[v] for v in node.outputs)
        with np.errstate(all="ignore"):
            actual = result.outputs[0].astype(outputs[0].dtype.numpy)
        actual = self.actual if i == len(self.nodes) - 1 else actual
        return Suspect(node, inputs, outputs, actual, result)

    def _predicted(
        self, suspect: Suspect, hypothesis: Hypothesis
    ) -> Callable[[Values], np.ndarray | tuple[np.ndarray, ...] | None]:
        def every_output(values: Values) -> tuple[np.ndarray, ...]:
            changed_node = dataclasses.replace(suspect.node, op=hypothesis.op or suspect.op)
            return self._evaluated(changed_node, values).outputs

        def value(values: Values) -> np.ndarray | None:
            inputs = tuple(None if v is None else values[v] for v in suspect.node.inputs)
            actual = dataclasses.replace(suspect, inputs=inputs)
            if hypothesis.op is None and hypothesis.inputs is None and values is not self.truth:
                fresh = self._evaluated(suspect.node, values)
                actual = dataclasses.replace(actual, meaning=fresh)
            prediction = predict(actual, hypothesis, errors=False)
            return None if prediction is None else prediction.value

        changes_operator = (
            hypothesis.op is not None and hypothesis.inputs is None and hypothesis.after is None
        )
        return every_output if changes_operator and len(suspect.outputs) > 1 else value

    def _nearer(self, candidate: RegionHypothesis) -> str:
        """Note on which quantized data are nearer to the floating-point model, "" where none
        are."""
        node = self.nodes[candidate.step]
        if not isinstance(node.op, DynamicQuantizeGroups):
            return ""
        q, scale = self.meanings[candidate.step].outputs
        x = np.asarray(self.truth[str(node.inputs[0])], np.float64)
        fine = (np.rint(x / scale * FINER).astype(q.dtype), scale / FINER)
        ideal = self.carried(dataclasses.replace(candidate, value=lambda values: fine))
        if ideal is None or ideal.shape != self.wide.shape:
            return ""
        errors = [st.root_mean_square(v - ideal) for v in (self.wide, self.expected)]
        if not np.isfinite(errors).all() or min(errors) > st.root_mean_square(ideal):
            return ""  # sums of finer integers that left their range
        actual, own = errors
        whose = "this reading" if actual < own else "what the file says"
        return (
            f"; a mistake by the word of the file, and {whose} is nearer to the floating-point "
            f"model: its root mean square error is {actual:.3g} here, {own:.3g} as the file says"
        )


def _is_one(first: RegionHypothesis, second: RegionHypothesis) -> bool:
    """True if two hypotheses with the same numbers are reported as one: on the same node, of the
    same name, or the second one on the whole group."""
    same_place = first.step == second.step or (bool(first.bare) and first.bare == second.bare)
    return same_place or second.is_whole
