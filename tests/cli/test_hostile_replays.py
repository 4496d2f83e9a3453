"""A stranger's record ends in an answer or an error of ours, and runs no code unasked."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.cli.conftest import Cli
from tests.json_mutants import mutants
from verax.base.errors import VeraxError
from verax.cli.judging import Request
from verax.cli.work.check import judge_again
from verax.replay import ReplayOptions, differences, read_record, same_answer


@pytest.fixture
def folder(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(tiny, tmp_path / "net.onnx")
    (tmp_path / "photos").mkdir()
    for i in range(2):
        pixels = np.random.default_rng(i).integers(0, 256, (9, 7), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{i}.png")
    monkeypatch.chdir(tmp_path)
    return tmp_path


KINDS = {
    "verdict": ("reference",),
    "alignment": ("net.onnx",),
    "agreement": ("reference", "--images", "photos"),
}


def _recorded(cli: Cli, kind: str) -> str:
    cli("check", "net.onnx", *KINDS[kind], "--json", f"{kind}.json")
    return Path(f"{kind}.json").read_text()


def _is_taken(act: Callable[[], object]) -> bool:
    """Whether it is not refused; anything but an error of ours is raised."""
    try:
        act()
    except VeraxError:
        return False
    return True


def _prepared(text: str) -> None:
    """All of a replay but the judging."""
    path = Path("mutant.json")
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    old = read_record(path)
    replay = ReplayOptions.from_text(old.replay, str(path))
    request = Request.from_options(replay.options)
    assert isinstance(request.programs, tuple) and isinstance(request.files, tuple)
    request.with_paths(replay.located(path.absolute().parent))
    assert differences(old, old) == [] and same_answer(old, old)


@pytest.mark.parametrize("kind", KINDS)
def test_mutants_of_replays_are_taken_or_refused(cli: Cli, folder: Path, kind: str) -> None:
    text = _recorded(cli, kind)
    _prepared(text)
    passed = [_is_taken(lambda t=t: _prepared(t)) for t in mutants(text, 36, 200)]  # type: ignore[misc]
    assert 5 < sum(passed) < 150


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_thousands_of_mutants_are_replayed_or_refused(cli: Cli, folder: Path, kind: str) -> None:
    for mutant in mutants(_recorded(cli, kind), 37, 2000):
        Path("mutant.json").write_text(mutant, encoding="utf-8", errors="surrogatepass")
        _is_taken(lambda: judge_again(Path("mutant.json"), False, False, (None, None, None)))


@pytest.mark.parametrize(
    "options",
    [
        {"threads": 10**9},
        {"threads": -1},
        {"seed": -1},
        {"steps": 0},
        {"timeout": -1.0},
        {"timeout": "nan"},
        {"require_power": "nan"},
        {"unheard_of": 1},
        {"shape": "n=1"},
        {"inject": [7]},
        {"model": None},
        {"memory": "9" * 400 + "G"},
        {"image": "x" * 70_000},
        {"subject": "a\0b"},
        {"model": "m" * 5000 + ".onnx"},
    ],
    ids=lambda o: str(o)[:40],
)
def test_hostile_options_are_refused(cli: Cli, folder: Path, options: dict[str, Any]) -> None:
    record = json.loads(_recorded(cli, "verdict"))
    told = {**json.loads(record["replay"]["options"]), **options}
    record["replay"]["options"] = json.dumps(told)
    Path("a.json").write_text(json.dumps(record))
    found = cli("check", "--replay", "a.json")
    assert found.code == 2 and "bug" not in found.err


# Code in records


def _naming(cli: Cli, options: dict[str, Any]) -> None:
    """Write a.json, a sound record, with other options."""
    record = json.loads(_recorded(cli, "verdict"))
    told = {**json.loads(record["replay"]["options"]), **options}
    record["replay"]["options"] = json.dumps(told)
    Path("a.json").write_text(json.dumps(record))


SCRIPT = "import pathlib\npathlib.Path('ran').write_text('')\n"


@pytest.mark.parametrize("option", ["subject", "other"])
def test_a_command_in_a_record_is_shown_and_not_run(cli: Cli, folder: Path, option: str) -> None:
    command = f"cmd:{shlex.quote(sys.executable)} -c \"open('ran', 'w')\""
    _naming(cli, {option: command})
    found = cli("check", "--replay", "a.json")
    assert (
        found.code == 2
        and "--allow-commands" in found.err
        and command in found.err.replace("\\'", "'")
    )
    assert not Path("ran").exists()
    cli("check", "--replay", "a.json", "--allow-commands")
    assert Path("ran").exists()


def test_a_file_of_python_in_a_record_is_shown_and_not_run(cli: Cli, folder: Path) -> None:
    Path("own.py").write_text(SCRIPT)
    _naming(cli, {"subject": "verax:O1", "inject": ["own.py"]})
    found = cli("check", "--replay", "a.json")
    assert found.code == 2 and "own.py" in found.err and "--allow-commands" in found.err
    assert not Path("ran").exists()
    found = cli("check", "--replay", "a.json", "--allow-commands")
    assert Path("ran").exists() and "this runs 'own.py'" in found.err


@pytest.mark.parametrize("subject", ["net.vx", "torch:net.pt2", "torch-compiled", "tensorflow:d"])
def test_so_are_compiled_programs_and_files_whose_loaders_run_code(
    cli: Cli,
    folder: Path,
    subject: str,
) -> None:
    _naming(cli, {"subject": subject})
    found = cli("check", "--replay", "a.json")
    assert found.code == 2 and subject in found.err and "--allow-commands" in found.err


def test_leave_for_commands_belongs_to_replays(cli: Cli, folder: Path) -> None:
    assert cli("check", "net.onnx", "reference", "--allow-commands").code == 2
