"""Verax: compiles neural networks to native code, and judges any implementation's numbers.

    model = verax.load("net.onnx")
    exe = verax.compile(model)
    exe.run({"x": x})
    verax.check(model, "onnxruntime").kind
    verax.bisect(model, "onnxruntime").verdict.blame
    verax.evaluate(model, "photos/", against="onnxruntime").accuracy.top1
    verax.assert_correct(my_conv, "Conv(strides=(2, 2))", (x, w))
    verax.gate("onnxruntime@1.20.0", "onnxruntime", "net.onnx").change
    verax.align("net.onnx", "net.tflite").relation

Importing this package loads nothing else; each name below is loaded at its first use.
"""

from __future__ import annotations

from importlib import import_module

from verax.base.lazy import lazy
from verax.base.printing import RENDERERS

TYPE_CHECKING = False  # as in typing, which takes its time to import
if TYPE_CHECKING:
    from typing import Any

    from verax.api import (
        align,
        bisect,
        check,
        convert,
        reference,
        substitute,
    )
    from verax.base.errors import VeraxError
    from verax.compiling import Compiled, compile
    from verax.evaluating import evaluate
    from verax.gating import gate
    from verax.loading import load
    from verax.recording import record
    from verax.testing.assertions import assert_correct
    from verax.testing.gradients import assert_gradients
    from verax.tuning import tune

__version__: str
_HOMES = {
    "Compiled": "verax.compiling",
    "VeraxError": "verax.base.errors",
    "align": "verax.api",
    "assert_correct": "verax.testing.assertions",
    "assert_gradients": "verax.testing.gradients",
    "bisect": "verax.api",
    "check": "verax.api",
    "compile": "verax.compiling",
    "convert": "verax.api",
    "evaluate": "verax.evaluating",
    "gate": "verax.gating",
    "load": "verax.loading",
    "record": "verax.recording",
    "reference": "verax.api",
    "substitute": "verax.api",
    "tune": "verax.tuning",
}

__all__ = [
    "Compiled",
    "VeraxError",
    "__version__",
    "align",
    "assert_correct",
    "assert_gradients",
    "bisect",
    "check",
    "compile",
    "convert",
    "evaluate",
    "gate",
    "load",
    "record",
    "reference",
    "substitute",
    "tune",
]


RENDERERS.update(text="verax.report.plain_text:text_of", html="verax.report.page.build:fragment")
_load = lazy(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value = import_module("importlib.metadata").version("verax")
        globals()[name] = value
        return value
    if name == "torch":
        return import_module("verax.torch")
    if name == "ops":
        return import_module("verax.ops")
    return _load(name)


def __dir__() -> list[str]:
    """The interface; `verax.torch` is a package of its own, which needs PyTorch."""
    return list(__all__)
