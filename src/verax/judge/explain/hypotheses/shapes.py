"""Answers of another shape: axes in another order, pads or rounding of sizes, something cut off."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np

from verax.ir.operator import Operator
from verax.judge.explain.hypotheses.base import (
    Hypothesis,
    Prior,
    Suspect,
    axis_name,
    from_inputs,
    moved,
)
from verax.ops.movement.reshaping import Flatten, Transpose
from verax.ops.movement.slicing import Concat
from verax.ops.sums.linear import Gemm
from verax.ops.sums.reduction import Reduction
from verax.ops.windows.convolution import Conv
from verax.ops.windows.deconvolution import ConvTranspose
from verax.ops.windows.pooling import Pool

MANY_RANKS = 5
"""Ranks up to which every order of the axes is tried."""


def other_shape(suspect: Suspect) -> Iterator[Hypothesis]:
    """Rivals whose output has the shape that was given, which is not the declared one."""
    yield from _orders(suspect)
    yield from _cut(suspect)
    yield from _attributes(suspect)
    yield from _axes(suspect)


def _axes(suspect: Suspect) -> Iterator[Hypothesis]:
    """A reduction over other axes, as many as the shape of the answer says."""
    op, shape = suspect.op, suspect.x.shape
    if not isinstance(op, Reduction) or len(shape) > MANY_RANKS:
        return
    every = tuple(range(len(shape)))
    actual = op.reduced_axes(len(shape), suspect.inputs[1] if suspect.has(1) else None)
    chosen = itertools.chain.from_iterable(itertools.combinations(every, n) for n in every[1:])
    for axes in (every, (), *chosen):
        for keepdims in (op.keepdims, not op.keepdims):
            left = tuple(
                1 if a in axes else n for a, n in enumerate(shape) if keepdims or a not in axes
            )
            if axes == actual or left != suspect.given.shape:
                continue
            name, words = f"over axes {axes}", f"it was computed over the axes {axes}, not {actual}"
            if axes == every:
                name = "axes ignored"
                words = f"the axes {actual} were ignored: it was computed over every axis"
            elif not axes:
                name, words = "nothing reduced", f"the axes {actual} were taken as none"
            changed = {"keepdims": keepdims, "noop_with_empty_axes": not axes}
            rival = dataclasses.replace(op, **changed)  # type: ignore[arg-type]
            yield Hypothesis(
                name,
                words,
                Prior.usual,
                op=rival,
                inputs=lambda arrays, axes=axes: [arrays[0], np.array(axes, np.int64)],
                attributes={"axes": str(axes)},
            )
            break


def _orders(suspect: Suspect) -> Iterator[Hypothesis]:
    expected, given = suspect.expected.shape, suspect.given.shape
    rank = len(expected)
    for axes in itertools.permutations(range(rank)) if rank <= MANY_RANKS else ():
        if tuple(expected[a] for a in axes) == given:
            last = axes == (0, *range(2, rank), 1)
            yield Hypothesis(
                f"axes in the order {axes}",
                f"the axes of the result lie in the order {axes}"
                + (" (channels last, NHWC)" if last else ""),
                Prior.usual if last else Prior.common,
                after=moved(lambda y, axes=axes: np.transpose(y, axes)),
                attributes={"order": str(axes)},
            )
    if int(np.prod(expected)) == int(np.prod(given)):
        yield Hypothesis(
            "another shape",
            f"the right numbers, in the shape {given} instead of {expected}",
            Prior.usual,
            after=moved(lambda y: y.reshape(given)),
        )


def _cut(suspect: Suspect) -> Iterator[Hypothesis]:
    """Less than there should be along some axes."""
    expected, given = suspect.expected.shape, suspect.given.shape
    if len(expected) != len(given) or any(g > e for g, e in zip(given, expected)):
        return
    names = ", ".join(
        axis_name(a, len(given)) for a, (g, e) in enumerate(zip(given, expected)) if g < e
    )
    ends = {
        "end": tuple(slice(0, g) for g in given),
        "begin": tuple(slice(e - g, e) for g, e in zip(given, expected)),
    }
    for end, where in ends.items():
        yield Hypothesis(
            f"cut off at the {end}",
            f"the right numbers, cut off at the {end} along: {names}",
            Prior.common,
            after=moved(lambda y, where=where: y[where]),
        )


def _attributes(suspect: Suspect) -> Iterator[Hypothesis]:
    """Other attributes, those that change the output's size."""
    op, rank = suspect.op, suspect.x.ndim
    rivals: list[tuple[str, str, Operator]] = []
    if isinstance(op, Conv | ConvTranspose | Pool):
        none = ((0, 0),) * (rank - 2)
        ones = (1,) * (rank - 2)
        rivals += [
            ("no pads", "nothing was padded (VALID)", dataclasses.replace(op, pads=none)),
            ("stride 1", "the strides were ignored", dataclasses.replace(op, strides=ones)),
            ("dilation 1", "the dilation was ignored", dataclasses.replace(op, dilations=ones)),
        ]
        for rule in ("SAME_UPPER", "SAME_LOWER"):
            changed = {"pads": rule, **({"ceil_mode": False} if isinstance(op, Pool) else {})}
            same = dataclasses.replace(op, **changed)  # type: ignore[arg-type]
            rivals.append((rule, f"the input was padded by the rule {rule}", same))
    if isinstance(op, Pool):
        other = dataclasses.replace(op, ceil_mode=not op.ceil_mode)
        rivals.append(("ceil_mode", "the output's size was rounded the other way", other))
    if isinstance(op, ConvTranspose) and op.output_padding:
        bare = dataclasses.replace(op, output_padding=())
        rivals.append(("no output_padding", "output_padding was ignored", bare))
    if isinstance(op, Gemm):
        for field in ("trans_a", "trans_b"):
            turned = dataclasses.replace(op, **{field: not getattr(op, field)})
            rivals.append((field, f"{field} was taken the other way", turned))
    if isinstance(op, Flatten):
        for axis in range(rank + 1):
            rivals.append((f"axis {axis}", f"axis was {axis}", Flatten(axis=axis)))
    if isinstance(op, Concat):
        for axis in range(rank):
            rivals.append((f"axis {axis}", f"axis was {axis}", Concat(axis=axis)))
    for name, words, rival in rivals:
        if rival != op:
            shown = {
                key: str(value)
                for key, value in rival.attributes().items()
                if value != getattr(op, key)
            }
            yield Hypothesis(name, words, Prior.usual, op=rival, attributes=shown)
    if isinstance(op, Transpose):
        for perm in itertools.permutations(range(rank)):
            if tuple(suspect.x.shape[a] for a in perm) == suspect.given.shape:
                yield Hypothesis(
                    f"permutation {perm}",
                    f"the axes were permuted by {perm}",
                    Prior.usual,
                    after=from_inputs(lambda a, perm=perm: np.transpose(a[0], perm)),
                    attributes={"perm": str(perm)},
                )
