"""Sequences and optionals of ONNX, which are decided while a file is read, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import verax
from verax import onnx_backend
from verax.base.errors import ModelError, UnsupportedError, UsageError
from verax.frontends.onnx import load_onnx

X = np.random.default_rng(34).standard_normal((3, 7, 2)).astype(np.float32)


def network(text: str, opset: int = 18) -> onnx.ModelProto:
    head = f'<ir_version: 8, opset_import: ["": {opset}]> net '
    return parser.parse_model(head + text)


def must_agree(proto: onnx.ModelProto, feed: dict[str, Any]) -> None:
    """Reference and compiled code give what ONNX Runtime gives."""
    session = pytest.importorskip("onnxruntime").InferenceSession(proto.SerializeToString())
    wanted = session.run(None, feed)
    for engine in ("reference", "compiler"):
        found = onnx_backend.prepare(proto, engine=engine).run(feed)
        for got, want in zip(found, wanted, strict=True):
            assert isinstance(got, list) == isinstance(want, list)
            pairs = list(zip(got, want, strict=True)) if isinstance(want, list) else [(got, want)]
            for g, w in pairs:
                assert g.shape == w.shape and g.dtype == w.dtype
                np.testing.assert_array_equal(g, w)


def test_a_tensor_is_split_rearranged_and_joined():
    proto = network("""(float[3,7,2] x) => (float[a,b,c] y, float[d,e,f] z, int64 n) {
        s = SplitToSequence<axis: int = 1>(x, three)
        last = Constant<value_int: int = -1>()
        first = Constant<value_int: int = 0>()
        t = SequenceAt(s, last)
        u = SequenceInsert(s, t, first)
        v = SequenceInsert(u, t)
        w = SequenceErase(v, last)
        y = ConcatFromSequence<axis: int = 1>(w)
        rows = SplitToSequence<axis: int = -2, keepdims: int = 0>(x)
        one = SequenceErase(rows)
        z = ConcatFromSequence<axis: int = -1, new_axis: int = 1>(one)
        n = SequenceLength(w)
    }""")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(3), "three"))
    must_agree(proto, {"x": X})
    model = verax.load(proto)
    assert model.outputs["y"].dims == (3, 8, 2) and model.outputs["z"].dims == (3, 2, 6)


def test_a_loop_collects_a_sequence_and_a_running_number_picks_from_it():
    proto = network("""(float[3,7,2] x, int64 k) => (float[a,b] y, seq(float[a,b]) all) {
        empty = SequenceEmpty()
        runs = Constant<value_int: int = 4>()
        all = Loop(runs, , empty) <body = step (int64 i, bool go, seq(float[a,b]) s)
            => (bool on, seq(float[a,b]) more) {
            on = Identity(go)
            axis = Constant<value_int: int = 1>()
            row = Gather<axis: int = 1>(x, i)
            more = SequenceInsert(s, row)
        }>
        y = SequenceAt(all, k)
    }""")
    for k in (0, 3, -2):
        must_agree(proto, {"x": X, "k": np.array(k)})


def test_a_body_is_mapped_over_sequences():
    proto = network("""(float[3,7,2] x, float[2] w) => (seq(float[a,b,2]) y, int64 n) {
        sizes = Constant<value_ints: ints = [1, 4, 2]>()
        s = SplitToSequence<axis: int = 1>(x, sizes)
        y = SequenceMap(s, w) <body = f (float[a,b,2] t, float[2] v) => (float[a,b,2] o) {
            p = Mul(t, v)
            o = Sub(p, x0)
        }>
        n = SequenceLength(y)
    }""")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(X[:1, :1, :1], "x0"))
    must_agree(proto, {"x": X, "w": X[0, 0]})


ADDED = """(seq(float[N,2]) x, float[2] w) => (float[M,2] y, seq(float[N,2]) z) {
    k = Constant<value_int: int = 1>()
    t = SequenceAt(x, k)
    u = Add(t, w)
    z = SequenceInsert(x, u)
    y = ConcatFromSequence<axis: int = 0>(z)
}"""


def test_an_input_that_is_a_sequence_is_as_many_tensors_as_the_caller_says():
    proto = network(ADDED)
    with pytest.raises(UnsupportedError, match=r"of how many tensors.*(\n.*)*shapes=\{'x': 2\}"):
        load_onnx(proto)
    for shapes in ({"x": 2}, {"x[0]": (3, 2), "x[1]": (4, 2)}):
        model = load_onnx(proto, shapes=shapes)
        assert list(model.inputs) == ["x[0]", "x[1]", "w"]
        assert list(model.outputs) == ["y", "z[0]", "z[1]", "z[2]"]
        assert model.metadata["sequence z"] == '["z[0]", "z[1]", "z[2]"]'
    assert model.inputs["x[1]"].dims == (4, 2)
    with pytest.raises(ModelError, match=r"place \[1\] in a sequence of 1|a place \[1\]"):
        load_onnx(proto, shapes={"x": 1})
    with pytest.raises(UsageError, match="-1 is no number of tensors"):
        load_onnx(proto, shapes={"x": -1})
    must_agree(proto, {"x": [X[0], X[0, :4]], "w": X[1, 1]})


def test_an_optional_input_is_given_or_not():
    proto = network("""(optional(float[N]) x, float[2] w) => (float[M] y) {
        has = OptionalHasElement(x)
        y = If(has) <
            then_branch = a () => (float[K] p) { e = OptionalGetElement(x)  p = Add(e, w) },
            else_branch = b () => (float[L] q) { q = Neg(w) }
        >
    }""")
    given, nothing = (load_onnx(proto, shapes={"x": s}) for s in ((2,), None))
    assert list(given.inputs) == ["x", "w"] and list(nothing.inputs) == ["w"]
    with pytest.raises(UnsupportedError, match="nothing says whether it is given"):
        load_onnx(proto)
    (y,) = onnx_backend.prepare(proto).run({"x": X[0, 0], "w": X[1, 1]})
    np.testing.assert_array_equal(y, X[0, 0] + X[1, 1])
    (y,) = onnx_backend.prepare(proto).run({"x": None, "w": X[1, 1]})
    np.testing.assert_array_equal(y, -X[1, 1])


def test_what_only_running_could_follow_is_refused_by_name():
    branch = network("""(float[2] w, bool go) => (float[K] y) {
        s = If(go) <
            then_branch = a () => (seq(float[2]) p) { p = SequenceConstruct(w, w) },
            else_branch = b () => (seq(float[2]) q) { q = SequenceConstruct(w) }
        >
        y = ConcatFromSequence<axis: int = 0>(s)
    }""")
    with pytest.raises(UnsupportedError, match="which is no tensor"):
        load_onnx(branch)
    assert load_onnx(branch, values={"go": True}).outputs["y"].dims == (4,)
    place = network("""(float[3,7,2] x, int64 k) => (seq(float[3,7,2]) y) {
        s = SequenceConstruct(x, x)
        y = SequenceErase(s, k)
    }""")
    with pytest.raises(UnsupportedError, match="decided only while running"):
        load_onnx(place)
    taken = network("(float[2] w) => (float[2] y) { s = SequenceConstruct(w)  y = Neg(s) }")
    with pytest.raises(UnsupportedError, match="operator Neg of a sequence"):
        load_onnx(taken)
