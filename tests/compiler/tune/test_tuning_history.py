"""A history is only appended to, survives whatever happens to a file, and is found by its index."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from verax.base.errors import UsageError
from verax.compiler.tune import history as module
from verax.compiler.tune.history import LINE, ChosenSchedule, History, chosen_line
from verax.compiler.tune.host import Host

HOST = Host("avx2 some-triple", "A processor", "Maker 25", (1 << 15, 1 << 19), 3, "c0de")


def chosen(kernel: str = "k1", rows: int = 2, host: Host = HOST) -> ChosenSchedule:
    return ChosenSchedule(kernel, host, ("ConvSchedule", {"rows": rows, "ahead": True}), 1.25)


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "deep" / "tuning.jsonl")


def rows_of(history: History) -> dict[str, int]:
    return {c.kernel: c.schedule[1]["rows"] for c in history.read().schedules}


def test_what_is_not_there_says_nothing(history: History) -> None:
    assert history.read().schedules == ()
    assert not history.path.parent.exists()


def test_the_last_word_for_a_kernel_on_a_host_counts(history: History) -> None:
    history.append([chosen_line(chosen(rows=2)), {"kind": "measured", "microseconds": [1.0]}])
    history.append([chosen_line(chosen("k2", 5)), chosen_line(chosen(rows=7))])
    history.append([chosen_line(chosen(rows=9, host=Host(*HOST.__dict__.values())))])
    found = history.read()
    assert rows_of(history) == {"k1": 9, "k2": 5}
    assert found.lines == 5
    assert found.unreadable == found.later == 0
    assert chosen("k2", 5) in found.schedules


def test_another_host_has_its_own_word(history: History) -> None:
    other = Host("avx512 some-triple", "Another", "Maker 26", (), 1, "c0de")
    history.append([chosen_line(chosen(rows=2)), chosen_line(chosen(rows=4, host=other))])
    assert {(c.host.processor, c.schedule[1]["rows"]) for c in history.read().schedules} == {
        ("A processor", 2),
        ("Another", 4),
    }


@pytest.mark.parametrize("kept", [1, 20, 60, 150])
def test_a_torn_last_line_loses_itself_alone(history: History, kept: int) -> None:
    history.append([chosen_line(chosen("k1", 2))])
    whole = history.path.read_bytes()
    history.append([chosen_line(chosen("k2", 3))])
    history.path.write_bytes(whole + history.path.read_bytes()[len(whole) :][:kept])
    assert rows_of(history) == {"k1": 2}
    assert history.read().unreadable == 0, "it may be another program that is writing"
    history.append([chosen_line(chosen("k3", 4))])
    assert rows_of(history) == {"k1": 2, "k3": 4}
    assert history.read().unreadable == 1


def test_a_torn_first_line_is_no_reason_to_refuse_the_file(history: History) -> None:
    history.append([chosen_line(chosen())])
    history.path.write_bytes(history.path.read_bytes()[:7])
    history.append([chosen_line(chosen("k2", 3))])
    assert rows_of(history) == {"k2": 3}


LATER = '{"schema":"verax.tuning/9","kind":"chosen","unheard":["of"]}\n'


def test_lines_of_later_versions_are_kept_and_skipped(history: History) -> None:
    history.append([chosen_line(chosen("k1", 2))])
    with history.path.open("a") as stream:
        stream.write(LATER)
    history.append([chosen_line(chosen("k1", 3))])
    assert LATER in history.path.read_text()
    assert rows_of(history) == {"k1": 3}
    assert history.read().later == 1
    assert history.read().unreadable == 0


def test_a_file_of_a_later_version_alone_is_a_history(history: History) -> None:
    history.path.parent.mkdir()
    history.path.write_text(LATER)
    assert history.read().schedules == ()
    history.append([chosen_line(chosen())])
    assert history.path.read_text().startswith(LATER)


DAMAGE: dict[str, Any] = {
    "no JSON": "{",
    "not an object": "[1, 2]",
    "deep": "[" * 100_000,
    "no kernel": {"kind": "chosen"},
    "host is text": {**chosen_line(chosen("k9")), "host": "me"},
    "host lacks a field": {**chosen_line(chosen("k9")), "host": {"target": "x"}},
    "threads as text": {
        **chosen_line(chosen("k9")),
        "host": {**chosen_line(chosen())["host"], "threads": "3"},
    },
    "schedule is a number": {**chosen_line(chosen("k9")), "schedule": 3},
    "fields are a list": {**chosen_line(chosen("k9")), "schedule": ["ConvSchedule", []]},
    "kernel is a list": {**chosen_line(chosen("k9")), "kernel": ["k9"]},
    "gain is nothing": {**chosen_line(chosen("k9")), "gain": None},
    "bytes": b"\xff\xfe\x00\x01",
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damaged_lines_are_counted_and_the_others_hold(history: History, what: str) -> None:
    history.append([chosen_line(chosen("k1", 2))])
    damage = DAMAGE[what]
    if isinstance(damage, dict):
        damage = json.dumps({"schema": LINE, **damage})
    with history.path.open("ab") as stream:
        stream.write((damage if isinstance(damage, bytes) else damage.encode()) + b"\n")
    history.append([chosen_line(chosen("k2", 3))])
    assert rows_of(history) == {"k1": 2, "k2": 3}
    assert history.read().unreadable == 1


@pytest.mark.parametrize("content", [b"weights of a network\n" * 9, b"\0" * 999, b'{"a": 1}\n'])
def test_a_file_that_is_no_history_is_refused_and_left_alone(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="tuning history"):
        History(path).read()
    with pytest.raises(UsageError, match="another file"):
        History(path).append([chosen_line(chosen())])
    assert path.read_bytes() == content


@pytest.mark.skipif(os.name == "nt", reason="no pipes in the file system")
def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        History(tmp_path).read()
    with pytest.raises(UsageError, match="cannot be written"):
        History(tmp_path).append([])
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        History(tmp_path / "file" / "h").append([])


WRITER = """
import sys
from tests.compiler.tune.test_tuning_history import chosen
from verax.compiler.tune.history import History, chosen_line
history, who = History(sys.argv[1]), sys.argv[2]
for i in range(60):
    history.append([{"kind": "measured", "pad": "x" * 3000}, chosen_line(chosen(who, i))])
