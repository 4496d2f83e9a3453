"""The panel's networks as every engine takes them: ONNX, .pt2, TFLite, ncnn's and MNN's files, a
.vx program; and the int8 and float16 twins. Each file is made once, and kept.

What a tool refuses is no error here: the engine is in the table with the reason.
"""

from __future__ import annotations

import os
import re
import subprocess
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import networks_zoo as zoo
import verax
from panel_zoo import PANEL, write
from verax.base.errors import VeraxError
from verax.frontends.model import Model
from verax.ir.graph import Graph, specialize
from verax.judge.inputs import draw_inputs

DETECTORS: Mapping[str, str] = {
    "fastestdet": "fastestdet/FastestDet.onnx",
    "blazeface": "blazeface_back/face_detection_back.tflite",
    "ultraface": "ultraface_slim/version-slim-320_without_postprocessing.tflite",
    "mtcnn_rnet": "mtcnn_rnet/rnet.pt2",
    "pose_cpm": "pose_cpm/model.tflite",
    "mobileface": "mobileface_v1/MobileFace_Identification_V1-symbol.json",
    "resnet8": "resnet8/pretrainedResnet.tflite",
    "resnet8-int8": "resnet8/pretrainedResnet_quant.tflite",
}
"""Name -> the file below the folder of real networks."""
SHAPES: Mapping[str, dict[str, tuple[int | None, ...]]] = {
    "mobileface": {"data": (None, 1, 100, 100)}
}
"""Sizes that a file leaves open, but for the batch."""
TWINS = {f"{n}-{kind}": (n, kind) for n, network in PANEL.items() for kind in network.twins}
NAMES = (*PANEL, *TWINS, *DETECTORS)
TOOL_SECONDS = 240


class Skipped(Exception):
    """Raised where a network cannot be had in a form, with the reason."""


@dataclass
class Entry:
    """A network at one batch size. files: by kind ("onnx", "pt2", "tflite", "vx", "ncnn", "mnn",
    "source": ONNX or TFLite); missing: why a kind is not among them.
    operations: of convolutions and products by their definition, a multiply-add being two."""

    name: str
    batch: int
    inputs: dict[str, np.ndarray]
    operations: float
    files: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


KINDS: Mapping[str, str] = {
    "verax:saved": "vx",
    "onnxruntime": "onnx",
    "openvino": "source",
    "tvm": "onnx",
    "torch": "pt2",
    "torch-compiled": "pt2",
    "torch-zentorch": "pt2",
    "litert": "tflite",
    "ncnn": "ncnn",
    "mnn": "mnn",
}
"""Engine -> the kind of file that it runs; the source for all others."""


def entry(
    name: str,
    batch: int,
    folder: Path,
    models: Path,
    engines: Sequence[str],
    pythons: Mapping[str, str],
) -> Entry:
    """The network and the files that `engines` want. Raises `Skipped` when it cannot be had."""
    source = source_of(name, batch, folder, models)
    loaded = verax.load(source, shapes=SHAPES.get(name))
    assert isinstance(loaded, Model)
    graph = _at_batch(loaded.graph, batch)
    network = PANEL.get(TWINS[name][0] if name in TWINS else name)
    inputs = network.inputs(zoo.SEED + 2, batch) if network else _drawn(graph)
    made = Entry(name, batch, inputs, operations(graph))
    stem = folder / (f"{name}-b{batch}" if batch > 1 else name)
    direct = source.suffix in (".onnx", ".tflite")
    wanted = {KINDS.get(engine, "source") for engine in engines}
    makers = {
        "source": lambda: source if direct else _onnx(loaded, source, stem),
        "onnx": lambda: _onnx(loaded, source, stem),
        "pt2": lambda: _beside(source, ".pt2"),
        "tflite": lambda: _itself(source, ".tflite"),
        "vx": lambda: _program(source, graph, stem),
        "ncnn": lambda: (
            _one_image(name, batch, folder, models, pythons)
            if batch > 1
            else _ncnn(_onnx(loaded, source, stem), inputs, stem, pythons)
        ),
        "mnn": lambda: _mnn(source if direct else _onnx(loaded, source, stem), stem, pythons),
    }
    for kind in makers:
        if kind in wanted:
            try:
                made.files[kind] = str(makers[kind]())
            except Skipped as why:
                made.missing[kind] = str(why)
            except VeraxError as error:
                made.missing[kind] = f"it cannot be written: {error.cause}"
    return made


