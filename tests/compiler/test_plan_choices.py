"""A program's plan shows the choices that it follows from, and the cache's key holds all that
decides them: programs of one key have one plan."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import verax
from verax.base.option_groups.settings import Settings
from verax.compiler.artifacts.cache import ProgramCache
from verax.compiler.artifacts.save import save
from verax.compiler.compile import compile
from verax.compiler.kernels.target import Target
from verax.compiler.pipeline.recipe import network_hash
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType

PADS = ((1, 0), (0, 1))


def network(rows: int = 9, pads: Any = PADS) -> Graph:
    """A convolution with an epilogue, a mean over blocks, and an operator that has no kernel."""
    rng, b = np.random.default_rng(5), Builder("net")
    x = b.input("x", TensorType.parse(f"float32[2, 3, {rows}, 7]"))
    w = b.constant(rng.standard_normal((18, 3, 2, 2)).astype(np.float32))
    y = b.add(REGISTRY["Conv"](pads=pads), [x, w], ["sums"], "first")
    y = b.add(REGISTRY["Relu"](), [y], ["bent"], "act")
    mean = b.add(REGISTRY["GlobalAveragePool"](), [y], ["average"], "mean")
    moved = b.add(REGISTRY["Unique"](axis=1, sorted=True), [mean], ["different"], "apart")
    return b.graph([y, moved])


def test_a_plan_shows_the_choice_of_every_group(tmp_path: Path) -> None:
    exe = compile(network(), Settings(opt_level=1, threads=1, target="avx2"))
    choices = exe.plan.choices
    assert choices[0].startswith("first + act: convolution, input 0 plain with border ((1, 0)")
    assert choices[0].endswith("output blocked")
    assert choices[1] == "mean: reduction in blocks, input 0 blocked, output blocked"
    assert choices[2].startswith("apart: reference: ")
    head, _, tail = str(exe.plan).partition("\nchoices:\n")
    assert tail.splitlines() == [f"  {line}" for line in choices]
    assert all(line in head for line in exe.plan.lines)
    save(exe, tmp_path / "net.vx")
    stored = verax.load(tmp_path / "net.vx").notes
    assert tuple(stored["choices"]) == choices


def test_a_program_of_the_cache_has_them_too(tmp_path: Path) -> None:
    cache = ProgramCache(tmp_path)
    made, kept = (
        compile(network(), Settings(opt_level=1, threads=1), cache=cache).plan for _ in range(2)
    )
    assert kept.choices == made.choices != ()
    assert str(kept) == str(made)


SETTINGS = Settings(opt_level=1, threads=1, target="avx2")
OTHERS: dict[str, tuple[Graph, Settings]] = {
    "another border": (network(pads=((1, 1), (0, 1))), SETTINGS),
    "other sizes": (network(rows=2), SETTINGS),
    "no fusion": (network(), dataclasses.replace(SETTINGS, disable=("fuse_elementwise",))),
    "no blocks": (network(), dataclasses.replace(SETTINGS, disable=("block_layouts",))),
    "another level": (network(), dataclasses.replace(SETTINGS, opt_level=0)),
}


def plan_and_key(graph: Graph, settings: Settings, cache: ProgramCache) -> tuple[Any, str]:
    exe = compile(graph, settings)
    plan = (exe.plan.choices, exe.plan.lines)
    return plan, cache.key(network_hash(graph), {}, Target.named(settings.target), settings)


@pytest.mark.parametrize("change", OTHERS)
def test_what_changes_a_plan_changes_the_key(change: str, tmp_path: Path) -> None:
    cache = ProgramCache(tmp_path)
    plan, key = plan_and_key(network(), SETTINGS, cache)
    assert plan_and_key(network(), SETTINGS, cache) == (plan, key)
    other_plan, other_key = plan_and_key(*OTHERS[change], cache)
    assert other_plan != plan and other_key != key
