"""Drawn TFLite files mean what LiteRT's reference kernels compute."""

from __future__ import annotations

import pytest
from tests.frontends.from_tflite.random_cases import random_case
from tests.frontends.from_tflite.tflite_peer import drawn, litert

import verax
from verax.frontends.tflite import load_tflite
from verax.records.verdict import Kind


@pytest.mark.parametrize("index", range(40))
def test_a_drawn_operator_means_what_litert_computes(index: int) -> None:
    _, content = random_case(71, index)
    loaded = load_tflite(content)
    inputs = drawn(loaded)
    verdict = verax.check(loaded, litert(content, inputs), inputs=inputs)
    assert verdict.kind is not Kind.mistake, verdict.reasons