def source_of(name: str, batch: int, folder: Path, models: Path) -> Path:
    """The file of a network; written into `folder` if it is one of ours. Raises `Skipped`."""
    if name in PANEL:
        return write(name, folder, batch)
    if name in TWINS:
        return _twin(*TWINS[name], batch, folder)
    path = models / DETECTORS[name]
    if not path.exists():
        raise Skipped(f"there is no {DETECTORS[name]} in {models}")
    return path


def _at_batch(graph: Graph, batch: int) -> Graph:
    """Open sizes are the batch; a file with fixed ones has what it has."""
    fixed = specialize(graph, dict.fromkeys(graph.symbols(), batch))
    if {fixed.types[v].shape[0] for v in fixed.arguments} != {batch}:
        raise Skipped(f"its file says another batch than {batch}")
    return fixed


def _drawn(graph: Graph) -> dict[str, np.ndarray]:
    drawn = draw_inputs(graph, zoo.SEED)[0]
    return {v: drawn[v] for v in graph.arguments}


def operations(graph: Graph) -> float:
    """Of convolutions and products: two for each weight, or factor, of each result."""
    total = 0.0
    for node in graph.nodes:
        types = graph.input_types(node)
        result = graph.output_types(node)[0]
        if len(types) < 2 or types[1] is None or not result.is_static:
            continue
        kind, weights = node.op.kind, types[1].shape
        if "ConvTranspose" in kind:
            total += 2.0 * np.prod(types[0].shape) * np.prod(weights[1:])
        elif "Conv" in kind:
            total += 2.0 * np.prod(result.shape) * np.prod(weights[1:])
        elif kind.startswith(("MatMul", "Gemm")):
            total += 2.0 * np.prod(result.shape) * types[0].shape[-1]
    return float(total)


def _twin(name: str, kind: str, batch: int, folder: Path) -> Path:
    """The network in 8 or 16 bits, by ONNX Runtime's own tools."""
    base = write(name, folder, batch)
    path = base.with_name(f"{base.stem}-{kind}.onnx")
    if path.exists():
        return path
    part = path.with_suffix(".part")
    try:
        if kind == "int8":
            _quantised(name, base, part, batch)
        else:
            import onnx
            from onnxruntime.transformers.float16 import convert_float_to_float16
            from onnxruntime.transformers.onnx_model import OnnxModel

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made = OnnxModel(convert_float_to_float16(onnx.load(base), keep_io_types=True))
                made.topological_sort()  # its casts of the inputs come last
                onnx.save(made.model, part)
    except ImportError as error:
        raise Skipped(f"ONNX Runtime makes the twin and is not installed ({error})") from error
    part.rename(path)
    return path


def _quantised(name: str, base: Path, to: Path, batch: int) -> None:
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_static,
    )

    class Images(CalibrationDataReader):
        def __init__(self) -> None:
            self.left = [PANEL[name].inputs(seed, batch) for seed in range(8)]

        def get_next(self) -> dict[str, np.ndarray] | None:
            return self.left.pop() if self.left else None

    quantize_static(
        str(base),
        str(to),
        Images(),
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        per_channel=True,
        extra_options={"WeightSymmetric": True},
    )


def _beside(source: Path, suffix: str) -> Path:
    """The file of the same name, whatever its capitals."""
    for found in sorted(source.parent.glob(f"*{suffix}")):
        if found.stem.lower() == source.stem.lower():
            return found
    raise Skipped(f"there is no {suffix} file of it")


def _itself(source: Path, suffix: str) -> Path:
    if source.suffix != suffix:
        raise Skipped(f"there is no {suffix} file of it")
    return source


