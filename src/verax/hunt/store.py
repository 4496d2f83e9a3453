"""The store of a hunt: one SQLite file that several hunts may share, on one machine (`hosts` brings
to it what other machines find).

It is in write-ahead mode, so what was recorded survives the death of whoever wrote it. A case that
was begun by a process that is gone is begun again by the next one that asks.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from verax.base.errors import UsageError
from verax.records.hunt import StoredFinding

SCHEMA = "verax.hunt-store/1"
MAX_TRIES = 2
"""Times that a case is begun; who began it died each time."""
BUSY_SECONDS = 30.0
CREATE = """
CREATE TABLE IF NOT EXISTS settings (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS cases (
    seed INTEGER, case_number INTEGER, state TEXT NOT NULL, owner TEXT, tries INTEGER NOT NULL,
    family TEXT, aim TEXT, reason TEXT, outcome TEXT, detail TEXT, finding TEXT, seconds REAL,
    PRIMARY KEY (seed, case_number)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_state ON cases (seed, state, case_number);
CREATE TABLE IF NOT EXISTS findings (
    key TEXT PRIMARY KEY, classification TEXT NOT NULL, operator TEXT NOT NULL,
    cause TEXT NOT NULL, location TEXT NOT NULL, message TEXT NOT NULL, seed INTEGER,
    case_number INTEGER, count INTEGER NOT NULL, confidence TEXT NOT NULL, argument TEXT NOT NULL,
    folder TEXT NOT NULL) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class HuntOutcome:
    """What came of a case.

    outcome: "right", "undecided", "finding", "unsupported" (the subject says that it lacks an
    operator or a type), "no case" (nothing could be drawn) or "unjudged" (our side failed or took
    too long); detail: in words; finding: the key of its finding.
    """

    outcome: str
    detail: str = ""
    finding: str = ""
    family: str = ""
    aim: str = ""
    reason: str = ""
    seconds: float = 0.0


class Store:
    """A connection of this process. Raises `UsageError` for a file that is no store, or is one of
    another subject."""

    def __init__(self, path: Path, settings: Mapping[str, str]) -> None:
        self.path, self.owner = path, owner_name(os.getpid())
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
            self._use_write_ahead_log()
            self.connection.execute("PRAGMA synchronous=NORMAL")
            self.connection.executescript(CREATE)
            stored = self._settings({"schema": SCHEMA, **settings})
        except (sqlite3.Error, OSError) as error:
            raise UsageError(
                f"the store cannot be used ({error})",
                place=str(path),
                next_step="give another folder with --store",
            ) from error
        for key, value in {"schema": SCHEMA, **settings}.items():
            if stored[key] != value:
                raise UsageError(
                    f"the store is of another hunt: its {key} is {stored[key]!r}, not {value!r}",
                    place=str(path),
                    next_step="give another folder with --store",
                )

    def _use_write_ahead_log(self) -> None:
        """Switch the journal, which SQLite refuses at once, without waiting, while another process
        makes the same file."""
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                self.connection.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
            time.sleep(0.01)

    def _settings(self, settings: Mapping[str, str]) -> dict[str, str]:
        with self._writing():
            for item in settings.items():
                self.connection.execute("INSERT OR IGNORE INTO settings VALUES (?, ?)", item)
        return dict(self.connection.execute("SELECT key, value FROM settings"))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")

    def close(self) -> None:
        self.connection.close()

    def claim(self, seed: int) -> int:
        """The number of a case that nobody else has, marked as running here."""
        with self._writing():
            self._release(seed)
            execute = self.connection.execute
            row = execute(
                "SELECT MIN(case_number) FROM cases WHERE seed = ? AND state = 'open'", (seed,)
            ).fetchone()
            case_number = row[0]
            if case_number is None:
                last = execute(
                    "SELECT MAX(case_number) FROM cases WHERE seed = ?", (seed,)
                ).fetchone()[0]
                case_number = 0 if last is None else last + 1
                execute(
                    "INSERT INTO cases (seed, case_number, state, tries) VALUES (?, ?, 'open', 0)",
                    (seed, case_number),
                )
            execute(
                "UPDATE cases SET state = 'running', owner = ?, tries = tries + 1 "
                "WHERE seed = ? AND case_number = ?",
                (self.owner, seed, case_number),
            )
        return int(case_number)

    def open_cases(self, seed: int, numbers: Iterable[int]) -> None:
        """Have cases of these numbers claimed next; what came of them before is forgotten."""
        with self._writing():
            for case_number in numbers:
                self.connection.execute(
                    "INSERT OR REPLACE INTO cases (seed, case_number, state, tries) "
                    "VALUES (?, ?, 'open', 0)",
                    (seed, case_number),
                )

    def outcomes(self, seed: int, numbers: Iterable[int]) -> dict[int, HuntOutcome]:
        """What came of the cases of these numbers that are done."""
        outcomes = {}
        for case_number in numbers:
            row = self.connection.execute(
                "SELECT outcome, detail, finding, family, aim, reason, seconds FROM cases "
                "WHERE seed = ? AND case_number = ? AND state = 'done'",
                (seed, case_number),
            ).fetchone()
            if row is not None:
                a, b, c, d, e, f = (text or "" for text in row[:-1])
                outcomes[case_number] = HuntOutcome(a, b, c, d, e, f, float(row[-1] or 0))
        return outcomes

    def _release(self, seed: int) -> None:
        """Open cases again whose owners are gone, unless too many died of them."""
        rows = self.connection.execute(
            "SELECT case_number, owner, tries FROM cases WHERE seed = ? AND state = 'running'",
            (seed,),
        ).fetchall()
        for case_number, owner, tries in rows:
            if owner == self.owner or is_alive(owner):
                continue
            state, outcome = ("done", "unjudged") if tries >= MAX_TRIES else ("open", None)
            self.connection.execute(
                "UPDATE cases SET state = ?, outcome = ?, detail = ? "
                "WHERE seed = ? AND case_number = ?",
                (state, outcome, f"{tries} processes died while they had it", seed, case_number),
            )

    def give_back(self, seed: int, case_number: int) -> None:
        """Open a case again that was not finished, as after Ctrl-C."""
        with self._writing():
            self.connection.execute(
                "UPDATE cases SET state = 'open', tries = tries - 1 "
                "WHERE seed = ? AND case_number = ? AND state = 'running'",
                (seed, case_number),
            )

    def finish(self, seed: int, case_number: int, outcome: HuntOutcome) -> None:
        """Record what came of a case; a finding's count grows with it."""
        with self._writing():
            self.connection.execute(
                "UPDATE cases SET state = 'done', outcome = ?, detail = ?, finding = ?, "
                "family = ?, aim = ?, reason = ?, seconds = ? WHERE seed = ? AND case_number = ?",
                (
                    *(outcome.outcome, outcome.detail, outcome.finding, outcome.family),
                    *(outcome.aim, outcome.reason, outcome.seconds, seed, case_number),
                ),
            )
            if outcome.finding:
                self.connection.execute(
                    "UPDATE findings SET count = count + 1 WHERE key = ?", (outcome.finding,)
                )

    def begin_finding(self, finding: StoredFinding) -> bool:
        """True if nobody has recorded this finding before: whoever gets True examines it."""
        with self._writing():
            cursor = self.connection.execute(
                f"INSERT OR IGNORE INTO findings VALUES ({', '.join('?' * 12)})",
                (
                    *(finding.key, finding.classification, finding.operator, finding.cause),
                    *(finding.location, finding.message, finding.seed, finding.case_number),
                    *(finding.count, finding.confidence, finding.argument, finding.folder),
                ),
            )
        return cursor.rowcount == 1

    def examined(self, key: str, confidence: str, argument: str, folder: str, more: str) -> None:
        """Record the examination of a finding. more: is put behind its message."""
        with self._writing():
            self.connection.execute(
                "UPDATE findings SET confidence = ?, argument = ?, folder = ?, "
                "message = message || ? WHERE key = ?",
                (confidence, argument, folder, more, key),
            )

    def findings(self) -> list[StoredFinding]:
        """All findings, those that most cases showed first."""
        rows = self.connection.execute("SELECT * FROM findings ORDER BY count DESC, key")
        return [StoredFinding(*row) for row in rows]

    def counts(self) -> dict[str, int]:
        """Cases by outcome."""
        query = "SELECT outcome, COUNT(*) FROM cases WHERE state = 'done' GROUP BY outcome"
        return dict(self.connection.execute(query))


def owner_name(pid: int) -> str:
    """A process, told from later ones of the same number by when it began."""
    return f"{platform.node()}|{pid}|{_began(pid)}"


def is_alive(owner: str) -> bool:
    """False if a process of this machine is gone; of other machines nobody knows."""
    node, pid, began = owner.rsplit("|", 2)
    if node != platform.node():
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return _began(int(pid)) == began


def _began(pid: int) -> str:
    """When a process began, in ticks of the system; "" where the system does not say."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
