"""From what a user names to a Runner: `verax:O1`, `onnxruntime`, a file, arrays, a function.

Runners by name come from the `SPEC` of each module in this folder (see `spec`).
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import os
import pkgutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import verax.runners
from verax.base.errors import UsageError
from verax.export.onnx.writer import to_bytes
from verax.judge.protocol import Naming, Runner
from verax.runners.arrays import ArraysRunner, load_npz
from verax.runners.child_runner import TIMEOUT, ChildRunner
from verax.runners.command import CommandRunner
from verax.runners.engines import Engine
from verax.runners.functions import FunctionRunner, TensorFunction
from verax.runners.onnx_runtime import OnnxRuntimeRunner
from verax.runners.onnx_session import SessionRunner, model_of_session
from verax.runners.spec import RunnerSpec, RunRequest, Source
from verax.runners.torch_objects import Call, ExportedProgramRunner, TorchModuleRunner


def _specs() -> Iterator[RunnerSpec]:
    """The specs of all modules of this folder."""
    for module in pkgutil.iter_modules(verax.runners.__path__):
        found = importlib.import_module(f"verax.runners.{module.name}")
        if hasattr(found, "SPEC"):
            yield found.SPEC


SPECS = tuple(sorted(_specs(), key=lambda s: (s.package != "", s.package)))
"""Ours first, then by package."""
ENTRIES = {name: variant for spec in SPECS for name, variant in spec.variants.items()}
"""Everybody who can be judged by name."""
SPEC_OF = {name: spec for spec in SPECS for name in spec.variants}
"""The spec of everybody in ENTRIES."""
AT_FILES = tuple(name for name, entry in ENTRIES.items() if entry.runs_onnx)
"""Runtimes of ONNX files: `onnxruntime:FILE.onnx` runs another file than that of the model under
test, with which it is aligned by value."""
DISTRIBUTIONS: Mapping[str, tuple[str, ...]] = {
    spec.package: spec.distributions for spec in SPECS if spec.package and spec.variants
}
"""Package as it is imported -> what it may be called where packages are listed, likeliest first."""
TIMED_ONLY = {name: engine for spec in SPECS for name, engine in spec.timed_only.items()}
"""Engines that are timed and not judged; "verax" is our default level."""
ENGINES: Mapping[str, Engine] = {
    **TIMED_ONLY,
    **{name: entry.engine for name, entry in ENTRIES.items() if entry.engine is not None},
}
"""What `verax bench` can time, by the runner's name."""
RUNNERS = {name: entry.description for name, entry in ENTRIES.items()}
"""Runners by name, and what each is. `torch:FILE`, `litert:FILE`, `tensorflow:FILE`,
`onnxruntime:FILE` and `openvino:FILE` run a file of their own; `cmd:PROGRAM ARGS` runs any
program."""


def _of_onnx_file(kind: str, request: RunRequest, path: str) -> Runner:
    """A runtime of ONNX files on another file than that of the model under test."""
    near = difflib.get_close_matches(f"{kind}:{path}", ENTRIES, 1)
    if not path.endswith(".onnx") or not Path(path).is_file():
        raise UsageError(
            f"there is no ONNX file {path!r} for {kind}, and no setting of that name"
            + (f"; is {near[0]!r} meant?" if near else ""),
            next_step=f"give a file, {kind}:FILE.onnx, or one of "
            + ", ".join(name for name in ENTRIES if name.startswith(kind)),
        )
    return ENTRIES[kind].make(dataclasses.replace(request, source=path))


def _of_other_file(runner: Runner, path: str | Path, request: RunRequest) -> Runner:
    """`runner`, whose names are hints when `path` is not the file of the network under test."""
    if isinstance(runner, ChildRunner):
        naming = _naming_of_file(path, request.source)
        runner.capabilities = runner.capabilities.of_network(naming)
    return runner


def _naming_of_file(path: str | Path | bytes | None, source: Source) -> Naming:
    """What the names of a file's values are worth: all if the network under test was read there."""
    if path is not None and path == source:
        return Naming.network
    files = isinstance(path, str | Path) and isinstance(source, str | os.PathLike)
    same = files and os.path.abspath(source) == os.path.abspath(path)  # type: ignore[type-var, arg-type]
    return Naming.network if same else Naming.hint


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
        return _named(os.fspath(subject), RunRequest(source, threads, timeout, program, to_bytes))
    if _is_from(subject, "onnxruntime"):
        own = model_of_session(subject)
        return SessionRunner(subject, naming=_naming_of_file(own, source))
    if _is_from(subject, "torch.export"):
        naming = Naming.network if subject is program else Naming.hint
        return ExportedProgramRunner(subject, threads=threads, naming=naming)
    if _is_from(subject, "torch.nn"):
        return TorchModuleRunner(subject, calls=calls, program=program)
    if callable(subject):
        return FunctionRunner(subject, tensors=isinstance(subject, TensorFunction))
    if callable(getattr(subject, "run", None)) and not hasattr(type(subject), "capabilities"):
        raise UsageError(
            f"a {type(subject).__name__} has run() and does not say what else it can do",
            next_step="a Runner has name, stored_inputs, describe(), run() and capabilities: "
            "see `verax.judge.protocol.Capabilities`",
        )
    raise UsageError(
        f"a {type(subject).__name__} cannot be judged",
        next_step="give a runner's name, a path, arrays by name, or a callable",
    )


def _is_from(subject: Any, module: str) -> bool:
    """Whether a class of `subject` was defined in `module` (torch itself stays unimported)."""
    return any(c.__module__.startswith(module) for c in type(subject).__mro__)


def _named(subject: str, request: RunRequest) -> Runner:
    if subject in ENTRIES:
        return ENTRIES[subject].make(request)
    kind, colon, rest = subject.partition(":")
    if colon and kind == "cmd":
        return CommandRunner(rest, writer=to_bytes, timeout=request.timeout)
    variant = ENTRIES.get(kind) if colon else None
    if variant is not None and variant.of_file is not None:
        return _of_other_file(variant.of_file(request, rest), rest, request)
    if variant is not None and variant.runs_onnx and rest:
        return _of_other_file(_of_onnx_file(kind, request, rest), rest, request)
    path = Path(subject)
    if path.suffix in (".npz", ".onnx"):
        if not os.path.isfile(path):
            raise UsageError("there is no such file", place=subject)
        if path.suffix == ".npz":
            return load_npz(path)
        runner = OnnxRuntimeRunner(path, threads=request.threads, timeout=request.timeout)
        return _of_other_file(runner, path, request)
    near = difflib.get_close_matches(subject, ENTRIES, 1)
    raise UsageError(
        f"there is no runner {subject!r}" + (f"; is {near[0]!r} meant?" if near else ""),
        next_step=f"choose one of {', '.join(ENTRIES)}, or give an .npz or .onnx file, "
        "or cmd:PROGRAM ARGS",
    )
