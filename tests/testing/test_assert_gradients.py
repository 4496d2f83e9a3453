"""`verax.assert_gradients`: wrong vector-Jacobian products are refused and named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import verax
from verax.base.errors import VeraxError
from verax.records.verdict import Kind
from verax.testing.failures import BlindCheckError, IncorrectError

torch = pytest.importorskip("torch", reason="gradients of PyTorch's functions")
FEATURES = 30


def tensor(seed: int, *shape: int) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


X, SCALE, BIAS = tensor(1, 6, 5, FEATURES), tensor(2, FEATURES), tensor(3, FEATURES)


def layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    return torch.nn.functional.layer_norm(x, (FEATURES,), scale, bias)


def by_hand(x: Any, scale: Any, bias: Any) -> Any:
    d = x - x.mean(-1, keepdim=True)
    return d * torch.rsqrt((d * d).mean(-1, keepdim=True) + 1e-5) * scale + bias


def backward(x: Any, scale: Any, g: Any) -> tuple[Any, Any, Any]:
    d = x - x.mean(-1, keepdim=True)
    root = torch.rsqrt((d * d).mean(-1, keepdim=True) + 1e-5)
    y, gs = d * root, g * scale
    by_x = (gs - gs.mean(-1, keepdim=True) - y * (gs * y).mean(-1, keepdim=True)) * root
    return by_x, (g * y).sum((0, 1)), g.sum((0, 1))


def with_backward(change: Callable[..., tuple[Any, Any, Any]]) -> Callable[..., Any]:
    """The norm with a backward pass of its own, whose gradients `change` alters."""

    class Norm(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, scale: Any, bias: Any) -> Any:
            ctx.save_for_backward(x, scale)
            return by_hand(x, scale, bias)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, scale = ctx.saved_tensors
            return change(x, scale, g)

    def norm(x: Any, scale: Any, bias: Any) -> Any:
        return Norm.apply(x, scale, bias)

    return norm


def without_projection(x: Any, scale: Any, g: Any) -> tuple[Any, Any, Any]:
    d = x - x.mean(-1, keepdim=True)
    gs = g * scale
    root = torch.rsqrt((d * d).mean(-1, keepdim=True) + 1e-5)
    return ((gs - gs.mean(-1, keepdim=True)) * root, *backward(x, scale, g)[1:])


CORRECT: dict[str, tuple[Any, Any, Any]] = {
    "by autograd": (by_hand, layer_norm, (X, SCALE, BIAS)),
    "by hand": (with_backward(backward), layer_norm, (X, SCALE, BIAS)),
    "of an operator": (by_hand, "LayerNormalization(axis=-1)", (X, SCALE, BIAS)),
    "of a product": (torch.matmul, "MatMul", (tensor(4, 5, 7), tensor(5, 7, 9))),
    "of attention": (
        torch.nn.functional.scaled_dot_product_attention,
        lambda q, k, v: torch.softmax(q @ k.transpose(-1, -2) / 8**0.5, -1) @ v,
        (tensor(6, 2, 11, 8), tensor(7, 2, 13, 8), tensor(8, 2, 13, 8)),
    ),
    "of a convolution": (
        torch.nn.functional.conv2d,
        "Conv",
        (tensor(9, 2, 3, 9, 8), tensor(10, 4, 3, 3, 2)),
    ),
    "of named inputs": (
        lambda x, index: x[index] * x.sum(),
        lambda x, index: x.index_select(0, index) * x.sum(),
        {"x": tensor(11, 6, 3), "index": torch.tensor([4, 0, 4, 1])},
    ),
}


@pytest.mark.parametrize("name", CORRECT)
def test_correct_gradients_pass(name: str) -> None:
    assert verax.assert_gradients(*CORRECT[name]).kind in (Kind.rounding, Kind.identical)


def changed(index: int, change: Callable[[Any], Any]) -> Callable[..., Any]:
    def altered(x: Any, scale: Any, g: Any) -> Any:
        gradients = list(backward(x, scale, g))
        gradients[index] = change(gradients[index])
        return tuple(gradients)

    return with_backward(altered)


FAULTY = {
    "zero": (changed(1, torch.zeros_like), "gradient of input_1: left at zero"),
    "left out": (changed(2, lambda g: None), "gradient of input_2: left at zero"),
    "sign": (changed(0, lambda g: -g), "gradient of input_0: of the wrong sign"),
    "twice": (changed(2, lambda g: 2 * g), "gradient of input_2: counted twice"),
    "half": (changed(0, lambda g: g / 2), "gradient of input_0: halved"),
    "averaged": (changed(1, lambda g: g / 6), "averaged over the batch instead of summed"),
    "a missing term": (with_backward(without_projection), "gradient of input_0"),
    "one channel": (changed(1, lambda g: g * (torch.arange(FEATURES) != 17)), "element 17"),
    "the last tile": (
        changed(1, lambda g: g * (torch.arange(FEATURES) < 24)),
        "the last element tile (elements 24 to 29)",
    ),
    "slightly": (changed(0, lambda g: g * 1.0001), "1.0001 times"),
    "bf16": (changed(0, lambda g: g.bfloat16().float()), "grid of bfloat16"),
}


@pytest.mark.parametrize("name", FAULTY)
def test_faulty_gradients_are_refused_and_named(name: str) -> None:
    function, words = FAULTY[name]
    with pytest.raises(IncorrectError) as caught:
        verax.assert_gradients(function, layer_norm, (X, SCALE, BIAS))
    message = str(caught.value)
    assert words in message, message
    assert len(message.splitlines()) <= 8 and "the gradient of norm" in message


@pytest.mark.parametrize("meaning", ["MatMul", lambda a, b: a @ b], ids=["operator", "function"])
def test_a_detached_factor_is_seen(meaning: Any) -> None:
    factors = (tensor(4, 5, 7), tensor(5, 7, 9))
    with pytest.raises(IncorrectError, match="gradient of input_1: left at zero"):
        verax.assert_gradients(lambda a, b: a @ b.detach(), meaning, factors)


def test_parameters_of_modules_are_judged_by_name() -> None:
    class Halved(torch.nn.Linear):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            weight = (self.weight + self.weight.detach()) / 2
            return torch.nn.functional.linear(x, weight, self.bias)

    linear = torch.nn.Linear(FEATURES, 4)
    assert verax.assert_gradients(torch.nn.Linear(FEATURES, 4), linear, X)
    with pytest.raises(IncorrectError, match="gradient of weight: halved"):
        verax.assert_gradients(Halved(FEATURES, 4), linear, X)
    with pytest.raises(VeraxError, match="has no parameter 'weight' of shape"):
        verax.assert_gradients(torch.nn.Linear(FEATURES, 5), linear, X)


def forward(x: np.ndarray) -> np.ndarray:
    return np.tanh(x).mean(0)


def vjp(x: np.ndarray, g: np.ndarray) -> np.ndarray:
    return g * (1 - np.tanh(x) ** 2) / x.shape[0]


ARRAY = np.random.default_rng(12).standard_normal((8, 5)).astype(np.float32)


def test_pairs_of_numpy_give_their_gradients() -> None:
    def by_cosh(x: np.ndarray, g: np.ndarray) -> np.ndarray:
        return g / (np.cosh(x) ** 2 * np.float32(x.shape[0]))

    assert verax.assert_gradients((forward, by_cosh), (forward, vjp), ARRAY)
    with pytest.raises(IncorrectError, match="8 times what it should be"):
        verax.assert_gradients((forward, lambda x, g: 8 * vjp(x, g)), (forward, vjp), ARRAY)


def test_what_cannot_be_differentiated_is_refused_in_words() -> None:
    with pytest.raises(VeraxError, match="cannot be differentiated"):
        verax.assert_gradients(forward, (forward, vjp), ARRAY)
    with pytest.raises(VeraxError, match="no input holds floating-point"):
        verax.assert_gradients(torch.neg, torch.neg, torch.arange(4))
    with pytest.raises(VeraxError, match="it has no gradient"):
        verax.assert_gradients(torch.argmax, torch.argmax, tensor(13, 4, 3))


def test_gradients_that_are_zero_are_blind() -> None:
    with pytest.raises(BlindCheckError, match="zero everywhere"):
        verax.assert_gradients(torch.relu, torch.relu, -tensor(14, 3, 4).abs())


def test_gradients_are_repeated() -> None:
    random = np.random.default_rng(15)

    class Atomic(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x.sum(0) * x[0].sum()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            order = random.permutation(len(x) * len(g))
            terms = (x * g).flatten()
            total = torch.zeros(())
            for i in order:
                total = total + terms[i]
            by_x = (g * x[0].sum()).repeat(len(x), 1)
            by_x[0] += total
            return by_x

    def meaning(x: Any) -> Any:
        return x.sum(0) * x[0].sum()

    def atomic(x: Any) -> Any:
        return Atomic.apply(x)

    x = tensor(16, 9, 31)
    with pytest.raises(IncorrectError, match="not reproducible"):
        verax.assert_gradients(atomic, meaning, x)
    assert verax.assert_gradients(atomic, meaning, x, atomics=True)
