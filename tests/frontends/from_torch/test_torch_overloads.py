"""Overloads of ATen operators by themselves, against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from torch_overloads import CALLS, EXPERTS, NODES, exported, imported
from torch_programs import arrays, saved

import verax
from verax.frontends.torch import load_torch


@pytest.mark.parametrize("name", CALLS)
def test_an_overload_means_what_pytorch_computes(name: str) -> None:
    program, tensors = exported(name), CALLS[name][1]
    assert f"aten.{name}" in {str(n.target) for n in program.graph.nodes}
    model = load_torch(saved(program))
    result = program.module()(*tensors)
    outputs = list(result) if isinstance(result, tuple | list) else [result]
    given = {k: np.asarray(o.detach()) for k, o in zip(model.outputs, outputs, strict=True)}
    inputs = arrays(model, tensors)
    verdict = verax.check(model, given, inputs=inputs, twice=False)
    if verdict.kind == "undecided":  # numbers cut off, in which no error can be seen
        assert {f.test for f in verdict.nodes if f.kind == "undecided"} == {"power"}
        assert all(np.array_equal(given[k], v) for k, v in verax.reference(model, inputs).items())
        return
    assert verdict.kind in ("identical", "rounding"), verdict.reasons


def test_rows_of_experts_take_their_experts_matrix() -> None:
    """What `transformers::grouped_mm_fallback` computes, a loop over experts."""
    (case,) = (n for n in NODES if n[0] == "transformers")
    x, weights, ends = (a.astype(np.float64) if a.dtype.kind == "f" else a for a in EXPERTS)
    expected, start = np.zeros((7, 5)), 0
    for weight, end in zip(weights, ends.tolist()):
        expected[start:end], start = x[start:end] @ weight, end
    model = imported(case)
    (found,) = verax.reference(model, {"x0": EXPERTS[0]}).values()
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    assert verax.check(model, {"y": expected.astype(np.float32)}, {"x0": EXPERTS[0]}).kind in (
        "identical",
        "rounding",
    )
