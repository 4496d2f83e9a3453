"""A real fault of torch.compile, confirmed against float64 by hand, and the pass that brings it.

Inductor takes products with a Softmax between them for attention whatever the axis of the Softmax
is: `softmax(q @ k.T / c, -2) @ v`, the normalisation of slot attention, is computed along the last
axis. Where a later version is right, the test skips and says so.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import verax
from verax.api import subject_of
from verax.base.optional import installed_version
from verax.judge.bisect import bisect
from verax.judge.regions.coverage import ACCEPTED
from verax.records.verdict import Kind

KNOWN = (2, 13)
"""The version that this fault was met in."""
SHAPES = {"q": (2, 3, 5, 8), "k": (2, 3, 7, 8), "v": (2, 3, 7, 9)}


def inputs() -> dict[str, np.ndarray]:
    random = np.random.default_rng(37)
    return {n: random.standard_normal(s).astype(np.float32) for n, s in SHAPES.items()}


def attention(axis: int) -> Any:
    """A program of the two products, with the Softmax along this axis."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("torch._inductor.compiler_bisector", reason="Inductor has no bisector")

    class Attention(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, q: Any, k: Any, v: Any) -> Any:
            return torch.softmax(q @ k.transpose(-2, -1) / 2.7, axis) @ v

    example = tuple(torch.from_numpy(a) for a in inputs().values())
    return torch.export.export(Attention().eval(), example)


def meaning(axis: int) -> np.ndarray:
    """The same in float64 by NumPy alone."""
    q, k, v = (a.astype(np.float64) for a in inputs().values())
    powers = np.exp(q @ k.swapaxes(-2, -1) / 2.7)
    return np.asarray(powers / powers.sum(axis, keepdims=True) @ v)


def require_fault(kind: Kind) -> None:
    """Skip where a version after the known one is right."""
    version = installed_version("torch") or "0"
    if tuple(int(n) for n in version.split(".")[:2]) > KNOWN and kind is not Kind.mistake:
        pytest.skip(f"PyTorch {version} is right here")
    assert kind is Kind.mistake


@pytest.mark.parametrize("axis", [-2, pytest.param(-1, marks=pytest.mark.slow)])
def test_a_softmax_along_another_axis_is_no_attention(axis: int) -> None:
    model = verax.load(attention(axis))
    subject = subject_of("torch-compiled", model)
    given = dict(zip(model.graph.inputs, inputs().values()))
    kind = verax.check(model, subject, given, watch=False, explain=False).kind
    (answer,) = subject.run(model.graph, given).values()
    if axis == -1:
        assert kind in ACCEPTED
        assert np.abs(answer - meaning(-1)).max() < 1e-5
    else:
        require_fault(kind)
        assert np.abs(answer - meaning(-1)).max() < 1e-5 < np.abs(answer - meaning(-2)).max()


@pytest.mark.slow
def test_the_pass_that_takes_it_for_attention_is_named() -> None:
    model = verax.load(attention(-2))
    subject = subject_of("torch-compiled", model)
    given = dict(zip(model.graph.inputs, inputs().values()))
    record = bisect(model.graph, subject, given).record
    require_fault(record.verdict.kind)
    assert record.optimizations is not None
    assert record.optimizations.guilty.startswith("inductor joint_graph_passes")
    assert "pass_pattern_0" in record.optimizations.guilty
