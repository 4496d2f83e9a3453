"""A file of `--resume` with hostile lines is refused in words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.json_mutants import mutants

from verax.base.errors import VeraxError
from verax.evaluation.journal import SCHEMA, SampleRow, journal

KEY = {"network": "ab" * 32, "data": "cd" * 32}


def _lines() -> tuple[str, str]:
    rows = [SampleRow(3, 0, 2, 1, 0.5, 0.25), SampleRow(1, 1, 1, 0, 1.5, 2.0, True)]
    return json.dumps({"schema": SCHEMA, "key": KEY}), json.dumps(
        {"rows": [r.to_plain() for r in rows]}
    )


@pytest.mark.parametrize("count", [200, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("which", [0, 1], ids=["the first line", "rows"])
def test_mutants_of_a_line_are_read_or_refused(tmp_path: Path, which: int, count: int) -> None:
    path, refused = tmp_path / "resume", 0
    for text in mutants(_lines()[which], 191 + which + count, count):
        lines = list(_lines())
        lines[which] = text.replace("\n", " ")
        path.write_bytes("".join(f"{line}\n" for line in lines).encode(errors="surrogatepass"))
        try:
            with journal(path, KEY, 0, 5) as found:
                assert all(isinstance(r, SampleRow) and type(r.choice) is int for r in found.rows)
        except VeraxError:
            refused += 1
    assert refused > 50
