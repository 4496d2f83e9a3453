"""Sizes that a file leaves open stay symbols until they are given, in every format alike."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from tests.formats.open_files import OPEN
from tests.formats.small_files import tf_conv, written

import verax
from verax.base.errors import UsageError, VeraxError
from verax.cli.main import main

KINDS = pytest.mark.parametrize("kind", OPEN)


def path_of(kind: str, folder: Path) -> Path:
    return written(folder, OPEN[kind][0]())


@KINDS
def test_open_sizes_are_symbols_and_the_others_numbers(kind: str, tmp_path: Path) -> None:
    _, name, opened, sizes = OPEN[kind]
    model = verax.load(path_of(kind, tmp_path))
    dims = model.inputs[name].dims
    assert [not isinstance(d, int) for d in dims] == list(opened)
    assert all(d == size for d, size, o in zip(dims, sizes, opened) if not o)
    (output,) = model.outputs.values()
    assert not output.is_static, "what follows from a symbol is an expression"


@KINDS
def test_given_sizes_resolve_every_expression_to_the_same_numbers(
    kind: str, tmp_path: Path
) -> None:
    """Importing with sizes, and running a model whose sizes are symbols, agree."""
    path, (_, name, _, sizes) = path_of(kind, tmp_path), OPEN[kind]
    given = verax.load(path, shapes={name: sizes})
    assert given.inputs[name].shape == sizes and given.inputs[name].is_static
    x = {name: np.random.default_rng(1).standard_normal(sizes, dtype=np.float32)}
    loose = verax.reference(verax.load(path), x)
    for key, want in verax.reference(given, x).items():
        assert want.shape == given.outputs[key].shape
        np.testing.assert_array_equal(loose[key], want)


@KINDS
def test_some_sizes_may_be_given(kind: str, tmp_path: Path) -> None:
    _, name, opened, sizes = OPEN[kind]
    first = opened.index(True)
    part = tuple(size if i == first else None for i, size in enumerate(sizes))
    dims = verax.load(path_of(kind, tmp_path), shapes={name: part}).inputs[name].dims
    assert dims[first] == sizes[first]
    assert [not isinstance(d, int) for d in dims] == [
        o and i != first for i, o in enumerate(opened)
    ]


@KINDS
def test_sizes_that_do_not_fit_are_refused(kind: str, tmp_path: Path) -> None:
    path, (_, name, opened, sizes) = path_of(kind, tmp_path), OPEN[kind]
    fixed = opened.index(False)
    conflict = tuple(s + (i == fixed) for i, s in enumerate(sizes))
    for shape in ((*sizes, 2), sizes[:-1], (), conflict, tuple(-s for s in sizes)):
        with pytest.raises(UsageError) as caught:
            verax.load(path, shapes={name: shape})
        assert repr(name) in caught.value.place and str(shape) in caught.value.cause
    with pytest.raises(UsageError, match="no input or dimension 'nope'") as caught:
        verax.load(path, shapes={"nope": sizes})
    assert name in caught.value.next_step


@KINDS
def test_the_command_line_shows_and_takes_them(
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path, (_, name, _, sizes) = path_of(kind, tmp_path), OPEN[kind]
    symbolic = str(verax.load(path).inputs[name])

    def inspected(*arguments: str) -> str:
        monkeypatch.setenv("COLUMNS", "240")
        monkeypatch.setattr(sys, "argv", ["verax", "inspect", str(path), *arguments])
        main_exits_well()
        return capsys.readouterr().out

    assert symbolic in inspected()
    assert str(list(sizes)) in inspected("--shape", f"{name}={'x'.join(map(str, sizes))}")
    assert str(list(sizes)) in inspected("--shape", f"{name}={','.join(map(str, sizes))}")


def main_exits_well() -> None:
    try:
        main()
    except SystemExit as end:
        assert not end.code


def test_an_unknown_rank_is_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path, tf_conv(None))
    with pytest.raises(VeraxError, match="how many dimensions") as caught:
        verax.load(path)
    assert "shapes=" in caught.value.next_step
    assert verax.load(path, shapes={"x": (2, 9, 8, 3)}).inputs["x"].shape == (2, 9, 8, 3)
    assert not verax.load(path, shapes={"x": (None, 9, None, 3)}).inputs["x"].is_static
