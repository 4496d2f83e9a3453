"""A device that gives other bits: what it gave is written down so that anybody can look for
himself, and nothing that it says counts from then on.

    python -m verax.device_tuning.quarantine FILE

says what the kernel writes on this machine: exit code 0 if it is what was expected, else 1.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from verax.base.errors import InputError, VeraxError
from verax.base.storage.files import atomic_write
from verax.base.storage.reading import plain_bytes
from verax.compiler.kernels.canonical import digest
from verax.compiler.kernels.registry import Schedule
from verax.compiler.kernels.target import Target
from verax.compiler.tune.kernel_bench import Workload
from verax.compiler.tune.plain import of_plain, to_plain, workload_of_plain, workload_to_plain
from verax.device_tuning.builders import witness_of, written_here

SCHEMA = "verax.quarantine/1"


def write_repro(
    history: Path,
    device: str,
    workload: Workload,
    schedule: Schedule,
    target: str,
    expected: str,
    written: str,
) -> Path:
    """Write what shows the fault again beside the history; where. expected, written: SHA-256 of
    the bytes."""
    kernel = digest(workload.spec)
    label = "".join(c if c.isalnum() else "-" for c in device)
    path = history.with_name(f"{history.name}.quarantine-{label}-{kernel[:12]}.json")
    content = {
        "schema": SCHEMA,
        "device": device,
        "kernel": kernel,
        "spec": str(workload.spec),
        "target": target,
        "schedule": to_plain(schedule),
        "workload": workload_to_plain(workload),
        "expected": expected,
        "written": written,
    }
    with atomic_write(path) as stream:
        stream.write(json.dumps(content, indent=1).encode() + b"\n")
    return path


def written_again(content: Mapping[str, Any]) -> tuple[str, str]:
    """What is expected of the kernel in a repro, and what it writes on this machine: SHA-256.

    Raises `InputError` for what is no repro, or is of a target that does not run here.
    """
    try:
        if content["schema"] != SCHEMA:
            raise InputError(f"this is not {SCHEMA}")
        workload, schedule = workload_of_plain(content["workload"]), of_plain(content["schedule"])
        target, expected = Target.named(content["target"]), str(content["expected"])
    except (KeyError, TypeError) as error:
        raise InputError(f"this is no repro of a quarantine: {error}") from error
    here = target if target.runs_here() else witness_of(target, workload.spec)
    if here is None:
        raise InputError(f"this machine does not run {target.name}")
    return expected, written_here(workload, schedule, here)


def main(arguments: Sequence[str]) -> int:
    """See the module."""
    try:
        (path,) = arguments
        expected, written = written_again(json.loads(plain_bytes(Path(path))))
    except ValueError as error:
        print(f"error: give one file: {error}", file=sys.stderr)
        return 2
    except VeraxError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"expected {expected}\nhere     {written}")
    return int(expected != written)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
