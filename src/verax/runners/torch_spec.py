"""PyTorch as a runner by name: of files, or of the ExportedProgram that a network was made from."""

from __future__ import annotations

from functools import partial

from verax.judge.protocol import Naming, Runner
from verax.runners.engines import Engine
from verax.runners.spec import RunnerSpec, RunRequest, framework
from verax.runners.torch_file import TorchFileRunner
from verax.runners.torch_objects import ExportedProgramRunner


def _of_file(request: RunRequest, path: str, compiled: bool = False) -> Runner:
    """Of the file, or of the ExportedProgram that the network under test was imported from."""
    if not path and request.program is not None:
        return ExportedProgramRunner(
            request.program, compiled=compiled, threads=request.threads, naming=Naming.network
        )
    file = request.file("torch-compiled" if compiled else "torch", path)
    return TorchFileRunner(
        file, compiled=compiled, threads=request.threads, timeout=request.timeout
    )


_PROGRAMS = (".pt2", ".py")
SPEC = RunnerSpec(
    {
        "torch": framework(
            "PyTorch, eager, running a .pt2 file",
            _of_file,
            Engine("torch", _PROGRAMS),
            runs_code=True,
        ),
        "torch-compiled": framework(
            "PyTorch, torch.compile, running a .pt2 file",
            partial(_of_file, compiled=True),
            Engine("torch", _PROGRAMS, {"compiled": True}),
            runs_code=True,
        ),
    },
    "torch",
    TorchFileRunner.packages,
)
