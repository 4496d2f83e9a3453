"""What a newcomer reads: the kind in words, the guilty node, the numbers; no markup accidents."""

import dataclasses
import io
import math

import pytest
from rich.console import Console

from verax.records.verdict import (
    Blame,
    Comparison,
    Finding,
    Input,
    Kind,
    Place,
    Plain,
    Power,
    Verdict,
)
from verax.report import render_verdict

PLAIN = Plain(0.25, 0.5, 0.75, 12.0, {"rtol 1e-04": False, "rtol 1e-02": True}, 3)
FOUND = Finding(
    "out[0]", "conv[3]", "Conv", Kind.mistake, "far off", "hard bound", 7, 12.5, "row [3]", 3.5,
    0.25, 2.0, PLAIN, (Place((0, 1), 1.5, 2.5),), (),
)  # fmt: skip


def verdict(kind: Kind, **fields: object) -> Verdict:
    found = dataclasses.replace(FOUND, kind=kind)
    blame = Blame("conv[3]", "Conv", {"pads": "((1, 1),)"}, "out[0]", kind, "far off")
    base = Verdict(
        kind,
        ("it is [bold] so",),
        {"name": "subject"},
        "every node",
        (found,),
        (found, dataclasses.replace(found, node="other", statistic=0.1)),
        (blame,) if kind is Kind.mistake else (),
        inputs=(Input("x", "float32[2]", "ab" * 32, "given"),),
    )
    return dataclasses.replace(base, **fields)


def text(record: Verdict, verbose: bool = False) -> str:
    console = Console(width=150, record=True, file=io.StringIO())
    console.print(render_verdict(record, verbose=verbose))
    return console.export_text()


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_is_said_in_words(kind: Kind) -> None:
    shown = text(verdict(kind))
    assert kind.value.upper() in shown
    assert "conv[3]" in shown and "out[0]" in shown and "row [3]" in shown


def test_a_mistake_names_the_node_and_what_it_should_compute() -> None:
    shown = text(verdict(Kind.mistake))
    assert "guilty: node conv[3] (Conv)" in shown
    assert "Conv(pads=((1, 1),))" in shown
    assert "[0, 1]: 2.5, should be 1.5" in shown
    assert "would let this pass" in shown


def test_a_region_is_not_blamed_by_its_last_node_alone() -> None:
    blame = dataclasses.replace(verdict(Kind.mistake).blame[0], region=("a", "b", "conv[3]"))
    shown = text(verdict(Kind.mistake, blame=(blame,)))
    assert "one of 3 nodes" in shown and "a, b, conv[3]" in shown
    assert "should compute" not in shown


def test_fixed_tolerances_that_mislead_are_explained() -> None:
    assert "would call this wrong" in text(verdict(Kind.rounding))
    assert "it is [bold] so" in text(verdict(Kind.rounding))


def test_the_rest_of_the_record_is_shown() -> None:
    shown = text(
        verdict(
            Kind.undecided,
            comparisons=(Comparison("out[0]", "a", "b", 1.0, 2.0, "a", False),),
            unchecked={"dead": "why"},
            notes=("watching changes [it]",),
            power=(Power("h", "n", math.inf),),
            environment={"python": "3.11"},
        ),
        verbose=True,
    )
    for part in ("nearer to float64: a", "dead", "watching changes [it]", "python 3.11", "abab"):
        assert part in shown
