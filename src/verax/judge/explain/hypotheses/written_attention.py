"""Attention that a network writes out as operators: another scale, another mask, keys left out.

A kernel's likely mistakes concern the whole: its scale, the keys that it hides, where its loop over
keys ends. Each changes the scores that the Softmax reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from verax.ir.graph import Node
from verax.judge.explain.attention_scores import Scores
from verax.judge.explain.hypotheses.base import Prior
from verax.judge.explain.region_hypothesis import RegionHypothesis

Values = Mapping[str, np.ndarray]
Evaluated = Callable[[Node, Values], np.ndarray]
"""The first result of a node."""
BLOCKS = (256, 128, 64, 32, 16, 8, 4)
"""Keys that a kernel takes at a time."""


def written_attention(
    nodes: Sequence[Node],
    scores: Scores,
    truth: Values,
    evaluated: Evaluated,
    sigma: np.ndarray | None,
) -> Iterator[RegionHypothesis]:
    """Yield hypotheses on one attention of a region. truth: the values of the region, constants
    too; sigma: of the rounding of the product that gives the scores."""
    product = nodes[scores.product]
    for words, factor in scores.scales():
        yield RegionHypothesis(
            f"scale of attention: {words.partition(':')[0]}",
            f"the scores of {product.place} were scaled otherwise ({words})",
            Prior.usual,
            scores.product,
            partial(_scaled, evaluated, product, factor),
            sigma=None if sigma is None else factor * sigma,
            is_whole=True,
        )
    if scores.masked is not None:
        yield from _masks(nodes, scores, truth)
    yield from _left_out(nodes, scores, truth, evaluated)


def _scaled(evaluated: Evaluated, node: Node, factor: float, values: Values) -> np.ndarray:
    return factor * evaluated(node, values)


def _masks(nodes: Sequence[Node], scores: Scores, truth: Values) -> Iterator[RegionHypothesis]:
    assert scores.masked is not None
    step, operand = scores.masked
    node, scores_place = nodes[step], nodes[scores.product].place
    unmasked = str(node.inputs[scores.unmasked])
    shape = truth[node.outputs[0]].shape
    mask = truth[str(node.inputs[operand])]

    def hypothesis(name: str, words: str, masks: np.ndarray | None) -> RegionHypothesis:
        def value(values: Values) -> np.ndarray:
            x = values[unmasked]
            if masks is None:
                return np.broadcast_to(x, shape)
            if masks.dtype == bool:
                hidden = np.asarray(values[str(node.inputs[2])], np.float64)
                return np.where(masks, x, hidden)
            return x + masks.astype(np.float64)

        return RegionHypothesis(
            f"mask of attention {name}", words, Prior.usual, step, value, is_whole=True
        )

    yield hypothesis(
        "missing",
        f"the mask that {node.place} lays over the scores of {scores_place} was left out",
        None,
    )
    inverted = _inverted(mask)
    if inverted is not None:
        words = f"the mask over the scores of {scores_place} hid what it should have kept"
        yield hypothesis("inverted", words, inverted)
    for axis, line in ((-1, "key"), (-2, "query")):
        if mask.ndim < -axis or mask.shape[axis] < 2:
            continue
        for by in (1, -1):
            direction = "later" if by > 0 else "earlier"
            yield hypothesis(
                f"shifted to the {direction} {line}",
                f"the mask over the scores of {scores_place} was shifted by one: what it says of a "
                f"{line} was taken for the {line} one {direction}",
                _shifted(mask, by, axis),
            )


def _inverted(mask: np.ndarray) -> np.ndarray | None:
    """The mask that hides what this one keeps; None where it hides by numbers of several kinds."""
    if mask.dtype == bool:
        return ~mask
    visible = mask == 0
    hidden = np.unique(mask[~visible])
    return np.where(visible, hidden[0], 0) if hidden.size == 1 else None


def _shifted(mask: np.ndarray, by: int, axis: int) -> np.ndarray:
    """The mask moved by one along an axis. What enters at the edge is the neighbor's along the
    other axis, as on a diagonal, and in the corner what was there."""
    across = -3 - axis
    shifted = np.roll(mask, by, axis)
    edge: list[slice] = [slice(None)] * mask.ndim
    edge[axis] = slice(0, 1) if by > 0 else slice(-1, None)
    own = mask[tuple(edge)]
    if mask.ndim > 1 and mask.shape[across] > 1:
        corner: list[slice] = [slice(None)] * mask.ndim
        corner[across] = slice(-1, None) if by > 0 else slice(0, 1)
        entering = np.roll(own, -by, across)
        entering[tuple(corner)] = own[tuple(corner)]
        own = entering
    shifted[tuple(edge)] = own
    if mask.dtype == bool:  # a query without keys is no number, and would show as that
        shifted = np.where(shifted.any(axis=-1, keepdims=True), shifted, mask)
    return shifted


def _left_out(
    nodes: Sequence[Node], scores: Scores, truth: Values, evaluated: Evaluated
) -> Iterator[RegionHypothesis]:
    """Yield hypotheses that keys were left out: the last or the first, or what is left of the last
    block; and the same of the sum over keys in the scores' own product."""
    last, scores_place = nodes[scores.last], nodes[scores.product].place
    keys = truth[last.outputs[0]].shape[-1]
    ends: dict[int, str] = {}
    for block in BLOCKS:
        end = keys // block * block
        if 0 < end < keys:
            ends.setdefault(end, f"the last {keys - end} of {keys} keys, behind blocks of {block},")
    ends[keys - 1] = f"the last of {keys} keys"

    def hidden(selected: np.ndarray, values: Values) -> np.ndarray:
        return np.where(selected, -np.inf, evaluated(last, values))

    for end, words in ends.items():
        are_ = "were" if keys - end > 1 else "was"
        yield RegionHypothesis(
            f"attention without the last {keys - end} keys",
            f"{words} {are_} left out of the attention of {scores_place}",
            Prior.usual,
            scores.last,
            partial(hidden, np.arange(keys) >= end),
            is_whole=True,
        )
    yield RegionHypothesis(
        "attention without the first key",
        f"the first of {keys} keys was left out of the attention of {scores_place}",
        Prior.common,
        scores.last,
        partial(hidden, np.arange(keys) == 0),
        is_whole=True,
    )
