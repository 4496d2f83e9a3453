"""Convolutions whose weights and bias are computed run natively, with the promised bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.compiler.native import agree

from verax.ir.operator import REGISTRY, Case, Operator
from verax.ops.windows.convolution import Conv
from verax.ops.windows.deconvolution import ConvTranspose


def in_float32(name: str) -> list[Case]:
    """The operator's own cases that kernels take."""
    found = REGISTRY[name].cases(np.random.default_rng(7))
    return [c for c in found if all(a.dtype == np.float32 for a in c.inputs if a is not None)]


CASES = [(name, c) for name in ("Conv", "ConvTranspose") for c in in_float32(name)]


@pytest.mark.parametrize(("name", "case"), CASES, ids=[f"{n} {c.label}" for n, c in CASES])
def test_every_case_of_the_operator(name: str, case: Case) -> None:
    agree(case.op, *case.inputs)


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_drawn_ones(data: st.DataObject) -> None:
    """Many channels, so that there are full blocks, panels and rests of both."""
    draw = data.draw
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    few, many = draw(st.sampled_from([1, 5, 16, 37])), draw(st.sampled_from([1, 3, 16, 70]))
    kernel, turned = draw(st.tuples(*[st.integers(1, 3)] * 2)), draw(st.booleans())
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    steps = draw(st.tuples(*[st.integers(1, 2)] * 2))
    op: Operator = (ConvTranspose if turned else Conv)(strides=steps, groups=groups)
    x = rng.standard_normal((2, groups * few, 4, 5)).astype(np.float32)
    w = (groups * few, many) if turned else (groups * many, few)
    weights = rng.standard_normal((*w, *kernel)).astype(np.float32)
    bias = rng.standard_normal(groups * many).astype(np.float32)
    agree(op, x, weights, *([bias] if draw(st.booleans()) else []))
