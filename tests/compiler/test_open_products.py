"""Strassen's products of an open number of rows have the bits of known ones, odd and even."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.test_open_sizes import assert_as_alone, opened, rows
from verax.base.option_groups.settings import Settings
from verax.ir.dim import symbol
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import DType, TensorType


def product(terms: int = 896, columns: int = 928) -> Graph:
    """A product that is worth it, with a bias and an activation behind."""
    b = Builder("product")
    x = b.input("x", TensorType(DType.float32, (2, symbol("s"), terms)))
    y = b.add(REGISTRY["MatMul"](), [x, b.constant(rows(3, terms, columns) / 30)])
    y = b.add(REGISTRY["Add"](), [y, b.constant(rows(4, columns))])
    return b.graph([b.add(REGISTRY["Gelu"](), [y])])


@pytest.mark.parametrize("made_for", [150, 301])
def test_rows_of_a_product_are_read_when_it_runs(made_for: int) -> None:
    graph, options = product(), Settings(3, threads=1)
    program = opened(graph, {"s": made_for}, options)
    assert program is not None
    assert any("Strassen" in line for line in program.plan.lines)
    for count in (127, 192, 201):
        x = rows(count, 2, count, 896)
        x[1, count - 1, 5], x[0, 3, 7] = np.inf, np.nan  # their rows are summed directly
        assert_as_alone(graph, program, {"s": count}, {"x": x}, options)
