"""What one pastes into an issue tracker: the claim, the argument, a script that runs, versions."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from tests.report.page.networks import hostile_texts, judged, residual_network, with_texts
from tests.report.page.test_page import RECORDS, alignment, bisection

import verax
from verax.base.errors import UsageError
from verax.records.verdict import Kind
from verax.report.issue_text import TESTS, code, issue_text, prose, script_lines

MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable("table")
JUDGED = ("verdict", "old verdict", "bisection", "alignment", "agreement")


def test_a_mistake_is_argued() -> None:
    text = issue_text(bisection())
    for words in (
        "## `onnxruntime`: wrong numbers from `Conv` `/stage0/block1/layer2/Conv`",
        "- what gives these numbers: pads swapped",
        "  - the error: only the last column",
        "  - brought by `fold_pads`",
        "| `[1, 5, 6, 8]` | 0.75 | 1 | 0.25 |",
        "### Why rounding cannot explain it",
        TESTS["hard bound"],
        "Largest error over the hard bound of its element: 406.",
        "168 of 1,512 elements are beyond",
        "python 'out/case/show.py'",
        "- python: `3.11`",
        "SHA-256 `abababababababab`",
    ):
        assert words in text, words


@pytest.mark.parametrize("test", [*TESTS, "Monte Carlo arithmetic, 4 samples"])
def test_every_deciding_test_has_an_argument(test: str) -> None:
    verdict = judged(residual_network(2), faulty=3)
    nodes = [dataclasses.replace(f, test=test) for f in verdict.nodes]
    text = issue_text(dataclasses.replace(verdict, nodes=tuple(nodes)))
    argument = TESTS.get(test, "was sampled around the same inputs")
    assert argument in text and sum(a in text for a in TESTS.values()) == (test in TESTS)


def test_what_is_right_is_not_called_wrong() -> None:
    text = issue_text(judged(residual_network(2)))
    assert "`onnxruntime`: rounding" in text and "### How it was judged" in text
    assert "wrong" not in text.replace("nothing is wrong", "")
    undecided = dataclasses.replace(judged(residual_network(2)), kind=Kind.undecided)
    assert "undecided" in issue_text(undecided)


def test_two_networks() -> None:
    text = issue_text(alignment())
    assert "`a.onnx` and `b.tflite`: different" in text and "pads differ" in text
    assert 'verax.align("a.onnx", "b.tflite")' in text


def test_times_claim_nothing() -> None:
    with pytest.raises(UsageError, match="claims nothing"):
        issue_text(RECORDS["benchmark"]())


@pytest.mark.parametrize("name", JUDGED)
def test_names_of_strangers_are_code_and_nothing_else(name: str) -> None:
    """Rendered as GitHub does, hostile texts give the tags that harmless ones give, no link and no
    mention."""
    record = RECORDS[name]()
    harmless = (f"text number {i}" for i in range(10**6))
    texts = (f"{t}`` [a](http://x) @someone #1 ![i](j) |**b**" for t in hostile_texts())

    def tags(text: str) -> list[str]:
        return re.findall(r"<(\w+)", MARKDOWN.render(text))

    assert set(tags(issue_text(with_texts(record, texts)))) <= {
        *tags(issue_text(with_texts(record, harmless))),
        *("pre", "code"),
    } - {"a", "img", "script"}


@pytest.mark.parametrize("name", ["a`b", "``", "`", "", "a\nb", "x|y", "\u202ea"])
def test_code_holds_any_name(name: str) -> None:
    html = MARKDOWN.render(f"so {code(name)} it is")
    assert html.count("<code>") == 1 and html.startswith("<p>so <code>")
    assert html.endswith("</code> it is</p>\n") and "\n" not in code(name)


def test_prose_is_no_markup() -> None:
    assert MARKDOWN.render(prose("a *b* _c_ <d> [e](f) `g`")) == (
        "<p>a *b* _c_ &lt;d&gt; [e](f) `g`</p>\n"
    )


def test_the_script_runs_as_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
    verdict = verax.check(verax.load(model), "verax:O1", seed=3)
    options = {"model": str(model), "subject": "verax:O1"}
    verdict = dataclasses.replace(verdict, replay={"options": json.dumps(options)})
    lines = script_lines(verdict)
    assert len([x for x in lines if x]) <= 10
    monkeypatch.chdir(model.parent)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec("\n".join(lines), {})
    assert out.getvalue().startswith("rounding") and "expected" in out.getvalue()
    assert str(model.parent) not in issue_text(verdict)  # paths of a machine are nobody's business
