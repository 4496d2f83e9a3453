"""n-grams, ai.onnx.ml on numbers, steps of optimizers and caches, against ONNX Runtime or ONNX's
own evaluator where ONNX Runtime has no such operator."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from verax import onnx_backend
from verax.base.errors import UnsupportedError
from verax.frontends.onnx import load_onnx
from verax.ir.types import DType
from verax.onnx_format.dtypes import CODES


def one_node(kind: str, feed: dict[str, np.ndarray], outputs: int = 1, **named: Any) -> Any:
    """A model of one node, all of whose inputs are the network's."""
    domain, opset = named.pop("domain", ""), named.pop("opset", 18)
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(kind, list(feed), results, domain=domain, **named)
    inputs = [
        helper.make_tensor_value_info(n, CODES[DType.of(a)], a.shape) for n, a in feed.items()
    ]
    made = [onnx.ValueInfoProto(name=r) for r in results]
    opsets = [helper.make_opsetid("", opset)]
    if domain:
        opsets.append(helper.make_opsetid(domain, 1))
    graph = helper.make_graph([node], "one", inputs, made)
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def must_agree(proto: onnx.ModelProto, feed: dict[str, np.ndarray], runtime: bool = True) -> None:
    if runtime:
        ort = pytest.importorskip("onnxruntime")
        wanted = ort.InferenceSession(proto.SerializeToString()).run(None, feed)
    else:
        wanted = ReferenceEvaluator(proto).run(None, feed)
    for engine in ("reference", "compiler"):
        found = onnx_backend.prepare(proto, engine=engine).run(feed)
        for got, want in zip(found, wanted, strict=True):
            assert got.shape == want.shape and got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=4e-6)


@pytest.mark.parametrize(
    ("mode", "skips", "shape"), [("TF", 0, (3, 11)), ("IDF", 2, (13,)), ("TFIDF", 1, (2, 9))]
)
def test_n_grams_are_counted(mode, skips, shape):
    rng = np.random.default_rng(341)
    x = rng.integers(0, 4, shape)
    grams = dict(
        pool_int64s=[3, 1, 0, 2, 3, 1, 1, 2, 0, 3, 3, 1],
        ngram_counts=[0, 2, 6],
        ngram_indexes=[4, 1, 0, 6, 2, 3],
        weights=[0.5, 2.0, 1.5, 3.0, 0.25, 4.0],
    )
    limits = dict(min_gram_length=1, max_gram_length=3, max_skip_count=skips)
    must_agree(one_node("TfIdfVectorizer", {"x": x}, mode=mode, **grams, **limits), {"x": x})
    limits["min_gram_length"], limits["max_gram_length"] = 2, 2
    proto = one_node("TfIdfVectorizer", {"x": x}, mode=mode, **grams, **limits)
    must_agree(proto, {"x": x})
    unused = {e.attribute for e in load_onnx(proto).ledger.entries if e.outcome == "irrelevant"}
    assert unused == ({"weights"} if mode == "TF" else set())


def test_text_is_refused_by_name():
    grams = dict(pool_strings=["a"], ngram_counts=[0], ngram_indexes=[0], mode="TF")
    limits = dict(min_gram_length=1, max_gram_length=1, max_skip_count=0)
    proto = one_node("TfIdfVectorizer", {"x": np.zeros(4, np.int64)}, **grams, **limits)
    with pytest.raises(UnsupportedError, match="pool_strings"):
        load_onnx(proto)


def test_columns_are_picked_and_numbers_compared_with_a_threshold():
    rng = np.random.default_rng(342)
    x = rng.standard_normal((2, 3, 5)).astype(np.float32)
    must_agree(one_node("Binarizer", {"x": x}, domain="ai.onnx.ml", threshold=0.25), {"x": x})
    for given in (x, x[0, 0]):
        feed = {"x": given, "k": np.array([3, 0, 3, 1])}
        must_agree(one_node("ArrayFeatureExtractor", feed, domain="ai.onnx.ml"), feed)


