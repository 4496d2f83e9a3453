"""Products and convolutions of bytes and of 16 bits by tiles of a block's threads: their sums are
exact, whatever a tile's size and the order of threads and copies."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.compiler.gpu.test_gpu_programs import check
from tests.compiler.kernels import harness as h
from tests.compiler.kernels.gpu.emulation import Problem, aligned, ptx
from tests.compiler.kernels.gpu.problems import tile, tiles
from tests.compiler.kernels.gpu.test_faults_in_tiles import EDITS
from tests.compiler.kernels.test_conv import Case, cases, make, transposed_cases

from verax.base.option_groups.settings import Settings
from verax.compiler.kernels.convolution.emit import pack_conv_weights
from verax.compiler.kernels.convolution.pack import pack_channels
from verax.compiler.kernels.dtypes import ContractionTypes
from verax.compiler.kernels.gpu import contraction
from verax.compiler.kernels.gpu.contraction import takes
from verax.compiler.kernels.gpu.staging import Terms
from verax.compiler.kernels.gpu.tiles import TileSchedule
from verax.compiler.kernels.gpu.words import in_words
from verax.compiler.kernels.layout import Epilogue
from verax.compiler.kernels.target import Target
from verax.compiler.place.calls import KernelCall
from verax.compiler.place.program import lower
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.numerics.expr import trace

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
BYTES = ContractionTypes("uint8", "int8", "int32", "int32")
SHORTS = ContractionTypes("int16", "int16", "int32", "int32")
KINDS = {"bytes": BYTES, "16 bits": SHORTS}


def _to_bytes(m: Any, total: Any) -> Any:
    scaled = m.mul(m.convert(total, "float32"), m.const(0.001, "float32"))
    low, high = m.const(-128.0, "float32"), m.const(127.0, "float32")
    return m.convert(m.min(m.max(scaled, low), high), "int8")


TO_BYTES = trace(_to_bytes, ["int32"])
"""What requantizing does, but for its rounding."""
_KEPT: list[np.ndarray] = []


def integers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Of the whole range, its ends among them."""
    info = np.iinfo(dtype)
    values = rng.integers(info.min, info.max + 1, shape)
    ends = rng.choice([info.min, info.max], shape)
    return np.where(rng.random(shape) < 0.2, ends, values).astype(dtype)


