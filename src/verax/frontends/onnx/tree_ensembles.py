"""Decision trees as tables of numbers, and the operators that walk through all of them at once.

The elements of every tree are numbered together, inner nodes first and leaves behind them. A walk
keeps one element for each row of features and tree, [rows, trees], and replaces it by the child
that the comparison chooses, as often as the deepest tree has levels; a leaf is its own child.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Conversion
from verax.ir.types import DType

MAX_DEPTH = 512
"""Levels of a tree; each is a handful of nodes of the graph."""
COMPARISONS = {
    "BRANCH_LEQ": "LessOrEqual",
    "BRANCH_LT": "Less",
    "BRANCH_GTE": "GreaterOrEqual",
    "BRANCH_GT": "Greater",
    "BRANCH_EQ": "Equal",
}
NOT_EQUAL, MEMBER = "BRANCH_NEQ", "BRANCH_MEMBER"
MODES = (*COMPARISONS, NOT_EQUAL, MEMBER)
"""What an inner node asks of its feature, in the order of TreeEnsemble's numbers."""
AGGREGATES = {"SUM": "ReduceSum", "AVERAGE": "ReduceSum", "MIN": "ReduceMin", "MAX": "ReduceMax"}
ABSENT = {"SUM": 0.0, "AVERAGE": 0.0, "MIN": np.inf, "MAX": -np.inf}
"""What a leaf without a weight for a target adds to an aggregate."""


@dataclass(frozen=True)
class Forest:
    """Trees as tables over all of their elements, n inner nodes and then the leaves.

    features, thresholds, modes, tracks: of the n inner nodes; tracks: whether NaN takes the true
    branch. members: of each inner node that asks for membership, the values of its set.
    true, false: children of every element. roots: one element per tree.
    weights, votes [leaves, targets]: each leaf's weight for a target, and whether it has one.
    """

    features: np.ndarray
    thresholds: np.ndarray
    modes: tuple[str, ...]
    tracks: np.ndarray
    members: Mapping[int, np.ndarray]
    true: np.ndarray
    false: np.ndarray
    roots: np.ndarray
    weights: np.ndarray
    votes: np.ndarray

    @property
    def inner(self) -> int:
        """Number of inner nodes."""
        return len(self.features)

    def depth(self) -> int:
        """Comparisons on the longest way to a leaf; raises `ModelError` for a circle."""
        front, depth = np.unique(self.roots), 0
        while (front := front[front < self.inner]).size:
            depth += 1
            if depth > self.inner:
                raise ModelError("a tree leads back to its own node")
            front = np.unique(np.concatenate([self.true[front], self.false[front]]))
        return depth

    def always_votes(self) -> np.ndarray:
        """[targets]: whether some tree has a weight for the target at each of its leaves."""
        always = np.concatenate([np.ones((self.inner, self.votes.shape[1]), bool), self.votes])
        true, false = self.true[: self.inner], self.false[: self.inner]
        for _ in range(self.depth()):  # each pass settles one more level, from the leaves up
            always[: self.inner] = always[true] & always[false]
        return always[self.roots].any(0)


def aggregated_weights(
    leaves: np.ndarray,
    targets: np.ndarray,
    weights: np.ndarray,
    shape: tuple[int, int],
    aggregate: str,
) -> tuple[np.ndarray, np.ndarray]:
    """Tables `Forest.weights` and `.votes` of a list of votes, several of which may be for one
    target at one leaf."""
    if not len(leaves) == len(targets) == len(weights):
        raise ModelError(f"{len(leaves)} leaves, {len(targets)} targets, {len(weights)} weights")
    if len(targets) and not 0 <= targets.min() <= targets.max() < shape[1]:
        raise ModelError(f"a weight is for target {targets.max()} of {shape[1]}")
    table, votes = np.full(shape, ABSENT[aggregate], weights.dtype), np.zeros(shape, bool)
    merge = {"MIN": np.minimum, "MAX": np.maximum}.get(aggregate, np.add)
    merge.at(table, (leaves, targets), weights)
    votes[leaves, targets] = True
    return table, votes


