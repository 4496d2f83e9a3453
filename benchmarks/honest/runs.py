"""The matrix of runs: which runtime judges which form of a network, how it is watched, on what.

A run has a stable key, `architecture/dtype/form/runner/view/input`, by which it is recorded, looked
up and run alone. The form is how the network reached Verax: an ONNX file of PyTorch's exporter
(`onnx`), an exported program (`program`), a model file (`file`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.honest.inputs import NOISE, PLAIN

WATCHED, OUTPUTS, RECORDED, RECORDED_INSIDE = "watched", "outputs", "recorded", "recorded-inside"
"""Every value shown while it runs; outputs only; the same two from arrays stored before."""
VIEWS = (WATCHED, OUTPUTS, RECORDED, RECORDED_INSIDE)
ONNX, PROGRAM, FILE = "onnx", "program", "file"
FLOAT32, FLOAT16, BFLOAT16, INT8 = "float32", "float16", "bfloat16", "int8"
TVM_EVERY, COMPILED_EVERY, OWN_EVERY = 4, 3, 6
"""Runners that compile for many seconds take one architecture in so many."""
OWN = (
    ((FLOAT32, ONNX, "O2", WATCHED),),
    ((FLOAT16, ONNX, "O3", OUTPUTS),),
    ((FLOAT32, ONNX, "O2", OUTPUTS),),
    ((BFLOAT16, PROGRAM, "O3", OUTPUTS), (FLOAT16, PROGRAM, "O2", WATCHED)),
    ((FLOAT32, ONNX, "O3", WATCHED),),
)
"""What our compiler is given beside, in turn: (dtype, form, level, view)."""
LEVELS = ("disabled", "basic", "extended", "all")


@dataclass(frozen=True)
class Run:
    """One honest run."""

    architecture: str
    dtype: str
    form: str
    runner: str
    view: str
    style: str

    @property
    def key(self) -> str:
        """Its stable name."""
        parts = (self.architecture, self.dtype, self.form, self.runner, self.view, self.style)
        return "/".join(parts)

    @staticmethod
    def of(key: str) -> Run:
        """The run of a key."""
        return Run(*key.split("/"))

    @property
    def network(self) -> tuple[str, str]:
        """What has to be built for it: (dtype, form)."""
        return self.dtype, self.form


def runs_of(name: str, number: int) -> Iterator[Run]:
    """Every run of an architecture, the quick ones first. number: its place in the registry."""
    yield from _float32_onnx(name, number)
    yield from _float32_program(name, number)
    for dtype in (FLOAT16, BFLOAT16):
        for runner, view in (
            ("exported", WATCHED),
            ("exported", OUTPUTS),
            ("eager", RECORDED),
        ):
            yield Run(name, dtype, PROGRAM, runner, view, PLAIN)
        yield Run(name, dtype, PROGRAM, "eager", OUTPUTS, NOISE)
    for level in ("disabled", "all"):
        yield Run(name, FLOAT16, ONNX, f"onnxruntime:{level}", OUTPUTS, PLAIN)
    yield Run(name, FLOAT16, ONNX, "onnxruntime:all", WATCHED, PLAIN)
    yield Run(name, FLOAT16, ONNX, "openvino", OUTPUTS, PLAIN)
    yield from _own_levels(name, number)


def _own_levels(name: str, number: int) -> Iterator[Run]:
    """Our own compiler: the default level on every architecture, the others on every so many."""
    yield Run(name, FLOAT32, ONNX, "verax:O3", OUTPUTS, PLAIN)
    if number % OWN_EVERY == 0:
        yield Run(name, FLOAT32, ONNX, "verax:O1", OUTPUTS, PLAIN)
    for dtype, form, level, view in OWN[number % len(OWN)]:
        yield Run(name, dtype, form, f"verax:{level}", view, PLAIN)


def _float32_onnx(name: str, number: int) -> Iterator[Run]:
    for level in LEVELS:
        for view in (WATCHED, OUTPUTS):
            yield Run(name, FLOAT32, ONNX, f"onnxruntime:{level}", view, PLAIN)
    for view in (WATCHED, OUTPUTS):
        yield Run(name, FLOAT32, ONNX, "openvino", view, PLAIN)
    for runner in ("onnxruntime:all", "openvino"):
        yield Run(name, FLOAT32, ONNX, runner, OUTPUTS, NOISE)
    yield Run(name, FLOAT32, ONNX, "openvino", WATCHED, NOISE)
    yield Run(name, FLOAT32, ONNX, "onnxruntime:all", RECORDED_INSIDE, PLAIN)
    yield Run(name, FLOAT32, ONNX, "openvino", RECORDED, PLAIN)
    yield Run(name, FLOAT32, ONNX, "openvino:bf16", OUTPUTS, PLAIN)
    if number % TVM_EVERY == 0:
        yield Run(name, FLOAT32, ONNX, "tvm", OUTPUTS, PLAIN)
        yield Run(name, FLOAT32, ONNX, "tvm:O0", WATCHED, PLAIN)


def _float32_program(name: str, number: int) -> Iterator[Run]:
    for runner in ("eager", "exported"):
        for view in (WATCHED, OUTPUTS):
            yield Run(name, FLOAT32, PROGRAM, runner, view, PLAIN)
    yield Run(name, FLOAT32, PROGRAM, "eager", OUTPUTS, NOISE)
    yield Run(name, FLOAT32, PROGRAM, "exported", RECORDED_INSIDE, NOISE)
    yield Run(name, FLOAT32, PROGRAM, "onnxruntime:all", WATCHED, PLAIN)
    if number % COMPILED_EVERY == 0:
        yield Run(name, FLOAT32, PROGRAM, "compiled", OUTPUTS, PLAIN)
