"""Recorded searches replayed: how soon does a strategy find a schedule within 2 % of the best?

    python -m benchmarks.replay_searches searches.jsonl

`tuned_searches` makes the file. The recorded ratio of a candidate stands for its measurement, so a
strategy costs no time, and all of them meet the same numbers; a candidate that was not recorded
counts as tried and as slow. Of candidates that were timed again (`--again`) the mean counts, and
others are left out. The model of cost is fitted from the kernels of all other networks.
Kernels for which the rule's own schedule is within 2 % are counted apart: there is nothing to find.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import verax
from panel_files import source_of
from panel_zoo import PANEL
from verax.base.option_groups.settings import Settings
from verax.compiler.kernels.canonical import digest
from verax.compiler.kernels.registry import Schedule, Spec, schedules
from verax.compiler.kernels.target import Target
from verax.compiler.network_bench import NetworkBench
from verax.compiler.tune.cost_model import ENGINES, CostExample, CostModel, examples_of
from verax.compiler.tune.host import Host
from verax.compiler.tune.lookup import decoded, encoded
from verax.compiler.tune.plain import of_plain, to_plain
from verax.compiler.tune.racing import Race, Trial
from verax.compiler.tune.search import search_on
from verax.compiler.tune.successive_halving import MARGIN, Duel

CLOSE = 1.02
SEEDS = 20
MOST = 60
"""Candidates that a strategy may try."""
AFTER = (8, 20, 40, 60)


@dataclass(frozen=True)
class Kernel:
    """A recorded kernel: the ratios of its candidates to the rule's time."""

    network: str
    spec: Spec
    target: Target
    ratios: Mapping[Schedule, float]

    @property
    def goal(self) -> float:
        return CLOSE * min(1.0, *self.ratios.values())


class Recorded:
    """Races by what is recorded. tried: in order."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.tried = kernel, list[Schedule]()

    def _ratio(self, schedule: Schedule) -> float:
        rule = schedules(self.kernel.spec, self.kernel.target)[0]
        return 1.0 if schedule == rule else self.kernel.ratios.get(schedule, 9.0)

    def ahead(self, candidates: Sequence[Schedule]) -> None:
        pass

    def race(self, best: Schedule, candidates: Sequence[Schedule], standing: float) -> Race:
        self.tried += candidates
        fastest = min(candidates, key=self._ratio)
        ratio = self._ratio(fastest) / self._ratio(best)
        won = ratio < 1 - MARGIN
        trials = tuple(Trial(s, True, ratio=self._ratio(s)) for s in candidates)
        duel = Duel(ratio, 0.0, (), ())
        return Race(trials, fastest if won else None, duel if won else None)

    def last(self, best: Schedule) -> Duel:
        return Duel(self._ratio(best), 0.0, (), ())

    def close(self) -> None:
        pass


Strategy = Callable[[Kernel, CostModel, int], Sequence[Schedule]]
"""Candidates in the order in which they are tried. The number is a seed."""


def _search(kernel: Kernel, model: CostModel | None, proposes: bool) -> Sequence[Schedule]:
    racer, spec, target = Recorded(kernel), kernel.spec, kernel.target
    rank = None if model is None else (lambda s, several: model.rank(s, target, several))
    first = model.proposals(spec, target) if model is not None and proposes else []
    if proposes:  # of those that are recorded
        first = [s for s in first if s in kernel.ratios]
    search_on(spec, target, racer, first=first, rank=rank)
    return racer.tried


def _then_more(kernel: Kernel, model: CostModel, seed: int, ranked: bool) -> Sequence[Schedule]:
    """The present search, and whatever it left."""
    tried = list(_search(kernel, None, False))
    left = [s for s in _at_random(kernel, model, seed) if s not in tried]
    return [*tried, *(model.rank(kernel.spec, kernel.target, left) if ranked else left)]


def _at_random(kernel: Kernel, model: CostModel, seed: int) -> Sequence[Schedule]:
    order = list(kernel.ratios)
    random.Random(seed).shuffle(order)
    return order


def _by_model(kernel: Kernel, model: CostModel, seed: int) -> Sequence[Schedule]:
    return model.rank(kernel.spec, kernel.target, list(kernel.ratios))


def _of_optuna(name: str) -> Strategy:
    def strategy(kernel: Kernel, model: CostModel, seed: int) -> Sequence[Schedule]:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        sampler = getattr(optuna.samplers, name)(seed=seed)
        study = optuna.create_study(sampler=sampler)
        left = {s: encoded(s)[1] for s in kernel.ratios}
        values = {
            f: sorted({fields[f] for fields in left.values()}) for f in next(iter(left.values()))
        }
        tried: list[Schedule] = []
        while left and len(tried) < MOST:
            trial = study.ask()
            asked = {f: trial.suggest_categorical(f, v) for f, v in values.items()}
            nearest = min(left, key=lambda s: sum(left[s][f] != asked[f] for f in asked))
            del left[nearest]
            tried.append(nearest)
            study.tell(trial, kernel.ratios[nearest])
        return tried

    return strategy


STRATEGIES: Mapping[str, tuple[Strategy, int]] = {
    "the present search": (lambda k, m, s: _search(k, None, False), 1),
    "the same, candidates in the model's order": (lambda k, m, s: _search(k, m, False), 1),
    "the same, its combinations first": (
        lambda k, m, s: _search(k, m, True),
        1,
    ),
    "the present search, then combinations drawn": (lambda k, m, s: _then_more(k, m, s, False), 5),
    "the same, these in the model's order": (lambda k, m, s: _then_more(k, m, s, True), 1),
    "all that is recorded in the model's order": (_by_model, 1),
    "at random": (_at_random, SEEDS),
    "Optuna, TPESampler": (_of_optuna("TPESampler"), 5),
    "Optuna, RandomSampler": (_of_optuna("RandomSampler"), 5),
}


def trials_until_close(kernel: Kernel, tried: Sequence[Schedule]) -> float:
    """How many candidates until one is within 2 % of the best; MOST where none is by then."""
    for count, schedule in enumerate(tried[:MOST], 1):
        if kernel.ratios.get(schedule, 9.0) <= kernel.goal:
            return count
    return MOST


def best_of(kernel: Kernel, tried: Sequence[Schedule], count: int) -> float:
    """The least ratio among the first `count`, the rule's included, by the least that there is."""
    best = min([1.0, *(kernel.ratios.get(s, 9.0) for s in tried[:count])])
    return best / min(1.0, *kernel.ratios.values())


