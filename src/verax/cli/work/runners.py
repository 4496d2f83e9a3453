"""What `verax runners` does: whom the judge can question."""

from __future__ import annotations

from pathlib import Path

from verax.base.optional import pip_name
from verax.cli.console import can_write, output, write_json
from verax.records.environment import environment
from verax.report.tables import Column, FittingTable
from verax.runners.registry import ENTRIES, SPEC_OF
from verax.runners.spec import RunnerSpec

ALSO = {
    "torch:FILE, litert:FILE, tensorflow:FILE": "a framework on a file of its own",
    "onnxruntime:FILE.onnx, openvino:FILE.onnx": "a runtime on another file than the model's, such "
    "as what was exported from it; values of the two are aligned by the numbers that they hold",
    "cmd:PROGRAM ARGS": "any program: it reads one .npz and writes another, whose paths are its "
    "last two arguments or stand where {input} and {output} are written; {model} is the network "
    "as ONNX",
    "onnxruntime@VERSION, onnxruntime@VERSION:LEVEL": "another version of ONNX Runtime, installed "
    "with pip into an environment of its own the first time (`verax cache` lists and removes them)",
    "python:PATH": "the ONNX Runtime of another Python interpreter, which needs NumPy besides",
    "FILE.npz": "recorded values, named as the network names them; in:NAME and out:NAME tell "
    "inputs from answers",
    "a model file, a .vx program": "another network, compiled by us",
}
"""Subjects that are named by a pattern: text -> description."""


def perform(
    *,
    json: Path | None,
) -> None:
    """Carry out the command with the options of `verax.cli.runners`."""
    can_write(json)
    versions = environment()
    facts = {
        name: {"what": entry.description, "version": _version(SPEC_OF[name], versions)}
        for name, entry in ENTRIES.items()
    }
    rows = [(name, fact["what"], fact["version"]) for name, fact in facts.items()]
    rows += [(text, description, "") for text, description in ALSO.items()]
    columns = Column("runner"), Column("what it is", rank=2), Column("version", rank=1)
    output.print(FittingTable("", columns, rows))
    write_json(json, "verax.runners/1", {"runners": facts, "also": ALSO})


def _version(spec: RunnerSpec, versions: dict[str, str]) -> str:
    """Version of the package that a runner needs, or the command that installs it."""
    if not spec.package:
        return versions.get("verax", "")
    version = next((versions[d] for d in spec.distributions if d in versions), "")
    return version or f"not installed: pip install {pip_name(spec.package)}"
