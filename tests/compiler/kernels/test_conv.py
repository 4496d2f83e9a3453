"""Convolution kernels give the canonical bits for every shape, schedule and target."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.compiler.kernels import harness as h

from verax.compiler.kernels.convolution.emit import (
    default_schedule,
    emit_conv,
    is_direct,
    pack_conv_weights,
)
from verax.compiler.kernels.convolution.pack import direct_elements, pack_channels
from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.convolution.spec import ConvSpec
from verax.compiler.kernels.dtypes import FLOAT32
from verax.compiler.kernels.layout import Epilogue, Operand
from verax.compiler.kernels.llvm.builder import ModuleBuilder
from verax.compiler.kernels.llvm.object_code import object_code
from verax.compiler.kernels.target import Target
from verax.numerics import functions
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.expr import evaluate, trace


@dataclasses.dataclass(frozen=True)
class Case:
    """One convolution with data."""

    x: np.ndarray
    w: np.ndarray
    bias: np.ndarray | None
    strides: tuple[int, int, int]
    dilations: tuple[int, int, int]
    pads: tuple[int, int, int]
    output: tuple[int, int, int]
    groups: int = 1
    transposed: bool = False

    def spec(self, x: h.Strides, y: h.Strides, epilogue: Epilogue | None = None) -> ConvSpec:
        filters = self.w.shape[1] * self.groups if self.transposed else self.w.shape[0]
        return ConvSpec(
            self.x.shape[0], self.x.shape[1], filters, self.output, self.w.shape[2:], x, y,
            self.groups, self.strides, self.dilations, self.pads, self.bias is not None,
            self.transposed, epilogue, types=FLOAT32,
        )  # fmt: skip

    def expected(self) -> np.ndarray:
        oracle = h.deconv_oracle if self.transposed else h.conv_oracle
        return oracle(
            self.x, self.w, self.bias, self.strides, self.dilations, self.pads, self.output,
            self.groups,
        )  # fmt: skip


def compute(
    case: Case,
    target: Target,
    schedule: ConvSchedule | None = None,
    planar: bool = False,
    border: h.Border = h.NO_BORDER,
    parts: int = 1,
    epilogue: Epilogue | None = None,
) -> np.ndarray:
    probe = h.blocked_strides(1, (1, 1, 1))
    need = case.spec(probe, probe).border(case.x.shape[2:])
    x = h.tensor(case.x, need, planar)
    filters = case.spec(probe, probe).filters
    y = h.empty((case.x.shape[0], filters, *case.output), border)
    spec = case.spec(x.strides, y.strides, epilogue)
    schedule = schedule or default_schedule(spec, target)
    weights = pack_conv_weights(case.w, spec, schedule)
    assert not is_direct(spec) or weights.size == direct_elements(spec, schedule)
    arguments = [x.address, weights.ctypes.data]
    if case.bias is not None:
        bias = pack_channels(case.bias)
        arguments.append(bias.ctypes.data)
    module = ModuleBuilder("test", target)
    kernel = emit_conv(module, spec, schedule)
    h.run(module, kernel, *arguments, y.address, parts=parts)
    assert h.untouched_outside(y)
    return y.read()


def make(
    seed: int, batch: int, channels: int, filters: int, size: tuple[int, ...],
    kernel: tuple[int, ...], strides: tuple[int, ...] = (1, 1, 1),
    dilations: tuple[int, ...] = (1, 1, 1), pads: tuple[int, ...] = (0, 0, 0),
    after: tuple[int, ...] = (0, 0, 0), groups: int = 1, bias: bool = True,
) -> Case:  # fmt: skip
    rng = np.random.default_rng(seed)
    output = h.output_size(size, kernel, strides, dilations, pads, after)
    return Case(
        h.random(rng, batch, channels, *size),
        h.random(rng, filters, channels // groups, *kernel),
        h.random(rng, filters) if bias else None,
        strides, dilations, pads, output, groups,
    )  # fmt: skip


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Any convolution that is small; often 2-D."""
    axes = draw(st.sampled_from([1, 2, 2, 2, 3]))

    def triple(low: int, high: int, missing: int) -> tuple[int, int, int]:
        some = [draw(st.integers(low, high)) for _ in range(axes)]
        return tuple([missing] * (3 - axes) + some)

    groups = draw(st.sampled_from([1, 1, 1, 2]))
    unit = 16 if groups > 1 else 1
    channels = groups * unit * draw(st.integers(1, 3 if unit > 1 else 37))
    filters = groups * unit * draw(st.integers(1, 3 if unit > 1 else 70))
    size, kernel = triple(1, 9, 1), triple(1, 3, 1)
    strides, dilations = triple(1, 3, 1), triple(1, 2, 1)
    pads, after = triple(0, 2, 0), triple(0, 2, 0)
    output = h.output_size(size, kernel, strides, dilations, pads, after)
    assume(min(output) > 0)
    made = make(
        draw(st.integers(0, 99)), draw(st.integers(1, 2)), channels, filters, size, kernel,
        strides, dilations, pads, after, groups, draw(st.booleans()),
    )  # fmt: skip
    return made


