"""A function of PyTorch's tensors is a network: what a kernel's answer is judged by."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import verax
from verax.base.errors import InputError, UsageError
from verax.records.verdict import Kind

torch = pytest.importorskip("torch", reason="torch is not installed")
F = torch.nn.functional
FINE = (Kind.identical, Kind.rounding)


def drawn(*shape: int, seed: int) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape, np.float32))


A, B = drawn(2, 3, 50, seed=1), drawn(50, 7, seed=2)


class Scaled:
    def __call__(self, a: Any, b: Any) -> Any:
        return a @ b * 0.5


@pytest.mark.parametrize(
    "function",
    [
        torch.matmul,
        lambda a, b: a @ b,
        torch.ops.aten.matmul.default,
        partial(torch.matmul, out=None),
        Scaled(),
    ],
)
def test_of_every_kind(function: Any) -> None:
    answer = function(A, B)
    assert verax.check(function, answer, (A, B)).kind in FINE
    assert verax.check(function, function, (A, B)).kind in FINE
    verdict = verax.check(function, answer * 1.01, (A, B))
    assert verdict.kind is Kind.mistake


def test_inputs_are_called_as_the_functions_parameters() -> None:
    verdict = verax.check(lambda left, right: left @ right, A @ B, (A, B))
    assert [i.name for i in verdict.inputs] == ["left", "right"]
    verdict = verax.check(lambda left, right: left @ right, A @ B, {"right": B, "left": A})
    assert verdict.kind in FINE and {i.name for i in verdict.inputs} == {"left", "right"}


def test_attention_with_settings_and_in_bfloat16() -> None:
    q, k, v = (drawn(2, 3, 6, 8, seed=s).to(torch.bfloat16) for s in (3, 4, 5))
    attention = F.scaled_dot_product_attention
    assert verax.check(attention, attention(q, k, v), (q, k, v)).kind in FINE
    causal = attention(q, k, v, is_causal=True)
    assert verax.check(attention, causal, (q, k, v)).kind is Kind.mistake
    masked = {"query": q, "key": k, "value": v, "is_causal": True}
    assert verax.check(attention, causal, masked).kind in FINE


def test_answers_without_names_in_every_form() -> None:
    function = partial(torch.topk, k=3)
    x = drawn(4, 9, seed=6)
    values, indices = function(x)
    for answer in ((values, indices), [values.numpy(), indices], function(x)):
        assert verax.check(function, answer, (x,)).kind in FINE
    verdict = verax.check(function, (values, indices.flip(0)), (x,))
    assert verdict.kind is Kind.mistake
    with pytest.raises(UsageError, match="gave 1 arrays, the model has 2"):
        verax.check(function, values, (x,))
    with pytest.raises(InputError, match="without the input"):
        verax.check(verax.load(torch.tanh, inputs=(x,)), torch.tanh(x))


def test_it_compiles_and_has_a_reference() -> None:
    exe = verax.compile(torch.matmul, (A, B))
    torch.testing.assert_close(exe(A, B), A @ B)
    (expected,) = verax.reference(torch.matmul, (A, B)).values()
    np.testing.assert_allclose(expected, A.double() @ B.double(), rtol=1e-12)


def test_what_is_no_network_is_refused() -> None:
    a, b = A.numpy(), B.numpy()
    for function in (np.matmul, lambda a, b: a @ b):
        with pytest.raises(UsageError, match="a function of arrays is no network"):
            verax.check(function, a @ b, (a, b))
    with pytest.raises(UsageError, match="a function says nothing about its inputs") as error:
        verax.check(torch.matmul, A @ B)
    assert error.value.place == "matmul"

    def branching(x: Any) -> Any:
        return x if float(x.sum()) > 0 else -x

    with pytest.raises(UsageError, match="cannot export the function") as error:
        verax.check(branching, A, (A,))
    assert error.value.place == "branching"
