"""From what a user names to a Runner: `verax:O1`, `onnxruntime`, a file, arrays, a function."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verax.base.errors import UsageError
from verax.base.settings import LEVELS, Settings
from verax.frontends.onnx.writer import to_bytes
from verax.judge.protocol import Runner
from verax.runners.arrays import ArraysRunner, load_npz
from verax.runners.functions import FunctionRunner
from verax.runners.onnx_runtime import OnnxRuntimeRunner
from verax.runners.openvino import OpenVinoRunner
from verax.runners.own import ReferenceRunner, VeraxRunner

RUNNERS = {
    **{f"verax:O{n}": f"our compiler at level O{n}" for n in LEVELS},
    "onnxruntime": "ONNX Runtime on the CPU, running the model's file or the graph as ONNX",
    "openvino": "OpenVINO on the CPU in float32 (f32 is asked for)",
    "openvino:default": "OpenVINO in the precision it chooses itself (bf16 on some processors)",
    "reference": "the operators' meaning in float32 NumPy",
    "reference:promised": "the bits that O0 and O1 promise, in NumPy (slow)",
}
"""Runners by name, and what each is."""


def resolve(
    subject: Any,
    *,
    source: str | os.PathLike[str] | bytes | None = None,
    threads: int = 0,
) -> Runner:
    """The Runner for `subject`: a Runner, a name in RUNNERS, a path (.npz, .onnx), arrays by name,
    or a callable.

    source: the ONNX file of the network under test, which `onnxruntime` then runs unchanged.
    Raises `UsageError` that lists what exists.
    """
    if isinstance(subject, Runner):
        return subject
    if isinstance(subject, Mapping):
        return ArraysRunner(subject)
    if isinstance(subject, str | os.PathLike):
        return _named(os.fspath(subject), source, threads)
    if callable(subject):
        return FunctionRunner(subject)
    raise UsageError(
        f"a {type(subject).__name__} cannot be judged",
        next_step="give a runner's name, a path, arrays by name, or a callable",
    )


def _named(subject: str, source: str | os.PathLike[str] | bytes | None, threads: int) -> Runner:
    if subject in RUNNERS:
        kind, _, detail = subject.partition(":")
        if kind == "verax":
            return VeraxRunner(Settings(opt_level=int(detail[1:]), threads=threads))
        if kind == "reference":
            return ReferenceRunner(bits=detail == "promised")
        if kind == "openvino":
            precision = detail or "f32"
            return OpenVinoRunner(source, writer=to_bytes, precision=precision, threads=threads)
        return OnnxRuntimeRunner(source, writer=to_bytes, threads=threads)
    path = Path(subject)
    if path.suffix in (".npz", ".onnx"):
        if not path.is_file():
            raise UsageError("there is no such file", place=subject)
        is_model = path.suffix == ".onnx"
        return OnnxRuntimeRunner(path, threads=threads) if is_model else load_npz(path)
    near = difflib.get_close_matches(subject, RUNNERS, 1)
    raise UsageError(
        f"there is no runner {subject!r}" + (f"; is {near[0]!r} meant?" if near else ""),
        next_step=f"choose one of {', '.join(RUNNERS)}, or give an .npz or .onnx file",
    )
