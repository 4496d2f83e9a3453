"""`verax.gate`: what changes between two subjects is told apart from what matters."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import verax
from verax.base.errors import InputError, MissingPackageError, UsageError, VeraxError
from verax.base.process.processes import SubjectError
from verax.export.onnx.writer import to_bytes
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge.gate import compare
from verax.judge.inputs import draw_inputs
from verax.ops.pointwise.activation import Relu
from verax.ops.sums.linear import MatMul
from verax.records.gate import (
    GateChange,
    GateRecord,
    ModelChange,
    OutputDifference,
    RunOutcome,
    SubjectResult,
)
from verax.records.verdict import Blame, Explanation, Kind

Answer = Callable[[np.ndarray], np.ndarray]
WEIGHTS = np.random.default_rng(37).standard_normal((11, 7)).astype(np.float32)


def network() -> Graph:
    b = Builder("dense")
    x = b.input("x", TensorType.parse("float32[3, 11]"))
    product = b.add(MatMul(), [x, b.constant(WEIGHTS)], ["product"], "dense")
    return b.graph([b.add(Relu(), [product], ["y"], "relu")])


def straight(x: np.ndarray) -> np.ndarray:
    return np.maximum(x @ WEIGHTS, 0)


def reversed_sum(x: np.ndarray) -> np.ndarray:
    return np.maximum(x[:, ::-1] @ WEIGHTS[::-1], 0)


def in_float16(x: np.ndarray) -> np.ndarray:
    halves = x.astype(np.float16).astype(np.float32), WEIGHTS.astype(np.float16).astype(np.float32)
    return np.maximum(halves[0] @ halves[1], 0)


def wrong(x: np.ndarray) -> np.ndarray:
    return np.maximum(x[:, :-1] @ WEIGHTS[:-1], 0)


def refusing(x: np.ndarray) -> np.ndarray:
    raise SubjectError("this network is not taken")


def two(old: object, new: object, **options: object) -> ModelChange:
    """What changes on the network, from one function or text to another."""
    record = verax.gate(old, new, network(), **options)  # type: ignore[arg-type]
    (model,) = record.models
    expected = {GateChange.matters: 1, GateChange.undecided: 3}.get(model.change, 0)
    assert record.exit_code == expected and record.change is model.change
    assert GateRecord.from_json(record.to_json()) == record
    return model


def test_the_same_bits_are_unchanged_even_if_both_are_wrong() -> None:
    model = two(straight, straight)
    assert model.change is GateChange.unchanged and model.new.kind is Kind.rounding
    assert [d.same_bits for d in model.outputs] == [True]
    both = two(wrong, wrong)
    assert both.change is GateChange.unchanged and "mistake" in both.reasons[1]


def test_other_bits_within_rounding_do_not_matter() -> None:
    model = two(straight, reversed_sum)
    assert model.change is GateChange.harmless
    (output,) = model.outputs
    x = draw_inputs(network())[0]["x"]
    a, b = straight(x), reversed_sum(x)
    assert output.differing == (a != b).sum() > 0 and output.elements == 21
    assert output.max_abs == np.abs(a.astype(np.float64) - b).max()
    assert output.new_error is not None and output.nearer
    assert "drawn with seed 0" in model.inputs[0].origin


def test_a_mistake_that_the_old_one_had_not_matters_and_has_a_node() -> None:
    model = two(straight, wrong)
    assert model.change is GateChange.matters
    assert "mistake" in model.reasons[0]
    assert model.new.kind is Kind.mistake and model.new.blame and model.new.verdict is not None
    assert two(wrong, straight).change is GateChange.harmless


def test_fewer_digits_matter_unless_they_are_allowed() -> None:
    model = two(straight, in_float16)
    assert model.change is GateChange.matters and "fewer digits" in model.reasons[0]
    assert model.new.precisions
    names = [name.partition(" ")[0] for name in model.new.precisions]
    assert two(straight, in_float16, allow=names).change is GateChange.harmless
    assert two(in_float16, in_float16).change is GateChange.unchanged


def test_a_refusal_matters_only_where_the_old_one_ran() -> None:
    model = two(straight, refusing)
    assert model.change is GateChange.matters
    assert model.new.outcome is RunOutcome.refused and "not taken" in model.reasons[0]
    assert two(refusing, straight).change is GateChange.harmless
    assert two(refusing, wrong).change is GateChange.matters
    assert two(refusing, refusing).change is GateChange.unchanged


def program(folder: Path, body: str) -> str:
    path = folder / "program.py"
    path.write_text(f"import os, signal, sys, time\n{body}\n")
    return f"cmd:{sys.executable} {path}"


def test_a_crash_and_a_hang_are_results(tmp_path: Path) -> None:
    crash = program(tmp_path, "os.kill(os.getpid(), signal.SIGSEGV)")
    model = two(straight, crash)
    assert model.change is GateChange.matters and model.new.outcome is RunOutcome.crashed
    assert "SIGSEGV" in model.new.message
    assert two(refusing, crash).change is GateChange.matters
    assert two(crash, refusing).change is GateChange.harmless
    model = two(straight, program(tmp_path, "time.sleep(60)"), timeout=0.5)
    assert model.change is GateChange.matters and model.new.outcome is RunOutcome.timed_out


def test_arrays_are_given_to_the_models_that_have_them() -> None:
    x = np.random.default_rng(38).standard_normal((3, 11)).astype(np.float32)
    record = verax.gate(straight, reversed_sum, [network(), network()], {"x": x})
    assert [m.inputs[0].origin for m in record.models] == ["given"] * 2
    with pytest.raises(UsageError, match="no model has an input z"):
        verax.gate(straight, straight, network(), {"z": x})
    with pytest.raises(UsageError, match="no model"):
        verax.gate(straight, straight, [])
    b = Builder("sum")
    names = [b.input(name, TensorType.parse("float32[2, 3]")) for name in ("p", "q")]
    with pytest.raises(InputError, match="not q"):
        graph = b.graph([b.add(Relu(), [names[0]], ["y"], "n")])
        verax.gate(straight, straight, graph, {"p": x[:2, :3]})


def ran(kind: Kind, *, blame: tuple[Blame, ...] = (), **more: object) -> SubjectResult:
    return SubjectResult(RunOutcome.ran, {"name": "s"}, "", kind, ("why",), blame, **more)  # type: ignore[arg-type]


def blame(node: str, hypothesis: str) -> tuple[Blame, ...]:
    cause = Explanation(hypothesis, "in words")
    return (Blame(node, "Conv", {}, "v", Kind.mistake, "far off", explanations=(cause,)),)


DIFFERENT = (OutputDifference("y", False, 3, 21, 0.25),)
COMPARED = {
    "the check cannot tell": (ran(Kind.rounding), ran(Kind.undecided), GateChange.undecided),
    "nobody knew before": (ran(Kind.undecided), ran(Kind.rounding), GateChange.harmless),
    "digits were lost": (ran(Kind.precision), ran(Kind.precision_lost), GateChange.matters),
    "they were lost before": (
        ran(Kind.precision_lost, precisions=("bf16",)),
        ran(Kind.precision_lost, precisions=("bf16",)),
        GateChange.harmless,
    ),
    "a fast algorithm": (
        ran(Kind.rounding),
        ran(Kind.precision, precisions=("Winograd F(4x4, 3x3)",)),
        GateChange.harmless,
    ),
    "the same mistake": (
        ran(Kind.mistake, blame=blame("conv", "pads swapped")),
        ran(Kind.mistake, blame=blame("conv", "pads swapped")),
        GateChange.harmless,
    ),
    "another mistake in the same node": (
        ran(Kind.mistake, blame=blame("conv", "pads swapped")),
        ran(Kind.mistake, blame=blame("conv", "dilation lost")),
        GateChange.matters,
    ),
}


@pytest.mark.parametrize("case", COMPARED)
def test_what_matters_between_two_verdicts(case: str) -> None:
    old, new, expected = COMPARED[case]
    assert compare(old, new, DIFFERENT)[0] is expected
    same = (dataclasses.replace(DIFFERENT[0], same_bits=True),)
    assert compare(old, new, same)[0] is GateChange.unchanged


def test_an_output_that_is_gone_matters() -> None:
    gone = (OutputDifference("y", False, 0, 0, 0.0, "only the old subject gives it"),)
    change, reasons = compare(ran(Kind.rounding), ran(Kind.rounding), gone)
    assert change is GateChange.matters and "fewer outputs" in reasons[0]


def test_an_interpreter_is_asked_for_its_own_runtime(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    file = tmp_path / "dense.onnx"
    file.write_bytes(to_bytes(network()))
    record = verax.gate("onnxruntime", f"python:{sys.executable}", file)
    (model,) = record.models
    assert model.change is GateChange.unchanged
    versions = [r.subject["version"] for r in (model.old, model.new)]
    assert versions[0] == versions[1] and model.new.subject["interpreter"] == sys.executable


def test_an_interpreter_watches_and_bisects(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    file = tmp_path / "dense.onnx"
    file.write_bytes(to_bytes(network()))
    verdict = verax.check(file, f"python:{sys.executable}")
    assert verdict.kind in (Kind.rounding, Kind.identical)
    assert {f.value for f in verdict.nodes} == {"product", "y"}


def test_an_interpreter_without_the_runtime_is_told_so(tmp_path: Path) -> None:
    python = tmp_path / "python"
    hidden = "import sys; sys.modules['onnxruntime'] = None; import runpy; "
    python.write_text(
        f"#!{sys.executable}\n{hidden}sys.argv = sys.argv[2:]; "
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    python.chmod(0o755)
    file = tmp_path / "dense.onnx"
    file.write_bytes(to_bytes(network()))
    with pytest.raises(MissingPackageError, match="has no ONNX Runtime") as caught:
        verax.gate("verax:O0", f"python:{python}", file)
    assert f"{python} -m pip install" in caught.value.next_step


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("python:/no/such/python", "no such interpreter"),
        ("onnxruntime@", "no version"),
        ("onnxruntime@1.20.0:most", "no version"),
        ("onnxruntime@--pre", "no version"),
        ("openvino@2026.3", "not installed by Verax"),
    ],
)
def test_a_misspelt_version_is_said(text: str, message: str) -> None:
    with pytest.raises(VeraxError, match=message):
        verax.gate("verax:O0", text, network())
