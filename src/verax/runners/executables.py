"""Compiled programs that the caller holds, as subjects."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from verax.ir.graph import Graph
from verax.runners.functions import FunctionRunner, named_results
from verax.runners.memory import poisoned_memory
from verax.runtime.stateful import StatefulExecutable


class ExecutableRunner(FunctionRunner):
    """Runs an executable with the inputs in the model's order; its state is put back afterwards."""

    capabilities = dataclasses.replace(
        FunctionRunner.capabilities,
        resets=True,
        fast_algorithms=frozenset({"Winograd", "Strassen"}),  # its level may be the highest
    )

    def __init__(self, executable: StatefulExecutable, name: str) -> None:
        super().__init__(executable, name)
        self.executable = executable

    def describe(self) -> dict[str, str]:
        return {"kind": "a compiled program"}

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        arguments = {v: inputs[v] for v in graph.arguments}
        return self.run_steps(graph, [arguments], inputs, keep)[0]

    def run_steps(
        self,
        graph: Graph,
        steps: Sequence[Mapping[str, np.ndarray]],
        state: Mapping[str, np.ndarray],
        keep: Sequence[str] | None = None,
        *,
        fill: int | None = None,
    ) -> list[dict[str, np.ndarray]]:
        exe, results = self.executable, []
        before = exe.state
        try:
            exe.reset()
            exe.state = {v: a for v, a in state.items() if v in before}
            with contextlib.nullcontext() if fill is None else poisoned_memory(fill):
                for inputs in steps:
                    arrays = (inputs[v] for v in graph.arguments)
                    outputs = exe.run(dict(zip(exe.inputs, arrays)))
                    new = {graph.state[v]: a for v, a in exe.state.items() if v in graph.state}
                    results.append({**named_results(graph, outputs, self.name), **new})
        finally:
            exe.state = before
        return results
