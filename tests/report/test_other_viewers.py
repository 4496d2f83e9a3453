"""Verdicts in the viewers that people have: node data for Model Explorer, metadata for Netron."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.report.page.networks import judged, residual_network
from tests.report.page.test_page import RECORDS, bisection

import verax
from verax.base.errors import ModelError, UsageError
from verax.records.verdict import Verdict
from verax.report.model_explorer import COLORS, node_data
from verax.report.netron import annotated_path, write_annotated

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


def test_values_and_colors_by_output_tensor() -> None:
    verdict = bisection().verdict
    data = json.loads(node_data(bisection()))
    assert data.keys() == {"name", "results"} and "onnxruntime" in data["name"]
    assert data["results"].keys() == {f.value for f in verdict.nodes}
    faulty = data["results"][verdict.blame[0].value]
    assert faulty == {"value": 812.5, "bgColor": COLORS["mistake"], "textColor": "#1b2430"}
    assert {r["bgColor"] for r in data["results"].values()} <= set(COLORS.values())


def test_infinities_are_numbers_there() -> None:
    verdict = judged(residual_network(1))
    nodes = (dataclasses.replace(verdict.nodes[0], statistic=math.inf), *verdict.nodes[1:])
    text = node_data(dataclasses.replace(verdict, nodes=nodes))
    assert "Infinity" not in text and json.loads(text)["results"][nodes[0].value]["value"] > 1e9


def test_times_have_no_nodes() -> None:
    with pytest.raises(UsageError, match="single nodes"):
        node_data(RECORDS["benchmark"]())


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """relu(x @ w), whose Relu a subject leaves out."""
    w = np.random.default_rng(2).standard_normal((5, 7)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="product"),
        helper.make_node("Relu", ["m"], ["y"], name="relu"),
    ]
    types = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, [3, s]) for n, s in (("x", 5), ("y", 7))
    ]
    graph = helper.make_graph(nodes, "g", types[:1], types[1:], [numpy_helper.from_array(w, "w")])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), tmp_path / "net.onnx"
    )
    return tmp_path / "net.onnx"


def verdict_on(model: Path) -> Verdict:
    loaded = verax.load(model)
    x = np.random.default_rng(4).standard_normal((3, 5)).astype(np.float32)
    values = verax.reference(loaded, {"x": x}, keep="all")
    m = np.asarray(values["m"], np.float32)
    np.savez(model.with_name("seen.npz"), **{"in:x": x, "m": m, "y": m})
    return verax.check(loaded, str(model.with_name("seen.npz")))


def test_metadata_says_the_verdict_of_each_node(model: Path) -> None:
    target = annotated_path(model)
    assert target.name == "net.verdict.onnx"
    write_annotated(verdict_on(model), model, target)
    proto = onnx.load(target)
    onnx.checker.check_model(proto)
    product, relu = ({p.key: p.value for p in n.metadata_props} for n in proto.graph.node)
    assert product["verax.verdict"] in ("rounding", "identical")
    assert relu["verax.verdict"] == "mistake" and "nothing may differ" in relu["verax.reason"]
    assert {p.key: p.value for p in proto.metadata_props}["verax.verdict"] == "mistake"
    write_annotated(verdict_on(model), target, target)  # again: replaced, not added
    again = onnx.load(target)
    assert [len(n.metadata_props) for n in again.graph.node] == [len(product), len(relu)]
    del proto.metadata_props[:]
    for node in proto.graph.node:
        del node.metadata_props[:]
    assert proto == onnx.load(model), "nothing but the metadata is another"


def test_nodes_that_were_judged_together_say_so(tmp_path: Path) -> None:
    (tmp_path / "digits.onnx").write_bytes(DIGITS.read_bytes())
    verdict = verax.check(tmp_path / "digits.onnx", "verax:O2", seed=6)
    together = {name: f for f in verdict.nodes for name in f.region}
    own = {f.node for f in verdict.nodes}
    inner = [name for name in together if name not in own]
    assert "stem" in inner
    write_annotated(verdict, tmp_path / "digits.onnx", tmp_path / "a.onnx")
    nodes = {n.name: n.metadata_props for n in onnx.load(tmp_path / "a.onnx").graph.node}
    stem = {p.key: p.value for p in nodes["stem"]}
    assert stem["verax.judged_with"] == together["stem"].node == "stem_bn"
    assert stem["verax.verdict"] == together["stem"].kind.value
    results = json.loads(node_data(verdict))["results"]
    assert results["stem"] == results["stem_bn"]


def test_other_files_are_refused(model: Path, tmp_path: Path) -> None:
    verdict = judged(residual_network(1))
    with pytest.raises(ModelError, match="none of the judged values"):
        write_annotated(verdict, model, tmp_path / "a.onnx")
    (tmp_path / "text.onnx").write_text("no model")
    with pytest.raises(ModelError, match="no ONNX model"):
        write_annotated(verdict, tmp_path / "text.onnx", tmp_path / "a.onnx")
    assert not (tmp_path / "a.onnx").exists()
