"""Two networks against each other, as a reader sees it: the answer first, both sides beside it."""

import io

from rich.console import Console

from verax.records.alignment import (
    AlignedNode,
    Alignment,
    AttributeDifference,
    Divergence,
    InputMatch,
    Match,
    OutputMatch,
    Relation,
)
from verax.report import render_alignment


def layer(node: str, pads: str) -> AlignedNode:
    return AlignedNode(node, "Conv", {"pads": pads, "groups": "1"}, f"{node}[0]", "float32[1, 3]")


def alignment(relation: Relation, places: int = 1) -> Alignment:
    place = Divergence(
        (layer("conv", "(0, 1)"),),
        (layer("conv2d", "(1, 0)"),),
        "pads is [0, 1] here",
        (AttributeDifference("Conv", "pads", "(0, 1)", "(1, 0)"),),
        proved=True,
        bridged=True,
    )
    return Alignment(
        relation,
        ("they part at conv",),
        "a.onnx",
        "b.tflite",
        (InputMatch("x", "image", words="NCHW to NHWC"),),
        (OutputMatch("y", "out", "axis 1 in the order [1, 0]"),),
        (Match("h", "k", "Relu", "Relu", "as it is", exact=False),),
        divergences=(place,) * places,
        notes=("a note",),
        drawn={"x": "given"},
    )


def text(record: Alignment, verbose: bool = False) -> str:
    console = Console(width=150, record=True, file=io.StringIO())
    console.print(render_alignment(record, verbose=verbose))
    return console.export_text()


def test_the_answer_and_both_sides_are_shown() -> None:
    shown = text(alignment(Relation.different, places=2))
    assert "DIFFERENT" in shown and "they part at conv" in shown
    assert "conv (Conv) -> conv[0]: float32[1, 3]" in shown
    assert "pads = (0, 1)" in shown and "pads = (1, 0)" in shown and "groups" not in shown
    assert "this alone explains the numbers" in shown
    assert "also: conv / conv2d: pads is [0, 1] here" in shown
    assert "input 'image' of the second = 'x' of the first, NCHW to NHWC" in shown
    assert "axis 1 in the order [1, 0]" in shown and "a note" in shown


def test_the_same_function_is_said_in_one_word_and_pairs_on_request() -> None:
    shown = text(alignment(Relation.same, places=0))
    assert "SAME" in shown and "h (Relu)" not in shown
    shown = text(alignment(Relation.same, places=0), verbose=True)
    assert "h (Relu)" in shown and "up to rounded weights" in shown


def test_no_difference_is_another_word_and_shows_where_operators_are_not_the_same() -> None:
    record = alignment(Relation.no_difference)
    shown = text(record)
    assert "NO DIFFERENCE" in shown and "SAME" not in shown and record.exit_code == 3
    assert "Where their operators are not the same" in shown
    assert Alignment.from_json(record.to_json()) == record