@st.composite
def grouped_cases(draw: st.DrawFn) -> Case:
    """Groups that cut through blocks of 16 channels, or single channels."""
    case = draw(cases())
    groups = draw(st.integers(2, 21))
    inputs, outputs = draw(
        st.sampled_from([(1, 1), (1, 1), (5, 7), (1, 2), (3, 1), (2, 16), (2, 2), (4, 4), (8, 8)])
    )
    size, kernel = case.x.shape[2:], case.w.shape[2:]
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    return dataclasses.replace(
        case,
        x=h.random(rng, case.x.shape[0], groups * inputs, *size),
        w=h.random(rng, groups * outputs, inputs, *kernel),
        bias=h.random(rng, groups * outputs) if case.bias is not None else None,
        groups=groups,
    )


@st.composite
def transposed_cases(draw: st.DrawFn) -> Case:
    """Transposed convolutions, with outputs that some kernel positions or none reach."""
    axes = draw(st.sampled_from([1, 2, 2, 3]))

    def triple(low: int, high: int, missing: int) -> tuple[int, int, int]:
        some = [draw(st.integers(low, high)) for _ in range(axes)]
        return tuple([missing] * (3 - axes) + some)

    groups = draw(st.sampled_from([1, 1, 2, 3]))
    unit = draw(st.sampled_from([1, 16])) if groups > 1 else 1
    channels, filters = (
        unit * draw(st.integers(1, 19 // unit)),
        unit * draw(st.integers(1, 35 // unit)),
    )
    size, kernel = triple(1, 4, 1), triple(1, 4, 1)
    strides, dilations, pads, extra = (
        triple(1, 3, 1),
        triple(1, 2, 1),
        triple(0, 2, 0),
        triple(0, 2, 0),
    )
    output = tuple(
        (e - 1) * s + (k - 1) * d + 1 - p + x
        for e, s, k, d, p, x in zip(size, strides, kernel, dilations, pads, extra)
    )
    assume(min(output) > 0)
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    return Case(
        h.random(rng, draw(st.integers(1, 2)), groups * channels, *size),
        h.random(rng, groups * channels, filters, *kernel),
        h.random(rng, groups * filters) if draw(st.booleans()) else None,
        strides, dilations, pads, output, groups, True,
    )  # fmt: skip


schedules = st.builds(
    ConvSchedule,
    blocks=st.integers(1, 3), rows=st.integers(1, 3), cols=st.integers(1, 4),
    chunk=st.integers(1, 3), filters_outer=st.booleans(), unroll=st.integers(1, 5),
    ahead=st.booleans(), near=st.sampled_from([0, 8]), fetch_block=st.booleans(),
    pass_blocks=st.integers(0, 2),
)  # fmt: skip

slow = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(max_examples=12, deadline=None, suppress_health_check=slow)
@given(case=cases(), planar=st.booleans(), parts=st.integers(1, 3))
@pytest.mark.parametrize("target", h.TARGETS, ids=lambda t: t.name)
def test_default_schedules_give_canonical_bits(
    target: Target, case: Case, planar: bool, parts: int
) -> None:
    border = ((0, 0), (1, 2), (2, 1))
    got = compute(case, target, None, planar, border, parts)
    assert h.same_bits(got, case.expected())


@settings(max_examples=12, deadline=None, suppress_health_check=slow)
@given(case=st.one_of(grouped_cases(), transposed_cases()), parts=st.integers(1, 3))
@pytest.mark.parametrize("target", h.TARGETS, ids=lambda t: t.name)
def test_groups_and_transposes_give_canonical_bits(target: Target, case: Case, parts: int) -> None:
    assert h.same_bits(compute(case, target, parts=parts), case.expected())


@settings(max_examples=15, deadline=None, suppress_health_check=slow)
@given(case=cases(), schedule=schedules, parts=st.integers(1, 3))
def test_no_schedule_changes_a_bit(case: Case, schedule: ConvSchedule, parts: int) -> None:
    assert h.same_bits(compute(case, h.TARGETS[0], schedule, parts=parts), case.expected())


@pytest.mark.parametrize(
    "case",
    [
        make(0, 2, 20, 40, (1, 7, 9), (1, 1, 1)),
        make(1, 1, 64, 48, (1, 7, 7), (1, 3, 3), pads=(0, 1, 1), after=(0, 1, 1)),
        make(5, 2, 40, 40, (1, 12, 15), (1, 3, 3), pads=(0, 1, 1), after=(0, 1, 1), groups=40),
        make(
            6,
            1,
            35,
            35,
            (1, 13, 14),
            (1, 5, 5),
            (1, 2, 2),
            pads=(0, 1, 2),
            after=(0, 2, 1),
            groups=35,
        ),
        make(
            8,
            2,
            40,
            40,
            (1, 7, 19),
            (1, 3, 3),
            (1, 1, 2),
            pads=(0, 1, 1),
            after=(0, 1, 1),
            groups=10,
        ),
        make(7, 1, 20, 20, (4, 11, 6), (3, 5, 9), pads=(1, 2, 4), after=(1, 2, 4), groups=20),
        make(2, 1, 3, 32, (1, 23, 17), (1, 7, 7), (1, 2, 2), pads=(0, 3, 3), after=(0, 2, 3)),
    ],
    ids=[
        "pointwise",
        "late",
        "depthwise",
        "depthwise 5x5",
        "groups of 4",
        "depthwise 3-D",
        "first",
    ],
)
@pytest.mark.parametrize("target", h.TARGETS, ids=lambda t: t.name)
def test_layers_of_real_networks(case: Case, target: Target) -> None:
    assert h.same_bits(compute(case, target, parts=2), case.expected())


def test_the_epilogue_sees_channel_and_tensor_operands() -> None:
    case = make(3, 2, 5, 35, (1, 6, 10), (1, 3, 3), pads=(0, 1, 1), after=(0, 1, 1))
    rng = np.random.default_rng(4)
    residual, slope = h.random(rng, 2, 35, *case.output), h.random(rng, 35)
    expr = trace(
        lambda m, acc, r, s: m.max(m.add(acc, r), m.mul(m.add(acc, r), s)), ["float32"] * 3
    )
    x = h.tensor(case.x, ((0, 0), (1, 1), (1, 1)))
    other, y = h.tensor(residual, ((0, 0), (0, 2), (1, 0))), h.empty(residual.shape)
    operands = (
        Operand("tensor", other.strides, dtype="float32"),
        Operand("channel", dtype="float32"),
    )
    spec = case.spec(x.strides, y.strides, Epilogue(expr, operands))
    for target in h.TARGETS:
        schedule = default_schedule(spec, target)
        module = ModuleBuilder("test", target)
        kernel = emit_conv(module, spec, schedule)
        packed = [pack_conv_weights(case.w, spec, schedule), pack_channels(case.bias)]
        scale = pack_channels(slope)
        addresses = [x.address, *(p.ctypes.data for p in packed)]
        h.run(module, kernel, *addresses, other.address, scale.ctypes.data, y.address)
        total = case.expected() + residual
        assert h.same_bits(y.read(), np.maximum(total, total * slope.reshape(1, -1, 1, 1, 1)))


@settings(max_examples=15, deadline=None, suppress_health_check=slow)
@given(case=st.one_of(cases(), grouped_cases(), transposed_cases()), whole=st.booleans())
@pytest.mark.parametrize("target", h.TARGETS, ids=lambda t: t.name)
def test_a_long_epilogue_is_the_same_wherever_it_is_evaluated(
    target: Target, case: Case, whole: bool
) -> None:
    """Sigmoid, of sums that stand in y meanwhile; the borders of y stay what they are."""
    expr = trace(functions.sigmoid, ["float32"])
    border = h.NO_BORDER if whole else ((0, 0), (1, 2), (3, 1))
    found = compute(case, target, border=border, parts=2, epilogue=Epilogue(expr))
    assert h.same_bits(found, evaluate(expr, NumpyArith(), [case.expected()]))


def test_equal_specs_are_emitted_once() -> None:
    strides = h.blocked_strides(32, (1, 5, 6))
    spec = ConvSpec(1, 32, 32, (1, 5, 6), (1, 1, 1), strides, strides, types=FLOAT32)
    module = ModuleBuilder("test", h.TARGETS[0])
    schedule = default_schedule(spec, h.TARGETS[0])
    once = emit_conv(module, spec, schedule)
    assert emit_conv(module, dataclasses.replace(spec), schedule) is once


def test_every_target_can_be_emitted_anywhere() -> None:
    strides = h.blocked_strides(20, (1, 5, 6))
    spec = ConvSpec(1, 20, 20, (1, 5, 6), (1, 1, 1), strides, strides, types=FLOAT32)
    machines = []
    for target in (Target.avx512(), Target.avx2(), Target.aarch64()):
        module = ModuleBuilder("test", target)
        emit_conv(module, spec, default_schedule(spec, target))
        machines.append(int.from_bytes(object_code(module)[18:20], "little"))
    assert machines == [62, 62, 183]
