"""The memory limit counts what a program stores: not the scores of an attention, however the file
writes them."""

from __future__ import annotations

import numpy as np
import pytest

from verax.base.errors import InputError
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.ir.graph import Graph
from verax.ir.text import parse_graph

LIMIT = 48 << 20
TEXT = """graph "long"
input %q: float32[2, 3001, 8]
input %k: float32[2, 3003, 8]
input %v: float32[2, 3003, 16]
const %scale: float32[] = 0.35
%turned: float32[2, 8, 3003] = Transpose(perm=(0, 2, 1))(%k)
%products: float32[2, 3001, 3003] = MatMul()(%q, %turned)
%scores: float32[2, 3001, 3003] = Mul()(%products, %scale)
%shares: float32[2, 3001, 3003] = Softmax(axis=2)(%scores)
%y: float32[2, 3001, 16] = MatMul()(%shares, %v)
output %y
"""


def graph(extra: str = "") -> Graph:
    return parse_graph(TEXT + extra)


def test_scores_that_are_not_stored_do_not_count() -> None:
    exe = compile(graph(), Settings(threads=1, opt_level=1, memory=LIMIT))
    random = np.random.default_rng(12)
    given = {v: random.standard_normal(t.shape).astype(np.float32) for v, t in exe.inputs.items()}
    assert np.isfinite(exe.run(given)["y"]).all()


@pytest.mark.parametrize(("level", "extra"), [(0, ""), (1, "output %shares\n")])
def test_those_that_are_stored_do(level: int, extra: str) -> None:
    with pytest.raises(InputError, match="what this node gives"):
        compile(graph(extra), Settings(threads=1, opt_level=level, memory=LIMIT))
