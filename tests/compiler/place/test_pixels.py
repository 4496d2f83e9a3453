"""Images with channels last, up to the convolution that reads them: no Transpose moves anything."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.compiler.place.test_turned import held
from tests.compiler.test_integer_kernels import integers

from verax.base.machine.processor import PROCESSOR_NAMES
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.kernels.loops.loop import plan_loop
from verax.compiler.kernels.target import Target
from verax.compiler.place.calls import Calls
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.movement import pixels
from verax.compiler.place.program import lower
from verax.compiler.plan.layouts import Layout
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import DType, TensorType

SAMPLE = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))


class Image:
    """x: [2, *space, channels]. Nodes are named by their kinds, for plans to tell of them."""

    def __init__(self, dtype: str, space: tuple[int, ...], channels: int, seed: int = 0) -> None:
        self.b, self.c, self.rank = Builder("net"), channels, len(space) + 2
        self.x = self.b.input("x", TensorType(DType(dtype), (2, *space, channels)))
        self.rng = np.random.default_rng(seed)

    def add(self, kind: str, *inputs: str, **fields: Any) -> str:
        return self.b.add(REGISTRY[kind](**fields), list(inputs), name=kind)

    def float32(self, array: Any) -> str:
        return self.b.constant(np.asarray(array, np.float32))

    def first(self, value: str) -> str:
        return self.add("Transpose", value, perm=(0, self.rank - 1, *range(1, self.rank - 1)))

    def normalised(self, value: str, shape: tuple[int, ...]) -> str:
        """(value - mean) scale, as float32; shape: that the means of the channels have."""
        if self.b.types[value].dtype is not DType.float32:
            value = self.add("Cast", value, to=DType.float32)
        means = self.float32(self.rng.uniform(1, 99, self.c).reshape(shape))
        return self.add("Mul", self.add("Sub", value, means), self.float32(0.017))

    def conv(self, value: str, filters: int = 19, **windows: Any) -> str:
        kernel = (3, 4, 2)[: self.rank - 2]
        w = self.float32(self.rng.standard_normal((filters, self.c, *kernel)))
        return self.add(
            "Conv", value, w, self.float32(self.rng.standard_normal(filters)), **windows
        )

    def graph(self, *outputs: str) -> Graph:
        return self.b.graph(list(outputs))


def steps(lines: Sequence[str]) -> list[str]:
    """Of a plan what runs before the convolutions, borders aside."""
    said = [line for line in lines if not re.search(r"(zeros|\d+) around", line)]
    return said[: next(i for i, line in enumerate(said) if "convolution" in line)]


@SAMPLE
@given(
    dtype=st.sampled_from(["uint8", "int8", "float32", "float64", "float16"]),
    space=st.sampled_from([(11,), (9, 7), (17, 6), (4, 5, 6)]),
    channels=st.integers(1, 7),
    before=st.booleans(),
    behind=st.booleans(),
    pads=st.booleans(),
    strides=st.integers(1, 3),
    seed=st.integers(0, 2**16),
)
def test_every_bit_is_promised(
    dtype: str,
    space: tuple[int, ...],
    channels: int,
    before: bool,
    behind: bool,
    pads: bool,
    strides: int,
    seed: int,
) -> None:
    s = Image(dtype, space, channels, seed)
    value = s.normalised(s.x, (channels,)) if before else s.x
    value = s.first(value)
    if behind or s.b.types[value].dtype is not DType.float32:
        value = s.normalised(value, (channels, *(1 for _ in space)))
    windows = {"strides": (strides,) * len(space)}
    if pads:
        windows["pads"] = ((1, 0), (2, 1), (0, 3))[: len(space)]
    exe = held(s.graph(s.conv(value, **windows)))
    assert len(steps(exe.plan.lines)) <= 1 + (before and behind and channels > 1) or channels == 1


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("where", ["before", "behind"])
@pytest.mark.parametrize("pads", [((0, 0), (0, 0)), ((0, 1), (2, 1))])
def test_one_pass_converts_normalises_and_makes_the_border(
    dtype: str, where: str, pads: Any
) -> None:
    s = Image(dtype, (9, 8), 3)
    value = s.first(s.normalised(s.x, (3,)) if where == "before" else s.x)
    value = value if where == "before" else s.normalised(value, (3, 1, 1))
    (line,) = steps(held(s.graph(s.conv(value, pads=pads))).plan.lines)
    assert "Sub" in line and "Mul" in line


def test_pixels_without_a_border_are_read_where_they_come_from() -> None:
    s = Image("float32", (9, 8), 3)
    assert not steps(held(s.graph(s.conv(s.first(s.x)))).plan.lines)


def test_other_readers_find_the_image() -> None:
    pads = {"pads": ((1, 1), (0, 1))}
    s = Image("float32", (9, 8), 3)
    image = s.first(s.x)
    held(s.graph(s.conv(image, **pads), s.add("GlobalAveragePool", image)))
    held(s.graph(s.conv(image, **pads), s.conv(image, 5, dilations=(2, 1))))
    held(s.graph(s.conv(image, **pads), image))
    held(s.graph(s.conv(image, **pads), s.add("Relu", image)))
    made = s.add("Relu", image)
    held(s.graph(s.conv(made, **pads), s.add("Sigmoid", made), s.add("Exp", image)))
    held(s.graph(s.conv(s.add("Add", image, made), **pads)))
    pixels_ = s.add("Relu", s.x)
    held(s.graph(s.conv(s.first(pixels_), **pads), s.add("Exp", pixels_)))
    held(s.graph(s.conv(s.first(pixels_), **pads), s.conv(s.first(pixels_))))
    per_pixel = s.float32(s.rng.standard_normal((9, 8, 1)))
    held(s.graph(s.conv(s.first(s.add("Mul", s.x, per_pixel)), **pads)))
    everywhere = s.float32(s.rng.standard_normal((9, 8, 3)))
    held(s.graph(s.conv(s.first(s.add("Mul", s.x, everywhere)), **pads)))


@SAMPLE
@given(
    kind=st.sampled_from(["uint8", "int8"]),
    channels=st.sampled_from([3, 5]),
    quantised=st.booleans(),
    pads=st.sampled_from([((0, 0), (0, 0)), ((1, 0), (2, 1))]),
    zero=st.sampled_from([0, 3]),
    seed=st.integers(0, 2**16),
    elsewhere=st.sampled_from(PROCESSOR_NAMES),
)
def test_integers(
    kind: str, channels: int, quantised: bool, pads: Any, zero: int, seed: int, elsewhere: str
) -> None:
    s = Image("float32" if quantised else kind, (9, 8), channels, seed)
    point = s.b.constant(np.array(zero, kind))
    value = s.x
    if quantised:
        value = s.add("QuantizeLinear", value, s.float32(0.02), point)
    w = s.b.constant(integers(s.rng, "int8", (21, channels, 3, 3), False))
    sums = s.add("ConvInteger", s.first(value), w, point, pads=pads)
    graph = s.graph(s.add("Cast", sums, to=DType.float32))
    most = 1 + 2 * quantised  # quantised, centred, side by side
    for target in ("host", "avx2"):
        exe = held(graph, target=target)
        assert len(steps(exe.plan.lines)) <= most, exe.plan
    # Whatever this machine is.
    lines = lower(graph, Target.named(elsewhere), Settings(opt_level=1)).lines
    assert len(steps(lines)) <= most, (elsewhere, lines)


def test_transposes_of_other_ranks_are_none_of_pixels() -> None:
    for shape, perm in (((4,), (0,)), ((3, 4), (1, 0)), ((2, 5, 3), (0, 2, 1)), ((), ())):
        b = Builder("net")
        x = b.input("x", TensorType(DType.float32, shape))
        turned = b.add(REGISTRY["Transpose"](perm=perm), [b.add(REGISTRY["Relu"](), [x])])
        graph = b.graph([b.add(REGISTRY["Exp"](), [turned])])
        held(graph)
        held(graph, opt_level=0)


def test_every_number_of_decisions() -> None:
    s = Image("uint8", (9, 8), 3)
    graph = s.graph(s.conv(s.first(s.normalised(s.x, (3,))), pads=((0, 1), (2, 1))))
    for count in range(held(graph).trace.rewrites + 1):
        held(graph, stop_after=count)
    held(graph, opt_level=0)


def test_a_batch_in_parts() -> None:
    s = Image("uint8", (160, 140), 3)
    value = s.conv(s.first(s.normalised(s.x, (3,))), 48, pads=((0, 1), (2, 1)))
    value = s.add("Conv", value, s.float32(s.rng.standard_normal((64, 48, 1, 1))))
    graph = s.graph(s.add("GlobalAveragePool", s.add("Relu", value)))
    exe = held(graph)
    assert "for 1 of 2 images" in exe.plan.lines[0]
    assert len(steps(exe.plan.lines)) == 2


@pytest.mark.parametrize("wrong", ["view", "row", "channels"])
def test_a_wrong_place_is_seen(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Channels and rows that change places, a constant that goes along the wrong axis."""
    s = Image("float32", (9, 8), 3)
    graph = s.graph(s.conv(s.first(s.normalised(s.x, (3,))), pads=((0, 1), (2, 1))))
    if wrong == "view":
        graph = s.graph(s.conv(s.first(s.x)), s.x)

        def view(lowering: Lowering, node: Any) -> bool:
            if real_view(lowering, node):
                (seen,) = lowering.values.placed[node.outputs[0]]
                plain = dataclasses.replace(seen.physical, layout=Layout.plain)
                lowering.values.placed[node.outputs[0]] = [
                    dataclasses.replace(seen, physical=plain)
                ]
                return True
            return False

        real_view = pixels.view_pixels
        monkeypatch.setattr("verax.compiler.place.movement.movement.view_pixels", view)
    elif wrong == "row":
        real = pixels.write_pixels

        def write(lowering: Any, value: str) -> Any:
            found = real(lowering, value)
            return found and (found[0], (*found[1][:-2], found[1][-1], found[1][-2]))

        monkeypatch.setattr("verax.compiler.place.elementwise.write_pixels", write)
    else:

        def placed(lowering: Any, constant: np.ndarray, shape: Any, steps: Any) -> Any:
            return lowering.weights.constant(constant if constant.ndim == 0 else constant[::-1])

        monkeypatch.setattr("verax.compiler.place.elementwise.place_along_rows", placed)
    with pytest.raises(AssertionError):
        held(graph)


def test_a_constant_by_channel_is_repeated_along_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """One loop over a row of 8 pixels of 3 channels, with a border behind it."""
    s = Image("uint8", (9, 8), 3)
    image = s.first(s.normalised(s.x, (3,)))
    called: list[Any] = []
    real = Calls.call

    def call(calls: Calls, spec: Any, *given: Any) -> None:
        called.append(spec)
        real(calls, spec, *given)

    monkeypatch.setattr(Calls, "call", call)
    compile(s.graph(s.conv(image, pads=((0, 0), (0, 1)))), Settings(opt_level=1, threads=1))
    assert plan_loop(called[0]).spec.dims[-1] == 24
