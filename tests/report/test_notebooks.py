"""Networks, programs and verdicts as HTML for notebooks: readable, and nothing in it active."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np

import verax
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.ops.pointwise.activation import Relu
from verax.ops.sums.linear import MatMul


def network(name: str, batch: str = "2") -> Graph:
    b = Builder(name)
    x = b.input("x", TensorType.parse(f"float32[{batch}, 3]"))
    w = b.constant(np.random.default_rng(3).standard_normal((3, 5)).astype(np.float32), "w")
    return b.graph([b.add(Relu(), [b.add(MatMul(), [x, w], ["m"])], ["y"])])


class Read(HTMLParser):
    """Tags, and the text between them; every tag must be closed in its turn."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "img":  # which has no end
            self.open.append(tag)
        self.tags.add(tag)
        assert not {k for k, _ in attrs if k.startswith("on") or k == "href"}

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_networks_and_programs() -> None:
    graph = network("<script>alert(1)</script>")
    page = Read(graph._repr_html_())
    assert page.tags == {"details", "summary", "b", "div"}
    assert "<script>alert(1)</script>: 2 nodes" in page.text and "MatMul" in page.text
    exe = verax.compile(graph, opt_level=1)
    assert "compiled at O1" in exe._repr_html_() and str(exe.plan) in Read(exe._repr_html_()).text
    waiting = verax.compile(network("open", "n"))
    assert "shapes are symbolic" in Read(waiting._repr_html_()).text


def test_a_long_network_is_cut() -> None:
    b = Builder("long")
    value = b.input("x", TensorType.parse("float32[2, 3]"))
    for _ in range(500):
        value = b.add(Relu(), [value])
    text = Read(b.graph([value])._repr_html_()).text
    assert re.search(r"\.\.\. and \d+ lines more", text) and text.count("\n") < 450


def test_a_verdict_is_the_section_of_its_report() -> None:
    graph, x = network("small"), np.ones((2, 3), np.float32)
    verdict = verax.check(graph, lambda a: np.maximum(a @ graph.constants["w"], 0) * 1.01, {"x": x})
    page = Read(verdict._repr_html_())
    assert "MISTAKE" in page.text and verdict.blame[0].node in page.text
    assert not page.tags & {"script", "iframe", "object", "embed", "form", "input", "button"}
