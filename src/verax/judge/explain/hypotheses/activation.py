"""Activations: another function, another slope, limits lost, a scale folded through a Relu."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from verax.ir.operator import Operator
from verax.judge.explain.hypotheses.base import (
    After,
    Hypothesis,
    Prior,
    Suspect,
    edited,
    from_inputs,
    hypotheses_of,
    pointwise,
)
from verax.judge.explain.hypotheses.constants import cut_constants
from verax.judge.explain.hypotheses.epsilons import added_epsilons
from verax.judge.explain.hypotheses.fitting import LEAST, factor
from verax.ops.pointwise.activation import (
    Clip,
    HardSigmoid,
    HardSwish,
    LeakyRelu,
    PRelu,
    Relu,
    Softsign,
    ThresholdedRelu,
)
from verax.ops.pointwise.activation_smooth import Celu, Elu, Gelu, Mish, Selu, Softplus, Swish
from verax.ops.pointwise.arithmetic import Abs
from verax.ops.pointwise.transcendental import Sigmoid, Tanh

SLOPES = (0.01, 0.1, 0.2, 0.3, 0.25, 0.02, 0.05, 0.5)
"""Slopes of LeakyRelu in use; Keras 0.3, torch and ONNX 0.01, Darknet 0.1, DCGAN 0.2, PReLU .25."""
ALTERNATIVES: tuple[tuple[str, Operator], ...] = (
    ("Relu", Relu()),
    ("absolute value", Abs()),
    *((f"LeakyRelu with slope {a:g}", LeakyRelu(alpha=a)) for a in SLOPES),
    ("Elu", Elu()),
    ("Selu", Selu()),
    ("Gelu", Gelu()),
    ("Gelu by tanh", Gelu(approximate="tanh")),
    ("Gelu by the sigmoid (quick Gelu)", Swish(alpha=1.702)),
    ("Swish", Swish()),
    ("Mish", Mish()),
    ("hard Swish", HardSwish()),
    ("Sigmoid", Sigmoid()),
    ("hard sigmoid, slope 0.2", HardSigmoid()),
    ("hard sigmoid, slope 1/6", HardSigmoid(alpha=1 / 6)),
    ("Tanh", Tanh()),
    ("Softplus", Softplus()),
    ("Softsign", Softsign()),
)
"""Activations that are taken for one another."""
RELATED = (
    {"Relu", "LeakyRelu", "PRelu", "Clip", "Elu", "Selu", "Celu", "ThresholdedRelu"},
    {"Gelu", "Swish", "HardSwish", "Mish"},
    {"Sigmoid", "HardSigmoid", "Tanh", "Softsign"},
)
"""Families within which confusion is usual."""


@hypotheses_of(
    *("Relu", "LeakyRelu", "PRelu", "Clip", "Elu", "Selu", "Celu", "Gelu", "Swish", "Mish"),
    *("HardSwish", "HardSigmoid", "Sigmoid", "Tanh", "Softplus", "Softsign", "ThresholdedRelu"),
    *("Shrink", "Abs", "Exp", "Log", "Sqrt", "Erf", "Neg", "Identity", "Reciprocal"),
)
def activation(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on any activation of one tensor."""
    op = suspect.op
    near = next((group for group in RELATED if op.kind in group), set())
    for name, alternative in ALTERNATIVES:
        if alternative != op:
            attributes = {"operator": str(alternative)}
            if alternative.kind == op.kind:
                attributes = {k: str(v) for k, v in alternative.attributes().items()
                         if v != getattr(op, k)}  # fmt: skip
            prior = Prior.usual if alternative.kind in near else Prior.common
            yield Hypothesis(
                f"computed as {name}",
                f"{name} was computed",
                prior,
                op=alternative,
                inputs=_only_first,
                attributes=attributes,
            )
    yield Hypothesis(
        "no activation",
        "the input was passed on as it is",
        Prior.usual,
        after=from_inputs(lambda inputs: inputs[0]),
    )
    for name, low, high in (("Relu6", 0.0, 6.0), ("clipped to [-1, 1]", -1.0, 1.0)):
        yield Hypothesis(
            f"computed as {name}",
            f"{name} was computed",
            Prior.usual if op.kind in RELATED[0] else Prior.uncommon,
            after=from_inputs(lambda inputs, low=low, high=high: np.clip(inputs[0], low, high)),
        )
    yield from _own(suspect)
    yield from added_epsilons(suspect)
    yield from cut_constants(suspect)
    yield from _fitted(suspect)


def _only_first(arrays: list[Any]) -> list[Any]:
    return arrays[:1]


