"""What `verax passes NAME` shows of one pass or decision: a small graph before and after it.

Nothing of it is written down: the pass is run on the graph that its file makes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verax import ops  # noqa: F401  (registers the operators that a text form names)
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile as compile_graph
from verax.compiler.describe.step_text import kernel_lines
from verax.compiler.kernels.target import Target
from verax.compiler.passes.base import Pass
from verax.compiler.passes.remove_dead_code import remove_dead_code
from verax.compiler.pipeline.levels import run_passes
from verax.compiler.place.rewriting import rewrite_for_target
from verax.compiler.plan.steps import DIVIDE, STORE_BYTES, DecisionKind, Decisions
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.ops.pointwise.activation import Relu
from verax.ops.quantized.quantization import DequantizeLinear, QuantizeLinear
from verax.ops.sums.linear import MatMul
from verax.ops.windows.convolution import Conv


@dataclass(frozen=True)
class Example:
    """before, after: text; notes: the rewrites or decisions, in the words of a trace."""

    before: str
    after: str
    notes: tuple[str, ...]


def example_of(step: Pass | DecisionKind) -> Example | None:
    """The example of a pass or a decision; None when the pass's file makes no graph for it."""
    if isinstance(step, DecisionKind):
        return _for_target(step) if step.by_target else _decided(step)
    if step.example is None:
        return None
    graph = step.example()
    new, trace = step.apply(graph)
    return Example(str(graph), str(remove_dead_code(new)[0]), trace.notes)


def _decided(step: DecisionKind) -> Example:
    """Two convolutions and a Relu in kernels, without any decision and with those of one kind."""
    graph = two_convolutions(*((8, 200) if step is DIVIDE else ()))
    plain = compile_graph(graph, Settings(1, threads=1, passes=()))
    exe = compile_graph(graph, Settings(1, threads=1, passes=(step.name,)))
    return Example(kernel_lines(plain.specialized), kernel_lines(exe.specialized), exe.trace.notes)


def _for_target(step: DecisionKind) -> Example:
    """A network whose values a target stores in fewer bits, after all passes, without and with the
    decisions of one kind."""
    make, name = (
        (two_integer_convolutions, "avx512vnni")
        if step is STORE_BYTES
        else (two_products, "avx512bf16")
    )
    graph, _ = run_passes(make(), Settings(3, threads=1, allow=("bf16",)))
    decisions = Decisions(frozenset([step.name]))
    new = rewrite_for_target(graph, Target.named(name), decisions)
    return Example(str(graph), str(new), tuple(map(str, decisions.records)))


def two_integer_convolutions() -> Graph:
    """Two convolutions of bytes, one behind the other, quantized in between."""
    rng, b = np.random.default_rng(1723), Builder("two_integer_convolutions")
    h = b.input("x", TensorType.parse("float32[2, 32, 7, 9]"))
    scale, zero = b.constant(np.array(0.05, np.float32)), b.constant(np.array(0, np.uint8))
    for channels, filters in ((32, 48), (48, 16)):
        weights = b.constant(rng.integers(-20, 21, (filters, channels, 1, 1)).astype(np.int8))
        scales = b.constant(np.full(filters, 0.01, np.float32))
        data = b.add(QuantizeLinear(), [h, scale, zero])
        factors = [
            b.add(DequantizeLinear(), [data, scale, zero]),
            b.add(DequantizeLinear(axis=0), [weights, scales]),
        ]
        h = b.add(Conv(), factors)
    return b.graph([h])


def two_products() -> Graph:
    """Two products with an even number of terms, one behind the other."""
    rng, b = np.random.default_rng(1741), Builder("two_products")
    h = b.input("x", TensorType.parse("float32[37, 64]"))
    for terms, columns in ((64, 48), (48, 26)):
        weights = b.constant(rng.standard_normal((terms, columns)).astype(np.float32))
        h = b.add(MatMul(), [b.add(Relu(), [h]), weights])
    return b.graph([h])


def two_convolutions(images: int = 2, rows: int = 9) -> Graph:
    """A convolution, a Relu and a convolution."""
    b = Builder("two_convolutions")
    x = b.input("x", TensorType.parse(f"float32[{images}, 3, {rows}, {rows - 2}]"))
    rng = np.random.default_rng(2)
    first = b.constant(rng.standard_normal((21, 3, 3, 2)).astype(np.float32), "w1")
    second = b.constant(rng.standard_normal((5, 21, 2, 1)).astype(np.float32), "w2")
    h = b.add(Relu(), [b.add(Conv(), [x, first], ["c1"], "conv1")], ["r1"], "relu1")
    return b.graph([b.add(Conv(), [h, second], ["c2"], "conv2")])
