"""The example network in six formats: each file is the same function as the ONNX file."""

from __future__ import annotations

from pathlib import Path

import pytest

import verax
from verax.judge.align.networks import align
from verax.records.verdict import Kind

FOLDER = Path(__file__).parents[2] / "examples" / "digits"
SUFFIXES = ("pt2", "keras", "h5", "pb", "tflite", "mlmodel")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_file_is_the_same_function(suffix: str) -> None:
    source = verax.load(FOLDER / "digits.onnx", shapes={"n": 1})
    other = verax.load(FOLDER / f"digits.{suffix}")
    found = align(source.graph, other.graph)
    assert found.exit_code == 0, found
    assert len(found.outputs) == 2


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_file_compiles_to_the_same_meaning(suffix: str) -> None:
    model = verax.load(FOLDER / f"digits.{suffix}")
    verdict = verax.check(model, "verax:O1", twice=False)
    assert verdict.kind in (Kind.identical, Kind.rounding), verdict.reasons
