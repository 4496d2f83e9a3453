"""Gradients that somebody computed are judged: right ones pass, mistakes of kernels are seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from verax.base.errors import UsageError
from verax.records.verdict import Kind

torch = pytest.importorskip("torch", reason="torch is not installed")
F = torch.nn.functional
import verax.torch as vt  # noqa: E402  (needs torch)
from verax.torch.attention_backward import FusedAttention  # noqa: E402
from verax.torch.gradient_check import ExpectedGradients  # noqa: E402

FINE = (Kind.identical, Kind.rounding)


def drawn(*shape: int, seed: int = 3) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape, np.float32))


def in_tf32(t: Any) -> Any:
    """Factors as a GPU's matrix units take them: 13 bits rounded away, to nearest even."""
    bits = t.contiguous().view(torch.int32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A convolution, GroupNorm, a LayerNorm and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1, stride=2)
        self.group = torch.nn.GroupNorm(2, 8)
        self.layer = torch.nn.LayerNorm(20)
        self.fc = torch.nn.Linear(160, 7)

    def forward(self, x: Any) -> Any:
        y = F.gelu(self.group(self.conv(x))).flatten(2)
        return self.fc(self.layer(y).flatten(1))


@pytest.fixture(scope="module")
def expected() -> ExpectedGradients:
    return ExpectedGradients(Net(), drawn(2, 3, 9, 8), drawn(2, 7, seed=4))


@pytest.fixture(scope="module")
def gradients() -> dict[str, Any]:
    """PyTorch's own, by the names of parameters and of the input."""
    net, x = Net(), drawn(2, 3, 9, 8).requires_grad_()
    net(x).backward(drawn(2, 7, seed=4))
    return {"x": x.grad, **{k: p.grad for k, p in net.named_parameters()}}


def test_own_gradients_are_rounding(expected: ExpectedGradients, gradients: Any) -> None:
    verdict = expected.check(gradients)
    assert verdict.kind in FINE
    assert {f.value for f in verdict.nodes} == {f"grad.{k}" for k in gradients}


@pytest.mark.parametrize("name", ["group.weight", "layer.bias", "conv.weight", "x"])
def test_a_gradient_off_by_a_thousandth_is_a_mistake(
    name: str, expected: ExpectedGradients, gradients: Any
) -> None:
    verdict = expected.check({**gradients, name: gradients[name] * 1.001})
    assert verdict.kind is Kind.mistake
    assert [b.value for b in verdict.blame] == [f"grad.{name}"]


def test_a_gradient_that_is_none_stands_for_zeros(
    expected: ExpectedGradients, gradients: Any
) -> None:
    assert expected.check({**gradients, "fc.bias": None}).kind is Kind.mistake


def test_a_module_runs_its_own_backward() -> None:
    verdict = vt.check_gradients(Net(), Net(), drawn(2, 3, 9, 8), drawn(2, 7, seed=4))
    assert verdict.kind in FINE


def test_running_statistics_stay_as_they_are() -> None:
    norm = torch.nn.BatchNorm2d(5)
    verdict = vt.check_gradients(norm, norm, drawn(3, 5, 4, 6), drawn(3, 5, 4, 6, seed=8))
    assert verdict.kind in FINE
    assert not norm.running_mean.any()


def test_weight_gradients_in_tf32_are_named() -> None:
    x, w, dy = drawn(19, 48), drawn(23, 48, seed=6), drawn(19, 23, seed=7)
    coarse = in_tf32(dy).T @ in_tf32(x)
    verdict = vt.check_gradients(F.linear, {"weight": coarse}, (x, w), dy)
    assert verdict.kind is Kind.precision
    assert {p.format for p in verdict.precisions} <= {"TF32 inputs", "TF32 or fp16 inputs"}


def attention_gradients(rows: bool) -> dict[str, Any]:
    """Of attention without a mask; rows: with the sum over each row of the softmax's gradient."""
    q, k, v, dy = (drawn(2, 3, n, 8, seed=n).double() for n in (11, 13, 13, 11))
    p = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5, -1)
    dp = dy @ v.transpose(-1, -2)
    ds = p * (dp - (dp * p).sum(-1, keepdim=True)) if rows else p * dp
    return {"query": (ds @ k / 8**0.5).float(), "key": (ds.transpose(-1, -2) @ q / 8**0.5).float()}


@pytest.mark.parametrize("rows", [True, False])
def test_a_softmax_gradient_needs_the_sum_over_its_row(rows: bool) -> None:
    inputs = tuple(drawn(2, 3, n, 8, seed=n) for n in (11, 13, 13))
    verdict = vt.check_gradients(
        F.scaled_dot_product_attention,
        attention_gradients(rows),
        inputs,
        drawn(2, 3, 11, 8, seed=11),
    )
    assert (verdict.kind in FINE) is rows
    assert (verdict.kind is Kind.mistake) is not rows


@pytest.mark.parametrize("causal", [True, False])
def test_fused_attention_has_the_gradients_of_attention(causal: bool) -> None:
    tensors = [drawn(2, 3, n, 8, seed=n).double().requires_grad_() for n in (11, 13, 13)]
    dy = drawn(2, 3, 11, 8, seed=9).double()

    def gradients() -> tuple[Any, ...]:
        y = F.scaled_dot_product_attention(*tensors, is_causal=causal)
        return (y, *torch.autograd.grad(y, tensors, dy))

    with FusedAttention() as mode:
        fused = gradients()
    assert mode.calls == 1
    for a, b in zip(fused, gradients(), strict=True):
        torch.testing.assert_close(a, b)


def test_names_and_shapes_that_do_not_fit_are_told(expected: ExpectedGradients) -> None:
    with pytest.raises(UsageError, match=r"no gradient of 'fc\.wieght'"):
        expected.check({"fc.wieght": np.zeros((7, 160), np.float32)})
    with pytest.raises(UsageError, match="do not fit outputs"):
        vt.check_gradients(Net(), {}, drawn(2, 3, 9, 8), drawn(2, 5))
    with pytest.raises(UsageError, match="gradients of their own"):
        vt.check_gradients(Net(), {}, drawn(2, 3, 9, 8))
    with pytest.raises(UsageError, match="cannot be a list"):
        vt.check_gradients(Net(), [1], drawn(2, 3, 9, 8), drawn(2, 7))
