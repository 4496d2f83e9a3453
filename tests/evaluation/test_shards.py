"""Samples that a pool's workers run: the record is that of one process, to the last digit."""

from __future__ import annotations

import importlib
import io
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from PIL import Image
from tests.evaluation.conftest import as_folder, noisy_digits

import verax
from verax.base.errors import InputError, UsageError
from verax.base.process.processes import SubjectError
from verax.evaluation.journal import SampleRow, journal

KEY = {"network": "ab" * 32, "data": "cd" * 32}


def plain(record: Any) -> dict[str, Any]:
    """A record without where it was made."""
    content: dict[str, Any] = json.loads(record.to_json())
    content.pop("environment")
    return content


def as_parquet(folder: Path, pictures: np.ndarray, labels: np.ndarray) -> Path:
    """Two files, in groups of seven rows."""
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = importlib.import_module("pyarrow.parquet")
    rows = []
    for picture in pictures:
        stream = io.BytesIO()
        Image.fromarray(picture).save(stream, "PNG")
        rows.append({"bytes": stream.getvalue(), "path": None})
    table = arrow.table({"image": rows, "label": [str(n) for n in labels]})
    folder.mkdir()
    cut = len(rows) // 2 + 1
    parquet.write_table(table.slice(0, cut), folder / "a.parquet", row_group_size=7)
    parquet.write_table(table.slice(cut), folder / "b.parquet", row_group_size=7)
    return folder


def test_the_record_is_that_of_one_process(digits: Path, spoilt: Path, tmp_path: Path) -> None:
    pictures, labels = noisy_digits(87, seed=401)
    folder = as_folder(tmp_path / "folder", pictures, labels)
    np.savez(tmp_path / "set.npz", images=pictures, labels=labels)
    parquet = as_parquet(tmp_path / "parquet", pictures, labels)
    options: dict[str, Any] = {"against": str(spoilt), "threads": 1, "batch": 5, "opt_level": 1}
    records = {}
    for data in (folder, tmp_path / "set.npz", parquet):
        alone = verax.evaluate(digits, data, **options)
        assert alone.comparison is not None and len(alone.comparison.flips) > 2
        shared = verax.evaluate(digits, data, **options, workers=2)
        assert plain(shared) == plain(alone)
        records[data] = alone
    first, second, third = records.values()
    assert first.accuracy.top1 == second.accuracy.top1 == third.accuracy.top1
    assert third.samples == 87 and third.hashes["data"] != first.hashes["data"]


def test_scores_of_a_metric_and_arrays_of_memory_are_the_same(digits: Path, tmp_path: Path) -> None:
    pictures, labels = noisy_digits(31, seed=402)
    images = pictures[:, np.newaxis].astype(np.float64) / 255

    def weighted(predictions: np.ndarray, truth: np.ndarray) -> float:
        return float((predictions * np.arange(1, 32)[:, np.newaxis]).sum())

    graph = verax.load(digits).graph
    alone = verax.evaluate(graph, images, labels, metric=weighted, batch=4, opt_level=1)
    options: dict[str, Any] = {"metric": weighted, "batch": 4, "opt_level": 1, "workers": 2}
    shared = verax.evaluate(graph, images, labels, **options, resume=tmp_path / "notes")
    assert plain(shared) == plain(alone)
    again = verax.evaluate(graph, images, labels, **options, resume=tmp_path / "notes")
    assert plain(again) == plain(alone)


def test_a_worker_that_is_killed_costs_nothing_and_samples_are_noted_once(
    digits: Path, spoilt: Path, tmp_path: Path
) -> None:
    pictures, labels = noisy_digits(700, seed=403)
    notes = tmp_path / "notes"
    killed: list[int] = []

    def kill() -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end and not killed:
            time.sleep(0.002)
            if not notes.exists() or notes.read_bytes().count(b"\n") < 3:
                continue
            for child in psutil.Process().children(recursive=True):
                if "verax.distributed.worker_process" in child.cmdline()[2:4]:
                    os.kill(child.pid, signal.SIGKILL)
                    killed.append(child.pid)
                    return

    killing = threading.Thread(target=kill)
    killing.start()
    options: dict[str, Any] = {"against": str(spoilt), "threads": 1, "opt_level": 1}
    shared = verax.evaluate(digits, pictures, labels, **options, workers=2, resume=notes)
    killing.join()
    assert killed
    assert plain(shared) == plain(verax.evaluate(digits, pictures, labels, **options))
    lines = [json.loads(line) for line in notes.read_text().splitlines()[1:]]
    assert sum(len(line["rows"]) for line in lines) == 700


