"""Searches for schedules, recorded on a machine, to be replayed by several strategies.

    python -m benchmarks.tuned_searches searches.jsonl --networks resnet18 mobilenetv2
    python -m benchmarks.replay_searches searches.jsonl

Recording measures, for the kernels in which each network spends most of its time, some hundred
schedules: what the search tries, all that are one step from the rule's, and combinations of steps.
Each is timed in turns with the rule's schedule; the file is a history as `verax tune` writes it.
`replay_searches` says what is made of it.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import verax
from panel_files import source_of
from panel_zoo import PANEL
from verax.base.errors import VeraxError
from verax.base.option_groups.settings import Settings
from verax.compiler.kernels.canonical import digest
from verax.compiler.kernels.registry import Schedule, Spec, candidates, schedules
from verax.compiler.kernels.target import Target
from verax.compiler.network_bench import NetworkBench
from verax.compiler.tune.combinations import combinations
from verax.compiler.tune.cost_model import examples_of
from verax.compiler.tune.history import History
from verax.compiler.tune.host import LineOrigin
from verax.compiler.tune.kernel_bench import KernelBench
from verax.compiler.tune.lookup import decoded
from verax.compiler.tune.measurements import Entry, entry_of, measured_lines, workload_line
from verax.compiler.tune.racing import BenchRacer, Trial, digest_of
from verax.compiler.tune.search import search_on

DRAWN, TURNS, TOGETHER = 80, 11, 8
"""Combinations drawn for a kernel; turns of each candidate; candidates made at a time."""


def pool(spec: Spec, target: Target, visited: Sequence[Schedule]) -> list[Schedule]:
    """Schedules to be recorded, the rule's aside: what the search tried, what is one step from the
    rule's, and combinations."""
    near = dict.fromkeys([*visited, *candidates(spec, target)[1:]])
    further = [s for s in combinations(spec, target) if s not in near]
    return [*near, *further[:DRAWN]]


def record(history: History, name: str, folder: Path, kernels: int, threads: int) -> None:
    """Record the kernels of a network that take most of its time."""
    graph = verax.load(source_of(name, 1, folder, folder)).graph  # type: ignore[union-attr]
    network = NetworkBench(graph, Settings(opt_level=3, threads=threads), PANEL[name].inputs(7))
    for kernel in network.profile()[:kernels]:
        spec, workload = kernel.spec, kernel.workload
        rule = schedules(spec, network.target)[0]
        origin = LineOrigin.now("", network.machine, name, str(spec))
        history.append([workload_line(spec, network.target, network.host, origin)])
        bench = KernelBench(workload, network.target, network.host)
        expected = bench.result(rule)
        racer = BenchRacer(bench, rule, lambda: False)
        searched = search_on(spec, network.target, racer)
        chosen = pool(spec, network.target, [t.schedule for t in searched.trials])
        for trials in _timed_together(bench, rule, expected, chosen):
            history.append(measured_lines(spec, network.host, origin, trials))
        bench.close()
        print(f"{name}: {len(chosen)} of {spec}", flush=True)


def time_again(history: History, name: str, folder: Path, threads: int) -> None:
    """Time the recorded candidates of a network in another order: the fastest of some hundred is
    fast by chance, too, and a second opinion tells how much."""
    graph = verax.load(source_of(name, 1, folder, folder)).graph  # type: ignore[union-attr]
    network = NetworkBench(graph, Settings(opt_level=3, threads=threads), PANEL[name].inputs(7))
    recorded: dict[str, dict[Entry, None]] = {}
    for example in examples_of(history.path, network.host):
        recorded.setdefault(example.kernel, {})[entry_of(example.schedule)] = None
    for kernel in network.profile():
        spec, entries = kernel.spec, list(recorded.get(digest(kernel.spec), ()))
        if not entries:
            continue
        random.Random(len(entries)).shuffle(entries)
        rule = schedules(spec, network.target)[0]
        origin = LineOrigin.now("", network.machine, name, str(spec))
        bench = KernelBench(kernel.workload, network.target, network.host)
        expected = bench.result(rule)
        known = (decoded(spec, network.target, (kind, dict(fields))) for kind, fields in entries)
        chosen = [schedule for schedule in known if schedule is not None]
        for trials in _timed_together(bench, rule, expected, chosen):
            history.append(measured_lines(spec, network.host, origin, trials))
        bench.close()
        print(f"{name}: {len(entries)} again of {spec}", flush=True)


def _timed_together(
    bench: KernelBench, rule: Schedule, expected: bytes, chosen: Sequence[Schedule]
) -> Iterator[list[Trial]]:
    """Trials of a few schedules at a time, which are made at once."""
    for at in range(0, len(chosen), TOGETHER):
        batch = chosen[at : at + TOGETHER]
        bench.prepare(batch)
        yield [_timed(bench, rule, schedule, expected) for schedule in batch]


def _timed(bench: KernelBench, rule: Schedule, schedule: Schedule, expected: bytes) -> Trial:
    try:
        result = bench.result(schedule)
    except VeraxError as error:
        return Trial(schedule, False, refused=error.cause)
    ratios, seconds = [], []
    for _ in range(TURNS):
        before = bench.turn(rule)
        seconds.append(bench.turn(schedule))
        ratios.append(seconds[-1] / before)
    bench.drop(schedule)
    written = digest_of(result)
    return Trial(
        schedule, result == expected, tuple(seconds), "", statistics.median(ratios), written
    )


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--networks", nargs="+", default=["resnet18", "mobilenetv2"])
    parser.add_argument("--folder", type=Path, default=Path("out/panel"))
    parser.add_argument("--kernels", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--again", action="store_true", help="Time what is recorded once more.")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for name in given.networks:
        if given.again:
            time_again(History(given.file), name, given.folder, given.threads)
        else:
            record(History(given.file), name, given.folder, given.kernels, given.threads)


if __name__ == "__main__":
    main()
