"""3x3 convolutions of bytes by Winograd's filtering: a schedule, so the sums are the promised."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.compiler.test_bits import runnable
from tests.compiler.test_integer_kernels import CHOICES, Network, _behind, holds, integers
from tests.compiler.test_open_sizes import assert_as_alone, opened
from verax.base.machine.processor import runs_here
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.place.integer import convolution as lowering
from verax.compiler.place.integer.winograd import tile_of
from verax.compiler.plan.ranges import range_of
from verax.ir.dim import symbol
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import DType, TensorType
from verax.numerics import winograd_integers

PLAIN = next((name for name in ("avx512", "avx2") if runs_here(name)), "host")
ONE = Settings(opt_level=1, threads=1, target=PLAIN)
"""Without instructions that multiply bytes in fours, beside which the transforms seldom pay."""


def forced(tile: int) -> Any:
    """This tile wherever integers fit, whatever the sizes."""

    def chosen(
        graph: Graph, node: Any, weights: np.ndarray, data: tuple[int, int], *, quick: bool
    ) -> int:
        ordinary = weights.shape[2:] == (3, 3) and node.op.strides in ((), (1, 1))
        return tile if ordinary and winograd_integers.fits(weights, *data, tile) else 0

    return mock.patch.object(lowering, "tile_of", chosen)


def network(
    x: np.ndarray,
    w: np.ndarray,
    zeros: tuple[Any, ...] = (),
    behind: str = "nothing",
    seed: int = 0,
    **fields: Any,
) -> Network:
    b = Builder("net")
    inputs: list[str | None] = [b.input("x", TensorType.of(x)), b.constant(w)]
    inputs += [b.constant(np.asarray(z)) for z in zeros]
    sums = b.add(REGISTRY["ConvInteger"](**fields), inputs)
    y = _behind(b, np.random.default_rng(seed), sums, len(w), behind)
    return b.graph([y]), {"x": x}


def transforms(graph: Graph, choice: Settings = ONE) -> list[str]:
    """The tiles of the input transforms in the plan."""
    lines = [line for line in compile(graph, choice).plan.lines if "input transform F(" in line]
    return [line.split("input transform ")[1].split(",")[0] for line in lines]


@st.composite
def convolutions(draw: st.DrawFn) -> Network:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    groups, per_group, filters = draw(
        st.sampled_from([(1, 17, 33), (1, 32, 16), (1, 3, 5), (2, 16, 32), (3, 16, 16)])
    )
    ends, kind = draw(st.booleans()), draw(st.sampled_from(["int8", "uint8"]))
    rows, cols = draw(st.integers(3, 9)), draw(st.integers(3, 9))
    x = integers(rng, kind, (2, groups * per_group, rows, cols), ends)
    w = integers(rng, draw(st.sampled_from(["int8", "uint8"])), (groups * filters, per_group, 3, 3),
                 ends)  # fmt: skip
    zeros: list[np.ndarray] = []
    if draw(st.booleans()):
        zeros.append(integers(rng, kind, (), ends))
        if draw(st.booleans()):
            zeros.append(integers(rng, w.dtype.name, (groups * filters,), False))
    pads = draw(
        st.sampled_from(["SAME_UPPER", "SAME_LOWER", (), ((1, 1), (1, 1)), ((2, 0), (0, 3))])
    )
    return network(
        x,
        w,
        tuple(zeros),
        draw(st.sampled_from(["nothing", "requantised", "float"])),
        groups=groups,
        pads=pads,
        output_dtype=draw(st.sampled_from(["int32", "int64"])),
    )


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    convolutions(), st.sampled_from([2, 4]), st.sampled_from([c for c in CHOICES if runnable(c)])
)
def test_tiles_give_the_exact_sums(case: Network, tile: int, choice: Settings) -> None:
    with forced(tile):
        holds(case, choice)


@pytest.mark.parametrize("tile", [2, 4])
def test_extremes_saturate_nowhere(tile: int) -> None:
    x = np.full((2, 64, 7, 5), 255, np.uint8)
    case = network(x, np.full((18, 64, 3, 3), -128, np.int8), pads=((1, 1), (1, 1)))
    with forced(tile):
        assert transforms(case[0]) == [f"F({tile}x{tile}"]
        for choice in CHOICES:
            if runnable(choice):
                holds(case, choice)


def wide(channels: int = 64, size: int = 28, **more: Any) -> Network:
    """A layer in which filtering pays."""
    rng = np.random.default_rng(channels + size)
    x = integers(rng, more.pop("kind", "uint8"), (1, channels, size, size + 1), False)
    w = integers(rng, "int8", (more.pop("filters", 48), channels // more.get("groups", 1), 3, 3),
                 False)  # fmt: skip
    return network(x, w, **{"pads": ((1, 1), (1, 1)), **more})


@pytest.mark.parametrize(
    ("network", "tiles"),
    [
        (lambda: wide(), ["F(4x4"]),
        (lambda: wide(zeros=(np.array(113, np.uint8),)), ["F(4x4"]),
        (lambda: wide(512, 7, filters=256), ["F(2x2"]),
        (lambda: wide(groups=2, filters=64), ["F(4x4"]),
        (lambda: wide(size=3), []),
        (lambda: wide(channels=12), []),
        (lambda: wide(filters=12), []),
        (lambda: wide(groups=8), []),
        (lambda: wide(strides=(1, 2)), []),
        (lambda: wide(dilations=(2, 1)), []),
        (lambda: wide(kind="int16"), []),
    ],
)
def test_weights_sizes_and_data_decide(network: Any, tiles: list[str]) -> None:
    graph, _ = network()
    assert transforms(graph) == tiles


@pytest.mark.parametrize(
    ("layer", "tile"),
    [
        (wide(64, 56, filters=64), 4),
        (wide(256, 14, filters=256), 4),
        (wide(512, 7, filters=512), 0),  # few tiles wait for many weights
        (wide(64, 6, filters=64), 0),
    ],
)
def test_tiles_beside_instructions_for_bytes(layer: Network, tile: int) -> None:
    (node,), weights = layer[0].nodes, next(iter(layer[0].constants.values()))
    assert tile_of(layer[0], node, weights.astype(np.int32), (0, 255), quick=True) == tile


def test_weights_that_leave_16_bits_take_the_smaller_tile() -> None:
    rng = np.random.default_rng(3)
    x = integers(rng, "uint8", (1, 64, 28, 29), False)
    w = integers(rng, "uint8", (48, 64, 3, 3), False)
    w[5, 7] = 255
    graph, fed = network(x, w, (np.array(3, np.uint8), np.array(0, np.uint8)))
    assert transforms(graph) == ["F(2x2"]
    holds((graph, fed), ONE)


def clipped(low: Any, high: Any, zero: int | None = None) -> Graph:
    b = Builder("net")
    x = b.input("x", TensorType.parse("int16[1, 64, 23, 29]"))
    ends = [None if v is None else b.constant(np.array(v, np.int16)) for v in (low, high)]
    c = b.add(REGISTRY["Clip"](), [x, *ends], ["held"])
    w = integers(np.random.default_rng(4), "int8", (48, 64, 3, 3), False)
    inputs = [c, b.constant(w)]
    if zero is not None:
        inputs.append(b.constant(np.array(zero, np.int16)))
    y = b.add(REGISTRY["ConvInteger"](pads=((1, 1), (1, 1))), inputs, ["y"])
    return b.graph([y])


@pytest.mark.parametrize(
    ("low", "high", "range_", "tiles"),
    [(-128, 127, (-128, 127), ["F(4x4"]), (0, None, (0, 2**15 - 1), []),
     (-4000, 4000, (-4000, 4000), ["F(2x2"]), (None, 5, (-(2**15), 5), []), (9, 4, (4, 4), None)],
)  # fmt: skip
def test_data_of_16_bits_goes_by_what_it_can_be(
    low: Any, high: Any, range_: tuple[int, int], tiles: list[str] | None
) -> None:
    graph = clipped(low, high)
    assert range_of(graph, "held") == range_
    if tiles is not None:
        assert transforms(graph) == tiles
        x = integers(np.random.default_rng(5), "int16", (1, 64, 23, 29), True)
        holds((graph, {"x": x}), ONE)


def test_data_that_is_carried_in_32_bits_is_summed_directly() -> None:
    graph = clipped(-100, 100, zero=7)
    assert transforms(graph) == []
    x = integers(np.random.default_rng(6), "int16", (1, 64, 23, 29), True)
    holds((graph, {"x": x}), ONE)


def test_a_requantised_value_lies_between_its_ends() -> None:
    b = Builder("net")
    x = b.input("x", TensorType.parse("int32[2, 3]"))
    factor = [b.constant(np.array(v, np.int32)) for v in (2**30, -3)]
    op = REGISTRY["Requantize"](zero_point=5, low=-7, high=90, output_dtype="int16")
    graph = b.graph([b.add(op, [x, *factor], ["y"])])
    assert range_of(graph, "y") == (-7, 90)


def _wrong_input() -> Any:
    """A transform with one number exchanged."""
    exact = winograd_integers.input_transform

    def broken(m: Any, tile: int, d: Any) -> Any:
        made = exact(m, tile, d)
        made[1] = m.add(made[1], d[0])
        return made

    return mock.patch.object(winograd_integers, "input_transform", broken)


def _wrong_filters() -> Any:
    """24 G whose last row is whole."""
    rows = {**winograd_integers.FILTER, 4: (*winograd_integers.FILTER[4][:-1], (0, 0, 24))}
    return mock.patch.object(winograd_integers, "FILTER", rows)


def test_the_next_weights_are_fetched_while_these_are_used() -> None:
    """Each position of a tile has weights of its own, which are read once."""
    lines = compile(wide()[0], ONE).plan.lines
    (product,) = [line for line in lines if "convolution 36 x 64 to 48" in line]
    assert product.endswith(", next weights to L2")


def _unshifted() -> Any:
    """Outputs that are not divided by the power of two."""
    exact = winograd_integers.unscaled

    def broken(m: Any, tile: int, x: Any) -> Any:
        return m.shift_left(exact(m, tile, x), m.like(1, x))

    return mock.patch.object(winograd_integers, "unscaled", broken)


def _uncentred() -> Any:
    """The data's zero point forgotten where its range is asked for and it is subtracted."""
    return mock.patch.object(lowering, "_zero", lambda graph, node, index: np.zeros((), np.int64))


