"""What `verax passes NAME` shows of one pass or decision: a small graph before and after it.

Nothing of it is written down: the pass is run on the graph that its file makes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verax import ops  # noqa: F401  (registers the operators that a text form names)
from verax.base.settings import Settings
from verax.compiler.decide.steps import DIVIDE, DecisionKind
from verax.compiler.driver import compile as compile_graph
from verax.compiler.passes.base import Pass
from verax.compiler.passes.remove_dead_code import remove_dead_code
from verax.compiler.step import kernel_lines
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.ops.pointwise.activation import Relu
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
        return _decided(step)
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
    return Example(kernel_lines(plain.specialised), kernel_lines(exe.specialised), exe.trace.notes)


def two_convolutions(images: int = 2, rows: int = 9) -> Graph:
    """A convolution, a Relu and a convolution."""
    b = Builder("two_convolutions")
    x = b.input("x", TensorType.parse(f"float32[{images}, 3, {rows}, {rows - 2}]"))
    rng = np.random.default_rng(2)
    first = b.constant(rng.standard_normal((21, 3, 3, 2)).astype(np.float32), "w1")
    second = b.constant(rng.standard_normal((5, 21, 2, 1)).astype(np.float32), "w2")
    h = b.add(Relu(), [b.add(Conv(), [x, first], ["c1"], "conv1")], ["r1"], "relu1")
    return b.graph([b.add(Conv(), [h, second], ["c2"], "conv2")])
