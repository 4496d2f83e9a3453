"""Whoever compiles a network does not wait for what judges it, nor for other runtimes' drivers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
PROGRAM = """
import json, sys
import numpy as np
import verax

exe = verax.compile(verax.load(sys.argv[1], shapes={"n": 2}), cache=False)
exe(np.ones((2, 1, 24, 20), np.float32))
rooms = {".".join(name.split(".")[:2]) for name in sys.modules if name.startswith("verax.")}
print(json.dumps([sorted(rooms), sorted({name.partition(".")[0] for name in sys.modules})]))
"""


def test_a_network_is_compiled_and_run_without_the_judge() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(DIGITS)], capture_output=True, text=True, check=True
    )
    rooms, packages = json.loads(done.stdout)
    unwanted = {"api", "campaign", "certified", "cli", "evaluation", "export", "judge", "repro"}
    assert not {f"verax.{room}" for room in unwanted} & set(rooms)
    assert "verax.runners" not in rooms
    assert not {"torch", "asyncio", "unittest", "rich", "PIL"} & set(packages)
