"""`resolve`: what a user's subject is, decided here and nowhere else.

A subject is a text of the command line or an object of Python. `resolve` looks at it once and gives
one of the classes below; what is made of it (a Runner, an alignment of two files) is up to those
who ask. Nothing is loaded, imported or run.
"""

from __future__ import annotations

import difflib
import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from verax.base.errors import UsageError
from verax.base.tensors import is_exported, is_from, is_tensor
from verax.compiler.artifacts.saved_program import SavedExecutable
from verax.compiler.executable import Executable
from verax.formats import ONNX, VX
from verax.frontends.model import Model
from verax.ir.graph import Graph
from verax.judge.protocol import Runner, with_present_names
from verax.runners.engines.onnxruntime import LEVELS
from verax.runners.environments.managed import VERSION
from verax.runners.functions import TensorFunction
from verax.runners.registry import ENTRIES, SPEC_OF

COMMAND, INTERPRETER, ARRAYS = "cmd", "python", ".npz"
"""What opens a program and an interpreter, and what ends recorded arrays."""


@dataclass(frozen=True)
class TextSubject:
    """A subject that is named by a text. text: as the user wrote it."""

    text: str

    @property
    def files(self) -> tuple[str, ...]:
        """Paths that the text names, whether or not they exist."""
        return ()

    @property
    def runs_code(self) -> bool:
        """True if running it runs code that somebody else may have put into what it names."""
        return False

    @property
    def takes_device(self) -> bool:
        """True if it can be told which device to run on."""
        return False

    def at(self, paths: Mapping[str, str]) -> str:
        """The text with its files at other places. paths: new path by old path."""
        return self.text


@dataclass(frozen=True)
class NamedRunner(TextSubject):
    """A runner by its name alone, such as `verax:O1` or `onnxruntime`."""

    @property
    def runs_code(self) -> bool:
        return ENTRIES[self.text].runs_code

    @property
    def takes_device(self) -> bool:
        return ENTRIES[self.text].takes_device

    @property
    def is_ours(self) -> bool:
        """True for the compiler and the reference, which are given the network, never its file."""
        return not SPEC_OF[self.text].package if self.text in SPEC_OF else False


@dataclass(frozen=True)
class RunnerOnFile(TextSubject):
    """A runner on a file of its own, such as `torch:FILE.pt2` or `openvino:FILE.onnx`."""

    runner: str
    path: str

    @property
    def files(self) -> tuple[str, ...]:
        return (self.path,) if self.path else ()

    @property
    def is_onnx(self) -> bool:
        """True if the file is one of ONNX, another one than that of the network under test."""
        return ENTRIES[self.runner].runs_onnx

    @property
    def runs_code(self) -> bool:
        return ENTRIES[self.runner].runs_code

    @property
    def takes_device(self) -> bool:
        return ENTRIES[self.runner].takes_device

    def at(self, paths: Mapping[str, str]) -> str:
        return f"{self.runner}:{paths.get(self.path, self.path)}"


@dataclass(frozen=True)
class Command(TextSubject):
    """`cmd:PROGRAM ARGS`. line: the program and its arguments."""

    line: str

    @property
    def files(self) -> tuple[str, ...]:
        """Arguments that are files."""
        try:
            return tuple(word for word in shlex.split(self.line) if os.path.isfile(word))
        except ValueError:
            return ()

    @property
    def runs_code(self) -> bool:
        return True


@dataclass(frozen=True)
class RuntimeVersion(TextSubject):
    """`onnxruntime@VERSION` or `onnxruntime@VERSION:LEVEL`, in an environment that Verax makes."""

    version: str
    level: str

    @property
    def runs_code(self) -> bool:
        return True


@dataclass(frozen=True)
class OtherInterpreter(TextSubject):
    """`python:PATH`: the ONNX Runtime of that interpreter."""

    path: str

    @property
    def runs_code(self) -> bool:
        return True


@dataclass(frozen=True)
class FileSubject(TextSubject):
    """A file, or a folder that is one model. text: its path."""

    @property
    def files(self) -> tuple[str, ...]:
        return (self.text,)

    def at(self, paths: Mapping[str, str]) -> str:
        return paths.get(self.text, self.text)


