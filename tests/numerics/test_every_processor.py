"""What is promised does not depend on the instructions that NumPy finds: AVX-512, AVX2 or neither.

NumPy takes its own ways to elementary functions on each (its exp has other bits with AVX-512 than
with AVX2); it can be told to leave instructions out. Every operator's digests are made again so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__
from tests.numerics.test_arithmetic_version import KINDS, OPERATORS, STORED

ROOT = Path(__file__).parents[2]
FOUND = [name for name in __cpu_dispatch__ if __cpu_features__.get(name)]
"""Instructions that NumPy has code for and this processor can run, beyond the least it needs."""
WIDE = [name for name in FOUND if "512" in name or name == "X86_V4"]
MAKE = """
import json
from tests.numerics.test_arithmetic_version import KINDS, OPERATORS, bits_in, bits_of
from numpy import exp, linspace
made = {name: [bits_of(name)[1], *(bits_in(name, kind) for kind in KINDS)] for name in OPERATORS}
print(json.dumps([made, exp(linspace(-9, 9, 999)).tobytes().hex()]))
"""


def digests_without(instructions: list[str]) -> tuple[dict[str, list[str]], str]:
    """Of every operator, as `arithmetic.json` has them; and NumPy's own exp of some numbers."""
    settings = {
        "NPY_DISABLE_CPU_FEATURES": " ".join(instructions),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
    }
    command = [sys.executable, "-W", "ignore", "-W", "error::ImportWarning", "-c", MAKE]
    done = subprocess.run(
        command,
        env={**os.environ, **settings},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    made, own = json.loads(done.stdout)
    return made, own


@pytest.mark.parametrize(
    "instructions",
    [
        pytest.param(WIDE, marks=pytest.mark.skipif(not WIDE, reason="it has no AVX-512")),
        pytest.param(FOUND, marks=pytest.mark.skipif(not FOUND, reason="it has only the least")),
    ],
    ids=["without AVX-512", "the least"],
)
def test_no_promised_bit_depends_on_the_processor(instructions: list[str]) -> None:
    stored = json.loads(STORED.read_text())
    made, own = digests_without(instructions)
    differing = [
        name
        for name in OPERATORS
        if made[name] != [stored["bits"][name][1], *(stored[kind].get(name, "") for kind in KINDS)]
    ]
    assert not differing
    if WIDE:  # this test would notice: NumPy's own numbers are others
        assert own != np.exp(np.linspace(-9, 9, 999)).tobytes().hex()
