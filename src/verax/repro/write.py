"""Puts minimal cases into a folder: whole files or none, and never over somebody else's."""

from __future__ import annotations

import dataclasses
import io
import os
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from verax.base.errors import UsageError, VeraxError
from verax.base.option_groups.options import CHECKED_AS_USUAL, CheckOptions
from verax.base.storage.files import atomic_write, staging_folder, sweep
from verax.export.onnx.writer import to_bytes
from verax.ir.graph import Graph
from verax.ir.types import DType
from verax.judge.bisect import BisectionResult
from verax.judge.check import check, judging
from verax.judge.protocol import Capabilities, Runner
from verax.judge.regions.network import Progress
from verax.onnx_format.dtypes import CODES
from verax.onnx_format.package import helper, onnx
from verax.records.bisection import Bisection, RecordedCase
from verax.records.verdict import Blame, Verdict
from verax.repro.case import MinimalCase, minimal_case
from verax.repro.scripts import show_script
from verax.runners.network import NetworkRunner
from verax.runners.onnx.onnx_runner import OnnxRunner

MOST_CASES = 8
"""Guilty parts of which a case is made: one mistake is often repeated in every layer."""
FLOAT64 = ".float64"
"""Added to a value's name in expected.npz: the same before it is rounded to its element type."""


def prepare(folder: str | os.PathLike[str], *, force: bool = False) -> Path:
    """The folder, made if it is missing. Raises `UsageError` when it cannot be written to, or when
    there is something in it already and `force` is not given."""
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        sweep(path)
        full = any(path.iterdir())
    except OSError as error:
        raise UsageError(
            f"the folder cannot be used: {error.strerror or error}", place=str(path)
        ) from error
    if full and not force:
        raise UsageError(
            "the folder is not empty, and nothing in it will be overwritten",
            place=str(path),
            next_step="give another folder, or --force to write among what is there",
        )
    if not os.access(path, os.W_OK):
        raise UsageError("the folder cannot be written to", place=str(path))
    return path


def write_case(case: MinimalCase, subject: Runner, folder: Path, index: int = 1) -> RecordedCase:
    """Write `case` into a sub-folder of `folder`; what was written.

    Raises `UsageError` when a file cannot be written.
    """
    case_folder = folder / f"{index:02}_{_plain(case.blame.node)}"
    title = _title(case, subject)
    files = {
        "graph.txt": str(case.graph).encode(),
        "input.npz": _npz(case.inputs),
        "expected.npz": _npz(_expected(case)),
        "given.npz": _npz(case.actual),
    }
    model, without = _model(case, subject)
    if model is not None:
        files["model.onnx"] = model
    alone = case.alone and model is not None
    facts = subject.describe()
    outputs = list(case.graph.outputs)
    script = show_script(title, subject.capabilities.script, facts, outputs, alone=alone)
    files["show.py"] = script.encode()
    files["verdict.json"] = _verdict(case, subject).to_json().encode() + b"\n"
    files["README.md"] = _readme(case, subject, title, without).encode()
    with staging_folder(case_folder) as draft:
        for name, content in files.items():
            with atomic_write(draft / name) as stream:
                stream.write(content)
        prepare(case_folder, force=True)
        try:
            for name in files:
                os.replace(draft / name, case_folder / name)
        except OSError as error:
            raise UsageError(
                f"the case cannot be written: {error.strerror or error}", place=str(case_folder)
            ) from error
    nodes = tuple(n.name or n.outputs[0] for n in case.graph.nodes)
    return RecordedCase(str(case_folder), nodes, tuple(files), case.alone, case.words)


def write_cases(
    graph: Graph,
    subject: Runner,
    result: BisectionResult,
    folder: Path,
    *,
    options: CheckOptions = CHECKED_AS_USUAL,
    progress: Progress | None = None,
) -> Bisection:
    """A minimal case in `folder` for each of the first MOST_CASES guilty parts, and the record.

    options: those of the check.
    progress: called with (cases written, cases in all, what is being made smaller).
    Raises `UsageError` when a file cannot be written.
    """
    cases, notes = [], []
    if len(result.faulty) > MOST_CASES:
        notes.append(f"minimal cases were made of the first {MOST_CASES} of {len(result.faulty)}")
    seed = result.record.verdict.seed
    selected = result.faulty[:MOST_CASES]
    for index, faulty in enumerate(selected, 1):
        if progress is not None:
            progress(index - 1, len(selected), f"a minimal case of {faulty.blame.node}")
        try:
            with judging(subject, options):
                case = minimal_case(graph, subject, faulty, result.inputs, seed=seed)
        except VeraxError as error:
            notes.append(f"no minimal case for {faulty.blame.node}: {error.cause}")
            continue
        cases.append(write_case(case, subject, folder, index))
    verdict = result.record.verdict
    verdict = dataclasses.replace(verdict, notes=(*verdict.notes, *notes))
    return dataclasses.replace(result.record, verdict=verdict, cases=tuple(cases))


