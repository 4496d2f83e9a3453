"""Functions of arrays as operators of PyTorch: forms, gradients, torch.compile, opcheck."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from verax.base.errors import UsageError

torch = pytest.importorskip("torch", reason="torch is not installed")
F = torch.nn.functional
import verax.torch as vt  # noqa: E402  (needs torch)

NUMBERS = itertools.count()


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
