"""Quantize and dequantize: zero points, scales, rounding, saturation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from verax.judge.explain.hypotheses.base import (
    Arrays,
    Hypothesis,
    Prior,
    Suspect,
    edited,
    from_inputs,
    hypotheses_of,
    with_attributes,
)
from verax.ops.quantized.dynamic_quantization import DynamicQuantizeGroups
from verax.ops.quantized.lookup import positions
from verax.ops.quantized.quantization import DequantizeLinear, QuantizeLinear


@hypotheses_of("QuantizeLinear")
def quantize(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on QuantizeLinear."""
    op = suspect.op
    assert isinstance(op, QuantizeLinear)
    yield from _parameters(suspect, op)
    if suspect.actual.dtype.kind not in "iu":
        return
    info = np.iinfo(suspect.actual.dtype)

    def by(rounding: Callable[[np.ndarray], np.ndarray], wrap: bool = False) -> Any:
        def value(arrays: Arrays) -> np.ndarray:
            scale, zero = _spread(arrays, op.axis)
            y = rounding(arrays[0].astype(np.float64) / scale) + zero
            if wrap:
                return y.astype(np.int64).astype(suspect.actual.dtype).astype(np.float64)
            return np.clip(y, info.min, info.max)

        return from_inputs(value)

    roundings: tuple[tuple[str, str, Prior, Callable[[np.ndarray], np.ndarray]], ...] = (
        ("half away from zero", "halves were rounded away from zero", Prior.usual, _away),
        ("half up", "halves were rounded up", Prior.usual, lambda v: np.floor(v + 0.5)),
        ("truncated", "fractions were cut off", Prior.usual, np.trunc),
        ("rounded down", "fractions were rounded down", Prior.usual, np.floor),
        ("rounded up", "fractions were rounded up", Prior.uncommon, np.ceil),
    )
    if not op.block_size:
        for name, words, prior, to_integer in roundings:
            yield Hypothesis(name, words, prior, after=by(to_integer))
        yield Hypothesis(
            "not saturated",
            "what exceeds the range was wrapped around, not cut off",
            Prior.usual,
            after=by(np.rint, wrap=True),
        )


