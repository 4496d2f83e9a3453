"""Named tuples that a module returns, PyTorch's own and others, become outputs of their names."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import verax  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
X = torch.from_numpy(np.random.default_rng(331).standard_normal((2, 3, 5), np.float32))


class Sides(NamedTuple):
    left: Any
    right: Any


class Extreme(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x.max(-1)


class Nested(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return {"a": x.sort(1), "b": Sides(x + 1, [x.topk(2, -1), x * 2])}


def test_the_values_and_places_of_extremes_are_two_outputs() -> None:
    module = Extreme()
    model = verax.load(module, inputs=(X,))
    found, want = verax.reference(model, {model.graph.inputs[0]: X.numpy()}), module(X)
    assert tuple(found) == ("values", "indices")
    np.testing.assert_array_equal(found["values"], want.values.numpy())
    np.testing.assert_array_equal(found["indices"], want.indices.numpy())


def test_fields_of_nested_named_tuples_name_outputs() -> None:
    found, want = verax.reference(Nested(), (X,)), Nested()(X)
    names = "a.values a.indices b.left b.right.0.values b.right.0.indices b.right.1"
    assert list(found) == names.split()
    arrays = (*want["a"], want["b"].left, *want["b"].right[0], want["b"].right[1])
    for got, tensor in zip(found.values(), arrays, strict=True):
        np.testing.assert_allclose(got, tensor.numpy(), rtol=1e-6)


def test_an_exported_program_keeps_its_form() -> None:
    program = torch.export.export(Extreme(), (X,))
    assert verax.load(program).graph.outputs == ("values", "indices")
    assert isinstance(program.module()(X), torch.return_types.max)
