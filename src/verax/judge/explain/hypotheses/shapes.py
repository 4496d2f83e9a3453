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
    rearranged,
)
from verax.ops.images.resize import Resize
from verax.ops.movement.reshaping import Flatten, Transpose
from verax.ops.movement.slicing import Concat
from verax.ops.recurrent.recurrent import Recurrent
from verax.ops.sums.linear import Gemm
from verax.ops.sums.reduction import Reduction
from verax.ops.windows.convolution import Conv
from verax.ops.windows.deconvolution import ConvTranspose
from verax.ops.windows.pooling import MaxPool, Pool

MANY_RANKS = 5
"""Ranks up to which every order of the axes is tried."""


def other_shape(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses whose output has the actual shape, which is not the declared one."""
    yield from _orders(suspect)
    yield from _cut(suspect)
    yield from _attributes(suspect)
    yield from _axes(suspect)
    yield from _windows_behind(suspect)


def _axes(suspect: Suspect) -> Iterator[Hypothesis]:
    """A reduction over other axes, as many as the shape of the answer says."""
    op, shape = suspect.op, suspect.x.shape
    if not isinstance(op, Reduction) or len(shape) > MANY_RANKS:
        return
    all_axes = tuple(range(len(shape)))
    actual = op.reduced_axes(len(shape), suspect.inputs[1] if suspect.has(1) else None)
    subsets = itertools.chain.from_iterable(
        itertools.combinations(all_axes, n) for n in all_axes[1:]
    )
    for axes in (all_axes, (), *subsets):
        for keepdims in (op.keepdims, not op.keepdims):
            left = tuple(
                1 if a in axes else n for a, n in enumerate(shape) if keepdims or a not in axes
            )
            if axes == actual or left != suspect.actual.shape:
                continue
            name, words = f"over axes {axes}", f"it was computed over the axes {axes}, not {actual}"
            if axes == all_axes:
                name = "axes ignored"
                words = f"the axes {actual} were ignored: it was computed over every axis"
            elif not axes:
                name, words = "nothing reduced", f"the axes {actual} were taken as none"
            changed = {"keepdims": keepdims, "noop_with_empty_axes": not axes}
            alternative = dataclasses.replace(op, **changed)  # type: ignore[arg-type]
            yield Hypothesis(
                name,
                words,
                Prior.usual,
                op=alternative,
                inputs=lambda arrays, axes=axes: [arrays[0], np.array(axes, np.int64)],
                attributes={"axes": str(axes)},
            )
            break


def _windows_behind(suspect: Suspect) -> Iterator[Hypothesis]:
    """A max-pool that keeps windows which begin behind the input: they hold the lowest number."""
    op, actual, expected = suspect.op, suspect.actual, suspect.expected
    if not isinstance(op, MaxPool) or not op.ceil_mode or actual.ndim != expected.ndim:
        return
    if actual.dtype.kind != "f" or any(a < e for a, e in zip(actual.shape, expected.shape)):
        return
    lowest = float(np.finfo(actual.dtype).min)
    for value in (lowest, -np.inf, 0.0):
        widths = [(0, a - e) for a, e in zip(actual.shape, expected.shape)]
        yield Hypothesis(
            f"windows behind the input, {value:g}",
            "windows that begin behind the input and its pads were kept, where ceil_mode leaves "
            f"them out; they hold {value:.7g}",
            Prior.usual,
            after=rearranged(lambda y, w=widths, v=value: np.pad(y, w, constant_values=v)),
        )


def _orders(suspect: Suspect) -> Iterator[Hypothesis]:
    expected, actual = suspect.expected.shape, suspect.actual.shape
    rank = len(expected)
    for axes in itertools.permutations(range(rank)) if rank <= MANY_RANKS else ():
        if tuple(expected[a] for a in axes) == actual:
            last = axes == (0, *range(2, rank), 1)
            yield Hypothesis(
                f"axes in the order {axes}",
                f"the axes of the result lie in the order {axes}"
                + (" (channels last, NHWC)" if last else ""),
                Prior.usual if last else Prior.common,
                after=rearranged(lambda y, axes=axes: np.transpose(y, axes)),
                attributes={"order": str(axes)},
            )
    if int(np.prod(expected)) == int(np.prod(actual)):
        yield Hypothesis(
            "another shape",
            f"the right numbers, in the shape {actual} instead of {expected}",
            Prior.usual,
            after=rearranged(lambda y: y.reshape(actual)),
        )


def _cut(suspect: Suspect) -> Iterator[Hypothesis]:
    """Less than there should be along some axes."""
    expected, actual = suspect.expected.shape, suspect.actual.shape
    if len(expected) != len(actual) or any(g > e for g, e in zip(actual, expected)):
        return
    names = ", ".join(
        axis_name(a, len(actual)) for a, (g, e) in enumerate(zip(actual, expected)) if g < e
    )
    ends = {
        "end": tuple(slice(0, g) for g in actual),
        "begin": tuple(slice(e - g, e) for g, e in zip(actual, expected)),
    }
    for end, span in ends.items():
        yield Hypothesis(
            f"cut off at the {end}",
            f"the right numbers, cut off at the {end} along: {names}",
            Prior.common,
            after=rearranged(lambda y, span=span: y[span]),
        )


def _attributes(suspect: Suspect) -> Iterator[Hypothesis]:
    """Other attributes, those that change the output's size."""
    op, rank = suspect.op, suspect.x.ndim
    alternatives: list[tuple[str, str, Operator]] = []
    if isinstance(op, Conv | ConvTranspose | Pool):
        none = ((0, 0),) * (rank - 2)
        ones = (1,) * (rank - 2)
        alternatives += [
            ("no pads", "nothing was padded (VALID)", dataclasses.replace(op, pads=none)),
            ("stride 1", "the strides were ignored", dataclasses.replace(op, strides=ones)),
            ("dilation 1", "the dilation was ignored", dataclasses.replace(op, dilations=ones)),
        ]
        for rule in ("SAME_UPPER", "SAME_LOWER"):
            changed = {"pads": rule, **({"ceil_mode": False} if isinstance(op, Pool) else {})}
            same = dataclasses.replace(op, **changed)  # type: ignore[arg-type]
            alternatives.append((rule, f"the input was padded by the rule {rule}", same))
    if isinstance(op, Pool):
        other_rounding = dataclasses.replace(op, ceil_mode=not op.ceil_mode)
        alternatives.append(
            ("ceil_mode", "the output's size was rounded the other way", other_rounding)
        )
    if isinstance(op, ConvTranspose) and op.output_padding:
        bare = dataclasses.replace(op, output_padding=())
        alternatives.append(("no output_padding", "output_padding was ignored", bare))
    if isinstance(op, Gemm):
        for field in ("trans_a", "trans_b"):
            transposed = dataclasses.replace(op, **{field: not getattr(op, field)})
            alternatives.append((field, f"{field} was taken the other way", transposed))
    if isinstance(op, Recurrent):
        other_layout = dataclasses.replace(op, layout=1 - op.layout)
        alternatives.append(
            ("layout", f"layout was {1 - op.layout}, not {op.layout}: time and batch lie otherwise",
             other_layout)
        )  # fmt: skip
    if isinstance(op, Resize) and op.keep_aspect_ratio_policy != "stretch":
        stretched = dataclasses.replace(op, keep_aspect_ratio_policy="stretch")
        alternatives.append(("stretch", "keep_aspect_ratio_policy was ignored", stretched))
    if isinstance(op, Flatten):
        for axis in range(rank + 1):
            alternatives.append((f"axis {axis}", f"axis was {axis}", Flatten(axis=axis)))
    if isinstance(op, Concat):
        for axis in range(rank):
            alternatives.append((f"axis {axis}", f"axis was {axis}", Concat(axis=axis)))
    for name, words, alternative in alternatives:
        if alternative != op:
            attributes = {
                key: str(value)
                for key, value in alternative.attributes().items()
                if value != getattr(op, key)
            }
            yield Hypothesis(name, words, Prior.usual, op=alternative, attributes=attributes)
    if isinstance(op, Transpose):
        for perm in itertools.permutations(range(rank)):
            if tuple(suspect.x.shape[a] for a in perm) == suspect.actual.shape:
                yield Hypothesis(
                    f"permutation {perm}",
                    f"the axes were permuted by {perm}",
                    Prior.usual,
                    after=from_inputs(lambda a, perm=perm: np.transpose(a[0], perm)),
                    attributes={"perm": str(perm)},
                )
