"""PyTorch as a subject: a .pt2 file (an ExportedProgram) run eagerly or compiled by Inductor."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from verax.base.optional import optional
from verax.ir.graph import Graph
from verax.judge.protocol import Naming
from verax.runners.child_runner import TIMEOUT
from verax.runners.consecutive_runs import ConsecutiveRunner, put_together, taken_apart
from verax.runners.feeding import feed
from verax.runners.file_runner import FileRunner
from verax.runners.torch_memory import borrowed, written
from verax.runners.torch_tensors import output_names, run_exported, user_shapes


def prepare() -> Callable[[], None]:
    """Import what loading a program needs; what is to be done in each process forked from here."""
    torch = optional("torch", "to run the subject 'torch'")
    for name in ("torch._export.serde.serialize", "torch.export.pt2_archive._package"):
        with contextlib.suppress(ImportError):  # other versions have other parts
            importlib.import_module(name)

    def renew() -> None:
        torch.seed()

    return renew


def answer(
    request: Mapping[str, Any], inputs: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Run `request["path"]`; inner values under the names of the exported graph's nodes."""
    torch = optional("torch", "to run the subject 'torch'")
    if request["threads"]:
        torch.set_num_threads(request["threads"])
    program = torch.export.load(request["path"])
    steps, state = taken_apart(inputs)
    fed = [feed(user_shapes(program), arrays) for arrays in steps]
    reply = {"said": fed[0][1], "declared": output_names(program)}
    module = program.module()
    call = torch.compile(module) if request["compiled"] else None
    answers = []
    with borrowed(module) as memory:
        memory.put(state)
        for named, _ in fed:
            values = run_exported(
                program,
                named,
                request["keep"],
                module=module,
                call=call,
                written=request["written"],
            )
            answers.append({**values, **memory.new(request["state"])})
    return reply, put_together(answers)


class TorchFileRunner(ConsecutiveRunner, FileRunner):
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
        self._compiled = compiled
        if compiled:
            self.name = self.name.replace("torch", "torch-compiled", 1)

    @property
    def stepwise(self) -> bool:
        """Eager PyTorch runs an exported program node by node."""
        return not self._compiled and self.naming is Naming.network

    def _asked(self, graph: Graph) -> dict[str, Any]:
        return {**super()._asked(graph), "written": written(graph)}
