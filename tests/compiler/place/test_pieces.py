"""Split and Slice take pieces of memory where they can: the promised bits, and no copy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.place.convolution import borders
from verax.ir.graph import Builder
from verax.ir.types import TensorType
from verax.ops.movement.slicing import Concat, Slice, Split
from verax.ops.pointwise.activation import Relu
from verax.ops.pointwise.arithmetic import Add
from verax.ops.windows.convolution import Conv
from verax.reference import promised


class Net:
    """A network being built: `x` has 9 channels."""

    def __init__(self, seed: int, batch: int = 1) -> None:
        self.b, self.rng = Builder("pieces"), np.random.default_rng(seed)
        self.shape = (batch, 9, 11, 7)
        self.x = self.b.input("x", TensorType.parse(f"float32[{batch}, 9, 11, 7]"))

    def conv(self, x: str, filters: int, size: int = 1) -> str:
        channels = self.b.types[x].shape[1]
        w = self.rng.standard_normal((filters, channels, size, size)).astype(np.float32) / size
        pads = ((size // 2, size // 2),) * 2
        return self.b.add(Conv(pads=pads), [x, self.b.constant(w)])

    def split(self, x: str, *sizes: int) -> tuple[str, ...]:
        given = self.b.constant(np.array(sizes))
        return self.b.add_all(Split(num_outputs=len(sizes), axis=1), [x, given], name="cut")

    def slice(self, x: str, start: int, end: int, axis: int = 1, step: int = 1) -> str:
        given = [self.b.constant(np.array([n])) for n in (start, end, axis, step)]
        return self.b.add(Slice(), [x, *given], name="cut")

    def join(self, *values: str) -> str:
        return self.b.add(Concat(axis=1), list(values), name="join")


def check(net: Net, outputs: list[str], moves: int) -> None:
    """The promised bits twice, from memory full of NaN, on several threads; and how many calls
    move something: those of the nodes "cut" and "join", and conversions between layouts."""
    x = {"x": net.rng.standard_normal(net.shape).astype(np.float32)}
    graph = net.b.graph(outputs)
    want = promised(graph, x)
    for threads in (1, 3):
        exe = compile(graph, Settings(opt_level=1, threads=threads))
        found = [s for s in exe.plan.lines if any(w in s for w in ("cut", "join", "to plain"))]
        assert len(found) == moves, exe.plan
        for _ in range(2):
            exe.specialized.program.poison(0x7F)
            got = exe.run(x)
            assert all(got[v].tobytes() == array.tobytes() for v, array in want.items())


@pytest.fixture(params=[False, True])
def written_borders(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Borders that keep their zeros, and those that are written in every run."""
    if request.param:
        monkeypatch.setattr(borders, "SLACK", 0)
        monkeypatch.setattr(borders, "KEPT_SHARE", 0.0)


@pytest.mark.usefixtures("written_borders")
def test_whole_blocks_are_read_where_they_lie() -> None:
    net = Net(51)
    a, b, c = net.split(net.conv(net.x, 69), 16, 32, 21)
    check(net, [net.conv(b, 7, 3), net.conv(a, 6), net.conv(c, 4, 3)], moves=0)


@pytest.mark.usefixtures("written_borders")
def test_blocks_of_a_residual_stage_are_joined_without_a_copy() -> None:
    """Split in two, one half refined twice, all of it concatenated: nothing moves."""
    net = Net(52)
    first, second = net.split(net.conv(net.x, 64, 3), 32, 32)
    third = net.b.add(Add(), [second, net.conv(second, 32, 3)])
    fourth = net.b.add(Add(), [third, net.conv(net.b.add(Relu(), [third]), 32, 3)])
    check(net, [net.conv(net.join(first, second, third, fourth), 21)], moves=1)  # third


def test_pieces_that_are_joined_in_another_order_are_copied() -> None:
    net = Net(53)
    a, b = net.split(net.conv(net.x, 64), 32, 32)
    check(net, [net.conv(net.join(b, a), 5)], moves=2)


def test_pieces_may_be_joined_twice() -> None:
    net = Net(54)
    a, b = net.split(net.conv(net.x, 48), 16, 32)
    check(net, [net.conv(net.join(a, b, a), 5, 3)], moves=1)


def test_pieces_may_lie_between_other_parts() -> None:
    net = Net(55)
    a, b = net.split(net.conv(net.x, 48), 16, 32)
    check(net, [net.conv(net.join(net.conv(net.x, 16), a, b, net.conv(b, 9, 3)), 5, 3)], moves=0)


