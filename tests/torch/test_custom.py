"""Functions of arrays as operators of PyTorch: forms, gradients, torch.compile, opcheck."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import verax
from verax.base.errors import UsageError
from verax.records.verdict import Kind

torch = pytest.importorskip("torch", reason="torch is not installed")
nn, F = torch.nn, torch.nn.functional
import verax.torch as vt  # noqa: E402  (needs torch)

NUMBERS = itertools.count()
FINE = (Kind.identical, Kind.rounding)


def fresh_name() -> str:
    """Operators stay for the life of the process."""
    return f"verax_tests::conv{next(NUMBERS)}"


def drawn(*shape: int, seed: int = 3) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape, np.float32))


def looped(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    rows, columns = (x.shape[a] - weight.shape[a] + 1 for a in (2, 3))
    y = np.zeros((x.shape[0], weight.shape[0], rows, columns), np.float32)
    for i in range(rows):
        for j in range(columns):
            seen = x[:, :, i : i + weight.shape[2], j : j + weight.shape[3]]
            y[:, :, i, j] = np.einsum("nchw,ochw->no", seen, weight)
    return y + bias[:, None, None]


def convolution() -> tuple[Any, tuple[Any, ...]]:
    made = vt.operator(fresh_name(), looped, like=F.conv2d, tensors=3)
    return made, (drawn(2, 3, 5, 6), drawn(4, 3, 2, 3), drawn(4))


def test_it_computes_by_the_function_and_has_the_gradients_of_its_meaning() -> None:
    conv, tensors = convolution()
    leaves = [t.clone().requires_grad_() for t in tensors]
    torch.testing.assert_close(conv(*leaves), F.conv2d(*tensors))
    cotangent = drawn(2, 4, 4, 4, seed=5)
    given = torch.autograd.grad(conv(*leaves), leaves, cotangent)
    wanted = torch.autograd.grad(F.conv2d(*leaves), leaves, cotangent)
    torch.testing.assert_close(given, wanted)
    only = torch.autograd.grad(conv(tensors[0], leaves[1], tensors[2]), leaves[1], cotangent)
    torch.testing.assert_close(only[0], wanted[1])


def test_opcheck_and_a_whole_graph_of_torch_compile() -> None:
    conv, tensors = convolution()
    leaves = tuple(t.clone().requires_grad_() for t in tensors)
    found = torch.library.opcheck(conv, leaves)
    assert set(found.values()) == {"SUCCESS"}

    def around(x: Any) -> Any:
        return torch.relu(conv(x, *tensors[1:])) * 2

    torch.compiler.reset()
    fast = torch.compile(around, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(fast(tensors[0]), around(tensors[0]))


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(UsageError, match="no name of an operator"):
        vt.operator("conv", looped, like=F.conv2d, tensors=3)
    with pytest.raises(UsageError, match="an operator of 0 tensors"):
        vt.operator(fresh_name(), looped, like=F.conv2d, tensors=0)
    name = fresh_name()
    vt.operator(name, looped, like=F.conv2d, tensors=3)
    with pytest.raises(UsageError, match="exists"):
        vt.operator(name, looped, like=F.conv2d, tensors=3)
    crooked = vt.operator(fresh_name(), lambda x: x[:1], like=torch.relu, tensors=1)
    with pytest.raises(UsageError, match="it gave the shape"):
        crooked(drawn(2, 3))

    def writing(x: np.ndarray) -> np.ndarray:
        x[:] = 0
        return x

    with pytest.raises(UsageError, match="read-only"):
        vt.operator(fresh_name(), writing, like=torch.relu, tensors=1)(drawn(2, 3))


class Around(nn.Module):
    """A layer of PyTorch's own, and a call of the operator."""

    def __init__(self, operator: Any) -> None:
        super().__init__()
        torch.manual_seed(11)
        self.first = nn.Conv2d(2, 3, (2, 3))
        self.weight = nn.Parameter(torch.randn(4, 3, 2, 3))
        self.bias = nn.Parameter(torch.randn(4))
        self.operator = operator

    def forward(self, x: Any) -> Any:
        return self.operator(torch.relu(self.first(x)), self.weight, self.bias) * 2


@pytest.mark.parametrize("backward", ["reference", "own"])
def test_it_takes_the_place_of_a_layer(backward: str) -> None:
    conv, _ = convolution()
    net, x = Around(F.conv2d), drawn(2, 2, 7, 8)
    net(x).sum().backward()
    wanted = net.first.weight.grad.clone()
    net.zero_grad()
    with vt.substitute(net, {"first": conv, F.conv2d: conv}, backward=backward) as run:
        net(x).sum().backward()
    assert list(run.layers) == ["first", "conv2d 0"]
    assert run.layers["first"].replacement.startswith("the operator verax_tests::conv")
    assert all(v.kind in FINE for v in run.verdicts.values()) and run.kind in FINE
    torch.testing.assert_close(net.first.weight.grad, wanted)


