"""`verax evaluate` on the command line: what it prints, its exit codes, and every bad input."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cli.conftest import Cli
from verax.records.evaluation import EvaluationRecord


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Twelve pictures [9, 7] in the sub-folders 0 to 3 of a folder."""
    random = np.random.default_rng(60)
    for i in range(12):
        place = tmp_path / "data" / str(i % 4)
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (9, 7), np.uint8)).save(place / f"{i:02}.png")
    return tmp_path / "data"


@pytest.fixture
def loose(tmp_path: Path) -> Path:
    """Five pictures in a folder without sub-folders."""
    random, folder = np.random.default_rng(61), tmp_path / "loose"
    folder.mkdir()
    for name in "abcde":
        Image.fromarray(random.integers(0, 256, (9, 7), np.uint8)).save(folder / f"{name}.png")
    return folder


def test_a_folder_of_folders(cli: Cli, tiny: Path, data: Path, tmp_path: Path) -> None:
    record = tmp_path / "r.json"
    done = cli("evaluate", tiny, "--data", data, "--against", "verax:O0", "--json", record)
    assert done.code == 0, done.err
    found = EvaluationRecord.from_json(record.read_text())
    assert found.samples == 12 and found.accuracy.k == 4 and found.comparison is not None
    assert f"{found.accuracy.top1.right} of 12" in done.out and "% (with 95 % conf" in done.out
    assert "the same choice on 12 of 12 samples" in done.out
    assert found.comparison.largest == 0.0  # O0 and O1 promise the same bits


def test_labels_in_every_form_mean_the_same(
    cli: Cli, tiny: Path, loose: Path, tmp_path: Path
) -> None:
    labels, names = [3, 0, 1, 1, 2], "abcde"
    words = ["dog", "ant", "bee", "bee", "cat"]
    files = {
        "pairs.csv": "file,class\n"
        + "".join(f"{n}.png,{v}\n" for n, v in sorted(zip(names, labels), reverse=True)),
        "blanks.txt": "".join(f"{n}.png {v}\n" for n, v in zip(names, labels)),
        "plain.txt": "\n".join(map(str, labels)),
        "words.txt": "\n".join(words),
    }
    results = []
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    np.save(tmp_path / "labels.npy", labels)
    for name in [*files, "labels.npy"]:
        record = tmp_path / f"{name}.json"
        done = cli(
            *("evaluate", tiny, "--data", loose, "--labels", tmp_path / name, "--json", record)
        )
        assert done.code == 0, done.err
        assert ("alphabetical order" in done.out) == (name == "words.txt")
        found = EvaluationRecord.from_json(record.read_text())
        results.append((found.accuracy, found.hashes))
    assert all(result == results[0] for result in results)


def test_a_list_of_classes_says_what_names_mean(
    cli: Cli, tiny: Path, loose: Path, tmp_path: Path
) -> None:
    (tmp_path / "labels.txt").write_text("b\nb\na\nb\na\n")
    (tmp_path / "classes.txt").write_text("z\na\ny\nb\n")
    (tmp_path / "numbers.txt").write_text("3\n3\n1\n3\n1\n")
    hashes = []
    for labels, more in (
        ("labels.txt", ["--classes", tmp_path / "classes.txt"]),
        ("numbers.txt", []),
    ):
        record = tmp_path / "r.json"
        options = ["--labels", tmp_path / labels, *more, "--json", record]
        assert cli("evaluate", tiny, "--data", loose, *options).code == 0
        hashes.append(EvaluationRecord.from_json(record.read_text()).hashes["labels"])
    assert hashes[0] == hashes[1]


