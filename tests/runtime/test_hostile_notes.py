"""Notes of a .vx file that somebody changed: read as what they are, or refused in words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.json_mutants import mutants
from tests.runtime.vx_mutations import Parts, in_python

import verax
from verax.base.errors import VeraxError
from verax.base.option_groups.settings import Settings
from verax.compiler.artifacts.save import read_recipe
from verax.compiler.artifacts.saved_program import SavedExecutable
from verax.compiler.pipeline.recipe import follow
from verax.records.certificate import Certificate, CertifiedLayer, Draw, Output
from verax.records.recipe import Recipe
from verax.records.verdict import InputRecord, Kind


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A program with a node in Python, a recipe and a certificate."""
    path = tmp_path_factory.mktemp("vx") / "a.vx"
    exe = verax.compile(in_python(), cache=False, threads=1)
    exe.certificate = _certificate(exe.recipe)
    exe.save(path)
    return path.read_bytes()


def _certificate(recipe: Recipe) -> Certificate:
    """One with something in every part."""
    output = Output("y", "float32[2, 3]", Kind.rounding, "why", 0.5, 2.0, 0.25, 1.5, 0.75)
    draw = Draw(
        (InputRecord("x", "float32[3, 5]", "ab" * 32, "drawn"),),
        {"rounding": 3},
        (CertifiedLayer("conv", "Winograd F(2x2, 3x3)", 0.25, Kind.rounding),),
        (output,),
        {"n": "why not"},
    )
    return Certificate(recipe.sha256, recipe.network, 1, (draw,), (draw,), {"a": "b"}, 1e-3)


def _read(path: Path) -> None:
    """All that can be asked of notes, without running the program."""
    found = SavedExecutable(path, threads=1)
    assert isinstance(found.graph_text, str) and all(isinstance(p, str) for p in found.plan)
    for ask in (lambda: found.recipe, lambda: found.certificate, lambda: read_recipe(path)):
        try:
            record = ask()
        except VeraxError:
            continue
        if record is not None:
            assert str(record) and type(record).from_json(record.to_json()) == record
        if isinstance(record, Recipe):
            assert record.sha256 and not record.differs(record)
            assert follow(record, Settings()).opt_level == record.opt_level


def _count(sound: bytes, path: Path, seed: int, count: int) -> int:
    """How many mutants were read."""
    read = 0
    notes = json.dumps(Parts(sound).header["notes"])
    assert '"recipe"' in notes and '"certificate"' in notes and '"nodes": {"' in notes
    for text in mutants(notes, seed, count):
        parts = Parts(sound)
        parts.header["notes"] = "HERE"
        parts.assembled()  # the table of sections as it has to be
        header = json.dumps(parts.header).replace('"HERE"', text)
        path.write_bytes(parts.assembled(header.encode(errors="surrogatepass"), tables=False))
        try:
            _read(path)
        except VeraxError:
            continue
        read += 1
    return read


def test_mutants_of_notes_are_read_or_refused(sound: bytes, tmp_path: Path) -> None:
    assert 10 < _count(sound, tmp_path / "m.vx", 344, 240) < 200


@pytest.mark.slow
def test_thousands_of_mutants_of_notes_are_read_or_refused(sound: bytes, tmp_path: Path) -> None:
    assert _count(sound, tmp_path / "m.vx", 345, 2000)
