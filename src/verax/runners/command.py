"""`cmd:PROGRAM ARGS`: any program that reads an .npz and writes an .npz is a subject.

The paths of the two files stand where the text says `{input}` and `{output}`, else they are the
last two arguments. `{model}`, where it occurs, is the network under test written as ONNX.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from verax.base.errors import UsageError
from verax.base.printing import Named
from verax.base.process.processes import SubjectDiedError, SubjectError, run_process
from verax.base.storage.files import scratch_folder
from verax.base.storage.npz import read_npz, write_npz
from verax.ir.graph import Graph
from verax.judge.protocol import Capabilities
from verax.runners.children.child_runner import TIMEOUT
from verax.runners.memory import perturbing
from verax.runners.onnx.onnx_files import Writer

INPUT, OUTPUT, MODEL = "{input}", "{output}", "{model}"


def _telling(words: Sequence[str]) -> list[str]:
    """The program's name, and that of the first file it is given: of an interpreter the script."""
    files = [Path(w).name for w in words[1:] if Path(w).is_file()]
    return [Path(words[0]).name, *files[:1]]


class CommandRunner(Named):
    """Runs `command` (a line as a shell would split it; no shell is used) once for every run.

    The input file holds the network's inputs by name; the program writes any of the network's
    values by name. writer: makes ONNX of the graph, for `{model}`; a program that takes it runs any
    part of a network too. timeout: seconds. Raises `UsageError` when the line cannot be split.
    """

    stored_inputs: Mapping[str, np.ndarray] | None = None

    def __init__(
        self, command: str, *, writer: Writer | None = None, timeout: float = TIMEOUT
    ) -> None:
        try:
            self.words = shlex.split(command)
        except ValueError as error:
            raise UsageError(f"the command cannot be read ({error})", place=command) from error
        if not self.words:
            raise UsageError("there is no command", next_step="write cmd:PROGRAM ARGS")
        if not any(INPUT in w or OUTPUT in w for w in self.words):
            self.words += [INPUT, OUTPUT]
        self.command, self.writer, self.timeout = command, writer, timeout
        self.name = f"cmd:{' '.join(_telling(self.words))}"
        self.capabilities = Capabilities(
            truncates=any(MODEL in w for w in self.words),  # handed a model, it runs any part of it
            own_process=True,
            poison="fresh memory of its process",
            any_device=True,
            script="cmd",
        )

    def describe(self) -> dict[str, str]:
        return {"kind": "a program", "command": self.command}

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        return self._run(graph, inputs, {})

    def run_poisoned(
        self,
        graph: Graph,
        inputs: Mapping[str, np.ndarray],
        keep: Sequence[str] | None = None,
        *,
        fill: int,
    ) -> dict[str, np.ndarray]:
        return self._run(graph, inputs, perturbing(fill))

    def _run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], environment: Mapping[str, str]
    ) -> dict[str, np.ndarray]:
        with scratch_folder() as folder:
            paths = {INPUT: folder / "input.npz", OUTPUT: folder / "output.npz"}
            write_npz(paths[INPUT], inputs)
            if any(MODEL in w for w in self.words):
                paths[MODEL] = folder / "model.onnx"
                paths[MODEL].write_bytes(self._model(graph))
            words = []
            for word in self.words:
                for mark, path in paths.items():
                    word = word.replace(mark, str(path))
                words.append(word)
            ended = run_process(
                words, name=self.name, timeout=self.timeout, environment=environment
            )
            if ended.code != 0:
                kind = SubjectDiedError if ended.code < 0 else SubjectError
                raise kind(
                    f"the program failed ({ended.ending}): {ended.last_words}",
                    place=self.name,
                    next_step=f"run it by hand: {shlex.join(self.words)}",
                )
            if not paths[OUTPUT].exists():
                raise SubjectError(
                    f"the program ended well and wrote no output file: {ended.last_words}",
                    place=self.name,
                    next_step="let it write its answers with numpy.savez to the path it is given",
                )
            try:
                return read_npz(paths[OUTPUT])
            except UsageError as error:
                raise SubjectError(error.cause, place=f"the output file of {self.name}") from error

    def _model(self, graph: Graph) -> bytes:
        if self.writer is None:
            raise UsageError("there is no writer for {model}", place=self.name)
        return self.writer(graph)
