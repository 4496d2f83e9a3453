"""The histories that come with Verax, made of what was measured on this machine.

    python -m benchmarks.tuned --minutes 10 --history all.jsonl
    python -m benchmarks.shipped_history all.jsonl

Of each kernel the last choice counts. It goes into the file of its target, family of processors
and number of threads if it gained by itself and in the network, beyond its noise and GAIN; earlier
lines of a file stay for kernels that were not measured this time. Names of machines are left out.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verax.base.storage.files import atomic_write
from verax.compiler.artifacts.shipped import FOLDER, file_name
from verax.compiler.tune.history import LINE, ChosenSchedule, Contents, chosen_line, chosen_of
from verax.compiler.tune.host import LineOrigin
from verax.compiler.tune.measurements import entries

GAIN, NOISES = 1.02, 2.5
"""The least gain by itself and in the network; standard errors that it is above 1."""


def gains(entry: Mapping[str, Any]) -> bool:
    """Whether a line of kind "chosen" is worth shipping."""
    alone, network = entry.get("alone"), entry.get("in_network")
    if not isinstance(alone, float) or not isinstance(network, float):
        return False
    noise = entry.get("noise")
    margin = 1 - max(1 - 1 / GAIN, NOISES * (noise if isinstance(noise, float) else 1.0))
    return alone < margin and network < 1 / GAIN


def shipped(entry: ChosenSchedule) -> ChosenSchedule:
    """A choice without what concerns nobody else."""
    origin, network = entry.origin, Path(entry.origin.network).stem
    return dataclasses.replace(
        entry, origin=LineOrigin(network=network, spec=origin.spec, verax=origin.verax,
                                 when=origin.when)
    )  # fmt: skip


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("histories", type=Path, nargs="+")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    given = parser.parse_args()
    chosen: dict[str, dict[str, ChosenSchedule | None]] = {}
    for path in given.histories:
        for entry in entries(path):
            choice = chosen_of(entry) if entry.get("kind") == "chosen" else None
            if choice is None:
                continue
            host = choice.host
            name = file_name(host.target.partition(" ")[0], host.family, host.threads)
            kept = shipped(choice) if gains(entry) else None
            chosen.setdefault(name, {})[choice.kernel] = kept
    given.folder.mkdir(parents=True, exist_ok=True)
    for name, choices in chosen.items():
        path = given.folder / name
        before = Contents().after(path.read_bytes()).schedules if path.exists() else ()
        together = {**{c.kernel: c for c in before}, **choices}
        lines = [c for _, c in sorted(together.items()) if c is not None]
        with atomic_write(path) as out:
            for c in lines:
                text = json.dumps({"schema": LINE, **chosen_line(c)}, separators=(",", ":"))
                out.write(f"{text}\n".encode())
        print(f"{name}: {len(lines)} kernels of {len(together)} that were searched")


if __name__ == "__main__":
    main()
