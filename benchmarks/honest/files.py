"""Networks that come as model files: the example's in every format, and those in shared/models.

Each is run by the runtimes of its own format, by those that run what Verax writes of it as ONNX,
and compared with the answers that its framework gave once, where those lie beside it. The quantised
networks (`quantised`) are files, too, made when they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.honest.inputs import NOISE, PLAIN, picture
from benchmarks.honest.quantised import case, scheme_of
from benchmarks.honest.runs import (
    FILE,
    FLOAT32,
    INT8,
    LEVELS,
    OUTPUTS,
    RECORDED,
    WATCHED,
    Run,
)

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "digits"
MODELS = ROOT.parent / "shared" / "models"
SUFFIXES = (".onnx", ".pt2", ".mlmodel", ".pb", ".tflite", ".h5", ".keras", "-symbol.json")
OWN = {
    ".onnx": (*(f"onnxruntime:{level}" for level in LEVELS), "openvino", "tvm"),
    ".pt2": ("torch", "torch-compiled"),
    ".tflite": ("litert", "litert-builtin", "litert-reference"),
}
"""Runtimes that run a file of this kind unchanged."""
WRITTEN = ("onnxruntime:all", "onnxruntime:disabled", "openvino")
"""Runtimes that run any network as ONNX."""
OWN_LEVELS = ("verax:O2", "verax:O3")
QUANTISED = "quantised"
GROUPS, PER_GROUP = 40, 10
"""Groups of quantised networks in the campaign, and networks in each."""
QUANTISED_OWN_EVERY = 5
"""Our own compiler takes one quantised network in so many."""


@dataclass(frozen=True)
class ModelFile:
    """A file by name, and the answers stored beside it."""

    name: str
    path: Path
    stored: tuple[Path, ...] = ()

    @property
    def family(self) -> str:
        return "model file"


def model_files() -> dict[str, ModelFile]:
    """Every file by name: `digits.tflite`, `resnet8.pretrainedResnet.h5`."""
    found = {}
    for path in sorted([*EXAMPLES.glob("*"), *MODELS.glob("*/*")]):
        if not path.name.endswith(SUFFIXES):
            continue
        name = path.name if path.parent == EXAMPLES else f"{path.parent.name}.{path.name}"
        stem = path.name.removesuffix("-symbol.json").removesuffix(".pt2")
        starts = (f"{path.name}.", f"{stem}.torch", f"{stem}.mxnet")
        stored = [p for p in sorted(path.parent.glob("*.npz")) if p.name.startswith(starts)]
        found[name] = ModelFile(name, path, tuple(stored))
    return found


def runs_of_files() -> Iterator[tuple[str, list[Run]]]:
    """(name, its runs) of every file."""
    for name, file in model_files().items():
        own = OWN.get(file.path.suffix, ())
        runs = [
            Run(name, FLOAT32, FILE, runner, view, style)
            for runner in (*own, *(w for w in WRITTEN if w not in own))
            for view, style in ((WATCHED, PLAIN), (OUTPUTS, PLAIN), (OUTPUTS, NOISE))
            if not (runner in ("tvm", "torch-compiled") and (view, style) != (OUTPUTS, PLAIN))
        ]
        runs += [Run(name, FLOAT32, FILE, level, OUTPUTS, PLAIN) for level in OWN_LEVELS]
        runs += [Run(name, FLOAT32, FILE, p.name, RECORDED, PLAIN) for p in file.stored]
        yield name, runs


def runs_of_quantised() -> Iterator[tuple[str, list[Run]]]:
    """(name of a group, its runs); the form tells which of them, and how it is quantised."""
    for group in range(GROUPS):
        name = f"{QUANTISED}{group}"
        yield (
            name,
            [
                Run(name, INT8, form_of(name, i), runner, view, PLAIN)
                for i in range(PER_GROUP)
                for runner in ("onnxruntime:all", "onnxruntime:disabled", "openvino")
                for view in (WATCHED, OUTPUTS)
            ]
            + [
                Run(name, INT8, form_of(name, i), OWN_LEVELS[group % 2], OUTPUTS, PLAIN)
                for i in range(group % QUANTISED_OWN_EVERY, PER_GROUP, QUANTISED_OWN_EVERY)
            ],
        )


def form_of(name: str, number: int) -> str:
    """The form of a network of a group: its number, and how it is quantised."""
    return f"case{number}-{scheme_of(int(name.removeprefix(QUANTISED)), number).name}"


def quantised_case(name: str, form: str) -> Any:
    """A case of a group: it has `model` (a path or an onnx.ModelProto) and `inputs`."""
    return case(int(name.removeprefix(QUANTISED)), int(form.partition("-")[0].removeprefix("case")))


def inputs_for(graph: Any, style: str, seed: int) -> dict[str, np.ndarray]:
    """Inputs of a file's declared types: the picture where an image is declared, else drawn;
    noise: normal."""
    from verax.judge.inputs import draw_inputs

    drawn, _ = draw_inputs(graph, seed)
    random = np.random.default_rng([seed, 8])
    for name, array in drawn.items():
        if array.dtype != np.float32:
            continue
        if style == NOISE:
            drawn[name] = random.standard_normal(array.shape).astype(np.float32)
        elif array.ndim == 4 and 3 in (array.shape[1], array.shape[3]):
            drawn[name] = _pictures(array.shape)
    return drawn


def _pictures(shape: tuple[int, ...]) -> np.ndarray:
    """The picture at the declared size, in 0 to 1."""
    from PIL import Image

    last = shape[3] == 3
    height, width = shape[1:3] if last else shape[2:]
    whole = Image.fromarray((picture() * 255).astype(np.uint8))
    pixels = np.asarray(whole.resize((width, height), Image.Resampling.BILINEAR), np.float32) / 255
    pixels = pixels if last else pixels.transpose(2, 0, 1)
    return np.ascontiguousarray(np.broadcast_to(pixels, shape), np.float32)
