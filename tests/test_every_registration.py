"""Nothing that is registered can get lost: what each registry must cover is said here, by name.

The last test deletes every entry of every registry in turn, and wants it noticed. Lowerings,
emitters, passes and decisions: tests/compiler/test_every_lowering.py; rows of formats: the tests
of each format; operators: tests/ops/test_every_operator.py.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

import pytest

import verax.ops
from verax.cli import app
from verax.formats import FORMATS
from verax.ir.operator import REGISTRY
from verax.judge.explain.hypotheses.library import BY_KIND
from verax.judge.regions.vjp import JUMPS, RULES
from verax.ops.pointwise.elementwise import Elementwise
from verax.runners import registry
from verax.runners.child_runner import ChildRunner

assert verax.ops
EXAMPLES = Path(__file__).parents[1] / "examples" / "digits"

NO_DERIVATIVE = """
AffineGrid And ArgMax ArgMin AveragePoolInteger BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor
BoxNMS Ceil ConstantOfShape ConvInteger ConvTransposeInteger CumProd CumSum DequantizeLinear
DynamicQuantizeGroups DynamicQuantizeLinear Einsum Equal EyeLike Floor FloorDiv GlobalLpPool Greater
GreaterOrEqual GridSample Hardmax If IsInf IsNaN L2NormalizeInteger Less LessOrEqual LookupTable
Loop LpPool
MaxRoiPool Mod MultiBoxDetection NonMaxSuppression NonZero Not OneHot Or QuantizeLinear Range
ReduceProd Requantize ResizeInteger RoiAlign Round ScatterElements ScatterND Shape Shrink Sign Size
SoftmaxInteger StrassenConv StrassenMatMul ThresholdedRelu TopK Unique WeightedSumInteger
WinogradConv Xor
"""
"""Operators without a derivative rule: regions that hold them are judged by Monte Carlo."""
OWN_RULES = (
    "Relu Add Mul Div Sqrt Rsqrt Reciprocal Max Min Clip Identity Cast Where Dropout Bfloat16Factor"
)
"""Elementwise operators with a rule of their own, sharper than differences."""
BY_ATTRIBUTES = """
Acos Acosh AffineGrid And Asin Asinh Atan Atan2 Atanh AveragePoolInteger Bfloat16Factor
BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor BoxNMS Cast Ceil CenterCropPad Compress
ConstantOfShape Cos Cosh CumProd
Dropout DynamicQuantizeLinear Einsum Equal ErfInv Expand Expm1 EyeLike Floor FloorDiv
GatherElements GatherND Greater GreaterOrEqual GridSample Hypot IsInf IsNaN L2NormalizeInteger Less
LessOrEqual Log1p MaxRoiPool MaxUnpool MeanVarianceNormalization Mod MultiBoxDetection
NonMaxSuppression NonZero Not
OneHot Or Range Reciprocal Requantize ResizeInteger ReverseSequence RoiAlign Round Rsqrt
ScatterElements ScatterND Shape Sign Sin Sinh Size SoftmaxInteger StrassenConv StrassenMatMul Tan
Tile TopK Trilu Unique WeightedSumInteger Where
WinogradConv Xor
"""
"""Operators without hypotheses of their own: every attribute at its other values is tried."""
SUBJECTS = """
verax:O0 verax:O1 verax:O2 verax:O3 onnxruntime onnxruntime:disabled onnxruntime:basic
onnxruntime:extended onnxruntime:all openvino openvino:f32 openvino:bf16 openvino:f16
openvino:default tvm tvm:O0 tvm:O1
tvm:O2 torch torch-compiled litert litert-builtin litert-reference tensorflow reference
reference:promised
"""
CHILDREN = "onnx_runtime openvino tvm litert tensorflow_file torch_file"
"""Modules of `runners` whose `answer` runs in a child process."""
COMMANDS = (
    "inspect convert compile run check bisect bench tune evaluate ops passes formats runners cache "
    "doctor"
)


def derivatives() -> None:
    elementwise = {n for n, op in REGISTRY.items() if issubclass(op, Elementwise)} - set(JUMPS)
    assert set(REGISTRY) - set(RULES) - elementwise == set(NO_DERIVATIVE.split())
    assert set(OWN_RULES.split()) <= set(RULES)


def families() -> None:
    assert set(REGISTRY) - set(BY_KIND) == set(BY_ATTRIBUTES.split())


def subjects() -> None:
    assert set(registry.ENTRIES) >= set(SUBJECTS.split())
    packages = {registry.SPEC_OF[name].package for name in registry.ENTRIES} - {""}
    assert packages == set(registry.DISTRIBUTIONS)


def children() -> None:
    """Every runner of a foreign runtime is done by a module that the child can import, and each
    module with an `answer` declares a runner."""

    def below(kind: type[ChildRunner]) -> set[str]:
        own = (
            {kind.answer.__module__}
            if isinstance(vars(kind).get("answer"), staticmethod)
            else set()
        )
        return own.union(*(below(k) for k in kind.__subclasses__()))

    modules = below(ChildRunner) - {ChildRunner.__module__}
    assert {m.rpartition(".")[2] for m in modules} >= set(CHILDREN.split())
    assert all(callable(importlib.import_module(m).answer) for m in modules)


def formats() -> None:
    """Every example file, and every other suffix that the documentation names, has a reader."""
    read = {s for f in FORMATS_BY_NAME.values() for s in f.suffixes}
    assert {p.suffix for p in EXAMPLES.glob("digits.*")} <= read
    assert {".vx", ".json", ".mlpackage", ".pt2"} <= read


def commands() -> None:
    assert set(COMMANDS.split()) <= set(app.COMMANDS), app.COMMANDS


FORMATS_BY_NAME = {f.name: f for f in FORMATS}
REGISTRIES: dict[str, tuple[MutableMapping[Any, Any], Callable[[], None]]] = {
    "derivative rules": (RULES, derivatives),
    "families of hypotheses": (BY_KIND, families),
    "runners": (registry.ENTRIES, subjects),
    "formats": (FORMATS_BY_NAME, formats),
    "commands": (app.COMMANDS, commands),
}


def test_every_child_has_its_module() -> None:
    children()


@pytest.mark.parametrize("name", REGISTRIES)
def test_a_registry_is_whole(name: str) -> None:
    REGISTRIES[name][1]()


@pytest.mark.parametrize(
    ("name", "entry"),
    [(name, entry) for name, (entries, _) in REGISTRIES.items() for entry in entries],
)
def test_deleting_an_entry_is_noticed(
    name: str, entry: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries, whole = REGISTRIES[name]
    monkeypatch.delitem(entries, entry)
    with pytest.raises(AssertionError):
        whole()
