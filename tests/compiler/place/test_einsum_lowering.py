"""Einsum by products of matrices: promised bits of drawn equations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.compiler.native import agree, seeds, values
from tests.compiler.test_bits import bits
from tests.compiler.test_operators import graph_of

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.ir.graph import Builder
from verax.ir.operator import REGISTRY, Case
from verax.ir.types import TensorType
from verax.ops.sums.einsum import Einsum
from verax.reference import promised

FEW = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def equations(draw: st.DrawFn) -> tuple[str, list[tuple[int, ...]]]:
    """Two terms and an output, in any order of labels, and shapes; some axes broadcast."""
    labels = "abcdef"[: draw(st.integers(1, 6))]
    sizes = {n: draw(st.sampled_from([1, 2, 3, 5, 7, 17])) for n in labels}
    left = [n for n in labels if draw(st.integers(0, 2))]
    right = [n for n in labels if n not in left or draw(st.integers(0, 2))]
    used = sorted({*left, *right})
    output = draw(st.permutations([n for n in used if draw(st.integers(0, 2))]))
    terms = [draw(st.permutations(left)), draw(st.permutations(right))]
    shapes = [
        tuple(1 if draw(st.integers(0, 9)) == 9 else sizes[n] for n in term) for term in terms
    ]
    return f"{''.join(terms[0])},{''.join(terms[1])}->{''.join(output)}", shapes


@FEW
@given(equations(), st.booleans(), seeds)
def test_any_equation_of_two(
    case: tuple[str, list[tuple[int, ...]]], constant: bool, seed: int
) -> None:
    equation, shapes = case
    arrays = [values(seed + i, shape) for i, shape in enumerate(shapes)]
    agree(Einsum(equation=equation), *arrays, constant=(1,) if constant else ())


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("...ij,...kj->...ki", [(2, 1, 3, 5), (2, 4, 6, 5)]),
        ("bhid,bhjd->bhij", [(2, 3, 4, 37), (2, 3, 5, 37)]),
        ("bxhid,bxhjd->bxhij", [(2, 3, 2, 4, 19), (2, 3, 2, 5, 19)]),
        ("abchi,cbahj->bacij", [(2, 3, 4, 5, 6), (4, 3, 2, 5, 7)]),  # batches in another order
        ("ij,jk", [(3, 5), (5, 4)]),
        ("bij,bj->bi", [(2, 17, 5), (2, 5)]),
        ("ib,jb->ijb", [(3, 17), (4, 17)]),
    ],
)
def test_known_equations(equation: str, shapes: list[tuple[int, ...]]) -> None:
    for which in ((), (1,), (0,)):
        arrays = [values(5 + i, shape) for i, shape in enumerate(shapes)]
        agree(Einsum(equation=equation), *arrays, constant=which)


@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("equation", ["abc->cab", "...bc->c...b", "aabc->bac", "abbb->ab"])
def test_one_tensor_is_moved(equation: str, dtype: str) -> None:
    shape = {"aabc->bac": (3, 3, 4, 5), "abbb->ab": (2, 3, 3, 3)}.get(equation, (2, 3, 5))
    agree(Einsum(equation=equation), values(4, shape, dtype))


def test_what_has_no_promised_order_says_so() -> None:
    graph, fed = graph_of(Case(Einsum(equation="ij->i"), (np.ones((3, 5), np.float32),)), False)
    exe = compile(graph, Settings())
    exe.run(fed)
    assert "order of its sums is free" in exe.plan.lines[0]


@FEW
@given(equations(), st.sampled_from(["scalar", "column", "tensor"]), seeds)
def test_what_follows_is_fused_or_not(
    case: tuple[str, list[tuple[int, ...]]], what: str, seed: int
) -> None:
    """The same bits, whether the kernel applies it or a loop of its own does."""
    equation, shapes = case
    x, y = (values(seed + i, shape) for i, shape in enumerate(shapes))
    b = Builder("net")
    names = [b.input("x", TensorType.of(x)), b.input("y", TensorType.of(y))]
    made = b.add(Einsum(equation=equation), names)
    shape = b.types[made].shape
    other = values(seed + 5, {"scalar": (1,), "column": shape[-1:]}.get(what, shape))
    fed = {"x": x, "y": y}
    if what == "tensor":
        fed["z"] = other
        name = b.input("z", TensorType.of(other))
    else:
        name = b.constant(other)
    graph = b.graph([b.add(REGISTRY["Tanh"](), [b.add(REGISTRY["Mul"](), [made, name])])])
    want = promised(graph, fed)
    for threads in (1, 3):
        exe = compile(graph, Settings(opt_level=1, threads=threads, require_native=True))
        for value, array in exe.run(fed).items():
            assert bits(array) == bits(np.asarray(want[value]))
