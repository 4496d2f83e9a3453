"""`verax.assert_correct`: injected faults are refused and named, correct variants pass."""

from __future__ import annotations

import subprocess
import sys
import unittest
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import verax
from verax.base.errors import VeraxError
from verax.records.verdict import Kind
from verax.testing.failures import BlindCheckError, IncorrectError

bf16 = ml_dtypes.bfloat16
fp8 = ml_dtypes.float8_e4m3fn
f32 = np.float32


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(f32)


def wide(x: Any) -> np.ndarray:
    return np.asarray(x).astype(f32)


A, B = normal(1, 20, 257), normal(2, 257, 40)
X, SCALE, BIAS = normal(3, 3, 17, 40), normal(4, 40), normal(5, 40)
IMAGE, WEIGHT = normal(6, 2, 5, 11, 13), normal(7, 7, 5, 3, 2)


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (wide(a) @ wide(b)).astype(a.dtype)


def accumulated_in(kind: Any, block: int = 1, output: Any = None) -> Callable[..., np.ndarray]:
    """A product whose running sum is kept in `kind`."""

    def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        total = np.zeros((a.shape[0], b.shape[1]), kind)
        for k in range(0, a.shape[1], block):
            step = wide(a[:, k : k + block]) @ wide(b[k : k + block])
            total = (wide(total) + step).astype(kind)
        return total.astype(output or a.dtype)

    return kernel


def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def layer_norm(
    x: np.ndarray, g: np.ndarray, b: np.ndarray, *, outside: float = 0.0, inside: float = 1e-5
) -> np.ndarray:
    d = x - x.mean(-1, keepdims=True)
    root = np.sqrt((d * d).mean(-1, keepdims=True) + f32(inside)) + f32(outside)
    return d / root * g + b


