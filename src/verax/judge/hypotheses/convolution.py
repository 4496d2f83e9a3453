"""Convolution and transposed convolution: pads, weights' layout, channels, groups, bias, taps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np

from verax.judge.hypotheses.base import (
    After,
    Arrays,
    Edit,
    Hypothesis,
    Prior,
    Suspect,
    edited,
    interleaved,
    permuted,
    unpermuted,
    zeroed,
)
from verax.judge.hypotheses.windows import begins, mixed_begins, padded_by_modes
from verax.ops.convolution import Conv
from verax.ops.deconvolution import ConvTranspose
from verax.ops.windows import Pads, Windows

BLOCKS = (4, 8, 16, 32)
"""Channels that compilers take together; what is left over is easily forgotten."""
FEW_CHANNELS = 4
"""Images have no more channels than these."""


def convolution(suspect: Suspect) -> Iterator[Hypothesis]:
    """Rivals of Conv and ConvTranspose."""
    yield from _pads(suspect)
    yield from _biases(suspect)
    yield from _layouts(suspect)
    yield from _channels(suspect)
    yield from _groups(suspect)
    yield from _steps(suspect)
    yield from _forgotten(suspect)
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
        for name, words, edit in padded_by_modes(windows, suspect.x.ndim):
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
    shown = {"pads": str(pads)}
    if isinstance(op, Conv):
        rival: Conv | ConvTranspose = dataclasses.replace(op, pads=pads)
    else:
        assert isinstance(op, ConvTranspose)
        rival = dataclasses.replace(op, pads=pads, output_padding=tuple(extra), output_shape=())
    yield Hypothesis(name, words, prior, op=rival, attributes=shown, crop=True)


def _biases(suspect: Suspect) -> Iterator[Hypothesis]:
    if not suspect.has(2):
        return
    yield Hypothesis("bias missing", "the bias was not added", Prior.usual, inputs=_without_bias)
    for name, words, prior, change in (
        ("bias doubled", "the bias was added twice", Prior.usual, lambda b: b * 2),
        ("bias subtracted", "the bias was subtracted", Prior.known, lambda b: -b),
        ("bias reversed", "the bias was read backwards", Prior.rare, lambda b: b[::-1]),
        ("bias shifted", "each channel got its neighbour's bias", Prior.known, _roll),
        ("bias of channel 0", "every channel got the first one's bias", Prior.known, _first),
    ):
        yield Hypothesis(name, words, prior, inputs=edited(2, change))


def _without_bias(arrays: Arrays) -> Arrays:
    return [*arrays[:2], None]


def _roll(b: np.ndarray) -> np.ndarray:
    return np.roll(b, 1, axis=0)


def _first(b: np.ndarray) -> np.ndarray:
    return np.broadcast_to(b[:1], b.shape)


def _layouts(suspect: Suspect) -> Iterator[Hypothesis]:
    """The kernel read in another direction or from another layout."""
    w = suspect.inputs[1]
    spatial = tuple(range(2, w.ndim))
    changes: list[tuple[str, str, Prior, Callable[..., np.ndarray]]] = [
        (
            "kernel flipped",
            "the kernel was flipped (convolution where cross-correlation is meant, or reverse)",
            Prior.usual,
            lambda w: np.flip(w, spatial),
        )
    ]
    if len(spatial) > 1:
        for axis in spatial:
            changes.append(
                (
                    f"kernel flipped along axis {axis}",
                    f"the kernel was flipped along its axis {axis} only",
                    Prior.rare,
                    lambda w, axis=axis: np.flip(w, axis),
                )
            )
        changes.append(
            (
                "kernel transposed",
                "height and width of the kernel were exchanged",
                Prior.usual,
                lambda w: permuted(w, (*range(w.ndim - 2), w.ndim - 1, w.ndim - 2)),
            )
        )
    if w.shape[0] == w.shape[1] and w.shape[0] > 1:
        changes += [
            (
                "channels of the kernel swapped",
                "input and output channels of the weights were exchanged",
                Prior.usual,
                lambda w: w.swapaxes(0, 1),
            ),
            (
                "channels of the kernel swapped, kernel flipped",
                "the adjoint was computed: channels exchanged and the kernel flipped",
                Prior.known,
                lambda w: np.flip(w.swapaxes(0, 1), spatial),
            ),
        ]
    for name, words, prior, change in changes:
        yield Hypothesis(name, words, prior, inputs=edited(1, change))
    orders = {
        "OHWI": (0, *spatial, 1),
        "HWIO": (*spatial, 1, 0),
        "IOHW": (1, 0, *spatial),
        "HWOI": (*spatial, 0, 1),
    }
    for label, axes in orders.items():
        if 1 in w.shape[:2] and label in ("HWOI", "IOHW"):
            continue  # the same as another order, or as it is declared
        yield Hypothesis(
            f"weights in {label} taken as they lie",
            f"weights stored as {label} were read as if they were stored as declared",
            Prior.common,
            inputs=edited(1, lambda w, axes=axes: permuted(w, axes)),
        )
        yield Hypothesis(
            f"weights read as {label}",
            f"weights were read as if they were stored as {label}",
            Prior.common,
            inputs=edited(1, lambda w, axes=axes: unpermuted(w, axes)),
        )


def _channels(suspect: Suspect) -> Iterator[Hypothesis]:
    """Channels in another order."""
    channels = suspect.x.shape[1]
    if channels > 1:
        image = channels <= FEW_CHANNELS
        yield Hypothesis(
            "input channels reversed",
            "the input channels were read in reverse order" + (" (RGB for BGR)" if image else ""),
            Prior.usual if image else Prior.known,
            inputs=edited(0, lambda x: x[:, ::-1]),
        )
    out_axis = 0 if isinstance(suspect.op, Conv) else 1
    for name, change in (
        ("filters shifted", lambda w: np.roll(w, 1, out_axis)),
        ("filters shifted back", lambda w: np.roll(w, -1, out_axis)),
        ("filters reversed", lambda w: np.flip(w, out_axis)),
    ):
        yield Hypothesis(
            name,
            f"each output channel was computed with another one's weights ({name})",
            Prior.known,
            inputs=edited(1, change),
        )
    yield Hypothesis(
        "input channels shifted",
        "each weight met its neighbour's input channel",
        Prior.rare,
        inputs=edited(0, lambda x: np.roll(x, 1, axis=1)),
    )
    if getattr(suspect.op, "groups", 1) == 1:
        return
    yield Hypothesis(
        "input channels reversed in the groups",
        "the input channels of each group were read in reverse order",
        Prior.known,
        inputs=edited(1, lambda w: w[:, ::-1] if out_axis == 0 else w[::-1]),
    )


def _groups(suspect: Suspect) -> Iterator[Hypothesis]:
    op = suspect.op
    assert isinstance(op, Conv | ConvTranspose)
    g = op.groups
    if g == 1:
        return
    w_groups = g if op.kind == "Conv" or suspect.inputs[1].shape[0] % g == 0 else 1
    changes: list[tuple[str, str, Edit]] = [
        (
            "groups of the input interleaved",
            "the input channels were dealt to the groups in turn, not in blocks",
            edited(0, lambda x: interleaved(x, 1, x.shape[1] // g)),
        ),
        (
            "groups of the input gathered",
            "the input channels of the groups were gathered across the groups",
            edited(0, lambda x: interleaved(x, 1, g)),
        ),
        (
            "groups of the input reversed",
            "the groups met the input's groups in reverse order",
            edited(0, lambda x: _blocks(x, 1, g, lambda i: g - 1 - i)),
        ),
        (
            "groups of the input shifted",
            "each group met its neighbour's input channels",
            edited(0, lambda x: _blocks(x, 1, g, lambda i: (i + 1) % g)),
        ),
        (
            "first group's input",
            "every group was computed from the first group's input channels",
            edited(0, lambda x: _blocks(x, 1, g, lambda i: 0)),
        ),
        (
            "first group's weights",
            "every group was computed with the first group's weights",
            edited(1, lambda w: _blocks(w, 0, w_groups, lambda i: 0)),
        ),
        (
            "groups of the weights interleaved",
            "the weights were dealt to the groups in turn, not in blocks",
            edited(1, lambda w: interleaved(w, 0, w_groups)),
        ),
        (
            "groups of the weights reversed",
            "the groups were computed with the weights' groups in reverse order",
            edited(1, lambda w: _blocks(w, 0, w_groups, lambda i: w_groups - 1 - i)),
        ),
    ]
    for name, words, edit in changes:
        yield Hypothesis(name, words, Prior.common, inputs=edit)


def _blocks(array: np.ndarray, axis: int, count: int, source: Callable[[int], int]) -> np.ndarray:
    """`count` equal blocks along `axis`, block i taken from block source(i)."""
    size = array.shape[axis] // count
    order = [source(i) * size + j for i in range(count) for j in range(size)]
    return np.take(array, order, axis)


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
            rival = dataclasses.replace(op, **{field: values[::-1], "pads": windows.pads})
            yield Hypothesis(
                f"{field} of the axes exchanged",
                f"the {field} of height and width were exchanged",
                Prior.common,
                op=rival,
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
    found = {label: tuple((b, t - b) for b, t in zip(first, totals))
             for label, first in shared.items()}  # fmt: skip
    found[", pads kept"] = windows.pads
    unique: dict[Pads, str] = {}
    for label, pads in found.items():
        unique.setdefault(pads, label)
    return {label: pads for pads, label in unique.items()}


def _forgotten(suspect: Suspect) -> Iterator[Hypothesis]:
    """Terms left out of the sums."""
    w = suspect.inputs[1]
    axis = 1 if isinstance(suspect.op, Conv) else 0
    groups = 1 if axis == 1 else getattr(suspect.op, "groups", 1)
    channels = w.shape[axis]
    if groups == 1:
        tails = {t: f"last {t}" for b in BLOCKS if 0 < (t := channels % b) < channels}
        for count, label in {**tails, **({1: "last 1"} if channels > 1 else {})}.items():
            yield Hypothesis(
                f"{label} input channels ignored",
                f"the {label} of {channels} input channels were left out of the sums",
                Prior.known,
                inputs=edited(1, lambda w, c=count: zeroed(w, axis, slice(channels - c, channels))),
            )
    for a in range(2, w.ndim):
        size = w.shape[a]
        for label, where in (("first", slice(0, 1)), ("last", slice(size - 1, size))):
            if size > 1:
                yield Hypothesis(
                    f"{label} tap along axis {a} ignored",
                    f"the {label} of {size} kernel positions along axis {a} was left out",
                    Prior.rare,
                    inputs=edited(1, lambda w, a=a, where=where: zeroed(w, a, where)),
                )


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
        Prior.known,
        after=After(lambda y, inputs: _repeat_end(y, extra), moves=True),
        attributes={"output_padding": "0"},
    )


def _fill_end(y: np.ndarray, extra: tuple[int, ...], bias: np.ndarray | None) -> np.ndarray:
    y = y.copy()
    fill = np.zeros(1) if bias is None else bias
    fill = np.broadcast_to(fill.reshape(1, -1, *(1,) * len(extra)), (1, y.shape[1], *y.shape[2:]))
    for a, count in enumerate(extra, 2):
        if count:
            where = (slice(None),) * a + (slice(y.shape[a] - count, None),)
            y[where] = fill[where]
    return y


def _repeat_end(y: np.ndarray, extra: tuple[int, ...]) -> np.ndarray:
    for a, count in enumerate(extra, 2):
        last = y.shape[a] - count - 1
        y = np.take(y, np.minimum(np.arange(y.shape[a]), last), axis=a)
    return y
