"""`onnxruntime@VERSION` and `python:PATH`: the ONNX Runtime of another interpreter as a subject.

It is what `onnx_runtime` is, run elsewhere: the model and the values wanted are prepared here, and
one process of the other interpreter makes the session and runs it, through files.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from verax.base.errors import MissingPackageError
from verax.base.process.processes import SubjectDiedError, SubjectError, run_process
from verax.base.storage.files import scratch_folder
from verax.onnx_format.package import onnx
from verax.runners.children.child_files import (
    INPUTS,
    OUTPUTS,
    REPLY,
    REQUEST,
    load_arrays,
    save_arrays,
)
from verax.runners.children.child_runner import Answered
from verax.runners.engines.onnxruntime import LEVELS
from verax.runners.feeding import feed, require_numpy_types
from verax.runners.memory import perturbing
from verax.runners.onnx.onnx_files import add_outputs, input_shapes, load, plain_name, text_of
from verax.runners.onnx.onnx_runner import Common
from verax.runners.onnx_runtime import OnnxRuntimeRunner

SCRIPT = Path(__file__).with_name("script.py")


class InterpreterRunner(OnnxRuntimeRunner):
    """The ONNX Runtime of the interpreter `python`. label: the runner's name in front of the
    model's ("onnxruntime@1.20.0"). The rest as for `OnnxRuntimeRunner`."""

    def __init__(
        self,
        python: str | os.PathLike[str],
        label: str,
        model: str | os.PathLike[str] | bytes | None = None,
        *,
        level: str = "all",
        options: Mapping[str, str | int | float | bool] | None = None,
        disable: Sequence[str] = (),
        **common: Unpack[Common],
    ) -> None:
        super().__init__(model, level=level, options=options, disable=disable, **common)
        self.python, self.label = os.fspath(python), label
        self.name = self.name.replace("onnxruntime", label, 1)
        # A script of a minimal case would call the runtime that is installed beside Verax, and
        # output arrays are the session's own.
        self.capabilities = dataclasses.replace(
            self.capabilities, script="", poison="fresh memory of its process"
        )

    def describe(self) -> dict[str, str]:
        version = self._notes.get("version", "unknown")
        return {**super().describe(), "version": version, "interpreter": self.python}

    def _at(self, level: str, disable: Sequence[str]) -> InterpreterRunner:
        runner = InterpreterRunner(
            self.python, self.label, self.model, level=level, disable=disable, **self._arguments
        )
        runner.capabilities = self.capabilities
        return runner

    def _reply_to(
        self, request: Mapping[str, Any], inputs: Mapping[str, np.ndarray], fill: int | None
    ) -> Answered:
        """What the other interpreter gives. Raises `MissingPackageError` where it has no ONNX
        Runtime, and `SubjectError` where the runtime fails, dies or hangs."""
        source = load(request["model"])
        named, notes = feed(input_shapes(source.proto), inputs)
        require_numpy_types(named)
        declared = [v.name for v in source.proto.graph.output]
        with scratch_folder() as folder:
            path = request["model"]
            if request["keep"] or isinstance(path, bytes):
                add_outputs(source.proto, request["keep"])
                path = str(folder / "model.onnx")
                Path(path).write_bytes(source.proto.SerializeToString())
            optimized = folder / "optimized.onnx"
            content = {
                **{key: request[key] for key in ("options", "disable", "threads")},
                "level": LEVELS[request["level"]],
                "model": path,
                "inputs": save_arrays(folder / INPUTS, named),
                "optimized": str(optimized) if request.get("show") else "",
            }
            (folder / REQUEST).write_text(json.dumps(content))
            reply = self._run_script(folder, fill)
            if optimized.exists():
                nodes = onnx.load(optimized, load_external_data=False).graph.node
                lines = [(node.name or node.output[0], text_of(node)) for node in nodes]
                notes = {**notes, "optimized model": json.dumps(lines)}
            values = load_arrays(folder / OUTPUTS, reply["outputs"])
        notes = {**notes, "version": reply["version"]}
        values = {plain_name(name): array for name, array in values.items()}
        return {"notes": notes, "declared": declared}, values

    def _run_script(self, folder: Path, fill: int | None) -> dict[str, Any]:
        """The reply of the other interpreter to what `folder` asks for."""
        # -E: variables that make this process find its packages are none of the other's.
        ended = run_process(
            [self.python, "-E", str(SCRIPT), str(folder)],
            name=self.name,
            timeout=self.timeout,
            environment={} if fill is None else perturbing(fill),
        )
        if ended.code != 0 or not (folder / REPLY).exists():
            kind = SubjectDiedError if ended.code < 0 else SubjectError
            raise kind(
                f"the subject's process died ({ended.ending}): {ended.last_words}",
                place=self.name,
                next_step="run the model with that runtime itself to see whether it survives",
            )
        reply: dict[str, Any] = json.loads((folder / REPLY).read_text())
        if "missing" in reply:
            raise MissingPackageError(
                f"the interpreter has no ONNX Runtime ({reply['missing']})",
                place=self.python,
                next_step=f"{self.python} -m pip install onnxruntime numpy",
            )
        if "error" in reply:
            raise SubjectError(
                f"the subject failed: {reply['error']}",
                place=self.name,
                next_step="the text above is the runtime's own",
            )
        return reply