def _title(case: MinimalCase, subject: Runner) -> str:
    blame = case.blame
    subject_text = f"{blame.operator} node {blame.node!r}"
    if len(case.graph.nodes) > 1:
        subject_text = f"{len(case.graph.nodes)} nodes up to {blame.node!r}"
    version = subject.describe().get("version", "")
    return (
        f"What {' '.join(filter(None, (_public(subject.name), version)))} gives for {subject_text}."
    )


def _model(case: MinimalCase, subject: Runner) -> tuple[bytes | None, str]:
    """The ONNX model that the subject runs for this case, or None and why there is none."""
    try:
        if isinstance(subject, OnnxRunner) and case.alone:
            answer = subject.model_for(case.graph)
            data = answer if isinstance(answer, bytes) else Path(answer).read_bytes()
            return _declared(data, case.actual), ""
        graph = case.graph
        if isinstance(subject, NetworkRunner) and case.alone:
            graph = subject.subnetwork(graph)
        return to_bytes(graph), ""
    except (VeraxError, OSError) as error:
        cause = error.cause if isinstance(error, VeraxError) else str(error)
        return None, f"There is no model.onnx: {cause}."


def _declared(model: bytes, actual: Mapping[str, np.ndarray]) -> bytes:
    """The model with the types of its outputs, which a part of a file need not state."""
    proto = onnx.load_model_from_string(model)
    for output in proto.graph.output:
        if output.name in actual and not output.type.HasField("tensor_type"):
            array = actual[output.name]
            typed = helper.make_tensor_value_info(
                output.name, CODES[DType.of(array)], list(array.shape)
            )
            output.CopyFrom(typed)
    return proto.SerializeToString()


def _expected(case: MinimalCase) -> dict[str, np.ndarray]:
    """Expected values in their element types, and in float64."""
    arrays = {}
    for value, exact in case.expected.items():
        with np.errstate(over="ignore", invalid="ignore"):
            arrays[value] = exact.astype(case.graph.types[value].dtype.numpy)
        arrays[value + FLOAT64] = exact.astype(np.float64)
    return arrays


def _npz(arrays: Mapping[str, np.ndarray]) -> bytes:
    """An .npz file; any name will do. Types that NumPy's format lacks are widened to float32."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            plain = array.astype(np.float32) if array.dtype.kind == "V" else array
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asanyarray(plain), allow_pickle=False)
    return stream.getvalue()


class _RecordedCase:
    """The subject's answers on a case, under its own name."""

    capabilities = Capabilities()

    def __init__(self, case: MinimalCase, subject: Runner) -> None:
        self.name, self.facts, self.actual = subject.name, subject.describe(), case.actual
        self.stored_inputs: Mapping[str, np.ndarray] | None = case.inputs

    def describe(self) -> dict[str, str]:
        return self.facts

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: object = None
    ) -> dict[str, np.ndarray]:
        return dict(self.actual)


def _verdict(case: MinimalCase, subject: Runner) -> Verdict:
    """The verdict on the case by itself, with what was found out about its cause."""
    verdict = check(case.graph, _RecordedCase(case, subject), explain=False)
    return dataclasses.replace(
        verdict, blame=tuple(_with_diagnosis(b, case.blame) for b in verdict.blame)
    )


def _with_diagnosis(blame: Blame, diagnosed: Blame) -> Blame:
    if blame.value != diagnosed.value:
        return blame
    return dataclasses.replace(
        blame,
        explanations=diagnosed.explanations,
        structure=diagnosed.structure,
        told_apart=diagnosed.told_apart,
        guilty_pass=diagnosed.guilty_pass,
    )


def _readme(case: MinimalCase, subject: Runner, title: str, without: str) -> str:
    reason = case.blame.reason
    lines = [f"# {title.rstrip('.')}", "", f"{reason[:1].upper()}{reason[1:]}."]
    for explanation in case.blame.explanations[:3]:
        lines.append(f"- it looks like: {explanation.hypothesis} ({explanation.words})")
    if case.blame.guilty_pass:
        lines.append(f"- brought by: {case.blame.guilty_pass}")
    lines += ["", f"The case: {case.words}."]
    if without:
        lines.append(without)
    facts_told = {
        k: v for k, v in subject.describe().items() if v not in ("", "None", "()", "False")
    }
    facts = ", ".join(f"{k} {v}" for k, v in facts_told.items())
    lines += [
        "",
        "    python show.py",
        "",
        "- `model.onnx`: what the subject runs; `graph.txt`: what should be computed",
        "- `input.npz`, `expected.npz` (float64 values under `NAME.float64`), `given.npz`",
        "- `verdict.json`: every figure of the judgement",
        "",
        f"Subject: {_public(subject.name)}{f' ({facts})' if facts else ''}.",
    ]
    return "\n".join(lines) + "\n"


def _public(name: str) -> str:
    """A subject's name without the folders of this machine."""
    return Path(name).name


def _plain(name: str) -> str:
    """A file name: letters, digits, dots and dashes; short."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._")[:60] or "node"
