"""ONNX's ensembles of decision trees (ai.onnx.ml): TreeEnsemble, and the two that it replaced,
which scikit-learn's, LightGBM's and XGBoost's exporters write. `tree_ensembles` walks them.

What the specification leaves open, a score of two classes above all, is what ONNX Runtime gives.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Conversion, Result
from verax.frontends.onnx.rows import row
from verax.frontends.onnx.table_learning import ML
from verax.frontends.onnx.tree_ensembles import (
    MEMBER,
    MODES,
    Forest,
    aggregated,
    aggregated_weights,
    leaves_of,
    voted,
)
from verax.ir.types import DType

POST_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC")
"""What may become of the scores, in the order of TreeEnsemble's numbers."""


def _features(c: Conversion) -> str:
    """The rows of features [rows, features]; integers as float32, which they are compared in."""
    type_ = c.type(0)
    if type_.rank != 2:
        raise ModelError(f"rows of features are wanted, not {type_}", place=c.node.place)
    return c.required(0) if type_.dtype.is_float else c.cast(c.required(0), DType.float32)


def _tensor(c: Conversion, name: str, default: Any = None) -> np.ndarray:
    """A list of numbers, given as numbers or, in float64, as a tensor."""
    wide = c.attributes.tensor(f"{name}_as_tensor")
    if wide is not None:
        return np.asarray(wide).reshape(-1)
    return np.array(c.attributes.numbers(name, default), np.float32)


@row("TreeEnsemble", domain=ML)
def tree_ensemble(c: Conversion) -> Result:
    """Inner nodes and leaves are numbered apart; each leaf votes for one target."""
    a = c.attributes
    a.irrelevant("nodes_hitrates", "how often a node was reached while training")
    aggregate = ("AVERAGE", "SUM", "MIN", "MAX")[_code(c, "aggregate_function", 1, 4)]
    post = POST_TRANSFORMS[_code(c, "post_transform", 0, 3)]
    numbers = {n: np.array(a.integers(f"nodes_{n}", ()), np.int64) for n in NUMBERED}
    splits, weights = a.tensor("nodes_splits"), a.tensor("leaf_weights")
    codes = np.asarray(a.tensor("nodes_modes")).reshape(-1)
    count = len(numbers["featureids"])
    tracks = np.array(a.integers("nodes_missing_value_tracks_true", (0,) * count), bool)
    if {len(v) for v in (*numbers.values(), codes, tracks, splits)} != {count}:
        raise ModelError("lists of nodes differ in length", place=c.node.place)
    if not (codes < len(MODES)).all():
        raise ModelError(f"a node has mode {codes.max()}", place=c.node.place)
    modes = tuple(MODES[code] for code in codes)
    targets = np.array(a.integers("leaf_targetids", ()), np.int64)
    true, false = (
        _children(c, numbers[f"{side}nodeids"], numbers[f"{side}leafs"], len(targets))
        for side in ("true", "false")
    )
    roots = np.array(a.integers("tree_roots", ()), np.int64)
    if not len(roots) or not 0 <= roots.min() <= roots.max() < count:
        raise ModelError(f"roots {roots[:8]} of {count} nodes", place=c.node.place)
    itself = np.arange(count, count + len(targets))
    shape = (len(targets), c.integer("n_targets", 1))
    c.check_count(shape[0] * shape[1])
    table, votes = aggregated_weights(itself - count, targets, weights, shape, aggregate)
    forest = Forest(
        features=numbers["featureids"],
        thresholds=splits,
        modes=modes,
        tracks=tracks,
        members=_members(c, modes),
        true=np.concatenate([true, itself]),
        false=np.concatenate([false, itself]),
        roots=roots,
        weights=table,
        votes=votes,
    )
    scores = aggregated(c, forest, leaves_of(c, forest, _features(c)), aggregate)
    return c.same(_transformed(c, scores, post))


NUMBERED = ("featureids", "truenodeids", "falsenodeids", "trueleafs", "falseleafs")


def _code(c: Conversion, name: str, default: int, count: int) -> int:
    code = int(c.integer(name, default))
    if not 0 <= code < count:
        c.attributes.refuse(name, f"supported: 0 to {count - 1}")
    return code


