"""The interpreter may end while threads are in native code: nothing of theirs is freed."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import sys, threading, time
import numpy as np
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.ir.graph import Builder
from verax.ir.types import TensorType
from verax.ops.sums.linear import MatMul

ROWS, PAUSE = int(sys.argv[1]), float(sys.argv[2])
b = Builder("net")
x = b.input("x", TensorType.parse(f"float32[{ROWS}, 72]"))
w = b.constant(np.ones((72, 56), np.float32), "w")
graph = b.graph([b.add(MatMul(), [x, w])])
inputs = {"x": np.ones((ROWS, 72), np.float32)}
made = [compile(graph, Settings(threads=2)) for _ in range(2)]

def work(exe):
    while True:
        exe.run(inputs)

for exe in made:
    threading.Thread(target=work, args=(exe,), daemon=True).start()
time.sleep(PAUSE)
print("leaving")
"""


@pytest.mark.parametrize("rows", [30, 3000])
def test_daemon_threads_may_be_running_programs_at_the_end(rows: int) -> None:
    for attempt in (1, 3):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(rows), str(0.01 * attempt)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "leaving\n"
