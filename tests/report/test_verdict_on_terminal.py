"""What a newcomer reads: the kind in words, the guilty node, the numbers; no markup accidents."""

import dataclasses
import io
import math

import pytest
from rich.console import Console

from verax.records.verdict import (
    Blame,
    Comparison,
    ErrorMetrics,
    Explanation,
    Finding,
    InputRecord,
    Kind,
    Power,
    Precision,
    Repeat,
    Verdict,
    WorstElement,
)
from verax.report import render_verdict

PLAIN = ErrorMetrics(0.25, 0.5, 0.75, 12.0, {"rtol 1e-04": False, "rtol 1e-02": True}, 3)
FOUND = Finding(
    "out[0]", "conv[3]", "Conv", Kind.mistake, "far off", "hard bound", 7, 12.5, "row [3]", 3.5,
    0.25, 2.0, PLAIN, (WorstElement((0, 1), 1.5, 2.5),), (),
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
        inputs=(InputRecord("x", "float32[2]", "ab" * 32, "given"),),
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


def explained(*explanations: Explanation, **fields: object) -> str:
    blame = verdict(Kind.mistake).blame[0]
    blame = dataclasses.replace(blame, explanations=explanations, **fields)
    return text(verdict(Kind.mistake, blame=(blame,)))


def test_explanations_are_listed_best_first_with_what_told_them_apart() -> None:
    swapped = Explanation("pads swapped", "the pads are at the other end", {"pads": "((1, 0),)"})
    lower = Explanation("SAME lower", "SAME is taken as lower")
    shown = explained(swapped, lower, structure=("only the last row",))
    assert "cause: pads swapped: the pads are at the other end [pads=((1, 0),)]" in shown
    assert shown.index("cause: pads swapped") < shown.index("or: SAME lower")
    assert "cannot be told apart on this input" in shown
    assert "the error: only the last row" in shown
    refuted = dataclasses.replace(lower, refuted=True)
    shown = explained(swapped, refuted, told_apart="an input with odd sizes", guilty_pass="fold 3")
    assert "an input with odd sizes" in shown and "cannot be told" not in shown
    assert "refuted by a further one: SAME lower" in shown
    assert "brought by: fold 3" in shown


def test_having_no_explanation_is_said_only_after_looking_for_one() -> None:
    assert "none of the known mistakes" not in explained()
    assert "none of the known mistakes" in explained(structure=("everywhere",))


def test_causes_outside_of_the_network_come_first() -> None:
    cause = Explanation("BGR", "the image's colours came in the other order")
    shown = text(verdict(Kind.mistake, causes=(cause,)))
    assert "outside of the network: BGR: the image's colours" in shown
    assert shown.index("outside of the network") < shown.index("guilty")


def test_arithmetics_are_named_once_with_their_roundoff() -> None:
    found = [Precision(f"v{i}", f"n{i}", "bf16 inputs", 2.0**-9, True) for i in range(8)]
    shown = text(
        verdict(Kind.precision, precisions=(*found, Precision("w", "m", "fp16", 0, False)))
    )
    assert "bf16 inputs in 8 values (n0, n1, n2, n3, n4, n5 and 2 more)" in shown
    assert "about 2^-9.0; confirmed by recomputing" in shown
    assert "fp16 in 1 value (m)" in shown and "judged by its size" in shown


def test_a_subject_that_does_not_repeat_itself_is_told() -> None:
    same = Repeat(2, True, "NaN")
    assert "asked" not in text(verdict(Kind.rounding, repeat=same))
    assert "filled with NaN in between: the same bits" in text(
        verdict(Kind.rounding, repeat=same), verbose=True
    )
    other = Repeat(2, False, "NaN", {"out[0]": 0.5}, "uninitialized memory")
    shown = text(verdict(Kind.undecided, repeat=other))
    assert "does not repeat itself: asked 2 times" in shown
    assert "out[0] by up to 0.5; cause: uninitialized memory" in shown


def outputs(kind: Kind, **figures: object) -> str:
    plain = dataclasses.replace(PLAIN, **figures)
    found = dataclasses.replace(FOUND, kind=kind, elements=6272, plain=plain)
    return " ".join(text(verdict(kind, outputs=(found,))).split())


def test_large_relative_errors_of_small_numbers_are_explained_as_cancellation() -> None:
    figures = {"beyond": 10, "beyond_rtol": 1e-4, "beyond_abs": 1.5e-5, "beyond_size": 0.004}
    shown = outputs(Kind.rounding, **figures)
    assert "10 of 6,272 elements differ by more than 0.0001 relative" in shown
    assert "at most 0.4 % of the typical one: sums in which large terms cancel" in shown
    assert "cancel" not in outputs(Kind.mistake, **figures)
    assert "cancel" not in outputs(Kind.rounding, **{**figures, "beyond_size": 1.5})


def test_a_cosine_that_hides_a_mistake_is_called_out() -> None:
    assert "looks perfect" in outputs(Kind.mistake, cosine=0.99999)
    assert "looks perfect" not in outputs(Kind.mistake, cosine=0.97)
    assert "looks perfect" not in outputs(Kind.rounding, cosine=0.99999)