def leaves_of(c: Conversion, forest: Forest, x: str) -> str:
    """int64 [rows, trees]: the leaf that each row [rows, features] ends at."""
    depth = forest.depth()
    c.check_count(depth, MAX_DEPTH, "levels of a tree")
    width = c.type(x).dims[1]
    if forest.inner and not 0 <= forest.features.min() <= forest.features.max():
        raise ModelError(f"a tree asks for feature {forest.features.min()}")
    if forest.inner and isinstance(width, int) and forest.features.max() >= width:
        raise ModelError(f"a tree asks for feature {forest.features.max()} of {width}")
    rows = c.add("Shape", [x], end=1)
    shape = c.add("Concat", [rows, c.ints([len(forest.roots)])], axis=0)
    state = c.add("Expand", [c.constant(forest.roots, np.int64), shape])
    ask = _question(c, forest, x)
    true, false = (c.constant(child, np.int64) for child in (forest.true, forest.false))
    for _ in range(depth):
        children = [c.add("Gather", [child, state], axis=0) for child in (true, false)]
        state = c.add("Where", [ask(state), *children])
    return c.add("Sub", [state, c.like(forest.inner, state)])


def _question(c: Conversion, forest: Forest, x: str) -> Callable[[str], str]:
    """The function from elements [rows, trees] to bool: whether the true branch is taken."""
    leaves = len(forest.true) - forest.inner

    def table(values: object, dtype: object) -> str:
        """A constant over all elements; leaves, which are never asked, have zeros."""
        array = np.asarray(values)
        zeros = np.zeros((leaves, *array.shape[1:]), array.dtype)
        return c.constant(np.concatenate([array, zeros]), dtype)

    numbers = c.type(x).dtype
    features = table(forest.features, np.int64)
    thresholds = table(forest.thresholds, numbers.numpy)
    modes = sorted(set(forest.modes) - {MEMBER}, key=MODES.index)
    masks = [table([m == mode for m in forest.modes], bool) for mode in modes]
    if forest.members:
        member_mask = table([m == MEMBER for m in forest.modes], bool)
        size = max(len(values) for values in forest.members.values())
        c.check_count(len(forest.true) * size)
        sets = np.full((forest.inner, size), np.nan)
        for node, values in forest.members.items():
            sets[node, : len(values)] = values
        members = table(sets, numbers.numpy)
    tracked = table(forest.tracks, bool) if forest.tracks.any() else None

    def compared(mode: str, value: str, threshold: str) -> str:
        if mode == NOT_EQUAL:
            return c.add("Not", [c.add("Equal", [value, threshold])])
        return c.add(COMPARISONS[mode], [value, threshold])

    def ask(state: str) -> str:
        def at(of: str) -> str:
            return c.add("Gather", [of, state], axis=0)

        value, threshold = c.add("GatherElements", [x, at(features)], axis=1), at(thresholds)
        answers = [(mask, compared(mode, value, threshold)) for mode, mask in zip(modes, masks)]
        if forest.members:
            column = c.add("Unsqueeze", [value, c.ints([-1])])
            equal = c.cast(c.add("Equal", [column, at(members)]), DType.int32)
            match = c.add("ReduceMax", [equal, c.ints([-1])], keepdims=False)
            answers.append((member_mask, c.cast(match, DType.bool_)))
        answer = answers[0][1]
        for mask, candidate in answers[1:]:
            answer = c.add("Where", [at(mask), candidate, answer])
        if tracked is not None:
            missing = c.add("And", [c.add("IsNaN", [value]), at(tracked)])
            answer = c.add("Or", [answer, missing])
        return answer

    return ask


def aggregated(c: Conversion, forest: Forest, leaf: str, aggregate: str) -> str:
    """[rows, targets]: the leaves' weights over all trees, 0 for a target without any."""
    count = forest.weights.shape[1]
    kind, trees = AGGREGATES[aggregate], len(forest.roots)
    table = forest.weights[:, 0] if count == 1 else forest.weights
    weights = c.add("Gather", [c.constant(table), leaf], axis=0)
    scores = c.add(kind, [weights, c.ints([1])], keepdims=count == 1)
    if aggregate == "AVERAGE":
        scores = c.add("Div", [scores, c.like(trees, scores)])
    if aggregate in ("MIN", "MAX") and not forest.always_votes().all():
        scores = c.add("Where", [voted(c, forest, leaf), scores, c.like(0, scores)])
    return scores


def voted(c: Conversion, forest: Forest, leaf: str) -> str:
    """bool [rows, targets]: whether any of the leaves has a weight for the target."""
    votes = c.add("Gather", [c.constant(forest.votes, np.int32), leaf], axis=0)
    return c.cast(c.add("ReduceMax", [votes, c.ints([1])], keepdims=False), DType.bool_)
