"""Integer convolutions of images of one or a few odd channels, whose pixels lie side by side."""

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.compiler.test_integer_kernels import Network, holds
from tests.compiler.test_integer_winograd import network

from verax.base.option_groups.settings import Settings
from verax.compiler.kernels.target import Target
from verax.compiler.place.integer import columns_as_channels
from verax.compiler.place.integer import convolution as lowering
from verax.compiler.place.program import lower

O1 = Settings(opt_level=1, threads=1)
SAID = "pixels side by side"


def plan(case: Network, target: str = "avx2") -> str:
    settings = Settings(opt_level=1, threads=1, target=target)
    return "\n".join(lower(case[0], Target.named(target), settings).lines)


def case_of(
    channels: int,
    kernel: tuple[int, int],
    seed: int,
    kind: type = np.uint8,
    zero: int = 0,
    filters: int = 21,
    **windows: object,
) -> Network:
    rng = np.random.default_rng(seed)
    info = np.iinfo(kind)
    ends = np.array([info.min, info.max, info.max - 1, zero, 3], kind)
    x = rng.choice(ends, (2, channels, 11, 13))
    w = rng.integers(-128, 128, (filters, channels, *kernel), dtype=np.int8)
    zeros = (np.array(zero, kind),) if zero else ()
    return network(x, w, zeros, "requantised", **windows)  # type: ignore[arg-type]


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    channels=st.sampled_from([1, 3, 5, 7]),
    kernel=st.sampled_from([(1, 3), (3, 3), (7, 7), (2, 4), (5, 2)]),
    strides=st.sampled_from([(1, 1), (2, 2), (1, 3), (2, 1)]),
    pads=st.sampled_from([((0, 0), (0, 0)), ((3, 3), (3, 3)), ((1, 0), (0, 2)), ((0, 2), (1, 0))]),
    rows=st.sampled_from([1, 2]),
    kind=st.sampled_from([(np.uint8, 0), (np.uint8, 132), (np.int8, -5)]),
    filters=st.sampled_from([5, 16, 33]),
    seed=st.integers(0, 2**16),
    threads=st.sampled_from([1, 3]),
)
def test_every_bit_is_promised(
    channels: int,
    kernel: tuple[int, int],
    strides: tuple[int, int],
    pads: tuple[tuple[int, int], ...],
    rows: int,
    kind: tuple[type, int],
    filters: int,
    seed: int,
    threads: int,
) -> None:
    assume((kernel[0] - 1) * rows < 11 + sum(pads[0]))  # a window that fits
    windows = {"strides": strides, "pads": pads, "dilations": (rows, 1)}
    case = case_of(channels, kernel, seed, *kind, filters, **windows)
    assert SAID in plan(case)
    holds(case, Settings(opt_level=1, threads=threads))


def test_where_pixels_lie_side_by_side() -> None:
    """Where pairs, or fours, would have lanes of nothing: not of even channels or windows of one
    column, nor where neighbours of a window are no neighbours of the image."""
    assert SAID in plan(case_of(3, (7, 7), 1, strides=(2, 2)))
    assert SAID in plan(case_of(3, (7, 7), 1), "aarch64")
    assert SAID in plan(case_of(3, (7, 7), 1), "avx512vnni")
    assert SAID in plan(case_of(6, (3, 3), 1), "avx512vnni")
    assert SAID not in plan(case_of(6, (3, 3), 1))
    assert SAID not in plan(case_of(4, (3, 3), 1), "avx512vnni")
    assert SAID not in plan(case_of(4, (3, 3), 2))
    assert SAID not in plan(case_of(3, (3, 1), 3))
    assert SAID not in plan(case_of(3, (3, 3), 4, dilations=(1, 2)))
    assert SAID not in plan(case_of(9, (3, 3), 5))


@pytest.mark.parametrize("zero", [0, 132])
def test_bytes_have_a_border_of_their_zero(zero: int) -> None:
    """Where VNNI is. The byte 0 needs no writing: its border stays as it is."""
    text = plan(case_of(3, (7, 7), 1, zero=zero, pads=((3, 2), (1, 3))), "avx512vnni")
    assert "uint8 by int8 in int32" in text
    assert ("132 around an image" in text) == (zero == 132)


@pytest.mark.parametrize("wrong", ["columns", "border"])
def test_a_wrong_order_is_seen(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tests above would say of channels before columns, or of a border that is too small:
    the zero point is not zero, so what lies there counts."""
    case = case_of(3, (3, 3), 6, zero=7, pads=((1, 1), (1, 1)))
    if wrong == "columns":

        def weights(w: np.ndarray) -> np.ndarray:
            moved = w.transpose(0, 1, 3, 2)
            return np.ascontiguousarray(moved).reshape(w.shape[0], -1, w.shape[2], 1)

        monkeypatch.setattr(lowering, "weights_beside", weights)
    else:
        real = columns_as_channels.spec_beside

        def spec(s, x):  # type: ignore[no-untyped-def]
            found = real(s, x)
            return dataclasses.replace(found, pads=(0, found.pads[1], 0))

        monkeypatch.setattr(lowering, "spec_beside", spec)
    with pytest.raises(AssertionError):
        holds(case, O1)


@pytest.mark.skipif(not Target.host().has_int8_dot, reason="this processor has no VNNI")
def test_a_border_of_the_wrong_byte_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns_as_channels, "write_border", lambda *given: None)
    with pytest.raises(AssertionError):
        holds(case_of(3, (7, 7), 1, zero=132, pads=((3, 2), (1, 3))), O1)
