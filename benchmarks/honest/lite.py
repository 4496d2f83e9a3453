"""Honest runs of LiteRT on quantised files: networks of TensorFlow's converter, single operators.

The networks lie beside the tests of the TFLite importer (int8 with a scale for each channel, int16,
and weights alone), and the operators are written by those tests: uint8 with one scale for a tensor,
int8 with one for each channel, int16.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from benchmarks.honest.runs import FILE, INT8, OUTPUTS, WATCHED, Run

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "frontends" / "from_tflite"
LITE = "quantised-lite-"
KINDS = ("dynamic", "int8", "int16")
RUNNERS = ("litert", "litert-builtin", "litert-reference")
OWN_LEVEL = "verax:O3"
DRAWS = {"network": 2, "operator": 1}
"""Drawn inputs that each is judged on."""


@functools.cache
def lite_files() -> dict[str, bytes]:
    """Quantised files by name: `quantised-lite-network-mobile-int8`."""
    found = {}
    with np.load(FOLDER / "networks.npz") as arrays:
        for entry in sorted(arrays.files):
            name, _, kind = entry.removesuffix(".tflite").partition("/")
            if entry.endswith(".tflite") and kind in KINDS:
                found[f"{LITE}network-{name}-{kind}"] = arrays[entry].tobytes()
    try:
        from tests.frontends.from_tflite.quantised_cases import quantised_cases
    except ImportError:  # flatbuffers is not installed
        return found
    for label, made in quantised_cases():
        found[f"{LITE}operator-{re.sub(r'[^A-Za-z0-9_.]+', '-', label)}"] = made
    return found


def runs_of_lite() -> Iterator[tuple[str, list[Run]]]:
    """(name of a file, its runs)."""
    for name in lite_files():
        sort = name.removeprefix(LITE).partition("-")[0]
        views = (WATCHED, OUTPUTS) if sort == "network" else (OUTPUTS,)
        yield (
            name,
            [
                Run(name, INT8, FILE, runner, view, f"draw{seed}")
                for runner in RUNNERS
                for view in views
                for seed in range(DRAWS[sort])
            ]
            + [Run(name, INT8, FILE, OWN_LEVEL, OUTPUTS, "draw0")],
        )
