"""A .vx file whose checksums are right and whose content is hostile is refused in words.

Only its machine code is trusted. Everything is loaded and run in child processes: a signal there is
a failure here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.runtime.vx_mutations import SOUND, mutants, texts

from verax.base.option_groups.settings import Settings
from verax.compiler.artifacts.save import save
from verax.compiler.compile import compile

ROOT = Path(__file__).parents[2]
FEW, MANY = 40, 4000


def sound(kind: str, folder: Path) -> bytes:
    path = folder / f"{kind}.vx"
    save(compile(SOUND[kind](), Settings(threads=2)), path)
    return path.read_bytes()


def outcomes(paths: list[Path]) -> dict[str, str]:
    """What every file does; a child that dies is replaced for what is left."""
    found: dict[str, str] = {}
    left = [str(p) for p in paths]
    while left:
        done = subprocess.run(
            [sys.executable, "-m", "tests.runtime.vx_mutations"], input="\n".join(left),
            capture_output=True, text=True, check=False, cwd=ROOT, timeout=60 + 2 * len(left),
        )  # fmt: skip
        for line in done.stdout.splitlines():
            entry = json.loads(line)
            found[entry["path"]] = entry["outcome"]
        left = [p for p in left if p not in found]
        if left:
            found[left.pop(0)] = f"died {done.returncode} {done.stderr[-300:]}"
    return found


def judged(folder: Path, data: bytes, files: list[tuple[str, bytes]]) -> Counter[str]:
    """How the files ended, by kind; none in a signal, a foreign exception or other numbers."""
    entries = [("sound", data), *files]
    paths = [folder / f"{i}.vx" for i in range(len(entries))]
    for path, (_, content) in zip(paths, entries):
        path.write_bytes(content)
    found = outcomes(paths)
    by_label = {label: found[str(path)] for path, (label, _) in zip(paths, entries)}
    right = by_label.pop("sound")
    assert right.startswith("ran ")
    assert not {k: o for k, o in by_label.items() if o.startswith(("died", "foreign"))}
    kinds = Counter(o.partition(" ")[0] for o in by_label.values())
    # What runs all the same differs in notes, in names of nodes, or in a node that Python runs.
    others = {k: o for k, o in by_label.items() if o.startswith("ran") and o != right}
    assert not others or b'"PythonStep"' in data
    return kinds


@pytest.mark.parametrize("kind", SOUND)
def test_changed_fields_with_right_checksums(kind: str, tmp_path: Path) -> None:
    data = sound(kind, tmp_path)
    kinds = judged(tmp_path, data, list(mutants(data, 71, FEW)))
    assert kinds["ModelError"] > FEW // 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", SOUND)
def test_many_changed_fields_with_right_checksums(kind: str, tmp_path: Path) -> None:
    data = sound(kind, tmp_path)
    for seed in range(MANY // 500):
        judged(tmp_path, data, list(mutants(data, 1000 + seed, 500)))


def test_headers_that_are_no_json(tmp_path: Path) -> None:
    data = sound("gathering", tmp_path)
    files = list(texts(data))
    assert judged(tmp_path, data, files) == {"ModelError": len(files)}