def _children(c: Conversion, numbers: np.ndarray, is_leaf: np.ndarray, leaves: int) -> np.ndarray:
    count = len(numbers)
    limits = np.where(is_leaf != 0, leaves, count)
    if ((numbers < 0) | (numbers >= limits)).any():
        raise ModelError(f"a child of {count} nodes and {leaves} leaves", place=c.node.place)
    return np.where(is_leaf != 0, numbers + count, numbers)


def _members(c: Conversion, modes: tuple[str, ...]) -> dict[int, np.ndarray]:
    """The sets of nodes that ask for membership, which NaN separates."""
    nodes = [i for i, mode in enumerate(modes) if mode == MEMBER]
    flat = c.attributes.tensor("membership_values")
    if not nodes:
        return {}
    flat = np.zeros(0) if flat is None else np.asarray(flat).reshape(-1)
    ends = np.flatnonzero(np.isnan(flat))
    sets = np.split(flat, ends)
    sets = [s[~np.isnan(s)] for s in sets]
    if len(sets) == len(nodes) + 1 and not len(sets[-1]):
        sets.pop()
    if len(sets) != len(nodes):
        raise ModelError(f"{len(sets)} sets of {len(nodes)} nodes", place=c.node.place)
    return dict(zip(nodes, sets))


# The ensembles before TreeEnsemble: nodes and leaves in one list, by tree and number


@row("TreeEnsembleRegressor", domain=ML)
def tree_regressor(c: Conversion) -> Result:
    aggregate = c.choice("aggregate_function", ("SUM", "AVERAGE", "MIN", "MAX"), "SUM")
    post, targets = c.choice("post_transform", POST_TRANSFORMS, "NONE"), c.integer("n_targets", 1)
    if targets == 1 and post != "NONE":
        c.attributes.refuse("post_transform", "ONNX Runtime leaves the score of one target as is")
    x, forest = _features(c), _classic_forest(c, "target", targets, aggregate)
    scores = aggregated(c, forest, leaves_of(c, forest, x), aggregate)
    base = _base_values(c, (targets,))
    if base is not None:
        scores = c.add("Add", [scores, c.like(base, scores)])
    return c.same(c.cast(_transformed(c, scores, post), DType.float32))


@row("TreeEnsembleClassifier", domain=ML)
def tree_classifier(c: Conversion) -> Result:
    """The label [rows] and the scores [rows, labels]. Of two labels, trees vote for the second
    one alone, as class 0; it's chosen above 0, or above 1/2 where no vote is negative."""
    a = c.attributes
    if a.has("classlabels_strings"):
        a.refuse("classlabels_strings", "text is no number; train with integers as labels")
    labels = np.array(a.integers("classlabels_int64s", ()), np.int64)
    post = c.choice("post_transform", POST_TRANSFORMS, "NONE")
    if len(labels) < 2:
        c.refuse(f"{len(labels)} classes")
    ids = set(a.integers("class_ids", ()))
    if len(labels) == 2 and ids != {0}:
        a.refuse("class_ids", "of two classes one has votes, as class 0; runtimes differ otherwise")
    x = _features(c)
    forest = _classic_forest(c, "class", 1 if len(labels) == 2 else len(labels), "SUM")
    leaf = leaves_of(c, forest, x)
    scores = aggregated(c, forest, leaf, "SUM")
    base = _base_values(c, (len(forest.weights[0]),))
    if base is not None:
        scores = c.add("Add", [scores, c.like(base, scores)])
    if len(labels) > 2:
        compared = scores
        if base is None and not forest.always_votes().all():
            lowest = c.like(-np.inf, scores)
            compared = c.add("Where", [voted(c, forest, leaf), scores, lowest])
        best = c.add("ArgMax", [compared], axis=1, keepdims=False)
        label = c.add("Gather", [c.constant(labels), best], axis=0)
        return _outputs(c, label, _transformed(c, scores, post))
    positive = bool((forest.weights >= 0).all())
    above = c.add("Greater", [scores, c.like(0.5 if positive else 0, scores)])
    above = c.add("Squeeze", [above, c.ints([1])])
    label = c.add("Where", [above, c.constant(labels[1]), c.constant(labels[0])])
    if positive and post != "LOGISTIC":
        first = c.add("Sub", [c.like(1, scores), scores])
    else:
        first = c.add("Neg", [scores])
    pair = c.add("Concat", [first, scores], axis=1)
    return _outputs(c, label, c.add("Sigmoid", [pair]) if post == "LOGISTIC" else pair)


def _outputs(c: Conversion, label: str, scores: str) -> Result:
    return c.named([label, c.cast(scores, DType.float32)])


