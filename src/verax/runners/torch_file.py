"""PyTorch as a subject: a .pt2 file (an ExportedProgram) run eagerly or compiled by Inductor."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from verax.base.errors import UsageError
from verax.base.machine.devices import HOST, require_torch_device
from verax.base.optional import optional
from verax.ir.graph import Graph
from verax.runners.children.child_runner import TIMEOUT
from verax.runners.children.consecutive_runs import ConsecutiveRunner, put_together, taken_apart
from verax.runners.device_memory import can_poison, poison_device
from verax.runners.feeding import feed
from verax.runners.file_runner import FileRunner
from verax.runners.pytorch.torch_compiling import Compiling, from_request, steps, to_request
from verax.runners.pytorch.torch_device import TorchDevice
from verax.runners.pytorch.torch_memory import borrowed, written
from verax.runners.pytorch.torch_tensors import (
    on_device,
    output_names,
    program_device,
    run_exported,
    user_shapes,
)


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
    program = _loaded(torch, request["path"], request["device"])
    device = TorchDevice(program_device(program))
    runs, state = taken_apart(inputs)
    fed = [feed(user_shapes(program), arrays) for arrays in runs]
    notes = {**device.describe(), **fed[0][1]}
    reply = {"notes": notes, "declared": output_names(program)}
    module = program.module()
    compiling = from_request(request)
    call = None if compiling is None else compiling.call(torch, module)
    answers = []
    applied: list[str] | None = [] if request.get("count") else None
    counting = contextlib.nullcontext() if compiling is None else compiling.counted(applied)
    if request["fill"] is not None and can_poison(torch, device.device):
        poison_device(torch, device.device, request["fill"], fresh=True)
    with borrowed(module) as memory, counting, device.entered():
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
    if applied is not None:
        reply["notes"] = {**notes, "applied": json.dumps(applied)}
    return reply, put_together(answers)


def _loaded(torch: Any, path: str, device: str) -> Any:
    """The program of a file, on the device of that name, or on its own for "".

    Raises `UsageError` where there is no such device.
    """
    if device:
        require_torch_device(torch, device)  # before the file is read
    try:
        program = torch.export.load(path)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise UsageError(
            f"PyTorch {torch.__version__} cannot load the program here: {reason}",
            next_step="a program that was exported on a GPU is loaded there; export it on the CPU, "
            "or run where there is such a device",
        ) from error
    return on_device(program, device, own=True)


class TorchFileRunner(ConsecutiveRunner, FileRunner):
    """A .pt2 file run by PyTorch. compiled: by `torch.compile`, which shows no inner values;
    compiling: how, if not by Inductor and whole. device: what it is moved to ("cuda:0"), "" for
    where it was exported."""

    prefix = "torch"
    packages = ("torch",)
    suffixes = (".pt2",)
    answer = staticmethod(answer)

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        compiled: bool = False,
        compiling: Compiling | None = None,
        threads: int = 0,
        isolated: bool = True,
        timeout: float = TIMEOUT,
        device: str = "",
    ) -> None:
        compiling = compiling or (Compiling() if compiled else None)
        compiled = compiling is not None
        super().__init__(
            path,
            detail="compiled" if compiled else "eager",
            request={"compiled": to_request(compiling), "device": device},
            threads=threads,
            isolated=isolated,
            timeout=timeout,
        )
        # Eager PyTorch runs an exported program node by node.
        self.capabilities = dataclasses.replace(
            self.capabilities,
            watches=not compiled,
            stepwise=not compiled,
            slow_steps=True,
            any_device=device.partition(":")[0] not in HOST,
        )
        self._compiled = compiled
        if compiled:
            self.name = self.name.replace("torch", "torch-compiled", 1)
        self._arguments: dict[str, Any] = {
            "threads": threads,
            "isolated": isolated,
            "timeout": timeout,
            "device": device,
        }

    def optimizations(
        self, graph: Graph, inputs: Mapping[str, np.ndarray]
    ) -> list[tuple[str, TorchFileRunner]]:
        """Of one that is compiled: eager, the backends of torch.compile, then one more application
        of Inductor each time."""
        if not self._compiled:
            return [("eager", self)]
        self._request["count"] = True
        try:
            self.run(graph, inputs)
        finally:
            del self._request["count"]
        applied = json.loads(self._notes.pop("applied", "[]"))
        runners = [(name, self._with(compiling)) for name, compiling in steps(applied)]
        return [*runners[:-1], (runners[-1][0], self)]

    def _with(self, compiling: Compiling | None) -> TorchFileRunner:
        runner = TorchFileRunner(self._request["path"], compiling=compiling, **self._arguments)
        runner.capabilities = runner.capabilities.of_network(self.capabilities.naming)
        return runner

    def _request_for(self, graph: Graph) -> dict[str, Any]:
        return {**super()._request_for(graph), "written": written(graph)}
