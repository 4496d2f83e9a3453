"""Products by weights of 16, 8 and 4 bits on GPUs have the bits of the CPU, in every order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.compiler.gpu.test_gpu_programs import ORDERS
from tests.compiler.test_bits import bits
from tests.compiler.test_block_scaled import product as blocks_product
from tests.compiler.test_block_scaled import specs
from tests.compiler.test_stored_weights import product as stored_product

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.kernels.gpu import chains
from verax.compiler.kernels.gpu.chains import Chains
from verax.compiler.kernels.llvm.gpu import BlockBuilder
from verax.compiler.kernels.products.block_scaled import BlockProductSpec
from verax.compiler.kernels.products.stored import RowsSpec, WidenSpec
from verax.compiler.kernels.registry import EMITTERS
from verax.compiler.passes import fold_constants
from verax.compiler.place.binary.assembly import COMPILED_KERNELS
from verax.compiler.place.products import stored_weights
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.runtime.gpu.code import unpacked
from verax.runtime.gpu.emulated import VARIABLE

Made = tuple[Graph, dict[str, np.ndarray]]
SLOW = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(fold_constants, "STORED", 1)
    monkeypatch.setattr(stored_weights, "LEAST", 1)
    COMPILED_KERNELS.forget()
    yield
    COMPILED_KERNELS.forget()


def differs(made: Made, kind: type, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the emulated GPU has other bits than the CPU in some order."""
    graph, fed = made
    (want,) = compile(graph, Settings(2, threads=1)).run(fed).values()
    exe = compile(graph, Settings(2, threads=1, target="cuda-emulated"))
    assert any(isinstance(s, kind) for s in specs(exe)), str(exe.plan)
    wrong = False
    for order in ORDERS:
        monkeypatch.setenv(VARIABLE, order)
        (got,) = exe.run(fed).values()
        wrong |= bits(got) != bits(want)
    return wrong


@settings(max_examples=12, deadline=None, suppress_health_check=SLOW)
@given(
    rows=st.lists(st.integers(1, 4), min_size=1, max_size=2), blocks=st.integers(1, 40),
    size=st.sampled_from([16, 32, 48, 128]), n=st.integers(1, 90),
    kind=st.sampled_from(["int4", "uint4", "int8", "uint8"]), zero=st.booleans(),
    bias=st.booleans(), missing=st.integers(0, 15), seed=st.integers(0, 99),
)  # fmt: skip
def test_blocks_with_scales(
    rows: list[int], blocks: int, size: int, n: int, kind: str, zero: bool, bias: bool,
    missing: int, seed: int, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    made = blocks_product(tuple(rows), blocks, size, n, kind, zero, missing, bias, seed)
    assert not differs(made, BlockProductSpec, monkeypatch)


STORED: dict[str, tuple[Any, ...]] = {
    "one row of 4 bits": (1, 200, 90, "uint4", 20, True),
    "one zero point": (1, 130, 75, "int4", 26),
    "a lone panel of 4 bits": (2, 64, 16, "int4", 16),
    "8 bits, three rows": (3, 130, 37, "int8"),
    "8 rows and a start": (8, 70, 100, "uint8", 10, True, True, True),
    "a bias": (4, 90, 48, "int8", 9, True, False, True),
}


@pytest.mark.parametrize("name", STORED)
def test_weights_of_few_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not differs(stored_product(*STORED[name]), RowsSpec, monkeypatch)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_weights_of_16_bits(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, b = np.random.default_rng(8), Builder("halves")
    x = rng.standard_normal((2, 150)).astype(np.float32)
    w = rng.standard_normal((150, 53)).astype(np.dtype(getattr(ml_dtypes, kind, kind)))
    given = [b.input("x", TensorType.of(x)), b.constant(w.astype(np.float32))]
    graph = b.graph([b.add(REGISTRY["MatMul"](), given)])
    assert not differs((graph, {"x": x}), RowsSpec, monkeypatch)


@pytest.mark.parametrize(
    "shape", [(13, 70, 37, "uint4", 14, True), (20, 96, 65, "int8", 0, True), (9, 33, 90, "int4")]
)
def test_weights_that_are_widened_ahead(
    shape: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not differs(stored_product(*shape), WidenSpec, monkeypatch)


PRODUCTS: dict[str, tuple[type, Made]] = {
    "blocks": (BlockProductSpec, blocks_product((3,), 90, 32, 37, "uint4")),
    "rows": (RowsSpec, stored_product(2, 300, 37, "uint4", 20, True)),
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("fault", ["no barrier", "one buffer", "a term less", "order of terms"])
def test_a_fault_is_noticed(fault: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, made = PRODUCTS[name]
    assert not differs(made, kind, monkeypatch)
    COMPILED_KERNELS.forget()
    if fault == "no barrier":
        monkeypatch.setattr(BlockBuilder, "barrier", lambda self: None)
    elif fault == "one buffer":
        buffer = Chains._buffer
        monkeypatch.setattr(Chains, "_buffer", lambda self, tile: buffer(self, 0))
    elif fault == "a term less":
        steps = Chains._steps
        monkeypatch.setattr(Chains, "_steps", lambda self, count: steps(self, count)[:1])
    else:
        steps = Chains._steps
        monkeypatch.setattr(Chains, "_steps", lambda self, count: steps(self, count)[::-1])
    assert chains.UNROLL > 1
    assert differs(made, kind, monkeypatch)


@pytest.mark.parametrize("name", PRODUCTS)
def test_they_have_kernels_of_their_own(name: str) -> None:
    kind, (graph, _) = PRODUCTS[name]
    assert (kind, "gpu") in EMITTERS
    exe = compile(graph, Settings(2, threads=1, target="sm_80"))
    hint = {"blocks": "block_product", "rows": "rows"}[name]
    ptx = unpacked(exe.specialized.binary.object_code).ptx
    (text,) = [t for n, t in ptx.items() if n.startswith(hint)]
    assert b"fma.rn.f32" in text and b".ftz" not in text and b"bar" in text
    assert (b"dp4a.u32.s32" in text) == (name == "blocks")