@dataclass(frozen=True)
class ArraysFile(FileSubject):
    """Recorded answers in an .npz."""


@dataclass(frozen=True)
class ProgramFile(FileSubject):
    """A compiled program, .vx: machine code."""

    @property
    def runs_code(self) -> bool:
        return True


@dataclass(frozen=True)
class ModelFile(FileSubject):
    """Another network's file, of any format."""

    @property
    def is_onnx(self) -> bool:
        """True for what runtimes of ONNX files take."""
        return Path(self.text).suffix in ONNX.suffixes


@dataclass(frozen=True)
class GivenRunner:
    """A Runner, the user's own or one of ours."""

    runner: Runner


@dataclass(frozen=True)
class GivenArrays:
    """Recorded answers by name."""

    arrays: Mapping[str, Any]


@dataclass(frozen=True)
class GivenAnswer:
    """Recorded outputs in the network's order, without names."""

    arrays: tuple[Any, ...]


@dataclass(frozen=True)
class LoadedNetwork:
    """Another network, read already."""

    network: Model | Graph


@dataclass(frozen=True)
class CompiledProgram:
    """An executable of ours, fresh or loaded."""

    program: Executable | SavedExecutable


@dataclass(frozen=True)
class OnnxProgram:
    """What `torch.onnx.export` gives."""

    program: Any


@dataclass(frozen=True)
class OnnxSession:
    """An `onnxruntime.InferenceSession`."""

    session: Any


@dataclass(frozen=True)
class TorchProgram:
    """A `torch.export.ExportedProgram`."""

    program: Any


@dataclass(frozen=True)
class TorchModule:
    """A `torch.nn.Module`."""

    module: Any


@dataclass(frozen=True)
class GivenFunction:
    """A callable. tensors: whether it takes tensors of PyTorch, not arrays."""

    function: Callable[..., Any]
    tensors: bool


GivenObject: TypeAlias = (
    GivenRunner
    | GivenArrays
    | GivenAnswer
    | LoadedNetwork
    | CompiledProgram
    | OnnxProgram
    | OnnxSession
    | TorchProgram
    | TorchModule
    | GivenFunction
)
Resolved: TypeAlias = (
    NamedRunner
    | RunnerOnFile
    | Command
    | RuntimeVersion
    | OtherInterpreter
    | ArraysFile
    | ProgramFile
    | ModelFile
    | GivenObject
)
FROM: Mapping[str, Callable[[Any], GivenObject]] = {
    "torch.onnx": OnnxProgram,
    "onnxruntime": OnnxSession,
    "torch.export": TorchProgram,
    "torch.nn": TorchModule,
}
"""Package in which a class of the object was defined -> what the object is."""


def resolve(subject: Any) -> Resolved:
    """What `subject` is: a text as `resolve_text` takes it, a Runner, arrays by name, an array or a
    sequence of them, a network, an executable, an object of PyTorch or ONNX Runtime, or a function.

    Raises `UsageError` that says what may be given.
    """
    if isinstance(subject, Resolved):
        return subject  # resolved already
    if isinstance(subject, str | os.PathLike):
        return resolve_text(os.fspath(subject))
    if isinstance(subject, Runner):
        return GivenRunner(with_present_names(subject))
    if isinstance(subject, Mapping):
        return GivenArrays(subject)
    if isinstance(subject, Model | Graph):
        return LoadedNetwork(subject)
    if isinstance(subject, Executable | SavedExecutable):
        return CompiledProgram(subject)
    if is_answer(subject):
        return GivenAnswer(tuple(_leaves(subject)))
    for package, made_of in FROM.items():
        if is_from(subject, package):
            return made_of(subject)
    if callable(subject):
        return GivenFunction(subject, isinstance(subject, TensorFunction))
    if hasattr(subject, "run") and not hasattr(subject, "capabilities"):
        raise UsageError(
            f"a {type(subject).__name__} has run() and does not say what else it can do",
            next_step="a Runner has name, stored_inputs, describe(), run() and capabilities: "
            "see `verax.judge.protocol.Capabilities`",
        )
    raise UsageError(
        f"a {type(subject).__name__} cannot be judged",
        next_step="give a runner's name, a path, an array, arrays by name, or a callable",
    )


