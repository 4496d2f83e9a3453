"""PyTorch as a runner by name: of files, or of the ExportedProgram that a network was made from."""

from __future__ import annotations

from functools import partial

from verax.judge.protocol import Naming, Runner
from verax.runners.engines import Engine
from verax.runners.pytorch.torch_objects import ExportedProgramRunner
from verax.runners.pytorch.torch_tensors import on_device
from verax.runners.spec import RunnerSpec, RunRequest, framework
from verax.runners.torch_file import TorchFileRunner


def _of_file(request: RunRequest, path: str, compiled: bool = False) -> Runner:
    """Of the file, or of the ExportedProgram that the network under test was imported from."""
    if not path and request.program is not None:
        program = on_device(request.program, request.device)
        return ExportedProgramRunner(
            program, compiled=compiled, threads=request.threads, naming=Naming.network
        )
    file = request.file("torch-compiled" if compiled else "torch", path)
    return TorchFileRunner(
        file,
        compiled=compiled,
        threads=request.threads,
        timeout=request.timeout,
        device=request.device,
    )


_PROGRAMS = (".pt2", ".py")
SPEC = RunnerSpec(
    {
        "torch": framework(
            "PyTorch, eager, running a .pt2 file",
            _of_file,
            Engine("torch", _PROGRAMS),
            runs_code=True,
            takes_device=True,
        ),
        "torch-compiled": framework(
            "PyTorch, torch.compile, running a .pt2 file",
            partial(_of_file, compiled=True),
            Engine("torch", _PROGRAMS, {"compiled": True}),
            runs_code=True,
            takes_device=True,
        ),
    },
    "torch",
    TorchFileRunner.packages,
)
