"""ONNX Runtime as a subject, on the original file or on any graph written as ONNX."""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from verax.base.errors import UsageError
from verax.base.option_groups.options import PassOptions
from verax.ir.graph import Graph
from verax.onnx_format.package import onnx
from verax.records.bisection import Step
from verax.runners.children.child_files import FOLDER
from verax.runners.engines import Engine
from verax.runners.engines import onnxruntime as engine
from verax.runners.engines.onnxruntime import LEVELS, OPTIMIZERS
from verax.runners.feeding import feed, require_numpy_types
from verax.runners.onnx.onnx_files import add_outputs, input_shapes, load, plain_name, text_of
from verax.runners.onnx.onnx_files import prepare as prepare
from verax.runners.onnx.onnx_runner import Common, OnnxRunner
from verax.runners.spec import RunnerSpec, RunnerVariant, RunRequest


def answer(
    request: Mapping[str, Any], inputs: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Run `request["model"]` (path or bytes) and give its outputs and the values in "keep"."""
    engine.runtime()  # what is missing is said first
    source = load(request["model"])
    named, notes = feed(input_shapes(source.proto), inputs)
    require_numpy_types(named)
    declared = [v.name for v in source.proto.graph.output]
    add_outputs(source.proto, request["keep"])
    model: Any = source.proto.SerializeToString()
    if source.folder and not request["keep"]:
        model = request["model"]
    session_arguments = request["threads"], request["level"], request["options"], request["disable"]
    session = engine.session(model, *session_arguments)
    names = [v.name for v in session.get_outputs()]
    results = session.run(names, named)
    if request["fill"] is not None:
        try:
            results = _into_poisoned(session, names, named, results, request["fill"])
        except RuntimeError as error:  # what ran a moment ago: it takes no arrays of these shapes
            notes = {**notes, "output arrays": f"of its own, it refused others: {error}"}
    values = {plain_name(n): r for n, r in zip(names, results) if isinstance(r, np.ndarray)}
    if request.get("show"):
        notes = {
            **notes,
            "optimized model": json.dumps(
                _optimized(model, request.get(FOLDER), *session_arguments)
            ),
        }
    reply = {"notes": notes, "declared": declared}
    return reply, {n: a for n, a in values.items() if a.dtype.kind != "O"}


def _optimized(
    model: Any,
    within: str | None,
    threads: int,
    level: str,
    options: Mapping[str, Any],
    disable: Sequence[str],
) -> list[tuple[str, str]]:
    """(name, text) of the nodes of the model that the runtime makes, as it writes it to a file.

    within: the folder for that file; None for the system's.
    """
    with tempfile.TemporaryDirectory(dir=within) as folder:
        path = Path(folder) / "optimized.onnx"
        more = {**options, "optimized_model_filepath": str(path)}
        engine.session(model, threads, level, more, disable)
        nodes = onnx.load(path, load_external_data=False).graph.node
        return [(node.name or node.output[0], text_of(node)) for node in nodes]


def _into_poisoned(
    session: Any,
    names: list[str],
    inputs: Mapping[str, np.ndarray],
    results: list[Any],
    fill: int,
) -> list[Any]:
    """Run once more, into output arrays that were filled with the byte `fill`."""
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_cpu_input(name, np.asarray(array, order="C"))
    buffers: list[Any] = []
    for name, result in zip(names, results):
        if not isinstance(result, np.ndarray) or result.dtype.kind not in "fiu" or not result.size:
            binding.bind_output(name)
            buffers.append(None)
            continue
        buffer = np.frombuffer(bytearray([fill]) * result.nbytes, result.dtype)
        shape = list(result.shape)
        binding.bind_output(name, "cpu", 0, result.dtype, shape, buffer.ctypes.data)
        buffers.append(buffer.reshape(shape))
    session.run_with_iobinding(binding)
    fresh_outputs = binding.get_outputs()
    return [b if b is not None else fresh_outputs[i].numpy() for i, b in enumerate(buffers)]


class OnnxRuntimeRunner(OnnxRunner):
    """ONNX Runtime. level: graph optimization, one of LEVELS. options: further session options,
    attributes of its SessionOptions or configuration entries by name. disable: optimizers that do
    not run, by name. The rest as for `OnnxRunner`.
    """

    packages = ("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino")
    capabilities = dataclasses.replace(
        OnnxRunner.capabilities,
        poison="fresh memory of its process, and its output arrays",
        script="onnxruntime",
    )
    answer = staticmethod(answer)

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes | None = None,
        *,
        level: str = "all",
        options: Mapping[str, str | int | float | bool] | None = None,
        disable: Sequence[str] = (),
        **common: Unpack[Common],
    ) -> None:
        if level not in LEVELS:
            raise UsageError(
                f"ONNX Runtime has no optimization level {level!r}",
                next_step=f"choose one of {', '.join(LEVELS)}",
            )
        optimizers = [name for names in OPTIMIZERS.values() for name in names]
        for name in disable:
            if name not in optimizers:
                near = difflib.get_close_matches(name, optimizers, 3, 0.5) or optimizers
                raise UsageError(
                    f"no optimizer {name!r} of ONNX Runtime is known",
                    next_step=f"choose from {', '.join(near)}",
                )
        session_options = dict(options or {})
        details = {"optimization": level, **{k: str(v) for k, v in session_options.items()}}
        details |= {"disabled": ", ".join(disable)} if disable else {}
        name = "onnxruntime" if level == "all" else f"onnxruntime:{level}"
        request = {"level": level, "options": session_options, "disable": list(disable)}
        super().__init__(model, name, request, details, **common)
        self.level, self.disable = level, tuple(disable)
        self._arguments: dict[str, Any] = {"options": session_options, **common}

    def with_passes(self, options: PassOptions) -> OnnxRuntimeRunner:
        """As `runners.passes.Configurable.with_passes`: optimizers can be disabled."""
        if options.passes is not None or options.inject:
            raise UsageError(
                "of ONNX Runtime's optimizers some can be disabled, no more",
                place=self.name,
                next_step="leave --passes and --inject out",
            )
        return self._at(self.level, (*self.disable, *options.disable))

    def _at(self, level: str, disable: Sequence[str]) -> OnnxRuntimeRunner:
        runner = OnnxRuntimeRunner(self.model, level=level, disable=disable, **self._arguments)
        runner.capabilities = self.capabilities
        return runner

    def optimizations(
        self, graph: Graph, inputs: Mapping[str, np.ndarray]
    ) -> list[tuple[str, OnnxRuntimeRunner]]:
        """The same subject with one optimizer more each time, level by level up to its own. A level
        begins with what cannot be switched off in it."""
        runners = [("disabled", self._at("disabled", ()))]
        for level in self._levels:
            later = [o for o in OPTIMIZERS[level] if o not in self.disable]
            runners.append((level, self._at(level, (*self.disable, *later))))
            for i, name in enumerate(later, 1):
                runners.append((f"{name} ({level})", self._at(level, (*self.disable, *later[i:]))))
        return [*runners[:-1], (runners[-1][0], self)]

    @property
    def _levels(self) -> list[str]:
        """Those that optimize, up to the subject's own."""
        return [n for n in OPTIMIZERS if list(LEVELS).index(n) <= list(LEVELS).index(self.level)]

    def with_steps(self, names: Sequence[str]) -> OnnxRuntimeRunner:
        """As `judge.protocol.Selective.with_steps`; what cannot be switched off in the levels of
        the steps is done as well."""
        levels = {n.rpartition(" (")[2].rstrip(")") for n in names}
        level = next((v for v in reversed(self._levels) if v in levels), "disabled")
        enabled = {n.rpartition(" (")[0] for n in names}
        listed = [o for v in self._levels for o in OPTIMIZERS[v]]
        return self._at(level, [o for o in listed if o not in enabled])

    def step(self, graph: Graph, inputs: Mapping[str, np.ndarray], index: int) -> Step:
        """As `judge.protocol.Selective.step`: the nodes that its optimized model shows."""
        steps = self.optimizations(graph, inputs)
        name = steps[index][0]
        optimizer, _, level = name.rpartition(" (")
        before, after = (
            runner.optimized(graph, inputs) for _, runner in steps[index - 1 : index + 1]
        )
        old = {text: node for node, text in before if (node, text) not in after}
        new = [text for node, text in after if (node, text) not in before]
        region = tuple(dict.fromkeys(old.values()))
        texts = "\n".join(old), "\n".join(new)
        return Step(name, optimizer or name, level.rstrip(")") or name, index, region, *texts)

    def optimized(self, graph: Graph, inputs: Mapping[str, np.ndarray]) -> list[tuple[str, str]]:
        """(name, text) of every node that is left when the runtime has optimized the model; empty
        where it does not write that."""
        self._request["show"] = True
        try:
            self._ask(graph, inputs, None, None)
        finally:
            del self._request["show"]
        lines = json.loads(self._notes.pop("optimized model", "[]"))
        return [(name, text) for name, text in lines]


def _make(request: RunRequest, level: str = "all") -> OnnxRuntimeRunner:
    return OnnxRuntimeRunner(request.onnx, level=level, **request.common)


SPEC = RunnerSpec(
    {
        "onnxruntime": RunnerVariant(
            "ONNX Runtime on the CPU, running the model's file or the graph as ONNX",
            _make,
            Engine("onnxruntime", (".onnx",)),
            runs_onnx=True,
        ),
        **{
            f"onnxruntime:{level}": RunnerVariant(
                f"ONNX Runtime, graph optimization: {level}",
                partial(_make, level=level),
                Engine("onnxruntime", (".onnx",), {"level": level}),
            )
            for level in LEVELS
        },
    },
    "onnxruntime",
    OnnxRuntimeRunner.packages,
)