def _own(suspect: Suspect) -> Iterator[Hypothesis]:
    """What only some activations can get wrong."""
    op = suspect.op
    if isinstance(op, Clip):
        for index, label in ((1, "lower"), (2, "upper")):
            if suspect.has(index):
                yield Hypothesis(
                    f"{label} limit ignored",
                    f"the {label} limit was ignored",
                    Prior.usual,
                    inputs=edited(index, lambda v: None),
                )
    if isinstance(op, PRelu):
        for name, words, change in (
            ("slopes reversed", "the slopes were read backwards", lambda s: np.flip(s)),
            ("slopes of the neighbor", "each channel got its neighbor's slope", _neighbor),
            ("one slope for all", "every channel got the first one's slope", _first),
            ("slope inverted", "the slopes were divided by", lambda s: 1 / s.astype(np.float64)),
            ("slope negated", "the slopes' sign was changed", np.negative),
        ):
            yield Hypothesis(name, words, Prior.common, inputs=edited(1, change))
        yield from _other_axes(suspect)
    if isinstance(op, Gelu):
        approximation = "none" if op.approximate == "tanh" else "tanh"
        yield Hypothesis(
            "the other Gelu",
            f"Gelu was computed with approximate={approximation!r}",
            Prior.usual,
            op=Gelu(approximate=approximation),
            attributes={"approximate": approximation},
        )
    if isinstance(op, HardSigmoid):
        for alpha, beta in ((0.2, 0.5), (1 / 6, 0.5), (0.25, 0.5)):
            if (alpha, beta) != (op.alpha, op.beta):
                yield Hypothesis(
                    f"slope {alpha:.3g}",
                    f"the slope was {alpha:.3g}, not {op.alpha:.3g}",
                    Prior.usual,
                    op=HardSigmoid(alpha=alpha, beta=beta),
                    attributes={"alpha": f"{alpha:.6g}", "beta": f"{beta:g}"},
                )
    if isinstance(op, ThresholdedRelu):
        yield Hypothesis(
            "threshold subtracted",
            "what exceeds the threshold was given, not the number itself",
            Prior.uncommon,
            after=pointwise(lambda y, t=op.alpha: np.where(y > 0, y - t, y), roundings=1),
        )
    yield from _folded_scale(suspect)


def _neighbor(s: np.ndarray) -> np.ndarray:
    return np.roll(s, 1, axis=int(np.argmax(s.shape)) if s.ndim else None)


def _first(s: np.ndarray) -> np.ndarray:
    return np.broadcast_to(s.ravel()[:1].reshape((1,) * s.ndim), s.shape)


def _other_axes(suspect: Suspect) -> Iterator[Hypothesis]:
    """PRelu's slopes along another axis of the same size."""
    slopes = suspect.inputs[1]
    if slopes.size == 1:
        return
    for axis, n in enumerate(suspect.x.shape):
        shape = [slopes.size if a == axis else 1 for a in range(suspect.x.ndim)]
        if n == slopes.size:
            yield Hypothesis(
                f"slopes along axis {axis}",
                f"the slopes were taken along axis {axis}",
                Prior.common,
                inputs=edited(1, lambda s, shape=shape: s.reshape(shape)),
            )


def _folded_scale(suspect: Suspect) -> Iterator[Hypothesis]:
    """relu(s x) computed as s relu(x): where s is negative, the other half of x passes."""
    x, actual = suspect.x, suspect.wide
    if suspect.op.kind != "Relu" or x.ndim < 2 or x.shape != actual.shape:
        return
    axes = tuple(a for a in range(x.ndim) if a != 1)
    with np.errstate(all="ignore"):
        low, high = (np.square(actual - f(x, 0)).sum(axis=axes) for f in (np.minimum, np.maximum))
    flipped = low < high
    if not flipped.any():
        return
    channels = [int(c) for c in np.flatnonzero(flipped)]
    mask = flipped.reshape(1, -1, *(1,) * (x.ndim - 2))

    def folded(y: np.ndarray, inputs: list[Any]) -> np.ndarray:
        return np.where(mask, np.minimum(inputs[0], 0), y)

    named = ", ".join(map(str, channels[:6])) + (" ..." if len(channels) > 6 else "")
    yield Hypothesis(
        "negative scale folded through Relu",
        "a negative scale was moved behind the Relu, which lets the negative half pass instead "
        f"(channels {named})",
        Prior.usual,
        after=After(folded, exact=True),
        fitted=1,
    )


def _fitted(suspect: Suspect) -> Iterator[Hypothesis]:
    """The slope below zero, or the limit above, that the numbers themselves show."""
    x, actual, op = suspect.x, suspect.wide, suspect.op
    if x.shape != actual.shape or x.size < LEAST or op.kind not in RELATED[0]:
        return
    below = (x < 0) & np.isfinite(actual)
    slope = factor(x[below].astype(np.float64), actual[below])
    if slope is not None and slope != 0:
        yield Hypothesis(
            "slope of its own",
            f"negative numbers were multiplied by {slope:.6g}",
            Prior.common,
            op=LeakyRelu(alpha=slope),
            inputs=_only_first,
            attributes={"alpha": f"{slope:.6g}"},
            fitted=1,
        )
    for label, limit, change in (
        ("above", float(np.max(actual)), np.minimum),
        ("below", float(np.min(actual)), np.maximum),
    ):
        if np.isfinite(limit) and int((actual == limit).sum()) > 1:
            yield Hypothesis(
                f"cut off {label}",
                f"the result was cut off {label} {limit:.6g}",
                Prior.common,
                after=pointwise(lambda y, c=change, v=limit: c(y, v)),
                attributes={"limit": f"{limit:.6g}"},
                fitted=1,
            )
    if isinstance(op, Elu | Celu):
        with np.errstate(all="ignore"):
            alpha = factor(np.expm1(x[below].astype(np.float64)), actual[below])
        if alpha is not None:
            yield Hypothesis(
                "alpha of its own",
                f"alpha was {alpha:.6g}, not {op.alpha:g}",
                Prior.common,
                op=dataclasses.replace(op, alpha=alpha),
                attributes={"alpha": f"{alpha:.6g}"},
                fitted=1,
            )