def kernels_of(path: Path, folder: Path) -> Iterator[tuple[Kernel, list[CostExample]]]:
    """The recorded kernels, each with the examples of all other networks."""
    target = Target.host()
    examples = examples_of(path, Host.here(target, 1))
    by_kernel: dict[str, list[CostExample]] = {}
    for example in examples:
        by_kernel.setdefault(example.kernel, []).append(example)
    specs = _specs({e.network for e in examples}, path.with_suffix(".specs.json"), folder)
    for name, own in by_kernel.items():
        spec = specs[name]
        times: dict[Schedule, list[float]] = {}
        for e in own:
            schedule = decoded(spec, target, e.schedule)
            if schedule is not None:
                times.setdefault(schedule, []).append(e.ratio)
        most = max(map(len, times.values()))
        ratios = {s: statistics.geometric_mean(t) for s, t in times.items() if len(t) == most}
        network = own[0].network
        yield Kernel(network, spec, target, ratios), [e for e in examples if e.network != network]


def _specs(networks: set[str], kept: Path, folder: Path) -> dict[str, Spec]:
    """The kernels of the networks by digest; compiled once, and kept in a file."""
    known = json.loads(kept.read_text()) if kept.exists() else {}
    for name in sorted(networks - known.keys()):
        graph = verax.load(source_of(name, 1, folder, folder)).graph  # type: ignore[union-attr]
        bench = NetworkBench(graph, Settings(opt_level=3, threads=1), PANEL[name].inputs(7))
        known[name] = [to_plain(kernel.spec) for kernel in bench.profile()]
        kept.write_text(json.dumps(known))
    specs = [of_plain(plain) for plains in known.values() for plain in plains]
    return {digest(spec): spec for spec in specs}


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--folder", type=Path, default=Path("out/panel"))
    parser.add_argument("--engine", choices=ENGINES, default=ENGINES[0])
    given = parser.parse_args()
    found: dict[str, list[float]] = {name: [] for name in STRATEGIES}
    left: dict[tuple[str, int], list[float]] = {(s, n): [] for s in STRATEGIES for n in AFTER}
    nothing, models = 0, dict[str, CostModel]()
    for kernel, others in kernels_of(given.file, given.folder):
        if kernel.goal >= 1:
            nothing += 1
            continue
        if kernel.network not in models:
            models[kernel.network] = CostModel(others, given.engine)
        model = models[kernel.network]
        counts = []
        for name, (strategy, seeds) in STRATEGIES.items():
            orders = [strategy(kernel, model, seed) for seed in range(seeds)]
            found[name].append(statistics.median(trials_until_close(kernel, o) for o in orders))
            for n in AFTER:
                left[name, n].append(statistics.median(best_of(kernel, o, n) for o in orders))
            counts.append(f"{found[name][-1]:.0f}")
        print(f"{kernel.network}: best {min(kernel.ratios.values()):.3f} of {len(kernel.ratios)}; "
              f"tried {', '.join(counts)}: {kernel.spec}", flush=True)  # fmt: skip
    count = len(next(iter(found.values())))
    print(f"\n{count} kernels; in {nothing} more the rule's schedule is within 2 % of the best")
    print(
        "| strategy | candidates until within 2 %, median | mean | never | "
        + " | ".join(f"lost after {n}" for n in AFTER)
        + " |"
    )
    print("|---|---|---|---|" + "---|" * len(AFTER))
    for name, counts in found.items():
        lost = [100 * (statistics.geometric_mean(left[name, n]) - 1) for n in AFTER]
        figures = [f"{statistics.median(counts):g}", f"{statistics.mean(counts):.1f}",
                   str(sum(c >= MOST for c in counts)), *(f"{x:.1f} %" for x in lost)]  # fmt: skip
        print(f"| {name} | {' | '.join(figures)} |")


if __name__ == "__main__":
    main()