def test_half_of_the_pieces_is_copied() -> None:
    net = Net(56)
    a, b = net.split(net.conv(net.x, 48), 16, 32)
    check(net, [net.conv(net.join(a, net.conv(b, 16)), 5, 3)], moves=1)


def test_a_piece_may_be_cut_itself_and_be_an_output() -> None:
    net = Net(57)
    tail = net.slice(net.conv(net.x, 83), 32, 2**62)
    a, b = net.split(tail, 16, 35)
    check(net, [net.conv(tail, 5, 3), a, net.conv(b, 6)], moves=1)


@pytest.mark.parametrize(
    ("start", "end", "axis", "step", "moves"),
    [
        (8, 40, 1, 1, 2),  # rows of the row-major value
        (16, 40, 1, 1, 3),  # the last conversion takes two calls
        (0, 64, 1, 2, 3),
        (-1, -(2**62), 1, -1, 3),
        (-1, -(2**62), 2, -1, 3),
        (1, 9, 2, 1, 3),
    ],
)
def test_what_is_no_run_of_blocks_is_copied(
    start: int, end: int, axis: int, step: int, moves: int
) -> None:
    net = Net(58)
    cut = net.slice(net.conv(net.x, 64), start, end, axis, step)
    check(net, [net.conv(cut, 5, 3)], moves)


def test_images_of_a_batch_are_cut_one_by_one() -> None:
    net = Net(59, batch=3)
    a, b = net.split(net.conv(net.x, 48), 16, 32)
    check(net, [net.conv(a, 5, 3), net.conv(b, 6)], moves=5)


def test_rows_of_a_row_major_value_are_read_where_they_lie() -> None:
    net = Net(60)
    x = net.b.add(Relu(), [net.x])
    first, second = net.slice(x, 2, 5), net.slice(x, 5, 8)
    check(net, [net.b.add(Add(), [first, second])], moves=0)


def test_inputs_and_outputs_stay_the_callers_own() -> None:
    net = Net(61)
    x = net.b.add(Relu(), [net.x])
    check(net, [net.slice(x, 2, 5), net.slice(net.x, 1, 4), x], moves=2)


@st.composite
def networks(draw: st.DrawFn) -> tuple[Net, list[str]]:
    """Convolutions, cuts, joins and sums of one another, of channels that are blocks or are not."""
    net = Net(draw(st.integers(0, 999)), batch=draw(st.sampled_from([1, 1, 1, 2])))
    values = [net.conv(net.x, draw(st.sampled_from([32, 48, 64])), draw(st.sampled_from([1, 3])))]
    for _ in range(draw(st.integers(2, 8))):
        value = draw(st.sampled_from(values))
        channels = net.b.types[value].shape[1]
        what = draw(st.sampled_from(["conv", "split", "split", "slice", "join", "join", "relu"]))
        if what == "conv":
            made = [net.conv(value, draw(st.sampled_from([16, 21, 32])), 3)]
        elif what == "split" and channels > 16:
            first = 16 * draw(st.integers(1, (channels - 1) // 16)) - draw(
                st.sampled_from([0, 0, 3])
            )
            made = list(net.split(value, first, channels - first))
        elif what == "slice":
            start = draw(st.sampled_from([0, 16, 5]))
            made = [
                net.slice(value, min(start, channels - 1), draw(st.sampled_from([channels, 32])))
            ]
            if net.b.types[made[0]].shape[1] == 0:
                made = []
        elif what == "join":
            made = [net.join(*draw(st.lists(st.sampled_from(values), min_size=2, max_size=4)))]
        else:
            made = [net.b.add(Relu(), [value])]
        values += made
    outputs = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3, unique=True))
    return net, [net.conv(values[-1], 5, 3), *outputs]


@given(networks())
@settings(deadline=None, max_examples=12)
def test_random_networks_keep_the_promised_bits(made: tuple[Net, list[str]]) -> None:
    net, outputs = made
    x = {"x": net.rng.standard_normal(net.shape).astype(np.float32)}
    graph = net.b.graph(outputs)
    exe = compile(graph, Settings(opt_level=1, threads=2))
    exe.specialized.program.poison(0x7F)
    got = exe.run(x)
    for value, array in promised(graph, x).items():
        assert got[value].tobytes() == array.tobytes(), value
