"""NVIDIA's assembler takes the PTX of every operator (`pip install nvidia-cuda-nvcc`).

It needs no card, and is asked for the oldest and for a new one that it knows.
"""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
from tests.compiler.test_every_lowering import networks

from verax.base.errors import VeraxError
from verax.base.option_groups.settings import Settings
from verax.compiler.kernels.target import Target
from verax.compiler.place.program import lower
from verax.compiler.plan.choice import RULES
from verax.runtime.gpu.code import unpacked

ASSEMBLED_FOR = {"sm_70": "sm_75", "sm_80": "sm_80", "sm_90": "sm_90"}
"""By target, what the assembler makes of it: ptxas 13 knows no 7.0, whose PTX later cards run."""
MOST_NETWORKS = 12
_assembled: set[bytes] = set()


@cache
def assembler() -> str:
    """Path of ptxas; "" where there is none."""
    on_path = shutil.which("ptxas")
    package = importlib.util.find_spec("nvidia")
    folders = [] if package is None else package.submodule_search_locations or []
    wheels = itertools.chain.from_iterable(Path(f).rglob("ptxas") for f in folders)
    return on_path or next(map(str, wheels), "")


@pytest.mark.slow
@pytest.mark.skipif(not assembler(), reason="there is no ptxas")
@pytest.mark.parametrize("architecture", ASSEMBLED_FOR)
@pytest.mark.parametrize("name", sorted(RULES))
def test_the_assembler_takes_an_operator(name: str, architecture: str, tmp_path: Path) -> None:
    kernels = 0
    for _, graph, _ in itertools.islice(networks(name), MOST_NETWORKS):
        try:
            lowered = lower(graph, Target.cuda(architecture), Settings(1, threads=1))
        except VeraxError:  # shapes that only running tells
            continue
        code = lowered.binary.object_code
        for kernel, ptx in unpacked(code).ptx.items() if code else ():
            kernels += 1
            digest = hashlib.sha256(ptx.replace(kernel.encode(), b"kernel")).digest()
            if digest not in _assembled:
                _assembled.add(digest)
                path = tmp_path / f"{kernel}.ptx"
                path.write_bytes(ptx)
                model = ASSEMBLED_FOR[architecture]
                command = [assembler(), f"-arch={model}", "-O1", str(path), "-o", "/dev/null"]
                done = subprocess.run(command, capture_output=True, text=True)
                assert not done.returncode, (kernel, done.stderr)
    assert kernels or name in ("ConstantOfShape", "Range"), "no network of it has a kernel"
