"""`runner_of`: the Runner for a subject, whatever it is (see `resolve`)."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verax.base.errors import UsageError
from verax.base.option_groups.settings import Settings
from verax.export.onnx.writer import to_bytes
from verax.frontends.model import Model
from verax.judge.protocol import Naming, Runner
from verax.runners.arrays import AnswerRunner, ArraysRunner, load_npz
from verax.runners.children.child_runner import TIMEOUT, ChildRunner
from verax.runners.command import CommandRunner
from verax.runners.environments.interpreter import InterpreterRunner
from verax.runners.environments.managed import managed_python
from verax.runners.executables import ExecutableRunner
from verax.runners.functions import FunctionRunner
from verax.runners.network import NetworkRunner
from verax.runners.onnx.onnx_session import SessionRunner, model_of_session
from verax.runners.onnx_runtime import OnnxRuntimeRunner
from verax.runners.pytorch.torch_objects import Call, ExportedProgramRunner, TorchModuleRunner
from verax.runners.registry import ENTRIES
from verax.runners.spec import RunRequest, Source
from verax.runners.subjects.resolve import (
    ArraysFile,
    Command,
    CompiledProgram,
    GivenAnswer,
    GivenArrays,
    GivenFunction,
    GivenRunner,
    LoadedNetwork,
    ModelFile,
    NamedRunner,
    OnnxSession,
    OtherInterpreter,
    RunnerOnFile,
    RuntimeVersion,
    TextSubject,
    TorchModule,
    TorchProgram,
    resolve,
)


def runner_of(
    subject: Any,
    *,
    source: Source = None,
    threads: int = 0,
    timeout: float = TIMEOUT,
    program: Any = None,
    calls: Mapping[str, Call] | None = None,
    device: str = "",
) -> Runner:
    """The Runner for `subject`, as `resolve` takes it, or what that gave.

    source: the file of the network under test, which runtimes of its format then run unchanged.
    timeout: seconds that one run of a subject outside of this process may take. program: the
    ExportedProgram that the network under test was imported from. calls: which of its values a
    call of a torch module gives. device: what a runner by name shall run on ("cuda:0"), "" for
    where the model is. Raises `UsageError` that lists what exists, for a device where the subject
    takes none, and for files that have to be loaded first (`verax.api.subject_of` does that).
    """
    request = RunRequest(source, threads, timeout, program, to_bytes, device)
    resolved = resolve(subject)
    if device and not (isinstance(resolved, TextSubject) and resolved.takes_device):
        raise UsageError(
            f"the device {device!r} is given for a subject that is not told where to run",
            place=resolved.text if isinstance(resolved, TextSubject) else "",
            next_step="devices are for "
            + ", ".join(name for name, entry in ENTRIES.items() if entry.takes_device)
            + "; a module or a program of PyTorch runs where its parameters are",
        )
    match resolved:
        case GivenRunner(runner):
            return runner
        case NamedRunner(name):
            return ENTRIES[name].make(request)
        case RunnerOnFile():
            return _on_file(resolved, request)
        case Command(_, line):
            return CommandRunner(line, writer=to_bytes, timeout=request.timeout)
        case RuntimeVersion(_, version, level):
            python, label = managed_python(version), f"onnxruntime@{version}"
            return InterpreterRunner(python, label, request.onnx, level=level, **request.common)
        case OtherInterpreter(text, path):
            return InterpreterRunner(path, text, request.onnx, **request.common)
        case ArraysFile(path):
            return load_npz(path)
        case ModelFile(path) if resolved.is_onnx:
            runner = OnnxRuntimeRunner(Path(path), threads=request.threads, timeout=request.timeout)
            return _of_other_file(runner, path, request)
        case GivenArrays(arrays):
            return ArraysRunner(arrays)
        case GivenAnswer(outputs):
            return AnswerRunner(outputs)
        case LoadedNetwork(network):
            settings = Settings(threads=request.threads)
            if isinstance(network, Model):
                return NetworkRunner(network.graph, network.source, settings)
            return NetworkRunner(network, "", settings)
        case CompiledProgram(compiled):
            return ExecutableRunner(compiled, type(compiled).__name__.lower())
        case OnnxSession(session):
            naming = _naming_of_file(model_of_session(session), request.source)
            return SessionRunner(session, naming=naming)
        case TorchProgram(exported):
            naming = Naming.network if exported is request.program else Naming.hint
            return ExportedProgramRunner(exported, threads=request.threads, naming=naming)
        case TorchModule(module):
            return TorchModuleRunner(module, calls=calls, program=request.program)
        case GivenFunction(function, tensors):
            return FunctionRunner(function, tensors=tensors)
    raise UsageError(
        "this has to be loaded before it can run",
        place=resolved.text if isinstance(resolved, TextSubject) else "",
        next_step="give what verax.load makes of it",
    )


def _on_file(subject: RunnerOnFile, request: RunRequest) -> Runner:
    """A runner on a file of its own, or (for an empty path) on that of the network under test."""
    variant, path = ENTRIES[subject.runner], subject.path
    if variant.of_file is not None:
        return _of_other_file(variant.of_file(request, path), path, request)
    runner = variant.make(dataclasses.replace(request, source=path))
    return _of_other_file(runner, path, request)


def _of_other_file(runner: Runner, path: str, request: RunRequest) -> Runner:
    """`runner`, whose names are hints when `path` is not the file of the network under test."""
    if isinstance(runner, ChildRunner):
        naming = _naming_of_file(path, request.source)
        runner.capabilities = runner.capabilities.of_network(naming)
    return runner


def _naming_of_file(path: str | bytes | None, source: Source) -> Naming:
    """What the names of a file's values are worth: all if the network under test was read there."""
    if path is not None and path == source:
        return Naming.network
    files = isinstance(path, str) and isinstance(source, str | os.PathLike)
    same = files and os.path.abspath(source) == os.path.abspath(path)  # type: ignore[type-var, arg-type]
    return Naming.network if same else Naming.hint
