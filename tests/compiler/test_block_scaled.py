"""Products of bytes by weights of few bits, with scales for blocks: promised bits everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compiler.test_bits import bits
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.executable import Executable
from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.products import block_scaled
from verax.compiler.kernels.products.block_scaled import BlockProductSpec, BlockSumsSpec
from verax.compiler.kernels.registry import ANY_TARGET, EMITTERS
from verax.compiler.kernels.target import Target
from verax.compiler.passes.block_products import block_products
from verax.compiler.place.binary.assembly import COMPILED_KERNELS
from verax.compiler.place.calls import KernelCall
from verax.compiler.place.products import block_scaled as placing
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.reference import promised
from verax.reference.evaluate import evaluate

TARGETS = [t for t in ("avx2", "avxvnni", "avx512", "avx512vnni") if Target.named(t).runs_here()]
RANGES = {"int4": (-8, 8), "int8": (-128, 128), "uint4": (0, 16), "uint8": (0, 256)}


def product(
    rows: tuple[int, ...], blocks: int, size: int, n: int, kind: str, zero: bool = True,
    missing: int = 0, bias: bool = False, seed: int = 0, symmetric: bool = True, halves: int = 1,
    cut: bool = False,
) -> tuple[Graph, dict[str, np.ndarray]]:  # fmt: skip
    """Data quantized in blocks by weights that are dequantized in blocks, Relu behind it. halves:
    into which the blocks of the weights are cut for the data. cut: the data go on behind the last
    row of the weights, where they would be padded."""
    rng, b = np.random.default_rng(seed), Builder("net")
    k = blocks * size - missing
    x = rng.standard_normal((*rows, k + missing * cut)).astype(np.float32)
    x[..., :3] *= 40
    element = np.int8 if kind.startswith("int") else np.uint8
    parameters = [rng.integers(*RANGES[kind], (k, n)).astype(element),
                  rng.uniform(-0.02, 0.1, (blocks, n)).astype(np.float32)]  # fmt: skip
    parameters += [rng.integers(*RANGES[kind], (blocks, n)).astype(element)] if zero else []

    def ints(*numbers: int) -> str:
        return b.constant(np.array(numbers, np.int64))

    def add(name: str, *inputs: str, **attributes: Any) -> str:
        return b.add(REGISTRY[name](**attributes), list(inputs))

    value, rank = b.input("x", TensorType.of(x)), len(rows) + 1
    if missing and not cut:
        value = add("Pad", value, ints(*[0] * (2 * rank - 1), missing))
    value = add("Reshape", value, ints(*rows, blocks * halves, size // halves))
    op = REGISTRY["DynamicQuantizeGroups"](axis=rank, symmetric=symmetric)
    q, scale = b.add_all(op, [value])
    value = add("Reshape", add("Mul", add("Cast", q, to="float32"), scale), ints(*rows, -1))
    if missing:
        value = add("Slice", value, ints(0), ints(k), ints(rank - 1))
    weights = add("DequantizeLinear", *map(b.constant, parameters), axis=0, block_size=size)
    y = add("MatMul", value, weights)
    if bias:
        y = add("Add", y, b.constant(rng.standard_normal(n).astype(np.float32)))
    return b.graph([add("Relu", y)]), {"x": x}


def same_bits(graph: Graph, fed: dict[str, np.ndarray], **how: Any) -> Executable:
    """The bits that the rewritten graph promises, near the float64 meaning of the given one."""
    exe = compile(graph, Settings(opt_level=2, **{"threads": 1, **how}))
    (got,), (wanted,) = exe.run(fed).values(), promised(exe.specialized.graph, fed).values()
    assert bits(got) == bits(wanted)
    assert not exe.plan.on_reference
    assert [s for s in specs(exe) if isinstance(s, BlockProductSpec)], str(exe.plan)
    return exe


def specs(exe: Executable) -> list[Any]:
    return [s.spec for s in exe.specialized.lowered.steps if isinstance(s, KernelCall)]


@settings(max_examples=12, deadline=None)
@given(
    rows=st.lists(st.integers(1, 4), min_size=1, max_size=2), blocks=st.integers(1, 4),
    size=st.sampled_from([16, 32, 48, 128]), n=st.integers(1, 90), kind=st.sampled_from([*RANGES]),
    zero=st.booleans(), bias=st.booleans(), missing=st.integers(0, 15),
    target=st.sampled_from(TARGETS), threads=st.sampled_from([1, 3]), seed=st.integers(0, 99),
)  # fmt: skip
def test_every_target_gives_the_promised_bits(
    rows: list[int], blocks: int, size: int, n: int, kind: str, zero: bool, bias: bool,
    missing: int, target: str, threads: int, seed: int,
) -> None:  # fmt: skip
    graph, fed = product(tuple(rows), blocks, size, n, kind, zero, missing, bias, seed)
    exe = same_bits(graph, fed, target=target, threads=threads)
    (spec,) = [s for s in specs(exe) if isinstance(s, BlockProductSpec)]
    if kind == "uint4":
        assert spec.bits == 4


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("kind", "weight", "byte"), [("uint4", 15, -127), ("uint8", 255, -127)])
def test_sums_of_the_largest_numbers_do_not_saturate(
    kind: str, weight: int, byte: int, target: str
) -> None:
    """What vpmaddubsw would cut off, were it asked for all at once."""
    graph, fed = product((3,), 2, 128, 37, kind, zero=True)
    for name, array in graph.constants.items():
        if array.dtype == np.uint8:
            array.setflags(write=True)
            array[...] = weight if array.shape[0] == 256 else 0
            assert name
    fed["x"] = np.sign(fed["x"] + 9) * np.float32(byte)
    same_bits(graph, fed, target=target)


@pytest.mark.parametrize(("kind", "zero"), [("uint4", True), ("int8", True), ("int4", False)])
def test_data_behind_the_last_weight_count_as_nothing(kind: str, zero: bool) -> None:
    graph, fed = product((2,), 3, 32, 19, kind, zero, missing=6, cut=True)
    same_bits(graph, fed)
    same_bits(graph, fed, target="avx2")


def test_the_rewrite_stays_within_rounding() -> None:
    graph, fed = product((2, 3), 3, 32, 41, "uint4", missing=5)
    rewritten, trace = block_products(graph)
    assert trace.rewrites == 1
    (meant,), (made,) = evaluate(graph, fed).values(), evaluate(rewritten, fed).values()
    np.testing.assert_array_almost_equal_nulp(made.astype(np.float32), meant.astype(np.float32), 4)


@pytest.mark.parametrize(
    "changed", [{"halves": 2}, {"symmetric": False}, {"size": 8}, {"size": 40}], ids=str
)
def test_what_is_no_product_of_blocks_stays(changed: dict[str, Any]) -> None:
    usual: dict[str, Any] = {"rows": (3,), "blocks": 2, "size": 32, "n": 11, "kind": "uint4"}
    assert block_products(product(**usual)[0])[1].rewrites
    assert not block_products(product(**(usual | changed))[0])[1].rewrites


def test_no_schedule_changes_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, fed = product((7,), 3, 32, 70, "uint4")
    own = EMITTERS[BlockProductSpec, ANY_TARGET]
    for blocks, rows in ((1, 1), (2, 3), (4, 2), (3, 7)):
        schedule = ConvSchedule(blocks, 1, rows)
        hooked = own.__class__(own.emit, lambda *_, s=schedule: (s,), own.dtypes)  # type: ignore
        monkeypatch.setitem(EMITTERS, (BlockProductSpec, ANY_TARGET), hooked)
        tile = f"tile 1 x {rows} x {16 * blocks}".replace(" x 1 x", " x")
        assert tile in str(same_bits(graph, fed).plan)


@pytest.mark.parametrize("kind", [BlockProductSpec, BlockSumsSpec])
def test_without_its_emitter_nothing_compiles(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, fed = product((2,), 2, 16, 33, "int8", zero=False)
    assert any(isinstance(s, kind) for s in specs(same_bits(graph, fed)))
    monkeypatch.delitem(EMITTERS, (kind, ANY_TARGET))
    with pytest.raises(KeyError, match=kind.__name__):
        compile(graph, Settings(opt_level=2, threads=1))


@pytest.mark.parametrize("fault", ["upper half first", "zero point added", "saturating pairs"])
def test_a_broken_kernel_has_other_bits(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, fed = product((3,), 2, 64, 33, "uint4", zero=True)
    same_bits(graph, fed, target="avx2")
    COMPILED_KERNELS.forget()
    pack = placing.pack_blocks
    if fault == "upper half first":

        def swapped(numbers: np.ndarray, *rest: Any) -> np.ndarray:
            quads = numbers.reshape(-1, 2, 4, numbers.shape[1])[:, ::-1]
            return pack(quads.reshape(numbers.shape), *rest)

        monkeypatch.setattr(placing, "pack_blocks", swapped)
    elif fault == "zero point added":
        monkeypatch.setattr(placing, "BlockSumsSpec", lambda count, size, factor: BlockSumsSpec(
            count, size, -factor))  # fmt: skip
    else:
        monkeypatch.setattr(block_scaled, "SAFE_STEPS", 64)
        for array in graph.constants.values():
            if array.dtype == np.uint8 and array.shape[0] == 128:
                array.setflags(write=True)
                array[...] = 15
        fed["x"] = np.full_like(fed["x"], 3.5)
    exe = compile(graph, Settings(opt_level=2, threads=1, target="avx2"))
    (got,), (wanted,) = exe.run(fed).values(), promised(exe.specialized.graph, fed).values()
    assert bits(got) != bits(wanted)
    COMPILED_KERNELS.forget()
