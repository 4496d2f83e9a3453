"""Specs carry their element types: plans show them, emitters refuse those that they do not know,
and no user meets that refusal, for lowering has asked before."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from tests.compiler.test_bits import bits
from tests.compiler.test_every_lowering import USES, compiled, native_case
from verax.compiler.kernels.convolution.pooling import PoolSpec
from verax.compiler.kernels.convolution.spec import ConvSpec
from verax.compiler.kernels.dtypes import FLOAT32, contraction
from verax.compiler.kernels.layout import Epilogue, Operand
from verax.compiler.kernels.llvm.builder import ModuleBuilder
from verax.compiler.kernels.products.gemm import GemmSpec, PackSpec
from verax.compiler.kernels.registry import ANY_TARGET, EMITTERS, emit, refusal, schedules
from verax.compiler.kernels.search.chosen import PlacesSpec, UniqueSpec
from verax.compiler.kernels.search.detect import DetectSpec
from verax.compiler.kernels.search.regions_of_interest import AlignSpec
from verax.compiler.kernels.search.scatter import ScatterSpec
from verax.compiler.kernels.search.suppress import TakenSpec
from verax.compiler.kernels.target import Target
from verax.compiler.place.calls import KernelCall
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.numerics.expr import trace
from verax.reference import promised


def call_of(kind: type) -> tuple[Graph, dict[str, np.ndarray], KernelCall]:
    """A network with a call of a spec of this type, what it is fed, and the call."""
    found = native_case(USES[kind])
    assert found is not None
    graph, fed = found
    if kind is PackSpec:
        rng = np.random.default_rng(11)
        x, y = (rng.standard_normal(s).astype(np.float32) for s in ((2, 3, 5), (2, 5, 7)))
        b = Builder("net")
        values = [b.input("x", TensorType.of(x)), b.input("y", TensorType.of(y))]
        graph = b.graph([b.add(next(n.op for n in graph.nodes), values, ["z"], "product")])
        fed = {"x": x, "y": y}
    steps = compiled(graph, fed).specialized.lowered.steps
    return graph, fed, next(s for s in steps if isinstance(s, KernelCall) and type(s.spec) is kind)


PLACES = {
    ScatterSpec: {"float32", "int64"},
    AlignSpec: {"float32", "int64"},
    TakenSpec: {"int64"},
    PlacesSpec: {"float32", "int64"},
    UniqueSpec: {"float32", "int64"},
    DetectSpec: {"float32", "float64"},
}
"""By type of spec, the element types where places or numbers of boxes are among them."""


@pytest.mark.parametrize("kind", USES, ids=lambda kind: kind.__name__)
def test_a_plan_shows_the_element_types_of_every_kernel(kind: type) -> None:
    _, _, call = call_of(kind)
    wanted = PLACES.get(kind, {"float32"})
    assert call.spec.dtypes and set(call.spec.dtypes) == wanted
    assert ("float32" if "float32" in wanted else "int64") in str(call.spec)


@pytest.mark.parametrize("kind", USES, ids=lambda kind: kind.__name__)
def test_a_type_without_an_emitter_runs_on_the_reference_and_says_why(
    kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, fed, _ = call_of(kind)
    own = EMITTERS[kind, ANY_TARGET]
    monkeypatch.setitem(EMITTERS, (kind, ANY_TARGET), dataclasses.replace(own, dtypes=("int8",)))
    exe = compiled(graph, fed)
    assert exe.plan.on_reference
    types = ", ".join(sorted(PLACES.get(kind, {"float32"})))
    assert f"no kernel takes {types}; known: int8" in str(exe.plan)
    got = exe.run(fed)
    for value, array in promised(graph, fed).items():
        assert bits(got[value]) == bits(np.asarray(array))


def of_type(spec: Any, dtype: str) -> Any:
    """The spec with another element type."""
    if isinstance(spec, PoolSpec):
        return dataclasses.replace(spec, dtype=dtype)
    if isinstance(spec, PackSpec):
        return dataclasses.replace(spec, product=of_type(spec.product, dtype))
    return dataclasses.replace(spec, types=contraction(dtype, dtype, dtype))


@pytest.mark.parametrize("kind", [ConvSpec, GemmSpec, PackSpec, PoolSpec], ids=lambda k: k.__name__)
def test_an_emitter_refuses_an_unknown_type_by_name(kind: type) -> None:
    target = Target.host()
    spec = of_type(call_of(kind)[2].spec, "complex64")
    known = EMITTERS[kind, ANY_TARGET].dtypes
    assert "float32" in known and "complex64" not in known
    assert refusal(spec, target) == f"no kernel takes complex64; known: {', '.join(known)}"
    with pytest.raises(NotImplementedError, match=rf"{kind.__name__}.*complex64; known: float32"):
        emit(ModuleBuilder("net", target), spec, schedules(spec, target)[0])


def test_an_operand_of_an_unknown_type_is_refused_as_well() -> None:
    pool = call_of(PoolSpec)[2].spec
    assert isinstance(pool, PoolSpec) and pool.dtypes == ("float32",)
    add = trace(lambda m, acc, o: m.add(acc, m.convert(o, "float32")), ["float32", "int64"])
    fused = Epilogue(add, (Operand("channel", dtype="complex64"),))
    assert "complex64" in refusal(dataclasses.replace(pool, epilogue=fused), Target.host())


def test_the_sum_of_products_has_the_canonical_type() -> None:
    assert contraction("float32", "float32", "float32") == FLOAT32
    assert str(FLOAT32) == "float32"
    assert contraction("float16", "float16", "float16").sum == "float32"
    assert contraction("float64", "float64", "float64").sum == "float64"
    assert str(contraction("uint8", "int8", "uint8")) == "uint8 by int8 in int32 to uint8"
