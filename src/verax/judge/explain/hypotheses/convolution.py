"""Convolution and transposed convolution: pads, bias, steps; the weights are in `filters`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from verax.judge.explain.hypotheses.base import (
    After,
    Arrays,
    Hypothesis,
    Prior,
    Suspect,
    edited,
    hypotheses_of,
)
from verax.judge.explain.hypotheses.filters import filters
from verax.judge.explain.hypotheses.windows import begins, mixed_begins, padded_by_modes
from verax.ops.windows.convolution import Conv
from verax.ops.windows.deconvolution import ConvTranspose
from verax.ops.windows.windows import Pads, Windows


@hypotheses_of("Conv", "ConvTranspose")
def convolution(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on Conv and ConvTranspose."""
    yield from _pads(suspect)
    yield from _biases(suspect)
    yield from filters(suspect)
    yield from _steps(suspect)
    if isinstance(suspect.op, ConvTranspose):
        yield from _output_padding(suspect)


def windows_of(suspect: Suspect) -> Windows:
    """The windows that the node's attributes mean on its actual input."""
    op = suspect.op
    assert isinstance(op, Conv | ConvTranspose)
    kinds = suspect.meaning.ev.inputs
    assert kinds[0] is not None and kinds[1] is not None
    return op.spatial(kinds[0], kinds[1])


def _pads(suspect: Suspect) -> Iterator[Hypothesis]:
    windows = windows_of(suspect)
    for name, words, prior, begin in (*begins(windows), *mixed_begins(windows)):
        yield from _begin_at(suspect, windows, name, words, prior, begin)
    if isinstance(suspect.op, Conv):
        for name, words, edit in padded_by_modes(windows, suspect.x):
            bare = dataclasses.replace(suspect.op, pads=((0, 0),) * windows.rank)
            yield Hypothesis(name, words, Prior.common, op=bare, inputs=edit, crop=True)


def _begin_at(
    suspect: Suspect,
    windows: Windows,
    name: str,
    words: str,
    prior: Prior,
    begin: tuple[int, ...],
) -> Iterator[Hypothesis]:
    """The node with other begin pads, and the end pads that keep the output's size."""
    op, ends, extra = suspect.op, [], []
    for a, first in enumerate(begin):
        n, out, stride, extent = (
            getattr(windows, f)[a] for f in ("input", "output", "strides", "extent")
        )
        if isinstance(op, Conv):
            ends.append(max(0, (out - 1) * stride + extent - n - first))
        else:
            left = (n - 1) * stride + extent - first - out
            ends.append(max(0, left))
            extra.append(max(0, -left))
    pads: Pads = tuple(zip(begin, ends))
    attributes = {"pads": str(pads)}
    if isinstance(op, Conv):
        alternative: Conv | ConvTranspose = dataclasses.replace(op, pads=pads)
    else:
        assert isinstance(op, ConvTranspose)
        alternative = dataclasses.replace(
            op, pads=pads, output_padding=tuple(extra), output_shape=()
        )
    yield Hypothesis(name, words, prior, op=alternative, attributes=attributes, crop=True)


def _biases(suspect: Suspect) -> Iterator[Hypothesis]:
    if not suspect.has(2):
        return
    yield Hypothesis("bias missing", "the bias was not added", Prior.usual, inputs=_without_bias)
    for name, words, prior, change in (
        ("bias doubled", "the bias was added twice", Prior.usual, lambda b: b * 2),
        ("bias subtracted", "the bias was subtracted", Prior.uncommon, lambda b: -b),
        ("bias reversed", "the bias was read backwards", Prior.rare, lambda b: b[::-1]),
        ("bias shifted", "each channel got its neighbor's bias", Prior.uncommon, _roll),
        ("bias of channel 0", "every channel got the first one's bias", Prior.uncommon, _first),
    ):
        yield Hypothesis(name, words, prior, inputs=edited(2, change))


def _without_bias(arrays: Arrays) -> Arrays:
    return [*arrays[:2], None]


def _roll(b: np.ndarray) -> np.ndarray:
    return np.roll(b, 1, axis=0)


def _first(b: np.ndarray) -> np.ndarray:
    return np.broadcast_to(b[:1], b.shape)