def problem(case: Case, types: ContractionTypes, narrow: bool = False) -> Problem:
    """A convolution of `case`'s sizes; lanes beyond the channels hold anything. narrow: its sums
    become bytes."""
    rng = np.random.default_rng(case.x.shape[1])
    probe = h.blocked_strides(1, (1, 1, 1))
    layout = h.tensor(case.x, case.spec(probe, probe).border(case.x.shape[2:]))
    memory = integers(rng, layout.memory.shape, types.x)
    inside = np.zeros(memory.shape, bool)
    lanes = (layout.shape[0], -(-layout.shape[1] // 16) * 16, *layout.shape[2:])
    inside[h.Tensor(layout.memory, layout.strides, layout.origin, lanes).index()] = True
    memory[~inside] = 0  # the border
    weights = integers(rng, case.w.shape, types.weights)
    filters = case.spec(probe, probe).filters
    y = h.empty((case.x.shape[0], filters, *case.output), ((0, 0), (1, 2), (2, 1)))
    if narrow:
        types = dataclasses.replace(types, y="int8")
    spec = dataclasses.replace(
        case.spec(layout.strides, y.strides, Epilogue(TO_BYTES) if narrow else None), types=types
    )
    after: list[Any] = []
    if case.bias is not None:
        after.append(pack_channels(integers(rng, case.bias.shape, "int32")))
    data = aligned(memory)
    _KEPT.append(data)
    whole = h.Tensor(
        y.memory, y.strides, y.origin, (y.shape[0], -(-filters // 16) * 16, *y.shape[2:])
    )
    spare = np.setdiff1d(whole.index().ravel(), y.index().ravel())

    def packed(spec: Any, schedule: Any) -> np.ndarray:
        return pack_conv_weights(weights, spec, schedule)

    before: list[Any] = [data.ctypes.data + data.itemsize * layout.origin]
    results = np.full(y.memory.shape, 77, types.y)
    return Problem(spec, packed, before, after, results, y.origin, ignored=spare)


@settings(max_examples=25, deadline=None, suppress_health_check=SLOW)
@given(cases() | transposed_cases(), st.sampled_from(list(KINDS)), st.booleans(), tiles)
def test_convolutions_have_the_sums_of_the_cpu(
    case: Case, kind: str, narrow: bool, schedule: TileSchedule
) -> None:
    one = problem(case, KINDS[kind], narrow)
    if takes(one.spec):
        one.compare(schedule)


LAYERS = {
    "three in a block": make(2, 2, 3, 32, (1, 13, 17), (1, 5, 3), (1, 2, 2), pads=(0, 2, 1)),
    "stride": make(4, 2, 48, 80, (1, 15, 11), (1, 3, 3), (1, 2, 2)),
    "pointwise": make(5, 3, 40, 72, (1, 7, 5), (1, 1, 1)),
    "few channels in the last block": make(6, 2, 37, 24, (1, 9, 6), (1, 3, 2)),
    "groups": make(7, 2, 64, 96, (1, 6, 7), (1, 3, 3), groups=2),
    "volume": make(8, 1, 20, 18, (5, 4, 6), (2, 3, 2), (2, 1, 1)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("size", [(8, 32), (64, 64)], ids=str)
def test_layers_of_networks_have_the_sums_of_the_cpu(
    name: str, kind: str, size: tuple[int, int]
) -> None:
    one = problem(LAYERS[name], KINDS[kind], narrow=name == "stride")
    assert takes(one.spec)
    one.compare(tile(*size))


def test_bytes_are_multiplied_by_dp4a() -> None:
    one = in_words(problem(LAYERS["stride"], BYTES).spec)
    assert (one.channels, one.x.pixel) == (12, 4)
    text = ptx(problem(LAYERS["stride"], BYTES).spec, tile(64, 64))
    assert "dp4a.u32.s32" in text and "cp.async.cg.shared.global" in text
    assert "mad.lo" in ptx(problem(LAYERS["stride"], SHORTS).spec, tile(64, 64))


@pytest.mark.parametrize("name", EDITS)
def test_a_fault_of_synchronization_is_noticed(name: str) -> None:
    one = problem(LAYERS["few channels in the last block"], BYTES)
    assert one.differs(tile(16, 32), EDITS[name])


def _signed(f: Any, step: int, x: Any, w: Any, total: Any) -> Any:
    return _ADDED(f, step, w, x, total)


_ADDED, _OF_STEP = contraction.add_words, Terms.of_step


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_products_and_places_are_noticed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one, schedule = problem(LAYERS["stride"], KINDS[kind]), tile(16, 32)
    assert not one.differs(schedule)
    if kind == "bytes":  # which of the factors is signed
        monkeypatch.setattr(contraction, "add_words", _signed)
        assert one.differs(schedule)
        monkeypatch.undo()
    monkeypatch.setattr(
        Terms, "of_step", lambda self, step, chunk: _OF_STEP(self, step, self.n.xor(chunk, 1))
    )
    assert one.differs(schedule)


def integer_product(signed: bool) -> Graph:
    """[2, 35, 70] by [70, 90], as importers write MatMulInteger."""
    b, kind = Builder("product"), "int8" if signed else "uint8"
    rng = np.random.default_rng(3)
    x = b.input("x", TensorType.parse(f"{kind}[2, 35, 70]"))
    wide = b.add(REGISTRY["Cast"](to="int32"), [x])
    centered = b.add(REGISTRY["Sub"](), [wide, b.constant(np.array(11, np.int32))])
    w = b.constant(rng.integers(-128, 128, (70, 90)).astype(np.int32))
    return b.graph([b.add(REGISTRY["MatMul"](), [centered, w])])


@pytest.mark.parametrize("signed", [False, True])
def test_products_of_integers_are_tiles(signed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = integer_product(signed)
    kind = "int8" if signed else "uint8"
    calls = lower(graph, Target.cuda("sm_80"), Settings(1, threads=1)).steps
    schedules = [c.schedule for c in calls if isinstance(c, KernelCall)]
    assert any(isinstance(s, TileSchedule) for s in schedules)
    x = integers(np.random.default_rng(4), (2, 35, 70), kind)
    check(graph, {"x": x}, 1, monkeypatch)