@pytest.mark.parametrize("fault", [_wrong_input, _wrong_filters, _unshifted, _uncentred])
def test_a_planted_fault_is_noticed(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """monkeypatch: kernels that are made here are not kept."""
    case = wide(32, 12, zeros=(np.array(113, np.uint8),), seed=6)
    settings_ = Settings(opt_level=0, threads=1)
    holds(case, settings_)
    from verax.compiler.place.binary.assembly import COMPILED_KERNELS

    COMPILED_KERNELS.forget()
    with fault(), pytest.raises(AssertionError):
        holds(case, settings_)


@pytest.mark.parametrize("open_axes", [(0,), (2, 3), (0, 2, 3)])
def test_one_program_filters_images_of_many_sizes(open_axes: tuple[int, ...]) -> None:
    """The tile is chosen by the first size: integers are the same by any."""
    rng = np.random.default_rng(41)
    b = Builder("bytes")
    shape, names = (1, 32, 28, 29), {0: "n", 2: "h", 3: "w"}
    dims = tuple(symbol(names[i]) if i in open_axes else n for i, n in enumerate(shape))
    x = b.input("x", TensorType(DType.uint8, dims))
    w = b.constant(integers(rng, "int8", (48, 32, 3, 3), False))
    zero = b.constant(np.array(113, np.uint8))
    graph = b.graph([b.add(REGISTRY["ConvInteger"](pads=((1, 1), (1, 1))), [x, w, zero])])
    first = {names[i]: shape[i] for i in open_axes}
    program = opened(graph, first, ONE)
    assert program is not None
    assert "input transform F(4x4" in str(program.plan)
    for n, h, width in ((1, 28, 29), (3, 28, 29), (2, 11, 6), (1, 3, 4)):
        sizes = {s: size for s, size in (("h", h), ("n", n), ("w", width)) if s in first}
        actual = tuple(sizes.get(names.get(i, ""), size) for i, size in enumerate(shape))
        if program.open_sizes.serves(tuple(sizes.values())):
            data = integers(rng, "uint8", actual, True)
            assert_as_alone(graph, program, sizes, {"x": data}, ONE)
        else:  # a border out of proportion
            assert (h, width) == (3, 4), sizes
