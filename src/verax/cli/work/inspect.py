"""What `verax inspect` does: what a model file holds and how it was read."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from rich.text import Text

from verax.base.errors import CompileError
from verax.base.gpu.cuda_driver import why_not
from verax.base.gpu.targets import EMULATED_GPU
from verax.base.machine.processor import runs_here
from verax.base.option_groups.options import ModelOptions
from verax.cli.console import can_write, output, write_json
from verax.cli.models import load_file
from verax.compiler.artifacts.saved_program import SavedExecutable
from verax.frontends.model import Model as Loaded
from verax.ir.printer import bounds_text
from verax.ir.types import TensorType
from verax.ops.control.control import kinds_inside
from verax.records.codec import to_plain
from verax.report.tables import Column, FittingTable

VX_SUFFIX = ".vx"
Types = dict[str, TensorType]


def perform(
    *,
    model: Path,
    graph: bool,
    ledger: bool,
    reading: ModelOptions,
    json: Path | None,
) -> None:
    """Carry out the command with the options of `verax.cli.inspect`."""
    can_write(json)
    try:
        loaded = load_file(model, reading)
    except CompileError:
        if model.suffix != VX_SUFFIX:
            raise
        loaded = SavedExecutable(model, runs=False)
    if isinstance(loaded, SavedExecutable):
        facts = _program(loaded, graph)
    else:
        facts = _model(loaded, graph, ledger)
    write_json(json, "verax.inspect/1", facts)


def _model(model: Loaded, graph: bool, ledger: bool) -> dict[str, Any]:
    net = model.graph
    kinds = Counter(node.op.kind for node in net.nodes)
    weights = sum(array.nbytes for array in net.constants.values())
    parameters = sum(a.size for a in net.constants.values() if a.dtype.kind == "f")
    output.print(Text.assemble((model.source, "bold"), f"   {model.format}"))
    for key, value in model.metadata.items():
        output.print(Text(f"  {key}: {value}", style="dim"))
    _signature(model.inputs, model.outputs, model.state)
    for symbol, bounds in net.bounds.items():
        output.print(Text.assemble("size   ", (symbol, "cyan"), f": {bounds_text(bounds)}"))
    listed = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    output.print(Text(f"{len(net.nodes)} nodes: {listed}"))
    inside = Counter(kind for node in net.nodes for kind in kinds_inside(node.op))
    if inside:
        listed = ", ".join(f"{count} {kind}" for kind, count in inside.most_common())
        output.print(Text(f"{inside.total()} nodes inside of branches and loops: {listed}"))
    output.print(f"{parameters:,} parameters, {weights / 1e6:.2f} MB of constants")
    counts = model.ledger.counts()
    words = ", ".join(f"{n} {outcome}" for outcome, n in counts.items()) or "none in the file"
    output.print(f"attributes: {words}; none dropped")
    if ledger:
        rows = []
        for e in model.ledger.entries:
            outcome = f"{e.outcome}: {e.reason}" if e.reason else str(e.outcome)
            rows.append((e.node, e.operator, e.attribute, e.value, outcome))
        names = Column("node", unbroken=True), Column("operator"), Column("attribute", rank=3)
        columns = (*names, Column("value", rank=2, breaks=True), Column("outcome", rank=1))
        output.print(FittingTable("", columns, rows))
    if graph:
        output.print(Text(str(net)), soft_wrap=True)
    return {
        "model": model.source,
        "format": model.format,
        "metadata": dict(model.metadata),
        "inputs": {k: str(t) for k, t in model.inputs.items()},
        "outputs": {k: str(t) for k, t in model.outputs.items()},
        "state": {k: str(t) for k, t in model.state.items()},
        "operators": dict(kinds),
        "parameters": parameters,
        "constant_bytes": weights,
        "ledger": counts,
        "graph": str(net),
    }


def _program(program: SavedExecutable, graph: bool) -> dict[str, Any]:
    image = program.binary
    output.print(
        Text(
            f"a program compiled for {image.target} at O{program.notes.get('opt_level', '?')} "
            f"by Verax {program.notes.get('verax', '?')}"
        )
    )
    state_types = {n: TensorType.of(a) for n, a in program.state.items()}
    _signature(program.inputs, program.outputs, state_types)
    kernels = program.gpu_kernels
    if kernels is not None:
        is_real = image.target != EMULATED_GPU
        kind = "PTX" if is_real else "code of this machine's kind of processor"
        reason = "" if runs_here(image.target) else f"; not run here: {why_not(image.target)}"
        machine_code = "".join(f", machine code for {c}" for c in program.gpu_machine_code)
        output.print(Text(f"{kernels} kernels, as {kind} for {image.target}{machine_code}{reason}"))
    output.print(
        f"code {len(image.object_code) / 1e3:.1f} kB, weights {image.weight_bytes / 1e6:.2f} MB, "
        f"arena {image.arena_bytes / 1e6:.2f} MB"
    )
    program_recipe = program.recipe
    if program_recipe is not None:
        output.print(Text(str(program_recipe)), soft_wrap=True)
    program_certificate = program.certificate
    if program_certificate is not None:
        output.print(Text(str(program_certificate)), soft_wrap=True)
    slow = list(program.notes.get("on_reference", ()))
    output.print(Text(f"nodes without a kernel, run on the reference: {', '.join(slow) or 'none'}"))
    if graph:
        output.print(Text(program.graph_text), soft_wrap=True)
    return {
        "target": image.target,
        "inputs": {k: str(t) for k, t in program.inputs.items()},
        "outputs": {k: str(t) for k, t in program.outputs.items()},
        "state": {k: str(t) for k, t in state_types.items()},
        "kernels": kernels,
        "code_bytes": len(image.object_code),
        "weight_bytes": image.weight_bytes,
        "arena_bytes": image.arena_bytes,
        "recipe": to_plain(program_recipe),
        "recipe_sha256": program_recipe.sha256 if program_recipe else None,
        "certificate": to_plain(program_certificate),
        "on_reference": slow,
        "plan": list(program.plan),
        "graph": program.graph_text,
    }


def _signature(inputs: Types, outputs: Types, state: Types) -> None:
    for title, types in (("input", inputs), ("state", state), ("output", outputs)):
        for name, type_ in types.items():
            output.print(Text.assemble(f"{title:7}", (name, "cyan"), f": {type_}"))
