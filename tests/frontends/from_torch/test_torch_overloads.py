"""Overloads of ATen operators by themselves, against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from torch_overloads import CALLS, exported
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
