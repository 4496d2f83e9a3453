"""From what a user names to a Runner: `verax:O1`, `onnxruntime`, a file, arrays, a function."""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from verax.base.errors import UsageError
from verax.base.settings import DEFAULT_LEVEL, LEVELS, Settings
from verax.export.onnx.writer import to_bytes
from verax.judge.protocol import Naming, Runner
from verax.runners import onnx_runtime, openvino, tvm
from verax.runners.arrays import ArraysRunner, load_npz
from verax.runners.child_runner import TIMEOUT, ChildRunner
from verax.runners.command import CommandRunner
from verax.runners.engines import Engine
from verax.runners.functions import FunctionRunner
from verax.runners.litert import LiteRtRunner
from verax.runners.onnx_runtime import OnnxRuntimeRunner
from verax.runners.onnx_session import SessionRunner, model_of_session
from verax.runners.openvino import OpenVinoRunner
from verax.runners.own import ReferenceRunner, VeraxRunner
from verax.runners.tensorflow_file import TensorFlowRunner
from verax.runners.torch_file import TorchFileRunner
from verax.runners.torch_objects import Call, ExportedProgramRunner, TorchModuleRunner
from verax.runners.tvm import TvmRunner

Source = str | os.PathLike[str] | bytes | None
FOREIGN = ("torch", "torch-compiled", "litert", "litert-builtin", "litert-reference", "tensorflow")
"""Runners of their own model files; by name alone they run the file of the model under test."""
AT_FILES = ("onnxruntime", "openvino", "tvm")
"""Runtimes of ONNX files: `onnxruntime:FILE.onnx` runs another file than that of the model under
test, with which it is aligned by value."""


@dataclass(frozen=True)
class Asked:
    """What a runner is made for. source: the file of the network under test, if there is one.
    program: the ExportedProgram that it was imported from, if it was one."""

    source: Source
    threads: int
    timeout: float
    program: Any = None

    @property
    def onnx(self) -> Source:
        """The source where it is ONNX; otherwise the graph is written as ONNX."""
        if isinstance(self.source, str | os.PathLike) and Path(self.source).suffix != ".onnx":
            return None
        return self.source


def _own(asked: Asked, level: int) -> Runner:
    return VeraxRunner(Settings(opt_level=level, threads=asked.threads))


def _reference(asked: Asked, bits: bool) -> Runner:
    return ReferenceRunner(bits=bits)


def _onnx_runtime(asked: Asked, level: str = "all") -> Runner:
    return OnnxRuntimeRunner(
        asked.onnx, writer=to_bytes, level=level, threads=asked.threads, timeout=asked.timeout
    )


def _openvino(asked: Asked, precision: str = "f32") -> Runner:
    return OpenVinoRunner(
        asked.onnx,
        writer=to_bytes,
        precision=precision,
        threads=asked.threads,
        timeout=asked.timeout,
    )


def _tvm(asked: Asked, level: int = tvm.OPT_LEVELS[-1]) -> Runner:
    return TvmRunner(
        asked.onnx, writer=to_bytes, opt_level=level, threads=asked.threads, timeout=asked.timeout
    )


def _foreign(kind: str, asked: Asked, path: str = "") -> Runner:
    """The runner `kind` on `path`, or on the source of the model under test."""
    if not path and asked.program is not None and kind.startswith("torch"):
        return ExportedProgramRunner(
            asked.program,
            compiled=kind == "torch-compiled",
            threads=asked.threads,
            naming=Naming.network,
        )
    file = path or asked.source
    if not isinstance(file, str | os.PathLike):
        raise UsageError(
            f"the runner {kind!r} runs model files, and the model under test is none",
            next_step=f"give the file: {kind}:FILE",
        )
    options: dict[str, Any] = {"threads": asked.threads, "timeout": asked.timeout}
    if kind.startswith("litert"):
        return LiteRtRunner(file, kernels=kind.partition("-")[2] or "default", **options)
    if kind == "tensorflow":
        return TensorFlowRunner(file, **options)
    return TorchFileRunner(file, compiled=kind == "torch-compiled", **options)


def _at_file(kind: str, asked: Asked, path: str) -> Runner:
    """A runtime of ONNX files on another file than that of the model under test."""
    near = difflib.get_close_matches(f"{kind}:{path}", ENTRIES, 1)
    if not path.endswith(".onnx") or not Path(path).is_file():
        raise UsageError(
            f"there is no ONNX file {path!r} for {kind}, and no setting of that name"
            + (f"; is {near[0]!r} meant?" if near else ""),
            next_step=f"give a file, {kind}:FILE.onnx, or one of "
            + ", ".join(name for name in ENTRIES if name.startswith(kind)),
        )
    return ENTRIES[kind].make(dataclasses.replace(asked, source=path))


