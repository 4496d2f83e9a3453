"""The store: shared, whole after kill -9, and of one subject."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from verax.base.errors import UsageError
from verax.hunt.store import MAX_TRIES, HuntOutcome, Store, StoredFinding, is_alive, owner_name

SETTINGS = {"subject": "reference", "verax": "0"}
CLAIMING = """
import sys, time
from pathlib import Path
from verax.hunt.store import HuntOutcome, Store
store = Store(Path(sys.argv[1]), {"subject": "reference", "verax": "0"})
for _ in range(int(sys.argv[2])):
    case_number = store.claim(5)
    store.finish(5, case_number, HuntOutcome("right", sys.argv[3]))
store.claim(5)
print("ready", flush=True)
if sys.argv[4] == "wait":
    time.sleep(60)
"""


def started(path: Path, count: int, name: str, then: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", CLAIMING, str(path), str(count), name, then]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def test_processes_that_share_a_store_never_have_the_same_case(tmp_path: Path) -> None:
    path = tmp_path / "hunt.sqlite"
    processes = [started(path, 40, name, "end") for name in "abc"]
    assert [p.wait(60) for p in processes] == [0, 0, 0]
    store = Store(path, SETTINGS)
    rows = store.connection.execute(
        "SELECT case_number, state FROM cases ORDER BY case_number"
    ).fetchall()
    done = [case_number for case_number, state in rows if state == "done"]
    assert store.counts() == {"right": 120} and len(set(done)) == 120


def test_what_was_recorded_survives_kill_9_and_the_case_begun_is_begun_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "hunt.sqlite"
    process = started(path, 7, "a", "wait")
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    store = Store(path, SETTINGS)
    assert store.claim(5) == 8  # the other one lives: its case stays its own
    os.kill(process.pid, signal.SIGKILL)
    process.wait(30)
    assert store.counts() == {"right": 7}
    assert store.claim(5) == 7
    assert store.connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_case_of_which_too_many_processes_die_is_left_alone(tmp_path: Path) -> None:
    store = Store(tmp_path / "hunt.sqlite", SETTINGS)
    for _ in range(MAX_TRIES):
        assert store.claim(2) == 0
        store.connection.execute("UPDATE cases SET owner = ?", (owner_name(2**22 + 7),))
    assert store.claim(2) == 1
    assert store.counts() == {"unjudged": 1}


def test_a_case_that_is_given_back_is_the_next_one(tmp_path: Path) -> None:
    store = Store(tmp_path / "hunt.sqlite", SETTINGS)
    assert [store.claim(3), store.claim(3), store.claim(4)] == [0, 1, 0]
    store.give_back(3, 0)
    assert store.claim(3) == 0
    assert store.claim(3) == 2


def test_a_finding_is_examined_by_one_and_counted_by_all(tmp_path: Path) -> None:
    first, second = (Store(tmp_path / "hunt.sqlite", SETTINGS) for _ in range(2))
    finding = StoredFinding("k", "mistake", "Conv", "pads", "", "wrong", 3, 0, 0, "", "", "")
    assert first.begin_finding(finding) and not second.begin_finding(finding)
    for store in (first, second):
        store.finish(3, store.claim(3), HuntOutcome("finding", finding="k"))
    first.examined("k", "high", "others agree", "folder", "; more")
    (stored,) = second.findings()
    assert (stored.count, stored.confidence, stored.message) == (2, "high", "wrong; more")


def test_a_store_of_another_subject_and_what_is_no_store_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "hunt.sqlite"
    Store(path, SETTINGS).close()
    with pytest.raises(UsageError, match=r"its subject is 'reference'"):
        Store(path, {**SETTINGS, "subject": "openvino"})
    text = tmp_path / "text"
    text.write_text("no database, and long enough to be read as one\n" * 40)
    with pytest.raises(UsageError, match="the store cannot be used"):
        Store(text, SETTINGS)


def test_a_process_is_told_from_a_later_one_of_the_same_number() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    name = owner_name(process.pid)
    assert is_alive(name)
    assert not is_alive(name[:-1] + ("1" if name[-1] != "1" else "2"))
    process.kill()
    process.wait(30)
    deadline = time.monotonic() + 5
    while is_alive(name) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_alive(name)
