"""One network in two formats: does the layout of the file cost time?

    python benchmarks/twins.py ../shared/models            # every pair there, a table
    python benchmarks/twins.py ../shared/models --levels 1 2 --seconds 4

TensorFlow, TFLite and Keras lay images out with their channels last; importing them writes
transposes, which the passes have to push out again. Each pair below is one network: its file with
the channels last, and its twin with the channels second. Both are compiled at the same level and
run in turn in this process, on one thread and one image; what counts is the fastest run of each,
for others use this machine too. The table also says how many transposes are left of the imported.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import verax
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.pipeline.levels import run_passes
from verax.frontends.model import Model
from verax.ir.graph import specialize
from verax.judge.inputs import draw_inputs

PAIRS = {
    "digits (Keras)": ("digits.h5", "digits.onnx"),
    "digits (TensorFlow)": ("digits.pb", "digits.onnx"),
    "digits (TFLite)": ("digits.tflite", "digits.onnx"),
    "pose (TensorFlow)": ("pose_cpm/model.pb", "pose_cpm/model.mlmodel"),
    "pose (TFLite)": ("pose_cpm/model.tflite", "pose_cpm/model.mlmodel"),
    "R-Net (TensorFlow)": ("mtcnn_rnet/rnet_cut.pb", "mtcnn_rnet/rnet.pt2"),
    "BlazeFace (TFLite)": (
        "blazeface_back/face_detection_back.tflite",
        "blazeface_back/blazefaceback.pt2",
    ),
    "UltraFace (TFLite)": (
        "ultraface_slim/version-slim-320_without_postprocessing.tflite",
        "ultraface_slim/version-slim-320_without_postprocessing.onnx",
    ),
}
"""Name -> the file with its channels last, and its twin."""
DIGITS = Path(__file__).resolve().parents[1] / "examples/digits"
Run = Callable[[], object]


def program(path: Path, level: int) -> tuple[Run, str]:
    """One run of the network on one image, and how many of its transposes are left."""
    model = verax.load(path)
    assert isinstance(model, Model)
    graph = specialize(model.graph, dict.fromkeys(model.graph.symbols(), 1))
    settings = Settings(opt_level=level, threads=1)
    exe, inputs = compile(graph, settings), draw_inputs(graph)[0]
    exe.run(inputs)
    after, _ = run_passes(graph, settings)
    left, imported = (sum(node.op.kind == "Transpose" for node in g.nodes) for g in (after, graph))
    return lambda: exe.run(inputs), f"{left} of {imported}"


def fastest(runs: Sequence[Run], seconds: float) -> list[float]:
    """Seconds of the fastest run of each, taken in turn."""
    best = [np.inf] * len(runs)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for i, run in enumerate(runs):
            begin = time.perf_counter()
            run()
            best[i] = min(best[i], time.perf_counter() - begin)
    return best


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("models", type=Path, help="the folder of real networks")
    parser.add_argument("--levels", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=4.0, help="for each pair and level")
    parser.add_argument("--pairs", nargs="+", default=list(PAIRS), choices=list(PAIRS))
    given = parser.parse_args(arguments)
    print("| network | level | ms | twin's ms | ratio | transposes left | in the twin |")
    print("|---|---|---|---|---|---|---|")
    for name in given.pairs:
        paths = [(DIGITS if "/" not in p else given.models) / p for p in PAIRS[name]]
        for level in given.levels:
            runs, moved = zip(*(program(path, level) for path in paths))
            own, twin = (1000 * t for t in fastest(runs, given.seconds))
            row = f"{own:.3f} | {twin:.3f} | {own / twin:.2f} | {moved[0]} | {moved[1]}"
            print(f"| {name} | O{level} | {row} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
