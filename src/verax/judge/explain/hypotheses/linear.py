"""Matrix products: transposes, layouts of the weights, bias, alpha and beta, terms left out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from verax.judge.explain.hypotheses.base import (
    Edit,
    Hypothesis,
    Prior,
    Suspect,
    edited,
    hypotheses_of,
    zeroed,
)
from verax.judge.explain.hypotheses.filters import BLOCKS
from verax.judge.explain.hypotheses.fourier import chirp
from verax.ops.sums.linear import Gemm, MatMul

LONG_BLOCKS = (64, 128, 256)
"""Products that the kernels of GPUs sum before the next ones are read."""
BYTE_BLOCKS = (16, 32, 64, 128, 256)
"""Neighbors in a row that share a scale where products take their inputs in bytes."""
FACTORIZATIONS = 24
"""Ways to split the features into channels and places that are tried, the smallest first."""


@hypotheses_of("Gemm")
def gemm(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on Gemm."""
    op = suspect.op
    assert isinstance(op, Gemm)
    a, b = suspect.inputs[:2]
    for field, matrix, label in (("trans_a", a, "first"), ("trans_b", b, "second")):
        if matrix.shape[0] == matrix.shape[1]:
            changed = not getattr(op, field)
            yield Hypothesis(
                f"{label} matrix transposed",
                f"{field} was taken as {changed}",
                Prior.usual,
                op=dataclasses.replace(op, **{field: changed}),
                attributes={field: str(changed)},
            )
    for field in ("alpha", "beta"):
        if getattr(op, field) != 1 and (field == "alpha" or suspect.has(2)):
            yield Hypothesis(
                f"{field} ignored",
                f"{field} was taken as 1, not {getattr(op, field):g}",
                Prior.usual,
                op=dataclasses.replace(op, **{field: 1.0}),  # type: ignore[arg-type]
                attributes={field: "1"},
            )
    if op.alpha != op.beta and suspect.has(2):
        yield Hypothesis(
            "alpha and beta exchanged",
            "alpha and beta were exchanged",
            Prior.common,
            op=Gemm(alpha=op.beta, beta=op.alpha, trans_a=op.trans_a, trans_b=op.trans_b),
            attributes={"alpha": f"{op.beta:g}", "beta": f"{op.alpha:g}"},
        )
    if op.alpha != 1 and suspect.has(2):
        yield Hypothesis(
            "alpha applied to the bias too",
            "the bias was multiplied by alpha as well",
            Prior.common,
            op=dataclasses.replace(op, beta=op.beta * op.alpha),
        )
    yield from _biases(suspect)
    yield from _layouts(b)
    yield from _features(suspect, a.shape[0 if op.trans_a else 1], 0 if op.trans_a else 1)
    yield from _blocks_of_bytes(a, 0 if op.trans_a else 1)


