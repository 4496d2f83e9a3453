"""What the judge sees of one operator at every conditioning: factors of 1 + L, injected.

An operator is ill-conditioned where rounding moves its result far: sums that cancel, a norm of
numbers that lie off zero, a logarithm near 1. There an honest error is large, sigma is too, and
small mistakes pass. The judge says from which relative error on it sees (`Finding.visible`); here
that is held against mistakes. `benchmarks/power.py` makes the table, a test holds the claims.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from verax.ir.graph import Node
from verax.ir.operator import Evaluation, Inference, Operator, as_tuple
from verax.ir.types import TensorType
from verax.judge.decide.local import check_node
from verax.ops.images.resize import Resize
from verax.ops.pointwise.arithmetic import Add, Pow, Sub
from verax.ops.pointwise.transcendental import Acos, Atan, Exp, Log, Sin, Tan
from verax.ops.sums.cumulative import CumSum
from verax.ops.sums.layer_normalization import (
    LayerNormalization,
    MeanVarianceNormalization,
    RMSNormalization,
)
from verax.ops.sums.linear import MatMul
from verax.ops.sums.normalization import (
    BatchNormalization,
    GroupNormalization,
    InstanceNormalization,
)
from verax.ops.sums.reduction import (
    ReduceL2,
    ReduceLogSum,
    ReduceLogSumExp,
    ReduceMean,
    ReduceSum,
    ReduceSumSquare,
)
from verax.ops.sums.response_normalization import LpNormalization
from verax.ops.sums.softmax import LogSoftmax, Softmax
from verax.records.verdict import Finding, Kind

FLOAT = np.float32
STEPS = tuple(10.0 ** (-k / 2) for k in range(1, 15))
"""Relative errors that are injected, the largest first: 10^-0.5 to 10^-7."""
UNSEEN = (Kind.identical, Kind.rounding)
Draw = Callable[[np.random.Generator, float], tuple[Any, ...]]


@dataclass(frozen=True)
class Situation:
    """An operator on inputs of one conditioning. condition: in words, with its number."""

    op: Operator
    inputs: tuple[np.ndarray, ...]
    condition: str

    @property
    def evaluation(self) -> Evaluation:
        types = tuple(map(TensorType.of, self.inputs))
        return Evaluation(types, tuple(self.op.infer(Inference(types, self.inputs))))

    def promised(self) -> np.ndarray:
        """The operator's first output in its promised bits."""
        with np.errstate(all="ignore"):
            return np.asarray(as_tuple(self.op.canonical(self.evaluation, *self.inputs))[0])

    def plain(self) -> np.ndarray:
        """The same by plain NumPy in float32."""
        narrow = Evaluation(self.evaluation.inputs, self.evaluation.outputs, np.dtype(FLOAT))
        with np.errstate(all="ignore"):
            result = as_tuple(self.op.reference(narrow, *self.inputs))[0]
        return np.asarray(result).astype(FLOAT)

    def judge(self, actual: np.ndarray) -> Finding:
        """What the judge says of a first output."""
        outputs = self.evaluation.outputs
        names = tuple(f"x{i}" for i in range(len(self.inputs)))
        node = Node(self.op, names, tuple(f"y{i}" for i in range(len(outputs))))
        outputs_given = [actual, *[None] * (len(outputs) - 1)]
        return check_node(node, list(self.inputs), outputs_given, outputs)[0]


@dataclass(frozen=True)
class Seen:
    """What the judge saw of a situation.

    baseline: T of the promised bits and of plain NumPy; claimed: relative error from which on it
    says that it sees; smallest: the smallest of STEPS from which on every injected factor was seen,
    infinite for none.
    """

    baseline: tuple[float, float]
    claimed: float
    smallest: float


def measure(situation: Situation) -> Seen:
    """Inject every step into the promised bits."""
    own = situation.promised()
    findings = [situation.judge(own), situation.judge(situation.plain())]
    smallest = math.inf
    for step in STEPS:
        if not is_seen(situation, own, step):
            break
        smallest = step
    baseline = findings[0].statistic, findings[1].statistic
    return Seen(baseline, findings[0].visible, smallest)


