"""Bytes by an instruction that saturates, where it cannot: pairs of channels that are safe whatever
the data, and the promised bits."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.compiler.test_bits import bits, runnable
from tests.compiler.test_integer_kernels import Network, holds
from tests.compiler.test_integer_winograd import network
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.kernels.convolution.spec import ConvSpec
from verax.compiler.kernels.dtypes import ContractionTypes
from verax.compiler.kernels.layout import blocked_strides
from verax.compiler.kernels.products import paired_bytes
from verax.compiler.kernels.products.paired_bytes import (
    BLOCK,
    ENTRY,
    MOST,
    SHUFFLES,
    entries_at,
    matched,
    pack_paired,
    safe_share,
)
from verax.compiler.kernels.target import Target
from verax.compiler.place.binary.assembly import COMPILED_KERNELS
from verax.compiler.place.integer import convolution as lowering
from verax.compiler.place.integer import weights
from verax.compiler.place.integer.weights import facts_of
from verax.compiler.place.program import lower
from verax.ir.graph import Builder
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.reference import promised

AVX2 = Settings(opt_level=1, threads=1, target="avx2")
CHOICES = [AVX2, Settings(opt_level=1, threads=3, target="avx2")]
needs_avx2 = pytest.mark.skipif(not runnable(AVX2), reason="this machine has no AVX2")


def of(deviation: float, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Weights as trained ones lie: most of them small."""
    drawn = np.random.default_rng(seed).normal(0, deviation, shape)
    return np.clip(np.rint(drawn), -128, 127).astype(np.int8)


def spec_of(filters: int, channels: int, kernel: tuple[int, int, int]) -> ConvSpec:
    x = blocked_strides(channels, (3, 7, 6))
    types = ContractionTypes("uint8", "int8", "int32", "int32")
    return ConvSpec(1, channels, filters, (1, 2, 2), kernel, x, x, paired=True, types=types)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """However few pairs are safe, and whatever tiles would save."""
    monkeypatch.setattr(lowering, "OFTEN", 0.0)
    monkeypatch.setattr(lowering, "tile_of", lambda *a, **k: 0)
    COMPILED_KERNELS.forget()
    yield
    COMPILED_KERNELS.forget()


@pytest.mark.parametrize("deviation", [15, 40, 70, 1000])
def test_pairs_are_safe_and_nothing_is_lost(deviation: float) -> None:
    """What the kernel reads, put together again: all weights, no pair beyond the bound."""
    filters, channels, kernel = 35, 48, (1, 2, 3)
    w = of(deviation, (filters, channels, *kernel), 31)
    spec = spec_of(filters, channels, kernel)
    packed = pack_paired(w, spec)
    found = np.zeros((3, 3, 6, 16, 16), np.int64)  # panels, blocks, taps, filters, channels
    blocks = packed.main.reshape(3, 3, 6, BLOCK)
    lanes = np.arange(16)
    for place in np.ndindex(3, 3, 6):
        block = blocks[place]
        for step in range(4):
            order = block[16 * step : 16 * step + 16].reshape(4, 4)
            assert (order == order[0]).all()
            four = block[SHUFFLES + 64 * step : SHUFFLES + 64 * step + 64].reshape(16, 2, 2)
            assert (np.maximum(four, 0).sum(axis=2, dtype=int) <= MOST).all()
            assert (np.minimum(four, 0).sum(axis=2, dtype=int) >= -MOST).all()
            found[place][lanes[:, None], order[0]] += four.reshape(16, 4)
        assert sorted(block[:SHUFFLES].reshape(16, 4)[::4].ravel()) == list(range(16))
    head, entries = np.split(packed.further, [entries_at(3)])
    starts, entries = head[:16].view(np.int32), entries.reshape(-1, ENTRY)
    assert starts[0] == 0 and starts[-1] == len(entries)
    offsets = {
        block * spec.x.block + i * spec.x.row + j * spec.x.pixel: (block, 3 * i + j)
        for block in range(3) for i in range(2) for j in range(3)
    }  # fmt: skip
    for panel in range(3):
        for entry in entries[starts[panel] : starts[panel + 1]]:
            block, tap = offsets[int(entry[:8].view(np.int64)[0])]
            four = entry[64:].reshape(16, 4)
            assert not four[:, 1:].any() and len(set(entry[16:32])) == 1
            found[panel, block, tap, :, entry[16]] += four[:, 0]
    wanted = np.zeros((48, 48, 6), np.int64)
    wanted[:filters] = w.reshape(filters, channels, 6)
    wanted = wanted.reshape(3, 16, 3, 16, 6).transpose(0, 2, 4, 1, 3)
    assert np.array_equal(found, wanted)
    assert bool(len(entries)) is (deviation >= 70)


def test_a_matching_is_found_where_there_is_one() -> None:
    """Each channel has one partner alone: the other of its pair has weights of the other sign."""
    order = np.random.default_rng(5).permutation(16)
    w = np.full((1, 16, 16), 100, np.int8)
    w[0, :, order[:8]] = -100
    pairs, good = matched(w)
    assert good.all() and sorted(pairs.ravel()) == list(range(16))
    assert (w[0, 0, pairs[0, :, 0]].astype(int) + w[0, 0, pairs[0, :, 1]] == 0).all()


def test_the_share_of_safe_pairs() -> None:
    assert safe_share(np.full((16, 32, 1, 1), 64, np.int8)) == 1
    assert safe_share(np.full((16, 32, 1, 1), 65, np.int8)) == 0
    assert safe_share(np.full((16, 32, 1, 1), -128, np.int8)) == 0
    half = np.full((16, 32), -64, np.int8)
    half[3, :16] = -65
    assert safe_share(half) == 0.5