@hypotheses_of("MatMul")
def matmul(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on MatMul."""
    assert isinstance(suspect.op, MatMul)
    for index, label in ((0, "first"), (1, "second")):
        matrix = suspect.inputs[index]
        if matrix.ndim >= 2 and matrix.shape[-1] == matrix.shape[-2]:
            yield Hypothesis(
                f"{label} matrix transposed",
                f"the {label} matrix was transposed",
                Prior.usual,
                inputs=edited(index, lambda m: np.swapaxes(m, -1, -2)),
            )
    if suspect.inputs[0].shape == suspect.inputs[1].shape[::-1] or (
        suspect.inputs[0].shape == suspect.inputs[1].shape
    ):
        yield Hypothesis(
            "factors exchanged",
            "the factors were exchanged",
            Prior.common,
            inputs=lambda a: a[::-1],
        )
    yield from _layouts(suspect.inputs[1])
    yield from _features(suspect, suspect.x.shape[-1], suspect.x.ndim - 1)
    yield from _blocks_of_bytes(suspect.x, suspect.x.ndim - 1)
    yield from chirp(suspect)


def _biases(suspect: Suspect) -> Iterator[Hypothesis]:
    if not suspect.has(2):
        return
    changes: tuple[tuple[str, str, Prior, Callable[[Any], Any]], ...] = (
        ("bias missing", "the bias was not added", Prior.usual, lambda c: None),
        ("bias doubled", "the bias was added twice", Prior.usual, lambda c: c * 2),
        ("bias subtracted", "the bias was subtracted", Prior.uncommon, np.negative),
        ("bias reversed", "the bias was read backwards", Prior.rare, np.flip),
        (
            "bias shifted",
            "each output got its neighbor's bias",
            Prior.uncommon,
            lambda c: np.roll(c, 1, axis=-1 if c.ndim else None),
        ),
    )
    for name, words, prior, change in changes:
        yield Hypothesis(name, words, prior, inputs=edited(2, change))
    c, shape = suspect.inputs[2], suspect.expected.shape
    if c.size == max(c.shape, default=1) and c.size in shape and c.size > 1:
        for axis in (0, 1):
            if shape[axis] == c.size:
                target = (-1, 1) if axis == 0 else (1, -1)
                yield Hypothesis(
                    f"bias along axis {axis}",
                    f"the bias was stretched along axis {axis}",
                    Prior.common,
                    inputs=edited(2, lambda c, t=target: c.reshape(t)),
                )


def _layouts(b: np.ndarray) -> Iterator[Hypothesis]:
    """The second matrix read from the other layout without moving its numbers."""
    if b.ndim < 2 or 1 in b.shape[-2:]:
        return
    transposed_shape = (*b.shape[:-2], b.shape[-1], b.shape[-2])
    yield Hypothesis(
        "weights transposed where they lie",
        "the weights were stored transposed and read as if they were not",
        Prior.usual,
        inputs=edited(1, lambda b: np.swapaxes(b, -1, -2).reshape(b.shape)),
    )
    yield Hypothesis(
        "weights read transposed",
        "the weights were read as if they were stored transposed",
        Prior.usual,
        inputs=edited(1, lambda b: np.swapaxes(b.reshape(transposed_shape), -1, -2)),
    )


def _features(suspect: Suspect, k: int, axis: int) -> Iterator[Hypothesis]:
    """The shared axis in another order, or not all of it."""
    tails = {t: f"last {t}" for block in (*BLOCKS, *LONG_BLOCKS) if 0 < (t := k % block) < k}
    for count, label in {**tails, **({1: "last 1"} if k > 1 else {})}.items():
        yield Hypothesis(
            f"{label} features ignored",
            f"the {label} of {k} terms of each sum were left out",
            Prior.uncommon,
            inputs=edited(0, lambda a, c=count: zeroed(a, axis, slice(k - c, k))),
        )
    yield Hypothesis(
        "features reversed",
        "the features were read backwards",
        Prior.rare,
        inputs=edited(0, lambda a: np.flip(a, axis)),
    )
    splits = [c for c in range(2, k // 2 + 1) if k % c == 0]
    for channels in splits[:FACTORIZATIONS]:
        yield Hypothesis(
            f"features as [{channels}, {k // channels}] transposed",
            f"the {k} features were taken as {channels} channels by {k // channels} places in the "
            "other order (channels last for first, or reverse)",
            Prior.common,
            inputs=_features_reordered(axis, channels),
        )


def _blocks_of_bytes(a: np.ndarray, axis: int) -> Iterator[Hypothesis]:
    """The first factor in bytes, as kernels for weights of few bits compute with."""
    if a.dtype.kind != "f" or not a.size:
        return
    k = a.shape[axis]
    for size in (*(s for s in BYTE_BLOCKS if s < k), k):
        blocks = "by rows" if size == k else f"in blocks of {size}"
        yield Hypothesis(
            f"inputs rounded to bytes {blocks}",
            f"the {k} terms of each row were rounded to bytes {blocks}, the largest of "
            f"{'them' if size == k else 'a block'} being 127, as products with weights of few bits "
            "do in some runtimes; the file asks for floating point",
            Prior.common,
            inputs=edited(0, lambda a, s=size: symmetric_bytes(a, axis, s)),
        )


def symmetric_bytes(a: np.ndarray, axis: int, size: int) -> np.ndarray:
    """The numbers on a grid of 255, by `size` neighbors along `axis`: multiples of the largest
    of them / 127, in float64."""
    rows = np.moveaxis(a.astype(np.float64), axis, -1)
    k = rows.shape[-1]
    padded = np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, -k % size)])
    blocks = padded.reshape(*rows.shape[:-1], -1, size)
    scale = np.abs(blocks).max(-1, keepdims=True) / 127
    bytes_ = np.rint(blocks / np.where(scale == 0, 1.0, scale)) * scale
    return np.moveaxis(bytes_.reshape(padded.shape)[..., :k], -1, axis)


def _features_reordered(axis: int, channels: int) -> Edit:
    def turn(a: np.ndarray) -> np.ndarray:
        split_shape = (*a.shape[:axis], channels, a.shape[axis] // channels, *a.shape[axis + 1 :])
        return a.reshape(split_shape).swapaxes(axis, axis + 1).reshape(a.shape)

    return edited(0, turn)
