"""Operators that only move elements: orders, permutations, borders, offsets."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from verax.judge.explain.hypotheses.base import (
    Hypothesis,
    Prior,
    Suspect,
    edited,
    from_inputs,
    hypotheses_of,
    with_attributes,
)
from verax.ops.movement.gather import Gather
from verax.ops.movement.padding import Pad
from verax.ops.movement.reshaping import DepthToSpace, SpaceToDepth, Transpose
from verax.ops.movement.slicing import Concat, Slice, Split

MANY_RANKS = 5
"""Ranks up to which every permutation is tried."""
MANY_OPERANDS = 5
"""Operands up to which every order is tried."""


@hypotheses_of("Concat")
def concat(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on Concat: another order of the operands, another axis, one of them
    twice."""
    op, count = suspect.op, len(suspect.inputs)
    assert isinstance(op, Concat)
    orders: list[tuple[str, tuple[int, ...]]] = [("reversed", tuple(range(count))[::-1])]
    if count <= MANY_OPERANDS:
        orders += [("", p) for p in itertools.permutations(range(count))]
    else:
        orders += [("", (*range(i), i + 1, i, *range(i + 2, count))) for i in range(count - 1)]
    seen = {tuple(range(count))}
    for _, order in orders:
        if order not in seen:
            seen.add(order)
            yield Hypothesis(
                f"operands in the order {order}",
                f"the operands were joined in the order {order}",
                Prior.usual if order == orders[0][1] else Prior.common,
                inputs=lambda a, order=order: [a[i] for i in order],
            )
    for i, j in itertools.permutations(range(count if count <= MANY_OPERANDS else 0), 2):
        if suspect.inputs[i].shape == suspect.inputs[j].shape:
            yield Hypothesis(
                f"operand {j} in the place of operand {i}",
                f"operand {j} was copied into the place of operand {i}",
                Prior.uncommon,
                inputs=lambda a, i=i, j=j: [a[j] if k == i else v for k, v in enumerate(a)],
            )
    for i in range(count):
        yield Hypothesis(
            f"operand {i} not copied",
            f"the place of operand {i} was left 0",
            Prior.uncommon,
            inputs=edited(i, np.zeros_like),
        )
    for axis in range(suspect.expected.ndim):
        if axis != op.axis % suspect.expected.ndim:
            yield Hypothesis(
                f"joined along axis {axis}",
                f"the operands were joined along axis {axis}, and the numbers taken as they lie",
                Prior.common,
                after=from_inputs(
                    lambda a, axis=axis: np.concatenate(a, axis).reshape(suspect.expected.shape)
                ),
            )


