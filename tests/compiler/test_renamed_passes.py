"""Passes under the names that they had before: read from wherever users have stored them, and said
once."""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compiler.test_every_pass import SHOWN, network
from verax.base.option_groups import deprecation
from verax.base.option_groups.deprecation import RENAMED_PASSES, first_pass, present_pass
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.pipeline import levels
from verax.compiler.pipeline.levels import kinds_of, passes_for, run_passes
from verax.records.recipe import Recipe

STORED = {
    "schema": "verax.recipe/2",
    "network": "6b5e5bcb9a8d94d630da042d5a6749c568e3faa49f07dfc5386c86b80646a26f",
    "arithmetic": 7,
    "rewritings": [
        {
            "name": "recognise_gelu",
            "ids": ["recognise_gelu@mul_1"],
            "notes": ["recognise_gelu: node 'mul_1' (Mul)"],
            "digest": "134abd68eb3e8b070d20074a4efb030b5fa70b45cb5d8ce7e8c916103872b9a2",
        }
    ],
    "algorithms": {},
    "opt_level": 2,
    "disable": ["canonicalise"],
    "require": [],
    "keep_exact": [],
    "passes": None,
    "steps": None,
    "allow": [],
    "inputs": {"x": "float32[2, 3, 9, 7]"},
    "verax": "0.1.0",
}
"""What Verax 0.1 wrote for the network that shows `recognize_gelu`."""
SHA256 = "d8b56ad8c666c6c98e5dde89d75826d735a7131665aabd68a37ba087123528f6"
"""And the hash that it gave it."""


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(deprecation, "_warned", set())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def test_every_new_name_is_a_pass_and_no_old_one_is() -> None:
    names = kinds_of(levels.PIPELINE).keys()
    assert set(RENAMED_PASSES.values()) <= names
    assert not RENAMED_PASSES.keys() & names


def test_ids_and_words_begin_with_the_name() -> None:
    assert present_pass("canonicalise@conv1#2") == "canonicalize@conv1#2"
    assert present_pass("canonicalise: a Split") == "canonicalize: a Split"
    assert present_pass("fold_pads@canonicalise") == "fold_pads@canonicalise"
    assert present_pass("") == "" and present_pass("canonicalises") == "canonicalises"
    assert all(first_pass(present_pass(old)) == old for old in RENAMED_PASSES)


def test_an_old_name_is_said_once() -> None:
    with pytest.warns(UserWarning, match="canonicalise is called canonicalize now"):
        present_pass("canonicalise")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        present_pass("canonicalise@conv1")
        present_pass("fold_pads")


@pytest.mark.parametrize("old", RENAMED_PASSES)
def test_settings_take_either_name(old: str) -> None:
    new = RENAMED_PASSES[old]
    for option in ("disable", "require", "passes", "steps"):
        asked, same = (
            Settings(2, **{option: (f"{name}@n" * (option == "steps") or name,)})
            for name in (old, new)
        )
        assert asked == same
    assert new not in {p.name for p in passes_for(Settings(2, disable=(old,)))}


def test_one_rewrite_is_selected_by_its_old_id_or_words() -> None:
    graph = network(SHOWN["recognize_gelu"][0])
    (one,) = (r for r in run_passes(graph, Settings(2))[1].records if "gelu" in r.pass_name)
    for text in (one.id, str(one)):
        chosen = Settings(2, steps=(text.replace("recognize", "recognise"),))
        assert [r.id for r in run_passes(graph, chosen)[1].records] == [one.id]


def test_a_stored_recipe_keeps_its_hash_and_is_followed() -> None:
    recipe = Recipe.from_json(json.dumps(STORED))
    assert recipe.sha256 == SHA256
    assert recipe.disable == ("canonicalize",)
    made = compile(network(SHOWN["recognize_gelu"][0]), Settings(2, threads=1)).recipe
    assert made.sha256 == SHA256 and recipe.differs(made) == ""
    assert "recognise" not in made.to_json()
    (done,) = made.rewritings
    other = dataclasses.replace(made, rewritings=(dataclasses.replace(done, ids=("x@mul_1",)),))
    assert recipe.differs(other) and other.sha256 != SHA256


def test_a_pass_of_a_user_may_name_and_replace_one(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(
        "from verax.compiler.passes.base import Pass, PassClass\n"
        "from verax.compiler.passes.canonicalize import canonicalize\n"
        "def canonicalise(graph, limit=None):\n"
        "    'Ours.'\n"
        "    return canonicalize(graph, limit)\n"
        "def later(graph, limit=None):\n"
        "    'Behind it.'\n"
        "    return canonicalize(graph, limit)\n"
        "PASSES = FIRST, SECOND = (Pass(canonicalise, PassClass.exact),\n"
        "    Pass(later, PassClass.exact, after=('canonicalise',)))\n"
    )
    passes = passes_for(Settings(1, inject=(str(file),)))
    names = [p.name for p in passes]
    assert names.count("canonicalize") == 1
    assert names.index("later") == names.index("canonicalize") + 1
    assert passes[names.index("canonicalize")].help == "Ours."
