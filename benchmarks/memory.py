"""Does a check stay within memory? Every network against every runner, each in 8 GB.

    python benchmarks/memory.py zoo/ ../shared/models            # all of them, a table
    python benchmarks/memory.py models/ --runners verax:O1 --limit 4G

Networks that are missing in the first folder are made there (`networks_zoo`, and EfficientNet-B0
with its last pool of 1280 x 1280 as it is exported). Each check is a process of its own under a
limit of its address space; the runner's process, which frameworks fill with reservations that they
never use, has none. What is reported: the exit code (0 to 3 are answers), the verdict, what the
judging process held at most, and seconds.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import networks_zoo
from verax.base.machine.memory import parse_bytes, shown_bytes
from verax.formats import FORMATS
from verax.runners.registry import ENTRIES, SPEC_OF

ANSWERS = {0: "yes", 1: "yes", 2: "refused", 3: "yes"}
"""Exit codes that are no accident."""
UNDER = """
import resource, runpy, sys
size = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_AS, (size, resource.getrlimit(resource.RLIMIT_AS)[1]))
import subprocess
start = subprocess.Popen.__init__
def freed(self, *arguments, **options):
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    options["preexec_fn"] = lambda: resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    start(self, *arguments, **options)
subprocess.Popen.__init__ = freed
from verax.cli.main import main
try:
    sys.argv[0] = "verax"
    main()
finally:
    with open("/proc/self/status") as status:
        held = next(line.split()[1] for line in status if line.startswith("VmHWM"))
    print("HELD", int(held) * 1024, file=sys.stderr)
"""
"""Starts the command line in a limited address space; what it starts has the system's limit. What
it held is not asked of `getrusage`, which counts what its parent held before it started it."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One check. code: its exit code, negative for a signal; held: most bytes of its process."""

    network: str
    runner: str
    code: int
    verdict: str
    held: int
    seconds: float
    said: str

    @property
    def survived(self) -> bool:
        return self.code in ANSWERS


def efficientnet_b0() -> Any:
    """EfficientNet-B0 of `transformers`, 1000 logits; its last pool is 1280 x 1280 wide."""
    from transformers import EfficientNetConfig, EfficientNetForImageClassification

    return EfficientNetForImageClassification(
        EfficientNetConfig(
            image_size=224,
            width_coefficient=1.0,
            depth_coefficient=1.0,
            hidden_dim=1280,
            num_labels=1000,
        )
    )


networks_zoo.NETWORKS.setdefault("efficientnet_b0", efficientnet_b0)


def check(network: Path, runner: str, limit: int, timeout: float) -> Row:
    """Run `verax check` on a network file in so many bytes of address space."""
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record.json"
        command = [sys.executable, "-c", UNDER, str(limit), "check", str(network), runner]
        try:
            done = subprocess.run(
                [*command, "--json", str(record)],
                capture_output=True,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                timeout=timeout,
                check=False,
            )
            code, said = done.returncode, done.stderr
        except subprocess.TimeoutExpired as error:
            code, said = -14, str(error)
        verdict = json.loads(record.read_text())["kind"] if record.exists() else ""
    seconds = time.perf_counter() - begin
    lines = [line for line in said.splitlines() if line.strip()]
    held = next((int(line.split()[1]) for line in lines if line.startswith("HELD")), 0)
    words = " / ".join(line for line in lines if not line.startswith("HELD"))[-200:]
    return Row(network.name, runner, code, verdict, held, seconds, "" if code != 2 else words)


def networks(zoo: Path, others: Sequence[Path], names: Sequence[str]) -> Iterator[Path]:
    """The files to check: the zoo's, made where they are missing, and every model in `others`."""
    suffixes = tuple(s for f in FORMATS for s in f.suffixes)
    for name in names:
        yield networks_zoo.write(name, zoo)
    for folder in others:
        yield from sorted(p for p in folder.rglob("*") if p.name.endswith(suffixes) and p.is_file())


def installed() -> list[str]:
    """Runners whose package is here."""
    packages = {name: SPEC_OF[name].package.partition(".")[0] for name in ENTRIES}
    return [
        n for n, package in packages.items() if not package or importlib.util.find_spec(package)
    ]


def table(rows: Sequence[Row]) -> str:
    """The rows in Markdown."""
    lines = ["| network | runner | exit | verdict | held | s |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {r.network} | {r.runner} | {r.code}{'' if r.survived else ' !'} "
        f"| {r.verdict or r.said} | {shown_bytes(r.held)} | {r.seconds:.0f} |"
        for r in rows
    ]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("zoo", type=Path, help="folder of the large networks")
    parser.add_argument("others", type=Path, nargs="*", help="folders of model files")
    parser.add_argument("--networks", nargs="*", default=list(networks_zoo.NETWORKS))
    parser.add_argument("--runners", nargs="+", default=installed())
    parser.add_argument("--limit", default="8G")
    parser.add_argument("--timeout", type=float, default=900.0)
    given = parser.parse_args(arguments)
    rows = []
    for path in networks(given.zoo, given.others, given.networks):
        for runner in given.runners:
            rows.append(check(path, runner, parse_bytes(given.limit), given.timeout))
            print(table(rows[-1:]).splitlines()[-1], flush=True)
    print(table(rows))
    return 0 if all(row.survived for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
