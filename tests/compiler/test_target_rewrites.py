"""What is stored in fewer bits for a target is decided one value at a time: named, counted, to be
left out or stopped at. Programs are made for processors that this machine need not be."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from verax.base.option_groups.settings import Settings
from verax.compiler.describe.pass_example import two_integer_convolutions, two_products
from verax.compiler.kernels.target import Target
from verax.compiler.pipeline.levels import run_passes
from verax.compiler.place.calls import kernel_calls
from verax.compiler.place.program import LoweredProgram, lower
from verax.compiler.plan.steps import STEPS, Decisions

TARGETS = {"store_in_bytes": "avx512vnni", "store_in_bfloat16": "avx512bf16"}
STORED = {"store_in_bytes": "uint8 by int8", "store_in_bfloat16": "bfloat16 by bfloat16"}
"""What the kernels of such values are called in plans."""


GRAPHS = {"store_in_bytes": two_integer_convolutions, "store_in_bfloat16": two_products}


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
