"""A folder of images and a replay, as a reader sees them."""

import io

from rich.console import Console, RenderableType

from verax.records.agreement import Agreement, Disagreement
from verax.records.verdict import Kind, Verdict
from verax.report import render_agreement, render_replay


def agreement(kind: Kind, count: int) -> Agreement:
    verdict = Verdict(kind, ("why",), {"name": "subject"}, "outputs only", (), (), ())
    differing = tuple(Disagreement(f"{i}.png", 3, 5, 1e-6, 1e-7, i > 0) for i in range(count))
    return Agreement(
        kind, ("some [differ]",), {"name": "subject"}, "scores", 200, differing, "0.png", verdict,
        {"a.png": "damaged", "b.png": "damaged"}, steps=("layout NCHW",),
    )  # fmt: skip


def text(shown: RenderableType) -> str:
    console = Console(width=150, record=True, file=io.StringIO())
    console.print(shown)
    return console.export_text()


def test_counts_near_ties_and_unread_images_are_shown() -> None:
    shown = text(render_agreement(agreement(Kind.rounding, 3)))
    assert "197 of 200 images" in shown and "some [differ]" in shown
    assert "1e-06" in shown and "1e-07" in shown
    assert "a.png (damaged) and 1 more" in shown and "layout NCHW" in shown


def test_long_lists_are_cut_unless_asked_for() -> None:
    record = agreement(Kind.undecided, 12)
    assert "10 of 12" in text(render_agreement(record))
    assert "11.png" not in text(render_agreement(record))
    assert "11.png" in text(render_agreement(record, verbose=True))


def test_a_mistake_shows_the_verdict_on_the_worst_image() -> None:
    assert "- why" in text(render_agreement(agreement(Kind.mistake, 1)))
    assert "- why" not in text(render_agreement(agreement(Kind.rounding, 1)))


def test_a_replay_says_whether_it_is_the_same() -> None:
    assert "every figure the same" in text(render_replay(True, (), ()))
    assert "the same answer; other nodes" in text(render_replay(True, ("other nodes",), ()))
    shown = text(render_replay(False, ("the answer was a, is b",), ("numpy was 1, is 2",)))
    assert "NOT the same answer: the answer was a, is b" in shown
    assert "since then: numpy was 1, is 2" in shown