def resolve_text(
    text: str, *, here: bool = True
) -> (
    NamedRunner
    | RunnerOnFile
    | Command
    | RuntimeVersion
    | OtherInterpreter
    | ArraysFile
    | ProgramFile
    | ModelFile
):
    """What a text names: a runner (`verax:O1`), a runner on a file (`torch:FILE`), a program
    (`cmd:PROGRAM ARGS`), another version (`onnxruntime@1.20.0`), an interpreter (`python:PATH`),
    recorded arrays (.npz), a compiled program (.vx), or a model file.

    here: whether its files lie where the text says. Without, as for a record from another machine,
    a text that names nothing else is the path of a model. Raises `UsageError` that lists what
    exists.
    """
    if text in ENTRIES:
        return NamedRunner(text)
    kind, colon, argument = text.partition(":")
    if colon and kind == COMMAND:
        return Command(text, argument)
    if colon and kind == INTERPRETER:
        return _interpreter(text, argument, here)
    if text.partition("@")[0] in ENTRIES and "@" in text:
        return _runtime_version(text)
    variant = ENTRIES.get(kind) if colon else None
    if variant is not None and variant.of_file is not None:
        return RunnerOnFile(text, kind, argument)
    if variant is not None and variant.runs_onnx and argument:
        if not argument.endswith(ONNX.suffixes) or (here and not os.path.isfile(argument)):
            raise UsageError(
                f"there is no ONNX file {argument!r} for {kind}, and no setting of that name"
                + _meant(text),
                next_step=f"give a file, {kind}:FILE.onnx, or one of "
                + ", ".join(name for name in ENTRIES if name.startswith(kind)),
            )
        return RunnerOnFile(text, kind, argument)
    if text.endswith(VX.suffixes):
        return ProgramFile(text)
    if Path(text).suffix in (ARRAYS, *ONNX.suffixes):
        if here and not os.path.isfile(text):
            raise UsageError("there is no such file", place=text)
        return ArraysFile(text) if Path(text).suffix == ARRAYS else ModelFile(text)
    if text and (not here or os.path.exists(text)):
        return ModelFile(text)
    raise UsageError(
        f"there is no runner {text!r}" + _meant(text),
        next_step=f"choose one of {', '.join(ENTRIES)}, or give a model file, an .npz file, "
        "or cmd:PROGRAM ARGS",
    )


def _interpreter(text: str, path: str, here: bool) -> OtherInterpreter:
    if here and not (os.path.isfile(path) and os.access(path, os.X_OK)):
        raise UsageError(
            "there is no such interpreter",
            place=path,
            next_step="give the path of a Python that has ONNX Runtime: python:ENV/bin/python",
        )
    return OtherInterpreter(text, path)


def _runtime_version(text: str) -> RuntimeVersion:
    runtime, _, setting = text.partition("@")
    version, _, level = setting.partition(":")
    if runtime != "onnxruntime":
        raise UsageError(
            f"versions of {runtime} are not installed by Verax",
            place=text,
            next_step="onnxruntime@VERSION is; of others give a program: cmd:PROGRAM ARGS",
        )
    if not VERSION.fullmatch(version) or level not in ("", *LEVELS):
        raise UsageError(
            f"{setting!r} is no version of ONNX Runtime with a level",
            place=text,
            next_step="write onnxruntime@1.20.0, or onnxruntime@1.20.0:LEVEL with one of "
            + ", ".join(LEVELS),
        )
    return RuntimeVersion(text, version, level or "all")


def _meant(text: str) -> str:
    near = difflib.get_close_matches(text, ENTRIES, 1)
    return f"; is {near[0]!r} meant?" if near else ""


def is_answer(subject: Any) -> bool:
    """True for an array of any library, and for a sequence of them."""
    if isinstance(subject, list | tuple):
        return bool(subject) and all(is_answer(one) for one in subject)
    return (is_exported(subject) or is_tensor(subject)) and not callable(subject)


def _leaves(answer: Any) -> Iterator[Any]:
    if isinstance(answer, list | tuple):
        for one in answer:
            yield from _leaves(one)
    else:
        yield answer
