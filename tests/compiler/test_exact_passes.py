"""O1 is O0 bit for bit on random networks strewn with nodes that the exact passes rewrite."""

from __future__ import annotations

from collections import Counter

import pytest

import verax.ops  # noqa: F401  (registers the operators)
from tests.compiler.salted import random_case, same_promised_bits
from tests.compiler.test_bits import bits
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.passes import canonicalize as canonical
from verax.compiler.passes import reduce_strength as strength
from verax.compiler.pipeline import levels
from verax.compiler.pipeline.levels import run_passes
from verax.ir.graph import Node
from verax.ir.rewrite import Rewriter
from verax.ops.movement.slicing import Concat
from verax.ops.pointwise.arithmetic import Add

NEW = ("share_constants", "canonicalize", "reduce_strength")
FEWEST = 20
"""Rewrites of each pass in a hundred networks, below which they would show little."""


def rewrites_with_equal_bits(seeds: range) -> Counter[str]:
    """Checks the networks of these seeds; -> how often each pass rewrote something."""
    found: Counter[str] = Counter()
    for seed in seeds:
        graph, inputs = random_case(seed)
        after, trace = run_passes(graph, Settings(opt_level=1))
        found.update(note.partition(":")[0] for note in trace.notes)
        assert same_promised_bits(graph, after, inputs), f"seed {seed}\n{graph}"
    return found


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (50, 100, 150))]
)
def test_the_passes_change_no_bit_of_random_networks(first: int) -> None:
    found = rewrites_with_equal_bits(range(first, first + 50))
    assert all(found[name] >= FEWEST for name in NEW), found


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 11_000, 250))
def test_the_passes_change_no_bit_of_ten_thousand_networks(first: int) -> None:
    rewrites_with_equal_bits(range(first, first + 250))


@pytest.mark.parametrize("seed", range(300, 306))
def test_compiled_networks_have_the_same_bits_at_both_levels(seed: int) -> None:
    graph, inputs = random_case(seed)
    plain, optimized = (
        compile(graph, Settings(opt_level=level, threads=1)).run(inputs) for level in (0, 1)
    )
    for name, array in plain.items():
        assert bits(array) == bits(optimized[name]), name


# --- broken twins, each of which the random networks find


def found_by_the_networks() -> bool:
    graphs = (random_case(seed) for seed in range(400, 500))
    settings = Settings(opt_level=1)
    return any(
        not same_promised_bits(graph, run_passes(graph, settings)[0], inputs)
        for graph, inputs in graphs
    )


def test_dropping_an_added_positive_zero_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(strength.UNITS, Add, lambda c: c == 0)
    assert found_by_the_networks()


def test_joining_parts_of_a_split_in_any_order_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def unordered(self: object, node: Node, source: str) -> list[str] | None:
        rewriter: Rewriter = self.rewriter  # type: ignore[attr-defined]
        before = self.producers.get(source)  # type: ignore[attr-defined]
        joined = {rewriter.map(v) for v in node.inputs}
        if before is None or before.op.kind != "Split" or joined != set(before.outputs):
            return None
        assert isinstance(node.op, Concat)
        return [before.inputs[0]]

    monkeypatch.setattr(canonical._Canonical, "_split_input", unordered)
    assert found_by_the_networks()


def test_the_pipeline_has_these_passes() -> None:
    assert set(NEW) <= {p.name for p in levels.PIPELINE}
    assert all(p.kind == "exact" for p in levels.PIPELINE if p.name in NEW)
