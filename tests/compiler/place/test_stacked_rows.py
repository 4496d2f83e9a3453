"""Rows that a loop stacks outlive every run, wherever they lie and whatever the runs need."""

from __future__ import annotations

import numpy as np
import pytest

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.ops.control.control import Loop
from verax.ops.movement.reshaping import Transpose
from verax.reference.evaluate import promised

BODY = """graph "body"
input %i: int64[]
input %c: float32[13]
input %x: float32[5, 13]
input %go: bool[]
%row: float32[13] = Gather()(%x, %i)
%s: float32[13] = Add()(%c, %row)
%d: float32[13] = Tanh()(%row)
%e: float32[13] = Mul()(%d, %s)
output %go
output %s
output %d
output %e
"""
OUTER = """graph "outer"
input %k: int64[]
input %c: float32[13]
input %n: int64[]
input %x: float32[5, 13]
input %go: bool[]
%s: float32[13], %d: float32[5, 13], %e: float32[5, 13] = LOOP(%n, _, %c, %x, %go)
%t: float32[13, 5] = Transpose(perm=(1, 0))(%d)
%u: float32[13, 5] = Transpose(perm=(1, 0))(%e)
%v: float32[13, 5] = Add()(%t, %u)
output %go
output %s
output %v
"""


def network(nested: bool) -> Graph:
    """Of what a loop stacks, transposed: it lies in the program's own memory."""
    b = Builder("stacking")
    x, c = (b.input(n, TensorType.parse(t)) for n, t in (("x", "float32[5, 13]"),
                                                        ("c", "float32[13]")))  # fmt: skip
    n, go = b.constant(np.array(5), "n"), b.constant(np.array(True), "go")
    inner = Loop(body=BODY, carried=1)
    if nested:
        text = OUTER.replace("LOOP", str(inner))
        three = b.constant(np.array(3), "three")
        s, v = b.add_all(Loop(body=text, carried=1), [three, None, c, n, x, go])
        return b.graph([s, b.add(Transpose(perm=(2, 0, 1)), [v])])
    s, d, e = b.add_all(inner, [n, None, c, x, go])
    return b.graph([s, *(b.add(Transpose(perm=(1, 0)), [v]) for v in (d, e))])


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("level", [0, 1])
def test_they_are_what_is_promised(nested: bool, level: int) -> None:
    random = np.random.default_rng(8301)
    inputs = {
        "x": random.standard_normal((5, 13)).astype(np.float32),
        "c": random.standard_normal(13).astype(np.float32),
    }
    graph = network(nested)
    exe = compile(graph, Settings(opt_level=level, threads=1))
    assert not exe.plan.on_reference
    right = promised(graph, inputs)
    for name, array in exe.run(inputs).items():
        assert array.tobytes() == right[name].tobytes(), name
