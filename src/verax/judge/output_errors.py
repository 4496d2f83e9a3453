"""Compares the end-to-end errors of an approximate program's outputs with those of O1's rounding.

Each approximated layer may err as direct summation might, and the network may still amplify that.
So the outputs are compared with the errors of the same network without approximations, on the same
inputs, and, where that is not enough, with rounding by the error models. Where they err more, the
approximated layers are ordered by the harm that each does alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from verax.base.errors import VeraxError
from verax.base.figures import times
from verax.ir.graph import Graph, specialize
from verax.judge.decide.local import meaning
from verax.judge.protocol import Runner
from verax.judge.regions.budget import in_context, needs, require_room_for_meaning, why_too_large
from verax.judge.regions.end_to_end import ratio, ratios_to_rounding, region_of
from verax.judge.regions.network import regions
from verax.judge.regions.sampler import Region, Sampler
from verax.judge.stress_inputs import stressed_inputs
from verax.numerics import statistics as st
from verax.numerics.formats import BFLOAT16
from verax.records.certificate import UNCHANGED, Draw, Output
from verax.records.environment import array_hash
from verax.records.verdict import InputRecord, Kind
from verax.reference.evaluate import bind_symbols, evaluate

Arrays = Mapping[str, np.ndarray]
MOST_ROUNDS = 3
"""Programs that are compiled with the most harmful layers put back, before all are."""


@dataclass
class OutputTrial:
    """One set of inputs, the reference outputs on it, and O1's errors.

    origins: how the inputs came about; unit: roundoff of a format that was allowed, 0 for none.
    """

    graph: Graph
    inputs: Arrays
    origins: Mapping[str, str]
    seed: int = 0
    unit: float = 0.0
    expected: Arrays = field(default_factory=dict)
    own: Arrays = field(default_factory=dict)
    _sampler: Sampler | None = None

    @property
    def title(self) -> str:
        """Short description of the inputs."""
        words = dict.fromkeys(self.origins.get(v, "given") for v in self.inputs)
        return "; ".join(w for w in words if w != UNCHANGED) or "the first input"

    def evaluate(self) -> OutputTrial:
        """Compute the reference outputs. Raises `VeraxError` where that takes too much memory."""
        require_room_for_meaning(self.graph)
        values = evaluate(self.graph, self.inputs)
        self.expected = {v: values[v] for v in self.graph.outputs if values[v].dtype.kind == "f"}
        return self

    def measure(self, plain: Runner) -> OutputTrial:
        """Record the errors of a program without approximations."""
        actual = plain.run(self.graph, self.inputs)
        with np.errstate(invalid="ignore"):
            self.own = {
                v: np.nan_to_num(np.asarray(actual[v], np.float64) - y, posinf=0.0, neginf=0.0)
                for v, y in self.expected.items()
            }
        return self

    def ratios(self, actual: Arrays) -> dict[str, float]:
        """By float output, the worst group's error over what rounding does there."""
        wide = {v: np.asarray(actual[v], np.float64) for v in self.expected}
        result = {}
        for v, y in self.expected.items():
            extra = self.unit * st.root_mean_square(np.nan_to_num(y, posinf=0.0, neginf=0.0))
            sigma = np.maximum(
                st.rounding_sigma(np.square(self.own.get(v, np.zeros(y.shape)))), extra
            )
            result[v] = ratio(wide[v], y, sigma)
        if all(r <= st.LOST for r in result.values()):
            return result
        sampler = self.sampler()  # O1 may have been lucky
        if sampler is None:
            return result
        sure = ratios_to_rounding(sampler, wide, self.unit, self.own)
        return {v: min(r, sure.get(v, r)) for v, r in result.items()}

    def sampler(self) -> Sampler | None:
        """The whole network as one region, None where that takes too much memory."""
        if self._sampler is None:
            fixed = specialize(self.graph, bind_symbols(self.graph, self.inputs))
            region = region_of(fixed, fixed.outputs)
            arrays = {**fixed.constants, **self.inputs}
            if region is None or why_too_large(needs(fixed, region, {**arrays, **self.expected})):
                return None
            self._sampler = Sampler(fixed, region, arrays, self.seed)
        return self._sampler

    def draw(self, actual: Arrays, ratios: Mapping[str, float]) -> Draw:
        """The record: outputs alone."""
        outputs = []
        for v, y in self.expected.items():
            error = np.nan_to_num(np.asarray(actual[v], np.float64) - y)
            rounding = st.root_mean_square(self.own.get(v, np.zeros(())))
            largest = float(np.abs(error).max(initial=0.0))
            units = largest / rounding if rounding else 0.0
            outputs.append(
                Output(
                    v,
                    str(self.graph.types[v]),
                    kind_of(ratios[v]),
                    "against the errors of O1 on the same input",
                    largest,
                    st.root_mean_square(np.nan_to_num(y, posinf=0.0, neginf=0.0)),
                    rounding,
                    units,
                    ratios[v] / math.sqrt(st.GROUP_MEAN),
                    ratios[v],
                )
            )
        inputs = tuple(
            InputRecord(v, str(self.graph.types[v]), array_hash(a), self.origins.get(v, "given"))
            for v, a in self.inputs.items()
        )
        return Draw(inputs, {}, (), tuple(outputs))


