"""Functions of PyTorch as meanings, tensors as answers, and what is refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import verax
from verax.base.errors import VeraxError
from verax.numerics.error_model import U
from verax.records.verdict import Kind
from verax.testing.failures import IncorrectError
from verax.testing.random_rounding import RoundingNoise

torch = pytest.importorskip("torch", reason="functions of PyTorch's tensors")
home = pytest.importorskip("verax.testing.random_rounding_torch")


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


X, W = normal(1, 5, 7), normal(2, 7, 9)


def tensors() -> tuple[Any, Any]:
    return torch.from_numpy(X), torch.from_numpy(W)


def test_exported_functions_are_judged_node_by_node() -> None:

    def meaning(x: Any, w: Any) -> Any:
        return torch.softmax(x @ w, -1)

    def kernel(x: Any, w: Any) -> Any:
        e = torch.exp(x @ w)
        return e / e.sum(-1, keepdim=True)

    assert verax.assert_correct(kernel, meaning, tensors()).kind is Kind.rounding
    with pytest.raises(IncorrectError, match=r"batch 3|row 3") as caught:
        verax.assert_correct(
            lambda x, w: torch.cat([kernel(x, w)[:3], 0 * x[:1] @ w, kernel(x, w)[4:]]),
            meaning,
            tensors(),
        )
    assert "derived" not in str(caught.value)


def test_functions_that_cannot_be_exported_get_a_derived_bound() -> None:

    def meaning(x: Any, w: Any) -> Any:
        y = x @ w
        while float(y.abs().max()) > 1:  # a loop that depends on data
            y = y / 2
        return torch.nn.functional.layer_norm(y, (9,))

    verdict = verax.assert_correct(meaning, meaning, tensors())
    assert "derived bound" in verdict.method
    with pytest.raises(IncorrectError, match="derived"):
        verax.assert_correct(lambda x, w: meaning(x, w) * 1.0001, meaning, tensors())


def test_operators_take_tensors_of_16_bits() -> None:
    factors = tuple(t.bfloat16() for t in tensors())
    assert verax.assert_correct(torch.matmul, "MatMul", factors)
    assert verax.assert_correct(lambda a, b: a.float() @ b.float(), "MatMul", factors)


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_attention_may_store_its_shares_and_not_its_scores_in_16_bits(kind: str) -> None:
    dtype = getattr(torch, kind)
    shapes = ((2, 3, 33, 16), (2, 3, 265, 16), (2, 3, 265, 8))
    inputs = tuple(torch.from_numpy(normal(5 + i, *s)).to(dtype) for i, s in enumerate(shapes))

    def fused(q: Any, k: Any, v: Any) -> Any:
        shares = (q.float() @ k.float().transpose(-1, -2) / 4).softmax(-1)
        return (shares.to(dtype).float() @ v.float()).to(dtype)

    def stored_scores(q: Any, k: Any, v: Any) -> Any:
        scores = (q / 4) @ k.transpose(-1, -2)
        return (scores.float().softmax(-1) @ v.float()).to(dtype)

    def sums_in_16_bits(q: Any, k: Any, v: Any) -> Any:
        shares = (q.float() @ k.float().transpose(-1, -2) / 4).softmax(-1)
        total = torch.zeros(2, 3, 33, 8, dtype=dtype)
        for i in range(265):
            total = total + shares[..., i : i + 1] * v[..., i : i + 1, :].float()
            total = total.to(dtype)
        return total

    own = torch.nn.functional.scaled_dot_product_attention
    for kernel in (fused, own):
        assert verax.assert_correct(kernel, "Attention(scale=0.25)", inputs)
    # Scores near 1 round by no more than shares do; large ones do.
    large = (8 * inputs[0], *inputs[1:])
    assert verax.assert_correct(fused, "Attention(scale=0.25)", large)
    for kernel, operands in ((stored_scores, large), (sums_in_16_bits, inputs)):
        with pytest.raises(IncorrectError):
            verax.assert_correct(kernel, "Attention(scale=0.25)", operands, accumulate="float32")


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_pytorchs_own_kernels_of_16_bits_pass(kind: str) -> None:
    dtype = getattr(torch, kind)
    functional = torch.nn.functional

    def drawn(*shape: int) -> Any:
        return torch.from_numpy(normal(sum(shape), *shape)).to(dtype)

    x, scale, bias = drawn(4, 9, 70), drawn(70), drawn(70) + 1
    kernels = (
        (lambda x: x.softmax(-1), "Softmax", x),
        (
            lambda x, g, b: functional.layer_norm(x, (70,), g, b),
            "LayerNormalization(axis=-1)",
            (x, scale, bias),
        ),
        (functional.conv2d, "Conv", (drawn(2, 6, 12, 11), drawn(5, 6, 3, 2))),
        (lambda x, axis: x.cumsum(-1), "CumSum", (x, 2)),
        (functional.linear, "Gemm(trans_b=True)", (drawn(9, 40), drawn(7, 40), drawn(7))),
    )
    for kernel, meaning, inputs in kernels:
        verdict = verax.assert_correct(kernel, meaning, inputs, accumulate="float32")
        assert verdict.kind in (Kind.identical, Kind.rounding)


def test_random_rounding_sees_forward_and_backward() -> None:

    def gradient(x: Any, w: Any) -> Any:
        x = x.clone().requires_grad_()
        (result,) = torch.autograd.grad(torch.nn.functional.gelu(x @ w).sum(), x)
        return result

    for function in (lambda x, w: torch.softmax(x @ w, -1), gradient):
        ready = home.TorchFunction(function, (X, W), "f")
        noise = RoundingNoise(np.random.default_rng(3), U, U)
        (exact,), (first,), (second,) = ready.exact(), ready.sample(noise), ready.sample(noise)
        relative = np.abs(first - exact) / np.abs(exact).max()
        assert (first != second).all() and 0 < relative.max() < 100 * U


def test_composite_operators_are_rounded_step_by_step() -> None:
    x = torch.from_numpy(X).double() + 1000
    exact = torch.softmax(x, -1)
    with home.RandomRounding(RoundingNoise(np.random.default_rng(6), U, U)):
        rounded = torch.softmax(x, -1)
    relative = ((rounded - exact) / exact).abs()
    assert 0 < float(relative.max()) < 20 * U  # not that of numbers near 1000


def test_moving_elements_is_not_rounded() -> None:
    for exact in (
        lambda x: torch.cat([x.t()[1:], -x.t()[:2]]).abs(),
        lambda x: torch.relu(x).sort(-1).values,
        lambda x: torch.where(x > 0, x, 0 * x).flip(0),
    ):
        x = torch.from_numpy(X).double()
        noise = RoundingNoise(np.random.default_rng(4), U, U)
        with home.RandomRounding(noise):
            assert torch.equal(exact(x), exact(x))


def test_distributed_tensors_are_refused_by_name() -> None:
    part = type("DTensor", (torch.Tensor,), {"__module__": "torch.distributed.tensor"})
    x = torch.from_numpy(X).as_subclass(part)
    for meaning in ("Tanh", torch.tanh, np.tanh):
        with pytest.raises(VeraxError, match="DTensor"):
            verax.assert_correct(torch.tanh, meaning, (x,))
    with pytest.raises(VeraxError, match="DTensor"):
        verax.assert_gradients(torch.tanh, torch.tanh, (x,))
