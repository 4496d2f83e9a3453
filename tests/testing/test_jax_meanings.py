"""Functions of JAX as meanings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import verax
from verax.records.verdict import Kind
from verax.testing.failures import IncorrectError

jax = pytest.importorskip("jax", reason="functions of JAX's arrays")


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


X, W = normal(1, 5, 7), normal(2, 7, 9)


def arrays() -> tuple[Any, Any]:
    return jax.numpy.asarray(X), jax.numpy.asarray(W)


def test_functions_get_a_derived_bound() -> None:
    jnp = jax.numpy

    def meaning(x: Any, w: Any) -> Any:
        e = jnp.exp(x @ w)
        return e / e.sum(-1, keepdims=True)

    def kernel(x: Any, w: Any) -> Any:
        return jax.nn.softmax(x @ w, -1)

    assert verax.assert_correct(kernel, meaning, arrays()).kind is Kind.rounding
    assert verax.assert_gradients(kernel, meaning, arrays()).kind is Kind.rounding
    with pytest.raises(IncorrectError):
        verax.assert_correct(lambda x, w: kernel(x * 1.0001, w), meaning, arrays())
    with pytest.raises(IncorrectError, match="counted twice"):
        verax.assert_gradients(
            lambda x, w: 2 * kernel(x, w) - jax.lax.stop_gradient(kernel(x, w)),
            *(meaning, arrays()),
        )


def test_scans_and_calls_are_entered() -> None:
    jnp = jax.numpy

    @jax.jit
    def meaning(x: Any, w: Any) -> Any:
        def step(h: Any, row: Any) -> Any:
            h = jnp.tanh(h + row)
            return h, h

        return jax.lax.scan(step, jnp.zeros(9, x.dtype), x @ w, reverse=True)[1]

    assert verax.assert_correct(meaning, meaning, arrays()).kind is Kind.rounding
    with pytest.raises(IncorrectError, match="row 4"):
        verax.assert_correct(lambda x, w: meaning(x, w).at[-1].set(0), meaning, arrays())