@st.composite
def convolutions(draw: st.DrawFn) -> Network:
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    channels, filters = draw(st.sampled_from([(16, 5), (32, 33), (48, 16), (64, 50)]))
    kernel = draw(st.sampled_from([(1, 1), (3, 3), (2, 4)]))
    zero = draw(st.sampled_from([0, 0, 117]))
    pads = ((1, 0), (0, 2)) if zero == 0 and draw(st.booleans()) else ((0, 0), (0, 0))
    shape = 2, channels, draw(st.integers(5, 9)), draw(st.integers(5, 9))
    x = rng.choice(np.array([0, 255, 254, 3], np.uint8), shape)
    w = of(draw(st.sampled_from([25, 60, 1000])), (filters, channels, *kernel), seed)
    zeros = (np.array(zero, np.uint8),) if zero else ()
    behind = draw(st.sampled_from(["nothing", "requantised", "float"]))
    strides = draw(st.sampled_from([(1, 1), (2, 1), (2, 2)]))
    dilations = draw(st.sampled_from([(1, 1), (1, 2)])) if kernel[1] < 4 else (1, 1)
    return network(x, w, zeros, behind, strides=strides, pads=pads, dilations=dilations)


@needs_avx2
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(convolutions(), st.sampled_from(CHOICES))
def test_a_convolution_in_pairs_is_exact(always: None, case: Network, choice: Settings) -> None:
    assert "paired uint8 by int8 in int32" in str(compile(case[0], choice).plan)
    holds(case, choice)


def at_the_edge(first: int, second: int) -> Network:
    """All data 255, all pairs of these two weights, or of their negatives."""
    x = np.full((1, 32, 5, 3), 255, np.uint8)
    w = np.full((20, 32, 1, 1), first, np.int8)
    w[:, ::2] = second
    w[7:] = -w[7:]
    return network(x, w)


@needs_avx2
@pytest.mark.parametrize("pair", [(64, 64), (65, 63), (65, 64), (127, 1), (127, 2), (127, 127)])
def test_no_sum_saturates_at_the_edge(always: None, pair: tuple[int, int]) -> None:
    holds(at_the_edge(*pair), AVX2)


@needs_avx2
def test_a_bound_off_by_one_is_seen(always: None, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, fed = at_the_edge(65, 64)
    monkeypatch.setattr(paired_bytes, "MOST", MOST + 1)
    COMPILED_KERNELS.forget()
    got = compile(graph, AVX2).run(fed)
    assert any(bits(got[v]) != bits(np.asarray(y)) for v, y in promised(graph, fed).items())


def plan(case: Network, target: str = "avx2") -> str:
    return "\n".join(lower(case[0], Target.named(target), AVX2).lines)


def test_what_goes_in_pairs() -> None:
    """Data that bytes hold, whole blocks of channels in one group, weights of which enough pairs
    are safe; elsewhere 16 bits, and bytes on machines with VNNI."""
    rng = np.random.default_rng(17)
    x, signed = (rng.integers(0, 100, (1, 32, 6, 7)).astype(t) for t in ("uint8", "int16"))
    w = of(30, (48, 32, 1, 1), 19)
    said = "paired uint8 by int8"
    assert said in plan(network(x, w))
    assert said not in plan(network(signed, w))
    assert said not in plan(network(x, of(1000, w.shape, 3)))
    assert said not in plan(network(x[:, :31], w[:, :31]))
    assert said not in plan(network(x, w[:, :16], groups=2))
    border = ((1, 1), (1, 1))
    assert said not in plan(network(x, w, (np.array(7, np.uint8),), pads=border))
    assert said in plan(network(x, w, (np.array(7, np.uint8),)))
    for target in ("avx512", "avx512vnni", "avxvnni", "aarch64"):
        assert said not in plan(network(x, w), target)


@needs_avx2
def test_bytes_stay_bytes_between_convolutions() -> None:
    rng = np.random.default_rng(23)
    x = rng.integers(0, 256, (1, 32, 9, 10), dtype=np.uint8)
    b = Builder("net")
    value = b.input("x", TensorType.of(x))
    for seed, (filters, channels) in enumerate(((48, 32), (16, 48))):
        w = b.constant(of(30, (filters, channels, 1, 1), seed))
        value = b.add(REGISTRY["ConvInteger"](), [value, w])
        if filters == 48:
            factors = np.array([[2**30 + 977 * i, -9] for i in range(filters)], np.int32).T
            op = REGISTRY["Requantize"](zero_point=0, output_dtype="uint8", rounding="once")
            value = b.add(op, [value, *(b.constant(f) for f in factors)])
    graph = b.graph([value])
    kinds = [line.split()[1].rpartition("_")[0] for line in compile(graph, AVX2).plan.lines]
    at = kinds.index("conv")
    assert kinds[at : at + 2] == ["conv", "conv"]
    for choice in CHOICES:
        holds((graph, {"x": x}), choice)


def test_what_is_asked_of_weights_is_found_once_and_forgotten_with_them() -> None:
    w = np.arange(-120, 120, dtype=np.int8).reshape(3, 16, 5, 1)
    none, zeros = np.zeros((), np.int64), np.array([1, 0, -9])
    facts = facts_of(w, none, 0)
    assert facts is facts_of(w, none, 0) and (facts.lowest, facts.highest) == (-120, 119)
    assert facts.max_sum == sum(range(41, 121)) and facts.share == safe_share(w)
    other = facts_of(w, zeros, 0)
    assert (other.lowest, other.highest, other.share) == (-121, 128, 0)
    assert facts_of(w, none, 1).max_sum == np.abs(w.astype(int)).sum(axis=(0, 2, 3)).max()
    held = len(weights._facts_by_weights)
    del w
    gc.collect()
    assert len(weights._facts_by_weights) == held - 3