def _steps(suspect: Suspect) -> Iterator[Hypothesis]:
    """Other dilations and strides, with the pads that keep the output's size."""
    op, windows = suspect.op, windows_of(suspect)
    assert isinstance(op, Conv | ConvTranspose)
    ones = (1,) * windows.rank
    if windows.dilations != ones:
        for label, pads in _same_size(windows, ones).items():
            yield Hypothesis(
                f"dilation ignored{label}",
                f"the dilation was ignored{label}",
                Prior.usual,
                op=dataclasses.replace(op, dilations=ones, pads=pads),
                attributes={"dilations": str(ones), "pads": str(pads)},
                crop=True,
            )
    for field in ("dilations", "strides"):
        values = getattr(windows, field)
        if values[::-1] != values:
            alternative = dataclasses.replace(op, **{field: values[::-1], "pads": windows.pads})
            yield Hypothesis(
                f"{field} of the axes exchanged",
                f"the {field} of height and width were exchanged",
                Prior.common,
                op=alternative,
                attributes={field: str(values[::-1])},
                crop=True,
            )


def _same_size(windows: Windows, dilations: tuple[int, ...]) -> dict[str, Pads]:
    """Pads by which windows of other dilations have the same output size, and the pads as they are:
    how the rest is shared -> pads, each once."""
    totals = [
        max(0, begin + end - (k - 1) * (old - new))
        for (begin, end), k, old, new in zip(
            windows.pads, windows.kernel_shape, windows.dilations, dilations
        )
    ]
    begins = [begin for begin, _ in windows.pads]
    ends = [end for _, end in windows.pads]
    shared = {
        "": [t // 2 for t in totals],
        ", the odd pad first": [t - t // 2 for t in totals],
        ", begin pads kept": [min(b, t) for b, t in zip(begins, totals)],
        ", end pads kept": [max(0, t - e) for e, t in zip(ends, totals)],
        ", as much less at both ends": [
            min(t, max(0, b - (b + e - t) // 2)) for b, e, t in zip(begins, ends, totals)
        ],
    }
    pads_of = {label: tuple((b, t - b) for b, t in zip(first, totals))
             for label, first in shared.items()}  # fmt: skip
    pads_of[", pads kept"] = windows.pads
    unique: dict[Pads, str] = {}
    for label, pads in pads_of.items():
        unique.setdefault(pads, label)
    return {label: pads for pads, label in unique.items()}


def _output_padding(suspect: Suspect) -> Iterator[Hypothesis]:
    op = suspect.op
    assert isinstance(op, ConvTranspose)
    extra = op.output_padding
    if not any(extra):
        return
    yield Hypothesis(
        "output_padding filled with zeros",
        "what output_padding adds at the end was not computed and left 0",
        Prior.common,
        after=After(lambda y, inputs: _fill_end(y, extra, None), moves=True),
        attributes={"output_padding": "0"},
    )
    if suspect.has(2):
        yield Hypothesis(
            "output_padding filled with the bias",
            "what output_padding adds at the end holds only the bias",
            Prior.common,
            after=After(lambda y, inputs: _fill_end(y, extra, inputs[2])),
            attributes={"output_padding": "0"},
        )
    yield Hypothesis(
        "output_padding repeats the border",
        "what output_padding adds at the end repeats the last row and column",
        Prior.uncommon,
        after=After(lambda y, inputs: _repeat_end(y, extra), moves=True),
        attributes={"output_padding": "0"},
    )


def _fill_end(y: np.ndarray, extra: tuple[int, ...], bias: np.ndarray | None) -> np.ndarray:
    y = y.copy()
    fill = np.zeros(1) if bias is None else bias
    fill = np.broadcast_to(fill.reshape(1, -1, *(1,) * len(extra)), (1, y.shape[1], *y.shape[2:]))
    for a, count in enumerate(extra, 2):
        if count:
            tail = (slice(None),) * a + (slice(y.shape[a] - count, None),)
            y[tail] = fill[tail]
    return y


def _repeat_end(y: np.ndarray, extra: tuple[int, ...]) -> np.ndarray:
    for a, count in enumerate(extra, 2):
        last = y.shape[a] - count - 1
        y = np.take(y, np.minimum(np.arange(y.shape[a]), last), axis=a)
    return y
