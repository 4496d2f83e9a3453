"""A compiled program starts without the compiler: what its load imports, and that it runs then."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import verax
from verax.base.machine import processor
from verax.compiler.kernels.target import Target

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
PROGRAM = """
import json, sys
import numpy as np
import verax

exe = verax.load(sys.argv[1])
found = exe.run({"image": np.ones((2, 1, 24, 20), np.float32)})["probabilities"]
loaded = {name.partition(".")[0] for name in sys.modules}
rooms = {name for name in sys.modules if name.startswith("verax.")}
print(json.dumps([found.tobytes().hex(), sorted(loaded), sorted(rooms)]))
"""


def test_a_program_runs_without_llvm_onnx_and_the_compiler(tmp_path: Path) -> None:
    model = verax.load(DIGITS, shapes={"n": 2})
    exe = verax.compile(model, threads=1)
    wanted = exe.run({"image": np.ones((2, 1, 24, 20), np.float32)})["probabilities"]
    exe.save(tmp_path / "digits.vx")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "digits.vx")],
        capture_output=True,
        text=True,
        check=True,
    )
    bits, packages, rooms = json.loads(done.stdout)
    assert bytes.fromhex(bits) == wanted.tobytes()
    assert not {"llvmlite", "onnx", "google", "threadpoolctl", "rich", "PIL"} & set(packages)
    assert not [r for r in rooms if r.startswith(("verax.ops", "verax.judge", "verax.frontends"))]
    assert not [r for r in rooms if "kernels" in r or "lower" in r]


def test_code_for_the_host_uses_what_its_target_says_and_nothing_else() -> None:
    """A .vx says "avx2": it must run on every machine with AVX2."""
    host = Target.host()
    assert host.runs_here()
    allowed = {f"+{f}" for f in processor.TARGETS[host.name][1]} | {"+neon"}
    assert set(host.features.split(",")) <= allowed


def test_what_the_processor_lacks_is_no_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(processor.VARIABLE, raising=False)
    flags = {
        "avx2": "fpu avx avx2 fma f16c bmi1 bmi2 abm popcnt movbe sse4_2 cx16",
        "none": "fpu avx f16c popcnt sse4_2 cx16",
    }
    wanted = {"avx2": set(processor.AVX2), "none": {"avx", "f16c", "popcnt", "sse4.2", "cx16"}}
    for name, line in flags.items():
        path = tmp_path / name
        path.write_text(f"processor : 0\nflags : {line}\n")
        before = processor.CPUINFO
        processor._features.cache_clear()
        try:
            processor.CPUINFO = path
            assert processor._features() == wanted[name]
        finally:
            processor.CPUINFO = before
            processor._features.cache_clear()
