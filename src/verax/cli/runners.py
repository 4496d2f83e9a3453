"""`verax runners`: whom the judge can question."""

from __future__ import annotations

from rich.table import Table

from verax.cli.console import Json, can_write, output, write_json
from verax.records.environment import environment
from verax.runners.registry import RUNNERS


def command(json: Json = None) -> None:
    """List the subjects that `verax check` takes by name."""
    can_write(json)
    versions = environment()
    facts = {
        name: {"what": what, "version": versions.get("verax" if ":" in name else name, "")}
        for name, what in RUNNERS.items()
    }
    for name in ("onnxruntime",):
        if name in facts and not facts[name]["version"]:
            facts[name]["version"] = f"not installed: pip install {name}"
    table = Table("runner", "what it is", "version")
    for name, fact in facts.items():
        table.add_row(name, fact["what"], fact["version"])
    output.print(table)
    output.print("also: a model file, a .vx program, an .npz of recorded values")
    write_json(json, "verax.runners/1", {"runners": facts})
