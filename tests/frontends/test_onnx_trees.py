"""Ensembles of decision trees against ONNX Runtime on random forests, and against scikit-learn's
own answers on forests that its exporter wrote (trees.npz, by make_trees.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from verax import onnx_backend
from verax.base.errors import ModelError, UnsupportedError
from verax.frontends.onnx import load_onnx

ML = "ai.onnx.ml"
with np.load(Path(__file__).with_name("trees.npz")) as stored:
    STORED = {key: stored[key] for key in stored.files}
CLASSIC = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")
ROWS = np.random.default_rng(3410).integers(-3, 4, (7, 5)).astype(np.float32) / 2


def grown(rng: Any, trees: int, modes: tuple[str, ...], prefix: str) -> dict[str, Any]:
    """Attributes of random trees of unequal depth, whose numbers ascend, the root first."""
    nodes: dict[str, list[Any]] = {
        name: [] for name in ("treeids", "nodeids", "featureids", "values", "modes")
    } | {name: [] for name in ("truenodeids", "falsenodeids", "missing_value_tracks_true")}
    leaves: list[tuple[int, int]] = []
    for tree in range(trees):
        count = 0

        def grow(depth: int, tree: int = tree) -> int:
            nonlocal count
            number, count = count, count + 1
            leaf = depth == 0 or (depth < 3 and rng.random() < 0.3)
            place = len(nodes["treeids"])
            feature, value = int(rng.integers(5)), float(rng.integers(-2, 3)) / 2
            mode = "LEAF" if leaf else f"BRANCH_{modes[rng.integers(len(modes))]}"
            entry = (tree, number, feature, value, mode, 0, 0, int(rng.integers(2)))
            for column, item in zip(nodes.values(), entry, strict=True):
                column.append(item)
            if leaf:
                leaves.append((tree, number))
            else:
                nodes["truenodeids"][place] = grow(depth - 1)
                nodes["falsenodeids"][place] = grow(depth - 1)
            return number

        grow(4 if tree else 2)
    columns = {f"nodes_{name}": column for name, column in nodes.items()}
    return columns | {f"{prefix}_treeids": leaves, f"{prefix}_nodeids": leaves}


def forest(
    kind: str, targets: int, voted: int | None = None, low: float = -1.0, **named: Any
) -> Any:
    """A model of one node. voted: targets that a leaf may vote for, some leaves for two."""
    prefix = "class" if kind.endswith("Classifier") else "target"
    rng = np.random.default_rng([3411, targets])
    modes = named.pop("modes", CLASSIC)
    attributes = grown(rng, named.pop("trees", 4), modes, prefix)
    votes = [
        (*leaf, target)
        for leaf in attributes[f"{prefix}_treeids"]
        for target in (range(voted) if voted else rng.integers(0, targets, rng.integers(1, 3)))
    ]
    for name, column in zip(("treeids", "nodeids", "ids"), zip(*votes)):
        attributes[f"{prefix}_{name}"] = [int(v) for v in column]
    attributes[f"{prefix}_weights"] = rng.uniform(low, 1, len(votes)).tolist()
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    if prefix == "class":
        named["classlabels_int64s"] = [9, 4, 7, -2][:targets]
        outputs.insert(0, helper.make_tensor_value_info("label", TensorProto.INT64, None))
    else:
        named["n_targets"] = targets
    attributes |= named
    node = helper.make_node(
        kind, ["x"], [o.name for o in outputs], "trees", domain=ML, **attributes
    )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 5])
    graph = helper.make_graph([node], "forest", [x], outputs)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(ML, 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def must_agree(proto: onnx.ModelProto, rows: np.ndarray) -> None:
    ort = pytest.importorskip("onnxruntime")
    wanted = ort.InferenceSession(proto.SerializeToString()).run(None, {"x": rows})
    for engine in ("reference", "compiler"):
        found = onnx_backend.prepare(proto, engine=engine).run({"x": rows})
        for got, want in zip(found, wanted, strict=True):
            assert got.shape == want.shape and got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=2e-6, atol=3e-7)


@pytest.mark.parametrize("mode", [*CLASSIC, "all"])
def test_each_comparison_and_missing_values_take_onnx_runtime_s_branch(mode):
    modes = CLASSIC if mode == "all" else (mode,)
    rows = ROWS.copy()
    rows[1, 2] = rows[4, 0] = rows[5, 3] = np.nan
    must_agree(forest("TreeEnsembleRegressor", 1, voted=1, modes=modes), rows)


@pytest.mark.checkered
@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("post", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_weights_are_aggregated_over_trees(how, post):
    named = {"aggregate_function": how, "post_transform": post}
    must_agree(forest("TreeEnsembleRegressor", 3, trees=2, **named), ROWS)
    base = {"base_values": [0.5, -0.25]}
    must_agree(forest("TreeEnsembleRegressor", 2, voted=2, **base, **named), ROWS)


@pytest.mark.parametrize("post", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize(("low", "base"), [(0.0, ()), (-1.0, ()), (-1.0, (0.375,))])
def test_two_classes_have_one_score(low, base, post):
    named = {"base_values": base} if base else {}
    must_agree(
        forest("TreeEnsembleClassifier", 2, voted=1, low=low, post_transform=post, **named), ROWS
    )


@pytest.mark.parametrize("post", ["NONE", "SOFTMAX"])
@pytest.mark.parametrize("base", [(), (0.5, -1.25, 0.75, 0.125)])
def test_the_best_of_several_classes_is_named_of_those_with_votes(base, post):
    named = {"base_values": base} if base else {}
    # All votes are negative: a class without any has the largest score, and isn't chosen for it.
    for trees in (1, 4):
        proto = forest("TreeEnsembleClassifier", 4, post_transform=post, trees=trees, **named)
        weights = next(a for a in proto.graph.node[0].attribute if a.name == "class_weights")
        weights.floats[:] = [-abs(w) for w in weights.floats]
        must_agree(proto, ROWS)


MODELS = sorted({key.partition("|")[0] for key in STORED})


@pytest.mark.parametrize("name", MODELS)
def test_forests_of_scikit_learn_predict_what_scikit_learn_does(name):
    rows = STORED[f"{name}|rows"]
    for engine in ("reference", "compiler"):
        prepared = onnx_backend.prepare(
            onnx.load_from_string(STORED[f"{name}|model"].tobytes()), engine=engine
        )
        found = prepared.run([rows])
        if f"{name}|label" in STORED:
            np.testing.assert_array_equal(found[0], STORED[f"{name}|label"])
        np.testing.assert_allclose(found[-1], STORED[f"{name}|scores"], rtol=0, atol=4e-7)


def changed(proto: onnx.ModelProto, **named: Any) -> onnx.ModelProto:
    node = proto.graph.node[0]
    kept = [a for a in node.attribute if a.name not in named]
    del node.attribute[:]
    node.attribute.extend(kept + [helper.make_attribute(k, v) for k, v in named.items()])
    return proto


def test_what_has_no_rule_is_refused_by_name():
    regressor, classifier = "TreeEnsembleRegressor", "TreeEnsembleClassifier"
    for proto, said in (
        (forest(regressor, 1, post_transform="LOGISTIC"), "post_transform.*leaves the score"),
        (forest(regressor, 3, post_transform="PROBIT"), "post_transform"),
        (forest(classifier, 2), "class_ids.*of two classes"),
        (changed(forest(classifier, 3), classlabels_strings=["a", "b", "c"]), "text is no number"),
        (changed(forest(regressor, 2), base_values=[1.0]), "base_values"),
    ):
        with pytest.raises(UnsupportedError, match=said):
            load_onnx(proto)


def test_trees_that_are_none_are_an_error_of_the_file():
    good = forest("TreeEnsembleRegressor", 2)
    lists = {a.name: list(a.ints) for a in good.graph.node[0].attribute}
    circle = lists["nodes_truenodeids"].copy()
    circle[1] = 0  # the second node leads back to the root, and its own child becomes one
    far = [9] * len(lists["nodes_featureids"])
    for named, said in (
        ({"nodes_truenodeids": circle}, "root of tree 0"),
        ({"nodes_featureids": far}, "feature 9 of 5"),
        ({"target_ids": [5] * len(lists["target_ids"])}, "target 5 of 2"),
        ({"nodes_values": [1.0]}, "differ in length"),
    ):
        with pytest.raises(ModelError, match=said):
            load_onnx(changed(forest("TreeEnsembleRegressor", 2), **named))


def test_maps_and_text_say_how_to_export_without_them():
    for kind, domain, said in (
        ("ZipMap", ML, "zipmap"),
        ("StringConcat", "", "text"),
        ("ImageDecoder", "", "decode"),
        ("RandomNormal", "", "input"),
        ("RandomUniformLike", "", "random numbers as an input"),
    ):
        node = helper.make_node(kind, ["x"], ["y"], domain=domain)
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
        graph = helper.make_graph([node], "one", [x], [onnx.ValueInfoProto(name="y")])
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid(ML, 3)]
        with pytest.raises(UnsupportedError, match=kind) as caught:
            load_onnx(helper.make_model(graph, opset_imports=opsets, ir_version=9))
        assert said in caught.value.next_step


def test_an_input_of_text_says_how_to_export_without_it():
    x, y = (helper.make_tensor_value_info(v, t, [2]) for v, t in (("x", 8), ("y", 9)))
    graph = helper.make_graph([helper.make_node("Equal", ["x", "x"], ["y"])], "one", [x], [y])
    with pytest.raises(UnsupportedError, match="the input is text") as caught:
        load_onnx(helper.make_model(graph, ir_version=9))
    assert "numbers as input" in caught.value.next_step
