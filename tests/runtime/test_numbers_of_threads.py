"""Code made for several threads gives the same bits with as many as there are, if only the one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from verax.base.option_groups.settings import Settings
from verax.compiler.artifacts.save import save
from verax.compiler.artifacts.saved_program import SavedExecutable
from verax.compiler.compile import compile
from verax.compiler.executable import Executable
from verax.ir.graph import Builder
from verax.ir.types import TensorType
from verax.ops.sums.linear import MatMul


def made_for_two() -> Executable:
    random = np.random.default_rng(21)
    b = Builder("net")
    x = b.input("x", TensorType.parse("float32[58, 72]"))
    w = b.constant(random.standard_normal((72, 46)).astype(np.float32), "w")
    return compile(b.graph([b.add(MatMul(), [x, w], ["y"])]), Settings(threads=2))


def drawn() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(22).standard_normal((58, 72)).astype(np.float32)}


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_saved_program_runs_on_any_number_of_threads(tmp_path: Path, threads: int) -> None:
    exe = made_for_two()
    assert exe.specialized.lowered.binary.pool
    expected = exe.run(drawn())["y"]
    save(exe, tmp_path / "net.vx")
    saved = SavedExecutable(tmp_path / "net.vx", threads=threads)
    assert saved.run(drawn())["y"].tobytes() == expected.tobytes()


def test_a_program_whose_workers_were_stopped_still_runs() -> None:
    exe = made_for_two()
    expected = exe.run(drawn())["y"]
    for _ in range(2):
        exe.specialized.program.close()
        assert exe.run(drawn())["y"].tobytes() == expected.tobytes()
