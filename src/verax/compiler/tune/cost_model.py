"""A model of cost: how long a schedule takes by the time of the rule's, fitted from a history.

It decides nothing but the order in which candidates are tried; what wins is measured and proved, as
without it. It needs LightGBM or scikit-learn (the extra `verax[tune]`).
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from itertools import islice
from typing import Any

import numpy as np

from verax.base.optional import optional
from verax.compiler.kernels.registry import Schedule, Spec, schedules
from verax.compiler.kernels.target import LANES, Target
from verax.compiler.tune.combinations import combinations
from verax.compiler.tune.history import kernel_of
from verax.compiler.tune.host import ANOTHER, Host
from verax.compiler.tune.lookup import encoded
from verax.compiler.tune.measurements import entries, is_number, numbers_of

ENGINES = ("lightgbm", "sklearn")
"""Packages that can fit it, the first that is installed does."""
LEAST_EXAMPLES = 200
"""Measured candidates without which nothing is fitted."""
COMBINED, PROPOSED = 100, 8
"""Combinations of steps that the model ranks, and of them those that are tried first."""
SEED = 4217
Fields = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class CostExample:
    """A measured candidate. numbers: of its kernel's spec (`measurements.numbers_of`); schedule,
    rule: names and fields of the two schedules; ratio: of their times; network: where the kernel
    is from."""

    kernel: str
    numbers: Mapping[str, float]
    schedule: tuple[str, Fields]
    rule: tuple[str, Fields]
    ratio: float
    network: str = ""


def examples_of(path: str | os.PathLike[str], host: Host) -> list[CostExample]:
    """What a history has for a model of `host`'s family: measured candidates of kernels whose line
    of kind "workload" is there, too."""
    workloads: dict[tuple[str, Host], Any] = {}
    measured = []
    for entry in entries(path):
        kind, named = entry.get("kind"), kernel_of(entry)
        if named is None or host.unlike(named[1]) == ANOTHER:
            continue
        if kind == "workload" and type(entry.get("numbers")) is dict:
            workloads[named[0], named[1]] = entry["numbers"], named[2]
        ratio = entry.get("ratio")
        if kind == "measured" and is_number(ratio) and ratio > 0:
            measured.append((named, float(ratio), str(entry.get("network", ""))))
    examples = []
    for (kernel, at, schedule), ratio, network in measured:
        if (kernel, at) in workloads:
            numbers, rule = workloads[kernel, at]
            examples.append(CostExample(kernel, numbers, schedule, rule, ratio, network))
    return examples


class CostModel:
    """Fitted from examples, one regression for each type of schedule.

    engine: of ENGINES. count: how many examples there were.
    """

    def __init__(self, examples: Sequence[CostExample], engine: str = "") -> None:
        """Raises `MissingPackageError` where none of ENGINES is installed."""
        self.engine, self.count = engine or _engine(), len(examples)
        self._regressions: dict[str, Any] = {}
        kinds = {example.schedule[0] for example in examples}
        for kind in sorted(kinds):
            own = [e for e in examples if e.schedule[0] == kind]
            table = np.array([features(e.numbers, e.schedule[1], e.rule[1]) for e in own])
            target = np.log([e.ratio for e in own])
            if len(own) >= 2:
                self._regressions[kind] = _regression(self.engine).fit(table, target)

    def predicted(
        self, numbers: Mapping[str, float], rule: tuple[str, Fields], many: Iterable[Fields]
    ) -> np.ndarray:
        """Logarithms of the ratios of several schedules, [n]; zeros for a type without examples."""
        table = np.array([features(numbers, fields, rule[1]) for fields in many])
        regression = self._regressions.get(rule[0])
        if regression is None or not len(table):
            return np.zeros(len(table))
        return np.asarray(regression.predict(table), np.float64)

    def rank(self, spec: Spec, target: Target, several: Sequence[Schedule]) -> list[Schedule]:
        """The schedules, those that it finds fast first; of equal ones the first stays first."""
        rule = encoded(schedules(spec, target)[0])
        costs = self.predicted(dict(numbers_of(spec)), rule, [encoded(s)[1] for s in several])
        return [several[i] for i in np.argsort(costs, kind="stable")]

    def proposals(self, spec: Spec, target: Target) -> list[Schedule]:
        """Combinations of steps that it finds fastest, to be tried before anything else."""
        combined = list(islice(combinations(spec, target), COMBINED))
        return self.rank(spec, target, combined)[:PROPOSED]


def cost_model(path: str | os.PathLike[str], host: Host) -> CostModel | None:
    """The model of a history; None without a package that fits it, or with too few examples."""
    if not is_available():
        return None
    examples = examples_of(path, host)
    return CostModel(examples) if len(examples) >= LEAST_EXAMPLES else None


def is_available() -> bool:
    """True if one of ENGINES is installed."""
    return any(find_spec(name) is not None for name in ENGINES)


def features(numbers: Mapping[str, float], schedule: Fields, rule: Fields) -> list[float]:
    """What the regression sees of a candidate: the kernel's sizes, the schedule, where it leaves
    the rule's, and how tiles cover the output."""
    sizes = _sizes(numbers)
    values = [math.log2(max(1.0, size)) for size in sizes]
    for name in sorted(rule):
        mine, its = float(schedule.get(name, 0)), float(rule[name])
        values += [mine, math.log2((1 + mine) / (1 + its))]
    _, rows, cols, channels, filters, taps, *_ = sizes
    tile_rows, tile_cols = float(schedule.get("rows", 1)), float(schedule.get("cols", 1))
    blocks, chunk = float(schedule.get("blocks", 1)), float(schedule.get("chunk", 1))
    pixels = tile_rows * tile_cols
    values += [
        pixels,
        pixels * blocks,
        _waste(rows * cols if cols == 1 or tile_cols == 1 else rows, tile_rows),
        _waste(cols, tile_cols),
        _waste(filters, blocks * LANES),
        math.log2(max(1.0, channels * taps * blocks * LANES)),
        math.log2(max(1.0, channels * pixels * chunk)),
        math.log2(max(1.0, chunk * tile_rows)) - math.log2(max(1.0, rows)),
    ]
    return values