class OutputTrials:
    """The inputs that a program's outputs are measured on: those given, and stressed variants of
    the first. Used again for every program of the network as layers are put back.

    stressed: the records of the stressed inputs; problems: outputs that err too much with no layer
    left to put back; notes: what was left out.
    """

    def __init__(
        self,
        graph: Graph,
        input_sets: Sequence[tuple[Arrays, Mapping[str, str]]],
        plain: Callable[[], Runner],
        *,
        seed: int = 0,
        allows_bf16: bool = False,
    ) -> None:
        """plain: the network without approximations; allows_bf16: products in bfloat16 were
        allowed."""
        unit = BFLOAT16.unit_roundoff if allows_bf16 else 0.0
        self._count = len(input_sets)
        sets = [*input_sets, *stressed_inputs(graph, input_sets[0][0])]
        self._trials = [
            OutputTrial(graph, arrays, origins, seed + i, unit)
            for i, (arrays, origins) in enumerate(sets)
        ]
        self._plain, self._measured, self._rounds = plain, False, 0
        self.ratios: list[dict[str, float]] = []
        self.stressed: tuple[Draw, ...] = ()
        self.problems: list[str] = []
        self.notes: list[str] = []

    def failing(self, subject: Runner, layers: Collection[str]) -> dict[str, str]:
        """Approximated layers to be put back, with the reason; {} where every output is accurate
        enough. layers: the candidates."""
        self._measure()
        self.ratios, self.problems = [], []
        draws = []
        for i, trial in enumerate(self._trials):
            actual = subject.run(trial.graph, trial.inputs)
            ratios = trial.ratios(actual)
            self.ratios.append(ratios)
            if i >= self._count:
                draws.append(trial.draw(actual, ratios))
            if all(r <= st.LOST for r in ratios.values()):
                continue
            if not layers:
                self.problems += [
                    f"output {v!r} errs by {times(r)} times what O1's rounding does there, more "
                    f"than {st.LOST:g} ({trial.title})"
                    for v, r in ratios.items()
                    if r > st.LOST
                ]
                continue
            self._rounds += 1
            if self._rounds > MOST_ROUNDS:
                words = f"{MOST_ROUNDS} programs with fewer such layers did not hold either"
                return dict.fromkeys(layers, words)
            return most_harmful(trial, subject, layers, ratios)
        self.stressed = tuple(draws)
        return {}

    def _measure(self) -> None:
        """Compute the reference outputs and O1's errors once, in parallel."""
        if self._measured:
            return
        self._measured = True
        with ThreadPoolExecutor(1) as pool:
            waiting = [pool.submit(in_context(t.evaluate)) for t in self._trials]
            plain = self._plain()
            measured = []
            for i, (trial, one) in enumerate(zip(self._trials, waiting, strict=True)):
                try:
                    one.result()
                    measured.append(trial.measure(plain))
                except VeraxError as error:
                    self.notes.append(f"not judged from start to end: {trial.title}: {error.cause}")
                    self._count -= i < self._count
        self._trials = measured


