"""Convolution and transposed convolution against PyTorch, ONNX Runtime and rational arithmetic."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from witness import (
    DOUBLE,
    agree,
    evaluation,
    exactly,
    meaning,
    onnx_windows,
    onnxruntime_says,
    types_of,
)

from verax.base.errors import GraphError
from verax.ir.dim import symbol
from verax.ir.operator import Case, Inference
from verax.ir.types import TensorType
from verax.ops.windows.convolution import Conv
from verax.ops.windows.deconvolution import ConvTranspose
from verax.ops.windows.windows import Windows

torch = pytest.importorskip("torch", reason="torch is not installed")

CONVOLUTIONS = list(Conv.cases(np.random.default_rng(1)))
DECONVOLUTIONS = list(ConvTranspose.cases(np.random.default_rng(2)))


def label(case: Case) -> str:
    return case.label


def windows_of(case: Case) -> Windows:
    op: Any = case.op
    x, w = types_of(case.inputs)[:2]
    return op.spatial(x, w)


def in_torch(case: Case) -> list[Any]:
    return [torch.from_numpy(x.astype(np.float64)) for x in case.inputs if x is not None]


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=label)
def test_convolution_is_pytorchs(case: Case) -> None:
    op, found, (x, w, *b) = case.op, windows_of(case), in_torch(case)
    function = getattr(torch.nn.functional, f"conv{found.rank}d")
    padded = torch.nn.functional.pad(x, [p for pair in reversed(found.pads) for p in pair])
    y = function(padded, w, *b or [None], found.strides, 0, found.dilations, op.groups)  # type: ignore[attr-defined]
    agree(op, case.inputs, [y.numpy()], DOUBLE)


@pytest.mark.parametrize("case", DECONVOLUTIONS, ids=label)
def test_transposed_convolution_is_pytorchs(case: Case) -> None:
    op, found, (x, w, *b) = case.op, windows_of(case), in_torch(case)
    function = getattr(torch.nn.functional, f"conv_transpose{found.rank}d")
    y = function(x, w, None, found.strides, 0, 0, op.groups, found.dilations)  # type: ignore[attr-defined]
    crop = [
        (-begin, begin + out - whole)
        for (begin, _), out, whole in zip(found.pads, found.output, y.shape[2:])
    ]
    y = torch.nn.functional.pad(y, [c for pair in reversed(crop) for c in pair])
    for bias in b:
        y = y + bias.reshape(-1, *(1,) * found.rank)
    agree(op, case.inputs, [y.numpy()], DOUBLE)


RUNTIME_LACKS = ("float64", "float16", "SAME_UPPER, dilated", "SAME_LOWER, dilated")


@pytest.mark.parametrize("case", CONVOLUTIONS + DECONVOLUTIONS, ids=label)
def test_onnx_runtime_stays_within_the_error_bound(case: Case) -> None:
    if case.label in RUNTIME_LACKS:
        pytest.skip("ONNX Runtime has no such kernel")
    agree(case.op, case.inputs, onnxruntime_says(case.op.kind, case.inputs, onnx_windows(case.op)))


def naive_convolution(
    x: np.ndarray, w: np.ndarray, groups: int, found: Windows
) -> Iterator[tuple[tuple[int, ...], Fraction]]:
    """Every output element from the definition, one product at a time."""
    per_group, outs = w.shape[1], w.shape[0] // groups
    for n, o in itertools.product(range(x.shape[0]), range(w.shape[0])):
        for at in np.ndindex(*found.output):
            total = Fraction(0)
            for c, *k in np.ndindex(per_group, *found.kernel_shape):
                i = [
                    p * s + q * d - begin
                    for p, s, q, d, (begin, _) in zip(
                        at, found.strides, k, found.dilations, found.pads
                    )
                ]
                if all(0 <= a < size for a, size in zip(i, found.input)):
                    source = x[(n, o // outs * per_group + c, *i)]
                    total += Fraction(float(source)) * Fraction(float(w[(o, c, *k)]))
            yield (n, o, *at), total


@pytest.mark.parametrize("index", [3, 4, 6, 7, 9, 10], ids=lambda i: CONVOLUTIONS[i].label)
def test_convolution_is_its_definition_in_rational_arithmetic(index: int) -> None:
    case = CONVOLUTIONS[index]
    op: Any = case.op
    x, w = case.inputs[:2]
    assert x is not None and w is not None
    y = exactly(op, x, w)
    for at, want in naive_convolution(x, w, op.groups, windows_of(case)):
        assert y[at] == want


@st.composite
def deconvolutions(draw: Callable[[Any], Any]) -> tuple[ConvTranspose, tuple[int, ...]]:
    sizes = st.integers(1, 4)
    strides, kernel, dilations, inputs = ((draw(sizes), draw(sizes)) for _ in range(4))
    reach = [(i - 1) * s + (k - 1) * d + 1
             for i, s, k, d in zip(inputs, strides, kernel, dilations)]  # fmt: skip
    pads = []
    for whole in reach:
        begin = draw(st.integers(0, min(3, whole - 1)))
        pads.append((begin, draw(st.integers(0, min(3, whole - 1 - begin)))))
    more = tuple(draw(st.integers(0, s - 1)) for s in strides)
    op = ConvTranspose(strides=strides, dilations=dilations, pads=tuple(pads), groups=2,
                       output_padding=more)  # fmt: skip
    return op, (2, 4, *inputs, *kernel)


@settings(max_examples=30, deadline=None)
@given(deconvolutions(), st.integers(0, 2**32 - 1))
def test_transposed_convolution_is_the_adjoint_of_convolution(
    drawn: tuple[ConvTranspose, tuple[int, ...]], seed: int
) -> None:
    op, (n, c, *sizes) = drawn
    rng = np.random.default_rng(seed)
    x = rng.integers(-9, 9, (n, c, *sizes[:2])).astype(np.float32)
    w = rng.integers(-9, 9, (c, 3, *sizes[2:])).astype(np.float32)
    y = meaning(op, x, w)[0]
    other = rng.integers(-9, 9, y.shape).astype(np.float32)
    assert isinstance(op.pads, tuple)
    pads = tuple((b, e - m) for (b, e), m in zip(op.pads, op.output_padding))
    if any(p < 0 for pair in pads for p in pair):
        return
    back = Conv(strides=op.strides, dilations=op.dilations, pads=pads, groups=2)
    assert (meaning(back, other, w)[0] * x).sum() == (y * other).sum()


@pytest.mark.parametrize("case", CONVOLUTIONS + DECONVOLUTIONS, ids=label)
def test_the_promised_bits_follow_the_stated_order(case: Case) -> None:
    """Channels in blocks of 16, then taps, then channels: one element followed by hand."""
    op: Any = case.op
    x, w, *b = case.inputs
    if x is None or w is None or x.dtype != np.float32:
        return
    found = windows_of(case)
    y = np.asarray(op.canonical(evaluation(op, case.inputs), *case.inputs))
    rng = np.random.default_rng(0)
    for _ in range(4):
        at = tuple(int(rng.integers(size)) for size in y.shape)
        assert y[at] == one_by_hand(op, x, w, b[0] if b else None, found, at), (op, at)


@pytest.mark.parametrize("op", [Conv(), ConvTranspose()], ids=str)
def test_a_bias_of_minus_zero_starts_the_sum(op: Any) -> None:
    x, w = np.zeros((1, 1, 2), np.float32), np.full((1, 1, 1), -1, np.float32)
    inputs = [x, w, np.array([-0.0], np.float32)]
    assert np.signbit(op.canonical(evaluation(op, inputs), *inputs)).all()
    assert not np.signbit(op.canonical(evaluation(op, inputs[:2]), x, w)).any()


def one_by_hand(
    op: Any, x: np.ndarray, w: np.ndarray, b: np.ndarray | None, found: Windows, at: tuple[int, ...]
) -> np.float32:
    transposed = isinstance(op, ConvTranspose)
    n, o, *position = at
    per_group = x.shape[1] // op.groups
    outs = w.shape[1] if transposed else w.shape[0] // op.groups
    group, inner = divmod(o, outs)
    acc = Fraction(0 if b is None else float(b[o]))
    for first in range(0, per_group, 16):
        for k in np.ndindex(*found.kernel_shape):
            where, reached = [], True
            for p, q, s, d, (begin, _) in zip(
                position, k, found.strides, found.dilations, found.pads
            ):
                if transposed:
                    reached &= (p + begin - q * d) % s == 0
                    where.append((p + begin - q * d) // s)
                else:
                    where.append(p * s + q * d - begin)
            if not reached or not all(0 <= i < size for i, size in zip(where, found.input)):
                continue
            for c in range(first, min(first + 16, per_group)):
                weight = w[(group * per_group + c, inner, *k)] if transposed else w[(o, c, *k)]
                source = x[(n, group * per_group + c, *where)]
                total = Fraction(float(source)) * Fraction(float(weight)) + acc
                acc = Fraction(float(nearest_single(total)))
    return nearest_single(acc)


def nearest_single(value: Fraction) -> np.float32:
    """`value` rounded to float32, ties to even."""
    near = np.float32(float(value))
    around = [np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf))]
    even = lambda v: int(np.abs(v).view(np.uint32)) & 1  # noqa: E731
    return min(around, key=lambda v: (abs(Fraction(float(v)) - value), even(v)))


def refused(op: Any, *types: str) -> str:
    with pytest.raises(GraphError) as caught:
        op.infer(Inference(tuple(TensorType.parse(t) for t in types), place="node"))
    return str(caught.value)


def test_what_does_not_fit_is_refused_with_its_cause() -> None:
    x, w = "float32[2, 6, 5, 7]", "float32[4, 6, 3, 2]"
    assert "4 groups" in refused(Conv(groups=4), x, w)
    assert "weight" in refused(Conv(), x, "float32[4, 5, 3, 2]")
    assert "rank" in refused(Conv(), x, "float32[4, 6, 3]")
    assert "bias" in refused(Conv(), x, w, "float32[5]")
    assert "does not fit" in refused(Conv(dilations=(3, 1)), x, w)
    assert "strides" in refused(Conv(strides=(1, 0)), x, w)
    assert "pads" in refused(Conv(pads=((1, 1),)), x, w)
    assert "negative" in refused(Conv(pads=((1, 1), (0, -1))), x, w)
    assert "SAME_UPPER" in refused(Conv(pads="SAME"), x, w)
    assert "kernel_shape" in refused(Conv(kernel_shape=(3, 3)), x, w)
    assert "int32" in refused(Conv(), "int32[2, 6, 5, 7]", w)
    assert "axes" in refused(Conv(), "float32[2, 6]", w)
    assert "nothing" in refused(ConvTranspose(pads=((4, 4), (0, 0))), x, "float32[6, 2, 3, 2]")
    assert "output_shape" in refused(
        ConvTranspose(pads=((1, 1), (0, 0)), output_shape=(5, 6)), x, "float32[6, 2, 3, 2]"
    )


def test_sizes_may_be_symbols() -> None:
    n, h = symbol("n"), symbol("h")
    x = TensorType.parse("float32[n, 3, h, 20]")
    w = TensorType.parse("float32[8, 3, 3, 5]")
    (y,) = Conv(strides=(2, 3), pads=((1, 0), (2, 2))).infer(Inference((x, w)))
    assert y.dims == (n, 8, (h - 2) // 2 + 1, 7)
    (same,) = Conv(strides=(2, 3), pads="SAME_UPPER").infer(Inference((x, w)))
    assert same.substitute({"h": 11}).dims[2:] == (6, 7)
    (up,) = ConvTranspose(strides=(2, 1)).infer(
        Inference((x, TensorType.parse("float32[3, 4, 3, 2]")))
    )
    assert up.dims == (n, 4, 2 * h + 1, 21)


def test_same_padding_counts_the_dilated_kernel() -> None:
    op = Conv(pads="SAME_LOWER", dilations=(3, 2), strides=(2, 1))
    found = op.spatial(
        TensorType.parse("float32[1, 1, 9, 8]"), TensorType.parse("float32[1, 1, 2, 4]")
    )
    assert (found.output, found.pads) == ((5, 8), ((2, 1), (3, 3)))
