"""A record or recipe from a stranger is read as what it declares, or refused in words."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable
from typing import Any, get_type_hints

import pytest
from tests.json_mutants import DEEP, mutants
from tests.records.test_verdict_record import example

import verax.records
from verax.base.errors import UsageError, VeraxError
from verax.records.codec import from_plain, to_plain
from verax.records.recipe import Recipe, Rewriting
from verax.records.verdict import Verdict
from verax.report import render_verdict

RECIPE = Recipe(
    "ab" * 32,
    6,
    (Rewriting("fold_scales", ("fold_scales@a", "d"), ("fold_scales: a into b", "c"), "cd" * 32),),
    {"conv0": "Winograd F(4x4, 3x3)"},
    3,
    disable=("a",),
    passes=("b", "c"),
    inputs={"x": "float32[2, 3]"},
    verax="0.1",
)


# Every leaf of every record


def record_types() -> list[type]:
    found: dict[str, type] = {}
    for info in pkgutil.iter_modules(verax.records.__path__):
        module = importlib.import_module(f"verax.records.{info.name}")
        found |= {k: v for k, v in vars(module).items() if dataclasses.is_dataclass(v)}  # type: ignore[misc]
    return [found[name] for name in sorted(found) if hasattr(found[name], "from_json")]


@pytest.mark.parametrize("kind", record_types(), ids=lambda k: k.__name__)
@pytest.mark.parametrize("value", [None, True, 7, 10**400, 1.5, "x", [], {}, [[]]], ids=repr)
def test_no_member_of_another_type_is_taken(kind: type, value: Any) -> None:
    """Read back as it was written, or refused: never kept as something that it is not."""
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        try:
            made = from_plain(hints[field.name], value)
        except UsageError:
            continue
        number = isinstance(value, int) and isinstance(made, float)
        assert number or (to_plain(made) == value and type(to_plain(made)) is type(value))


@pytest.mark.parametrize("text", [DEEP, '{"schema": ' + DEEP + "}", "9" * 5000, "NaN", "\ud800"])
def test_text_that_no_parser_likes_is_refused(text: str) -> None:
    for read in (Verdict.from_json, Recipe.from_json):
        with pytest.raises(UsageError):
            read(text)


def _read_and_shown(text: str) -> None:
    found = Verdict.from_json(text)
    assert Verdict.from_json(found.to_json()) is not None
    str(render_verdict(found, verbose=True))


def _recipe(text: str) -> None:
    found = Recipe.from_json(text)
    assert found.sha256 and str(found) and found.differs(RECIPE) is not None
    assert Recipe.from_json(found.to_json()) == found


READERS: dict[str, tuple[Callable[[], str], Callable[[str], None]]] = {
    "verdict": (lambda: example().to_json(), _read_and_shown),
    "recipe": (RECIPE.to_json, _recipe),
}


def _survives(act: Callable[[], object]) -> bool:
    try:
        act()
    except VeraxError:
        return False
    return True


def _judged_alike(name: str, seed: int, count: int) -> tuple[int, int]:
    """How many mutants were read, and how many refused; anything else raises."""
    made, read = READERS[name]
    passed = [_survives(lambda t=text: read(t)) for text in mutants(made(), seed, count)]  # type: ignore[misc]
    return sum(passed), len(passed) - sum(passed)


@pytest.mark.parametrize("name", READERS)
def test_mutants_are_read_or_refused(name: str) -> None:
    read, refused = _judged_alike(name, 34, 2000 if name == "recipe" else 300)
    assert read > 10 and refused > 100


@pytest.mark.slow
def test_thousands_of_mutants_are_read_or_refused() -> None:
    read, refused = _judged_alike("verdict", 35, 2000)
    assert read and refused


# Whole numbers are bounded alike when they are written


@pytest.mark.parametrize("seed", [2**64, -(2**64), 10**400], ids=["2**64", "-2**64", "10**400"])
def test_what_could_not_be_read_is_not_written(seed: int) -> None:
    with pytest.raises(UsageError, match="at most 64 bits"):
        dataclasses.replace(example(), seed=seed).to_json()
    whole = dataclasses.replace(example(), seed=2**64 - 1)
    assert Verdict.from_json(whole.to_json()) == whole
