"""ncnn, on the files that pnnx writes: NAME.ncnn.param, and NAME.ncnn.bin beside it.

ncnn's arrays have no batch: several images are run one after the other, which is all it offers.
Weights and arithmetic are float32 (fp16 and bf16 are switched off; pnnx must be told fp16=0).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from verax.base.errors import UsageError
from verax.base.optional import optional
from verax.runners.engines import Inputs, Prepared

SUFFIX = ".param"
EXACT = ("fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_storage", "int8_inference")
"""Options `use_...` that trade digits for speed."""


def runtime() -> Any:
    """The package; raises `MissingPackageError` where it is not installed."""
    return optional("ncnn", "to time ncnn")


def prepared(model: str, threads: int, settings: Mapping[str, Any]) -> Prepared:
    """As `Engine` says. There are no settings."""
    package = runtime()
    net = package.Net()
    for name in EXACT:
        setattr(net.opt, f"use_{name}", False)
    net.opt.num_threads = threads
    for read, file in ((net.load_param, model), (net.load_model, model[: -len(SUFFIX)] + ".bin")):
        if not Path(file).is_file() or read(file):
            raise UsageError("ncnn cannot read this file", place=file)

    def bind(inputs: Inputs) -> Callable[[], Sequence[np.ndarray]]:
        names, output_names = _numbered(net.input_names()), _numbered(net.output_names())
        if len(names) != len(inputs):
            raise UsageError(
                f"ncnn's network has the inputs {', '.join(names)}, not {', '.join(inputs)}",
                place=model,
            )
        count = {a.shape[0] for a in inputs.values() if a.ndim}
        batch = count.pop() if len(count) == 1 else 1
        rows = [[_matrix(package, a, i) for a in inputs.values()] for i in range(batch)]

        def run() -> Sequence[np.ndarray]:
            outputs_of_images: list[list[np.ndarray]] = []
            for row in rows:
                with net.create_extractor() as extractor:
                    for name, matrix in zip(names, row):
                        extractor.input(name, matrix)
                    outputs_of_images.append(
                        [np.array(extractor.extract(n)[1]) for n in output_names]
                    )
            return [np.stack(images) for images in zip(*outputs_of_images)]

        return run

    return Prepared(package.__version__, bind)


def _numbered(names: Sequence[str]) -> list[str]:
    """The order of the network's own inputs or outputs, which pnnx calls in0, in1, out0, ..."""
    return sorted(names, key=lambda name: (len(name), name))


def _matrix(package: Any, array: np.ndarray, image: int) -> Any:
    """One image of a batch, or all of an array without one. Integers are 32 bits wide in ncnn."""
    content = array[image] if array.ndim else array
    wide = content.astype(np.int32) if content.dtype == np.int64 else content
    return package.Mat(np.ascontiguousarray(wide)).clone()
