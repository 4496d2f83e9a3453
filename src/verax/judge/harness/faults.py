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

import numpy as np

from verax.ir.cut import cut
from verax.ir.graph import Graph, same_bits, specialise
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
"""What a rival raises that has no meaning, or asks for too much: it explains nothing then."""
MAX_INPUTS = 6
"""Inputs among which exchanges are tried."""


@dataclass(frozen=True)
class _Rival:
    """One fault: the graph, inputs and answers under which everything would be right.

    undo: inputs on which the subject would be right. alike: the same fault told in another way,
    tried where this one fails: a network whose first step is the scaling is judged as a region, one
    that is given the scaled input node by node, which knows more about correlated errors.
    """

    name: str
    words: str
    graph: Graph
    inputs: Arrays
    given: Arrays
    undo: Arrays | None = None
    alike: _Rival | None = None


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
    fixed = specialise(graph, bind_symbols(graph, inputs))
    given = {
        v: conform(np.asarray(a), fixed.types[v].dtype)
        for v, a in outputs.items()
        if v in fixed.producers
    }
    found: list[Explanation] = []
    with contextlib.suppress(*FAILURES):  # the network itself may be too much to evaluate
        require_room_for_meaning(fixed)
        judge = _Judge(fixed, inputs, given, seed)
        found += judge.fitting(judge.output_rivals(), rerun)
        if judge.wrong_at_first():
            found += judge.fitting(judge.input_rivals(), rerun)
            found += [] if found else judge.fitting(judge.pairs(), rerun)
    return tuple(e for e in found if not e.refuted)


