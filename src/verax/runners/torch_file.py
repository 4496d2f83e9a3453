"""PyTorch as a subject: a .pt2 file (an ExportedProgram) run eagerly or compiled by Inductor."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from verax.base.optional import optional
from verax.ir.graph import Graph
from verax.judge.protocol import Naming
from verax.runners.child_runner import TIMEOUT
from verax.runners.feeding import feed
from verax.runners.file_runner import FileRunner
from verax.runners.torch_memory import borrowed, written
from verax.runners.torch_tensors import output_names, run_exported, user_shapes

MARK = "|"
"""Between the number of a run and a name."""
STATE = f"state{MARK}"
"""Before the names of what the program shall remember at the beginning."""


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
    steps = _steps(inputs)
    fed = [feed(user_shapes(program), arrays) for arrays in steps]
    reply = {"said": fed[0][1], "declared": output_names(program)}
    module = program.module()
    call = torch.compile(module) if request["compiled"] else None
    found: dict[str, np.ndarray] = {}
    with borrowed(module) as memory:
        memory.put(_unmarked(inputs, STATE))
        for number, (named, _) in enumerate(fed):
            values = run_exported(
                program,
                named,
                request["keep"],
                module=module,
                call=call,
                written=request["written"],
            )
            values |= memory.new(request["state"])
            mark = "" if len(fed) == 1 else f"{number}{MARK}"
            found |= {f"{mark}{name}": array for name, array in values.items()}
    return reply, found


def _steps(inputs: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """Inputs of every run, from names like "0|x"; those of a single run have no mark."""
    plain = {k: v for k, v in inputs.items() if MARK not in k}
    if plain or not inputs:
        return [plain]
    numbers = sorted({int(k.partition(MARK)[0]) for k in inputs if not k.startswith(STATE)})
    return [_unmarked(inputs, f"{n}{MARK}") for n in numbers]


def _unmarked(arrays: Mapping[str, np.ndarray], mark: str) -> dict[str, np.ndarray]:
    return {k.removeprefix(mark): a for k, a in arrays.items() if k.startswith(mark)}


class TorchFileRunner(FileRunner):
    """A .pt2 file run by PyTorch. compiled: by `torch.compile`, which shows no inner values."""

    task = prefix = "torch"
    resets = True
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

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        if not graph.state:
            return super().run(graph, inputs, keep)
        return self.run_steps(graph, [{v: inputs[v] for v in graph.arguments}], inputs, keep)[0]

    def run_steps(
        self,
        graph: Graph,
        steps: Sequence[Mapping[str, np.ndarray]],
        state: Mapping[str, np.ndarray],
        keep: Sequence[str] | None = None,
        *,
        fill: int | None = None,
    ) -> list[dict[str, np.ndarray]]:
        """As `judge.protocol.Remembering.run_steps`: one child does them all."""
        arrays = {f"{n}{MARK}{v}": a for n, one in enumerate(steps) for v, a in one.items()}
        arrays |= {f"{STATE}{v}": state[v] for v in graph.state if v in state}
        found = self._ask(graph, arrays, keep, fill)
        if len(steps) == 1:
            return [found]
        return [_unmarked(found, f"{n}{MARK}") for n in range(len(steps))]

    def _asked(self, graph: Graph) -> dict[str, Any]:
        return {**super()._asked(graph), "state": dict(graph.state), "written": written(graph)}
