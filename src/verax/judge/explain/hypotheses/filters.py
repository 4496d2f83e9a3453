"""The weights of a convolution: their layout, their channels and groups, terms left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from verax.judge.explain.hypotheses.base import (
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
from verax.ops.windows.convolution import Conv
from verax.ops.windows.deconvolution import ConvTranspose

BLOCKS = (4, 8, 16, 32)
"""Channels that compilers take together; what is left over is easily forgotten."""
FEW_CHANNELS = 4
"""Images have no more channels than these."""


def filters(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on Conv and ConvTranspose that read weights or input channels in another
    way."""
    yield from _layouts(suspect)
    yield from _channels(suspect)
    yield from _groups(suspect)
    yield from _forgotten(suspect)


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
                Prior.uncommon,
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
            Prior.usual if image else Prior.uncommon,
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
            Prior.uncommon,
            inputs=edited(1, change),
        )
    yield Hypothesis(
        "input channels shifted",
        "each weight met its neighbor's input channel",
        Prior.rare,
        inputs=edited(0, lambda x: np.roll(x, 1, axis=1)),
    )
    if getattr(suspect.op, "groups", 1) == 1:
        return
    yield Hypothesis(
        "input channels reversed in the groups",
        "the input channels of each group were read in reverse order",
        Prior.uncommon,
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
            "each group met its neighbor's input channels",
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
                Prior.uncommon,
                inputs=edited(1, lambda w, c=count: zeroed(w, axis, slice(channels - c, channels))),
            )
    for a in range(2, w.ndim):
        size = w.shape[a]
        for label, span in (("first", slice(0, 1)), ("last", slice(size - 1, size))):
            if size > 1:
                yield Hypothesis(
                    f"{label} tap along axis {a} ignored",
                    f"the {label} of {size} kernel positions along axis {a} was left out",
                    Prior.rare,
                    inputs=edited(1, lambda w, a=a, span=span: zeroed(w, a, span)),
                )
