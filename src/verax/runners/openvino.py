"""OpenVINO as a subject, on the original ONNX file or on any graph written as ONNX."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Unpack

import ml_dtypes
import numpy as np

from verax.base.errors import UnsupportedError, UsageError
from verax.ir.graph import Graph
from verax.records.bisection import Step
from verax.runners.engines import openvino as engine
from verax.runners.engines.openvino import PRECISIONS, SWITCHES
from verax.runners.feeding import feed
from verax.runners.onnx_files import add_outputs, input_shapes, load
from verax.runners.onnx_runner import Common, OnnxRunner

PLAIN = "what cannot be switched off"
"""The first step: float32, and transformations of the graph."""


def answer(
    request: Mapping[str, Any], inputs: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Run `request["model"]` (path or bytes) and give its outputs and the values in "keep"."""
    engine.runtime()  # what is missing is said first
    source = load(request["model"])
    named, said = feed(input_shapes(source.proto), inputs)
    outputs = [v.name for v in source.proto.graph.output]
    add_outputs(source.proto, request["keep"])
    for name, given in named.items():
        if given.dtype.name == "bfloat16":
            raise UnsupportedError(
                "OpenVINO's Python interface takes no bfloat16", place=f"input {name!r}"
            )
    model, more = source.proto.SerializeToString(), request["switches"]
    compiled = engine.compiled(model, request["threads"], request["precision"], **more)
    results = compiled({name: np.ascontiguousarray(a) for name, a in named.items()})
    shown: dict[str, np.ndarray] = {}
    for port, array in results.items():
        if port.get_element_type().get_type_name() == "bf16":
            array = np.asarray(array).view(ml_dtypes.bfloat16)  # it comes labelled float16
        for name in port.get_names():
            shown[name] = np.array(array)
    wanted = {*outputs, *request["keep"]}
    return {"said": said, "declared": outputs}, {n: a for n, a in shown.items() if n in wanted}


class OpenVinoRunner(OnnxRunner):
    """OpenVINO. precision: the inference precision to ask for, one of PRECISIONS; switches:
    properties that differ from its defaults; the rest as for `OnnxRunner`."""

    task = "openvino"
    packages = ("openvino",)
    answer = staticmethod(answer)

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes | None = None,
        *,
        precision: str = "f32",
        switches: Mapping[str, Any] | None = None,
        **common: Unpack[Common],
    ) -> None:
        if precision not in PRECISIONS:
            raise UsageError(
                f"OpenVINO has no precision {precision!r}",
                next_step=f"choose one of {', '.join(PRECISIONS)}",
            )
        name = "openvino" if precision == "f32" else f"openvino:{precision}"
        asked, more = {"precision": precision}, dict(switches or {})
        shown = asked | {name: str(value) for name, value in more.items()}
        super().__init__(model, name, {**asked, "switches": more}, shown, **common)
        self.precision, self.switches = precision, more
        self._common = common

    def optimisations(
        self, graph: Graph, inputs: Mapping[str, np.ndarray]
    ) -> list[tuple[str, OpenVinoRunner]]:
        """The same subject with one property more each time that switches an optimisation on; the
        first with what cannot be switched off, in float32. The last is the precision asked for."""
        names = list(SWITCHES)
        found = [(f"{name}={SWITCHES[name][1]}", names[:i]) for i, name in enumerate(names, 1)]
        steps = [(PLAIN, self._with("f32", ()))]
        steps += [(name, self._with("f32", on)) for name, on in found]
        if self.precision != "f32":
            steps.append((f"precision {self.precision}", self))
        return [*steps[:-1], (steps[-1][0], self)]

    def with_steps(self, names: Sequence[str]) -> OpenVinoRunner:
        """As `judge.protocol.Selective.with_steps`."""
        on = [name.partition("=")[0] for name in names if "=" in name]
        wanted = f"precision {self.precision}" in names
        return self._with(self.precision if wanted else "f32", on)

    def step(self, graph: Graph, inputs: Mapping[str, np.ndarray], number: int) -> Step:
        """As `judge.protocol.Selective.step`; what it did to the graph is not shown."""
        name = self.optimisations(graph, inputs)[number][0]
        return Step(name, name, "CPU plugin", number)

    def _with(self, precision: str, on: Collection[str]) -> OpenVinoRunner:
        off = {name: values[0] for name, values in SWITCHES.items() if name not in on}
        found = OpenVinoRunner(self.model, precision=precision, switches=off, **self._common)
        found.naming = self.naming
        return found
