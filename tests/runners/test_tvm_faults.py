"""The level of TVM that brings a mistake. This one is planted: a broken pass of a user's.

None of its own was met on the near misses of normalisations, activations and pools that OpenVINO,
ONNX Runtime and Inductor take for what they are not.
"""

from __future__ import annotations

from typing import Any

import pytest

from verax.export.onnx.writer import to_bytes
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge.bisect import bisect
from verax.judge.inputs import draw_inputs
from verax.judge.regions.coverage import ACCEPTED
from verax.ops.pointwise.activation import Relu
from verax.ops.pointwise.transcendental import Tanh
from verax.runners.tvm import TvmRunner


def network() -> Graph:
    b = Builder("net")
    x = b.input("x", TensorType.parse("float32[3, 5]"))
    return b.graph([b.add(Tanh(), [b.add(Relu(), [x], ["h"], "relu")], ["y"], "tanh")])


def relu_becomes_abs(tvm: Any) -> Any:
    """A pass of level 2 that takes Relu for the absolute value."""

    @tvm.relax.expr_functor.mutator
    class Replace(tvm.relax.PyExprMutator):  # type: ignore[misc, name-defined]
        def visit_call_(self, call: Any) -> Any:
            call = self.visit_expr_post_order(call)
            if call.op == tvm.ir.Op.get("relax.nn.relu"):
                return tvm.relax.op.abs(call.args[0])
            return call

    @tvm.transform.module_pass(opt_level=2, name="ReluToAbs")
    def apply(module: Any, _: Any) -> Any:
        replace = Replace(module)
        for variable, function in module.functions.items():
            if isinstance(function, tvm.relax.Function):
                replace.builder_.update_func(variable, replace.visit_expr(function))
        return replace.builder_.get()

    return tvm.transform.Sequential([apply])


def test_the_level_of_a_broken_pass_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    tvm: Any = pytest.importorskip("tvm", reason="apache-tvm is not installed")
    whole, broken = tvm.compile, relu_becomes_abs(tvm)
    graph = network()
    given = draw_inputs(graph, 9)[0]
    subject = TvmRunner(to_bytes(graph), threads=1, isolated=False)
    assert bisect(graph, subject, given).record.verdict.kind in ACCEPTED
    monkeypatch.setattr(tvm, "compile", lambda module, **more: whole(broken(module), **more))
    record = bisect(graph, subject, given).record
    assert record.exit_code == 1
    assert record.optimizations is not None
    assert record.optimizations.guilty == "O2"