def _of_other_file(runner: Runner, path: str | Path, asked: Asked) -> Runner:
    """`runner`, whose names are hints when `path` is not the file of the network under test."""
    if isinstance(runner, ChildRunner):
        runner.naming = _naming_of_file(path, asked.source)
    return runner


def _naming_of_file(path: str | Path | bytes | None, source: Source) -> Naming:
    """What the names of a file's values are worth: all if the network under test was read there."""
    if path is not None and path == source:
        return Naming.network
    files = isinstance(path, str | Path) and isinstance(source, str | os.PathLike)
    same = files and os.path.abspath(source) == os.path.abspath(path)  # type: ignore[type-var, arg-type]
    return Naming.network if same else Naming.hint


@dataclass(frozen=True)
class Entry:
    """One runner by name: what it is, the package it needs (as imported), how it is made, and the
    engine that `verax bench` times, if it can be timed."""

    words: str
    package: str
    make: Callable[[Asked], Runner]
    engine: Engine | None = None


def _entries() -> dict[str, Entry]:
    found = {
        f"verax:O{n}": Entry(
            f"our compiler at level O{n}",
            "",
            partial(_own, level=n),
            Engine("verax", (), {"opt_level": n}),
        )
        for n in LEVELS
    }
    onnx = (".onnx",)
    words = "ONNX Runtime on the CPU, running the model's file or the graph as ONNX"
    found["onnxruntime"] = Entry(words, "onnxruntime", _onnx_runtime, Engine("onnxruntime", onnx))
    for level in onnx_runtime.LEVELS:
        words = f"ONNX Runtime, graph optimisation: {level}"
        make = partial(_onnx_runtime, level=level)
        engine = Engine("onnxruntime", onnx, {"level": level})
        found[f"onnxruntime:{level}"] = Entry(words, "onnxruntime", make, engine)
    words = "OpenVINO on the CPU in float32 (f32 is asked for)"
    found["openvino"] = Entry(words, "openvino", _openvino, Engine("openvino", onnx))
    for precision in openvino.PRECISIONS:
        chosen = "the precision it chooses itself (bf16 on some processors)"
        words = f"OpenVINO in {chosen if precision == 'default' else precision}"
        make = partial(_openvino, precision=precision)
        engine = Engine("openvino", onnx, {"precision": precision})
        found[f"openvino:{precision}"] = Entry(words, "openvino", make, engine)
    words = "Apache TVM on the CPU, through its ONNX frontend"
    found["tvm"] = Entry(words, "tvm", _tvm, Engine("tvm", onnx))
    for number in tvm.OPT_LEVELS[:-1]:
        make = partial(_tvm, level=number)
        engine = Engine("tvm", onnx, {"opt_level": number})
        found[f"tvm:O{number}"] = Entry(f"Apache TVM with opt_level {number}", "tvm", make, engine)
    programs, lite = (".pt2", ".py"), (".tflite",)
    files = {
        "torch": ("PyTorch, eager, running a .pt2 file", "torch", Engine("torch", programs)),
        "torch-compiled": (
            "PyTorch, torch.compile, running a .pt2 file",
            "torch",
            Engine("torch", programs, {"compiled": True}),
        ),
        "litert": ("LiteRT, running a .tflite file", "ai_edge_litert", Engine("litert", lite)),
        "litert-builtin": (
            "LiteRT without XNNPACK, running a .tflite file",
            "ai_edge_litert",
            Engine("litert", lite, {"kernels": "builtin"}),
        ),
        "litert-reference": (
            "LiteRT's reference kernels, on a .tflite file",
            "ai_edge_litert",
            Engine("litert", lite, {"kernels": "reference"}),
        ),
        "tensorflow": (
            "TensorFlow, running a .pb, SavedModel or Keras file",
            "tensorflow",
            None,
        ),
    }
    for kind, (words, package, timed) in files.items():
        found[kind] = Entry(words, package, partial(_foreign, kind), timed)
    words = "the operators' meaning in float32 NumPy"
    found["reference"] = Entry(words, "", partial(_reference, bits=False))
    words = "the bits that O0 and O1 promise, in NumPy (slow)"
    found["reference:promised"] = Entry(words, "", partial(_reference, bits=True))
    return found


