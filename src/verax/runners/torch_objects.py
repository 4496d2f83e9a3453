"""PyTorch objects as subjects: modules watched by forward hooks, and ExportedPrograms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from verax.base.optional import installed_version, optional
from verax.ir.graph import Graph
from verax.runners.feeding import collect, feed
from verax.runners.functions import called, named_results
from verax.runners.memory import InProcess
from verax.runners.torch_tensors import PURPOSE, from_torch, run_exported, to_torch, user_shapes


class TorchModuleRunner(InProcess):
    """Calls a `torch.nn.Module` with the inputs in the model's order, and hooks its submodules.

    A submodule shows the value that carries its name ("layer1.0.conv1"), or that a node produces
    which was exported from it (ONNX nodes are called `/layer1/layer1.0/conv1/Conv`).
    """

    watches = True

    def __init__(self, module: Any, name: str = "") -> None:
        self.module = module
        self.name = name or f"torch:{type(module).__name__}"

    def describe(self) -> dict[str, str]:
        mode = "training" if self.module.training else "evaluation"
        return {"kind": "torch module", "version": installed_version("torch"), "mode": mode}

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        torch = optional("torch", PURPOSE)
        tensors = [to_torch(np.asarray(inputs[v])) for v in graph.inputs]
        shown: dict[str, np.ndarray] = {}
        handles = [
            self._submodule(path).register_forward_hook(_recorder(shown, value))
            for value, path in self._watched(graph, keep or ()).items()
        ]
        try:
            with torch.no_grad():
                result = called(self.module, tensors, self.name)
        finally:
            for handle in handles:
                handle.remove()
        return {**shown, **named_results(graph, _plain(result), self.name)}

    def _submodule(self, path: str) -> Any:
        return self.module.get_submodule(path)

    def _watched(self, graph: Graph, keep: Sequence[str]) -> dict[str, str]:
        """Value -> path of the submodule that makes it, where that is clear."""
        leaves = {p for p, m in self.module.named_modules() if p and not list(m.children())}
        found = {}
        makers: dict[str, list[str]] = {}
        for value in keep:
            node = graph.producers.get(value)
            if value in leaves:
                found[value] = value
            elif node is not None and len(node.outputs) == 1:
                makers.setdefault(module_path(node.name), []).append(value)
        found |= {v[0]: path for path, v in makers.items() if path in leaves and len(v) == 1}
        return found


def module_path(node: str) -> str:
    """`layer1.0.conv1` of `/layer1/layer1.0/conv1/Conv`: the module a node was exported from."""
    scopes = [s for s in node.split("/") if s][:-1]
    path: list[str] = []
    for scope in scopes:
        if path and scope.startswith(f"{path[-1]}."):
            path.pop()
        path.append(scope)
    return ".".join(path)


def _recorder(shown: dict[str, np.ndarray], value: str) -> Any:
    def hook(module: Any, inputs: Any, output: Any) -> None:
        if hasattr(output, "detach") and value not in shown:  # a module used twice: the first time
            shown[value] = from_torch(output)

    return hook


def _plain(result: Any) -> Any:
    """Tensors as arrays, whatever holds them; dataclass-like results as mappings."""
    if hasattr(result, "detach"):
        return from_torch(result)
    if isinstance(result, Mapping):
        return {k: from_torch(v) for k, v in result.items() if hasattr(v, "detach")}
    if isinstance(result, tuple | list):
        return [from_torch(v) for v in result if hasattr(v, "detach")]
    return result


class ExportedProgramRunner(InProcess):
    """Runs a `torch.export.ExportedProgram`; inner values under the names of its nodes."""

    watches = True

    def __init__(self, program: Any, name: str = "torch:ExportedProgram") -> None:
        self.program, self.name = program, name
        self._said: dict[str, str] = {}

    def describe(self) -> dict[str, str]:
        version = installed_version("torch")
        return {"kind": "torch ExportedProgram", "version": version, **self._said}

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        named, self._said = feed(user_shapes(self.program), inputs)
        values: dict[str, np.ndarray] = called(
            lambda: run_exported(self.program, named, keep or ()), (), self.name
        )
        declared = [str(v) for v in self.program.graph_signature.user_outputs]
        values, said = collect(graph, values, declared)
        self._said |= said
        return values