"""


def test_programs_append_side_by_side(history: History) -> None:
    root = Path(__file__).parents[3]
    paths = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, "PYTHONPATH": paths}
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(history.path), who], env=env)
        for who in ("a", "b", "c")
    ]
    while any(w.poll() is None for w in writers):
        assert history.read().unreadable == 0
    assert [w.returncode for w in writers] == [0, 0, 0]
    assert rows_of(history) == {"a": 59, "b": 59, "c": 59}
    found = history.read()
    assert (found.lines, found.unreadable) == (360, 0)


@pytest.fixture
def indexed(history: History, monkeypatch: pytest.MonkeyPatch) -> History:
    monkeypatch.setattr(module, "LONG", 100)
    history.append([chosen_line(chosen(f"k{i}", i)) for i in range(1, 9)])
    history.read()
    assert history.index_path.exists()
    return history


def test_an_index_is_read_in_place_of_what_it_covers(
    indexed: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexed.append([chosen_line(chosen("k3", 33))])
    seen: list[bytes] = []
    after = module.Contents.after

    def watched(self: module.Contents, data: bytes) -> module.Contents:
        seen.append(data)
        return after(self, data)

    monkeypatch.setattr(module.Contents, "after", watched)
    assert rows_of(indexed) == {**{f"k{i}": i for i in range(1, 9)}, "k3": 33}
    assert len(seen[0]) < 500


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: "{",
        lambda text: text[: len(text) // 2],
        lambda text: text.replace("verax.tuning-index/1", "verax.tuning-index/2"),
        lambda text: text.replace('"rows":1', '"rows":[').replace('"kernel":"k1"', '"kernel":1'),
        lambda text: json.dumps({**json.loads(text), "bytes": 10**9}),
        lambda text: json.dumps({**json.loads(text), "bytes": -5}),
        lambda text: json.dumps({**json.loads(text), "chosen": 5}),
        lambda text: json.dumps({**json.loads(text), "chosen": [{}]}),
        lambda text: json.dumps([]),
    ],
)
def test_a_damaged_index_is_made_again(indexed: History, damage: Any) -> None:
    text = indexed.index_path.read_text()
    indexed.index_path.write_text(damage(text))
    assert rows_of(indexed) == {f"k{i}": i for i in range(1, 9)}
    assert indexed.index_path.read_text() == text


def test_an_index_of_another_file_is_not_believed(indexed: History) -> None:
    lines = indexed.path.read_bytes().splitlines(keepends=True)
    indexed.path.write_bytes(b"".join(lines[2:]))
    assert rows_of(indexed) == {f"k{i}": i for i in range(3, 9)}
    text = indexed.path.read_text().replace('"rows":8', '"rows":6')
    indexed.path.write_text(text)
    assert rows_of(indexed)["k8"] == 6
    indexed.path.unlink()
    assert rows_of(indexed) == {}


def test_without_a_place_for_an_index_it_is_read_as_a_whole(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LONG", 100)
    history.append([chosen_line(chosen(f"k{i}", i)) for i in range(1, 9)])
    history.index_path.mkdir()
    assert len(rows_of(history)) == 8
    assert len(rows_of(history)) == 8
