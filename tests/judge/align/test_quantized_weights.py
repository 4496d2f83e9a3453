"""`align` says that the second's weights are the first's in fewer bits, and by which scheme."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from verax.base.errors import InputError
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge.align.networks import align
from verax.judge.align.quantized_weights import scheme_of
from verax.ops.pointwise.activation import Relu
from verax.ops.quantized.quantization import DequantizeLinear
from verax.ops.windows.convolution import Conv
from verax.ops.windows.global_pooling import GlobalAveragePool
from verax.ops.windows.integer_convolution import ConvInteger


def drawn_weights() -> tuple[np.ndarray, np.ndarray]:
    """Weights of two convolutions, the channels of the first of several sizes."""
    random = np.random.default_rng(41)
    sizes = random.uniform(0.2, 2, (6, 1, 1, 1))
    first = (random.standard_normal((6, 3, 3, 2)) * sizes).astype(np.float32)
    return first, random.standard_normal((5, 6, 2, 3)).astype(np.float32)


W1, W2 = drawn_weights()
Scheme = Callable[[np.ndarray], np.ndarray]


def integers(w: np.ndarray, bits: int, axis: int | None, zero: bool) -> np.ndarray:
    """w quantized and dequantized. axis: None per tensor; zero: with a zero point."""
    axes = tuple(a for a in range(w.ndim) if a != axis)
    high, low = w.max(axes, keepdims=True), w.min(axes, keepdims=True)
    if zero:
        scale = (high - low) / (2**bits - 1)
        point = np.rint(-low / scale)
        return ((np.clip(np.rint(w / scale) + point, 0, 2**bits - 1) - point) * scale).astype(
            np.float32
        )
    scale = np.maximum(high, -low) / (2 ** (bits - 1) - 1)
    return (np.rint(w / scale) * scale).astype(np.float32)


SCHEMES: dict[str, Scheme] = {
    "quantized to int8 per tensor, symmetric": lambda w: integers(w, 8, None, False),
    "quantized to int8 per channel (axis 0), symmetric": lambda w: integers(w, 8, 0, False),
    "quantized to int8 per channel (axis 1), symmetric": lambda w: integers(w, 8, 1, False),
    "quantized to int4 per channel (axis 0), symmetric": lambda w: integers(w, 4, 0, False),
    "rounded to float16": lambda w: w.astype(np.float16).astype(np.float32),
}


def network(w1: np.ndarray, w2: np.ndarray) -> Graph:
    b = Builder("keywords")
    x = b.input("x", TensorType.of(np.zeros((2, 3, 9, 8), np.float32)))
    x = b.add(Relu(), [b.add(Conv(), [x, b.constant(w1)])])
    x = b.add(GlobalAveragePool(), [b.add(Conv(), [x, b.constant(w2)])])
    return b.graph([x])


@pytest.mark.parametrize("words", SCHEMES)
def test_the_scheme_is_said_first(words: str) -> None:
    change = SCHEMES[words]
    alignment = align(network(W1, W2), network(change(W1), change(W2)))
    said = f"the second's weights are the first's, {words} (2 of 2)"
    assert alignment.reasons[0] == said, alignment.reasons


def test_asymmetric_grids_are_told() -> None:
    shifted = W1 + np.float32(0.7)
    assert scheme_of(shifted.astype(float), integers(shifted, 8, None, True).astype(float)) == (
        "quantized to int8 per tensor, asymmetric"
    )


def test_weights_in_another_layout_are_found() -> None:
    b = np.moveaxis(integers(W1, 8, 0, False), 0, 3)
    assert scheme_of(W1.astype(float), b.astype(float)) == (
        "quantized to int8 per channel (axis 0), symmetric"
    )


def test_stored_integers_are_found() -> None:
    b = Builder("stored")
    scale = np.abs(W1).max((1, 2, 3)) / 127
    stored = np.rint(W1 / scale.reshape(-1, 1, 1, 1)).astype(np.int8)
    x = b.input("x", TensorType.of(np.zeros((2, 3, 9, 8), np.float32)))
    w = b.add(DequantizeLinear(axis=0), [b.constant(stored), b.constant(scale.astype(np.float32))])
    x = b.add(Relu(), [b.add(Conv(), [x, w])])
    quantized = b.graph([b.add(GlobalAveragePool(), [b.add(Conv(), [x, b.constant(W2)])])])
    (first, *_) = align(network(W1, W2), quantized).reasons
    assert first.endswith("quantized to int8 per channel (axis 0), symmetric (1 of 2)")


def test_a_network_of_codes_is_refused_with_the_scheme() -> None:
    b = Builder("codes")
    scale = np.abs(W1).max((1, 2, 3), keepdims=True) / 127
    x = b.input("x", TensorType.of(np.zeros((2, 3, 9, 8), np.int8)))
    codes = b.constant(np.rint(W1 / scale).astype(np.int8))
    coded = b.graph([b.add(ConvInteger(), [x, codes])])
    plain = Builder("plain")
    x = plain.input("x", TensorType.of(np.zeros((2, 3, 9, 8), np.float32)))
    graph = plain.graph([plain.add(Conv(), [x, plain.constant(W1)])])
    words = "weights are the {}'s, quantized to int8 per channel (axis 0), symmetric (1 of 1)"
    with pytest.raises(InputError, match=re.escape("second's " + words.format("first"))):
        align(graph, coded)
    with pytest.raises(InputError, match=re.escape("first's " + words.format("second"))):
        align(coded, graph)


@pytest.mark.parametrize("size", [1e-3, 1e-2])
def test_other_weights_are_no_quantization(size: float) -> None:
    noise = np.random.default_rng(43).standard_normal(W1.shape) * size
    assert scheme_of(W1.astype(float), W1 + noise) == ""
    alignment = align(network(W1, W2), network((W1 + noise).astype(np.float32), W2))
    assert not any("quantized" in r for r in alignment.reasons)


def test_equal_weights_are_no_quantization() -> None:
    assert scheme_of(W1.astype(float), W1.astype(float)) == ""
