"""Honest quantised networks are made by their seed, and nobody is accused of a sample of them."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.honest import quantised

import verax
from verax.frontends.onnx.writer import to_bytes
from verax.records.verdict import Kind
from verax.runners.onnx_runtime import OnnxRuntimeRunner

pytest.importorskip("onnxruntime", reason="its tools make the networks")
HONEST = (Kind.identical, Kind.rounding, Kind.precision)


def test_equal_seeds_give_equal_networks_and_every_scheme_comes() -> None:
    (one,), (other,) = (list(quantised.cases(3, 1)) for _ in range(2))
    assert one.model.SerializeToString() == other.model.SerializeToString()
    assert all(np.array_equal(one.inputs[k], other.inputs[k]) for k in one.inputs)
    drawn = {quantised.scheme_of(seed, n).name for seed in range(8) for n in range(10)}
    assert drawn == {s.name for s in quantised.SCHEMES} and len(drawn) == len(quantised.SCHEMES)


@pytest.mark.parametrize("number", [1, 8, 13, 18, 27, 30])
@pytest.mark.parametrize("level", ["all", "disabled"])
def test_nobody_is_accused(number: int, level: str) -> None:
    case = quantised.case(0, number)
    loaded = verax.load(case.model)
    subject = OnnxRuntimeRunner(
        case.model.SerializeToString(), writer=to_bytes, level=level, threads=1, isolated=False
    )
    for watch in (True, False):
        verdict = verax.check(
            loaded, subject, inputs=case.inputs, watch=watch, explain=False, twice=False
        )
        assert verdict.kind is not Kind.mistake, verdict.reasons
        assert all(f.kind in (*HONEST, Kind.undecided) for f in verdict.nodes)
        assert not watch or verdict.kind in HONEST, verdict.reasons
