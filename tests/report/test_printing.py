"""What Python prints of the interface's objects: `repr` one line, `str` a bounded report, no
addresses."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.report.test_verdict_on_terminal import FOUND, verdict

import verax
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.ops.pointwise.activation import Relu
from verax.ops.sums.linear import MatMul
from verax.records.benchmark import Benchmark, Timing
from verax.records.bisection import Bisection
from verax.records.verdict import InputRecord, Kind
from verax.runners.command import CommandRunner
from verax.runners.subjects.factory import runner_of


def network() -> Graph:
    b = Builder("small")
    x = b.input("x", TensorType.parse("float32[2, 3]"))
    w = b.constant(np.random.default_rng(3).standard_normal((3, 5)).astype(np.float32), "w")
    return b.graph([b.add(Relu(), [b.add(MatMul(), [x, w], ["m"], "product")], ["y"], "relu")])


X = np.random.default_rng(7).standard_normal((2, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One of each kind that the interface gives."""
    graph = network()
    exe = verax.compile(graph, opt_level=1, threads=1, cache=False)
    path = tmp_path_factory.mktemp("printing") / "small.vx"
    exe.save(path)
    exchanged = verax.substitute(graph, {"relu": lambda a: np.maximum(a, 0)})
    exchanged.run({"x": X})
    return {
        "graph": graph,
        "compiled": exe,
        "saved": verax.load(path),
        "program": exe.specialized.program,
        "specialised": exe.specialized,
        "plan": exe.plan,
        "recipe": exe.recipe,
        "trace": exe.trace,
        "profile": exe.profile(X, 1),
        "verdict": verax.check(graph, "verax:O0", {"x": X}),
        "bisection": verax.bisect(graph, "verax:O1", {"x": X}),
        "alignment": verax.align(graph, graph, {"x": X}),
        "exchanged": exchanged,
        "certificate": verax.compile(graph, certify=True, samples={"x": X}).certificate,
        "benchmark": Benchmark("small", {"x": "float32[2, 3]"}, (Timing("verax", 1),)),
        "runner": runner_of("verax:O1"),
        "function": runner_of(lambda a: a),
        "arrays": runner_of({"y": X}),
        "command": CommandRunner("judge me"),
    }


NAMES = (
    *("graph", "compiled", "saved", "program", "specialised", "plan", "recipe", "trace", "profile"),
    *("verdict", "bisection", "alignment", "exchanged", "certificate", "benchmark"),
    *("runner", "function", "arrays", "command"),
)


@pytest.mark.parametrize("name", NAMES)
def test_repr_is_one_short_line(objects: dict[str, Any], name: str) -> None:
    text = repr(objects[name])
    assert text.startswith(f"<{type(objects[name]).__name__}: ") and text.endswith(">")
    assert "\n" not in text and len(text) <= 210
    for shown in (text, str(objects[name])):
        assert " at 0x" not in shown and "array(" not in shown


def test_str_of_a_record_is_what_the_terminal_shows(objects: dict[str, Any]) -> None:
    assert str(objects["verdict"]).startswith((" ROUNDING ", " IDENTICAL "))
    assert "Most suspicious of 2 judged values" in str(objects["verdict"])
    assert "searched: " in str(objects["bisection"])
    assert "The two networks compute the same function." in str(objects["alignment"])
    assert "milliseconds" in str(objects["benchmark"])
    assert str(objects["plan"]) in str(objects["compiled"])
    assert "product" in str(objects["saved"])


def test_a_verdict_in_one_line_names_the_guilty() -> None:
    assert repr(verdict(Kind.mistake)) == "<Verdict: mistake, subject; by conv[3] (Conv)>"
    assert repr(verdict(Kind.rounding)) == "<Verdict: rounding, subject; 2 values judged>"
    assert repr(Bisection(verdict(Kind.rounding), "all")).startswith("<Bisection: rounding, subj")


def test_the_report_of_a_large_record_is_bounded() -> None:
    many = 3000
    found = dataclasses.replace(FOUND, kind=Kind.mistake)
    outputs = tuple(dataclasses.replace(found, value=f"out {i}") for i in range(many))
    blame = verdict(Kind.mistake).blame * many
    inputs = tuple(InputRecord(f"past.{i}", "float32[2]", "ab" * 32, "given") for i in range(many))
    notes = tuple(f"note {i}" for i in range(many))
    record = verdict(Kind.mistake, outputs=outputs, blame=blame, inputs=inputs, notes=notes)
    text = str(record)
    assert len(text) < 20_000 and len(text.splitlines()) < 300
    for part in ("guilty as well: 2992 more", "and 2980 outputs more", "and 2980 more"):
        assert part in text
    assert len(repr(record)) <= 210


def test_the_outputs_shown_of_many_are_the_worst() -> None:
    found = dataclasses.replace(FOUND, kind=Kind.rounding)
    outputs = [dataclasses.replace(found, value=f"out {i}") for i in range(60)]
    outputs[47] = dataclasses.replace(found, value="the wrong one", kind=Kind.mistake)
    assert "the wrong one" in str(verdict(Kind.mistake, outputs=tuple(outputs)))


def test_a_sentence_and_the_table_have_one_figure_for_one_node() -> None:
    """`statistic` is the error over sigma; a mistake by the hard bound is told by that bound."""
    found = dataclasses.replace(
        FOUND, test="hard bound", statistic=5.09e6, bound_ratio=309_123.0, reason="309,000 times"
    )
    text = str(verdict(Kind.mistake, nodes=(found, dataclasses.replace(found, node="b"))))
    assert "309,000" in text and "5.09e+06" not in text and "over a million" not in text
    by_sigma = dataclasses.replace(found, test="sigma", statistic=1.14e43)
    text = str(verdict(Kind.mistake, nodes=(by_sigma, dataclasses.replace(by_sigma, node="b"))))
    assert "over a million" in text and "e+43" not in text


def test_types_print_as_they_are_written(tmp_path: Path) -> None:
    assert repr({"x": TensorType.parse("float32[n, 3]")}) == "{'x': float32[n, 3]}"
