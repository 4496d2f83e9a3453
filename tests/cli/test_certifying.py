"""`compile --certify`, `--recipe`, and what `inspect` shows of a program."""

from __future__ import annotations

from pathlib import Path

import verax
from tests.compiler.test_recipe import network
from verax.compiler.artifacts.saved_program import SavedExecutable
from verax.export.onnx.writer import write_onnx

from .conftest import Cli


def test_the_command_writes_it_and_inspect_shows_it(cli: Cli, tmp_path: Path) -> None:
    model, program = tmp_path / "net.onnx", tmp_path / "net.vx"
    write_onnx(network(), model)
    word, recipe = tmp_path / "word.md", tmp_path / "recipe.json"
    done = cli("compile", model, "-o", program, "-O3", "--certify", "--certificate", word,
               "--write-recipe", recipe)  # fmt: skip
    assert done.code == 0, done
    assert "certificate holds: O3" in done.out
    assert "the certificate holds" in word.read_text()
    saved = verax.load(program)
    assert isinstance(saved, SavedExecutable)
    assert saved.certificate is not None and saved.recipe is not None
    assert saved.certificate.recipe == saved.recipe.sha256
    shown = cli("inspect", program)
    assert "certificate holds: O3" in shown.out
    assert saved.recipe.sha256 in shown.out
    again = cli("compile", model, "-o", tmp_path / "again.vx", "--recipe", recipe)
    assert again.code == 0, again
    assert saved.recipe.sha256 in again.out


def test_contradictions_are_usage_errors(cli: Cli, tmp_path: Path) -> None:
    model, recipe = tmp_path / "net.onnx", tmp_path / "recipe.json"
    write_onnx(network(), model)
    recipe.write_text(verax.compile(network(seed=15)).recipe.to_json())
    to = ("compile", model, "-o", tmp_path / "net.vx")
    for words, extra in (
        ("which passes run", ("--recipe", recipe, "-O2")),
        ("cannot be followed: it belongs to another network", ("--recipe", recipe)),
        ("add --certify", ("--certificate", tmp_path / "word.md")),
        ("cannot read the recipe", ("--recipe", tmp_path / "none.json")),
    ):
        found = cli(*to, *extra)
        assert found.code == 2 and words in found.err, found
    assert not (tmp_path / "net.vx").exists()
