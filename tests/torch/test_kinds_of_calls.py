"""Modules given to `verax.compile`, `check` and `reference` as they are, called as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import verax
from verax.base.errors import UsageError
from verax.records.verdict import Kind

torch = pytest.importorskip("torch", reason="torch is not installed")
nn = torch.nn
FINE = (Kind.identical, Kind.rounding)


def drawn(*shape: int, seed: int = 3) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape, np.float32))


class Net(nn.Module):
    """Two inputs, one of which may be left out; a dictionary comes out."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(5, 3)

    def forward(self, x: Any, mask: Any = None) -> dict[str, Any]:
        y = self.head(x)
        if mask is not None:
            y = y * mask
        return {"scores": y, "none": None, "parts": (y.relu(), y.shape[0])}


def net(seed: int = 1) -> Any:
    torch.manual_seed(seed)
    return Net().eval()


X, MASK = drawn(4, 5), drawn(4, 3, seed=4)


def must_be(given: Any, wanted: Any) -> None:
    assert list(given) == list(wanted) and given["none"] is None
    torch.testing.assert_close(given["scores"], wanted["scores"])
    torch.testing.assert_close(given["parts"][0], wanted["parts"][0])
    assert given["parts"][1] == wanted["parts"][1]


def test_tensors_give_tensors_in_the_modules_own_form() -> None:
    module = net()
    exe = verax.compile(module, (X,))
    with torch.no_grad():
        must_be(exe(X), module(X))


def test_inputs_by_name_and_by_position() -> None:
    module = net()
    exe = verax.compile(module, {"x": X, "mask": MASK})
    with torch.no_grad():
        for given in (exe(x=X, mask=MASK), exe(X, mask=MASK), exe(X, MASK)):
            must_be(given, module(X, MASK))
    arrays = exe(X.numpy(), mask=MASK.numpy())
    assert [type(a) for a in arrays] == [np.ndarray, np.ndarray]
    with pytest.raises(UsageError, match="no input 'maks'"):
        exe(X, maks=MASK)
    with pytest.raises(UsageError, match="1 inputs are given, the network takes 2"):
        exe(X)


@pytest.mark.parametrize("subject", ["verax:O3", "torch"])
@pytest.mark.parametrize("inputs", [(X, MASK), {"x": X, "mask": MASK}], ids=["tuple", "dict"])
def test_a_module_is_judged_without_files(subject: str, inputs: Any) -> None:
    assert verax.check(net(), subject, inputs).kind in FINE


@pytest.mark.slow
def test_a_compiled_module_is_judged_without_files() -> None:
    assert verax.check(net(), "torch-compiled", (X, MASK)).kind in FINE


def test_the_reference_of_a_module() -> None:
    found = verax.reference(net(), (X,))
    with torch.no_grad():
        wanted = net().double()(X.double())
    np.testing.assert_allclose(found["scores"], wanted["scores"].numpy(), rtol=1e-9)


def test_bfloat16_tensors_stay_bfloat16() -> None:
    module = nn.Linear(5, 3).bfloat16().eval()
    x = X.bfloat16()
    given = verax.compile(module, x)(x)
    assert given.dtype == torch.bfloat16
    with torch.no_grad():
        torch.testing.assert_close(given, module(x))
