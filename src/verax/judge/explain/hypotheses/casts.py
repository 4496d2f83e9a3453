"""Casts and shifts: what happens beyond the range, how fractions are rounded, by which type."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from verax.ir.types import DType
from verax.judge.explain.hypotheses.attributes import by_attributes
from verax.judge.explain.hypotheses.base import (
    Arrays,
    Hypothesis,
    Prior,
    Suspect,
    edited,
    from_inputs,
    hypotheses_of,
)
from verax.numerics.formats import BFLOAT16, FLOAT16, FloatFormat, round_to
from verax.ops.pointwise.cast import Cast
from verax.ops.pointwise.logic import BitShift

Change = Callable[[np.ndarray], np.ndarray]


@hypotheses_of("Cast")
def cast(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on Cast."""
    op = suspect.op
    assert isinstance(op, Cast)
    yield from by_attributes(suspect)
    source = suspect.x.dtype
    is_float = source.kind == "f" or source.name == "bfloat16"
    target = op.to
    if target is DType.bool_ and is_float:
        yield Hypothesis(
            "fractions cut off first",
            "fractions were cut off first, so that numbers between -1 and 1 are false",
            Prior.usual,
            after=from_inputs(lambda a: np.trunc(a[0].astype(np.float64)) != 0),
        )
        return
    if target.is_float:
        if is_float and not target.is_narrow and np.isinf(suspect.x.astype(np.float64)).any():
            smaller = float(np.finfo(np.float32).max)
            yield Hypothesis(
                "infinities cut off",
                "infinities became the largest numbers of float32",
                Prior.usual,
                after=from_inputs(lambda a: np.clip(a[0].astype(np.float64), -smaller, smaller)),
            )
        if is_float and target.itemsize < source.itemsize and not target.is_narrow:
            yield from _to_smaller_float(target)
        return
    if target is DType.bool_ or target.is_narrow:
        return
    yield from _beyond_range(suspect, target)
    if is_float:
        roundings: tuple[tuple[str, Change], ...] = (
            ("rounded to the nearest", np.rint),
            ("rounded down", np.floor),
            ("rounded up", np.ceil),
            ("rounded half away from zero", lambda v: np.sign(v) * np.floor(np.abs(v) + 0.5)),
        )
        for name, change in roundings:
            yield Hypothesis(
                name, f"fractions were {name}, not cut off", Prior.usual,
                inputs=edited(0, lambda x, c=change: c(x.astype(np.float64))),
            )  # fmt: skip
    for fmt in (FLOAT16, BFLOAT16):
        yield Hypothesis(
            f"by {fmt.name}",
            f"the numbers went through {fmt.name} on their way",
            Prior.uncommon,
            inputs=edited(0, lambda x, f=fmt: round_to(x.astype(np.float64), f)),
        )
    if source.itemsize >= 4 and not is_float:
        yield Hypothesis(
            "by float32",
            "the numbers went through float32 on their way",
            Prior.common,
            inputs=edited(0, lambda x: x.astype(np.float32).astype(np.float64)),
        )


def _to_smaller_float(target: DType) -> Iterator[Hypothesis]:
    fmt = {"float16": FLOAT16, "bfloat16": BFLOAT16}.get(str(target))
    if fmt is None:
        return
    yield Hypothesis(
        "rounded toward zero",
        f"bits were cut off: numbers were rounded to {fmt.name} toward zero",
        Prior.usual,
        after=from_inputs(lambda a: _toward_zero(a[0].astype(np.float64), fmt)),
    )


def _toward_zero(x: np.ndarray, fmt: FloatFormat) -> np.ndarray:
    nearest = round_to(x, fmt)
    beyond = np.abs(nearest) > np.abs(x)
    exponent = np.frexp(np.where(x == 0, 1.0, x))[1]
    step = np.ldexp(1.0, exponent - fmt.precision)
    return np.where(beyond, np.sign(x) * np.floor(np.abs(x) / step) * step, nearest)


def _beyond_range(suspect: Suspect, target: DType) -> Iterator[Hypothesis]:
    """Integers beyond the target's range."""
    low, high = target.ends

    def saturated(a: Arrays) -> np.ndarray:
        return np.clip(np.trunc(a[0].astype(np.float64)), low, high)

    def wrapped(a: Arrays) -> np.ndarray:
        return (np.trunc(a[0].astype(np.float64)) - low) % (high - low + 1.0) + low

    yield Hypothesis(
        "saturated", "what is beyond the range was saturated, not wrapped around", Prior.usual,
        after=from_inputs(saturated),
    )  # fmt: skip
    yield Hypothesis(
        "wrapped around", "what is beyond the range was wrapped around, not saturated", Prior.usual,
        after=from_inputs(wrapped),
    )  # fmt: skip
    x = suspect.x
    if x.dtype.kind in "iu":
        view = np.dtype(f"{'u' if x.dtype.kind == 'i' else 'i'}{x.dtype.itemsize}")
        yield Hypothesis(
            f"read as {view}", f"the numbers were read as {view}", Prior.common,
            inputs=edited(0, lambda v: v.view(view)),
        )  # fmt: skip


@hypotheses_of("BitShift")
def shift(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on BitShift."""
    op = suspect.op
    assert isinstance(op, BitShift)
    yield from by_attributes(suspect)
    x = suspect.x
    width = 8 * x.dtype.itemsize
    yield Hypothesis(
        "count modulo the width",
        f"the count was taken modulo {width}, as processors do",
        Prior.usual,
        inputs=edited(1, lambda y: y % y.dtype.type(width)),
    )
    yield Hypothesis(
        "count saturated",
        f"the count was taken as at most {width - 1}",
        Prior.common,
        inputs=edited(1, lambda y: np.minimum(y, y.dtype.type(width - 1))),
    )
    low, high = (float(v) for v in (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max))

    def multiplied(a: Arrays) -> np.ndarray:
        sign = 1 if op.direction == "LEFT" else -1
        product = np.trunc(np.ldexp(a[0].astype(np.float64), sign * a[1].astype(np.int64)))
        return np.clip(product, low, high)

    yield Hypothesis(
        "multiplied",
        "x was multiplied by a power of two and saturated"
        if op.direction == "LEFT"
        else "x was divided by a power of two and rounded toward zero",
        Prior.usual,
        after=from_inputs(multiplied),
    )
    if op.direction == "RIGHT":
        opposite = np.dtype(f"{'u' if x.dtype.kind == 'i' else 'i'}{x.dtype.itemsize}")
        words = "without sign: zeros moved in" if x.dtype.kind == "i" else "with the sign"

        def shifted(a: Arrays) -> np.ndarray:
            result = np.right_shift(a[0].view(opposite), a[1].astype(opposite))
            return np.asarray(result.view(a[0].dtype))

        yield Hypothesis(
            "the other right shift", f"numbers were shifted {words}", Prior.usual,
            after=from_inputs(shifted),
        )  # fmt: skip
