"""Expressions are values: equal ones are one object, and they evaluate like the code traced."""

import copy
import pickle
import weakref

import numpy as np
import pytest

from verax.numerics import expr
from verax.numerics.arith import Arith
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.expr import (
    Apply,
    Const,
    Input,
    TracingArith,
    compose,
    evaluate,
    evaluate_all,
    input_dtypes,
    nodes,
    text,
    trace,
)

F32 = "float32"


def swish(m: Arith, x, beta):
    return m.mul(x, m.sigmoid(m.mul(beta, x)))


def test_equal_expressions_are_one_object_with_one_hash() -> None:
    a, b = trace(swish, [F32] * 2), trace(swish, [F32] * 2)
    assert a is b and hash(a) == hash(b) and {a: 1}[b] == 1
    assert trace(swish, [F32] * 2) is not trace(lambda m, x, y: swish(m, y, x), [F32] * 2)


def test_constants_differ_by_sign_of_zero_and_dtype_but_not_by_nan() -> None:
    assert Const(0.0, F32) is not Const(-0.0, F32)
    assert Const(float("nan"), F32) is Const(-float("nan"), F32)
    assert Const(1, "int32") is not Const(1, "int64")
    assert Const(0.1, F32) is Const(float(np.float32(0.1)), F32)


def test_copies_and_pickles_are_the_same_object() -> None:
    e = trace(swish, [F32] * 2)
    assert copy.deepcopy(e) is e and pickle.loads(pickle.dumps(e)) is e
    with pytest.raises(AttributeError):
        e.dtype = "int32"


def test_evaluation_gives_what_the_traced_code_gives() -> None:
    x = np.linspace(-4, 4, 15, dtype=np.float32).reshape(3, 5)
    beta = np.float32([0.5, 1, 2, 3, 4])
    m = NumpyArith()
    np.testing.assert_array_equal(
        evaluate(trace(swish, [F32] * 2), m, [x, beta]), swish(m, x, beta)
    )


def test_named_functions_stay_one_node() -> None:
    e = trace(lambda m, x: m.tanh(x), [F32])
    assert e is Apply("tanh", [Input(0, F32)], F32)


def test_common_parts_are_evaluated_once() -> None:
    calls = []

    class Counting(NumpyArith):
        def call(self, function: str, *args: np.ndarray) -> np.ndarray:
            calls.append(function)
            return super().call(function, *args)

    e = trace(lambda m, x: m.add(m.exp(x), m.mul(m.exp(x), m.exp(x))), [F32])
    x = np.ones(3, np.float32)
    evaluate_all([e, trace(lambda m, x: m.exp(x), [F32])], Counting(), [x])
    assert calls == ["exp"]


def test_compose_replaces_inputs_and_keeps_the_others() -> None:
    add = trace(lambda m, x, y: m.add(x, y), [F32] * 2)
    square = trace(lambda m, x: m.mul(x, x), [F32])
    both = compose(add, {1: square})
    assert both is trace(lambda m, x: m.add(x, m.mul(x, x)), [F32])
    assert compose(add, {0: Input(1, F32), 1: Input(0, F32)}) is trace(
        lambda m, x, y: m.add(y, x), [F32] * 2
    )
    with pytest.raises(TypeError, match="int32"):
        compose(add, {0: Input(0, "int32")})


def test_deep_and_wide_sharing_is_cheap() -> None:
    e = Input(0, F32)
    for _ in range(5000):  # 2**5000 paths, 5001 nodes
        e = Apply("max", [e, e], F32)
    assert sum(1 for _ in nodes(e)) == 5001
    assert evaluate(e, NumpyArith(), [np.float32([1, 2])]).tolist() == [1, 2]
    assert len(text(e).splitlines()) == 5001
    assert repr(e) == "max(...) of 5001 nodes"


def test_text_names_every_node_once_and_tells_expressions_apart() -> None:
    e = trace(lambda m, x, y: m.add(m.convert(x, F32), m.mul(y, m.const(0.5, F32))),
              ["int32", F32])  # fmt: skip
    assert text(e) == (
        "v0 = input 0 int32\nv1 = convert v0 float32\nv2 = input 1 float32\n"
        "v3 = const 0.5 float32\nv4 = mul v2 v3 float32\nv5 = add v1 v4 float32\n"
    )
    assert text(Const(-0.0, F32)) != text(Const(0.0, F32))


def test_inputs_are_listed_with_their_dtypes() -> None:
    e = trace(lambda m, a, b, c: m.select(a, c, c), ["bool", "int8", F32])
    assert input_dtypes(e) == {0: "bool", 2: F32}
    clash = Apply("select", [Input(0, "bool"), Input(1, F32), Input(0, F32)], F32)
    with pytest.raises(TypeError, match="input 0"):
        input_dtypes(clash)


def test_wrong_dtypes_are_refused_while_tracing() -> None:
    m = TracingArith()
    with pytest.raises(TypeError, match="add"):
        m.add(Input(0, F32), Input(1, "int32"))
    with pytest.raises(TypeError, match="pow"):
        m.pow(Input(0, F32), Input(1, "int32"))
    with pytest.raises(TypeError, match="primitive"):
        m.call("add", Input(0, F32))
    with pytest.raises(TypeError, match="tuple"):
        trace(lambda m, x: (x, x), [F32])


def test_what_nobody_holds_is_forgotten_without_python_code() -> None:
    """A Ctrl-C in a callback of a weak reference would be lost."""
    kept = trace(swish, [F32] * 2)
    assert [r.__callback__ for r in weakref.getweakrefs(kept)] == [None]
    chain = Input(0, F32)
    for n in range(3 * expr._FEW):
        chain = Apply("add", (chain, Const(float(n), F32)), F32)
    assert len(expr._interned) > 3 * expr._FEW
    parts = [weakref.ref(x) for x in chain.args]
    del chain
    for n in range(20 * expr._FEW):
        Const(float(n) + 0.5, F32)
    assert len(expr._interned) < 3 * expr._FEW
    assert [part() for part in parts] == [None, None]
    assert trace(swish, [F32] * 2) is kept