def kind_of(ratio: float) -> Kind:
    """The verdict on an output whose error has this ratio to rounding's."""
    if ratio <= math.sqrt(st.GROUP_MEAN):
        return Kind.rounding
    return Kind.precision if ratio <= st.LOST else Kind.precision_lost


def most_harmful(
    trial: OutputTrial,
    subject: Runner,
    layers: Collection[str],
    ratios: Mapping[str, float],
) -> dict[str, str]:
    """Which of the approximated `layers` have to go for the outputs to hold, with the reason.

    ratios: of the outputs as they are. All of `layers` where it cannot be told. The harm of a layer
    is the ratio of the outputs when it alone errs as it does; those that do most are named until
    the rest makes no more than half of what is allowed, all together.
    """
    worst = max(ratios, key=lambda v: ratios[v])
    words = f"{worst!r} errs by {times(ratios[worst])} times what O1 does there ({trial.title})"
    try:
        harms = _harms(trial, subject, frozenset(layers))
    except VeraxError:
        harms = {}
    if not harms:
        return dict.fromkeys(layers, words)
    ordered = sorted(harms, key=lambda n: harms[n], reverse=True)
    harm_values = [harms[n] for n in ordered]
    count = 1
    while count < len(ordered) and math.hypot(*harm_values[count:]) > st.LOST / 2:
        count += 1
    return {n: f"{words}; this layer alone makes {harms[n]:.3g} of that" for n in ordered[:count]}


def _harms(trial: OutputTrial, subject: Runner, layers: frozenset[str]) -> dict[str, float]:
    """By layer, the outputs' largest ratio when its own error is the only one; layers that share an
    observed value share its harm."""
    sampler = trial.sampler()
    if sampler is None:
        return {}
    fixed = sampler.graph
    inner = [v for node in fixed.nodes for v in node.outputs]
    results = subject.run(fixed, trial.inputs, inner)
    observed = {v: np.asarray(a) for v, a in results.items() if v in fixed.producers}
    values = {**fixed.constants, **trial.inputs, **observed}
    harms: dict[str, float] = {}
    for region in regions(fixed, set(observed)):
        named = layers.intersection(region.names)
        if not named:
            continue
        for value, error in _own_errors(fixed, region, values).items():
            if value not in sampler.inner or not error.any():
                continue
            outputs = sampler.propagated({value: sampler.inner[value] + error})
            disturbed = {v: outputs.get(v, y) for v, y in trial.expected.items()}
            largest = max(_ratios_by_own(trial, disturbed).values(), default=0.0)
            harms |= {n: max(largest, harms.get(n, 0.0)) for n in named}
    return harms


def _ratios_by_own(trial: OutputTrial, actual: Arrays) -> dict[str, float]:
    """Ratios to the measured rounding alone: for an order of layers that is enough."""
    return {
        v: ratio(actual[v], y, st.rounding_sigma(np.square(trial.own.get(v, np.zeros(y.shape)))))
        for v, y in trial.expected.items()
    }


def _own_errors(graph: Graph, region: Region, values: Arrays) -> dict[str, np.ndarray]:
    """By observed value of a region, its error from the reference on the observed inputs."""
    exact: dict[str, np.ndarray] = {}
    for node in region.nodes:
        arrays = [
            None if v is None else exact[v] if v in region.hidden else values[v]
            for v in node.inputs
        ]
        types, outputs = graph.input_types(node), graph.output_types(node)
        exact.update(zip(node.outputs, meaning(node, arrays, types, outputs, errors=False).outputs))
    with np.errstate(invalid="ignore"):
        return {
            v: np.nan_to_num(values[v].astype(np.float64) - exact[v], posinf=0.0, neginf=0.0)
            for v in region.observed
            if exact[v].dtype.kind == "f" and exact[v].shape == values[v].shape
        }
