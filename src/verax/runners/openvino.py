"""OpenVINO as a subject, on the original ONNX file or on any graph written as ONNX."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Unpack

import ml_dtypes
import numpy as np

from verax.base.errors import UnsupportedError, UsageError
from verax.runners.engines import openvino as engine
from verax.runners.engines.openvino import PRECISIONS
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
    outputs = [v.name for v in source.proto.graph.output]
    add_outputs(source.proto, request["keep"])
    for name, given in named.items():
        if given.dtype.name == "bfloat16":
            raise UnsupportedError(
                "OpenVINO's Python interface takes no bfloat16", place=f"input {name!r}"
            )
    compiled = engine.compiled(
        source.proto.SerializeToString(), request["threads"], request["precision"]
    )
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
    """OpenVINO. precision: the inference precision to ask for, one of PRECISIONS; the rest as for
    `OnnxRunner`."""

    task = "openvino"
    packages = ("openvino",)
    answer = staticmethod(answer)

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes | None = None,
        *,
        precision: str = "f32",
        **common: Unpack[Common],
    ) -> None:
        if precision not in PRECISIONS:
            raise UsageError(
                f"OpenVINO has no precision {precision!r}",
                next_step=f"choose one of {', '.join(PRECISIONS)}",
            )
        name = "openvino" if precision == "f32" else f"openvino:{precision}"
        asked = {"precision": precision}
        super().__init__(model, name, asked, asked, **common)
