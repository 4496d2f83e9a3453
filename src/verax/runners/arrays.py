"""Recorded answers as a subject: a dictionary of arrays or an .npz file, any subset of values; or
the outputs alone, in order."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from verax.base.arrays import as_array
from verax.base.errors import UsageError
from verax.base.machine.devices import devices_in
from verax.base.printing import Named
from verax.base.storage.npz import read_npz
from verax.ir.graph import Graph
from verax.judge.protocol import Capabilities, Naming, as_declared
from verax.runners.functions import named_results

INPUT_MARK, OUTPUT_MARK = "in:", "out:"
"""Prefixes that tell inputs from answers in an .npz; without them, names tell."""
OUTPUTS_ALONE = (
    "only outputs were recorded: nodes inside were judged through them, all together; "
    "verax.record keeps inner values, too"
)


class ArraysRunner(Named):
    """Answers that were recorded somewhere else, named as the network names its values.

    Arrays called `in:NAME` are the inputs they belong to, `out:NAME` are answers; without these
    marks an array named like an input is that input, and every other one an answer.
    """

    capabilities = Capabilities(naming=Naming.given, any_device=True)

    def __init__(self, arrays: Mapping[str, np.ndarray], name: str = "arrays") -> None:
        self.name = name
        self.devices = tuple(dict.fromkeys(devices_in(arrays)))
        plain = {k: as_array(v, f"array {k!r}") for k, v in arrays.items()}
        marked = {k for k in plain if k.startswith((INPUT_MARK, OUTPUT_MARK))}
        self.answers = {k.removeprefix(OUTPUT_MARK): v for k, v in plain.items() if k not in marked}
        self.answers |= {
            k.removeprefix(OUTPUT_MARK): v for k, v in plain.items() if k.startswith(OUTPUT_MARK)
        }
        self._outputs_alone = False
        inputs = {
            k.removeprefix(INPUT_MARK): v for k, v in plain.items() if k.startswith(INPUT_MARK)
        }
        self.stored_inputs: Mapping[str, np.ndarray] | None = inputs or dict(self.answers)
        if not self.answers:
            raise UsageError(
                "there is no answer in it",
                place=name,
                next_step="store arrays under the names of the network's outputs",
            )

    def describe(self) -> dict[str, str]:
        note = {"note": OUTPUTS_ALONE} if self._outputs_alone else {}
        return {"kind": "recorded arrays", "arrays": str(len(self.answers))} | (
            _copied(self.devices) | note
        )

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        values = {
            k: as_declared(graph, k, v) for k, v in self.answers.items() if k not in graph.inputs
        }
        inside = graph.producers.keys() - {*graph.outputs}
        self._outputs_alone = bool(inside) and inside.isdisjoint(values)
        return values


class AnswerRunner(Named):
    """A network's outputs, as somebody else computed them: arrays in its order, without names."""

    capabilities = Capabilities(any_device=True)

    def __init__(self, outputs: Sequence[Any], name: str = "the answer") -> None:
        self.name = name
        self.devices = tuple(dict.fromkeys(devices_in(list(outputs))))
        self.outputs = [as_array(v, f"output {i} of {name}") for i, v in enumerate(outputs)]
        self.stored_inputs: Mapping[str, np.ndarray] | None = {}

    def describe(self) -> dict[str, str]:
        return {
            "kind": "recorded arrays",
            "arrays": str(len(self.outputs)),
            **_copied(self.devices),
        }

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        named = named_results(graph, self.outputs, self.name)
        return {k: as_declared(graph, k, v) for k, v in named.items()}


def _copied(devices: Sequence[str]) -> dict[str, str]:
    """For `describe`: the devices that recorded arrays were copied from."""
    return {"copied from": ", ".join(devices)} if devices else {}


def load_npz(path: str | os.PathLike[str]) -> ArraysRunner:
    """Recorded answers from an .npz file. Raises `UsageError` when it cannot be read."""
    return ArraysRunner(read_npz(path), Path(path).name)
