"""`verax history`: files of measurements listed, filtered, merged, exported and compared."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli
from verax.compiler.tune.history import ChosenSchedule, History, chosen_line
from verax.compiler.tune.host import Host, LineOrigin

FAST = Host("avx512 triple", "Swift 9", "Maker 25", (1 << 15, 1 << 19), 1, "c0de")
SLOW = dataclasses.replace(FAST, target="avx2 triple", processor="Slow 3", threads=2)


def word(
    kernel: str, rows: int, gain: float, host: Host, machine: str, when: str = "", device: str = ""
) -> dict[str, Any]:
    origin = LineOrigin(device, machine, f"net-{kernel}", f"pointwise {kernel} x 7", "1.0", when)
    return chosen_line(ChosenSchedule(kernel, host, ("ConvSchedule", {"rows": rows}), gain, origin))


def measured(kernel: str, rows: int, ratio: float, host: Host, machine: str) -> dict[str, Any]:
    line = word(kernel, rows, 1.0, host, machine)
    return {**line, "kind": "measured", "bits": "equal", "ratio": ratio, "microseconds": [2.5, 3]}


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    fast, slow = tmp_path / "fast.jsonl", tmp_path / "slow.jsonl"
    History(fast).append(
        [
            measured("k1", 3, 0.8, FAST, "ann"),
            word("k1", 3, 1.25, FAST, "ann", "2026-01-02T00:00:00+00:00"),
            word("k2", 5, 1.5, FAST, "ann", "2026-01-02T00:00:01+00:00", "avx512,cores=2"),
            word("k1", 4, 1.1, FAST, "bob", "2026-01-03T00:00:00+00:00"),
        ]
    )
    History(slow).append(
        [
            measured("k1", 3, 0.5, SLOW, "cy"),
            {**measured("k1", 9, 0.7, SLOW, "cy"), "kind": "fault", "bits": "it writes other bits"},
            word("k1", 2, 1.75, SLOW, "cy", "2026-01-04T00:00:00+00:00"),
        ]
    )
    return fast, slow


def schedules(path: Path) -> dict[tuple[str, int], int]:
    chosen = History(path).read().schedules
    return {(c.kernel, c.host.threads): c.schedule[1]["rows"] for c in chosen}


def test_machines_and_kernels_are_listed(cli: Cli, files: Any, tmp_path: Path) -> None:
    done = cli("history", "list", *files, "--json", tmp_path / "list.json")
    assert done.code == 0, done.err
    for text in ("Swift 9", "Slow 3", "avx512,cores=2", "pointwise k2 x 7", "1.750"):
        assert text in done.out
    found = json.loads((tmp_path / "list.json").read_text())
    assert found["schema"] == "verax.history/1"
    rows = [(m["machine"], m["kernels"], m["measured"], m["faults"]) for m in found["machines"]]
    assert rows == [("ann", 1, 1, 0), ("ann", 1, 0, 0), ("bob", 1, 0, 0), ("cy", 1, 1, 1)]
    assert [k["gain"] for k in found["kernels"]] == [1.25, 1.5, 1.75]


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        (("--machine", "bob"), ["chosen"]),
        (("--host", "swift"), ["measured", "chosen", "chosen", "chosen"]),
        (("--target", "avx2"), ["measured", "fault", "chosen"]),
        (("--target", "avx"), []),
        (("--kernel", "k2"), ["chosen"]),
        (("--kernel", "POINTWISE K2"), ["chosen"]),
        (("--network", "net-k1", "--threads", "1"), ["measured", "chosen", "chosen"]),
    ],
)
def test_lines_are_filtered(
    cli: Cli, files: Any, tmp_path: Path, options: tuple[str, ...], kinds: list[str]
) -> None:
    done = cli("history", "filter", *files, *options)
    assert [json.loads(line)["kind"] for line in done.out.splitlines()] == kinds
    out = tmp_path / "out.jsonl"
    assert cli("history", "filter", *files, *options, "-o", out).code == 0
    assert out.read_text() == done.out


def test_a_concatenation_is_a_merge_in_any_order(cli: Cli, files: Any, tmp_path: Path) -> None:
    fast, slow = files
    later = tmp_path / "later.jsonl"
    History(later).append([word("k1", 8, 1.3, FAST, "ann", "2027-01-01T00:00:00+00:00")])
    wanted = {("k1", 1): 8, ("k2", 1): 5, ("k1", 2): 2}
    for name, order in {"a": (fast, slow, later), "b": (later, fast, slow, fast)}.items():
        joined, merged = tmp_path / f"{name}.cat", tmp_path / f"{name}.merged"
        joined.write_bytes(b"".join(p.read_bytes() for p in order))
        assert cli("history", "merge", *order, "-o", merged).code == 0
        assert schedules(joined) == schedules(merged) == wanted
        assert len(merged.read_bytes().splitlines()) == 8, "each line once"


def test_the_best_is_one_line_for_each_kernel_and_machine(
    cli: Cli, files: Any, tmp_path: Path
) -> None:
    out = tmp_path / "best.jsonl"
    assert cli("history", "best", *files, "-o", out).code == 0
    assert len(out.read_bytes().splitlines()) == 3
    assert schedules(out) == {("k1", 1): 3, ("k2", 1): 5, ("k1", 2): 2}
    again = tmp_path / "again.jsonl"
    assert cli("history", "best", out, "-o", again).code == 0
    assert again.read_bytes() == out.read_bytes()


def test_a_word_that_was_taken_back_is_not_the_best_of_its_machine(
    cli: Cli, tmp_path: Path
) -> None:
    path, out = tmp_path / "h", tmp_path / "best"
    History(path).append([word("k1", 3, 1.25, FAST, "ann"), word("k1", 1, 1.0, FAST, "ann")])
    assert cli("history", "best", path, "-o", out).code == 0
    assert schedules(out) == {("k1", 1): 1}


def test_two_machines_are_compared(cli: Cli, files: Any, tmp_path: Path) -> None:
    record = tmp_path / "compared.json"
    done = cli(
        "history", "compare", *files, "--between", "ann", "--between", "avx2", "--json", record
    )
    assert done.code == 0, done.err
    assert "1 kernel in common, 0 with the same schedule" in done.out
    assert "1 gain there" in done.out
    (kernel,) = json.loads(record.read_text())["kernels"]
    assert (kernel["first_gain"], kernel["second_gain"]) == (1.25, 1.75)
    assert (kernel["first_on_second"], kernel["second_on_first"]) == (2.0, 0.0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("sort", "FAST"), "choose one of list"),
        (("list", "NOWHERE"), "no such tuning history"),
        (("list", "MODEL"), "cannot be read"),
        (("list", "."), "cannot be read"),
        (("list", "FAST", "-o", "x"), "writes no history"),
        (("list", "FAST", "--between", "a"), "--between names"),
        (("compare", "FAST"), "--between names"),
        (("compare", "FAST", "--between", "ann", "--between", "dora"), "nothing of 'dora'"),
        (("compare", "FAST", "--between", "ann", "--between", "ANN"), "the same lines"),
        (("merge", "FAST", "-o", "nowhere/x"), "does not exist"),
        (("list",), "no usual history"),
    ],
)
def test_bad_arguments_are_said(
    cli: Cli, files: Any, tiny: Path, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    names = {"FAST": files[0], "NOWHERE": tmp_path / "nowhere", "MODEL": tiny}
    done = cli("history", *(names.get(a, a) for a in arguments))
    assert done.code == 2
    assert said in done.err


def test_damaged_lines_are_counted_and_left_out(cli: Cli, files: Any, tmp_path: Path) -> None:
    path, out = tmp_path / "torn.jsonl", tmp_path / "out.jsonl"
    later = b'{"schema":"verax.tuning/9","kind":"chosen"}\n'
    path.write_bytes(files[0].read_bytes() + b"garbage\n" + later + b'{"schema":"verax.tuning/1"')
    done = cli("history", "merge", path, "-o", out)
    assert done.code == 0
    assert "2 damaged lines and 1 of later versions" in done.err
    assert out.read_bytes() == files[0].read_bytes()


@pytest.mark.parametrize("action", ["best", "filter", "merge"])
def test_a_file_that_is_read_is_not_written(cli: Cli, files: Any, action: str) -> None:
    """What is left out of it would be lost, and what a tuning appends meanwhile."""
    fast, slow = files
    before = fast.read_bytes()
    for name in (fast, fast.parent / "." / fast.name):
        done = cli("history", action, slow, fast, "-o", name)
        assert done.code == 2 and "would replace it" in done.err
        assert fast.read_bytes() == before
    link = fast.with_name("link.jsonl")
    link.symlink_to(fast)
    assert cli("history", action, link, "-o", fast).code == 2
    assert cli("history", "list", fast, "--json", fast).code == 2
    assert fast.read_bytes() == before


def test_only_a_history_is_replaced(cli: Cli, files: Any, tmp_path: Path) -> None:
    notes, slow = tmp_path / "notes.txt", files[1]
    notes.write_text("my only notes\n")
    done = cli("history", "best", files[0], "-o", notes)
    assert done.code == 2 and "no history, and is not overwritten" in done.err
    assert notes.read_text() == "my only notes\n"
    assert cli("history", "best", files[0], "-o", slow).code == 0
    assert len(slow.read_bytes().splitlines()) == 2
    same = tmp_path / "both"
    done = cli("history", "best", files[0], "-o", same, "--json", same)
    assert done.code == 2 and "two results" in done.err and not same.exists()


def test_that_nothing_is_left_is_said(cli: Cli, files: Any, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    done = cli("history", "filter", *files, "--kernel", "no such", "-o", out)
    assert done.code == 0 and "none of the 7 lines" in done.err
    assert out.read_bytes() == b""
    done = cli("history", "list", out)
    assert done.code == 0 and "the history is empty" in done.err and done.out == ""


def rule(rows: int, **fields: Any) -> list[Any]:
    return ["ConvSchedule", {"rows": rows, **fields}]


def test_schedules_are_said_in_words_and_written_exactly(cli: Cli, tmp_path: Path) -> None:
    path, record = tmp_path / "h", tmp_path / "r.json"
    origin = LineOrigin("", "ann", "net", "pointwise 5", "1.0", "2026-01-02T00:00:00+00:00")
    exact = ("ConvSchedule", {"rows": 6, "cols": 1, "unroll": 2})
    other = ("ConvSchedule", {"rows": 6, "cols": 1, "unroll": 4})
    History(path).append(
        [
            {**chosen_line(ChosenSchedule("k1", FAST, exact, 1.5, origin)), "rule": rule(5)},
            chosen_line(ChosenSchedule("k1", SLOW, other, 1.25, origin)),
            {**chosen_line(ChosenSchedule("k2", SLOW, other, 1.25, origin)), "rule": [3, {"a": 1}]},
        ]
    )
    done = cli("history", "list", path, "--json", record)
    assert done.code == 0, done.err
    rows = [line.split("│") for line in done.out.splitlines() if "│" in line]
    last_column = " ".join(" ".join(row[-2] for row in rows).split())
    text = "tile 6 x 32, unrolled by 2; by rule tile 5 x 14 x 32, unrolled by 4"
    assert text in last_column
    assert "ConvSchedule" not in done.out
    assert json.loads(record.read_text())["kernels"][0]["schedule"] == list(exact)
    words = ("history", "compare", path, "--between", "avx512", "--between", "avx2")
    done = cli(*words, "--json", record)
    assert done.code == 0, done.err
    rows = [line.split("│") for line in done.out.splitlines() if "│" in line]
    schedules = " ".join(" ".join(row[3] for row in rows).split())
    assert "tile 6 x 32, unrolled by 2" in schedules
    assert "tile 6 x 32, unrolled by 4" in schedules
    (kernel,) = json.loads(record.read_text())["kernels"]
    assert kernel["first"] == "ConvSchedule(rows=6, cols=1, unroll=2)"


def test_tables_fit_eighty_columns_and_name_everything(
    files: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, device = tmp_path / "h", "avx512bf16,cores=12,label=desk"
    long = dataclasses.replace(FAST, processor="Advanced Maker EPYC 9654 96-Core Processor")
    line = word("k1" * 20, 3, 1.25, long, "build-machine-17", "2026-01-02T00:00:00+00:00", device)
    line["spec"] = "direct float32 convolution 2 x 512 to 1024 x 14x14, kernel 3x3, stride 2x2"
    History(path).append([line, {**line, "kind": "quarantine"}])
    words = [sys.executable, "-m", "verax.cli.main", "history", "list", str(path)]
    done = subprocess.run(
        words, capture_output=True, text=True, env={**os.environ, "COLUMNS": "80"}, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    for text in ("kernels", "gain", "measured", "faults", "last", "2026-01-02", "1.250"):
        assert text in done.stdout
    assert "QUARANTINE" in done.stdout


def test_a_reader_that_leaves_early_is_told_from_a_mistake(files: Any, tmp_path: Path) -> None:
    """Tables that nobody reads end as they would, with their files; lines that nobody took do
    not: they are lost."""
    read, write = os.pipe()
    os.close(read)
    main = [sys.executable, "-m", "verax.cli.main", "history"]
    record = tmp_path / "r.json"
    words = {"list": [str(files[0]), "--json", str(record)], "merge": [str(files[0])]}
    codes = {}
    for action, arguments in words.items():
        done = subprocess.run(
            [*main, action, *arguments],
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
            timeout=300,
        )
        assert done.stderr == ""
        codes[action] = done.returncode
    os.close(write)
    assert codes == {"list": 0, "merge": 2}
    assert json.loads(record.read_text())["action"] == "list"
