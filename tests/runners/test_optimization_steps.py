"""Subjects name the steps at which their optimization can stop, and a mistake is pinned to one."""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tests.faults.planted import MISTAKES, Planted, small_network

import verax
from verax.base.errors import UnsupportedError
from verax.base.option_groups.settings import Settings
from verax.export.onnx.writer import to_bytes
from verax.ir.graph import Graph
from verax.judge import protocol
from verax.judge.bisect import bisect
from verax.judge.inputs import draw_inputs
from verax.judge.protocol import Optimizing
from verax.records import bisection
from verax.runners.engines.onnxruntime import OPTIMIZERS
from verax.runners.engines.openvino import SWITCHES
from verax.runners.litert import LiteRtRunner
from verax.runners.onnx.onnx_pieces import JOINED
from verax.runners.onnx_runtime import OnnxRuntimeRunner
from verax.runners.openvino import OpenVinoRunner
from verax.runners.own import VeraxRunner
from verax.runners.tvm import TvmRunner

GRAPH = small_network()
INPUTS = draw_inputs(GRAPH, 2)[0]


def names(subject: Optimizing) -> list[str]:
    return [name for name, _ in subject.optimizations(GRAPH, INPUTS)]


def test_runtimes_list_their_levels_up_to_the_one_asked_for() -> None:
    model = to_bytes(GRAPH)
    assert names(TvmRunner(model, opt_level=2)) == ["O0", "O1", "O2"]
    found = names(OnnxRuntimeRunner(model))
    levels = [n for n in found if "(" not in n]
    assert levels == ["disabled", "basic", "extended", "all"]
    for level in levels[1:]:
        assert sum(n.endswith(f" ({level})") for n in found) == len(OPTIMIZERS[level])
    assert names(OnnxRuntimeRunner(model, level="basic")) == found[: found.index("extended")]
    step = OnnxRuntimeRunner(model, threads=3).optimizations(GRAPH, INPUTS)[1][1]
    assert (step.level, step.threads, step.model) == ("basic", 3, model)
    assert step.disable == OPTIMIZERS["basic"]


def test_onnx_runtime_has_one_optimizer_more_at_each_step() -> None:
    whole = OnnxRuntimeRunner(to_bytes(GRAPH))
    steps = whole.optimizations(GRAPH, INPUTS)
    for (_, before), (name, after) in pairwise(steps):
        if "(" in name:
            assert {*before.disable} - {*after.disable} == {name.partition(" ")[0]}
            assert before.level == after.level
    assert steps[-1][1] is whole
    some = whole.with_steps(["Pad_Fusion (basic)", "GeluFusionL2 (extended)"])
    assert some.level == "extended"
    assert not {"Pad_Fusion", "GeluFusionL2"} & {*some.disable}
    assert {"ConvAddFusion", "NchwcTransformer"} <= {*some.disable}
    off = OnnxRuntimeRunner(to_bytes(GRAPH), disable=["Pad_Fusion"])
    assert "Pad_Fusion (basic)" not in names(off)
    assert all("Pad_Fusion" in runner.disable for _, runner in off.optimizations(GRAPH, INPUTS)[1:])


def test_our_compiler_lists_every_rewrite_and_every_decision() -> None:
    own = VeraxRunner(Settings(threads=1))
    found = own.optimizations(GRAPH, INPUTS)
    assert found[0][0] == "O0"
    assert any(n.startswith("fuse_elementwise: ") for n, _ in found)
    assert any(n.startswith("block_layouts: ") for n, _ in found)
    assert found[-1][1] is own
    assert names(VeraxRunner(Settings(opt_level=0))) == ["O0"]


def test_an_honest_runtime_has_no_guilty_level() -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    subject = OnnxRuntimeRunner(to_bytes(GRAPH), threads=1, isolated=False)
    record = bisect(GRAPH, subject).record
    assert record.optimizations is not None
    assert record.optimizations.guilty == ""
    assert "no optimization is guilty" in record.optimizations.words


class Levelled(Planted):
    """Wrong from a level on."""

    def __init__(self, level: int) -> None:
        node, change = MISTAKES["count_include_pad"]
        super().__init__([node] if level >= 2 else [], change)

    def optimizations(
        self, graph: Graph, inputs: Mapping[str, np.ndarray]
    ) -> list[tuple[str, Planted]]:
        levels = ("disabled", "basic", "extended", "all")
        return [(name, Levelled(i)) for i, name in enumerate(levels)]


def test_a_mistake_is_pinned_to_the_level_that_brings_it() -> None:
    record = bisect(GRAPH, Levelled(3)).record
    assert record.optimizations is not None
    assert record.optimizations.guilty == "extended"
    assert [(b.node, b.guilty_pass) for b in record.verdict.blame] == [("avgpool", "extended")]


def test_a_runner_written_for_the_old_protocol_is_searched_and_told_so() -> None:
    class Older(Planted):
        """As `Levelled`, its method under the name that it had before."""

        def __init__(self, level: int) -> None:
            node, change = MISTAKES["count_include_pad"]
            super().__init__([node] if level >= 2 else [], change)

        def optimisations(
            self, graph: Graph, inputs: Mapping[str, np.ndarray]
        ) -> list[tuple[str, Planted]]:
            return [(name, Older(i)) for i, name in enumerate(("disabled", "basic", "extended"))]

    with pytest.warns(UserWarning, match=r"Older.optimisations is called optimizations"):
        record = verax.bisect(GRAPH, Older(2), INPUTS)
    assert record.optimizations is not None
    assert record.optimizations.guilty == "extended"
    with pytest.warns(DeprecationWarning, match=r"use Bisection.optimizations"):
        assert record.optimisations is record.optimizations
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once of a class
        verax.bisect(GRAPH, Older(0), INPUTS)


