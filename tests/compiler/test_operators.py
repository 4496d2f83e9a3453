"""Every operator's own cases through the compiler at O0 and O1: the promised bits, with a kernel or
without one."""

from __future__ import annotations

import numpy as np
import pytest

import verax.ops  # noqa: F401  (registers the operators)
from tests.compiler.test_bits import bits
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY, Case
from verax.ir.types import TensorType
from verax.reference import promised

WEIGHTED = ("Conv", "ConvTranspose", "BatchNormalization", "Gemm", "Clip")
"""Their further inputs are given as constants, as networks do: that is what has kernels."""


LEVELS = (0, 1)
"""The first case of an operator runs at both, each other case at one of them in turn."""


def graph_of(case: Case, constant: bool) -> tuple[Graph, dict[str, np.ndarray]]:
    """A network of the case alone, and its inputs. constant: all but the first are in it."""
    b = Builder(case.op.kind)
    inputs: list[str | None] = []
    arrays: dict[str, np.ndarray] = {}
    for i, array in enumerate(case.inputs):
        if array is None:
            inputs.append(None)
        elif i in case.constant or (constant and i > 0):
            inputs.append(b.constant(np.array(array)))
        else:
            arrays[f"x{i}"] = array
            inputs.append(b.input(f"x{i}", TensorType.of(array)))
    return b.graph(b.add_all(case.op, inputs)), arrays


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_an_operator_has_the_promised_bits(name: str) -> None:
    cls = REGISTRY[name]
    if cls.unsupported:
        pytest.skip(cls.unsupported)
    for number, case in enumerate(cls.cases(np.random.default_rng(0))):
        graph, arrays = graph_of(case, name in WEIGHTED)
        want = promised(graph, arrays)
        for level in LEVELS if number == 0 else (number % 2,):
            got = compile(graph, Settings(level, threads=1, quick=level == 0)).run(arrays)
            for value, array in want.items():
                assert bits(got[value]) == bits(np.asarray(array)), (
                    f"{case.op} {case.label} O{level}"
                )
