"""What is stored in fewer bits for a target is decided one value at a time: named, counted, to be
left out or stopped at. Programs are made for processors that this machine need not be."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from verax.base.settings import Settings
from verax.compiler.decide.steps import STEPS, Decisions
from verax.compiler.kernels.target import Target
from verax.compiler.levels import run_passes
from verax.compiler.lower.lowering import kernel_calls
from verax.compiler.lower.program import LoweredProgram, lower
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import DType, TensorType

TARGETS = {"store_in_bytes": "avx512vnni", "store_in_bfloat16": "avx512bf16"}
STORED = {"store_in_bytes": "uint8 by int8", "store_in_bfloat16": "bfloat16 by bfloat16"}
"""What the kernels of such values are called in plans."""


def integers() -> Graph:
    """Two convolutions of bytes, one behind the other, quantized in between."""
    rng, b = np.random.default_rng(1723), Builder("bytes")
    h = b.input("x", TensorType(DType.float32, (2, 32, 7, 9)))
    for channels, filters in ((32, 48), (48, 16)):
        scale, zero = b.constant(np.array(0.05, np.float32)), b.constant(np.array(0, np.uint8))
        q = b.add(REGISTRY["QuantizeLinear"](), [h, scale, zero])
        w = b.constant(rng.integers(-20, 21, (filters, channels, 1, 1)).astype(np.int8))
        ones = b.constant(np.full(filters, 0.01, np.float32))
        h = b.add(
            REGISTRY["Conv"](),
            [
                b.add(REGISTRY["DequantizeLinear"](), [q, scale, zero]),
                b.add(REGISTRY["DequantizeLinear"](axis=0), [w, ones]),
            ],
        )
    return b.graph([h])


def floats() -> Graph:
    """Two products with an even number of terms, one behind the other."""
    rng, b = np.random.default_rng(1741), Builder("pairs")
    h = b.input("x", TensorType(DType.float32, (37, 64)))
    for terms, columns in ((64, 48), (48, 26)):
        w = b.constant(rng.standard_normal((terms, columns)).astype(np.float32))
        h = b.add(REGISTRY["MatMul"](), [b.add(REGISTRY["Relu"](), [h]), w])
    return b.graph([h])


GRAPHS = {"store_in_bytes": integers, "store_in_bfloat16": floats}


def lowered(name: str, limit: int | None = None, **more: Any) -> LoweredProgram:
    settings = Settings(3, threads=1, allow=("bf16",), target=TARGETS[name])
    graph, _ = run_passes(GRAPHS[name](), settings)
    decisions = dataclasses.replace(Decisions(), limit=limit, **more)
    return lower(graph, Target.named(TARGETS[name]), settings, decisions=decisions)


def stored(program: LoweredProgram) -> int:
    """How many kernels multiply values that are stored in fewer bits."""
    calls = [str(c.spec) for c in kernel_calls(program.steps)]
    return sum(any(text in call for text in STORED.values()) for call in calls)


def of(name: str, program: LoweredProgram) -> list[str]:
    return [one.id for one in program.trace.records if one.pass_name == name]


def test_these_are_the_decisions_that_a_target_makes() -> None:
    assert {s.name for s in STEPS if s.by_target} == TARGETS.keys()


@pytest.mark.parametrize("name", TARGETS)
def test_each_value_is_a_record_of_its_own(name: str) -> None:
    program = lowered(name)
    assert of(name, program) and len({*of(name, program)}) == len(of(name, program))
    assert stored(program) >= len(of(name, program))


@pytest.mark.parametrize("name", TARGETS)
def test_without_the_decision_the_values_stay_wide(name: str) -> None:
    others = frozenset(s.name for s in STEPS if s.name != name)
    without = lowered(name, names=others)
    assert not of(name, without)
    whole, left = (stored(lowered(name)), stored(without))
    assert left < whole or name == "store_in_bytes"  # bytes are then moved before each product


@pytest.mark.parametrize("name", TARGETS)
def test_a_search_can_stop_between_two_of_them(name: str) -> None:
    every = [one.id for one in lowered(name).trace.records]
    first = every.index(of(name, lowered(name))[0])
    assert not of(name, lowered(name, limit=first))
    assert of(name, lowered(name, limit=first + 1)) == every[first : first + 1]


@pytest.mark.parametrize("name", TARGETS)
def test_each_can_be_left_out_by_its_id(name: str) -> None:
    every = [one.id for one in lowered(name).trace.records]
    for left_out in of(name, lowered(name)):
        chosen = tuple(one for one in every if one != left_out)
        assert left_out not in of(name, lowered(name, selected=chosen))