class _Judge:
    """The values that come first after the inputs, and rival meanings of them."""

    def __init__(self, graph: Graph, inputs: Arrays, given: Arrays, seed: int) -> None:
        self.graph, self.inputs, self.given, self.seed = graph, dict(inputs), given, seed
        fitting = {v: a for v, a in given.items() if fits(graph.types[v], a)}
        self.first = _first(graph, fitting)
        self.part = cut(graph, graph.inputs, self.first) if self.first else None
        self.statistics: dict[str, float] = {}
        ends = [v for v in graph.outputs if v in given]
        self.whole = cut(graph, graph.inputs, ends) if ends else None

    def fitting(self, rivals: Iterator[_Rival], rerun: Rerun | None) -> list[Explanation]:
        """The rivals that explain the answers, as far as they can be drawn up at all."""
        found = []
        with contextlib.suppress(*FAILURES):
            for rival in rivals:
                if self.explains(rival):
                    found.append(self.tested(rival, rerun))
        return found

    def wrong_at_first(self) -> bool:
        """Whether a value that depends on the inputs directly is a mistake."""
        given = {v: self.given[v] for v in self.first}
        if self.part is None or not _finite(given):
            return False
        return self._statistic(self.part, self.inputs, given, coarse=False) is None

    def explains(self, rival: _Rival) -> bool:
        """Whether the answers are within rounding under the rival meaning."""
        try:
            if not self._is_near(rival):
                return False
            statistic = self._statistic(rival.graph, rival.inputs, rival.given)
        except FAILURES:
            return False
        if statistic is None:
            return rival.alike is not None and self.explains(rival.alike)
        self.statistics[rival.words] = statistic
        return True

    def tested(self, rival: _Rival, rerun: Rerun | None) -> Explanation:
        """The explanation; refuted when the input that should come out right does not."""
        statistic = self.statistics[rival.words]
        found = Explanation(rival.name, rival.words, {}, statistic)
        if rerun is None or rival.undo is None or self.whole is None:
            return found
        try:
            answers = rerun(rival.undo)
            given = {v: np.asarray(answers[v]) for v in self.whole.outputs if v in answers}
            right = given and self._statistic(self.whole, self.inputs, given) is not None
        except FAILURES:
            return found
        if right:
            return replace(found, words=f"{rival.words}; handed over the other way it is right")
        return replace(found, refuted=True)

    def _statistic(
        self, graph: Graph, inputs: Arrays, given: Arrays, *, coarse: bool = True
    ) -> float | None:
        """The worst group's statistic when all of `given` is within rounding, else None.

        coarse: whether the rounding of a coarser arithmetic will do.
        """
        used = {v: inputs[v] for v in graph.inputs}
        found = survey(
            graph, used, given, seed=self.seed, measure_power=False, find_precision=coarse
        ).findings
        honest = (Kind.identical, Kind.rounding, Kind.precision)
        if not found or any(f.kind not in honest for f in found):
            return None
        return max(f.statistic for f in found)

    def _is_near(self, rival: _Rival) -> bool:
        """Whether a rival takes nearly all of the difference away (a quick look in float32)."""
        used = {v: rival.inputs[v] for v in rival.graph.inputs}
        names = tuple(rival.given)
        values = evaluate(rival.graph, used, work=np.float32, keep=names)
        return all(
            values[v].shape == a.shape
            and _gap(values[v], a) <= st.HARNESS_EXPLAINS * st.root_mean_square(_centred(a))
            for v, a in rival.given.items()
        )

    def output_rivals(self) -> Iterator[_Rival]:
        """Answers that were read wrongly, or taken before or after the last step."""
        if self.whole is None or not _finite({v: self.given[v] for v in self.whole.outputs}):
            return
        whole, ends = self.whole, self.whole.outputs
        given = {v: self.given[v] for v in ends}
        expected = evaluate(whole, {v: self.inputs[v] for v in whole.inputs}, work=np.float32)
        wrong = [v for v in ends if not _near(expected[v], given[v])]
        for a, b in itertools.combinations(wrong, 2):
            if expected[a].shape == given[b].shape and expected[b].shape == given[a].shape:
                swapped = {**given, a: given[b], b: given[a]}
                words = f"the outputs {a!r} and {b!r} came in the other order"
                yield _Rival("outputs exchanged", words, whole, self.inputs, swapped)
        for value in wrong:
            for name, words, array in _other_views(value, given[value], expected[value]):
                rest = {v: x for v, x in given.items() if v not in wrong or v == value}
                part = cut(whole, whole.inputs, rest)
                yield _Rival(name, words, part, self.inputs, {**rest, value: array})
            if given[value].shape == expected[value].shape:
                yield from self._last_steps(value)

    def _last_steps(self, value: str) -> Iterator[_Rival]:
        """Logits for probabilities, and the other way round."""
        part = cut(self.graph, self.graph.inputs, [value])
        given = {value: self.given[value]}
        op = self.graph.producers[value].op
        kinds = (Softmax, LogSoftmax, Sigmoid)
        if isinstance(op, kinds):
            words = f"{value!r} holds what goes into the last {op.kind}: it was not applied"
            graph = rebuilt(part, swapped={value: Identity()})
            yield _Rival("logits", words, graph, self.inputs, given)
        axis = getattr(op, "axis", 1 if self.given[value].ndim == 4 else -1)
        for other in (Softmax(axis=axis), LogSoftmax(axis=axis), Sigmoid()):
            if isinstance(op, kinds) and type(op) is not type(other):
                words = f"the last step of {value!r} was {other.kind}, not {op.kind}"
                graph = rebuilt(part, swapped={value: other})
                yield _Rival(f"{other.kind} for {op.kind}", words, graph, self.inputs, given)
            words = f"one more {other.kind} was applied to {value!r}"
            graph = rebuilt(part, after={value: other})
            yield _Rival("probabilities", words, graph, self.inputs, given)

    def input_rivals(self) -> Iterator[_Rival]:
        """One thing wrong with the inputs, or training mode."""
        assert self.part is not None
        given = {v: self.given[v] for v in self.first}
        for a, b in itertools.combinations(self.part.inputs[:MAX_INPUTS], 2):
            x, y = self.inputs[a], self.inputs[b]
            if x.shape == y.shape and x.dtype == y.dtype and not same_bits(x, y):
                swapped = {**self.inputs, a: y, b: x}
                words = f"the inputs {a!r} and {b!r} were exchanged"
                yield _Rival("inputs exchanged", words, self.part, swapped, given, swapped)
        is_blank = not any(np.any(a) for a in given.values())
        for name in self.part.inputs:
            for reading in self._readings(name):
                # Zeros everywhere say that nothing was computed, not what was read.
                if not is_blank or np.any(reading.move(self.inputs[name])):
                    yield self._moved(name, reading)
            yield from self._scaled(name, None)
        training = in_training_mode(self.part)
        if training is not None:
            words = "BatchNormalization used the batch's own statistics: it is in training mode"
            yield _Rival("training mode", words, training, self.inputs, given)

    def pairs(self) -> Iterator[_Rival]:
        """Two things wrong with one input: layout and colours, or either and the scale."""
        assert self.part is not None
        for name in self.part.inputs:
            moves = [r for r in self._readings(name) if r.undo is not None][:3]
            layouts = [r for r in moves if r.name == "NCHW and NHWC"]
            colours = [r for r in moves if r.name == "RGB and BGR"]
            for first, second in itertools.product(layouts, colours):
                yield self._moved(name, _both(first, second))
            for reading in moves:
                yield from self._scaled(name, reading)

    def _readings(self, name: str) -> Iterator[Reading]:
        x = self.inputs[name]
        if x.dtype.kind in "fiu" and x.ndim:
            for reading in readings(x.shape, image=is_image(self.graph, name)):
                if not np.array_equal(reading.move(x), x):
                    yield reading

    def _moved(self, name: str, reading: Reading) -> _Rival:
        assert self.part is not None
        x = self.inputs[name]
        inputs = {**self.inputs, name: np.ascontiguousarray(reading.move(x))}
        undo = None
        if reading.undo is not None:
            undo = {**self.inputs, name: np.ascontiguousarray(reading.undo(x))}
        given = {v: self.given[v] for v in self.first}
        words = reading.words.format(repr(name))
        return _Rival(reading.name, words, self.part, inputs, given, undo)

    def _scaled(self, name: str, reading: Reading | None) -> Iterator[_Rival]:
        """Every scaling of an input, after `reading` where one is given."""
        assert self.part is not None
        x, given = self.inputs[name], {v: self.given[v] for v in self.first}
        if x.dtype != np.float32 or not is_image(self.graph, name):
            return
        words = "" if reading is None else f"{reading.words.format(repr(name))}, and "
        moved = x if reading is None else np.ascontiguousarray(reading.move(x))
        for scaling in SCALINGS:
            colours = max(len(values) for _, values in scaling.steps) > 1
            for axis in channel_axes(x.shape)[: 2 if colours else 1] or (0,):
                steps = steps_of(scaling, x.shape, axis)
                if steps is None:
                    continue
                graph = rebuilt(self.part, before={name: steps})
                undo = {**self.inputs, name: invert(steps, x)} if reading is None else None
                text = words + scaling.words.format(repr(name))
                scaled = {**self.inputs, name: apply(steps, moved)}
                alike = _Rival("scaling", text, self.part, scaled, given)
                inputs = {**self.inputs, name: moved}
                yield _Rival("scaling", text, graph, inputs, given, undo, alike)