def _base_values(c: Conversion, shape: tuple[int, ...]) -> np.ndarray | None:
    base = _tensor(c, "base_values", ())
    if not base.size:
        return None
    if base.shape != shape:
        c.attributes.refuse("base_values", f"{shape[0]} scores are computed")
    return base


def _transformed(c: Conversion, scores: str, post: str) -> str:
    if post == "NONE":
        return scores
    if post == "LOGISTIC":
        return c.add("Sigmoid", [scores])
    return c.add("Softmax", [scores], axis=1)


def _classic_forest(c: Conversion, kind: str, targets: int, aggregate: str) -> Forest:
    """The trees of nodes that a tree and a number name; `kind` is what votes are called after."""
    a = c.attributes
    for name in ("nodes_hitrates", "nodes_hitrates_as_tensor"):
        a.irrelevant(name, "how often a node was reached while training")
    trees, ids, features, true, false = (
        np.array(a.integers(f"nodes_{name}", ()), np.int64)
        for name in ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")
    )
    modes, count = a.texts("nodes_modes", ()), len(trees)
    thresholds = _tensor(c, "nodes_values", ())
    tracks = np.array(a.integers("nodes_missing_value_tracks_true", ()) or (0,) * count, bool)
    lists = (ids, features, true, false, modes, thresholds, tracks)
    if not count or {len(v) for v in lists} != {count}:
        raise ModelError("lists of nodes are empty or differ in length", place=c.node.place)
    if strange := set(modes) - {*MODES, "LEAF"} | {MEMBER} & set(modes):
        a.refuse("nodes_modes", f"there is no rule for {', '.join(sorted(strange))}")
    is_leaf = np.array([mode == "LEAF" for mode in modes])
    order = np.concatenate([np.flatnonzero(~is_leaf), np.flatnonzero(is_leaf)])
    inner = int((~is_leaf).sum())
    numbers = {key: i for i, key in enumerate(zip(trees[order].tolist(), ids[order].tolist()))}
    if len(numbers) != count:
        raise ModelError("two nodes of a tree have one number", place=c.node.place)

    def elements(of: np.ndarray, named: np.ndarray) -> np.ndarray:
        """Elements by tree and number; KeyError where there is none."""
        keys = zip(of.tolist(), named.tolist(), strict=True)
        return np.array([numbers[key] for key in keys], np.int64)

    asking = order[:inner]
    itself = np.arange(inner, count)
    children = [
        np.concatenate([elements(trees[asking], side[asking]), itself]) for side in (true, false)
    ]
    votes_of, vote_ids = (
        np.array(a.integers(f"{kind}_{name}", ()), np.int64) for name in ("treeids", "nodeids")
    )
    leaves = elements(votes_of, vote_ids) - inner
    if len(leaves) and leaves.min() < 0:
        raise ModelError("a node that is no leaf has a weight", place=c.node.place)
    c.check_count((count - inner) * targets)
    target_ids = np.array(a.integers(f"{kind}_ids", ()), np.int64)
    shape = (count - inner, targets)
    table, votes = aggregated_weights(
        leaves, target_ids, _tensor(c, f"{kind}_weights", ()), shape, aggregate
    )
    return Forest(
        features=features[asking],
        thresholds=thresholds[asking],
        modes=tuple(modes[i] for i in asking),
        tracks=tracks[asking],
        members={},
        true=children[0],
        false=children[1],
        roots=_roots(c, trees[order], *(side[:inner] for side in children)),
        weights=table,
        votes=votes,
    )


def _roots(c: Conversion, trees: np.ndarray, true: np.ndarray, false: np.ndarray) -> np.ndarray:
    """The one element of each tree that is nobody's child, from which all others are reached."""
    inner = len(true)
    roots = np.setdiff1d(np.arange(len(trees)), np.concatenate([true, false]))
    if sorted(trees[roots].tolist()) != sorted(set(trees.tolist())):
        raise ModelError("a tree has none or several roots", place=c.node.place)
    reached, front = np.zeros(len(trees), bool), roots
    while front.size:
        reached[front] = True
        front = front[front < inner]
        front = np.unique(np.concatenate([true[front], false[front]]))
        front = front[~reached[front]]
    if not reached.all():
        lost = trees[np.flatnonzero(~reached)[0]]
        raise ModelError(f"the root of tree {lost} doesn't lead to its nodes", place=c.node.place)
    return roots