def test_arrays_of_an_npz_are_guessed_aloud_or_named(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    random = np.random.default_rng(62)
    pictures = random.integers(0, 256, (10, 9, 7), np.uint8)
    file = tmp_path / "d.npz"
    np.savez(file, images=pictures, labels=random.integers(0, 4, 10))
    done = cli("evaluate", tiny, "--data", file)
    guess = "assumed, as nobody says: 'images' are the samples, 'labels' the labels"
    assert done.code == 0 and guess in " ".join(done.out.split())
    np.savez(file, p=pictures, q=pictures, a=np.zeros(10, int), b=np.ones(10, int))
    assert "2 of the arrays could be the samples" in cli("evaluate", tiny, "--data", file).err
    done = cli("evaluate", tiny, "--data", file, "--arrays", "q,b")
    assert done.code == 0 and "are the samples" not in " ".join(done.out.split())
    done = cli("evaluate", tiny, "--data", file, "--arrays", "q,nothing")
    assert done.code == 2 and "there is no array 'nothing'" in done.err


METRIC = """
import numpy as np

def both(predictions, labels):
    return {"right": (predictions.argmax(1) == labels).sum(), "width": predictions.shape[1]}

def fails(predictions, labels):
    wrong = labels[0]
    return predictions[1000, 0]

def text(predictions, labels):
    return "good"
"""


def test_a_metric_of_ones_own(cli: Cli, tiny: Path, data: Path, tmp_path: Path) -> None:
    file, record = tmp_path / "my.py", tmp_path / "r.json"
    file.write_text(METRIC)

    def with_metric(name: str) -> tuple[int, str]:
        options = ["--metric", f"{file}:{name}", "--json", record]
        done = cli("evaluate", tiny, "--data", data, "--against", "reference", *options)
        return done.code, done.err

    assert with_metric("both")[0] == 0
    found = EvaluationRecord.from_json(record.read_text())
    assert found.accuracy.metrics == {"right": found.accuracy.top1.right, "width": 4.0}
    assert found.comparison is not None
    assert set(found.comparison.accuracy.metrics) == {"right", "width"}
    code, said = with_metric("fails")
    assert code == 2 and f"{file}:9" in said and "IndexError" in said
    code, said = with_metric("text")
    assert code == 2 and "returned no number but a str" in said and f"{file}:11" in said
    code, said = with_metric("lost")
    assert code == 2 and "no function 'lost'" in said and "both, fails, text" in said
    file.write_text("x = 1\n\ndef f(:\n")
    assert f"{file}:3" in with_metric("f")[1]
    file.write_text("import nothing_of_that_name\n")
    assert f"{file}:1" in with_metric("f")[1]
    file.write_text("raise SystemExit(7)\n")
    assert "SystemExit" in with_metric("f")[1]


def test_the_help_says_that_a_metric_is_run(cli: Cli) -> None:
    assert "RUNS the code" in " ".join(cli("evaluate", "--help").out.split())


def _empty(folder: Path) -> list[object]:
    for file in folder.rglob("*.png"):
        file.unlink()
    return ["--data", folder]


def _broken(folder: Path) -> list[object]:
    (folder / "2" / "02.png").write_bytes(b"no picture")
    return ["--data", folder]


def _labels(text: str) -> Callable[[Path], list[object]]:
    def make(folder: Path) -> list[object]:
        (folder.parent / "labels.txt").write_text(text)
        return ["--data", folder, "--labels", folder.parent / "labels.txt"]

    return make


def _npz(**arrays: np.ndarray) -> Callable[[Path], list[object]]:
    def make(folder: Path) -> list[object]:
        np.savez(folder.parent / "d.npz", **arrays)  # type: ignore[arg-type]
        return ["--data", folder.parent / "d.npz"]

    return make


PICTURES = np.zeros((3, 9, 7), np.uint8)
BAD: list[tuple[str, Callable[[Path], list[object]]]] = [
    ("the folder holds no image", _empty),
    ("cannot be read as a PNG or JPEG", _broken),
    ("there is no such folder", lambda folder: ["--data", folder / "none"]),
    (
        "folder of images, a Parquet file or an .npz",
        lambda folder: ["--data", folder / "0" / "00.png"],
    ),
    ("there are 2 labels for 12 samples", _labels("1\n2\n")),
    ("11 of 12 samples have no label", _labels("0/00.png,1\n")),
    ("there is no such sample", _labels("0/00.png,1\nnone.png,1\n")),
    ("given two labels", _labels("0/00.png,1\n0/00.png,2\n")),
    ("the network's classes are 0 to 3", _labels("4\n" * 12)),
    ("the network's classes are 0 to 3", _labels("-1\n" * 12)),
    ("nothing says which name is which score", _labels("ant\n" * 12)),
    ("holds no label", _labels("\n")),
    ("nothing says which class", _npz(images=PICTURES)),
    ("there are 2 labels for 3 samples", _npz(images=PICTURES, labels=np.zeros(2, int))),
    ("some are no whole numbers", _npz(images=PICTURES, labels=np.array([0.5, 1, 2]))),
    ("there are no samples", _npz(images=PICTURES[:0], labels=np.zeros(0, int))),
    ("float64[8, 7] each", _npz(images=np.zeros((3, 8, 7)), labels=np.zeros(3, int))),
    ("is no picture", _npz(images=np.zeros((3, 9, 7, 2), np.uint8), labels=np.zeros(3, int))),
    ("no readable .npz", lambda folder: _damaged(folder)),
    ("there is no runner 'nobody'", lambda folder: ["--data", folder, "--against", "nobody"]),
    ("no output 'no'", lambda folder: ["--data", folder, "--output", "no"]),
    ("not of the form", lambda folder: ["--data", folder, "--metric", "my.py"]),
    ("cannot read the file", lambda folder: ["--data", folder, "--metric", "none.py:f"]),
    ("folder does not exist", lambda folder: ["--data", folder, "--resume", folder / "x" / "y"]),
    ("would replace it", lambda folder: _written_over(folder, "--json")),
    ("would replace it", lambda folder: _written_over(folder, "--resume")),
    ("two results", lambda folder: ["--data", folder, "--resume", "r", "--json", "./r"]),
    ("belong to an .npz file", lambda folder: ["--data", folder, "--arrays", "x,y"]),
]


def _written_over(folder: Path, option: str) -> list[object]:
    _, file = arguments = _npz(images=PICTURES, labels=np.zeros(3, int))(folder)
    return [*arguments, option, file]


def _damaged(folder: Path) -> list[object]:
    (folder.parent / "d.npz").write_bytes(b"PK nothing")
    return ["--data", folder.parent / "d.npz"]


@pytest.mark.parametrize(
    ("said", "make"), BAD, ids=[f"{i}-{said}" for i, (said, _) in enumerate(BAD)]
)
def test_bad_input_is_refused_in_a_sentence(
    cli: Cli, tiny: Path, data: Path, said: str, make: Callable[[Path], list[object]]
) -> None:
    done = cli("evaluate", tiny, *make(data))
    assert done.code == 2 and said in done.err, done.err
    assert "bug of Verax" not in done.err


def test_recorded_answers_cannot_be_run_on_samples(
    cli: Cli, tiny: Path, data: Path, tmp_path: Path
) -> None:
    np.savez(tmp_path / "out.npz", scores=np.zeros((1, 4), np.float32))
    done = cli("evaluate", tiny, "--data", data, "--against", tmp_path / "out.npz")
    assert done.code == 2 and "recorded answers cannot be run" in done.err


def test_images_need_labels_or_folders(cli: Cli, tiny: Path, loose: Path) -> None:
    done = cli("evaluate", tiny, "--data", loose)
    assert done.code == 2 and "nothing says which class" in done.err
    assert "verax check --images" in done.err


def test_a_model_without_scores_of_classes_is_refused(
    cli: Cli, digits: Path, tmp_path: Path
) -> None:
    np.savez(tmp_path / "d.npz", images=np.zeros((2, 24, 20), np.uint8), labels=np.zeros(2, int))
    done = cli("evaluate", digits, "--data", tmp_path / "d.npz", "--output", "drawing")
    assert done.code == 2 and "not one row of scores for each" in done.err


def test_a_program_for_one_sample_at_a_time(
    cli: Cli, tiny: Path, data: Path, tmp_path: Path
) -> None:
    program = tmp_path / "tiny.vx"
    assert cli("compile", tiny, "-o", program, "--shape", "n=1").code == 0
    done = cli("evaluate", tiny, "--data", data, "--against", program)
    assert done.code == 2 and "if it takes one at a time, give --batch 1" in done.err
    done = cli("evaluate", tiny, "--data", data, "--against", program, "--batch", 1)
    assert done.code == 0 and "the same choice on 12 of 12" in done.out
    assert (
        "give the model that it was compiled from" in cli("evaluate", program, "--data", data).err
    )
