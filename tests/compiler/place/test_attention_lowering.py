"""Attention by its kernel has the promised bits: sizes, strides, masks, targets, threads, NaN."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.compiler.test_bits import bits

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.executable import Executable
from verax.compiler.kernels import registry
from verax.compiler.kernels.products.attention import KNOWN, attention_schedule
from verax.compiler.kernels.products.attention_spec import (
    MOST_ITEMS,
    AttentionSchedule,
    AttentionSpec,
)
from verax.compiler.kernels.target import Target
from verax.compiler.place.calls import KernelCall
from verax.ir.graph import Builder
from verax.ir.types import TensorType
from verax.ops.sums.attention import Attention
from verax.reference import promised

FEW = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
TARGETS = [t for t in ("avx2", "avx512", "aarch64") if Target.named(t).runs_here()]


def program(
    op: Attention, arrays: list[np.ndarray], **chosen: object
) -> tuple[Executable, dict[str, np.ndarray], np.ndarray]:
    """The operator compiled, what it is fed, and its promised bits."""
    b = Builder("net")
    feeds = dict(zip(("q", "k", "v", "mask"), arrays))
    graph = b.graph([b.add(op, [b.input(n, TensorType.of(a)) for n, a in feeds.items()], ["y"])])
    fixed = Settings(**{"opt_level": 0, "threads": 1, **chosen})  # type: ignore[arg-type]
    return compile(graph, fixed), feeds, promised(graph, feeds)["y"]


def check(op: Attention, arrays: list[np.ndarray], **chosen: object) -> Executable:
    exe, feeds, wanted = program(op, arrays, **chosen)
    assert bits(exe.run(feeds)["y"]) == bits(wanted)
    assert not exe.plan.on_reference
    return exe


def drawn(
    seed: int, *shapes: tuple[int, ...], size: float = 2.0, dtype: str = "float32"
) -> list[np.ndarray]:
    rng = np.random.default_rng([seed, 91])
    return [(rng.standard_normal(s) * size).astype(dtype) for s in shapes]


def call_of(exe: Executable) -> KernelCall:
    steps = exe.specialized.lowered.steps
    return next(s for s in steps if isinstance(s, KernelCall) and isinstance(s.spec, AttentionSpec))


@FEW
@given(st.data(), st.integers(0, 2**16))
def test_any_sizes(data: st.DataObject, seed: int) -> None:
    sizes = st.integers(1, 40)
    n, m, d, e = (data.draw(sizes) for _ in range(4))
    own, times, batch = (data.draw(st.integers(1, 3)) for _ in range(3))
    letters = data.draw(st.sets(st.sampled_from("qkvy")))
    dims = {"q": (own * times, n, d), "k": (own, m, d), "v": (own, m, e)}
    shapes = [
        (batch, r, h, f) if part in letters else (batch, h, r, f)
        for part, (h, r, f) in dims.items()
    ]
    op = Attention(
        scale=data.draw(st.sampled_from([1.0, 0.125, 0.3])),
        divisor=data.draw(st.sampled_from([1.0, 6.0])),
        causal=data.draw(st.booleans()),
        heads_inside="".join(sorted(letters)),
    )
    dtype = data.draw(st.sampled_from(["float32", "float64"]))
    arrays = drawn(seed, *shapes, dtype=dtype)
    if data.draw(st.booleans()):
        whole = (batch, own * times, n, m)
        kept = [data.draw(st.booleans()) for _ in whole]
        shape = tuple(s if k else 1 for s, k in zip(whole, kept))[data.draw(st.integers(0, 4)) :]
        truths = data.draw(st.booleans())
        arrays.append(
            np.random.default_rng(seed).random(shape) < 0.7
            if truths
            else drawn(seed, shape, dtype=dtype)[0]
        )
    check(op, arrays)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("threads", "dtype"), [(1, "float32"), (3, "float32"), (3, "float64")])
def test_bits_know_neither_target_nor_threads(target: str, threads: int, dtype: str) -> None:
    op = Attention(scale=0.125, heads_inside="qkvy")
    arrays = drawn(2, (1, 197, 6, 64), (1, 197, 6, 64), (1, 197, 6, 64), dtype=dtype)
    check(op, arrays, target=target, threads=threads)
    shapes = (2, 6, 77, 24), (2, 2, 130, 24), (2, 2, 130, 33), (2, 1, 1, 130)
    grouped = drawn(3, *shapes, dtype=dtype)
    check(Attention(scale=0.2), grouped, target=target, threads=threads)


@pytest.mark.checkered
@pytest.mark.parametrize("blocks", [1, 2, 3])
@pytest.mark.parametrize(("rows", "tiles"), [(1, 1), (4, 1), (6, 2), (5, 3), (12, 2)])
def test_no_schedule_changes_a_bit(
    blocks: int, rows: int, tiles: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = AttentionSpec, registry.ANY_TARGET
    schedule = AttentionSchedule(rows, blocks, tiles)
    hooked = registry.Emitter(registry.EMITTERS[key].emit, lambda spec, target: (schedule,), KNOWN)
    monkeypatch.setitem(registry.EMITTERS, key, hooked)
    arrays = drawn(4, (2, 3, 31, 18), (2, 3, 53, 18), (2, 3, 53, 40), (31, 53))
    exe = check(Attention(scale=0.3, causal=True), arrays)
    assert call_of(exe).schedule == schedule


def test_scores_are_not_kept() -> None:
    """Scratch memory is that of a few queries, however many there are."""
    spec = [
        call_of(program(Attention(), drawn(5, (1, 2, n, 8), (1, 2, 300, 8), (1, 2, 300, 8)))[0])
        for n in (1500, 6000)
    ]
    needed = [c.schedule.scratch_bytes(c.spec) for c in spec]  # type: ignore[attr-defined]
    assert needed[0] == needed[1] < 4 * 2 * 1500 * 300
    assert needed[0] <= MOST_ITEMS * (1 << 16)


@pytest.mark.parametrize("length", [1, 15, 16, 17, 100, 3000])
def test_long_and_short_rows(length: int) -> None:
    check(Attention(scale=0.7), drawn(6, (2, 3, 5), (2, length, 5), (2, length, 16)))


def special(seed: int, shape: tuple[int, ...], share: float) -> np.ndarray:
    """Numbers, some of them infinite, NaN, tiny or huge."""
    rng = np.random.default_rng([seed, 13])
    odd = np.array([np.inf, -np.inf, np.nan, 1e-45, -1e-40, 3e38, -3e38, 0.0, -0.0], np.float32)
    x = rng.standard_normal(shape).astype(np.float32) * np.float32(4)
    loaded = np.array([0x7FC00001, 0xFFC00155], np.uint32).view(np.float32)  # other NaN
    odd = np.concatenate([odd, loaded])
    return np.where(rng.random(shape) < share, rng.choice(odd, shape), x).astype(np.float32)


@pytest.mark.parametrize("zeros", ["", "nan_to_zero", "masked_to_zero"])
@pytest.mark.parametrize("seed", range(4))
def test_numbers_that_are_none(seed: int, zeros: str) -> None:
    shapes = (2, 3, 9, 5), (2, 3, 37, 5), (2, 3, 37, 6), (2, 3, 9, 37)
    op = Attention(scale=0.5, **dict.fromkeys([zeros] if zeros else [], True))
    for share in (0.002, 0.05):
        check(op, [special(seed, s, share) for s in shapes])
    q, k, v = drawn(seed, *shapes[:3])
    k[1, 2, 11] = np.array([0x7FC00001], np.uint32).view(np.float32)
    check(op, [q, k, v])
    mask = special(seed, shapes[3], 0.3)
    mask[:, :, 2] = -np.inf
    mask[0, 1, 4, 1:] = -np.inf
    mask[1, :, ::4] = -np.inf  # queries that see nothing, first, last and between
    check(op, [*drawn(seed, *shapes[:3]), mask])


@pytest.mark.parametrize("size", [1.0, 30.0, 90.0, 300.0])
def test_shares_of_every_size(size: float) -> None:
    """From even ones to those that are subnormal or 0."""
    check(Attention(), drawn(7, (3, 13, 4), (3, 70, 4), (3, 70, 7), size=size**0.5))
    q = np.ones((1, 4, 1), np.float32)
    k = -np.linspace(0, 110, 4001, dtype=np.float32).reshape(1, -1, 1)
    check(Attention(), [q, k, *drawn(8, (1, 4001, 3))])


@pytest.mark.parametrize("size", [1.0, 700.0, 3000.0])
def test_shares_of_float64_of_every_size(size: float) -> None:
    shapes = (3, 13, 4), (3, 70, 4), (3, 70, 7)
    check(Attention(scale=0.7), drawn(7, *shapes, size=size**0.5, dtype="float64"))
    q, k = np.ones((1, 4, 1)), -np.linspace(0, 750, 4001).reshape(1, -1, 1)
    check(Attention(nan_to_zero=True), [q, k, *drawn(8, (1, 4001, 3), dtype="float64")])


def test_a_schedule_fits_its_registers() -> None:
    spec = call_of(program(Attention(), drawn(9, (1, 40, 8), (1, 50, 8), (1, 50, 8)))[0]).spec
    assert isinstance(spec, AttentionSpec)
    for name in ("avx2", "avx512", "aarch64"):
        target = Target.named(name)
        chosen = attention_schedule(spec, target)
        taken = chosen.blocks * target.physical * (chosen.rows + 1) + 2
        assert target.registers // 2 < taken <= target.registers


def test_what_no_kernel_takes_says_why() -> None:
    shapes = (2, 3, 1, 4, 5), (1, 3, 1, 6, 5), (2, 1, 1, 6, 7)
    exe, feeds, wanted = program(Attention(), drawn(10, *shapes))
    assert bits(exe.run(feeds)["y"]) == bits(wanted)
    assert "batches that are whole or one for all" in str(exe.plan)