def test_old_names_of_classes_are_the_new_classes() -> None:
    with pytest.warns(DeprecationWarning, match="use Optimizing"):
        assert protocol.Optimising is Optimizing
    with pytest.warns(DeprecationWarning, match="use Optimizations"):
        assert bisection.Optimisations is bisection.Optimizations
    with pytest.raises(AttributeError, match="no attribute 'Optimism'"):
        _ = protocol.Optimism


def test_a_record_of_before_is_read() -> None:
    record = bisect(GRAPH, Levelled(3)).record
    plain = json.loads(record.to_json())
    plain["schema"] = "verax.bisection/2"
    plain["optimisations"] = plain.pop("optimizations")
    plain["optimisations"]["guilty"] = "recognise_gelu: node 'mul'"
    plain["optimisations"]["tried"][0]["name"] = "canonicalise@conv"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = bisection.Bisection.from_json(json.dumps(plain)).optimizations
    assert found is not None and record.optimizations is not None
    assert found.guilty == "recognize_gelu: node 'mul'"
    assert found.tried[0].name == "canonicalize@conv"
    assert found.words == record.optimizations.words
    plain["optimisations"] = None
    assert bisection.Bisection.from_json(json.dumps(plain)).optimizations is None


class Mended(Levelled):
    """Wrong below a level, right from it on."""

    def __init__(self, level: int) -> None:
        node, change = MISTAKES["count_include_pad"]
        Planted.__init__(self, [node] if level < 2 else [], change)

    def optimizations(
        self, graph: Graph, inputs: Mapping[str, np.ndarray]
    ) -> list[tuple[str, Planted]]:
        return [(name, Mended(i)) for i, name in enumerate(("disabled", "basic", "extended"))]


def test_a_step_that_mends_a_mistake_is_not_called_rounding() -> None:
    record = bisect(GRAPH, Mended(2)).record
    assert record.exit_code == 0
    found = record.optimizations
    assert found is not None
    assert found.guilty == ""
    assert "wrong at 'disabled', and right from 'extended' on" in found.words


def test_slow_steps_are_searched_only_when_something_is_wrong() -> None:
    for level, searched in ((0, False), (3, True)):
        subject = Levelled(level)
        subject.capabilities = dataclasses.replace(subject.capabilities, slow_steps=True)
        record = bisect(GRAPH, subject).record
        assert (record.optimizations is not None) is searched
        assert record.exit_code == (1 if searched else 0)


def test_litert_has_its_kinds_of_kernels_as_steps() -> None:
    file = Path(__file__).parents[2] / "examples" / "digits" / "digits.tflite"
    whole = LiteRtRunner(file, threads=2)
    assert names(whole) == ["reference kernels", "built-in kernels", "XNNPACK delegate"]
    assert names(LiteRtRunner(file, kernels="builtin")) == ["reference kernels", "built-in kernels"]
    steps = whole.optimizations(GRAPH, INPUTS)
    assert [runner.kernels for _, runner in steps] == ["reference", "builtin", "default"]
    assert steps[0][1].threads == 2
    assert steps[-1][1] is whole


def test_openvino_lists_what_a_release_can_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[OpenVinoRunner] = []
    monkeypatch.setattr(OpenVinoRunner, "run", lambda self, *_: ran.append(self) or {})
    whole = OpenVinoRunner(to_bytes(GRAPH))
    found = whole.optimizations(GRAPH, INPUTS)
    (pieces,) = ran
    assert pieces.closed_joints == []
    steps = [n.partition("=")[0] for n, _ in found]
    joints = [n for n in steps if n.startswith(JOINED)]
    assert len(joints) == len(GRAPH.nodes) - 1
    assert steps == ["each node in a model of its own", *joints, *SWITCHES]
    assert found[0][1].switches == {name: off for name, (off, _) in SWITCHES.items()}
    for i, (_, runner) in enumerate(found[1 : len(joints)], 1):
        assert list(runner.closed_joints or ()) == list(range(1, i + 1))
    assert found[len(joints)][1].closed_joints is None
    assert found[-1][1] is whole
    some = whole.with_steps(["SNIPPETS_MODE=ENABLE", joints[2], joints[4]])
    assert "SNIPPETS_MODE" not in some.switches
    assert some.switches["LP_TRANSFORMS_MODE"] is False
    assert some.closed_joints == [3, 5]


def test_openvino_that_refuses_pieces_has_its_switches_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(self: OpenVinoRunner, *_: object) -> None:
        raise UnsupportedError("not by itself")

    monkeypatch.setattr(OpenVinoRunner, "run", refuse)
    model = to_bytes(GRAPH)
    whole = OpenVinoRunner(model)
    found = whole.optimizations(GRAPH, INPUTS)
    assert [n.partition("=")[0] for n, _ in found] == ["what cannot be switched off", *SWITCHES]
    assert found[0][1].switches == {name: off for name, (off, _) in SWITCHES.items()}
    assert all(runner.closed_joints is None for _, runner in found)
    assert whole.with_steps(["SNIPPETS_MODE=ENABLE"]).closed_joints is None
    bf16 = OpenVinoRunner(model, precision="bf16").optimizations(GRAPH, INPUTS)
    assert bf16[-1][0] == "precision bf16"
    assert bf16[-2][1].precision == "f32"


def test_openvino_takes_every_switch() -> None:
    pytest.importorskip("openvino", reason="openvino is not installed")
    whole = OpenVinoRunner(to_bytes(GRAPH), isolated=False, threads=1)
    for _, runner in whole.optimizations(GRAPH, INPUTS):
        assert runner.run(GRAPH, INPUTS).keys() == {*GRAPH.outputs}
