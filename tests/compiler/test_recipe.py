"""What decides a program's numbers is a record that gives the same bits again, or is refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import verax
from verax.base.errors import CompileError, ModelError, UsageError, VeraxError
from verax.base.option_groups.settings import Settings
from verax.compiler.artifacts.saved_program import SavedExecutable
from verax.compiler.compile import compile
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.ops.pointwise.activation import Relu
from verax.ops.pointwise.arithmetic import Add
from verax.ops.sums.normalization import BatchNormalization
from verax.ops.windows.convolution import Conv
from verax.records.recipe import Recipe

PADS = ((1, 1), (1, 1))


def network(seed: int = 11, rows: int | str = 18) -> Graph:
    """Two blocks of 3x3 convolution and BatchNormalization (some scales negative), a sum."""
    rng = np.random.default_rng(seed)
    b = Builder("net")
    x = b.input("x", TensorType.parse(f"float32[2, 24, {rows}, 23]"))
    value = x
    for i in range(2):
        w = (rng.standard_normal((24, 24, 3, 3)) / 15).astype(np.float32)
        value = b.add(Conv(pads=PADS), [value, b.constant(w, f"w{i}")], [f"c{i}"], f"conv{i}")
        stats = [rng.standard_normal(24), rng.standard_normal(24), rng.standard_normal(24)]
        arrays = [*stats, rng.uniform(0.5, 2, 24)]
        names = [b.constant(a.astype(np.float32), f"p{i}{j}") for j, a in enumerate(arrays)]
        value = b.add(BatchNormalization(), [value, *names], [f"n{i}"], f"norm{i}")
        value = b.add(Relu(), [value], [f"a{i}"], f"act{i}")
    return b.graph([b.add(Add(), [value, x], ["y"], "sum")])


def data(rows: int = 18) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(12).standard_normal((2, 24, rows, 23), np.float32)}


def test_it_says_what_decides_numbers() -> None:
    recipe = compile(network(), Settings(opt_level=3)).recipe
    assert [r.name for r in recipe.rewritings] == ["fold_scales", "choose_winograd"]
    assert recipe.algorithms == {c: "Winograd F(4x4, 3x3)" for c in ("conv0", "conv1")}
    assert "conv1: Winograd F(4x4, 3x3)" in str(recipe)
    assert recipe.sha256 in str(recipe)
    assert Recipe.from_json(recipe.to_json()) == recipe
    assert Recipe.from_json(recipe.to_json()).sha256 == recipe.sha256


def test_it_follows_from_network_and_options_alone() -> None:
    asked = Settings(opt_level=3)
    one = compile(network(), asked).recipe
    for other in (
        dataclasses.replace(asked, threads=3),
        dataclasses.replace(asked, target="avx2"),
        dataclasses.replace(asked, disable=("fuse_elementwise", "share_constants")),
        dataclasses.replace(asked, checked=True),
    ):
        assert compile(network(), other).recipe.sha256 == one.sha256


def test_levels_of_the_same_bits_have_one_hash_and_others_their_own() -> None:
    hashes = [compile(network(), Settings(opt_level=n)).recipe.sha256 for n in range(4)]
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3
    kept = compile(network(), Settings(opt_level=3, keep_exact=("conv0",))).recipe
    assert kept.sha256 not in hashes
    assert list(kept.algorithms) == ["conv1"]
    assert compile(network(seed=13), Settings(opt_level=3)).recipe.sha256 not in hashes


@pytest.mark.parametrize("level", range(4))
@pytest.mark.parametrize("kept", [(), ("conv1",)])
def test_following_it_gives_the_same_bits(level: int, kept: tuple[str, ...]) -> None:
    graph = network()
    first = compile(graph, Settings(opt_level=level, keep_exact=kept))
    again = compile(graph, Settings(threads=2, target="avx2"), recipe=first.recipe)
    assert again.recipe == first.recipe
    a, b = first.run(data())["y"], again.run(data())["y"]
    np.testing.assert_array_equal(a.view(np.int32), b.view(np.int32))


def test_one_that_cannot_be_followed_is_refused() -> None:
    recipe = compile(network(), Settings(opt_level=3)).recipe
    with pytest.raises(CompileError, match="another network"):
        compile(network(seed=14), recipe=recipe)
    old = dataclasses.replace(recipe, arithmetic=0)
    with pytest.raises(CompileError, match="its arithmetic is version 0"):
        compile(network(), recipe=old)
    fold, choose = recipe.rewritings
    changed = dataclasses.replace(fold, digest="0" * 64)
    with pytest.raises(CompileError, match="fold_scales differs: it makes other numbers"):
        compile(network(), recipe=dataclasses.replace(recipe, rewritings=(changed, choose)))
    fewer = dataclasses.replace(choose, ids=choose.ids[:1], notes=choose.notes[:1])
    with pytest.raises(CompileError, match=r"choose_winograd differs: .*conv1"):
        compile(network(), recipe=dataclasses.replace(recipe, rewritings=(fold, fewer)))
    with pytest.raises(CompileError, match="choose_winograd rewrites nothing in it"):
        compile(network(), recipe=dataclasses.replace(recipe, rewritings=(fold,)))


def reworded(recipe: Recipe) -> Recipe:
    """The same recipe by a version that describes its rewrites otherwise."""
    done = [
        dataclasses.replace(r, notes=tuple(f"{n}, said otherwise" for n in r.notes))
        for r in recipe.rewritings
    ]
    return dataclasses.replace(recipe, rewritings=tuple(done))


def test_the_words_for_a_rewrite_decide_nothing() -> None:
    recipe = compile(network(), Settings(opt_level=3)).recipe
    assert all(r.ids and len({*r.ids}) == len(r.ids) for r in recipe.rewritings)
    other = reworded(recipe)
    assert other.sha256 == recipe.sha256 and not recipe.differs(other)
    assert compile(network(), recipe=other).recipe == recipe


def test_a_record_of_before_there_were_ids_is_followed() -> None:
    recipe = compile(network(), Settings(opt_level=3)).recipe
    data = json.loads(recipe.to_json())
    assert data["schema"] == "verax.recipe/2"
    for one in data["rewritings"]:
        del one["ids"]
    old = Recipe.from_json(json.dumps({**data, "schema": "verax.recipe/1"}))
    assert not any(r.ids for r in old.rewritings)
    assert compile(network(), recipe=old).recipe == recipe
    with pytest.raises(CompileError, match="fold_scales differs: fold_scales: node 'norm0'"):
        compile(network(), recipe=reworded(old))
    without = json.dumps({**data, "schema": "verax.recipe/2"})
    with pytest.raises(UsageError, match="no ids"):
        Recipe.from_json(without)


def test_open_shapes_are_held_to_it_when_they_are_known() -> None:
    graph = network(rows="n")
    first = compile(graph, Settings(opt_level=2))
    first.run(data(18))
    again = compile(graph, recipe=first.recipe)
    again.run(data(18))
    with pytest.raises(CompileError, match="other shapes"):
        again.run(data(19))


def test_files_hold_it(tmp_path: Path) -> None:
    graph = network()
    exe = verax.compile(graph, opt_level=3)
    exe.save(tmp_path / "net.vx")
    saved = verax.load(tmp_path / "net.vx")
    assert isinstance(saved, SavedExecutable)
    assert saved.recipe == exe.recipe
    (tmp_path / "recipe.json").write_text(exe.recipe.to_json())
    for source in (tmp_path / "net.vx", str(tmp_path / "recipe.json"), exe.recipe):
        assert verax.compile(graph, recipe=source).recipe == exe.recipe


def test_bad_recipes_are_usage_errors(tmp_path: Path) -> None:
    graph = network()
    recipe = verax.compile(graph).recipe
    with pytest.raises(UsageError, match="which passes run"):
        verax.compile(graph, recipe=recipe, opt_level=2)
    (tmp_path / "other.json").write_text('{"schema": "verax.verdict/1"}')
    (tmp_path / "broken.vx").write_bytes(b"nothing")
    for name, kind in (("none.json", UsageError), ("other.json", UsageError),
                       ("broken.vx", ModelError)):  # fmt: skip
        with pytest.raises(VeraxError) as caught:
            verax.compile(graph, recipe=tmp_path / name)
        assert isinstance(caught.value, kind)
