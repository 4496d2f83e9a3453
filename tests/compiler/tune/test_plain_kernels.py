"""Kernels travel as plain data and come back equal; objects made elsewhere are the ones linked."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.compiler.tune.test_tuning_lookup import OTHER, SPEC, TARGET

from verax.base.errors import InputError
from verax.compiler.kernels.canonical import digest
from verax.compiler.place.binary import kernel_objects
from verax.compiler.place.binary.assembly import COMPILED_KERNELS
from verax.compiler.place.binary.kernel_program import calls_alone
from verax.compiler.tune.kernel_bench import Workload
from verax.compiler.tune.plain import of_plain, to_plain, workload_of_plain, workload_to_plain
from verax.numerics.expr import trace


def test_a_kernel_comes_back_equal_through_json() -> None:
    assert of_plain(json.loads(json.dumps(to_plain(SPEC)))) == SPEC
    assert digest(of_plain(json.loads(json.dumps(to_plain(SPEC))))) == digest(SPEC)
    assert of_plain(json.loads(json.dumps(to_plain(OTHER)))) == OTHER
    workload = Workload(SPEC, OTHER, (3, 5), (0, 7), True, 11)
    assert workload_of_plain(json.loads(json.dumps(workload_to_plain(workload)))) == workload


@pytest.mark.parametrize("value", [-0.0, float("inf"), float("-inf"), float("nan"), 0.1])
def test_constants_of_expressions_keep_their_bits(value: float) -> None:
    expr = trace(lambda m, a: m.max(a, m.const(value, "float32")), ["float32"])
    assert of_plain(json.loads(json.dumps(to_plain(expr)))) is expr


@pytest.mark.parametrize(
    "plain",
    [
        {"class": "os:system"},
        {"class": "registry:emitter", "spec": 1},
        {"class": "convolution.spec:ConvSpec"},
        {"class": "convolution.schedule:ConvSchedule", "rooms": 3},
        {"expression": []},
        {"expression": [["apply", "float32", "add", 0, 1]]},
        {"class": 3},
    ],
)
def test_nothing_else_can_be_named(plain: Any) -> None:
    with pytest.raises(InputError, match="no kernel"):
        of_plain(plain)


def test_an_object_made_for_another_target_is_the_one_that_is_linked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """avx2's object is made whatever this machine is, and nothing is made where it is taken."""
    COMPILED_KERNELS.forget()
    made = kernel_objects.kernel_object(SPEC, OTHER, TARGET)
    COMPILED_KERNELS.forget()
    assert not kernel_objects.is_made(SPEC, OTHER, TARGET)
    kernel_objects.take_object(SPEC, OTHER, TARGET, made)

    def never(*arguments: Any) -> Any:
        raise AssertionError("it was made again")

    assert kernel_objects.is_made(SPEC, OTHER, TARGET)
    monkeypatch.setattr("verax.compiler.place.binary.assembly.emit", never)
    sizes = [1 << 16] * 5
    calls_alone(SPEC, OTHER, [[(i, 0) for i in range(5)]], sizes, TARGET, 1)
    COMPILED_KERNELS.forget()
    with pytest.raises(AssertionError, match="made again"):
        calls_alone(SPEC, OTHER, [[(i, 0) for i in range(5)]], sizes, TARGET, 1)
