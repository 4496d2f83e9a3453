"""Faults of the harness: the network is right, and was asked or read wrongly.

When a subject is wrong from its first values on, or in every output, the cause is more often the
harness than an operator: an image in NHWC, BGR or another range, inputs or outputs in another
order, probabilities against logits, BatchNorm left in training mode. Each is tried as a rival
meaning: it is a cause when what the subject gave is within rounding under it. Where the subject can
be run again it is given the input that would come out right, and a cause whose cure fails is none.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from verax.ir.cut import cut
from verax.ir.graph import Graph, same_bits, specialize
from verax.judge.align.permutations import arrangements
from verax.judge.decide.local import conform
from verax.judge.explain.node import IMPOSSIBLE
from verax.judge.harness.graph_variants import in_training_mode, rebuilt
from verax.judge.harness.imagelike import is_image
from verax.judge.harness.readings import (
    SCALINGS,
    Move,
    Reading,
    apply,
    channel_axes,
    invert,
    readings,
    steps_of,
)
from verax.judge.regions.budget import require_room_for_meaning
from verax.judge.regions.network import fits, survey
from verax.numerics import statistics as st
from verax.ops.pointwise.identity import Identity
from verax.ops.pointwise.transcendental import Sigmoid
from verax.ops.sums.softmax import LogSoftmax, Softmax
from verax.records.verdict import Explanation, Kind
from verax.reference.evaluate import bind_symbols, evaluate

Arrays = Mapping[str, np.ndarray]
Rerun = Callable[[Arrays], Arrays]
FAILURES = (*IMPOSSIBLE, MemoryError)
"""Errors of a hypothesis that cannot be evaluated or needs too much memory: it explains nothing."""
MAX_INPUTS = 6
"""Inputs among which exchanges are tried."""


@dataclass(frozen=True)
class _FaultHypothesis:
    """One fault: the graph, inputs and answers under which everything would be right.

    undo: inputs on which the subject would be right. alike: the same fault told in another way,
    tried where this one fails: a network whose first step is the scaling is judged as a region, one
    that is given the scaled input node by node, which knows more about correlated errors.
    """

    name: str
    words: str
    graph: Graph
    inputs: Arrays
    outputs: Arrays
    undo: Arrays | None = None
    alike: _FaultHypothesis | None = None


def harness_causes(
    graph: Graph,
    inputs: Arrays,
    outputs: Arrays,
    rerun: Rerun | None = None,
    *,
    seed: int = 0,
) -> tuple[Explanation, ...]:
    """Faults of the harness under which `outputs` are within rounding, likeliest first.

    outputs: what the subject gave, by the network's names, inner values welcome. rerun: runs the
    subject on other inputs, to put what was found to the test. Empty when what comes first after
    the inputs is right, or nothing fits: then the network is to blame.
    """
    fixed = specialize(graph, bind_symbols(graph, inputs))
    shown_outputs = {
        v: conform(np.asarray(a), fixed.types[v].dtype)
        for v, a in outputs.items()
        if v in fixed.producers
    }
    causes: list[Explanation] = []
    with contextlib.suppress(*FAILURES):  # the network itself may be too much to evaluate
        require_room_for_meaning(fixed)
        judge = _Judge(fixed, inputs, shown_outputs, seed)
        causes += judge.fitting(judge.output_hypotheses(), rerun)
        if judge.wrong_at_first():
            causes += judge.fitting(judge.input_hypotheses(), rerun)
            causes += [] if causes else judge.fitting(judge.combined_hypotheses(), rerun)
    return tuple(e for e in causes if not e.refuted)


class _Judge:
    """The values that come first after the inputs, and rival meanings of them."""

    def __init__(self, graph: Graph, inputs: Arrays, outputs: Arrays, seed: int) -> None:
        self.graph, self.inputs, self.outputs, self.seed = graph, dict(inputs), outputs, seed
        fitting = {v: a for v, a in outputs.items() if fits(graph.types[v], a)}
        self.first = _first_outputs(graph, fitting)
        self.first_graph = cut(graph, graph.inputs, self.first) if self.first else None
        self.statistics: dict[str, float] = {}
        ends = [v for v in graph.outputs if v in outputs]
        self.output_graph = cut(graph, graph.inputs, ends) if ends else None

    def fitting(
        self, hypotheses: Iterator[_FaultHypothesis], rerun: Rerun | None
    ) -> list[Explanation]:
        """The rivals that explain the answers, as far as they can be drawn up at all."""
        explanations = []
        with contextlib.suppress(*FAILURES):
            for hypothesis in hypotheses:
                if self.explains(hypothesis):
                    explanations.append(self.tested(hypothesis, rerun))
        return explanations

    def wrong_at_first(self) -> bool:
        """Whether a value that depends on the inputs directly is a mistake."""
        first_outputs = {v: self.outputs[v] for v in self.first}
        if self.first_graph is None or not _finite(first_outputs):
            return False
        return self._statistic(self.first_graph, self.inputs, first_outputs, coarse=False) is None

    def explains(self, hypothesis: _FaultHypothesis) -> bool:
        """Whether the answers are within rounding under the rival meaning."""
        try:
            if not self._is_near(hypothesis):
                return False
            statistic = self._statistic(hypothesis.graph, hypothesis.inputs, hypothesis.outputs)
        except FAILURES:
            return False
        if statistic is None:
            return hypothesis.alike is not None and self.explains(hypothesis.alike)
        self.statistics[hypothesis.words] = statistic
        return True

    def tested(self, hypothesis: _FaultHypothesis, rerun: Rerun | None) -> Explanation:
        """The explanation; refuted when the input that should come out right does not."""
        statistic = self.statistics[hypothesis.words]
        explanation = Explanation(hypothesis.name, hypothesis.words, {}, statistic)
        if rerun is None or hypothesis.undo is None or self.output_graph is None:
            return explanation
        try:
            answers = rerun(hypothesis.undo)
            outputs = {v: np.asarray(answers[v]) for v in self.output_graph.outputs if v in answers}
            right = outputs and self._statistic(self.output_graph, self.inputs, outputs) is not None
        except FAILURES:
            return explanation
        if right:
            return replace(
                explanation, words=f"{hypothesis.words}; handed over the other way it is right"
            )
        return replace(explanation, refuted=True)

    def _statistic(
        self, graph: Graph, inputs: Arrays, outputs: Arrays, *, coarse: bool = True
    ) -> float | None:
        """The worst group's statistic when all of `given` is within rounding, else None.

        coarse: whether the rounding of a coarser arithmetic will do.
        """
        used = {v: inputs[v] for v in graph.inputs}
        findings = survey(
            graph, used, outputs, seed=self.seed, measure_power=False, find_precision=coarse
        ).findings
        correct_kinds = (Kind.identical, Kind.rounding, Kind.precision)
        if not findings or any(f.kind not in correct_kinds for f in findings):
            return None
        return max(f.statistic for f in findings)

    def _is_near(self, hypothesis: _FaultHypothesis) -> bool:
        """Whether a rival takes nearly all of the difference away (a quick look in float32)."""
        used = {v: hypothesis.inputs[v] for v in hypothesis.graph.inputs}
        names = tuple(hypothesis.outputs)
        values = evaluate(hypothesis.graph, used, work=np.float32, keep=names)
        return all(
            values[v].shape == a.shape
            and _gap(values[v], a) <= st.HARNESS_EXPLAINS * st.root_mean_square(_centered(a))
            for v, a in hypothesis.outputs.items()
        ) and any(
            _gap(values[v], a) <= st.NEAR_EXPLAINED * self._own_gaps.get(v, np.inf)
            for v, a in hypothesis.outputs.items()
        )

    @cached_property
    def _own_gaps(self) -> dict[str, float]:
        """How far the answers are from the network as it stands, by value; a small mistake in it
        leaves them near under any reading that hardly matters."""
        outputs = tuple(dict.fromkeys((*self.first, *self.graph.outputs)))
        shown_outputs = [v for v in outputs if v in self.outputs]
        used = {v: self.inputs[v] for v in self.graph.inputs}
        values = evaluate(self.graph, used, work=np.float32, keep=shown_outputs)
        return {
            v: _gap(values[v], self.outputs[v])
            for v in shown_outputs
            if values[v].shape == self.outputs[v].shape
        }

    def output_hypotheses(self) -> Iterator[_FaultHypothesis]:
        """Answers that were read wrongly, or taken before or after the last step."""
        if self.output_graph is None or not _finite(
            {v: self.outputs[v] for v in self.output_graph.outputs}
        ):
            return
        output_graph, ends = self.output_graph, self.output_graph.outputs
        outputs = {v: self.outputs[v] for v in ends}
        expected = evaluate(
            output_graph, {v: self.inputs[v] for v in output_graph.inputs}, work=np.float32
        )
        wrong = [v for v in ends if not _near(expected[v], outputs[v])]
        for a, b in itertools.combinations(wrong, 2):
            if expected[a].shape == outputs[b].shape and expected[b].shape == outputs[a].shape:
                swapped = {**outputs, a: outputs[b], b: outputs[a]}
                words = f"the outputs {a!r} and {b!r} came in the other order"
                yield _FaultHypothesis(
                    "outputs exchanged", words, output_graph, self.inputs, swapped
                )
        for value in wrong:
            for name, words, array in _other_views(value, outputs[value], expected[value]):
                remaining = {v: x for v, x in outputs.items() if v not in wrong or v == value}
                graph = cut(output_graph, output_graph.inputs, remaining)
                yield _FaultHypothesis(name, words, graph, self.inputs, {**remaining, value: array})
            if outputs[value].shape == expected[value].shape:
                yield from self._last_steps(value)

    def _last_steps(self, value: str) -> Iterator[_FaultHypothesis]:
        """Logits for probabilities, and the other way round."""
        graph_to_value = cut(self.graph, self.graph.inputs, [value])
        outputs = {value: self.outputs[value]}
        op = self.graph.producers[value].op
        kinds = (Softmax, LogSoftmax, Sigmoid)
        if isinstance(op, kinds):
            words = f"{value!r} holds what goes into the last {op.kind}: it was not applied"
            variant = rebuilt(graph_to_value, swapped={value: Identity()})
            yield _FaultHypothesis("logits", words, variant, self.inputs, outputs)
        axis = getattr(op, "axis", 1 if self.outputs[value].ndim == 4 else -1)
        for operator in (Softmax(axis=axis), LogSoftmax(axis=axis), Sigmoid()):
            if isinstance(op, kinds) and type(op) is not type(operator):
                words = f"the last step of {value!r} was {operator.kind}, not {op.kind}"
                variant = rebuilt(graph_to_value, swapped={value: operator})
                yield _FaultHypothesis(
                    f"{operator.kind} for {op.kind}", words, variant, self.inputs, outputs
                )
            words = f"one more {operator.kind} was applied to {value!r}"
            variant = rebuilt(graph_to_value, after={value: operator})
            yield _FaultHypothesis("probabilities", words, variant, self.inputs, outputs)

    def input_hypotheses(self) -> Iterator[_FaultHypothesis]:
        """One thing wrong with the inputs, or training mode."""
        assert self.first_graph is not None
        outputs = {v: self.outputs[v] for v in self.first}
        for a, b in itertools.combinations(self.first_graph.inputs[:MAX_INPUTS], 2):
            x, y = self.inputs[a], self.inputs[b]
            if x.shape == y.shape and x.dtype == y.dtype and not same_bits(x, y):
                swapped = {**self.inputs, a: y, b: x}
                words = f"the inputs {a!r} and {b!r} were exchanged"
                yield _FaultHypothesis(
                    "inputs exchanged", words, self.first_graph, swapped, outputs, swapped
                )
        is_blank = not any(np.any(a) for a in outputs.values())
        for name in self.first_graph.inputs:
            for reading in self._readings(name):
                # Zeros everywhere say that nothing was computed, not what was read.
                if not is_blank or np.any(reading.move(self.inputs[name])):
                    yield self._rearranged(name, reading)
            yield from self._scaled(name, None)
        training = in_training_mode(self.first_graph)
        if training is not None:
            words = "BatchNormalization used the batch's own statistics: it is in training mode"
            yield _FaultHypothesis("training mode", words, training, self.inputs, outputs)

    def combined_hypotheses(self) -> Iterator[_FaultHypothesis]:
        """Two things wrong with one input: layout and colors, or either and the scale."""
        assert self.first_graph is not None
        for name in self.first_graph.inputs:
            moves = [r for r in self._readings(name) if r.undo is not None][:3]
            layouts = [r for r in moves if r.name == "NCHW and NHWC"]
            colors = [r for r in moves if r.name == "RGB and BGR"]
            for first, second in itertools.product(layouts, colors):
                yield self._rearranged(name, _composed(first, second))
            for reading in moves:
                yield from self._scaled(name, reading)

    def _readings(self, name: str) -> Iterator[Reading]:
        x = self.inputs[name]
        if x.dtype.kind in "fiu" and x.ndim:
            for reading in readings(x.shape, image=is_image(self.graph, name)):
                if not np.array_equal(reading.move(x), x):
                    yield reading

    def _rearranged(self, name: str, reading: Reading) -> _FaultHypothesis:
        assert self.first_graph is not None
        x = self.inputs[name]
        inputs = {**self.inputs, name: np.ascontiguousarray(reading.move(x))}
        undo = None
        if reading.undo is not None:
            undo = {**self.inputs, name: np.ascontiguousarray(reading.undo(x))}
        outputs = {v: self.outputs[v] for v in self.first}
        words = reading.words.format(repr(name))
        return _FaultHypothesis(reading.name, words, self.first_graph, inputs, outputs, undo)

    def _scaled(self, name: str, reading: Reading | None) -> Iterator[_FaultHypothesis]:
        """Every scaling of an input, after `reading` where one is given."""
        assert self.first_graph is not None
        x, outputs = self.inputs[name], {v: self.outputs[v] for v in self.first}
        if x.dtype != np.float32 or not is_image(self.graph, name):
            return
        words = "" if reading is None else f"{reading.words.format(repr(name))}, and "
        rearranged = x if reading is None else np.ascontiguousarray(reading.move(x))
        for scaling in SCALINGS:
            colors = max(len(values) for _, values in scaling.steps) > 1
            for axis in channel_axes(x.shape)[: 2 if colors else 1] or (0,):
                steps = steps_of(scaling, x.shape, axis)
                if steps is None:
                    continue
                graph = rebuilt(self.first_graph, before={name: steps})
                undo = {**self.inputs, name: invert(steps, x)} if reading is None else None
                text = words + scaling.words.format(repr(name))
                scaled = {**self.inputs, name: apply(steps, rearranged)}
                alike = _FaultHypothesis("scaling", text, self.first_graph, scaled, outputs)
                inputs = {**self.inputs, name: rearranged}
                yield _FaultHypothesis("scaling", text, graph, inputs, outputs, undo, alike)


def _composed(first: Reading, second: Reading) -> Reading:
    def chained(a: Move, b: Move) -> Move:
        return lambda x: b(np.ascontiguousarray(a(x)))

    assert first.undo is not None and second.undo is not None
    return Reading(
        f"{first.name}, {second.name}",
        f"{first.words}, and {second.words}",
        chained(second.move, first.move),
        chained(first.undo, second.undo),
    )


def _first_outputs(graph: Graph, outputs: Arrays) -> tuple[str, ...]:
    """Given values that depend on the inputs without another given value in between."""
    tainted = set(graph.inputs)
    first = []
    for node in graph.nodes:
        if not any(v in tainted for v in node.inputs):
            continue
        for value in node.outputs:
            if value in outputs:
                first.append(value)
            else:
                tainted.add(value)
    return tuple(first)


def _other_views(
    value: str, output: np.ndarray, expected: np.ndarray
) -> Iterator[tuple[str, str, np.ndarray]]:
    """(name, words, array) for answers that hold the right numbers in another arrangement."""
    for arrangement in arrangements(output.shape, expected.shape):
        if arrangement.plain and output.shape == expected.shape:
            continue
        shapes = f"{list(output.shape)} for {list(expected.shape)}"
        words = f"{value!r} came as {shapes}: the same numbers" + (
            "" if arrangement.plain else f", transposed by {arrangement}"
        )
        yield "output layout", words, np.ascontiguousarray(arrangement.apply(output))
    if output.shape == expected.shape:
        for reading in readings(output.shape):
            if reading.undo is not None:
                words = reading.words.format(f"the output {value!r}")
                yield f"output: {reading.name}", words, np.ascontiguousarray(reading.undo(output))


def _finite(arrays: Arrays) -> bool:
    """Whether all are ordinary numbers: no reading of the inputs explains a NaN."""
    return all(bool(np.isfinite(a.astype(np.float64)).all()) for a in arrays.values())


def _centered(a: np.ndarray) -> np.ndarray:
    wide = a.astype(np.float64)
    return wide - wide.mean() if wide.size > 1 else wide


def _gap(a: np.ndarray, b: np.ndarray) -> float:
    with np.errstate(all="ignore"):
        gap = a.astype(np.float64) - b.astype(np.float64)
    return st.root_mean_square(np.nan_to_num(gap, nan=np.inf))


def _near(expected: np.ndarray, output: np.ndarray) -> bool:
    """Whether an output is right as far as a quick look tells."""
    if expected.shape != output.shape:
        return False
    scale = st.root_mean_square(_centered(expected))
    return _gap(expected, output) <= st.HARNESS_EXPLAINS * scale
