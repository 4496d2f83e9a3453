"""What won on one device, on another one: does a history of a relative gain?

    python -m benchmarks.transferred searches.jsonl --networks resnet18 --target avx2
    python -m benchmarks.transferred searches.jsonl --networks resnet18 --threads 2
    python -m benchmarks.transferred tuning.jsonl --chosen --networks resnet18 --threads 2

`tuned_searches` makes the file, with the widest target of this machine and one thread; with
--chosen it is a history of `verax tune`. For each of its kernels that the other configuration has
as well, the fastest recorded schedule (--chosen: the one that was chosen) is timed there in a long
duel with the one that rules choose there. A kernel whose recorded gain is below 2 % has nothing to
hand on. The duel's noise is shown; gains count only beyond it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import verax
from panel_files import source_of
from panel_zoo import PANEL
from verax.base.option_groups.settings import Settings
from verax.compiler.kernels.canonical import digest
from verax.compiler.kernels.registry import schedules
from verax.compiler.kernels.target import Target
from verax.compiler.network_bench import NetworkBench
from verax.compiler.tune.cost_model import examples_of
from verax.compiler.tune.history import chosen_of
from verax.compiler.tune.host import Host
from verax.compiler.tune.lookup import decoded
from verax.compiler.tune.measurements import entries

WORTH = 0.98
"""Ratios above have nothing to hand on."""


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--networks", nargs="+", required=True)
    parser.add_argument("--folder", type=Path, default=Path("out/panel"))
    parser.add_argument("--recorded-on", default="host", help="The file's target.")
    parser.add_argument("--target", default="host")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--chosen", action="store_true", help="What `verax tune` chose.")
    given = parser.parse_args()
    best: dict[str, tuple[tuple[str, Mapping[str, Any]], float]] = {}
    if given.chosen:
        for entry in entries(given.file):
            choice = chosen_of(entry) if entry.get("kind") == "chosen" else None
            if choice is not None:
                best[choice.kernel] = choice.schedule, float(entry.get("alone", 1.0))
    else:
        for e in examples_of(given.file, Host.here(Target.named(given.recorded_on), 1)):
            if e.kernel not in best or e.ratio < best[e.kernel][1]:
                best[e.kernel] = e.schedule, e.ratio
    settings = Settings(opt_level=3, threads=given.threads, target=given.target)
    gains, refused = list[float](), 0
    for name in given.networks:
        graph = verax.load(source_of(name, 1, given.folder, given.folder)).graph  # type: ignore[union-attr]
        network = NetworkBench(graph, settings, PANEL[name].inputs(7))
        for kernel in network.profile():
            encoded, ratio = best.get(digest(kernel.spec), (("", {}), 1.0))
            if ratio > WORTH:
                continue
            schedule = decoded(kernel.spec, network.target, encoded)
            rule = schedules(kernel.spec, network.target)[0]
            if schedule is None:
                refused += 1
                continue
            if schedule == rule:
                gains.append(1.0)
                continue
            racer = network.racer(kernel.workload, lambda: False)
            duel = racer.last(schedule)
            racer.close()
            gains.append(1 / duel.ratio)
            verdict = "gains" if duel.is_won else "loses" if duel.is_lost else "equal"
            print(f"{name}: recorded {1 / ratio:.3f}, here {1 / duel.ratio:.3f} (noise "
                  f"{100 * duel.noise:.1f} %), {verdict}: {kernel.spec}", flush=True)  # fmt: skip
    if not gains:
        print(f"nothing is handed on; {refused} are not admitted there")
    else:
        print(f"{len(gains)} handed on: geometric mean {statistics.geometric_mean(gains):.3f}, "
              f"least {min(gains):.3f}, most {max(gains):.3f}; {sum(g > 1 for g in gains)} gain; "
              f"{refused} are not admitted there")  # fmt: skip


if __name__ == "__main__":
    main()
