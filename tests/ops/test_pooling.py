"""Pools and unpooling against their definitions, PyTorch and ONNX Runtime."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from witness import DOUBLE, agree, evaluation, exactly, meaning, onnx_windows, onnxruntime_says

from verax.base.errors import GraphError, InputError
from verax.ir.dim import symbol
from verax.ir.operator import Case, Inference, Operator
from verax.ir.types import TensorType
from verax.ops.windows.global_pooling import GlobalAveragePool, GlobalLpPool, GlobalMaxPool
from verax.ops.windows.pooling import AveragePool, LpPool, MaxPool
from verax.ops.windows.unpooling import MaxUnpool

torch = pytest.importorskip("torch", reason="torch is not installed")

POOLS = [
    case
    for cls in (MaxPool, AveragePool, LpPool, GlobalAveragePool, GlobalMaxPool, GlobalLpPool)
    for case in cls.cases(np.random.default_rng(5))
]
NO_KERNEL = "ONNX Runtime has no such kernel"


def label(case: Case) -> str:
    return f"{case.op.kind} {case.label}"


@pytest.mark.parametrize("case", POOLS, ids=label)
def test_onnx_runtime_agrees(case: Case) -> None:
    op, (x,) = case.op, case.inputs
    assert x is not None
    if x.dtype == np.float64 and op.kind != "MaxPool":
        pytest.skip(NO_KERNEL)
    if np.isnan(x).any():
        pytest.skip("ONNX Runtime loses NaN in a max-pool")
    attributes = onnx_windows(op) if hasattr(op, "pads") else {}
    opset = 23
    if op.kind == "GlobalLpPool":
        attributes, opset = {"p": op.attributes()["p"]}, 21
    others = onnxruntime_says(op.kind, case.inputs, attributes, op.output_count, opset)
    agree(op, case.inputs, others)


def elements(
    op: Any, x: np.ndarray, at: tuple[int, ...], inside_pads: bool = False
) -> list[Fraction]:
    """What the window at output position `at` holds, from the definition, one tap at a time."""
    n, c, *position = at
    found = op.windows(x.shape)
    values = []
    for k in np.ndindex(*found.kernel_shape):
        where = [
            p * s + q * d - begin
            for p, q, s, d, (begin, _) in zip(
                position, k, found.strides, found.dilations, found.pads
            )
        ]
        if all(0 <= i < size for i, size in zip(where, found.input)):
            values.append(Fraction(float(x[(n, c, *where)])))
        elif inside_pads and all(
            -b <= i < size + e for i, size, (b, e) in zip(where, found.input, found.pads)
        ):
            values.append(Fraction(0))
    return values


@pytest.mark.parametrize("case", [c for c in POOLS if c.op.kind == "AveragePool"], ids=label)
def test_average_pool_is_its_definition_in_rational_arithmetic(case: Case) -> None:
    op: Any = case.op
    (x,) = case.inputs
    assert x is not None
    y = exactly(op, x)
    for at in np.ndindex(*y.shape):
        held = elements(op, x, at, op.count_include_pad)
        assert y[at] == sum(held) / len(held)


@pytest.mark.parametrize("case", [c for c in POOLS if c.op.kind == "MaxPool"], ids=label)
def test_max_pool_is_its_definition(case: Case) -> None:
    op: Any = case.op
    (x,) = case.inputs
    assert x is not None
    if np.isnan(x).any():
        return
    y = meaning(op, x)[0]
    for at in np.ndindex(*y.shape):
        assert y[at] == max(elements(op, x, at))


@st.composite
def symmetric_pools(draw: Callable[[Any], Any]) -> dict[str, Any]:
    """Window attributes that PyTorch can express."""
    kernel = (draw(st.integers(1, 4)), draw(st.integers(1, 4)))
    return {
        "kernel_shape": kernel,
        "strides": (draw(st.integers(1, 4)), draw(st.integers(1, 4))),
        "pads": tuple((p, p) for p in (draw(st.integers(0, k // 2)) for k in kernel)),
        "ceil_mode": draw(st.booleans()),
    }


@settings(max_examples=60, deadline=None)
@given(symmetric_pools(), st.tuples(st.integers(4, 9), st.integers(4, 9)), st.booleans())
def test_pools_are_pytorchs(form: dict[str, Any], size: tuple[int, int], include: bool) -> None:
    x = np.random.default_rng(sum(size)).standard_normal((2, 3, *size)).astype(np.float32)
    wide, pads = torch.from_numpy(x.astype(np.float64)), tuple(p for p, _ in form["pads"])
    rest = (form["kernel_shape"], form["strides"], pads)
    y = torch.nn.functional.avg_pool2d(wide, *rest, form["ceil_mode"], include)
    agree(AveragePool(**form, count_include_pad=include), [x], [y.numpy()], DOUBLE)
    y, index = torch.nn.functional.max_pool2d(wide, *rest, 1, form["ceil_mode"], True)
    planes = np.arange(6).reshape(2, 3, 1, 1) * (size[0] * size[1])
    agree(MaxPool(**form, with_indices=True), [x], [y.numpy(), index.numpy() + planes])


def test_a_dilated_max_pool_is_pytorchs() -> None:
    x = np.random.default_rng(11).standard_normal((2, 3, 11, 10)).astype(np.float32)
    y = torch.nn.functional.max_pool2d(torch.from_numpy(x), (3, 2), (2, 1), (1, 1), (2, 3), True)
    form: dict[str, Any] = {"kernel_shape": (3, 2), "strides": (2, 1), "dilations": (2, 3)}
    agree(MaxPool(**form, pads=((1, 1), (1, 1)), ceil_mode=True), [x], [y.numpy()])


@pytest.mark.parametrize("p", [1, 2, 3])
def test_lp_pool_is_pytorchs(p: int) -> None:
    x = np.abs(np.random.default_rng(12).standard_normal((2, 3, 9, 8))).astype(np.float32)
    y = torch.nn.functional.lp_pool2d(torch.from_numpy(x.astype(np.float64)), p, (3, 2), (2, 3))
    agree(LpPool(p=p, kernel_shape=(3, 2), strides=(2, 3)), [x], [y.numpy()], DOUBLE)


def test_nan_wins_and_padding_never_does() -> None:
    x = np.full((1, 1, 3, 4), -7.0, np.float32)
    x[0, 0, 1, 2] = np.nan
    op = MaxPool(kernel_shape=(2, 2), pads=((1, 1), (1, 1)), with_indices=True)
    y, index = op.canonical(evaluation(op, [x]), x)
    assert np.isnan(y[0, 0, 1:3, 2:4]).all()
    assert (index[0, 0, 1:3, 2:4] == 6).all()
    assert (np.nan_to_num(y, nan=-7.0) == -7.0).all()


def test_the_larger_zero_is_the_positive_one() -> None:
    x = np.array([0.0, -0.0, -0.0, -0.0, 0.0], np.float32).reshape(1, 1, 5)
    op = MaxPool(kernel_shape=(2,))
    y = op.canonical(evaluation(op, [x]), x)
    assert np.signbit(y).ravel().tolist() == [False, True, True, False]


def test_a_window_of_padding_alone_holds_nothing() -> None:
    x = np.ones((1, 1, 3), np.float32)
    op = MaxPool(kernel_shape=(1,), pads=((1, 0),), with_indices=True)
    y, index = meaning(op, x)
    assert (y[0, 0, 0], index[0, 0, 0]) == (-np.inf, -1)
    assert np.isnan(meaning(AveragePool(kernel_shape=(1,), pads=((1, 0),)), x)[0][0, 0, 0])


def test_ceil_mode_over_symbols_gives_every_size() -> None:
    h = symbol("h")
    for k, s, begin, end in itertools.product((1, 2, 3), (1, 2, 3), (0, 1), (0, 1, 2)):
        op = MaxPool(kernel_shape=(k,), strides=(s,), pads=((begin, end),), ceil_mode=True)
        (y,) = op.infer(Inference((TensorType.parse("float32[2, 3, h]").with_dims((2, 3, h)),)))
        for size in range(k, 12):
            last = -(-(size + begin + end - k) // s)
            last -= last * s >= size + begin
            assert y.substitute({"h": size}).dims[2] == last + 1, (op, size)


def test_unpooling_puts_back_what_a_pool_took() -> None:
    x = np.random.default_rng(13).standard_normal((2, 3, 6, 9)).astype(np.float32)
    form: dict[str, Any] = {"kernel_shape": (2, 3), "strides": (2, 3)}
    values, index = meaning(MaxPool(**form, with_indices=True), x)
    (back,) = meaning(MaxUnpool(**form), values.astype(np.float32), index)
    assert back.shape == x.shape
    held = back != 0
    np.testing.assert_array_equal(back[held], x[held])
    assert held.sum() == values.size


@pytest.mark.parametrize(
    "case",
    [
        c
        for c in MaxUnpool.cases(np.random.default_rng(14))
        if c.inputs[0] is not None and not c.constant
    ],
    ids=label,
)
def test_unpooling_is_onnx_runtimes(case: Case) -> None:
    x = case.inputs[0]
    if x is None or x.dtype != np.float32:
        return
    agree(case.op, case.inputs, onnxruntime_says("MaxUnpool", case.inputs, onnx_windows(case.op)))


def test_an_index_outside_of_the_output_is_refused() -> None:
    x = np.ones((1, 1, 2), np.float32)
    for wrong in (-1, 4):
        with pytest.raises(InputError, match="index"):
            meaning(MaxUnpool(kernel_shape=(2,), strides=(2,)), x, np.array([[[0, wrong]]]))


@pytest.mark.parametrize(
    ("op", "cause"),
    [
        (MaxPool(kernel_shape=(2,)), "spatial axes"),
        (MaxPool(kernel_shape=(2, 0)), "kernel_shape"),
        (AveragePool(kernel_shape=(7, 2)), "does not fit"),
        (AveragePool(kernel_shape=(2, 2), ceil_mode=True, pads="SAME_UPPER"), "ceil_mode"),
        (LpPool(kernel_shape=(2, 2), p=0), "p must"),
        (MaxPool(kernel_shape=(2, 2), storage_order=2), "storage_order"),
        (MaxPool(kernel_shape=(2, 2), dilations=(1, -1)), "dilations"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_cause(op: Operator, cause: str) -> None:
    with pytest.raises(GraphError, match=cause):
        op.infer(Inference((TensorType.parse("float32[2, 3, 5, 6]"),)))
