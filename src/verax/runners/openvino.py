"""OpenVINO as a subject, on the original ONNX file or on any graph written as ONNX.

A release has no switch for the transformations of its graph (fusions, folding). They need the nodes
that they rewrite in one model: run in pieces it does none of them, and piece joined to piece the
first that goes wrong is found, and the nodes that it needs.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, Unpack

import ml_dtypes
import numpy as np

from verax.base.errors import UnsupportedError, UsageError, VeraxError
from verax.ir.graph import Graph
from verax.ir.types import NARROW
from verax.records.bisection import Step
from verax.runners.engines import Engine
from verax.runners.engines import openvino as engine
from verax.runners.engines.openvino import FORMATS_OF, PRECISIONS, SWITCHES
from verax.runners.feeding import feed
from verax.runners.onnx.onnx_files import add_outputs, input_shapes, load, plain_name, text_of
from verax.runners.onnx.onnx_files import prepare as prepare
from verax.runners.onnx.onnx_pieces import JOINED, called, joints, nodes_at, run_in_pieces
from verax.runners.onnx.onnx_runner import Common, OnnxRunner
from verax.runners.spec import RunnerSpec, RunnerVariant, RunRequest

PACKED = {"u4": ml_dtypes.uint4, "i4": ml_dtypes.int4, "f4e2m1": ml_dtypes.float4_e2m1fn}
"""Element types of 4 bits, by OpenVINO's names."""
PLAIN = "what cannot be switched off"
"""The first step of a model that cannot be run in pieces: float32, and transformations of the
graph."""
PIECES = "each node in a model of its own"
"""The first step of others: float32, and no transformation can join two nodes."""