def convolution(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    rows, columns = x.shape[2] - w.shape[2] + 1, x.shape[3] - w.shape[3] + 1
    y = np.zeros((x.shape[0], w.shape[0], rows, columns), f32)
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            y += np.einsum("nchw,oc->nohw", x[:, :, i : i + rows, j : j + columns], w[:, :, i, j])
    return y


def without_tap(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    w = w.copy()
    w[:, :, 0, 1] = 0
    return convolution(x, w)


def with_zeros(function: Callable[..., np.ndarray], key: Any) -> Callable[..., np.ndarray]:
    def faulty(*xs: np.ndarray) -> np.ndarray:
        y = function(*xs)
        y[key] = 0
        return y

    return faulty


def refused(*arguments: Any, **keywords: Any) -> IncorrectError:
    with pytest.raises(IncorrectError) as caught:
        verax.assert_correct(*arguments, **keywords)
    message = str(caught.value)
    assert 3 <= len(message.splitlines()) <= 8, message
    assert max(map(len, message.splitlines())) <= 200
    assert "next: " in message.splitlines()[-1] or "or: " in message.splitlines()[-1]
    return caught.value


CORRECT = {
    "float32 product": (product, "MatMul", (A, B), {}),
    "bf16 product": (product, "MatMul()", (A.astype(bf16), B.astype(bf16)), {}),
    "bf16 product, float32 answer": (
        *(lambda a, b: wide(a) @ wide(b), "MatMul", (A.astype(bf16), B.astype(bf16))),
        {"accumulate": "float32"},
    ),
    "fp16 product": (product, "MatMul", (A.astype(np.float16), B.astype(np.float16)), {}),
    "fp8 product, float32 answer": (
        *(lambda a, b: wide(a) @ wide(b), "MatMul", (A.astype(fp8), B.astype(fp8))),
        {"accumulate": "float32"},
    ),
    "fp8 product, bf16 answer": (
        lambda a, b: (wide(a) @ wide(b)).astype(bf16),
        "MatMul",
        (A.astype(fp8), B.astype(fp8)),
        {},
    ),
    "int8 product": (
        lambda a, b: a.astype(np.int32) @ b.astype(np.int32),
        "MatMul",
        tuple((40 * x).clip(-128, 127).astype(np.int8) for x in (A, B)),
        {"accumulate": "int32"},
    ),
    "fp16 accumulation, declared": (
        *(accumulated_in(np.float16, 1, f32), "MatMul", (A, B)),
        {"accumulate": "float16"},
    ),
    "bf16 accumulation, declared": (
        *(accumulated_in(bf16), "MatMul", (A.astype(bf16), B.astype(bf16))),
        {"accumulate": "bfloat16"},
    ),
    "softmax": (softmax, "Softmax(axis=-1)", X, {}),
    "softmax without its maximum": (
        lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True),
        "Softmax",
        X,
        {},
    ),
    "layer norm": (layer_norm, "LayerNormalization(axis=-1)", (X, SCALE, BIAS), {}),
    "convolution": (convolution, "Conv(kernel_shape=(3, 2))", (IMAGE, WEIGHT), {}),
    "scan": (lambda x, axis: np.cumsum(x, 1, dtype=f32), "CumSum", (X, np.int64(1)), {}),
    "arrays": (product(A, B), "MatMul", {"a": A, "b": B}, {}),
    "a dictionary": ({"y": product(A, B)}, "MatMul", (A, B), {}),
    "an operator": (product, verax.ops.MatMul(), (A, B), {}),
    "a function": (
        lambda a, b: np.tanh(a @ b),
        lambda a, b: np.tanh(a @ b),
        (A / 16, B),
        {},
    ),
}


@pytest.mark.parametrize("name", CORRECT)
def test_correct_variants_pass(name: str) -> None:
    actual, meaning, inputs, keywords = CORRECT[name]
    verdict = verax.assert_correct(actual, meaning, inputs, **keywords)
    assert verdict.kind in (Kind.identical, Kind.rounding)


FAULTY = {
    "all zeros": (lambda a, b: 0 * product(a, b), "MatMul", (A, B), "all zeros"),
    "the last column tile": (
        *(with_zeros(product, (..., slice(32, None))), "MatMul", (A, B)),
        "the last column tile (columns 32 to 39)",
    ),
    "one row": (with_zeros(product, 7), "MatMul", (A, B), "row 7"),
    "terms left out": (
        *(lambda a, b: product(a[:, :256], b[:256]), "MatMul", (A, B)),
        "the last 1 of 257 terms of each sum were left out",
    ),
    "transposed": (
        *(lambda a, b: product(b.T, a.T), "MatMul", (A[:, :20], B[:20, :20])),
        "transposed",
    ),
    "bf16 inputs": (
        lambda a, b: wide(product(a.astype(bf16), b.astype(bf16))),
        "MatMul",
        (A, B),
        "bf16 inputs and output",
    ),
    "a tap": (without_tap, "Conv(kernel_shape=(3, 2))", (IMAGE, WEIGHT), "tap (0, 1) missing"),
    "a flipped kernel": (
        *(lambda x, w: convolution(x, w[..., ::-1, ::-1]), "Conv", (IMAGE, WEIGHT)),
        "flipped",
    ),
    "another axis": (lambda x: softmax(x, 1), "Softmax(axis=-1)", X, "axis 1"),
    "eps outside the root": (
        lambda *xs: layer_norm(*xs, inside=0.0, outside=1e-5),
        "LayerNormalization(axis=-1)",
        (X / 100, SCALE, BIAS),
        "added to the standard deviation",
    ),
    "another eps": (
        lambda *xs: layer_norm(*xs, inside=1e-3),
        "LayerNormalization(axis=-1)",
        (X, SCALE, BIAS),
        "0.001",
    ),
    "no bias": (
        *(lambda x, g, b: layer_norm(x, g, 0 * b), "LayerNormalization(axis=-1)"),
        (X, SCALE, BIAS),
        "zero",
    ),
    "twice": (lambda x, axis: 2 * np.cumsum(x, 1), "CumSum", (X, np.int64(1)), "2 times"),
    "an exclusive scan": (
        *(lambda x, axis: np.cumsum(x, 1) - x, "CumSum", (X, np.int64(1))),
        "shifted by 1",
    ),
    "the shape": (lambda a, b: product(a, b)[:-1], "MatMul", (A, B), "(20, 40)"),
    "NaN": (lambda a, b: product(a, b) * np.nan, "MatMul", (A, B), "all NaN"),
    "a function's factor": (
        lambda a, b: np.tanh(a @ b) * f32(1.0001),
        lambda a, b: np.tanh(a @ b),
        (A / 16, B),
        "1.0001 times",
    ),
    "a function's sign": (
        *(lambda a, b: -np.tanh(a @ b), lambda a, b: np.tanh(a @ b), (A / 16, B)),
        "-1 times",
    ),
    "a function's tile": (
        with_zeros(lambda a, b: np.tanh(a @ b), (slice(16, None),)),
        lambda a, b: np.tanh(a @ b),
        (A / 16, B),
        "the last row tile",
    ),
}


@pytest.mark.parametrize("name", FAULTY)
def test_injected_faults_are_refused_and_named(name: str) -> None:
    actual, meaning, inputs, words = FAULTY[name]
    error = refused(actual, meaning, inputs)
    assert words in str(error), str(error)
    assert error.verdict.kind in (Kind.mistake, Kind.precision)


@pytest.mark.parametrize(
    ("kind", "block", "output", "words"),
    [
        (bf16, 1, None, "bf16 accumulation (term by term)"),
        (bf16, 1, f32, "bf16 accumulation (term by term)"),
        (bf16, 16, f32, "bf16 accumulation (in blocks of 16)"),
        (np.float16, 1, f32, "fp16 accumulation"),
    ],
)
@pytest.mark.parametrize("inputs", [bf16, fp8], ids=["bf16", "fp8"])
def test_accumulating_in_another_type_than_declared_is_named(
    kind: Any, block: int, output: Any, words: str, inputs: Any
) -> None:
    kernel = accumulated_in(kind, block, output or bf16)
    factors = (A.astype(inputs), B.astype(inputs))
    error = refused(kernel, "MatMul", factors, accumulate="float32")
    assert words in str(error), str(error)
    declared = np.dtype(kind).name
    assert verax.assert_correct(kernel, "MatMul", factors, accumulate=declared)


def test_accumulation_of_an_unknown_order_is_told_by_the_size_of_its_errors() -> None:
    order = np.random.default_rng(8).permutation(A.shape[1])

    def shuffled(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return accumulated_in(bf16, 1, f32)(a[:, order], b[order])

    factors = (A.astype(bf16), B.astype(bf16))
    error = refused(shuffled, "MatMul", factors, accumulate="float32")
    assert "bf16 accumulation" in str(error)


@pytest.mark.parametrize("kind", [bf16, np.float16])
def test_sums_that_stop_growing_are_honest_where_declared(kind: Any) -> None:
    a, b = np.abs(normal(10, 6, 1024)), np.abs(normal(11, 1024, 5))
    kernel, declared = accumulated_in(kind, 1, f32), np.dtype(kind).name
    assert verax.assert_correct(kernel, "MatMul", (a, b), accumulate=declared)
    short = accumulated_in(kind, 1, f32)
    refused(lambda a, b: short(a[:, :512], b[:512]), "MatMul", (a, b), accumulate=declared)


def test_bf16_sums_of_a_scan_are_named() -> None:
    def scan(x: np.ndarray, axis: np.ndarray) -> np.ndarray:
        total, rows = np.zeros(x[:, 0].shape, bf16), []
        for i in range(x.shape[1]):
            total = (wide(total) + x[:, i]).astype(bf16)
            rows.append(wide(total))
        return np.stack(rows, 1)

    error = refused(scan, "CumSum", (X, np.int64(1)), accumulate="float32")
    assert "bf16 accumulation (term by term)" in str(error)


def test_int8_products_that_wrap_are_refused() -> None:
    factors = tuple((90 * x).clip(-128, 127).astype(np.int8) for x in (A, B))
    error = refused(
        lambda a, b: (a.astype(np.int16) @ b.astype(np.int16)).astype(np.int32),
        *("MatMul", factors),
        accumulate="int32",
    )
    assert "nothing may differ" in str(error)


def test_partial_sums_in_bf16_need_split_k() -> None:
    def split(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return (
            product(
                np.ones((1, 2), f32),
                np.stack([product(a[:, s], b[s]) for s in HALVES]).reshape(2, -1),
            )
            .reshape(20, 40)
            .astype(bf16)
        )

    HALVES = (slice(0, 128), slice(128, None))
    factors = (A.astype(bf16), B.astype(bf16))
    assert "split_k" in str(refused(split, "MatMul", factors))
    assert verax.assert_correct(split, "MatMul", factors, split_k=2).kind is Kind.rounding
    with pytest.raises(VeraxError, match="no axis of products"):
        verax.assert_correct(softmax, "Softmax", X, split_k=2)


def test_answers_that_differ_between_calls_need_atomics() -> None:
    random = np.random.default_rng(9)

    def atomic(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        order = random.permutation(a.shape[1])
        return sum((a[:, i : i + 1] * b[i] for i in order), np.zeros((20, 40), f32))

    assert "not reproducible" in str(refused(atomic, "MatMul", (A, B)))
    assert verax.assert_correct(atomic, "MatMul", (A, B), atomics=True).kind is Kind.rounding
    meaning = lambda a, b: a @ b  # noqa: E731
    assert "not reproducible" in str(refused(atomic, meaning, (A, B)))
    assert verax.assert_correct(atomic, meaning, (A, B), atomics=True)


def test_coarser_arithmetic_passes_by_name_alone() -> None:
    def coarse(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return wide(a.astype(bf16)) @ wide(b.astype(bf16))

    error = refused(coarse, "MatMul", (A, B))
    assert "allow=('bf16',)" in str(error)
    assert verax.assert_correct(coarse, "MatMul", (A, B), allow=("bf16",)).kind is Kind.precision


BLIND = {
    "zeros": (product, "MatMul", (0 * A, B), "input 'a' is all zeros"),
    "a constant": (softmax, "Softmax", np.full((3, 5), f32(2)), "2 everywhere"),
    "a saturated operator": (
        *(lambda x: 1 / (1 + np.exp(-x)), "Sigmoid", np.abs(X) * 9 + 40),
        "saturated",
    ),
    "a saturated function": (
        *(lambda x: np.tanh(x), lambda x: np.tanh(x), np.abs(X) * 9 + 40),
        "saturated",
    ),
    "a threshold that few elements pass": (
        lambda x: np.maximum(x - f32(2.2), 0),
        lambda x: np.maximum(x - 2.2, 0),
        X,
        "do not react",
    ),
    "an empty answer": (
        *(lambda x: x[:0] * 2, lambda x: x[:0] * 2, X),
        "the outputs are empty",
    ),
    "rounding alone": (
        lambda x: (x + f32(1e9)) - f32(1e9),
        lambda x: (x + 1e9) - 1e9,
        X,
        "would not show",
    ),
}


@pytest.mark.parametrize("name", BLIND)
def test_inputs_that_could_not_show_a_mistake_are_blind(name: str) -> None:
    actual, meaning, inputs, words = BLIND[name]
    with pytest.raises(BlindCheckError) as caught:
        verax.assert_correct(actual, meaning, inputs)
    assert "is blind" in str(caught.value) and words in str(caught.value), str(caught.value)
    assert len(str(caught.value).splitlines()) <= 8
    assert verax.assert_correct(actual, meaning, inputs, allow_blind=True)


def test_a_mistake_comes_before_blindness() -> None:
    error = refused(lambda a, b: product(a, b) + 1, "MatMul", (0 * A, B))
    assert not isinstance(error, BlindCheckError)


def test_half_of_zeros_behind_relu_is_no_blindness() -> None:
    assert verax.assert_correct(lambda x: np.maximum(x, 0), "Relu", X)


@pytest.mark.parametrize(
    ("meaning", "words"),
    [
        ("MatMull", "is 'MatMul' meant"),
        ("Conv(stride=(2, 2))", "is 'strides' meant"),
        ("Conv(strides=two())", "is no literal"),
        ("Conv((2, 2))", "by position"),
        ("Conv(", "is no call"),
        ("1 + 1", "is no call of an operator"),
        ("Conv(strides=__import__('os').getpid())", "is no literal"),
        ("Softmax(**{'axis': 1})", "has no attribute '**'"),
        ("Conv(strides=2)", "strides of Conv is a tuple of ints, not 2"),
        ("Conv(pads=1)", "pads of Conv is a tuple of pairs or one str, not 1"),
        ("Conv(groups=True)", "groups of Conv is one int, not True"),
        ("Cast(to='float99')", "to of Cast is the name of a type (float16, "),
    ],
)
def test_texts_that_are_no_operator_are_refused_in_words(meaning: str, words: str) -> None:
    with pytest.raises(VeraxError) as caught:
        verax.assert_correct(product, meaning, (A, B))
    assert words in str(caught.value) and "next: " in str(caught.value)


def test_a_single_number_looks_like_no_accumulation() -> None:
    x = normal(94, 4, 30)
    error = refused(x.sum(keepdims=True) + 0.1, "ReduceSum", (x,))
    assert "accumulation" not in str(error)


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"accumulate": "float33"}, "float33"),
        ({"accumulate": "int32"}, "floating-point"),
        ({"split_k": 0}, "split_k"),
        ({"allowed": ()}, "allowed"),
    ],
)
def test_declarations_that_make_no_sense_are_refused(keywords: Any, words: str) -> None:
    with pytest.raises((VeraxError, TypeError), match=words):
        verax.assert_correct(product, "MatMul", (A, B), **keywords)


@pytest.mark.parametrize(
    ("actual", "meaning", "words"),
    [
        (product, 3, "is no meaning"),
        (product, None, "is no meaning"),
        (product, lambda a, b: 1 / 0, "the meaning raised ZeroDivisionError"),
        (product, lambda a: a, "the meaning raised TypeError"),
        (lambda a, b: 1 / 0, np.matmul, "the subject raised ZeroDivisionError"),
        (lambda a, b: np.exp(1j * a), lambda a, b: a, "complex64"),
        (product, lambda a, b: np.exp(1j * a), "no array of real numbers"),
        (object(), "MatMul", "cannot be judged"),
        (object(), np.matmul, "neither arrays nor a function"),
    ],
)
def test_what_fails_by_itself_is_said_in_words(actual: Any, meaning: Any, words: str) -> None:
    with pytest.raises(VeraxError) as caught:
        verax.assert_correct(actual, meaning, (A, B))
    assert words in str(caught.value) and "next: " in str(caught.value)


def test_inputs_that_do_not_fit_are_no_assertion() -> None:
    for inputs in ((A,), (A, B, A), (A, A)):
        with pytest.raises(VeraxError):
            verax.assert_correct(product, "MatMul", inputs)


def test_numpy_meanings_import_no_tensor_library() -> None:
    code = (
        "import sys, numpy as np, verax; x = np.random.default_rng(0).standard_normal((5, 7));"
        "verax.assert_correct(np.tanh(x), np.tanh, x); verax.assert_correct(np.tanh(x), 'Tanh', x);"
        "print([m for m in ('torch', 'jax', 'pytest') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


class PlainUnittest(unittest.TestCase):
    """The assertions need no pytest."""

    def test_failure_is_an_assertion_error_with_the_verdict(self) -> None:
        with self.assertRaises(AssertionError) as caught:
            verax.assert_correct(lambda a, b: 0 * product(a, b), "MatMul", (A, B))
        verdict = getattr(caught.exception, "verdict")  # noqa: B009 (unittest gives the base)
        self.assertIs(verdict.kind, Kind.mistake)
        self.assertEqual(type(verdict).from_json(verdict.to_json()), verdict)
