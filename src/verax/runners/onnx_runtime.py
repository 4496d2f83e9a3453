"""ONNX Runtime as a subject, on the original file or on any graph written as ONNX."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np

from verax.base.errors import UnsupportedError, UsageError
from verax.ir.graph import Graph
from verax.runners.engines import onnxruntime as engine
from verax.runners.engines.onnxruntime import LEVELS
from verax.runners.feeding import feed
from verax.runners.onnx_files import add_outputs, input_shapes, load
from verax.runners.onnx_runner import Common, OnnxRunner


def answer(
    request: Mapping[str, Any], inputs: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Run `request["model"]` (path or bytes) and give its outputs and the values in "keep"."""
    engine.runtime()  # what is missing is said first
    source = load(request["model"])
    named, said = feed(input_shapes(source.proto), inputs)
    for name, array in named.items():
        if array.dtype.name == "bfloat16":
            raise UnsupportedError(
                "ONNX Runtime's Python interface takes no bfloat16", place=f"input {name!r}"
            )
    declared = [v.name for v in source.proto.graph.output]
    add_outputs(source.proto, request["keep"])
    model: Any = source.proto.SerializeToString()
    if source.folder and not request["keep"]:
        model = request["model"]
    session = engine.session(model, request["threads"], request["level"], request["options"])
    names = [v.name for v in session.get_outputs()]
    results = session.run(names, named)
    if request["fill"] is not None:
        results = _into_poisoned(session, names, named, results, request["fill"])
    shown = {n: r for n, r in zip(names, results) if isinstance(r, np.ndarray)}
    reply = {"said": said, "declared": declared}
    return reply, {n: a for n, a in shown.items() if a.dtype.kind != "O"}


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
        binding.bind_cpu_input(name, np.ascontiguousarray(array))
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
    made = binding.get_outputs()
    return [b if b is not None else made[i].numpy() for i, b in enumerate(buffers)]


class OnnxRuntimeRunner(OnnxRunner):
    """ONNX Runtime. level: graph optimisation, one of LEVELS. options: further session options,
    attributes of its SessionOptions or configuration entries by name. The rest as for
    `OnnxRunner`.
    """

    task = "onnxruntime"
    packages = ("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino")
    poison = "fresh memory of its process, and its output arrays"
    answer = staticmethod(answer)

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes | None = None,
        *,
        level: str = "all",
        options: Mapping[str, str | int | float | bool] | None = None,
        **common: Unpack[Common],
    ) -> None:
        if level not in LEVELS:
            raise UsageError(
                f"ONNX Runtime has no optimisation level {level!r}",
                next_step=f"choose one of {', '.join(LEVELS)}",
            )
        asked = dict(options or {})
        shown = {"optimisation": level, **{k: str(v) for k, v in asked.items()}}
        name = "onnxruntime" if level == "all" else f"onnxruntime:{level}"
        request = {"level": level, "options": asked}
        super().__init__(model, name, request, shown, **common)
        self.level = level
        self._arguments: dict[str, Any] = {"options": asked, **common}

    def optimisations(
        self, graph: Graph, inputs: Mapping[str, np.ndarray]
    ) -> list[tuple[str, OnnxRuntimeRunner]]:
        """The same subject at each optimisation level up to its own, the least first."""
        names = list(LEVELS)[: list(LEVELS).index(self.level) + 1]
        return [(v, OnnxRuntimeRunner(self.model, level=v, **self._arguments)) for v in names]
