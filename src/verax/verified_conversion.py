"""Verified conversion: a model of any format written as ONNX, and judged as a stranger runs it.

The float64 meaning of the source is the judge; ONNX Runtime runs the written file. What came out
is stored in the file itself, so that whoever gets it knows what it was made from and how it did.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from verax.base.errors import UsageError, VeraxError
from verax.base.optional import installed_version
from verax.base.printing import OneLine, first_few
from verax.base.storage.files import atomic_write, staging_folder
from verax.base.storage.npz import write_npz
from verax.export.onnx.writer import write_onnx
from verax.frontends.model import Model
from verax.ir.graph import Graph
from verax.judge import check
from verax.judge.regions.network import Progress
from verax.onnx_format.state import NOTE, STATE, WRITTEN, entries, state_file
from verax.records.verdict import Verdict
from verax.runners.onnx_runtime import OnnxRuntimeRunner

WITNESS = "onnxruntime"
"""The package that runs what was written."""
MARK = "verax."
"""Prefix of the written file's metadata that speaks of the conversion."""


@dataclass(frozen=True, repr=False)
class Converted(OneLine):
    """What was written, and the verdict on it; `unverified` says why there is none.

    notes: what whoever runs the file has to know, in sentences: ONNX remembers nothing.
    """

    files: tuple[Path, ...]
    verdict: Verdict | None
    unverified: str = ""
    notes: tuple[str, ...] = ()

    def _brief(self) -> str:
        answer = f"not verified: {self.unverified}" if self.verdict is None else self.verdict.kind
        return f"{first_few(map(str, self.files))}; {answer}"

    def __str__(self) -> str:
        answer = f"not verified: {self.unverified}" if self.verdict is None else str(self.verdict)
        files = ", ".join(map(str, self.files))
        return "\n".join([f"wrote {files}", answer, *(f"note: {n}" for n in self.notes)])


def convert(
    model: Model,
    path: str | os.PathLike[str],
    *,
    opset: int | None = None,
    verify: bool = True,
    inputs: Mapping[str, np.ndarray] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Converted:
    """Write `model` as ONNX and judge what ONNX Runtime makes of the file, node by node.

    opset: the operator set to write, by default the oldest that can say everything. inputs: to
    judge on; drawn (seeded) when not given. The verdict, the source's name, format and SHA-256 and
    the version of Verax are stored as metadata of the file, names beginning with "verax.". `path`
    is written once all that is done: an interruption leaves it as it was. State of the model
    becomes inputs and outputs, whose initial values are written to NAME.state.npz. Raises
    `UnsupportedError` when ONNX cannot express the model, `UsageError` when the file cannot be
    written or is the source itself.
    """
    target = Path(path)
    source = Path(model.source) if model.source else None
    if source is not None and source.exists() and target.exists() and target.samefile(source):
        raise UsageError(
            "the model would be written over itself",
            place=str(target),
            next_step="choose another name for the output",
        )
    own_metadata = {k: v for k, v in model.metadata.items() if k not in (STATE, WRITTEN, NOTE)}
    metadata = {**own_metadata, **_origin(model, source), **entries(model.graph)}
    notes = _notes(model.graph, target)
    verdict, unverified = None, "it was not asked for"
    if verify and not installed_version(WITNESS, "onnxruntime-gpu"):
        unverified = f"{WITNESS} is not installed: pip install {WITNESS}"
    elif verify:
        with staging_folder(target) as folder:
            draft = folder / target.name
            write_onnx(model.graph, draft, opset=opset, metadata=metadata)
            try:
                subject = OnnxRuntimeRunner(draft)
                verdict = check(
                    model.graph, subject, inputs, seed=seed, twice=False, progress=progress
                )
            except VeraxError as error:
                unverified = _why_not(error, model)
    if verdict is not None:
        metadata |= _summary(verdict)
        unverified = ""
    written = write_onnx(model.graph, target, opset=opset, metadata=metadata)
    return Converted((*written, *_write_state(model.graph, target)), verdict, unverified, notes)


def _write_state(graph: Graph, target: Path) -> tuple[Path, ...]:
    """Write the values that the state begins with beside `target`, if there is state."""
    if not graph.state:
        return ()
    with atomic_write(state_file(target)) as stream:
        write_npz(stream, graph.initial)
    return (state_file(target),)


def _notes(graph: Graph, target: Path) -> tuple[str, ...]:
    """What ONNX has no word for, in sentences."""
    notes = [
        f"the model writes to its input {v!r}: its new content is the output {new!r}"
        for v, new in graph.updates.items()
        if v not in graph.state
    ]
    if graph.state:
        hand_overs = (
            f"the output {new!r} is the next run's {v!r}" for v, new in graph.state.items()
        )
        notes.append(
            f"ONNX remembers nothing, so state became inputs and outputs: {', '.join(hand_overs)}; "
            f"the inputs of the first run are in {state_file(target).name}, where "
            "Verax finds them again"
        )
    return tuple(notes)


def _why_not(error: VeraxError, model: Model) -> str:
    """Why the written file was not judged. Open sizes are drawn, and may not fit together."""
    text = f"{error.cause} (at {error.place})" if error.place else error.cause
    if not model.graph.symbols():
        return text
    inputs = ", ".join(f"{name} is {type_}" for name, type_ in model.inputs.items())
    return f"{text}; sizes that the model leaves open were drawn, state them: {inputs}"


def _origin(model: Model, source: Path | None) -> dict[str, str]:
    """What the file was made from."""
    entries_ = {f"{MARK}version": installed_version("verax"), f"{MARK}source_format": model.format}
    if source is not None and source.is_file():
        entries_[f"{MARK}source"] = source.name
        with open(source, "rb") as stream:
            entries_[f"{MARK}source_sha256"] = hashlib.file_digest(stream, "sha256").hexdigest()
    return entries_


def _summary(verdict: Verdict) -> dict[str, str]:
    """The verdict in a few entries."""
    return {
        f"{MARK}verdict": verdict.kind.value,
        f"{MARK}verdict_reason": " ".join(verdict.reasons[:1]),
        f"{MARK}verdict_subject": f"{WITNESS} {verdict.subject.get('version', '')}".strip(),
        f"{MARK}verdict_inputs": "; ".join(f"{i.name}: {i.origin}" for i in verdict.inputs),
    }