def is_seen(situation: Situation, own: np.ndarray, relative: float) -> bool:
    """Whether `own`, every element times 1 + `relative`, is more than rounding to the judge."""
    disturbed = (own.astype(np.float64) * (1 + relative)).astype(own.dtype)
    return situation.judge(disturbed).kind not in UNSEEN


def situations(seed: int = 0) -> Iterator[Situation]:
    """Every operator whose error model has a condition, at several of them."""
    for op, words, values, draw in KINDS:
        for value in values:
            rng = np.random.default_rng([seed, len(words), int(value * 1000)])
            inputs = tuple(np.asarray(a) for a in draw(rng, value))
            yield Situation(op, inputs, f"{words} {value:g}")


def _float(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(np.asarray(a, np.float64).astype(FLOAT) for a in arrays)


def _offset(*shape: int) -> Draw:
    """Numbers of deviation 0.1 around a mean that is `value` times that."""
    return lambda rng, value: _float(0.1 * (rng.standard_normal(shape) + value))


def _normalized(parameters: tuple[int, ...], *shape: int, more: bool = False) -> Draw:
    """The same, with scale and bias (and given mean and variance)."""

    def draw(rng: np.random.Generator, value: float) -> tuple[Any, ...]:
        x = 0.1 * (rng.standard_normal(shape) + value)
        scale, bias = rng.uniform(0.5, 2, parameters), rng.standard_normal(parameters)
        statistics = (np.full(parameters, 0.1 * value), np.full(parameters, 0.01)) if more else ()
        return _float(x, scale, bias, *statistics)

    return draw


def _canceling(rng: np.random.Generator, value: float) -> np.ndarray:
    """[7, 4099] numbers of size 1 whose sum is 1 / value of the sum of their sizes."""
    x = rng.standard_normal((7, 4099))
    return x - x.mean(axis=1, keepdims=True) + np.abs(x).mean(axis=1, keepdims=True) / value


def _along_axis(rng: np.random.Generator, value: float) -> tuple[Any, ...]:
    return (*_float(_canceling(rng, value)), np.array([1], np.int64))


def _arguments(rng: np.random.Generator, value: float) -> tuple[Any, ...]:
    """Numbers from half of `value` to all of it."""
    return _float(value * rng.uniform(0.5, 1, (31, 14)))


def _running(rng: np.random.Generator, value: float) -> tuple[Any, ...]:
    return (*_float(_canceling(rng, value)), np.array(1, np.int64))


def _logits(rng: np.random.Generator, value: float) -> tuple[Any, ...]:
    return _float(rng.uniform(-value, 0, (23, 301)))


def _winner(rng: np.random.Generator, value: float) -> tuple[Any, ...]:
    """One logit above the others by `value`."""
    x = rng.uniform(-1, 0, (37, 3))
    x[:, 1] += value
    return _float(x)


def _log_sum(rng: np.random.Generator, value: float) -> tuple[Any, ...]:
    """Sums whose logarithm is 1 / value."""
    x = rng.uniform(0.5, 1.5, (37, 53))
    x *= np.exp(1 / value) / x.sum(axis=1, keepdims=True)
    return (*_float(x), np.array([1], np.int64))


def _log_sum_exp(rng: np.random.Generator, value: float) -> tuple[Any, ...]:
    """The same of exponentials."""
    (x, axes) = _log_sum(rng, value)
    return (*_float(np.log(x.astype(np.float64))), axes)


def _powers(rng: np.random.Generator, value: float) -> tuple[Any, ...]:
    """Powers up to e ** value."""
    base = rng.uniform(1.5, 3, (37, 11))
    return _float(base, value / np.log(base) * rng.uniform(0.5, 1, base.shape))


def _enlarged(rng: np.random.Generator, value: float) -> tuple[Any, ...]:
    """An image of checks, enlarged along its width of `value` pixels."""
    width = int(value)
    signs = 1.0 - 2.0 * (np.arange(width) % 2)
    x = signs * rng.uniform(0.5, 1.5, (2, 3, 5, width))
    none = np.zeros(0, FLOAT)
    return (*_float(x), none, none, np.array([2, 3, 7, 2 * width + 3], np.int64))


OFFSETS = (0, 10, 100, 400, 1000, 10000)
SHARES = (1, 10, 1000, 100000)
RATIO = "mean / deviation"
CANCELS = "sum of sizes / size of sum"
KINDS: tuple[tuple[Operator, str, tuple[float, ...], Draw], ...] = (
    (LayerNormalization(), RATIO, OFFSETS, _normalized((256,), 3, 17, 256)),
    (InstanceNormalization(), RATIO, OFFSETS, _normalized((5,), 2, 5, 31, 34)),
    (GroupNormalization(num_groups=3), RATIO, OFFSETS, _normalized((6,), 2, 6, 23, 25)),
    (
        BatchNormalization(training_mode=True),
        RATIO,
        OFFSETS,
        _normalized((6,), 3, 6, 17, 19, more=True),
    ),
    (BatchNormalization(), RATIO, OFFSETS, _normalized((6,), 3, 6, 17, 19, more=True)),
    (MeanVarianceNormalization(axes=(2, 3)), RATIO, OFFSETS, _offset(2, 3, 21, 22)),
    (
        RMSNormalization(),
        RATIO,
        OFFSETS,
        lambda rng, value: _normalized((129,), 3, 17, 129)(rng, value)[:2],
    ),
    (LpNormalization(axis=1), RATIO, OFFSETS, _offset(7, 517)),
    (
        ReduceL2(),
        RATIO,
        OFFSETS,
        lambda rng, value: (*_offset(7, 4099)(rng, value), np.array([1], np.int64)),
    ),
    (
        ReduceSumSquare(),
        RATIO,
        OFFSETS,
        lambda rng, value: (*_offset(7, 4099)(rng, value), np.array([1], np.int64)),
    ),
    (ReduceSum(), CANCELS, SHARES, _along_axis),
    (ReduceMean(), CANCELS, SHARES, _along_axis),
    (CumSum(), CANCELS, SHARES, _running),
    (
        MatMul(),
        CANCELS,
        SHARES,
        lambda rng, value: _float(_canceling(rng, value), np.ones((4099, 3))),
    ),
    (ReduceLogSum(), "1 / logarithm", SHARES, _log_sum),
    (ReduceLogSumExp(), "1 / logarithm", SHARES, _log_sum_exp),
    (Softmax(), "range of logits", (1, 20, 80), _logits),
    (LogSoftmax(), "range of logits", (1, 20, 80), _logits),
    (LogSoftmax(), "the winner's lead", (1, 5, 10, 15), _winner),
    (Pow(), "logarithm of the result", (1, 10, 80), _powers),
    (
        Exp(),
        "argument",
        (1, 10, 80),
        _arguments,
    ),
    (
        Log(),
        "1 / logarithm",
        SHARES,
        lambda rng, value: _float(np.exp(rng.uniform(0.5, 1, (31, 14)) / value)),
    ),
    (
        Sin(),
        "argument",
        (1, 100, 10000),
        _arguments,
    ),
    (
        Tan(),
        "1 / distance to a pole",
        (1, 100, 10000),
        lambda rng, value: _float(np.pi / 2 - rng.uniform(0.5, 1, (31, 14)) / value),
    ),
    (
        Acos(),
        "1 / (1 - argument)",
        SHARES,
        lambda rng, value: _float(1 - rng.uniform(0.5, 1, (31, 14)) / value),
    ),
    (
        Atan(),
        "argument",
        (0.001, 1, 1000, 1000000),
        lambda rng, value: _float(value * rng.uniform(-1, 1, (31, 14))),
    ),
    (
        Sub(),
        "size / difference",
        SHARES,
        lambda rng, value: _float(
            *(rng.uniform(1, 2, (31, 14)) * np.array([1, 1 + 1 / value]).reshape(2, 1, 1))
        ),
    ),
    (
        Add(),
        "size / sum",
        SHARES,
        lambda rng, value: _float(
            *(rng.uniform(1, 2, (31, 14)) * np.array([1, -1 - 1 / value]).reshape(2, 1, 1))
        ),
    ),
    (Resize(mode="linear"), "width", (7, 1000), _enlarged),
    (Resize(mode="cubic"), "width", (7, 1000), _enlarged),
)
"""Operator, the condition in words, its values, and inputs by it."""
