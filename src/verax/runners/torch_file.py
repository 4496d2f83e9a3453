"""PyTorch as a subject: a .pt2 file (an ExportedProgram) run eagerly or compiled by Inductor."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from verax.base.optional import optional
from verax.runners.child_runner import TIMEOUT
from verax.runners.feeding import feed
from verax.runners.file_runner import FileRunner
from verax.runners.torch_tensors import output_names, run_compiled, run_exported, user_shapes


def answer(
    request: Mapping[str, Any], inputs: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Run `request["path"]`; inner values under the names of the exported graph's nodes."""
    torch = optional("torch", "to run the subject 'torch'")
    if request["threads"]:
        torch.set_num_threads(request["threads"])
    program = torch.export.load(request["path"])
    named, said = feed(user_shapes(program), inputs)
    reply = {"said": said, "declared": output_names(program)}
    if request["compiled"]:
        return reply, run_compiled(program, named)
    return reply, run_exported(program, named, request["keep"])


class TorchFileRunner(FileRunner):
    """A .pt2 file run by PyTorch. compiled: by `torch.compile`, which shows no inner values."""

    task = prefix = "torch"
    packages = ("torch",)
    suffixes = (".pt2",)
    answer = staticmethod(answer)

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        compiled: bool = False,
        threads: int = 0,
        isolated: bool = True,
        timeout: float = TIMEOUT,
    ) -> None:
        super().__init__(
            path,
            detail="compiled" if compiled else "eager",
            request={"compiled": compiled},
            threads=threads,
            isolated=isolated,
            timeout=timeout,
        )
        self.watches = not compiled
        if compiled:
            self.name = self.name.replace("torch", "torch-compiled", 1)