def _waste(extent: float, tile: float) -> float:
    """How much more than an extent its tiles cover, as a ratio."""
    return math.ceil(extent / max(tile, 1)) * max(tile, 1) / max(extent, 1)


def _sizes(numbers: Mapping[str, float]) -> list[float]:
    """Batch, rows, columns, channels, filters, kernel positions, groups and stride of a kernel."""

    def get(name: str, default: float = 1.0) -> float:
        return float(numbers.get(name, default))

    if "channels" in numbers:
        taps = get("kernel.0") * get("kernel.1") * get("kernel.2")
        shape = [get("output.1"), get("output.2"), get("channels"), get("filters"), taps]
        return [get("batch") * get("output.0"), *shape, get("groups"), get("strides.2")]
    if "k" in numbers:
        outer = get("outer") * get("inner")
        return [outer, get("m"), 1.0, get("k"), get("n"), 1.0, 1.0, 1.0]
    outer = get("outer") * get("inner")
    return [outer, get("n"), 1.0, get("d"), get("m"), get("e"), 1.0, 1.0]


def _engine() -> str:
    return next((name for name in ENGINES if find_spec(name) is not None), ENGINES[0])


def _regression(engine: str) -> Any:
    """Something with `fit(table, target)` and `predict(table)`."""
    purpose = "to order candidates by a model of cost"
    if engine == "lightgbm":
        return _Boosted(optional("lightgbm", purpose))
    make: Callable[..., Any] = optional("sklearn.ensemble", purpose).HistGradientBoostingRegressor
    return make(max_iter=200, learning_rate=0.06, max_leaf_nodes=15, min_samples_leaf=8,
                random_state=SEED)  # fmt: skip


class _Boosted:
    """LightGBM by its own interface; the other one needs scikit-learn as well."""

    def __init__(self, lightgbm: Any) -> None:
        self._lightgbm = lightgbm

    def fit(self, table: np.ndarray, target: np.ndarray) -> Any:
        settings = {
            "objective": "regression", "learning_rate": 0.06, "num_leaves": 15, "verbose": -1,
            "min_data_in_leaf": 8, "seed": SEED, "num_threads": 1, "deterministic": True,
        }  # fmt: skip
        data = self._lightgbm.Dataset(table, target)
        return self._lightgbm.train(settings, data, num_boost_round=200)