ENTRIES = _entries()
DISTRIBUTIONS: Mapping[str, tuple[str, ...]] = {
    "onnxruntime": OnnxRuntimeRunner.packages,
    "openvino": OpenVinoRunner.packages,
    "tvm": TvmRunner.packages,
    "torch": TorchFileRunner.packages,
    "ai_edge_litert": LiteRtRunner.packages,
    "tensorflow": TensorFlowRunner.packages,
}
"""Package as it is imported -> what it may be called where packages are listed, likeliest first."""
TIMED_ONLY: Mapping[str, tuple[str, Engine]] = {
    "verax:saved": ("", Engine("verax", (".vx",))),
    "torch-zentorch": (
        "zentorch",
        Engine("torch", (".pt2", ".py"), {"compiled": True, "backend": "zentorch"}),
    ),
    "ncnn": ("ncnn", Engine("ncnn", (".param",))),
    "mnn": ("MNN", Engine("mnn", (".mnn",))),
}
"""Engines that are timed and not judged: the package that each needs, and how it is run."""
ENGINES: Mapping[str, Engine] = {
    "verax": Engine("verax", (), {"opt_level": DEFAULT_LEVEL}),
    **{name: engine for name, (_, engine) in TIMED_ONLY.items()},
    **{name: entry.engine for name, entry in ENTRIES.items() if entry.engine is not None},
}
"""What `verax bench` can time, by the runner's name; "verax" is our default level."""
RUNNERS = {name: entry.words for name, entry in ENTRIES.items()}
"""Runners by name, and what each is. `torch:FILE`, `litert:FILE`, `tensorflow:FILE`,
`onnxruntime:FILE` and `openvino:FILE` run a file of their own; `cmd:PROGRAM ARGS` runs any
program."""


def resolve(
    subject: Any,
    *,
    source: Source = None,
    threads: int = 0,
    timeout: float = TIMEOUT,
    program: Any = None,
    calls: Mapping[str, Call] | None = None,
) -> Runner:
    """The Runner for `subject`: a Runner, a name in RUNNERS, `torch:FILE` and the like,
    `cmd:PROGRAM ARGS`, a path (.npz, .onnx), arrays by name, a torch module or ExportedProgram,
    or a callable.

    source: the file of the network under test, which runtimes of its format then run unchanged.
    timeout: seconds that one run of a subject outside of this process may take. program: the
    ExportedProgram that the network under test was imported from. calls: which of its values a
    call of a torch module gives. Raises `UsageError` that lists what exists.
    """
    if isinstance(subject, Runner):
        return subject
    if isinstance(subject, Mapping):
        return ArraysRunner(subject)
    if isinstance(subject, str | os.PathLike):
        return _named(os.fspath(subject), Asked(source, threads, timeout, program))
    if _is_from(subject, "onnxruntime"):
        own = model_of_session(subject)
        return SessionRunner(subject, naming=_naming_of_file(own, source))
    if _is_from(subject, "torch.export"):
        naming = Naming.network if subject is program else Naming.hint
        return ExportedProgramRunner(subject, threads=threads, naming=naming)
    if _is_from(subject, "torch.nn"):
        return TorchModuleRunner(subject, calls=calls, program=program)
    if callable(subject):
        return FunctionRunner(subject, tensors=getattr(subject, "takes_tensors", False))
    raise UsageError(
        f"a {type(subject).__name__} cannot be judged",
        next_step="give a runner's name, a path, arrays by name, or a callable",
    )


def _is_from(subject: Any, module: str) -> bool:
    """Whether a class of `subject` was defined in `module` (torch itself stays unimported)."""
    return any(c.__module__.startswith(module) for c in type(subject).__mro__)


def _named(subject: str, asked: Asked) -> Runner:
    if subject in ENTRIES:
        return ENTRIES[subject].make(asked)
    kind, colon, rest = subject.partition(":")
    if colon and kind == "cmd":
        return CommandRunner(rest, writer=to_bytes, timeout=asked.timeout)
    if colon and kind in FOREIGN:
        return _of_other_file(_foreign(kind, asked, rest), rest, asked)
    if colon and kind in AT_FILES and rest:
        return _of_other_file(_at_file(kind, asked, rest), rest, asked)
    path = Path(subject)
    if path.suffix in (".npz", ".onnx"):
        if not os.path.isfile(path):
            raise UsageError("there is no such file", place=subject)
        if path.suffix == ".npz":
            return load_npz(path)
        runner = OnnxRuntimeRunner(path, threads=asked.threads, timeout=asked.timeout)
        return _of_other_file(runner, path, asked)
    near = difflib.get_close_matches(subject, ENTRIES, 1)
    raise UsageError(
        f"there is no runner {subject!r}" + (f"; is {near[0]!r} meant?" if near else ""),
        next_step=f"choose one of {', '.join(ENTRIES)}, or give an .npz or .onnx file, "
        "or cmd:PROGRAM ARGS",
    )