@hypotheses_of("DequantizeLinear")
def dequantize(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on DequantizeLinear."""
    op = suspect.op
    assert isinstance(op, DequantizeLinear)
    yield from _parameters(suspect, op)
    yield Hypothesis(
        "scale left out",
        "the scale was left out",
        Prior.common,
        inputs=edited(1, np.ones_like),
    )
    if suspect.x.dtype.kind in "iu" and suspect.x.dtype.itemsize == 1:
        dtype = np.dtype("uint8" if suspect.x.dtype.kind == "i" else "int8")
        yield Hypothesis(
            f"read as {dtype}",
            f"the bytes were read as {dtype}",
            Prior.usual,
            inputs=edited(0, lambda x: x.view(dtype)),
        )


@hypotheses_of("DynamicQuantizeGroups")
def quantize_dynamically(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on DynamicQuantizeGroups."""
    op = suspect.op
    assert isinstance(op, DynamicQuantizeGroups)
    declared = "symmetrically" if op.symmetric else "asymmetrically"
    opposite = "asymmetrically" if op.symmetric else "symmetrically"
    yield from with_attributes(
        op,
        f"inputs quantized {opposite}",
        f"the data were quantized {opposite}, where the file says {declared}",
        Prior.usual,
        symmetric=not op.symmetric,
    )
    yield from with_attributes(
        op,
        "inputs not quantized",
        "the data stayed floats, where the file rounds them to bytes",
        Prior.usual,
        axis=suspect.x.ndim,
    )
    for axis in range(suspect.x.ndim):
        yield from with_attributes(
            op,
            f"groups from axis {axis} on",
            f"the elements that share their indices in the first {axis} axes got one scale",
            Prior.common,
            axis=axis,
        )


def _parameters(suspect: Suspect, op: QuantizeLinear | DequantizeLinear) -> Iterator[Hypothesis]:
    if suspect.has(2) and np.any(suspect.inputs[2]):
        yield Hypothesis(
            "zero point ignored",
            "the zero point was taken as 0",
            Prior.usual,
            inputs=edited(2, np.zeros_like),
        )
        yield Hypothesis(
            "zero point of the other sign",
            "the zero point was added where it is subtracted, or reverse",
            Prior.usual,
            inputs=edited(2, lambda z: -z.astype(np.int64)),
        )
        yield Hypothesis(
            "zero point of channel 0",
            "every channel got the first one's zero point",
            Prior.common,
            inputs=edited(2, _first),
        )
    yield Hypothesis(
        "scale inverted",
        "the scale was multiplied by where it is divided by, or reverse",
        Prior.usual,
        inputs=edited(1, lambda s: 1 / s.astype(np.float64)),
    )
    scale = suspect.inputs[1]
    if scale.size > 1:
        for name, words, change in (
            ("scale of channel 0", "every channel got the first one's scale", _first),
            ("scale reversed", "the scales were read backwards", np.flip),
            (
                "scale of the neighbor",
                "each channel got its neighbor's scale",
                lambda s: np.roll(s, 1, -1),
            ),
        ):
            yield Hypothesis(name, words, Prior.common, inputs=edited(1, change))
        for axis, n in enumerate(suspect.x.shape):
            if n == scale.size and scale.ndim == 1 and axis != op.axis % suspect.x.ndim:
                yield Hypothesis(
                    f"axis {axis}",
                    f"scales were taken along axis {axis}, not {op.axis}",
                    Prior.usual,
                    op=dataclasses.replace(op, axis=axis),
                    attributes={"axis": str(axis)},
                )


def _first(v: np.ndarray) -> np.ndarray:
    return np.broadcast_to(v.ravel()[:1].reshape((1,) * v.ndim), v.shape)


def _away(v: np.ndarray) -> np.ndarray:
    return np.sign(v) * np.floor(np.abs(v) + 0.5)


def _spread(arrays: Arrays, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Scale and zero point that broadcast against the input."""
    x, scale = arrays[0], arrays[1].astype(np.float64)
    zero = arrays[2].astype(np.float64) if len(arrays) > 2 and arrays[2] is not None else 0 * scale
    if scale.ndim != 1 or scale.size == 1:
        return scale, zero
    shape = [-1 if a == axis % x.ndim else 1 for a in range(x.ndim)]
    return scale.reshape(shape), zero.reshape(shape)


MAX_NAMED = 3
"""Entries of a table that are named one by one."""


@hypotheses_of("LookupTable")
def entries(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield LookupTable with the entries that the numbers show, if they are a function of x."""
    x, actual = suspect.x, suspect.actual
    table = suspect.inputs[1]
    if actual.shape != x.shape or actual.dtype != table.dtype:
        return
    at = positions(x).ravel()
    seen = table.copy()
    seen[at] = actual.ravel()
    if not np.array_equal(seen[at], actual.ravel()):
        return  # one number became two: no function of it
    lowest, highest = (suspect.inputs[i] if suspect.has(i) else table for i in (2, 3))
    wrong = np.flatnonzero((seen < lowest) | (seen > highest))
    if not wrong.size:
        return
    first = int(np.iinfo(x.dtype).min)
    named = [f"{seen[i]} for {i + first} instead of {table[i]}" for i in wrong[:MAX_NAMED]]
    more = f" and {wrong.size - MAX_NAMED} others" if wrong.size > MAX_NAMED else ""
    plural = "an entry is" if wrong.size == 1 else "entries are"
    yield Hypothesis(
        "entries of the table",
        f"the table is another: of its {table.size} {plural} {', '.join(named)}{more}",
        Prior.rare,
        inputs=edited(1, lambda _: seen),
        fitted=int(wrong.size),
    )
