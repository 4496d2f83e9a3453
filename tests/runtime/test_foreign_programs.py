"""Code for another processor can be compiled, looked at and saved here; running it is refused in
words, where it would end the process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import verax
import verax.ops
from verax.base.errors import CompileError
from verax.base.machine import processor
from verax.base.machine.processor import AVX2, NAMES, TARGETS, require_runs_here, runs_here
from verax.base.option_groups.settings import Settings
from verax.compiler.artifacts.cache import ProgramCache
from verax.compiler.artifacts.save import save
from verax.compiler.artifacts.saved_program import SavedExecutable
from verax.compiler.compile import compile as compile_graph
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.runtime.program import Program
from verax.runtime.vx import load_binary

X = np.random.default_rng(77).standard_normal((2, 3, 9, 7)).astype(np.float32)


def network(rows: int | str = 9) -> Graph:
    b = Builder()
    x = b.input("x", TensorType.parse(f"float32[2, 3, {rows}, 7]"))
    w = np.random.default_rng(78).standard_normal((16, 3, 3, 2)).astype(np.float32)
    return b.graph([b.add(REGISTRY["Conv"](), [x, b.constant(w, "w")])])


@pytest.fixture(autouse=True)
def only_avx2(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor with AVX2 and nothing more; on another kind of machine none of the targets."""
    monkeypatch.setattr(processor, "_features", lambda: frozenset(AVX2))


FOREIGN = [name for name in NAMES if name in TARGETS and name != "avx2"] + ["sm_80"]


@pytest.mark.parametrize("target", FOREIGN)
@pytest.mark.parametrize("rows", [9, "h"])
def test_a_program_for_more_than_this_processor_is_compiled_and_not_run(
    target: str, rows: int | str, tmp_path: Path
) -> None:
    exe = compile_graph(network(rows), Settings(threads=3, target=target))
    with pytest.raises(CompileError, match=f"compiled for '{target}', which this machine") as told:
        exe.run({"x": X})
    assert "target host" in told.value.next_step
    assert exe.plan.lines and exe.specialized.binary.target == target
    save(exe, tmp_path / "a.vx")
    assert load_binary(tmp_path / "a.vx")[0].target == target
    for run in (
        lambda: exe.profile({"x": X}, runs=1),
        lambda: exe.specialized.program.poison(7),
        lambda: Program(exe.specialized.binary),
        lambda: SavedExecutable(tmp_path / "a.vx"),
    ):
        with pytest.raises(CompileError, match="which this machine does not run"):
            run()
    exe.specialized.program.close()


def test_what_the_processor_lacks_is_said() -> None:
    if not runs_here("avx2"):
        pytest.skip("another kind of processor")
    with pytest.raises(CompileError, match="it has no avxvnni"):
        require_runs_here("avxvnni", "a.vx")
    with pytest.raises(CompileError, match=re.escape("does not run\n  at: a.vx")):
        require_runs_here("neon", "a.vx")
    require_runs_here("avx2")


def test_a_kept_program_is_not_run_either(tmp_path: Path) -> None:
    cache = ProgramCache(tmp_path / "programs")
    for _ in range(2):
        exe = compile_graph(network(), Settings(threads=1, target="avxvnni"), cache=cache)
        with pytest.raises(CompileError, match="does not run"):
            exe.run({"x": X})
    assert exe.specialized.cached_notes is not None


def test_the_judge_says_so_too() -> None:
    exe = verax.compile(network(), target="avxvnni", threads=1, cache=False)
    with pytest.raises(verax.base.errors.VeraxError, match="does not run"):
        verax.check(network(), exe)


REAL = """
import sys, numpy as np, verax
from tests.runtime.test_foreign_programs import X, network
from verax.base.errors import CompileError
try:
    verax.compile(network(), target=sys.argv[1], threads=3, cache=False).run({"x": X})
except CompileError as error:
    print("refused:", error.cause)
else:
    print("ran")
"""


@pytest.mark.parametrize("target", ["avxvnni", "avx512bf16", "aarch64", "host"])
def test_no_process_dies(target: str) -> None:
    """Of whatever this machine really is."""
    done = subprocess.run(
        [sys.executable, "-c", REAL, target], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert done.stdout.startswith(("refused:", "ran"))
    assert target not in ("host",) or done.stdout == "ran\n"
