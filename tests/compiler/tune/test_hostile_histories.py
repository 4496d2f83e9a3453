"""A history or its index with hostile lines: what is no schedule is passed over, and said."""

from __future__ import annotations

import json
import os
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
from tests.compiler.tune.test_tuning_lookup import OTHER, SPEC, TARGET, record, tuned
from tests.json_mutants import mutants

from verax.base.errors import UsageError
from verax.compiler.kernels import registry
from verax.compiler.tune import history
from verax.compiler.tune.history import LINE, History, chosen_line
from verax.compiler.tune.lookup import read_history

SOUND = json.dumps({"schema": LINE, **chosen_line(record())}, separators=(",", ":"))

FIRST = f'{{"schema":"{LINE}","kind":"measured"}}\n'.encode()
"""By which the file is known."""


def _asked(path: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        contents = read_history(path, named=False)
    found = tuned(*contents.schedules)
    assert isinstance(found.digest, str)
    asked = found.lookup()
    schedule = asked(SPEC)
    assert asked.summary
    return schedule


def _sound_or_none(path: Path) -> bool:
    schedule = _asked(path)
    assert schedule is None or registry.admits(SPEC, TARGET, schedule)
    return schedule is not None


def test_the_line_that_mutants_are_made_of_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    path.write_text(SOUND + "\n")
    assert _asked(path) == OTHER


@pytest.mark.parametrize("digits", [40, 401, 4000])
def test_a_gain_without_end_is_a_damaged_line(tmp_path: Path, digits: int) -> None:
    path = tmp_path / "h.jsonl"
    path.write_text(SOUND.replace('"gain":1.5', f'"gain":{"9" * digits}') + "\n" + SOUND + "\n")
    assert history.History(path).read().unreadable == 1
    assert _asked(path) == OTHER


def _mutated(folder: Path, seed: int, count: int) -> int:
    """How many mutants of a line still gave a schedule; anything raised ends the test."""
    path, taken = folder / "h.jsonl", 0
    for text in mutants(SOUND, seed, count):
        data = text.encode(errors="surrogatepass").replace(b"\n", b" ")
        path.write_bytes(FIRST + data + b"\n")
        try:
            taken += _sound_or_none(path)
        except UsageError:
            continue
    return taken


def test_mutants_of_a_line_are_taken_or_passed_over(tmp_path: Path) -> None:
    assert 5 < _mutated(tmp_path, 341, 400) < 390


@pytest.mark.slow
def test_thousands_of_mutants_of_a_line_are_taken_or_passed_over(tmp_path: Path) -> None:
    assert _mutated(tmp_path, 342, 2000)


def _with_index(folder: Path) -> tuple[Path, str]:
    path = folder / "h.jsonl"
    path.write_text(SOUND + "\n")
    found = History(path)
    found._write_index(found.read())
    return path, found.index_path.read_text()


@pytest.mark.parametrize("count", [300, pytest.param(2000, marks=pytest.mark.slow)])
def test_mutants_of_an_index_are_taken_or_made_again(tmp_path: Path, count: int) -> None:
    path, index = _with_index(tmp_path)
    for text in mutants(index, 343 + count, count):
        History(path).index_path.write_bytes(text.encode(errors="surrogatepass"))
        _sound_or_none(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
def test_a_pipe_in_place_of_a_history_or_its_index_is_not_waited_for(tmp_path: Path) -> None:
    path, _ = _with_index(tmp_path)
    index = History(path).index_path
    index.unlink()
    os.mkfifo(index)
    found: list[object] = []

    def ask() -> None:
        found.append(_asked(path))
        path.unlink()
        os.mkfifo(path)
        found.append(_asked(path))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(20)
    assert found == [OTHER, None]
