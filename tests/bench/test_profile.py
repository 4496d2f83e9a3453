"""Profiles: every column says what its head says, in the table, as JSON and as a trace."""

from __future__ import annotations

import numpy as np
import pytest

import verax.ops  # noqa: F401  (registers the operators)
from verax.base.machine.cores import available_cores
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.describe.machine_peak import peak_gflops, round_trip_ns
from verax.compiler.kernels.target import Target
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.records.profile import Profile, StepTime

BATCH, CHANNELS, FILTERS, HEIGHT, WIDTH, KERNEL = 2, 16, 48, 30, 28, 3
MADE = Profile(
    (
        StepTime("a", "conv_0", 50.0, 2_000_000, 400_000, "direct", "tile 2x3", 2),
        StepTime("b", "reference", 10.0, 0, 0, "no kernel"),
    ),
    5,
    2,
    80.0,
)


def network() -> Graph:
    """A convolution of many operations, and a kernel without a schedule."""
    b, rng = Builder("net"), np.random.default_rng(41)
    x = b.input("x", TensorType.parse(f"float32[{BATCH}, {CHANNELS}, {HEIGHT}, {WIDTH}]"))
    weights = rng.standard_normal((FILTERS, CHANNELS, KERNEL, KERNEL)).astype(np.float32)
    y = b.add(REGISTRY["Conv"](pads=((1, 1), (1, 1))), [x, b.constant(weights)], name="first")
    return b.graph([y, b.add(REGISTRY["Neg"](), [x], name="turned")])


def profile(threads: int) -> Profile:
    x = np.random.default_rng(42).standard_normal((BATCH, CHANNELS, HEIGHT, WIDTH))
    settings = Settings(opt_level=1, threads=threads)
    return compile(network(), settings).profile({"x": x.astype(np.float32)}, runs=3)


def test_a_convolution_is_counted_as_its_definition_says() -> None:
    found = profile(2)
    step = next(s for s in found.steps if s.label.startswith("first") and s.flops)
    outputs = BATCH * FILTERS * HEIGHT * WIDTH
    assert step.flops == 2 * outputs * CHANNELS * KERNEL**2
    weights, inputs = FILTERS * CHANNELS * KERNEL**2, BATCH * CHANNELS * HEIGHT * WIDTH
    assert 4 * (outputs + weights + inputs) <= step.bytes <= 1.5 * 4 * (outputs + weights + inputs)
    assert step.threads == 2
    assert "float32 convolution" in step.algorithm
    assert "kernel 3x3" in step.algorithm
    assert "tile" in step.schedule
    assert found.peak > 0
    assert 0 < found.share_of_peak(step) < 200  # the clock may rise between the two measurements


def test_a_step_is_shared_by_no_more_threads_than_there_are() -> None:
    assert {s.threads for s in profile(1).steps} == {1}


def test_figures_follow_from_each_other() -> None:
    first, second = MADE.steps
    assert first.gflops == 40.0
    assert first.gigabytes == 8.0
    assert MADE.share_of_peak(first) == 50.0
    assert MADE.share_of_peak(second) == 0.0
    step = MADE.to_json()["steps"][0]
    assert (step["gflops"], step["percent_of_peak"], step["gigabytes_per_second"]) == (40, 50, 8)


def test_the_table_has_every_column() -> None:
    head, names, first, second = str(MADE).splitlines()
    assert "peak 80 GFLOP/s" in head
    assert names.split()[:4] == ["us", "time", "GFLOP/s", "of"]
    assert "GB/s" in names
    assert first.split() == [
        *("50.0", "83.3", "%", "40.0", "50.0", "%", "0.400", "8.0", "2", "conv_0"),
        *("a:", "direct;", "tile", "2x3"),
    ]
    assert second.endswith("b: no kernel")


def test_a_trace_lays_the_steps_one_after_another() -> None:
    trace = MADE.to_trace()
    steps = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert [(e["name"], e["ts"], e["dur"]) for e in steps] == [("a", 0.0, 50.0), ("b", 50.0, 10.0)]
    assert steps[0]["args"]["schedule"] == "tile 2x3"
    assert {"pid", "tid", "cat"} <= set(steps[0])


@pytest.mark.parametrize("threads", [1, 2])
def test_the_peak_is_a_plausible_number_of_this_machine(threads: int) -> None:
    found = peak_gflops(Target.host(), threads, 0.005)
    assert 0.1 < found < 1000 * threads


@pytest.mark.skipif(available_cores() < 2, reason="one core")
def test_a_number_comes_back_from_another_core() -> None:
    assert 5 < round_trip_ns(Target.host()) < 1e6  # a core does not see another's in fewer
