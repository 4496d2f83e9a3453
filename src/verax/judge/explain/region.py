"""Explains a fault inside a region: several nodes judged together, because they were fused.

Each node's hypotheses are propagated through the rest of the region, and some that need two nodes
are added: a negative scale folded through an activation, two neighbors in the other order. The
spread by rounding comes from Monte Carlo arithmetic under the hypothesis.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np

from verax.base.deadline import clock
from verax.base.errors import VeraxError
from verax.ir.graph import Node
from verax.ir.types import TensorType
from verax.judge.decide.local import ReferenceValues, conform, meaning
from verax.judge.decide.precision import PRODUCTS, Arithmetic, to_float64, with_factors
from verax.judge.explain.attention_scores import scores_of
from verax.judge.explain.hypotheses.base import Hypothesis, Prior, Suspect
from verax.judge.explain.hypotheses.library import hypotheses
from verax.judge.explain.hypotheses.written_attention import written_attention
from verax.judge.explain.node import IMPOSSIBLE, MOST, predict, same_numbers
from verax.judge.explain.region_changes import RegionError, wires, wrong_constants
from verax.judge.explain.region_hypothesis import RegionHypothesis, Values
from verax.judge.explain.region_screen import Screen
from verax.numerics import statistics as st
from verax.numerics.error_model import TINY, Rounding
from verax.ops.pointwise.arithmetic import Div, Mul
from verax.ops.pointwise.elementwise import Elementwise
from verax.ops.quantized.dynamic_quantization import DynamicQuantizeGroups
from verax.ops.sums.normalization import BatchNormalization
from verax.records.verdict import Explanation

LONGEST = 128
"""Nodes of a region that are still searched one by one."""
WORK = 1 << 33
"""Products and elements that the search may compute, the usual hypotheses first."""
ACTIVATIONS = ("Relu", "LeakyRelu", "PRelu", "Clip")
"""Activations through which scales are folded."""
UNARY = (
    *ACTIVATIONS,
    "Sigmoid",
    "Tanh",
    "HardSwish",
    "MaxPool",
    "AveragePool",
    "BatchNormalization",
)
"""Operators on one tensor whose order with a neighbor is easily exchanged."""
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
    factors: Arithmetic | None = None,
) -> tuple[tuple[Explanation, ...], str]:
    """Explanations under which the last node's output is within rounding, best first, and what was
    not tried ("" where everything was).

    nodes: in order, each reading `arrays` or earlier outputs; arrays: the region's inputs by value
    name, in declared dtypes, and `constants`; actual: the last node's first output; types: of every
    value. only_known: hypotheses with no number that is fitted to the output. factors: in
    which products are computed, where that is not float32. None when nothing
    fits or when the region is too long. In long regions the rarer hypotheses are not tried
    (`WORK`).
    """
    if len(nodes) > LONGEST:
        return (), f"the nodes one by one, which is done for up to {LONGEST}"
    try:
        region = _RegionSearch(nodes, arrays, actual, types, constants, seed, factors)
    except VeraxError as error:
        return (), f"anything, as {error.cause}"
    explanations = tuple(region.explanations(only_known))
    return explanations, region.left


class _RegionSearch:
    """The reference values inside a region, and hypotheses evaluated against them."""

    def __init__(
        self,
        nodes: Sequence[Node],
        arrays: Values,
        actual: np.ndarray,
        types: Mapping[str, TensorType],
        constants: Collection[str],
        seed: int,
        factors: Arithmetic | None = None,
    ) -> None:
        self.factors = factors
        self.constants = frozenset(constants)
        self.nodes, self.types, self.left = tuple(nodes), types, ""
        self.actual = conform(np.asarray(actual), types[self.nodes[-1].outputs[0]].dtype)
        self.wide = self.actual.astype(np.float64)
        self.random = np.random.default_rng(seed)
        self.truth: dict[str, np.ndarray] = dict(arrays)
        self.meanings: list[ReferenceValues] = []
        for node in self.nodes:
            result = self._evaluated(node, self.truth, errors=True)
            self.meanings.append(result)
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

    def _evaluated(self, node: Node, values: Values, *, errors: bool = False) -> ReferenceValues:
        inputs: list[np.ndarray | None]
        inputs = [None if v is None else values[v] for v in node.inputs]
        if self.factors is not None and node.op.kind in PRODUCTS:
            inputs = with_factors(node.op, [to_float64(x) for x in inputs], self.factors, {})
        declared = [None if v is None else self.types[v] for v in node.inputs]
        outputs = tuple(self.types[v] for v in node.outputs)
        return meaning(node, inputs, declared, outputs, errors=errors)

    def explanations(self, only_known: bool = False) -> Iterator[Explanation]:
        """Yield the explanations that fit, best first."""
        if self.expected.shape != self.wide.shape or self.expected.dtype.kind != "f":
            return
        if not (np.isfinite(self.expected).all() and np.isfinite(self.wide).all()):
            return
        before = st.root_mean_square(np.nan_to_num(self.wide - self.expected))
        noise = self._noise()
        error = self.wide - self.expected
        is_large = st.NEAR_EXPLAINED * before > st.EXPLAINED_NOISE * noise
        screen = Screen(self.nodes, self.meanings, self.truth, error) if is_large else None
        fitting: list[tuple[RegionHypothesis, float, np.ndarray]] = []
        spent = 0.0
        same: dict[str, list[str]] = {}
        simple = sorted(self.hypotheses(), key=lambda candidate: candidate.prior)
        fitted = self._wrong_constants(lambda: bool(fitting))
        more = () if only_known else itertools.chain(self._wires(), fitted)
        if only_known:
            simple = [candidate for candidate in simple if not candidate.fitted]
        for candidate in itertools.chain(simple, more):
            if screen is not None and not self._is_likely(candidate, screen):
                spent += self.costs[candidate.step] - self._behind(candidate.step)
                continue
            spent += self.costs[candidate.step]
            if spent > WORK or clock().is_up:
                self.left = "the rarer mistakes, for which there was no time"
                break
            try:
                with np.errstate(all="ignore"):
                    value = self._carried(candidate)
            except IMPOSSIBLE:
                continue
            if value is None or value.shape != self.wide.shape or not np.isfinite(value).all():
                continue
            left = st.root_mean_square(np.nan_to_num(self.wide - value))
            if left > max(st.NEAR_EXPLAINED * before, st.EXPLAINED_NOISE * noise):
                continue
            alike = [r for r, _, v in fitting if _is_one(candidate, r) and same_numbers(value, v)]
            if alike:
                same.setdefault(alike[0].hypothesis, []).append(candidate.hypothesis)
                continue
            statistic = self._statistic(candidate, value)
            if statistic is not None:
                fitting.append((candidate, statistic, value))
        fewest = min((candidate.fitted for candidate, *_ in fitting), default=0)
        fitting = [one for one in fitting if one[0].fitted == fewest]
        fitting.sort(key=lambda one: (one[0].prior, one[1]))
        for candidate, statistic, _ in fitting[:MOST]:
            words = candidate.words + self._nearer(candidate)
            if candidate.hypothesis in same:
                words += f" (the same numbers here: {', '.join(same[candidate.hypothesis])})"
            yield Explanation(candidate.hypothesis, words, dict(candidate.attributes), statistic)

    def _is_likely(self, candidate: RegionHypothesis, screen: Screen) -> bool:
        """Whether what a hypothesis changes at its node may make the error of the output."""
        try:
            with np.errstate(all="ignore"):
                changed = candidate.value(dict(self.truth))
        except IMPOSSIBLE:
            return False
        if changed is None:
            return False
        outputs = changed if isinstance(changed, tuple) else (changed,)
        return screen.passes(self.nodes[candidate.step], outputs)

    def _behind(self, step: int) -> float:
        """Estimated number of operations of all nodes behind one."""
        return float(self.costs[step + 1]) if step + 1 < len(self.costs) else 0.0

    def _carried(self, candidate: RegionHypothesis, noisy: bool = False) -> np.ndarray | None:
        """The region's output under a hypothesis; noisy: with rounding noise at every node."""
        values, touched = dict(self.truth), set(self.nodes[candidate.step].outputs)
        for i, node in enumerate(self.nodes):
            if i != candidate.step and not noisy and touched.isdisjoint(node.inputs):
                continue  # before the step, or on a branch beside it: as under the truth
            touched.update(node.outputs)
            if i == candidate.step:
                changed = candidate.value(values)
                if changed is None:
                    return None
                outputs: tuple[np.ndarray, ...]
                if isinstance(changed, tuple):
                    outputs = changed
                else:
                    outputs = (changed, *self.meanings[i].outputs[1:])
            else:
                outputs = self._evaluated(node, values).outputs
            for value, y, rounding in zip(node.outputs, outputs, self.meanings[i].roundings):
                own = candidate.sigma if i == candidate.step else None
                sigma = own if own is not None or rounding is None else rounding.sigma
                if noisy and sigma is not None and sigma.shape == y.shape:
                    y = y + sigma * self.random.standard_normal(y.shape)
                values[value] = y
        return values[self.last]

    def _reference_run(self) -> RegionHypothesis:
        """The reference itself as a hypothesis without a change."""
        first = self.nodes[0]
        return RegionHypothesis(
            "", "", Prior.anything, 0, lambda v: self._evaluated(first, v).outputs[0]
        )

    def _spread(self, candidate: RegionHypothesis, value: np.ndarray) -> np.ndarray:
        count = st.SAMPLES_MANY if value.size >= st.MANY_ELEMENTS else st.SAMPLES_FEW
        with np.errstate(all="ignore"):
            samples = [self._carried(candidate, noisy=True) for _ in range(count)]
            squares = np.mean([np.square(s - value) for s in samples if s is not None], axis=0)
        sigma = st.sampled_sigma(np.nan_to_num(squares)) + TINY
        if self.factors is None:
            return sigma
        # How a kernel scales its factors before they are rounded is not known.
        return np.hypot(sigma, st.SCALED_FACTORS * self.factors.unit * st.root_mean_square(value))

    def _noise(self) -> float:
        return st.root_mean_square(self._spread(self._reference_run(), self.expected))

    def _statistic(self, candidate: RegionHypothesis, value: np.ndarray) -> float | None:
        """T under a hypothesis, None when it does not explain the numbers."""
        sigma = self._spread(candidate, value)
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
        for scores in scores_of(self.nodes, self.truth):
            rounding = self.meanings[scores.product].roundings[0]
            yield from written_attention(
                self.nodes,
                scores,
                self.truth,
                lambda node, values: self._evaluated(node, values).outputs[0],
                None if rounding is None else rounding.sigma,
            )
        for i in range(len(self.nodes) - 1):
            yield from self._folded(i)
            yield from self._exchanged(i)
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
                return self._carried(self._on_node(i, suspects[i], hypothesis))
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
        ideal = self._carried(dataclasses.replace(candidate, value=lambda values: fine))
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

    def _folded(self, i: int) -> Iterator[RegionHypothesis]:
        """act(s x) computed as s act(x), which differs where s is negative."""
        scaling, activation = self.nodes[i], self.nodes[i + 1]
        if activation.op.kind not in ACTIVATIONS or activation.inputs[0] != scaling.outputs[0]:
            return
        negative = self._negative_scale(scaling)
        if negative is None or not negative.any():
            return
        channels = [int(c) for c in np.flatnonzero(negative.any(axis=_but_channel(negative.ndim)))]

        def value(values: Values) -> np.ndarray:
            inner = values[scaling.outputs[0]]
            negated = dict(values)
            negated[scaling.outputs[0]] = np.where(negative, -inner, inner)
            y = self._evaluated(activation, negated).outputs[0]
            return np.where(negative, -y, y)

        yield RegionHypothesis(
            "negative scale folded through the activation",
            f"the scale of {scaling.place} was moved behind {activation.place}, which does not hold"
            f" where it is negative (channels {', '.join(map(str, channels[:6]))})",
            Prior.usual,
            i + 1,
            value,
        )

    def _negative_scale(self, node: Node) -> np.ndarray | None:
        """Mask of elements that the node multiplies by a negative number, or None."""
        y = self.truth[node.outputs[0]]
        if isinstance(node.op, BatchNormalization):
            scale = self.truth[str(node.inputs[1])].reshape(1, -1, *(1,) * (y.ndim - 2))
        elif isinstance(node.op, Mul | Div):
            scale = self.truth[str(node.inputs[1])]
            if scale.size == y.size:
                return None
        else:
            return None
        return np.broadcast_to(scale < 0, y.shape)

    def _exchanged(self, i: int) -> Iterator[RegionHypothesis]:
        """Two neighbors in the other order."""
        first, second = self.nodes[i], self.nodes[i + 1]
        follows = second.inputs[0] == first.outputs[0] and second.op.kind in UNARY
        sources = range(len(first.inputs) if first.op.kind in ("Add", "Sub", "Mul") else 1)
        if not follows or not (first.op.kind in UNARY or len(sources) > 1):
            return
        for j in sources:
            source = first.inputs[j]

            def value(values: Values, source: str | None = source, j: int = j) -> np.ndarray:
                return self._in_other_order(first, second, source, j, values).outputs[0]

            try:
                rounding = self._in_other_order(first, second, source, j, self.truth).roundings[0]
            except IMPOSSIBLE:
                continue
            operand = f", on operand {j}" if len(sources) > 1 else ""
            yield RegionHypothesis(
                f"order exchanged{operand}",
                f"{second.place} was computed before {first.place}{operand}",
                Prior.common,
                i + 1,
                value,
                sigma=_together(rounding, self.meanings[i + 1].roundings[0]),
            )

    def _in_other_order(
        self, first: Node, second: Node, source: str | None, j: int, values: Values
    ) -> ReferenceValues:
        """`first` with its operand j, the value `source`, replaced by `second` of it."""
        early = dataclasses.replace(second, inputs=(source, *second.inputs[1:]))
        exchanged = self._evaluated(early, values).outputs[0]
        arrays = [exchanged if k == j else None if v is None else values[v]
                  for k, v in enumerate(first.inputs)]  # fmt: skip
        declared = [None if v is None else self.types[v] for v in first.inputs]
        return meaning(first, arrays, declared, tuple(self.types[v] for v in first.outputs))


def _is_one(first: RegionHypothesis, second: RegionHypothesis) -> bool:
    """True if two hypotheses with the same numbers are reported as one: on the same node, of the
    same name, or the second one on the whole group."""
    same_place = first.step == second.step or (bool(first.bare) and first.bare == second.bare)
    return same_place or second.is_whole


def _together(a: Rounding | None, b: Rounding | None) -> np.ndarray | None:
    """Sigma of two roundings one after the other."""
    sigmas = [r.sigma for r in (a, b) if r is not None]
    if not sigmas or any(s.shape != sigmas[0].shape for s in sigmas):
        return sigmas[0] if sigmas else None
    return np.sqrt(sum((np.square(s) for s in sigmas), np.zeros(sigmas[0].shape)))


def _but_channel(rank: int) -> tuple[int, ...]:
    return tuple(a for a in range(rank) if a != 1)
