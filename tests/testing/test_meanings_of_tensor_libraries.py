"""Functions of PyTorch and JAX as meanings, tensors as answers, and what is refused by name."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import verax
from verax.base.errors import VeraxError
from verax.numerics.error_model import U
from verax.records.verdict import Kind
from verax.testing.failures import IncorrectError
from verax.testing.random_rounding import RoundingNoise


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


X, W = normal(1, 5, 7), normal(2, 7, 9)


def test_numpy_meanings_import_no_tensor_library() -> None:
    code = (
        "import sys, numpy as np, verax; x = np.random.default_rng(0).standard_normal((5, 7));"
        "verax.assert_correct(np.tanh(x), np.tanh, x); verax.assert_correct(np.tanh(x), 'Tanh', x);"
        "print([m for m in ('torch', 'jax', 'pytest') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


class TestTorch:
    torch = pytest.importorskip("torch", reason="functions of PyTorch's tensors")

    def tensors(self) -> tuple[Any, Any]:
        return self.torch.from_numpy(X), self.torch.from_numpy(W)

    def test_exported_functions_are_judged_node_by_node(self) -> None:
        torch = self.torch

        def meaning(x: Any, w: Any) -> Any:
            return torch.softmax(x @ w, -1)

        def kernel(x: Any, w: Any) -> Any:
            e = torch.exp(x @ w)
            return e / e.sum(-1, keepdim=True)

        assert verax.assert_correct(kernel, meaning, self.tensors()).kind is Kind.rounding
        with pytest.raises(IncorrectError, match=r"batch 3|row 3") as caught:
            verax.assert_correct(
                lambda x, w: torch.cat([kernel(x, w)[:3], 0 * x[:1] @ w, kernel(x, w)[4:]]),
                meaning,
                self.tensors(),
            )
        assert "derived" not in str(caught.value)

    def test_functions_that_cannot_be_exported_get_a_derived_bound(self) -> None:
        torch = self.torch

        def meaning(x: Any, w: Any) -> Any:
            y = x @ w
            while float(y.abs().max()) > 1:  # a loop that depends on data
                y = y / 2
            return torch.nn.functional.layer_norm(y, (9,))

        verdict = verax.assert_correct(meaning, meaning, self.tensors())
        assert "derived bound" in verdict.method
        with pytest.raises(IncorrectError, match="derived"):
            verax.assert_correct(lambda x, w: meaning(x, w) * 1.0001, meaning, self.tensors())

    def test_operators_take_tensors_of_16_bits(self) -> None:
        torch = self.torch
        factors = tuple(t.bfloat16() for t in self.tensors())
        assert verax.assert_correct(torch.matmul, "MatMul", factors)
        assert verax.assert_correct(lambda a, b: a.float() @ b.float(), "MatMul", factors)

    def test_random_rounding_sees_forward_and_backward(self) -> None:
        torch = self.torch
        home = pytest.importorskip("verax.testing.random_rounding_torch")

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

    def test_moving_elements_is_not_rounded(self) -> None:
        torch = self.torch
        home = pytest.importorskip("verax.testing.random_rounding_torch")
        for exact in (
            lambda x: torch.cat([x.t()[1:], -x.t()[:2]]).abs(),
            lambda x: torch.relu(x).sort(-1).values,
            lambda x: torch.where(x > 0, x, 0 * x).flip(0),
        ):
            x = torch.from_numpy(X).double()
            noise = RoundingNoise(np.random.default_rng(4), U, U)
            with home.RandomRounding(noise):
                assert torch.equal(exact(x), exact(x))

    def test_distributed_tensors_are_refused_by_name(self) -> None:
        torch = self.torch
        part = type("DTensor", (torch.Tensor,), {"__module__": "torch.distributed.tensor"})
        x = torch.from_numpy(X).as_subclass(part)
        for meaning in ("Tanh", torch.tanh, np.tanh):
            with pytest.raises(VeraxError, match="DTensor"):
                verax.assert_correct(torch.tanh, meaning, (x,))
        with pytest.raises(VeraxError, match="DTensor"):
            verax.assert_gradients(torch.tanh, torch.tanh, (x,))


class TestJax:
    jax = pytest.importorskip("jax", reason="functions of JAX's arrays")

    def arrays(self) -> tuple[Any, Any]:
        return self.jax.numpy.asarray(X), self.jax.numpy.asarray(W)

    def test_functions_get_a_derived_bound(self) -> None:
        jnp = self.jax.numpy

        def meaning(x: Any, w: Any) -> Any:
            e = jnp.exp(x @ w)
            return e / e.sum(-1, keepdims=True)

        def kernel(x: Any, w: Any) -> Any:
            return self.jax.nn.softmax(x @ w, -1)

        assert verax.assert_correct(kernel, meaning, self.arrays()).kind is Kind.rounding
        assert verax.assert_gradients(kernel, meaning, self.arrays()).kind is Kind.rounding
        with pytest.raises(IncorrectError):
            verax.assert_correct(lambda x, w: kernel(x * 1.0001, w), meaning, self.arrays())
        with pytest.raises(IncorrectError, match="counted twice"):
            verax.assert_gradients(
                lambda x, w: 2 * kernel(x, w) - self.jax.lax.stop_gradient(kernel(x, w)),
                *(meaning, self.arrays()),
            )

    def test_scans_and_calls_are_entered(self) -> None:
        jax = self.jax
        jnp = jax.numpy

        @jax.jit
        def meaning(x: Any, w: Any) -> Any:
            def step(h: Any, row: Any) -> Any:
                h = jnp.tanh(h + row)
                return h, h

            return jax.lax.scan(step, jnp.zeros(9, x.dtype), x @ w, reverse=True)[1]

        assert verax.assert_correct(meaning, meaning, self.arrays()).kind is Kind.rounding
        with pytest.raises(IncorrectError, match="row 4"):
            verax.assert_correct(lambda x, w: meaning(x, w).at[-1].set(0), meaning, self.arrays())
