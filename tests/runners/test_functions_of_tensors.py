"""A function that is judged on tensors is handed tensors: of their own type, complex ones too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import verax
from verax.records.verdict import Kind

torch = pytest.importorskip("torch", reason="torch is not installed")
import verax.torch as vt  # noqa: E402  (needs torch)

AGREE = (Kind.identical, Kind.rounding)


class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.product = torch.nn.Linear(5, 3)

    def forward(self, x: Any) -> Any:
        return torch.relu(self.product(x))


@pytest.fixture(params=["float32", "bfloat16", "float16"])
def case(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    torch.manual_seed(11)
    dtype = getattr(torch, request.param)
    return Net().to(dtype).eval(), torch.randn(2, 5).to(dtype)


def test_of_every_type_and_in_every_form_of_inputs(case: tuple[Any, Any]) -> None:
    net, x = case
    seen: list[Any] = []

    def function(given: Any) -> Any:
        seen.append(given)
        return torch.relu(torch.nn.functional.linear(given, net.product.weight, net.product.bias))

    for inputs in (x, (x,), {"x": x}):
        assert verax.check(net, function, inputs).kind in AGREE
    model = verax.load(net, inputs=(x,))
    assert verax.check(model, function, {"x": x}).subject["takes"] == "tensors"
    assert verax.bisect(model, function, x).verdict.kind in AGREE
    assert all(type(one) is torch.Tensor and one.dtype == x.dtype for one in seen)


def test_a_wrong_function_of_tensors_is_a_mistake(case: tuple[Any, Any]) -> None:
    net, x = case
    assert verax.check(net, lambda given: net(given) * 1.5, x).kind is Kind.mistake


def test_of_tensors_says_so_where_inputs_are_drawn(case: tuple[Any, Any]) -> None:
    net, x = case
    model = verax.load(net, inputs=(x,))
    verdict = verax.check(model, vt.of_tensors(lambda given: net(given)))
    assert verdict.kind in AGREE and verdict.subject["takes"] == "tensors"
    assert verax.check(model, vt.of_tensors(net.forward), {"x": x}).subject["name"] == "forward"


def test_a_function_changes_only_its_own_copy(case: tuple[Any, Any]) -> None:
    net, x = case
    before = x.clone()
    verax.check(net, lambda given: net(given).mul_(0).add_(given.zero_().sum()), x)
    assert torch.equal(x, before)


def test_complex_inputs_stay_complex() -> None:
    class Turned(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return torch.view_as_real(x * 2)

    torch.manual_seed(12)
    x = torch.randn(2, 3, dtype=torch.complex64)

    def function(given: Any) -> Any:
        assert given.dtype == torch.complex64
        return torch.view_as_real(given + given)

    assert verax.check(Turned(), function, (x,)).kind in AGREE


def test_functions_of_arrays_are_given_arrays_as_before(case: tuple[Any, Any]) -> None:
    net, x = case
    model = verax.load(net, inputs=(x,))

    def function(given: Any) -> Any:
        assert isinstance(given, np.ndarray)
        return verax.reference(model, {"x": given})[next(iter(model.outputs))].astype(given.dtype)

    array = verax.reference(model, {"x": x}, keep=["x"])["x"]
    given = array.astype(model.inputs["x"].dtype.numpy)
    assert verax.check(model, function, {"x": given}).kind in AGREE
