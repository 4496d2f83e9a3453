"""Honest quantised networks are made by their seed, and nobody is accused of a sample of them."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
from benchmarks.honest import quantised
from benchmarks.honest.lite import lite_files
from benchmarks.honest.networks import Forms
from benchmarks.honest.outcomes import ACCUSED
from benchmarks.honest.planted import JUDGED, run_planted
from benchmarks.honest.restated import CONVOLVED, FLOAT, UNSIGNED, restatements
from benchmarks.honest.runs import FILE, INT8, OUTPUTS, Run
from benchmarks.honest.table import KNOWN, known_fault
from benchmarks.honest.worker import honest

import verax
from verax.export.onnx.writer import to_bytes
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


@pytest.mark.checkered
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


@pytest.mark.parametrize("group,number", [(14, 9), (27, 6), (16, 0), (19, 5), (0, 5), (12, 0)])
def test_a_restatement_means_the_same(group: int, number: int) -> None:
    case = quantised.case(group, number)
    meaning = list(verax.reference(verax.load(case.model), case.inputs).values())
    said = dict(restatements(case.model))
    assert said and all(words.strip() for words in said)
    for words, model in said.items():
        assert model.SerializeToString() != case.model.SerializeToString()
        graph = verax.load(model)
        for one, other in zip(meaning, verax.reference(graph, case.inputs).values()):
            # Scales that are combined first may tip an integer of a convolution spelled out.
            few = 0.05 if CONVOLVED in words else 0.0
            assert np.mean(one != other) <= few, words


def test_without_sixteen_bits_the_meaning_is_another() -> None:
    case = quantised.case(5, 1)
    ((words, model),) = restatements(case.model)
    assert words == FLOAT
    one, other = (
        next(iter(verax.reference(verax.load(m), case.inputs).values()))
        for m in (case.model, model)
    )
    assert 1e-5 < np.abs(one - other).max() < 1


def test_an_accusation_is_argued_by_the_words_in_which_the_runtime_is_right(
    tmp_path: Path,
) -> None:
    pytest.importorskip("openvino", reason="its faults are met here")
    key = "quantised14/int8/case9-QDQ-tensor-aint8-wint8-reduced/openvino/outputs/plain"
    outcome = honest(Run.of(key), Forms("quantised14", tmp_path))
    assert outcome.result == ACCUSED and outcome.restated == UNSIGNED
    faults = tomllib.loads(KNOWN.read_text())["fault"]
    assert "Concat" in known_fault(outcome, faults)
    assert not known_fault(dataclasses.replace(outcome, restated=""), faults)
    assert not known_fault(dataclasses.replace(outcome, restated="weights as int8"), faults)


def test_mistakes_planted_in_quantised_networks_are_found(tmp_path: Path) -> None:
    forms = Forms("quantised23", tmp_path)
    found = [run_planted(f"quantised23/planted/numbers/{n}", forms) for n in (0, 2, 6)]
    assert all(o.result == JUDGED and o.detected for o in found), [o.reasons for o in found]


@pytest.mark.parametrize("runner", ["litert", "litert-reference"])
def test_a_quantised_file_on_litert_is_not_accused(runner: str, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="litert is not installed")
    names = [n for n in lite_files() if re.search("operator-(CONV_2D-uint8-RELU|ADD-int8)", n)]
    assert names
    for name in names:
        run = Run(name, INT8, FILE, runner, OUTPUTS, "draw0")
        outcome = honest(run, Forms(name, tmp_path))
        assert outcome.result in HONEST, (run.key, outcome.reasons)