def answer(
    request: Mapping[str, Any], inputs: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Run `request["model"]` (path or bytes) and give its outputs and the values in "keep"."""
    engine.runtime()  # what is missing is said first
    source = load(request["model"])
    named, notes = feed(input_shapes(source.proto), inputs)
    outputs = [v.name for v in source.proto.graph.output]
    add_outputs(source.proto, request["keep"])
    for name, array in named.items():
        if array.dtype.name == "bfloat16" or array.dtype.name in NARROW:
            raise UnsupportedError(
                f"OpenVINO's Python interface takes no {array.dtype.name}", place=f"input {name!r}"
            )

    def run(model: Any, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        settings = request["threads"], request["precision"]
        compiled = engine.compiled(model.SerializeToString(), *settings, **request["switches"])
        if request.get("show"):
            notes["runtime model"] = json.dumps(engine.runtime_model(compiled))
        return _results(compiled({n: np.asarray(a, order="C") for n, a in arrays.items()}))

    closed_joints = request.get("closed_joints")
    if closed_joints is None or not joints(source.proto):
        values = run(source.proto, named)
    else:
        values = run_in_pieces(source.proto, named, closed_joints, run)
    values = {plain_name(n): a for n, a in values.items()}
    requested = {*outputs, *request["keep"]}
    return {"notes": notes, "declared": outputs}, {
        n: a for n, a in values.items() if n in requested
    }


def _unpacked(packed: np.ndarray, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Elements of 4 bits, which come two to a byte, the lower half first."""
    raw = packed.view(np.uint8).ravel()
    codes = np.stack([raw & 15, raw >> 4], axis=-1).ravel()[: int(np.prod(shape))]
    signed = dtype is ml_dtypes.int4
    numbers = np.where(codes > 7, codes.astype(np.int8) - 16, codes) if signed else codes
    values = codes.view(dtype) if dtype is ml_dtypes.float4_e2m1fn else numbers.astype(dtype)
    return values.reshape(shape)


def _results(results: Mapping[Any, Any]) -> dict[str, np.ndarray]:
    """What a request gave, under every name of each output."""
    values: dict[str, np.ndarray] = {}
    for port, array in results.items():
        kind = port.get_element_type().get_type_name()
        if kind == "bf16":
            array = np.asarray(array).view(ml_dtypes.bfloat16)  # it comes labeled float16
        elif kind in PACKED:
            array = _unpacked(np.asarray(array), tuple(port.get_shape()), PACKED[kind])
        for name in port.get_names():
            values[name] = np.array(array)
    return values


class OpenVinoRunner(OnnxRunner):
    """OpenVINO. precision: the inference precision to ask for, one of PRECISIONS; switches:
    properties that differ from its defaults; closed_joints: indices, from 1, of the nodes that are
    in one model with the node before, None for the full model; the rest as for `OnnxRunner`."""

    capabilities = dataclasses.replace(OnnxRunner.capabilities, slow_steps=True, script="openvino")
    packages = ("openvino",)
    answer = staticmethod(answer)

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes | None = None,
        *,
        precision: str = "f32",
        switches: Mapping[str, Any] | None = None,
        closed_joints: Collection[int] | None = None,
        **common: Unpack[Common],
    ) -> None:
        if precision not in PRECISIONS:
            raise UsageError(
                f"OpenVINO has no precision {precision!r}",
                next_step=f"choose one of {', '.join(PRECISIONS)}",
            )
        name = "openvino" if precision == "f32" else f"openvino:{precision}"
        precision_request, more = {"precision": precision}, dict(switches or {})
        details = precision_request | {name: str(value) for name, value in more.items()}
        request = {
            **precision_request,
            "switches": more,
            "closed_joints": None if closed_joints is None else [*closed_joints],
        }
        super().__init__(model, name, request, details, **common)
        stores_in = frozenset(FORMATS_OF[precision])
        self.capabilities = dataclasses.replace(self.capabilities, stores_in=stores_in)
        self.precision, self.switches, self.closed_joints = precision, more, closed_joints
        self._common = common
        self._joints: tuple[Graph, list[str]] | None = None

    def optimizations(
        self, graph: Graph, inputs: Mapping[str, np.ndarray]
    ) -> list[tuple[str, OpenVinoRunner]]:
        """The same subject with one node more each time that is in one model with those before it,
        then with one property more that switches an optimization on; the first with each node by
        itself, in float32. The last is the precision asked for."""
        together = self._joints_of(graph, inputs)
        steps = [(PIECES if together else PLAIN, self._with("f32", (), [] if together else None))]
        for i, name in enumerate(together, 1):
            closed_joints = None if i == len(together) else range(1, i + 1)
            steps.append((name, self._with("f32", (), closed_joints)))
        names = list(SWITCHES)
        switch_steps = [
            (f"{name}={SWITCHES[name][1]}", names[:i]) for i, name in enumerate(names, 1)
        ]
        steps += [(name, self._with("f32", on, None)) for name, on in switch_steps]
        if self.precision != "f32":
            steps.append((f"precision {self.precision}", self))
        return [*steps[:-1], (steps[-1][0], self)]

    def with_steps(self, names: Sequence[str]) -> OpenVinoRunner:
        """As `judge.protocol.Selective.with_steps`."""
        on = [name.partition("=")[0] for name in names if name.partition("=")[0] in SWITCHES]
        joint_texts = [name.removeprefix(JOINED) for name in names if name.startswith(JOINED)]
        closed_joints = [int(words.split()[0]) for words in joint_texts]
        with_precision = f"precision {self.precision}" in names
        is_one_model = self._joints is not None and not self._joints[1]
        return self._with(
            self.precision if with_precision else "f32", on, None if is_one_model else closed_joints
        )

    def step(self, graph: Graph, inputs: Mapping[str, np.ndarray], index: int) -> Step:
        """As `judge.protocol.Selective.step`: for a node, what the plugin runs in its place."""
        name = self.optimizations(graph, inputs)[index][0]
        if not name.startswith(JOINED):
            return Step(name, name, "CPU plugin", index)
        pair = nodes_at(load(self.model_for(graph)).proto, index)
        region = tuple(called(node) for node in pair)
        names = {v for node in pair for v in node.output} | {*region}
        after = [
            f"{kind} in the place of {', '.join(originals)}"
            for kind, originals in self.runtime_model(graph, inputs)
            if names & {*originals}
        ]
        before = "\n".join(text_of(node) for node in pair)
        return Step(name, name, "transformations", index, region, before, "\n".join(after))

    def _joints_of(self, graph: Graph, inputs: Mapping[str, np.ndarray]) -> list[str]:
        """What brings pieces of the model together; none where it does not run in pieces."""
        if self._joints is None or self._joints[0] is not graph:
            names = joints(load(self.model_for(graph)).proto)
            try:
                if names:
                    self._with("f32", (), []).run(graph, inputs)
            except (VeraxError, RuntimeError):  # the latter where it is not isolated
                names = []
            self._joints = graph, names
        return self._joints[1]

    def runtime_model(
        self, graph: Graph, inputs: Mapping[str, np.ndarray]
    ) -> list[tuple[str, list[str]]]:
        """As `engines.openvino.runtime_model`, of the whole model."""
        full_model = self._with("f32", (), None)
        full_model._request["show"] = True
        full_model._ask(graph, inputs, None, None)
        return [(kind, names) for kind, names in json.loads(full_model._notes["runtime model"])]

    def _with(
        self, precision: str, on: Collection[str], closed_joints: Collection[int] | None
    ) -> OpenVinoRunner:
        off = {name: values[0] for name, values in SWITCHES.items() if name not in on}
        runner = OpenVinoRunner(
            self.model,
            precision=precision,
            switches=off,
            closed_joints=closed_joints,
            **self._common,
        )
        runner.capabilities, runner._joints = self.capabilities, self._joints
        return runner


def _make(request: RunRequest, precision: str = "f32") -> OpenVinoRunner:
    return OpenVinoRunner(request.onnx, precision=precision, **request.common)


_CHOSEN = "the precision it chooses itself (bf16 on some processors)"
SPEC = RunnerSpec(
    {
        "openvino": RunnerVariant(
            "OpenVINO on the CPU in float32 (f32 is asked for)",
            _make,
            Engine("openvino", (".onnx",)),
            runs_onnx=True,
        ),
        **{
            f"openvino:{precision}": RunnerVariant(
                f"OpenVINO in {_CHOSEN if precision == 'default' else precision}",
                partial(_make, precision=precision),
                Engine("openvino", (".onnx",), {"precision": precision}),
            )
            for precision in PRECISIONS
        },
    },
    "openvino",
    OpenVinoRunner.packages,
)
