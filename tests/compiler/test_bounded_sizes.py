"""Bounds of sizes decide without a condition, for programs that serve nothing outside of them."""

from __future__ import annotations

import dataclasses
import operator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compiler.test_open_sizes import assert_as_alone, opened, rows
from verax.base.option_groups.settings import Settings
from verax.compiler.artifacts.cache import ProgramCache
from verax.compiler.compile import compile
from verax.ir.assumptions import Assumptions, assuming
from verax.ir.dim import Dim, DimLike, ceildiv, evaluated, maximum, symbol
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.ops.movement.slicing import Slice
from verax.ops.pointwise.activation import Relu

TWO = Settings(2, threads=1)
BOUNDS = {"a": (2, 9), "b": (1, 6), "c": (5, None)}
SIZES = st.fixed_dictionaries(
    {"a": st.integers(2, 9), "b": st.integers(1, 6), "c": st.integers(5, 60)}
)
DIMS = st.recursive(
    st.sampled_from(sorted(BOUNDS)).map(symbol) | st.integers(1, 7),
    lambda inner: st.one_of(
        st.builds(operator.add, inner, inner),
        st.builds(operator.mul, inner, inner),
        st.builds(maximum, inner, inner),
        st.builds(lambda n, d: n // d, inner, inner),
        st.builds(ceildiv, inner, inner),
    ),
    max_leaves=5,
)


@given(DIMS, DIMS, st.integers(-3, 3), SIZES)
def test_no_size_within_bounds_is_below_the_lowest_or_above_the_highest(
    left: DimLike, right: DimLike, factor: int, sizes: dict[str, int]
) -> None:
    dim = left + factor * right
    if not isinstance(dim, Dim):
        return
    number = evaluated(dim, sizes)
    with assuming(Assumptions(dict(sizes), bounds=BOUNDS)):
        lowest, highest = dim.lowest(), dim.highest()
    assert lowest is None or lowest <= number
    assert highest is None or highest >= number


@given(DIMS, DIMS, SIZES, SIZES)
def test_what_bounds_decide_holds_for_all_sizes_within(
    left: DimLike, right: DimLike, sizes: dict[str, int], others: dict[str, int]
) -> None:
    assumed = Assumptions(dict(sizes), bounds=BOUNDS)
    with assuming(assumed):
        answers = (left < right, left == right)
    if not assumed.conditions:
        a, b = evaluated(left, others), evaluated(right, others)
        assert answers == (a < b, a == b)


def test_bounds_are_tight_where_terms_are_simple() -> None:
    a, b = symbol("a"), symbol("b")
    with assuming(Assumptions({"a": 3, "b": 2, "c": 8}, bounds=BOUNDS)):
        assert ((a * b + 1).lowest(), (a * b + 1).highest()) == (3, 55)
        assert ((a - b).lowest(), (a - b).highest()) == (-4, 8)
        assert ((a * a // 2).lowest(), (a * a // 2).highest()) == (2, 40)
        assert (ceildiv(40, a).lowest(), ceildiv(40, a).highest()) == (5, 20)
    assert (a - b).lowest() is None


def sliced(bounds: dict[str, tuple[int, int | None]]) -> Graph:
    """The first four rows of x: all of them where there are fewer."""
    b = Builder("rows")
    x = b.input("x", TensorType.parse("float32[n, 7]"))
    ends = [b.constant(np.array([v])) for v in (0, 4, 0)]
    y = b.add(Slice(), [b.add(Relu(), [x]), *ends], ["y"])
    return dataclasses.replace(b.graph([y]), bounds=bounds)


def test_a_program_made_within_bounds_has_fewer_conditions_and_those_of_the_bounds() -> None:
    wide, narrow = sliced({}), sliced({"n": (5, 90)})
    free, bounded = (opened(g, {"n": 11}, TWO) for g in (wide, narrow))
    assert free is not None and bounded is not None
    decided = {c for c in free.open_sizes.conditions if c not in bounded.open_sizes.conditions}
    assert decided, "the slice asks whether there are four rows"
    stated = {("d0 - 5", ">="), ("-d0 + 90", ">=")}
    assert stated <= set(bounded.open_sizes.conditions)
    for n in (5, 6, 33, 90):
        assert_as_alone(narrow, bounded, {"n": n}, {"x": rows(n, n, 7)}, TWO)
    assert not any(bounded.open_sizes.serves((n,)) for n in (1, 4, 91))
    again = bounded._translate().lowered.binary.open_sizes
    assert again is not None and again.conditions == bounded.open_sizes.conditions


def test_programs_of_bounds_are_kept_apart_on_the_disk(tmp_path: Path) -> None:
    cache = ProgramCache(tmp_path)
    narrow = compile(sliced({"n": (5, 90)}), TWO, cache=cache)
    for n in (5, 11, 90):
        assert narrow.run({"x": rows(n, n, 7)})["y"].shape == (4, 7)
    wide = compile(sliced({}), TWO, cache=cache)
    keys = {exe.specializer._open_key(exe.graph, 0) for exe in (narrow, wide)}
    assert len(keys) == 2, "a program for few sizes takes no number of those for all"
    for n in (3, 5, 2, 200):
        assert wide.run({"x": rows(n, n, 7)})["y"].shape == (min(n, 4), 7)
    found = compile(sliced({"n": (5, 90)}), TWO, cache=ProgramCache(tmp_path))
    found.run({"x": rows(1, 40, 7)})
    assert found.program.binary.open_sizes == narrow.program.binary.open_sizes


def test_a_limit_of_memory_drops_programs_and_says_so_once() -> None:
    b = Builder("wide")
    y = b.add(Relu(), [b.input("x", TensorType.parse("float32[n, 4096]"))])
    z = b.add(Slice(), [y, *(b.constant(np.array([v])) for v in (1, 3, 0))], ["z"])
    exe = compile(b.graph([z]), Settings(0, threads=1, open_sizes=False, memory=1 << 19))
    counts = []
    with pytest.warns(UserWarning) as warned:
        for n in (3, 5, 12, 11, 4, 9, 7, 28):
            exe.run({"x": rows(n, n, 4096)})
            arenas = [p.specialized.plan.arena_bytes for p in exe._programs.values()]
            counts.append(len(arenas))
            assert sum(arenas) <= 1 << 19
    (only,) = warned
    assert "wide has programs for" in str(only.message) and "memory=" in str(only.message)
    assert counts[:3] == [1, 2, 3] and counts[-1] == 1
