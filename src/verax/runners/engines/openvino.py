"""OpenVINO's CPU plugin, one stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from verax.base.optional import optional
from verax.runners.engines import Inputs, Prepared

FORMATS_OF: Mapping[str, tuple[str, ...]] = {
    "f32": (),
    "bf16": ("bfloat16",),
    "f16": ("float16",),
    "default": ("bfloat16", "float16"),
}
"""In which 16 bits it then may store values, by what it is asked for. On processors with bfloat16
units OpenVINO's default is bf16."""
PRECISIONS = tuple(FORMATS_OF)

SWITCHES: Mapping[str, tuple[Any, Any]] = {
    "LP_TRANSFORMS_MODE": (False, True),
    "SNIPPETS_MODE": ("DISABLE", "ENABLE"),
    "CPU_DENORMALS_OPTIMIZATION": (False, True),
    "EXECUTION_MODE_HINT": ("ACCURACY", "PERFORMANCE"),
}
"""Properties of the CPU plugin that switch an optimization: (off, on), where on is its default.
They are all that a release has: low-precision transformations of quantized networks, kernels
generated for chains of nodes (snippets), subnormal numbers taken for zero, and coarser precisions.
The transformations of the graph (fusions, folding) run always; switching them off takes a library
that was built with its debugging capabilities. They need nodes that are in one model."""


def runtime() -> Any:
    """The package; raises `MissingPackageError` where it is not installed."""
    return optional("openvino", "to run the subject 'openvino'")


def compiled(model: str | bytes, threads: int, precision: str = "f32", **more: Any) -> Any:
    """A compiled model of a file or its bytes. precision: one of PRECISIONS; more: properties."""
    package = runtime()
    properties: dict[str, Any] = {"NUM_STREAMS": 1, **more}
    if threads:
        properties["INFERENCE_NUM_THREADS"] = threads
    if precision != "default":
        properties["INFERENCE_PRECISION_HINT"] = precision
    core = package.Core()
    return core.compile_model(core.read_model(model), "CPU", properties)


def runtime_model(compiled: Any) -> list[tuple[str, list[str]]]:
    """What the plugin runs, in order: (kind of layer, names of the nodes that it stands for)."""
    layers = []
    for op in compiled.get_runtime_model().get_ordered_ops():
        info = dict(op.get_rt_info().items())
        names = str(info["originalLayersNames"].value) if "originalLayersNames" in info else ""
        kind = str(info["layerType"].value) if "layerType" in info else op.get_type_name()
        layers.append((kind, [n for n in names.split(",") if n]))
    return layers


def prepared(model: str, threads: int, settings: Mapping[str, Any]) -> Prepared:
    """As `Engine` says. settings: the precision."""
    package = runtime()
    loaded = compiled(model, threads, PERFORMANCE_HINT="LATENCY", **settings)
    request = loaded.create_infer_request()

    def bind(inputs: Inputs) -> Callable[[], Sequence[np.ndarray]]:
        tensors = {n: package.Tensor(a, shared_memory=True) for n, a in inputs.items()}
        alive = tuple(inputs.values())  # the tensors do not keep the arrays alive

        def run() -> Sequence[np.ndarray]:
            assert alive
            request.infer(tensors)
            return [request.get_output_tensor(i).data for i in range(len(loaded.outputs))]

        return run

    return Prepared(package.__version__.partition("-")[0], bind)
