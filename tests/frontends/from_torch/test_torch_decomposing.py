"""What the table lacks is decomposed by itself, written down, and means the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch_programs import export, saved

import verax
from verax.base.errors import UnsupportedError
from verax.frontends.torch import load_torch

torch = pytest.importorskip("torch", reason="torch is not installed")


def drawn(*shape: int, seed: int = 7) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape, np.float32))


class Smooth(torch.nn.Module):
    """An operator that the table lacks and PyTorch decomposes, between two that it has whole."""

    def forward(self, x: Any) -> Any:
        y = torch.nn.functional.layer_norm(x, (5,))
        return torch.nn.functional.gelu(torch.special.entr(y.abs() + 0.5))


class Eigenvalues(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.linalg.eigvalsh(x @ x.transpose(0, 1))


def test_only_what_is_lacking_is_decomposed_and_the_ledger_says_so() -> None:
    x = drawn(3, 5)
    model = verax.load(Smooth(), inputs=(x,))
    assert model.metadata["decomposed"] == "aten::special_entr.default (1)"
    (entry,) = [e for e in model.ledger.entries if e.operator == "aten::special_entr.default"]
    assert "decomposed into simpler operators" in entry.reason
    kinds = {node.op.kind for node in model.graph.nodes}
    assert {"LayerNormalization", "Gelu"} <= kinds  # those stay whole
    (given,) = verax.reference(model, {"x": x.numpy()}).values()
    np.testing.assert_allclose(given, Smooth()(x.double()).numpy(), rtol=1e-6)


def test_a_decomposed_program_is_judged_as_it_is() -> None:
    model = verax.load(Smooth(), inputs=(drawn(3, 5),))
    assert verax.check(model, "torch").kind in ("rounding", "identical")


def test_what_cannot_be_decomposed_is_refused_with_the_users_line() -> None:
    with pytest.raises(UnsupportedError, match="linalg_eigvalsh") as caught:
        verax.load(Eigenvalues(), inputs=(drawn(3, 4),))
    assert "in forward: return torch.linalg.eigvalsh" in caught.value.place


COMPOSITE = {
    "composite": (lambda x: torch.kron(x, x[:2]), "aten::kron.default (1)"),
    "views": (lambda x: torch.tensor_split(x, 3, 1)[2], "aten::tensor_split.sections (1)"),
    "in two steps": (
        lambda x: torch.nn.functional.cross_entropy(
            x, torch.tensor([1, 0, 4]), label_smoothing=0.2
        ),
        "aten::cross_entropy_loss.default (1), aten::nll_loss_nd.default (1)",
    ),
    "of the table's own": (lambda x: torch.tril_indices(3, 4) + x[0, 0], ""),
    "median of pairs": (lambda x: torch.quantile(x, 0.5, dim=1), ""),
}


class Calls(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


@pytest.mark.parametrize("name", COMPOSITE)
def test_composite_operators_are_decomposed_as_far_as_it_takes(name: str) -> None:
    function, said = COMPOSITE[name]
    x = drawn(3, 5)
    model = verax.load(Calls(function), inputs=(x,))
    assert model.metadata["decomposed"] == said or not said
    (given,) = verax.reference(model, {"x": x.numpy()}).values()
    np.testing.assert_allclose(given, function(x.double()).numpy(), rtol=1e-6)


def test_an_error_names_what_is_lacking_in_the_end() -> None:
    with pytest.raises(UnsupportedError, match=r"linalg_cond.*in simpler operators: .*_linalg_svd"):
        verax.load(Calls(torch.linalg.cond), inputs=(drawn(3, 4),))


@pytest.mark.parametrize("name", ["rand_like", "bernoulli", "randn_like"])
def test_random_numbers_are_refused_in_words_and_where_they_are_drawn(name: str) -> None:
    function = getattr(torch, name)
    with pytest.raises(UnsupportedError, match=rf"aten::{name}.* draws random numbers") as caught:
        verax.load(Calls(lambda x: x + function(x.sigmoid())), inputs=(drawn(3, 4),))
    assert "give them as an input" in str(caught.value) and ".py" in str(caught.value)


X = drawn(3, 5)


def test_what_a_file_leaves_composite_is_decomposed_without_torch() -> None:
    """The ledger and the metadata say what was, as for programs in memory."""
    loss = torch.nn.functional.huber_loss
    data = saved(export(lambda x, y: loss(x, y) + torch.fliplr(x).sum(), (X, X * 2)))
    model = load_torch(data)
    names = [f"aten::{n}.default" for n in ("broadcast_tensors", "fliplr", "huber_loss")]
    assert model.metadata["decomposed"] == ", ".join(f"{n} (1)" for n in names)
    assert [e.operator for e in model.ledger.entries if e.node == "the program"] == names


@pytest.mark.parametrize("kind", ["cummax", "cummin"])
def test_running_extremes_keep_nan(kind: str) -> None:
    x = torch.tensor([2.0, 1.0, torch.nan, 5.0, -3.0, torch.nan, 9.0])
    wanted = getattr(torch, kind)(x, 0)
    model = load_torch(saved(export(lambda x: tuple(getattr(torch, kind)(x, 0)), (x,))))
    found = verax.compile(model, threads=1).run({next(iter(model.inputs)): x.numpy()})
    for array, tensor in zip(found.values(), wanted, strict=True):
        np.testing.assert_array_equal(array, tensor.numpy())


def test_logarithms_of_sums_take_infinities() -> None:
    x = torch.tensor([-torch.inf, torch.inf, -torch.inf, torch.inf, 1.0])
    y = torch.tensor([-torch.inf, torch.inf, 2.0, -torch.inf, -torch.inf])
    for function in (torch.logaddexp, torch.logaddexp2):
        model = load_torch(saved(export(function, (x, y))))
        given = dict(zip(model.inputs, (x.numpy(), y.numpy()), strict=True))
        (found,) = verax.compile(model, threads=1).run(given).values()
        np.testing.assert_array_equal(found, function(x, y).numpy())
