"""Networks in 16 bits: which operators are computed in float32, and what the judge says of it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.compiler.test_bits import bits

import verax
from verax.base.settings import Settings
from verax.compiler.driver import compile
from verax.compiler.levels import run_passes
from verax.compiler.passes.widen_halves import widen_halves
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.records.verdict import Kind
from verax.reference import promised

TYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def network(kind: str, seed: int) -> tuple[Graph, dict[str, np.ndarray]]:
    """Convolutions in groups and not, a residual sum, pools, a product, all of one type."""
    rng, b = np.random.default_rng(seed), Builder("net")

    def add(op: str, *inputs: str | None, **attributes: Any) -> str:
        return b.add(REGISTRY[op](**attributes), list(inputs))

    def normal(*shape: int, scale: float = 1.0) -> str:
        return b.constant((rng.standard_normal(shape) * scale).astype(TYPES[kind]))

    x = rng.standard_normal((2, 5, 9, 7)).astype(TYPES[kind])
    same = ((1, 1), (1, 1))
    h = add("Relu", add("Conv", b.input("x", TensorType.of(x)), normal(19, 5, 3, 3), normal(19)))
    deep = add("Conv", h, normal(19, 1, 3, 3), normal(19), pads=same, groups=19)
    h = add("Relu", add("Add", add("Sigmoid", deep), h))
    h = add("MaxPool", h, kernel_shape=(2, 2))
    h = add("Conv", h, normal(8, 19, 1, 1, scale=0.2), normal(8))
    h = add("Flatten", add("GlobalAveragePool", add("Mul", h, normal(8, 1, 1))))
    y = add("Softmax", add("Gemm", h, normal(8, 18), normal(18)))
    return b.graph([y, h]), {"x": x}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("seed", range(2))
def test_a_network_in_16_bits_is_native_at_O2_and_rounding(kind: str, seed: int) -> None:
    graph, fed = network(kind, seed)
    exact, wanted = compile(graph, Settings(opt_level=1, threads=1)).run(fed), promised(graph, fed)
    rewritten, _ = run_passes(graph, Settings(opt_level=2))
    meant = promised(rewritten, fed)
    for threads in (1, 3):
        exe = compile(graph, Settings(opt_level=2, threads=threads))
        got = exe.run(fed)
        assert not exe.plan.on_reference, str(exe.plan)
        for old, new in zip(graph.outputs, rewritten.outputs, strict=True):
            assert bits(got[old]) == bits(np.asarray(meant[new]))
            assert bits(exact[old]) == bits(np.asarray(wanted[old]))
    found = verax.check(graph, "verax:O2", fed, explain=False)
    assert found.kind in (Kind.rounding, Kind.identical), found.reasons


@pytest.mark.parametrize(("kind", "rewrites"), [("float16", 1), ("bfloat16", 1), ("float32", 0)])
def test_halves_alone_are_widened(kind: str, rewrites: int) -> None:
    b = Builder("net")
    x = b.input("x", TensorType.parse(f"{kind}[3, 5]"))
    w = b.input("w", TensorType.parse(f"{kind}[5, 2]"))
    product = b.add(REGISTRY["MatMul"](), [x, w])
    graph = b.graph([b.add(REGISTRY["Exp"](), [product])])
    after, trace = widen_halves(graph)
    assert trace.rewrites == rewrites
    assert [n.op.kind for n in after.nodes].count("Cast") == 3 * rewrites


def test_positions_of_the_largest_stay() -> None:
    b = Builder("net")
    x = b.input("x", TensorType.parse("float16[2, 3, 5, 7]"))
    op = REGISTRY["MaxPool"](kernel_shape=(2, 2), with_indices=True)
    assert widen_halves(b.graph(b.add_all(op, [x])))[1].rewrites == 0
