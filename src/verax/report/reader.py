"""Any record of `--json` that a report shows, from its file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from verax.base.errors import UsageError
from verax.base.storage.reading import plain_bytes
from verax.records.agreement import Agreement
from verax.records.alignment import Alignment
from verax.records.benchmark import Benchmark
from verax.records.bisection import Bisection
from verax.records.codec import read_plain
from verax.records.evaluation import EvaluationRecord
from verax.records.gate import GateRecord
from verax.records.hunt import HuntResult
from verax.records.tuning import TuningRecord
from verax.records.verdict import Verdict

READERS: Mapping[str, Callable[[str], Any]] = {
    "verdict": Verdict.from_json,
    "bisection": Bisection.from_json,
    "alignment": Alignment.from_json,
    "agreement": Agreement.from_json,
    "gate": GateRecord.from_json,
    "hunt": HuntResult.from_json,
    "evaluation": EvaluationRecord.from_json,
    "benchmark": Benchmark.from_json,
    "tuning-record": TuningRecord.from_json,
}
"""By the name of the schema after "verax."; each reader says which versions it takes."""
MAX_BYTES = 1 << 28
"""Of a record's file; one of a large network, judged node by node, has some megabytes."""


def read_any_record(path: str | Path) -> Any:
    """The record in a JSON file. Raises `UsageError` when it is none, or is of another version."""
    try:
        text = plain_bytes(path, "record", limit=MAX_BYTES).decode()
        content = read_plain(text)
    except (UnicodeDecodeError, EOFError) as error:
        raise UsageError(f"this is not a record of Verax ({error})", place=str(path)) from error
    except UsageError as error:
        raise UsageError(error.cause, place=str(path), next_step=error.next_step) from error
    schema = content.get("schema") if isinstance(content, dict) else None
    name = schema.partition("/")[0].removeprefix("verax.") if isinstance(schema, str) else ""
    if name not in READERS:
        raise UsageError(
            f"{schema!a:.80} is no record that a report shows",
            place=str(path),
            next_step=f"it shows records of --json: {', '.join(READERS)}",
        )
    try:
        return READERS[name](text)
    except UsageError as error:
        location = f"{path}, {error.place}" if error.place else str(path)
        raise UsageError(error.cause, place=location, next_step=error.next_step) from error