def _both(first: Reading, second: Reading) -> Reading:
    def chained(a: Move, b: Move) -> Move:
        return lambda x: b(np.ascontiguousarray(a(x)))

    assert first.undo is not None and second.undo is not None
    return Reading(
        f"{first.name}, {second.name}",
        f"{first.words}, and {second.words}",
        chained(second.move, first.move),
        chained(first.undo, second.undo),
    )


def _first(graph: Graph, given: Arrays) -> tuple[str, ...]:
    """Given values that depend on the inputs without another given value in between."""
    tainted = set(graph.inputs)
    found = []
    for node in graph.nodes:
        if not any(v in tainted for v in node.inputs):
            continue
        for value in node.outputs:
            if value in given:
                found.append(value)
            else:
                tainted.add(value)
    return tuple(found)


def _other_views(
    value: str, given: np.ndarray, expected: np.ndarray
) -> Iterator[tuple[str, str, np.ndarray]]:
    """(name, words, array) for answers that hold the right numbers in another arrangement."""
    for found in arrangements(given.shape, expected.shape):
        if found.plain and given.shape == expected.shape:
            continue
        shapes = f"{list(given.shape)} for {list(expected.shape)}"
        words = f"{value!r} came as {shapes}: the same numbers" + (
            "" if found.plain else f", transposed by {found}"
        )
        yield "output layout", words, np.ascontiguousarray(found.apply(given))
    if given.shape == expected.shape:
        for reading in readings(given.shape):
            if reading.undo is not None:
                words = reading.words.format(f"the output {value!r}")
                yield f"output: {reading.name}", words, np.ascontiguousarray(reading.undo(given))


def _finite(arrays: Arrays) -> bool:
    """Whether all are ordinary numbers: no reading of the inputs explains a NaN."""
    return all(bool(np.isfinite(a.astype(np.float64)).all()) for a in arrays.values())


def _centred(a: np.ndarray) -> np.ndarray:
    wide = a.astype(np.float64)
    return wide - wide.mean() if wide.size > 1 else wide


def _gap(a: np.ndarray, b: np.ndarray) -> float:
    with np.errstate(all="ignore"):
        gap = a.astype(np.float64) - b.astype(np.float64)
    return st.root_mean_square(np.nan_to_num(gap, nan=np.inf))


def _near(expected: np.ndarray, given: np.ndarray) -> bool:
    """Whether an output is right as far as a quick look tells."""
    if expected.shape != given.shape:
        return False
    scale = st.root_mean_square(_centred(expected))
    return _gap(expected, given) <= st.HARNESS_EXPLAINS * scale
