"""The verdict's JSON: complete, strict, versioned, and equal when read back."""

import json
import math

import numpy as np
import pytest

from verax.base.errors import UsageError
from verax.records.environment import array_hash, environment
from verax.records.verdict import (
    SCHEMA,
    Blame,
    Comparison,
    ErrorMetrics,
    Finding,
    InputRecord,
    Kind,
    Power,
    Verdict,
    WorstElement,
)


def example() -> Verdict:
    plain = ErrorMetrics(math.inf, 0.5, 0.75, -math.inf, {"rtol 1": True, "rtol 2": False}, 3)
    found = Finding(
        value="y",
        node="conv",
        operator="Conv",
        kind=Kind.mistake,
        reason="ü is far off",
        test="sigma",
        elements=7,
        statistic=12.5,
        group="row 3",
        bound_ratio=None,
        sigma=0.25,
        error=2.0,
        plain=plain,
        worst=(WorstElement((0, 1), 1.5, -math.inf),),
        region=("a", "conv"),
    )
    return Verdict(
        kind=Kind.mistake,
        reasons=("because",),
        subject={"name": "s"},
        method="outputs only",
        outputs=(found,),
        nodes=(found,),
        blame=(Blame("conv", "Conv", {"pads": "((1, 1),)"}, "y", Kind.mistake, "r", ("a",)),),
        power=(Power("h", "conv", math.inf),),
        comparisons=(Comparison("y", "a", "b", 1.0, 2.0, "a", False),),
        inputs=(InputRecord("x", "float32[2]", "00", "given"),),
        environment=environment(),
        seed=3,
        unchecked={"n": "why"},
        notes=("note",),
    )


def test_a_verdict_reads_back_equal() -> None:
    assert Verdict.from_json(example().to_json()) == example()


def test_the_text_is_strict_json_with_a_schema() -> None:
    def refuse(text: str) -> None:
        raise AssertionError(f"{text} is not JSON")

    data = json.loads(example().to_json(), parse_constant=refuse)
    assert data["schema"] == SCHEMA
    assert data["outputs"][0]["plain"]["max_abs"] == "inf"


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema": "verax.verdict/0"}', json.dumps({"schema": SCHEMA})]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Verdict.from_json(text)


def test_exit_codes() -> None:
    codes = {k: Verdict(k, (), {}, "", (), (), ()).exit_code for k in Kind}
    assert codes == {
        Kind.identical: 0,
        Kind.rounding: 0,
        Kind.precision: 0,
        Kind.precision_lost: 1,
        Kind.mistake: 1,
        Kind.undecided: 3,
    }


def test_hashes_tell_shapes_and_types_apart() -> None:
    arrays = [
        np.zeros((2, 3), np.float32),
        np.zeros((3, 2), np.float32),
        np.zeros((2, 3), np.int32),
    ]
    assert len({array_hash(a) for a in arrays}) == len(arrays)
    assert array_hash(arrays[0]) == array_hash(arrays[0][:, ::1].copy())
