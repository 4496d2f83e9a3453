"""Loading code in a process whose address space is crowded: other frameworks, mapped weights."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
PROGRAM = """
import ctypes, sys
import numpy as np
import verax

libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
PRIVATE, UNRESERVED, size = 0x22, 0x4000, int(sys.argv[2])
model = verax.load(sys.argv[1], shapes={"n": 1})
small = [libc.mmap(None, size, 0, PRIVATE | UNRESERVED, -1, 0) for _ in range(400)]
assert libc.mmap(None, 5 << 30, 0, PRIVATE | UNRESERVED, -1, 0)
for address in small[::2]:  # holes, 5 GB away from where anything larger goes
    libc.munmap(address, size)
x = np.zeros((1, 1, 24, 20), np.float32)
print(verax.compile(model).run({"image": x})["probabilities"].sum())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the holes are made by Linux's mmap")
@pytest.mark.parametrize("hole", [1 << 12, 1 << 15, 1 << 18])
def test_sections_stay_near_each_other(hole: int) -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(DIGITS), str(hole)],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stderr[-500:]
    assert abs(float(run.stdout) - 1) < 2**-20
