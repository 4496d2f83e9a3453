"""Weights that stay in 16, 8 or 4 bits: the bits of the same product with float32 weights."""

from __future__ import annotations

import dataclasses
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compiler.test_bits import bits
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.executable import Executable
from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.products import stored as stored_product
from verax.compiler.kernels.products.stored import RowsSpec, Stored, WidenSpec
from verax.compiler.kernels.registry import ANY_TARGET, EMITTERS
from verax.compiler.kernels.target import Target
from verax.compiler.passes import fold_constants
from verax.compiler.place.binary.assembly import COMPILED_KERNELS
from verax.compiler.place.calls import KernelCall
from verax.compiler.place.products import stored_weights
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.reference import promised

SMALL = 1
"""What counts as large in these tests."""


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_constants, "STORED", SMALL)
    monkeypatch.setattr(stored_weights, "LEAST", SMALL)


def specs(exe: Executable) -> list[Any]:
    return [s.spec for s in exe.specialized.lowered.steps if isinstance(s, KernelCall)]


def product(
    rows: int, k: int, n: int, kind: str, group: int = 0, zero: bool = False, turned: bool = False,
    bias: bool = False, seed: int = 0,
) -> tuple[Graph, dict[str, np.ndarray]]:  # fmt: skip
    """x @ dequantised(w) with Relu behind it; group: rows by scale, 0 for one scale by column."""
    rng, b = np.random.default_rng(seed), Builder("net")
    x = rng.standard_normal((rows, k)).astype(np.float32)
    low, high = {"int8": (-128, 128), "uint8": (0, 256), "int4": (-8, 8), "uint4": (0, 16)}[kind]
    element = np.int8 if kind.startswith("int") else np.uint8
    w = rng.integers(low, high, (k, n)).astype(element)
    shape = (k // group, n) if group else (n,)
    parameters = [rng.uniform(-0.02, 0.1, shape).astype(np.float32)]
    parameters += [rng.integers(low, high, shape).astype(element)] if zero else []
    if turned:
        w, parameters = w.T, [p.T for p in parameters]
    axis = int(turned) if group else int(not turned)
    op = REGISTRY["DequantizeLinear"](axis=axis, block_size=group)
    weights = b.add(op, [b.constant(np.ascontiguousarray(a)) for a in (w, *parameters)])
    given = [b.input("x", TensorType.of(x)), weights]
    if bias:
        given.append(b.constant(rng.standard_normal(n).astype(np.float32)))
    made = b.add(
        REGISTRY["Gemm"](trans_b=turned) if turned or bias else REGISTRY["MatMul"](), given
    )
    return b.graph([b.add(REGISTRY["Relu"](), [made])]), {"x": x}


def same_bits(
    graph: Graph, fed: dict[str, np.ndarray], threads: int = 1, target: str = "host"
) -> Executable:
    exe = compile(graph, Settings(opt_level=1, threads=threads, target=target))
    (got,), (wanted,) = exe.run(fed).values(), promised(graph, fed).values()
    assert bits(got) == bits(wanted)
    assert not exe.plan.on_reference
    return exe


@settings(max_examples=15, deadline=None)
@given(
    rows=st.integers(1, 11), groups=st.integers(1, 4), group=st.integers(1, 21),
    n=st.integers(1, 90), kind=st.sampled_from(["int8", "uint8", "int4", "uint4"]),
    by_group=st.booleans(), zero=st.booleans(), turned=st.booleans(), bias=st.booleans(),
)  # fmt: skip
def test_products_by_stored_integers_have_the_bits_of_float32(
    rows: int, groups: int, group: int, n: int, kind: str, by_group: bool, zero: bool,
    turned: bool, bias: bool,
) -> None:  # fmt: skip
    shape = rows, groups * group, n
    graph, fed = product(*shape, kind, group if by_group else 0, zero, turned, bias, rows + n)
    found = [s for s in specs(same_bits(graph, fed)) if isinstance(s, RowsSpec | WidenSpec)]
    assert [type(s) for s in found] == [RowsSpec if rows <= 8 else WidenSpec]
    if kind.endswith("4"):
        assert found[0].stored.kind == "uint4"


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("rows", "k", "n"), [(1, 37, 83), (3, 16, 64), (8, 5, 17)])
def test_floats_that_16_bits_hold_are_kept_in_these(kind: Any, rows: int, k: int, n: int) -> None:
    rng, b = np.random.default_rng(n), Builder("net")
    x = rng.standard_normal((2, rows // 2 or 1, k) if rows > 1 else (1, k)).astype(np.float32)
    w = rng.standard_normal((k, n)).astype(kind).astype(np.float32)
    w[0, :3] = -0.0, np.inf, 1
    made = b.add(REGISTRY["MatMul"](), [b.input("x", TensorType.of(x)), b.constant(w)])
    graph = b.graph([b.add(REGISTRY["Add"](), [made, b.constant(w[-1])])])
    for threads in (1, 3):
        (spec,) = specs(same_bits(graph, {"x": x}, threads))
        assert isinstance(spec, RowsSpec) and spec.stored.kind == np.dtype(kind).name


def test_weights_of_more_digits_stay_in_float32() -> None:
    rng, b = np.random.default_rng(4), Builder("net")
    w = rng.standard_normal((19, 40)).astype(np.float16).astype(np.float32)
    w[3, 5] += np.float32(2.0**-20)
    x = b.input("x", TensorType.parse("float32[1, 19]"))
    graph = b.graph([b.add(REGISTRY["MatMul"](), [x, b.constant(w)])])
    exe = same_bits(graph, {"x": rng.standard_normal((1, 19)).astype(np.float32)})
    assert not any(isinstance(s, RowsSpec) for s in specs(exe))


def test_they_take_their_bytes_and_no_more() -> None:
    """8 bits a weight, and 4 where they hold them, with the scales beside."""
    for kind, most in (("int8", 1.2), ("uint4", 0.7)):
        graph, fed = product(1, 512, 320, kind, group=64)
        exe = same_bits(graph, fed)
        assert exe.plan.weight_bytes < most * 512 * 320
        assert exe.plan.arena_bytes < 512 * 320


@pytest.mark.parametrize("level", [0, 1])
def test_scales_that_lie_otherwise_are_dequantised_ahead(level: int) -> None:
    """One scale by row of the factor: no kernel reads it so, and nothing is lost."""
    rng, b = np.random.default_rng(8), Builder("net")
    w = rng.integers(-128, 128, (19, 21)).astype(np.int8)
    scales = rng.uniform(0.1, 1, 19).astype(np.float32)
    op = REGISTRY["DequantizeLinear"](axis=0)
    weights = b.add(op, [b.constant(w), b.constant(scales)])
    x = b.input("x", TensorType.parse("float32[3, 19]"))
    graph = b.graph([b.add(REGISTRY["MatMul"](), [x, weights])])
    fed = {"x": rng.standard_normal((3, 19)).astype(np.float32)}
    exe = compile(graph, Settings(opt_level=level, threads=1))
    (got,), (wanted,) = exe.run(fed).values(), promised(graph, fed).values()
    assert bits(got) == bits(wanted) and not exe.plan.on_reference


@pytest.mark.parametrize("element", ["int4", "uint4", "int2", "uint2"])
@pytest.mark.parametrize("zero", [False, True])
def test_files_types_of_few_bits_stay_in_them(element: str, zero: bool) -> None:
    """ONNX's own INT4 and its relatives, as they are and transposed between."""
    rng, kind = np.random.default_rng(len(element)), getattr(ml_dtypes, element)
    info = ml_dtypes.iinfo(kind)
    for transposed in (False, True):
        b, shape = Builder("net"), ((29, 48) if transposed else (48, 29))
        blocks = (29, 3) if transposed else (3, 29)
        w = rng.integers(info.min, info.max + 1, shape).astype(kind)
        parameters = [rng.uniform(-0.02, 0.1, blocks).astype(np.float32)]
        parameters += [rng.integers(info.min, info.max + 1, blocks).astype(kind)] if zero else []
        op = REGISTRY["DequantizeLinear"](axis=int(transposed), block_size=16)
        value = b.add(op, [b.constant(a) for a in (w, *parameters)])
        if transposed:
            value = b.add(REGISTRY["Identity"](), [value])
            value = b.add(REGISTRY["Transpose"](perm=(1, 0)), [value])
        x = rng.standard_normal((3, 48)).astype(np.float32)
        graph = b.graph([b.add(REGISTRY["MatMul"](), [b.input("x", TensorType.of(x)), value])])
        (spec,) = specs(same_bits(graph, {"x": x}))
        shared = 8 if element.startswith("int") and not zero else 0
        assert isinstance(spec, RowsSpec) and spec.stored == Stored("uint4", 16, zero, shared)


@pytest.mark.parametrize("target", ["avx2", "avx512"])
@pytest.mark.parametrize("n", [9, 31, 43, 75, 150])
def test_numbers_of_4_bits_are_read_in_pairs_of_blocks(n: int, target: str) -> None:
    """One to five blocks of columns in a panel and beside it; one zero point and many."""
    if not Target.named(target).runs_here():
        pytest.skip(f"no {target} here")
    rng = np.random.default_rng(n)
    for rows, shared in ((1, True), (3, False), (11, True)):
        b, x = Builder("net"), rng.standard_normal((rows, 51)).astype(np.float32)
        points = rng.integers(0, 16, (3, n)).astype(np.uint8)
        arrays = (rng.integers(0, 16, (51, n)).astype(np.uint8),
                  rng.uniform(-0.02, 0.1, (3, n)).astype(np.float32),
                  np.full_like(points, 11) if shared else points)  # fmt: skip
        op = REGISTRY["DequantizeLinear"](axis=0, block_size=17)
        weights = b.add(op, [b.constant(a) for a in arrays])
        value = b.input("x", TensorType.of(x))
        graph = b.graph([b.add(REGISTRY["MatMul"](), [value, weights])])
        same_bits(graph, {"x": x}, target=target)


@pytest.mark.parametrize("read", ["right", "left", "returned", "transposed"])
def test_bytes_that_are_cast_for_a_product_stay_bytes(read: str) -> None:
    """As torchao writes its int8 weights; only where nobody else wants the floats."""
    rng, b = np.random.default_rng(9), Builder("net")
    x = rng.standard_normal((3, 31)).astype(np.float32)
    w = rng.integers(-128, 128, (31, 31)).astype(np.int8)
    value = b.add(REGISTRY["Cast"](to="float32"), [b.constant(w)])
    data = b.input("x", TensorType.of(x))
    outputs = []
    if read == "left":
        data = value
    elif read == "returned":
        outputs = [value]
    elif read == "transposed":
        value = b.add(REGISTRY["Transpose"](), [value])
    y = b.add(REGISTRY["MatMul"](), [data, value])
    graph, fed = b.graph([y, *outputs]), {} if read == "left" else {"x": x}
    exe = compile(graph, Settings(opt_level=1, threads=1))
    for name, array in exe.run(fed | ({"x": x} if read == "left" else {})).items():
        assert bits(array) == bits(promised(graph, {"x": x})[name])
    kinds = [s.stored.kind for s in specs(exe) if isinstance(s, RowsSpec)]
    assert ("int8" in kinds) == (read == "right")


@pytest.mark.parametrize(("kind", "rows"), [(RowsSpec, 2), (WidenSpec, 9)])
def test_deleting_an_emitter_is_noticed(
    kind: type, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, fed = product(rows, 16, 33, "int8")
    call = next(s for s in specs(same_bits(graph, fed)) if isinstance(s, kind))
    assert "int8" in str(call) and "float32" in str(call)
    monkeypatch.delitem(EMITTERS, (kind, ANY_TARGET))
    with pytest.raises(KeyError, match=kind.__name__):
        compile(graph, Settings(opt_level=1, threads=1))


def test_a_type_without_an_emitter_runs_on_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, fed = product(2, 16, 33, "int8")
    own = EMITTERS[RowsSpec, ANY_TARGET]
    known = dataclasses.replace(own, dtypes=("float32",))
    monkeypatch.setitem(EMITTERS, (RowsSpec, ANY_TARGET), known)
    exe = compile(graph, Settings(opt_level=1, threads=1))
    assert "no kernel takes int8; known: float32" in str(exe.plan)
    (got,), (wanted,) = exe.run(fed).values(), promised(graph, fed).values()
    assert bits(got) == bits(wanted)


@pytest.mark.parametrize(
    "fault", ["scale of the next group", "zero point added", "high half first"]
)
def test_a_broken_twin_has_other_bits(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What these tests compare would show if the kernel read its factor wrongly."""
    graph, fed = product(3, 64, 33, "uint4", group=16, zero=True)
    same_bits(graph, fed)
    COMPILED_KERNELS.forget()
    healthy, shared = stored_product.PanelWalk.weights, stored_product.PanelWalk.shared
    if fault == "scale of the next group":
        late = lambda self, group: shared(self, self.f.clamp(self.f.iadd(group, 1), 0, 3))  # noqa: E731
        monkeypatch.setattr(stored_product.PanelWalk, "shared", late)
    elif fault == "zero point added":
        walk = stored_product.PanelWalk
        monkeypatch.setattr(walk, "weights", lambda self, row, tables: healthy(
            self, row, [tables[0], [self.f.b.fneg(z) for z in tables[1]]]))  # fmt: skip
    else:
        pack = stored_weights.pack_stored
        monkeypatch.setattr(stored_weights, "pack_stored", lambda *given: np.asarray(
            (pack(*given) >> 4) | (pack(*given) << 4)))  # fmt: skip
    exe = compile(graph, Settings(opt_level=1, threads=1))
    (got,), (wanted,) = exe.run(fed).values(), promised(graph, fed).values()
    assert bits(got) != bits(wanted)
    COMPILED_KERNELS.forget()


@pytest.mark.parametrize("target", [t for t in ("avx2", "avx512") if Target.named(t).runs_here()])
def test_no_schedule_and_no_target_changes_a_bit(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, fed = product(2, 48, 70, "int8", group=16, zero=True)
    wanted = promised(graph, fed)
    own = EMITTERS[RowsSpec, ANY_TARGET]
    for blocks in (1, 2, 3):
        hooked = dataclasses.replace(own, schedules=lambda *_, b=blocks: (ConvSchedule(b, 1, 2),))
        monkeypatch.setitem(EMITTERS, (RowsSpec, ANY_TARGET), hooked)
        exe = compile(graph, Settings(opt_level=1, threads=1, target=target))
        assert f"x {16 * blocks}\n" in str(exe.plan)
        for value, array in exe.run(fed).items():
            assert bits(array) == bits(wanted[value])
