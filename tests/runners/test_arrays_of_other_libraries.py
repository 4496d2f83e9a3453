"""Functions of JAX and CuPy as subjects: they are handed arrays of their library, on its device."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import verax
from verax.records.verdict import Kind

torch = pytest.importorskip("torch", reason="torch is not installed")
FINE = (Kind.identical, Kind.rounding)


def drawn(*shape: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.fixture
def model() -> Any:
    """tanh of a product of matrices."""
    a, b = torch.zeros(3, 7), torch.zeros(7, 5)
    return verax.load(lambda a, b: torch.tanh(a @ b), inputs=(a, b))


def inputs(make: Any) -> dict[str, Any]:
    return {"a": make(drawn(3, 7, seed=2)), "b": make(drawn(7, 5, seed=5))}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_jitted_function_of_jax(model: Any, dtype: str) -> None:
    jax = pytest.importorskip("jax", reason="jax is not installed")
    jnp, seen = jax.numpy, []

    def plain(a: Any, b: Any) -> Any:
        seen.append((a, b))
        return a.at[:].multiply(1) @ b  # arrays of NumPy have no `at`

    narrow = getattr(torch, dtype)
    product = verax.load(
        lambda a, b: a @ b, inputs=(torch.zeros(3, 7).to(narrow), torch.zeros(7, 5).to(narrow))
    )
    given = inputs(lambda array: jnp.asarray(array).astype(dtype))
    for function in (plain, jax.jit(plain)):
        verdict = verax.check(product, function, given)
        assert verdict.kind in FINE and verdict.subject["takes"] == "arrays of JAX"
        assert (
            verdict.environment["JAX"] == jax.__version__ and verdict.environment["card"] == "cpu"
        )
        assert verdict.environment["precision of JAX's products"] == "default"
    assert all(isinstance(a, jax.Array) for pair in seen for a in pair)
    assert verax.check(product, plain(**given), given).kind in FINE
    assert verax.check(product, plain(**given) * 1.5, given).kind is Kind.mistake


class FakeCupy(ModuleType):
    """What of CuPy is called: `asarray` on the current device."""

    def __init__(self) -> None:
        super().__init__("cupy")
        self.current: list[int] = []

    def asarray(self, array: np.ndarray) -> CupyArray:
        return CupyArray(array, self.current[-1])


class CupyDevice:
    def __init__(self, index: int) -> None:
        self.index = index

    def __enter__(self) -> None:
        sys.modules["cupy"].current.append(self.index)

    def __exit__(self, *_: Any) -> None:
        sys.modules["cupy"].current.pop()


class CupyArray:
    """On a GPU; NumPy may not read it, `get` copies it."""

    __module__ = "cupy"

    def __init__(self, numbers: np.ndarray, index: int) -> None:
        self.numbers, self.device = numbers, CupyDevice(index)
        self.shape = numbers.shape

    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("on a GPU")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.device.index

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def get(self) -> np.ndarray:
        return self.numbers.copy()


def test_a_kernel_of_cupy(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", FakeCupy())
    seen: list[Any] = []

    def kernel(a: Any, b: Any) -> Any:
        seen.extend((a, b))
        return CupyArray(np.tanh(a.numbers @ b.numbers), a.device.index)

    given = inputs(lambda array: CupyArray(array, 1))
    verdict = verax.check(model, kernel, given)
    assert verdict.kind in FINE and verdict.subject["takes"] == "arrays of CuPy on cuda:1"
    assert all(type(one) is CupyArray and one.device.index == 1 for one in seen)
    assert verdict.inputs[0].origin == "given, copied from cuda:1"
    assert verdict.environment["device"] == "cuda:1"
    answer = kernel(**given)
    verdict = verax.check(model, answer, given)
    assert verdict.kind in FINE and verdict.subject["copied from"] == "cuda:1"


def test_a_module_takes_arrays_of_any_library(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = torch.nn.Linear(7, 2).eval(), drawn(3, 7, seed=11)
    with torch.no_grad():
        answer = net(torch.from_numpy(x))
    assert verax.check(net, answer, (CupyArray(x, 0),)).kind in FINE