@hypotheses_of("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def reordering(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on Reshape, Flatten, Squeeze, Unsqueeze: the numbers in another order."""
    x, shape = suspect.x, suspect.expected.shape
    for axes in _permutations(x.ndim):
        channels_last = axes == (0, *range(2, x.ndim), 1)
        yield Hypothesis(
            f"numbers in the order {axes}",
            f"the numbers were taken in the order of the axes {axes}"
            + (" (channels last, NHWC)" if channels_last else ""),
            Prior.usual if channels_last else Prior.common,
            after=from_inputs(lambda a, axes=axes: np.transpose(a[0], axes).reshape(shape)),
            attributes={"order": str(axes)},
        )
        yield Hypothesis(
            f"numbers read in the order {axes}",
            f"the input was read as if its axes lay in the order {axes}",
            Prior.common,
            after=from_inputs(
                lambda a, axes=axes: np.transpose(
                    a[0].reshape([a[0].shape[i] for i in axes]), np.argsort(axes)
                ).reshape(shape)
            ),
        )


def _permutations(rank: int) -> Iterator[tuple[int, ...]]:
    if rank > MANY_RANKS:
        yield (0, *range(2, rank), 1)
        return
    yield from (p for p in itertools.permutations(range(rank)) if p != tuple(range(rank)))


@hypotheses_of("Transpose")
def transpose(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on Transpose: other permutations, whatever shape they have."""
    op, rank = suspect.op, suspect.x.ndim
    assert isinstance(op, Transpose)
    actual = tuple(range(rank))[::-1] if op.perm is None else op.perm
    inverse = tuple(int(a) for a in np.argsort(actual))
    shape = suspect.expected.shape
    permutations = itertools.permutations(range(rank)) if rank <= MANY_RANKS else [inverse]
    for perm in permutations:
        if perm == actual:
            continue
        name = "inverse permutation" if perm == inverse else f"permutation {perm}"
        name = "not permuted" if perm == tuple(range(rank)) else name
        yield Hypothesis(
            name,
            f"the axes were permuted by {perm}, not {actual}",
            Prior.usual if perm == inverse else Prior.common,
            after=from_inputs(lambda a, perm=perm: np.transpose(a[0], perm).reshape(shape)),
            attributes={"perm": str(perm)},
        )


@hypotheses_of("DepthToSpace", "SpaceToDepth")
def blocks(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on DepthToSpace and SpaceToDepth."""
    op = suspect.op
    assert isinstance(op, DepthToSpace | SpaceToDepth)
    mode = "CRD" if op.mode == "DCR" else "DCR"
    yield from with_attributes(
        op, f"mode {mode}", f"the mode was {mode}, not {op.mode}", Prior.usual, mode=mode
    )
    b = op.blocksize
    if isinstance(op, DepthToSpace):

        def rearrange(x: np.ndarray) -> np.ndarray:
            n, _, h, w = x.shape
            split_shape = (n, b, b, -1, h, w) if op.mode == "DCR" else (n, -1, b, b, h, w)
            axis = 1 if op.mode == "DCR" else 2
            return x.reshape(split_shape).swapaxes(axis, axis + 1).reshape(x.shape)

        yield Hypothesis(
            "rows and columns of the block exchanged",
            "rows and columns inside the blocks were exchanged",
            Prior.common,
            inputs=edited(0, rearrange),
        )


@hypotheses_of("Pad")
def pad(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on Pad."""
    op = suspect.op
    assert isinstance(op, Pad)
    for mode in ("constant", "edge", "reflect", "wrap"):
        yield from with_attributes(
            op, f"mode {mode}", f"the mode was {mode}, not {op.mode}", Prior.usual, mode=mode
        )
    pads = np.asarray(suspect.inputs[1])
    half = pads.size // 2
    total = pads[:half] + pads[half:]
    for name, words, new_pads in (
        ("pads swapped", "begin and end of the pads were exchanged", np.roll(pads, half)),
        (
            "pads read in pairs",
            "the pads were read as pairs (begin, end) per axis",
            pads.reshape(half, 2).T.ravel() if half else pads,
        ),
        (
            "pads of the axes reversed",
            "the pads were read from the last axis on",
            np.concatenate([pads[:half][::-1], pads[half:][::-1]]),
        ),
        (
            "all pads at the end",
            "nothing was padded at the begin, all of it at the end",
            np.concatenate([0 * total, total]),
        ),
        (
            "pads halved evenly",
            "the pads were shared evenly between begin and end",
            np.concatenate([total // 2, total - total // 2]),
        ),
    ):
        if not np.array_equal(new_pads, pads):
            yield Hypothesis(
                name,
                words,
                Prior.usual,
                inputs=edited(1, lambda v, new_pads=new_pads: new_pads),
                attributes={"pads": str(new_pads.tolist())},
            )
    if suspect.has(2) and np.any(suspect.inputs[2]):
        yield Hypothesis(
            "padded with zeros",
            "zeros were padded, not the value that is given",
            Prior.usual,
            inputs=edited(2, np.zeros_like),
            attributes={"constant_value": "0"},
        )
    if op.mode == "constant" and suspect.actual.shape == suspect.expected.shape:
        yield from _fill(suspect)


def _fill(suspect: Suspect) -> Iterator[Hypothesis]:
    """The one number that the subject has everywhere where it differs."""
    wrong = suspect.actual[suspect.actual != suspect.expected]
    if wrong.size < 2 or not (wrong == wrong[0]).all():
        return
    value = wrong[0]
    yield Hypothesis(
        "padded with another value",
        f"{value:g} was padded",
        Prior.common,
        inputs=lambda a: [a[0], a[1], np.asarray(value), *a[3:]],
        attributes={"constant_value": f"{value:g}"},
        fitted=1,
    )


@hypotheses_of("Slice")
def cut(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on Slice: off by one, counted from the other end, without steps."""
    op = suspect.op
    assert isinstance(op, Slice)
    count = np.asarray(suspect.inputs[1]).size
    for i in range(count):
        for by in (-1, 1):

            def shift_limit(arrays: list, i: int = i, by: int = by) -> list:
                a: list[Any] = [None if v is None else np.array(v) for v in arrays]
                a[1][i] += by
                a[2][i] += by
                return a

            yield Hypothesis(
                f"start {i} off by {by}",
                f"the slice began {'one later' if by > 0 else 'one earlier'} along its axis {i}",
                Prior.usual,
                inputs=shift_limit,
            )
    if count > 1:
        yield Hypothesis(
            "axes exchanged",
            "the slices of the axes were exchanged",
            Prior.common,
            inputs=lambda a: [a[0], a[1][::-1], a[2][::-1], *a[3:]],
        )
    yield Hypothesis(
        "first elements",
        "the first elements were taken",
        Prior.common,
        after=from_inputs(lambda a: a[0][tuple(slice(0, n) for n in suspect.expected.shape)]),
    )


@hypotheses_of("Split")
def split(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on Split: another part."""
    op = suspect.op
    assert isinstance(op, Split)
    for i, output in enumerate(suspect.meaning.outputs):
        if i != suspect.output and output.shape == suspect.expected.shape:
            axis = op.axis % suspect.x.ndim
            start = sum(p.shape[axis] for p in suspect.meaning.outputs[:i])
            span = (slice(None),) * axis + (slice(start, start + output.shape[axis]),)
            yield Hypothesis(
                f"part {i}",
                f"part {i} was given in the place of part {suspect.output}",
                Prior.usual,
                after=from_inputs(lambda a, span=span: a[0][span]),
            )


def _rows_off(indices: np.ndarray, *, by: int, size: int) -> np.ndarray:
    """Indices into a table of `size` rows, each off by `by`, around the end."""
    shifted: np.ndarray = (indices + by) % max(1, size)
    return shifted


@hypotheses_of("Gather")
def gather(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on Gather: another axis, indices or rows off by one, negative ones taken as
    0."""
    op = suspect.op
    assert isinstance(op, Gather)
    for axis in range(suspect.x.ndim):
        if axis != op.axis % suspect.x.ndim:
            yield from with_attributes(
                op, f"axis {axis}", f"it was gathered along axis {axis}", Prior.usual, axis=axis
            )
    size = suspect.x.shape[op.axis]
    changes: tuple[tuple[str, str, Callable[..., Any]], ...] = (
        (
            "indices off by 1",
            "every index was one too large",
            lambda i: np.minimum(i + 1, size - 1),
        ),
        ("indices off by -1", "every index was one too small", lambda i: np.maximum(i - 1, 0)),
        *(
            (
                f"rows of the table off by {by}",
                f"every index took the row {'after' if by > 0 else 'before'} its own, around the "
                "end of the table",
                partial(_rows_off, by=by, size=size),
            )
            for by in (1, -1)
        ),
        ("negative indices as 0", "negative indices were taken as 0", lambda i: np.maximum(i, 0)),
        (
            "negative indices as positive",
            "negative indices lost their sign",
            lambda i: np.minimum(np.abs(i), size - 1),
        ),
        ("indices reversed", "the indices were read backwards", np.flip),
    )
    for name, words, change in changes:
        yield Hypothesis(name, words, Prior.usual, inputs=edited(1, change))
