"""A report is one file: it needs no other, says what the record says, and runs nothing of it."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests.json_mutants import mutants
from tests.records.test_verdict_record import example
from tests.report.page.networks import hostile_texts, judged, residual_network, with_texts

from verax.base.errors import UsageError, VeraxError
from verax.records.agreement import Agreement, Disagreement
from verax.records.alignment import AlignedNode, Alignment, Divergence, Match, OutputMatch, Relation
from verax.records.benchmark import Benchmark, Timing
from verax.records.bisection import Bisection, Optimizations, RecordedCase, Step, Tried
from verax.records.evaluation import (
    Accuracy,
    ComparedImplementation,
    EvaluationRecord,
    Flip,
    Share,
)
from verax.records.gate import (
    GateChange,
    GateRecord,
    ModelChange,
    OutputDifference,
    RunOutcome,
    SubjectResult,
)
from verax.records.hunt import HuntResult, StoredFinding
from verax.records.network import ChannelErrors
from verax.records.tuning import TunedKernel, TuningRecord
from verax.records.verdict import Kind, Verdict
from verax.report import write_report
from verax.report.page.build import fragment, report_html
from verax.report.page.pictures import MAX_PIXELS, bars_of, edge, png_of, range_of

OWN_BYTES = 400_000
"""What a page may weigh beside the data of its record."""
VOID = {"meta", "link", "img", "input", "rect", "line", "path"}


def verdict() -> Verdict:
    return judged(residual_network(4), faulty=6)


def bisection() -> Bisection:
    step = Step("fold_pads: 'a'", "fold_pads", "O2", 3, ("n",), "before <b>", "after", True)
    found = Optimizations(
        "it appears with fold_pads",
        step.name,
        5,
        (Tried("O0", Kind.rounding, True),),
        steps=(step,),
    )
    node = verdict().blame[0].node
    case = RecordedCase(
        "out/case", (node,), ("case.onnx", "show.py"), True, "one operator on one input"
    )
    return Bisection(verdict(), "by values", optimizations=found, cases=(case,))


def alignment() -> Alignment:
    first, second = residual_network(2), residual_network(3)
    node = first.nodes[1]
    aligned = AlignedNode(node.name, "Conv", node.attributes, node.outputs[0], "float32[2]")
    return Alignment(
        Relation.different, ("they part",), "a.onnx", "b.tflite", (),
        (OutputMatch("y", "z", "as it is", max_abs=0.5, reason="other pads"),),
        (Match(node.outputs[0], second.nodes[0].outputs[0], "Conv", "Conv", "as it is", True),),
        divergences=(Divergence((aligned,), (), "pads differ"),),
        networks=(first, second),
    )  # fmt: skip


def evaluation() -> EvaluationRecord:
    share = Share(41, 50, 0.69, 0.90)
    accuracy = Accuracy(share, Share(48, 50, 0.86, 0.99), 5)
    flip = Flip("7.png", 3, 3, 8, None, 0.25, 0.01, False, "far")
    other = ComparedImplementation(
        {"name": "openvino"}, accuracy, 49, (flip,), (), 0.5, "7.png", 1, 0, 1.0
    )
    return EvaluationRecord({"name": "verax"}, "scores", 50, accuracy, other, ("one flips",))


def gate() -> GateRecord:
    wrong = verdict()
    old = SubjectResult(RunOutcome.ran, {"name": "s", "version": "1.0"}, kind=Kind.rounding)
    new = SubjectResult(
        RunOutcome.ran,
        {"name": "s", "version": "2.0"},
        "",
        Kind.mistake,
        wrong.reasons,
        wrong.blame,
        verdict=wrong,
    )
    crash = SubjectResult(RunOutcome.crashed, {"name": "s"}, "signal SIGSEGV")
    outputs = (OutputDifference("y", False, 7, 12, 0.5, "", 1e-7, 0.25, "s"),)
    return GateRecord(
        "s@1.0", "s@2.0",
        (ModelChange("net.onnx", GateChange.matters, ("the new subject has a mistake",), old, new,
                     outputs),
         ModelChange("other.onnx", GateChange.matters, ("it crashed",), old, crash),
         ModelChange("third.onnx", GateChange.unchanged, ("the same bits",), old, old)),
    )  # fmt: skip


def hunted() -> HuntResult:
    def finding(key: str, confidence: str) -> StoredFinding:
        return StoredFinding(
            key, "mistake", "LRN", "alpha <ignored>", "LRN > Relu", "message", 5, 17, 3, confidence,
            "two agree", "out/hunt/findings/x",
        )  # fmt: skip

    findings = finding("aa11", "low"), finding("bb22", "high")
    texts = {"bb22": "# LRN computes <something> else"}
    counts = {"right": 40, "finding": 6}
    return HuntResult("s:level", 5, counts, findings, 46, 9.5, False, texts, {"python": "3"})


RECORDS: dict[str, Callable[[], Any]] = {
    "verdict": verdict,
    "old verdict": lambda: dataclasses.replace(example()),
    "bisection": bisection,
    "alignment": alignment,
    "agreement": lambda: Agreement(
        Kind.mistake, ("one differs",), {"name": "s"}, "y", 12,
        (Disagreement("a.png", 3, 4, 0.5, 0.01, False),), "a.png", verdict(),
    ),
    "gate": gate,
    "hunt": hunted,
    "evaluation": evaluation,
    "benchmark": lambda: Benchmark(
        "net.onnx", {"x": "float32[2]"},
        (Timing("verax", 1, "0.1", (1.0, 1.5, 1.25)),
         Timing("onnxruntime", 1, "1.32", (2.0, 2.5, 2.25)),
         Timing("tvm", 1, failure="not installed")),
    ),
    "tuning": lambda: TuningRecord(
        "net.onnx", 3, 1,
        (TunedKernel("k", "Conv 3x3", 4, 0.5, 90.0, 70.0, "by rule", "tiles", "tuned"),),
        (2.0, 2.5), (1.5, 1.75), 0.72, 0.01, True, True, 9.0, 10.0, "history.jsonl",
    ),
}  # fmt: skip


class Page(HTMLParser):
    """Tags with their attributes, texts, and the contents of scripts and styles. Every tag is
    closed in its turn."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.names: set[str] = set()
        self.values: list[str] = []
        self.raw: list[tuple[str, str]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.names |= {name for name, _ in attrs}
        self.values += [value or "" for name, value in attrs if name in ("src", "href", "action")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("script", "style"):
            self.raw.append((self.open[-1], data))
        else:
            self.text += data


@pytest.mark.parametrize("name", RECORDS)
def test_a_page_is_whole_and_loads_nothing(name: str, tmp_path: Path) -> None:
    file = write_report(RECORDS[name](), tmp_path / "a.html")
    text = file.read_text()
    page = Page(text)
    assert page.tags["script"] == 2 and page.tags["style"] == 1 and page.tags["h1"] == 1
    assert all(re.match(r"data:|#", value) for value in page.values)
    assert not {n for n in page.names if n.startswith("on")} and "style" not in page.names
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    data = next(raw for tag, raw in page.raw if raw.startswith("{"))
    assert len(text) - len(data) < OWN_BYTES
    assert json.loads(data)


def test_the_policy_allows_the_pages_own_style_and_script_alone() -> None:
    text = report_html([verdict()])
    page = Page(text)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text).group(1)
    assert policy.startswith("default-src 'none'; ") and "unsafe" not in policy
    style, _, script = (raw for _, raw in page.raw)
    for kind, content in (("style", style), ("script", script)):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "img-src data:; base-uri 'none'; form-action 'none'" in policy


@pytest.mark.parametrize("name", RECORDS)
def test_texts_of_a_record_are_nothing_but_text(name: str) -> None:
    """Each text in the record is replaced by one that tries to be markup: the page has the same
    elements and attributes as with harmless texts."""
    record = RECORDS[name]()
    plain = (f"text number {i}" for i in range(10**6))
    harmless = Page(report_html([with_texts(record, plain)]))
    page = Page(report_html([with_texts(record, hostile_texts())]))
    assert page.tags == harmless.tags
    assert page.names == harmless.names
    assert all(re.match(r"data:|#", value) for value in page.values)
    assert [raw for tag, raw in page.raw if not raw.startswith("{")] == [
        raw for tag, raw in harmless.raw if not raw.startswith("{")
    ]
    data = next(raw for _, raw in page.raw if raw.startswith("{"))
    assert "<" not in data and ">" not in data and json.loads(data)
    assert "alert(" in page.text and "\u202e" not in page.text
    Page(fragment(with_texts(record, hostile_texts())))


def test_what_is_said_of_a_mistake() -> None:
    page = Page(report_html([bisection()]))
    for text in (
        "MISTAKE", "onnxruntime", "/stage0/block1/layer2/Conv", "pads swapped",
        "only the last column", "fold_pads", "out/case", "ab" * 8,
        "drawn with seed 5", "after", "3.11",
    ):  # fmt: skip
        assert text in page.text, text
    data = json.loads(next(raw for _, raw in page.raw if raw.startswith("{")))
    (graph,) = data["graphs"]
    node = graph["nodes"][graph["first"]]
    assert node["name"] == "/stage0/block1/layer2/Conv" and node["kind"] == "mistake"
    assert ["strides", "(1, 3)"] in node["attributes"]
    assert node["findings"][0]["worst"] == [["[1, 5, 6, 8]", "0.75", "1", "0.25"]]
    assert any("out/case" in line for line in node["text"])
    assert len(node["errors"][0]["pictures"]) == 6
    over = sum(bar[2] for bar in node["errors"][0]["bars"])
    assert over and "168 of 1,512" in node["errors"][0]["beyond"]


def test_several_records_and_none() -> None:
    page = Page(report_html([verdict(), evaluation()]))
    assert page.tags["h1"] == 2 and "#record1" in page.values
    with pytest.raises(UsageError, match="no record to report"):
        report_html([])
    with pytest.raises(UsageError, match="a str is no record"):
        report_html(["text"])


def test_a_record_that_contradicts_itself_is_refused_in_words() -> None:
    timing = Timing("a", 1, rounds=(0.0,)), Timing("b", 1, rounds=(1.0,))
    with pytest.raises(UsageError, match="contradicts itself"):
        report_html([Benchmark("m", {}, timing)])


def test_a_notebook_gets_the_same_section_without_anything_active() -> None:
    text = fragment(verdict())
    page = Page(text)
    assert "MISTAKE" in page.text and "pads swapped" in page.text
    assert page.tags["svg"] == 2 and page.tags["img"] == 6
    assert not page.tags.keys() & {"script", "button", "input", "iframe", "link", "meta", "form"}
    assert not {n for n in page.names if n.startswith("on") or n in ("href", "tabindex", "id")} - {
        "id",
        "tabindex",
    }
    assert verdict()._repr_html_().count("<article") == 1


def channel(rows: int, columns: int, pixels: bytes) -> ChannelErrors:
    return ChannelErrors((), 1.0, rows, columns, base64.b64encode(zlib.compress(pixels)).decode())


def test_pixels_that_do_not_fit_are_no_picture() -> None:
    assert png_of(channel(2, 3, bytes(6))).startswith("data:image/png;base64,")
    assert png_of(channel(2, 3, bytes(7))) == "" == png_of(channel(2, 3, bytes(5)))
    assert png_of(channel(0, 3, b"")) == "" == png_of(channel(MAX_PIXELS, 2, bytes(2 * MAX_PIXELS)))
    assert png_of(channel(2, 3, bytes(10**8))) == ""  # 100 MB in 100 kB
    assert png_of(ChannelErrors((), 1.0, 2, 3, "no base64")) == ""


def test_a_picture_has_its_pixels() -> None:
    pillow = pytest.importorskip("PIL.Image")
    import io

    pixels = bytes((0, 1, 127, 128, 200, 255))
    data = png_of(channel(2, 3, pixels)).partition(",")[2]
    image = pillow.open(io.BytesIO(base64.b64decode(data)))
    assert image.size == (3, 2) and image.tobytes() == pixels
    colors = [image.convert("RGB").getpixel((c, r)) for r in range(2) for c in range(3)]
    assert len(set(colors)) == 6
    assert colors[2][2] > colors[2][0] and colors[3][0] > colors[3][2]  # blue below, warm above


def test_bars_say_what_they_count() -> None:
    bars = bars_of([3, *[0] * 39, 1, 2, *[0] * 21, 5])
    assert [(b.column, b.is_beyond) for b in bars] == [
        (0, False),
        (40, False),
        (41, True),
        (63, True),
    ]
    assert edge(41) == 1.0 and edge(42) == 1.5 and edge(40) == 0.75 and edge(43) == 2.0
    assert range_of(41) == "from 1 to 1.5 of allowed"


CONTRAST = 4.5
"""What WCAG 2 AA wants of text (1.4.3)."""


def luminance(color: str) -> float:
    """Relative luminance of #rrggbb, by WCAG 2."""
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear))


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_stands_out_from_its_ground(scheme: int) -> None:
    style = next(raw for tag, raw in Page(report_html([verdict()])).raw if tag == "style")
    part = style.split("@media (prefers-color-scheme:dark)")[scheme].partition("@media print")[0]
    colors = {k: v.replace("#fff", "#ffffff") if len(v) == 4 else v
              for k, v in re.findall(r"--([\w-]+):(#[0-9a-f]+)", part)}  # fmt: skip
    kinds = [k.removesuffix("-soft") for k in colors if k.endswith("-soft")]
    assert len(kinds) == 7
    text = [(k, f"{k}-soft") for k in kinds] + [("quiet", f"{k}-soft") for k in kinds]
    text += [(ink, ground) for ink in ("ink", "quiet", "accent") for ground in ("card", "ground")]
    for ink, ground in text:
        low, high = sorted((luminance(colors[ink]), luminance(colors[ground])))
        assert (high + 0.05) / (low + 0.05) >= CONTRAST, (ink, ground)


@pytest.mark.parametrize("name", [n for n in RECORDS if n != "tuning"])
def test_notebooks_show_every_record(name: str) -> None:
    page = Page(RECORDS[name]()._repr_html_())
    assert page.tags["article"] == 1 and "script" not in page.tags


@pytest.mark.parametrize("name", ["bisection", "alignment", "evaluation", "benchmark", "tuning"])
def test_mutants_of_records_are_shown_or_refused_in_words(name: str) -> None:
    record = RECORDS[name]()
    outcomes: Counter[str] = Counter()
    for text in mutants(record.to_json(), 17, 60):
        try:
            page = report_html([type(record).from_json(text)])
            outcomes["shown" if page.endswith("</html>") else "cut"] += 1
        except VeraxError:
            outcomes["refused"] += 1
    assert outcomes.keys() == {"shown", "refused"}, outcomes