def test_layers_and_calls_that_are_the_operator_are_exchanged() -> None:
    conv, _ = convolution()
    net, x = Around(conv), drawn(2, 2, 7, 8)
    for key in (conv, conv._opoverload, getattr(torch.ops.verax_tests, conv._name)):
        with vt.substitute(net, {key: vt.reference}) as run:
            net(x).sum().backward()
        (report,) = run.layers.values()
        assert report.name == f"verax_tests::{conv._name} 0" and run.kind is Kind.identical
        assert set(report.gradients) == {"input", "weight", "bias"}
    with vt.substitute(nn.Sequential(net), {"0": "verax:O1"}) as run:
        run.net(x)
    assert run.kind in FINE


def test_networks_that_hold_it_are_read_as_what_it_means() -> None:
    conv, _ = convolution()
    net, x = Around(conv), drawn(2, 2, 7, 8)
    model = verax.load(net, inputs=x)
    assert f"verax_tests::{conv._name}.default (1)" in model.metadata["decomposed"]
    assert "the function that it was said to be like" in str(model.ledger)
    assert verax.check(net, "torch", x).kind in FINE


def halved(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    return looped(x, weight, bias / 2)


@pytest.mark.parametrize("function", [looped, halved])
def test_the_backend_compiles_a_graph_that_holds_it_as_what_it_means(function: Any) -> None:
    conv = vt.operator(fresh_name(), function, like=F.conv2d, tensors=3)
    net, meaning, x = Around(conv), Around(F.conv2d), drawn(2, 2, 7, 8)
    torch.compiler.reset()
    vt.reset()
    fast = torch.compile(net, backend="verax", fullgraph=True, options={"require_native": True})
    with torch.no_grad():
        torch.testing.assert_close(fast(x), meaning(x))
        off = (net(x) - meaning(x)).abs().max()  # of the function itself, which did not run above
        assert (off < 1e-3) if function is looped else (off > 0.1)
    (graph,) = vt.report()
    assert (graph.kind, graph.programs, graph.fallback) == ("inference", 1, "")
    assert not graph.on_reference


def test_a_graph_that_holds_it_is_trained_by_the_backend() -> None:
    net, wide, x = Around(convolution()[0]), Around(F.conv2d).double(), drawn(2, 2, 7, 8)
    torch.compiler.reset()
    vt.reset()
    torch.compile(net, backend="verax", fullgraph=True)(x).square().sum().backward()
    wide(x.double()).square().sum().backward()
    for given, wanted in zip(net.parameters(), wide.parameters()):
        size = wanted.grad.abs().max()
        torch.testing.assert_close(given.grad / size, (wanted.grad / size).float())
    forward, backward = vt.report()
    assert (forward.kind, forward.programs, forward.fallback) == ("forward", 1, "")
    # also what of it is in float64
    assert (backward.kind, backward.programs, backward.fallback) == ("backward", 1, "")


def test_dynamo_explains_a_graph_that_holds_it_without_a_break() -> None:
    conv, _ = convolution()
    torch.compiler.reset()
    with torch.no_grad():
        told = torch._dynamo.explain(Around(conv))(drawn(2, 2, 7, 8))
    assert (told.graph_count, told.graph_break_count, told.break_reasons) == (1, 0, [])
    (held,) = [f for ops in told.ops_per_graph for f in ops if vt.custom.custom_of(f) is not None]
    assert held is conv._opoverload


def test_a_wrong_operator_is_named_by_the_judge() -> None:
    wrong = vt.operator(fresh_name(), halved, like=F.conv2d, tensors=3)
    with vt.substitute(Around(F.conv2d), {"first": wrong}) as run:
        run.net(drawn(2, 2, 7, 8))
    assert run.kind is Kind.mistake
    assert verax.check(Around(wrong), "torch", drawn(2, 2, 7, 8)).kind is Kind.mistake


def test_a_layer_of_other_tensors_is_refused() -> None:
    conv, _ = convolution()
    net = nn.Sequential(nn.ReLU())
    with (
        pytest.raises(UsageError, match="takes 3 tensors, the layer has 1: input"),
        vt.substitute(net, {"0": conv}),
    ):
        net(drawn(2, 3))