def _onnx(loaded: Model, source: Path, stem: Path) -> Path:
    if source.suffix == ".onnx":
        return source
    path = stem.with_suffix(".onnx")
    if not path.exists():
        from verax.export.onnx.writer import to_bytes

        path.write_bytes(to_bytes(loaded.graph))
    return path


def _program(source: Path, graph: Graph, stem: Path) -> Path:
    """A .vx program for all cores, at the default level, by the Verax that is measured."""
    path, own = stem.with_suffix(".vx"), Path(verax.__file__).parent.rglob("*.py")
    newest = max(f.stat().st_mtime for f in (source, *own))
    if not path.exists() or path.stat().st_mtime < newest:
        verax.compile(graph, cache=False).save(path)
    return path


def _tool(command: Sequence[str | os.PathLike[str]], made: Path, folder: Path) -> None:
    """Run a converter; `Skipped` with what it said last unless it made the file."""
    try:
        done = subprocess.run(
            [os.fspath(c) for c in command],
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TOOL_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Skipped(f"its converter could not be run: {error}") from error
    if done.returncode or not made.exists():
        said = [x.strip() for x in (done.stdout + done.stderr).splitlines() if x.strip()]
        telling = [x for x in said if re.search("not support|what\\(\\)|error", x, re.IGNORECASE)]
        words = (telling or ["it wrote no file and gave no reason"])[-1]
        raise Skipped(f"its converter refused: {words}")


def _one_image(
    name: str, batch: int, folder: Path, models: Path, pythons: Mapping[str, str]
) -> str:
    """ncnn's arrays have no batch: the file is that of one image, which `batch` calls share."""
    made = entry(name, 1, folder, models, ["ncnn"], pythons)
    if "ncnn" in made.missing:
        raise Skipped(made.missing["ncnn"])
    return made.files["ncnn"]


def _ncnn(
    onnx: Path, inputs: Mapping[str, np.ndarray], stem: Path, pythons: Mapping[str, str]
) -> Path:
    """By pnnx, weights in float32."""
    path = stem.with_name(f"{stem.name}.ncnn.param")
    if not path.exists():
        python = Path(pythons["ncnn"])
        tools = sorted(python.parents[1].glob("lib/python*/site-packages/pnnx/pnnx*"))
        tool = next((t for t in tools if os.access(t, os.X_OK) and t.is_file()), None)
        if tool is None:
            raise Skipped("pnnx, which converts to ncnn, is not installed beside it")
        scratch = stem.with_name(f"{stem.name}.pnnx")
        scratch.mkdir(exist_ok=True)
        shapes = ",".join(f"[{','.join(map(str, a.shape))}]{_letters(a)}" for a in inputs.values())
        copy = scratch / f"{stem.name}.onnx"
        copy.unlink(missing_ok=True)  # of a folder that was elsewhere, perhaps
        copy.symlink_to(onnx.resolve())
        made = scratch / path.name
        _tool([tool, copy.name, "fp16=0", f"inputshape={shapes}"], made, scratch)
        made.with_suffix(".bin").rename(path.with_suffix(".bin"))
        made.rename(path)
    kinds = {line.split()[0] for line in path.read_text().splitlines()[2:] if line.strip()}
    if strange := sorted(kind for kind in kinds if "." in kind or kind.startswith("aten")):
        raise Skipped(f"pnnx leaves what ncnn does not run: {', '.join(strange)}")
    return path


def _letters(array: np.ndarray) -> str:
    return f"{array.dtype.kind}{array.dtype.itemsize * 8}"


def _mnn(model: Path, stem: Path, pythons: Mapping[str, str]) -> Path:
    path = stem.with_suffix(".mnn")
    if not path.exists():
        kind = "TFLITE" if model.suffix == ".tflite" else "ONNX"
        words = ["-f", kind, "--modelFile", model.resolve(), "--MNNModel", path.resolve()]
        # Its command line installs a package that reports what is converted; this does not.
        code = "import sys, MNN, _tools; _tools.mnnconvert(sys.argv)"
        command = [pythons["mnn"], "-c", code, *words, "--bizCode", "panel"]
        _tool(command, path, stem.parent)
    return path