def test_what_workers_cannot_make_anew_is_refused(digits: Path, tmp_path: Path) -> None:
    pictures, labels = noisy_digits(4, seed=404)
    with pytest.raises(UsageError, match="make the subject anew, from a text"):
        verax.evaluate(digits, pictures, labels, against=lambda image: image, workers=2)
    (tmp_path / "own.py").write_text("PASS = None")
    with pytest.raises(UsageError, match="no passes of a file"):
        verax.evaluate(digits, pictures, labels, inject=[tmp_path / "own.py"], workers=2)
    with pytest.raises(SubjectError, match="wrote no output file"):
        verax.evaluate(digits, pictures, labels, against="cmd:true", workers=1)


def test_notes_may_come_in_any_order_and_once(tmp_path: Path) -> None:
    rows = [SampleRow(n, n + 1) for n in range(11)]
    path = tmp_path / "notes"
    with journal(path, KEY, 0, 11) as notes:
        assert notes.missing(4) == [range(0, 4), range(4, 8), range(8, 11)]
        notes.add(4, rows[4:8], ())
        notes.add(0, rows[:2], ())
        notes.add(2, rows[2:3], ())
        assert notes.missing(4) == [range(3, 4), range(8, 11)]
        with pytest.raises(ValueError, match="twice"):
            notes.add(2, rows[2:4], ())
    with journal(path, KEY, 0, 11) as notes:
        assert notes.resumed == 7 and notes.missing(4) == [range(3, 4), range(8, 11)]
        notes.add(8, rows[8:], ())
        notes.add(3, rows[3:4], ())
    with journal(path, KEY, 0, 11) as notes:
        assert notes.rows == rows and not notes.missing(4)
    text = path.read_text()
    assert "first" not in text.splitlines()[3]
    for wrong in ('{"first": 7', '{"first": -1', '{"first": true', '{"first": "8"', '{"first": 11'):
        path.write_text(text.replace('{"first":8', wrong))
        with pytest.raises(InputError), journal(path, KEY, 0, 11):
            pass


def test_notes_of_the_first_version_are_read(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    with journal(path, KEY, 0, 3) as notes:
        notes.add(0, [SampleRow(1, 2)], ())
    path.write_text(path.read_text().replace("resume/2", "resume/1"))
    with journal(path, KEY, 0, 3) as notes:
        assert notes.rows == [SampleRow(1, 2)] and notes.missing(9) == [range(1, 3)]


def test_parquet_files_that_do_not_serve_are_refused(digits: Path, tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = importlib.import_module("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1 and nothing else PAR1")
    with pytest.raises(InputError, match="cannot be read as a Parquet file"):
        verax.evaluate(digits, path)
    parquet.write_table(arrow.table({"n": [1, 2], "label": [0, 1]}), path)
    with pytest.raises(InputError, match="none of the columns could be the images"):
        verax.evaluate(digits, path)
    parquet.write_table(arrow.table({"image": [b"no image"], "label": [0]}), path)
    with pytest.raises(InputError, match=r"cannot be read as a PNG or JPEG image[\s\S]*row 0"):
        verax.evaluate(digits, path)
    second = io.BytesIO()
    Image.fromarray(np.arange(480, dtype=np.uint16).reshape(24, 20).astype(np.uint8)).save(
        second, "PNG"
    )
    table = {"image": [second.getvalue(), second.getvalue()[:60]], "label": [0, 3]}
    parquet.write_table(arrow.table(table), path)
    for workers in (0, 1):
        with pytest.raises(InputError, match="PNG or JPEG image") as raised:
            verax.evaluate(digits, path, workers=workers)
        assert raised.value.place == f"row 1 of {path}"
        assert "leave it out" in raised.value.next_step
    with pytest.raises(InputError, match="there is no column 'y'"):
        verax.evaluate(digits, path, arrays=("image", "y"))