MOMENTUM = {"alpha": 0.8, "beta": 0.6, "norm_coefficient": 0.3}
OPTIMIZERS: list[tuple[str, int, dict[str, Any]]] = [
    ("Adagrad", 3, {"decay_factor": 0.2, "epsilon": 1e-3, "norm_coefficient": 0.1}),
    ("Adam", 4, {"alpha": 0.8, "beta": 0.7, "epsilon": 1e-3, "norm_coefficient_post": 0.2}),
    ("Momentum", 3, {**MOMENTUM, "mode": "standard"}),
    ("Momentum", 3, {**MOMENTUM, "mode": "nesterov"}),
]


@pytest.mark.parametrize("updates", [0, 3])
@pytest.mark.parametrize(("kind", "kinds", "attributes"), OPTIMIZERS)
def test_a_step_of_an_optimizer_is_that_of_onnx(kind, kinds, attributes, updates):
    rng = np.random.default_rng(343)
    feed = {"r": np.array(0.3, np.float32), "t": np.array(updates)}
    for k in range(kinds):
        for i, shape in enumerate(((2,), (3, 4))):
            feed[f"v{k}{i}"] = (rng.random(shape) + 0.5).astype(np.float32)
    outputs = 2 * (kinds - 1)
    proto = one_node(kind, feed, outputs, domain="ai.onnx.preview.training", **attributes)
    must_agree(proto, feed, runtime=False)


@pytest.mark.parametrize(("mode", "axis"), [("linear", -2), ("circular", 1), ("circular", -2)])
def test_a_cache_is_written_from_a_place_of_each_item_on(mode, axis):
    rng = np.random.default_rng(344)
    past = rng.standard_normal((2, 5, 6, 3)).astype(np.float32)
    shape = list(past.shape)
    shape[axis] = 2
    new = rng.standard_normal(shape).astype(np.float32)
    feed = {"past": past, "new": new, "at": np.array([4 if mode == "circular" else 3, 1])}
    proto = one_node("TensorScatter", feed, mode=mode, axis=axis, opset=24)
    must_agree(proto, feed, runtime=False)
    del feed["at"]
    must_agree(one_node("TensorScatter", feed, mode=mode, axis=axis, opset=24), feed, runtime=False)


def test_an_old_operator_set_is_read_where_its_operators_never_changed():
    rng = np.random.default_rng(345)
    x = rng.random((3, 4)) > 0.5
    must_agree(one_node("Not", {"x": x}, opset=1), {"x": x}, runtime=False)
    with pytest.raises(UnsupportedError, match="opset 5 is not supported"):
        load_onnx(one_node("Relu", {"x": np.zeros(3, np.float32)}, opset=5))


SCORES = """<ir_version: 13, opset_import: ["": 26, "ai.onnx.preview": 1]>
net (float[1,2,4,8] q, float[1,2,6,8] k, float[1,2,6,8] v) => (float[1,2,4,8] y) {
    y = ai.onnx.preview.FlexAttention<score_mod: graph = capped (float[B,H,L,S] s)
        => (float[B,H,L,S] t) <float cap = {0.5}> {
        scaled = Div(s, cap)
        bent = Tanh(scaled)
        t = Mul(bent, cap)
    }>(q, k, v)
}"""


def test_a_graph_that_changes_the_scores_of_attention_is_written_into_it():
    rng = np.random.default_rng(346)
    proto = onnx.parser.parse_model(SCORES)
    q, k, v = (rng.standard_normal((1, 2, n, 8)) for n in (4, 6, 6))
    scores = 0.5 * np.tanh(q @ k.swapaxes(-1, -2) / np.sqrt(8) / 0.5)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    for engine in ("reference", "compiler"):
        (y,) = onnx_backend.prepare(proto, engine=engine).run(
            [a.astype(np.float32) for a in (q, k, v)]
        )
        np.testing.assert_allclose(y, weights @ v, rtol=1e-5, atol=1e-6)
