"""O2: the same bits on every target that runs here and for any number of threads, and within the
rounding of the network as it was."""

from __future__ import annotations

import numpy as np
import pytest

import verax
from tests.compiler.test_bits import bits
from tests.compiler.test_every_lowering import TARGETS
from verax.base.option_groups.settings import Settings
from verax.campaign.deep_networks import deep_network
from verax.compiler.compile import compile as compile_graph
from verax.compiler.pipeline.levels import run_passes
from verax.records.verdict import Kind
from verax.reference import promised

SEEDS = range(6)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_target_and_number_of_threads_gives_the_promised_bits(seed: int, target: str) -> None:
    made = deep_network(seed)
    rewritten, trace = run_passes(made.graph, Settings(opt_level=2))
    assert any(note.startswith("fold_scales: ") for note in trace.notes)
    wanted = promised(rewritten, made.inputs)
    for threads in (1, 3):
        exe = compile_graph(made.graph, Settings(2, threads=threads, target=target))
        got = exe.run(made.inputs)
        for old, new in zip(made.graph.outputs, rewritten.outputs, strict=True):
            assert bits(got[old]) == bits(np.asarray(wanted[new]))


@pytest.mark.checkered
@pytest.mark.parametrize("watch", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_judge_calls_it_rounding(seed: int, watch: bool) -> None:
    made = deep_network(seed)
    found = verax.check(made.graph, "verax:O2", made.inputs, watch=watch, explain=False)
    assert found.kind in (Kind.rounding, Kind.identical, Kind.undecided), found.reasons
    assert found.kind is not Kind.undecided or not watch
