"""`verax check --replay` gives the same verdict, or says which file or version is another one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from PIL import Image

from tests.cli.conftest import Cli
from verax.records.verdict import Verdict


@pytest.fixture
def folder(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the model, an input, and the subject's recorded answers."""
    shutil.copy(tiny, tmp_path / "net.onnx")
    x = np.random.default_rng(0).uniform(size=(2, 1, 9, 7)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_replay_gives_the_same_verdict_with_the_same_figures(cli: Cli, folder: Path) -> None:
    found = cli("check", "net.onnx", "reference", "--input", "x.npy", "--json", "a.json")
    assert found.code == 0
    again = cli("check", "--replay", "a.json", "--json", "b.json")
    assert again.code == 0
    assert "the same answer, every figure the same" in again.out
    assert Path("a.json").read_text() == Path("b.json").read_text()


def test_drawn_inputs_and_options_are_replayed(cli: Cli, folder: Path) -> None:
    arguments = ("--seed", 5, "--shape", "n=3", "--no-watch", "--no-winograd")
    cli("check", "net.onnx", "reference", *arguments, "--json", "a.json")
    assert "every figure the same" in cli("check", "--replay", "a.json").out
    record = Verdict.from_json(Path("a.json").read_text())
    assert json.loads(record.replay["options"])["shape"] == ["n=3"]
    assert "float32[3, 1, 9, 7]" in record.inputs[0].type


def test_files_are_found_beside_the_record(
    cli: Cli,
    folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cli("check", "net.onnx", "reference", "--input", "image=x.npy", "--json", "a.json")
    moved = tmp_path_factory.mktemp("moved")
    for name in ("net.onnx", "x.npy", "a.json"):
        shutil.move(folder / name, moved / name)
    assert cli("check", "--replay", moved / "a.json").code == 0


@pytest.mark.parametrize("name", ["net.onnx", "x.npy"])
def test_a_changed_file_is_named(cli: Cli, folder: Path, name: str) -> None:
    cli("check", "net.onnx", "reference", "--input", "x.npy", "--json", "a.json")
    with open(name, "ab") as stream:
        stream.write(b"\0")
    found = cli("check", "--replay", "a.json")
    assert found.code == 2
    assert "not the one that the record was made from" in found.err and name in found.err


def test_a_missing_file_is_named(cli: Cli, folder: Path) -> None:
    cli("check", "net.onnx", "reference", "--input", "x.npy", "--json", "a.json")
    Path("x.npy").unlink()
    found = cli("check", "--replay", "a.json")
    assert found.code == 2 and "is gone" in found.err and "x.npy" in found.err


def test_weights_in_another_file_count_as_the_model(cli: Cli, folder: Path) -> None:
    model = onnx.load("net.onnx")
    onnx.save(model, "big.onnx", save_as_external_data=True, location="big.data", size_threshold=0)
    cli("check", "big.onnx", "reference", "--json", "a.json")
    data = np.fromfile("big.data", np.float32)
    data[0] += 1
    data.tofile("big.data")
    found = cli("check", "--replay", "a.json")
    assert found.code == 2 and "means another network" in found.err


def test_another_answer_is_told_and_has_its_own_exit_code(cli: Cli, folder: Path) -> None:
    np.savez("own.npz", image=np.load("x.npy"))
    cli("run", "net.onnx", "--input", "x.npy", "-o", "own.npz")
    cli("check", "net.onnx", "own.npz", "--input", "x.npy", "--json", "a.json")
    data = json.loads(Path("a.json").read_text())
    data["kind"], data["environment"]["numpy"] = "mistake", "0.1"
    Path("a.json").write_text(json.dumps(data))
    found = cli("check", "--replay", "a.json")
    assert found.code == 3
    assert "NOT the same answer: the answer was mistake" in found.out
    assert "since then: numpy was 0.1" in found.out


def test_records_that_cannot_be_replayed_are_refused(cli: Cli, folder: Path) -> None:
    Path("a.json").write_text('{"schema": "verax.profile/1"}')
    assert "no record that can be replayed" in cli("check", "--replay", "a.json").err
    Path("a.json").write_text("nothing")
    assert cli("check", "--replay", "a.json").code == 2
    assert cli("check", "--replay", "gone.json").code == 2
    cli("check", "net.onnx", "reference", "--json", "a.json")
    data = json.loads(Path("a.json").read_text())
    data["replay"] = {}
    Path("a.json").write_text(json.dumps(data))
    assert "does not say how it was made" in cli("check", "--replay", "a.json").err
    assert cli("check", "net.onnx", "--replay", "a.json").code == 2
    assert "which model?" in cli("check").err


def test_alignments_are_replayed(cli: Cli, folder: Path) -> None:
    assert cli("check", "net.onnx", "net.onnx", "--json", "a.json").code == 0
    assert "every figure the same" in cli("check", "--replay", "a.json").out


@pytest.fixture
def photos(folder: Path) -> Path:
    """Five pictures, one of them damaged, and a text."""
    (folder / "photos" / "deep").mkdir(parents=True)
    for i in range(4):
        pixels = np.random.default_rng(i).integers(0, 256, (9, 7), np.uint8)
        name = f"deep/{i}.png" if i == 3 else f"{i}.png"
        Image.fromarray(pixels).save(folder / "photos" / name)
    (folder / "photos" / "bad.png").write_bytes(b"nothing")
    (folder / "photos" / "notes.txt").write_text("x")
    return folder / "photos"


def test_a_folder_of_images_is_compared_choice_by_choice(cli: Cli, photos: Path) -> None:
    found = cli("check", "net.onnx", "reference", "--images", "photos", "--json", "a.json")
    assert found.code == 0
    assert "4 of 4 images" in found.out and "bad.png" in found.out
    again = cli("check", "--replay", "a.json")
    assert again.code == 0 and "every figure the same" in again.out
    (photos / "4.png").write_bytes((photos / "0.png").read_bytes())
    assert "the record does not know this input" in cli("check", "--replay", "a.json").err
    (photos / "4.png").unlink()
    (photos / "1.png").write_bytes((photos / "0.png").read_bytes())
    assert "1.png" in cli("check", "--replay", "a.json").err


def test_images_go_alone(cli: Cli, photos: Path) -> None:
    found = cli("check", "net.onnx", "reference", "--images", "photos", "--input", "x.npy")
    assert found.code == 2 and "do not go with it" in found.err
    assert "no such folder" in cli("check", "net.onnx", "reference", "--images", "none").err
    (photos / "empty").mkdir()
    found = cli("check", "net.onnx", "reference", "--images", "photos/empty")
    assert found.code == 2 and "holds no image" in found.err
