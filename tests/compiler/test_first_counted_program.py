"""The first program of a process counts too: no rule of planning has been imported before it."""

from __future__ import annotations

import subprocess
import sys

from verax.compiler.place import program
from verax.compiler.plan.choice import RULES
from verax.compiler.plan.counting import COUNTING

CODE = """
import sys
import numpy as np
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.ir.dim import symbol
from verax.ir.graph import Builder
from verax.ir.types import DType, TensorType
from verax.ops.movement.gather import Compress
from verax.ops.pointwise.comparison import Greater

assert "verax.compiler.place.program" not in sys.modules
b = Builder("first")
x = b.input("x", TensorType(DType.float32, (symbol("n"), 5)))
keep = b.input("keep", TensorType(DType.bool_, (symbol("n"),)))
exe = compile(b.graph([b.add(Compress(axis=0), [x, keep])]), Settings(2, threads=1))
for n in (7, 13):
    kept = np.arange(n) % 3 == 1
    data = np.arange(n * 5, dtype=np.float32).reshape(n, 5)
    (found,) = exe.run({"x": data, "keep": kept}).values()
    assert np.array_equal(found, data[kept])
print(len(exe._open.programs), exe.plan.on_reference)
"""


def test_a_new_process_makes_one_program_that_counts() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "1 ()", done.stdout


def test_what_counts_is_planned() -> None:
    assert program.__name__ and RULES.keys() >= COUNTING
