"""`verax.tune`: schedules measured on this machine, on inputs that are given or drawn."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from verax.api import Network, graph_of, with_examples
from verax.base.arrays import as_arrays
from verax.base.errors import UsageError
from verax.base.settings import DEFAULT_LEVEL, Settings
from verax.compiler.tune.history import History
from verax.compiler.tuned_schedules import default_history
from verax.compiler.tuner import BUDGET
from verax.compiler.tuner import tune as tune_graph
from verax.judge.inputs import draw_inputs
from verax.records.tuning import TuningRecord


def tune(
    model: Network,
    inputs: Any = None,
    *,
    time_budget: float = BUDGET,
    trials: int | None = None,
    threads: int | None = None,
    opt_level: int | None = None,
    history: str | os.PathLike[str] | None = None,
    seed: int = 0,
    sizes: Mapping[str, int] | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> TuningRecord:
    """Measure other schedules for a model's kernels on this machine, and keep what is faster.

    Numbers do not change: every candidate's bits are compared with those of the schedule chosen by
    rule, and the network's outputs before and after. `compile` takes what was found from then on.

    inputs: what the network is run with, by name; drawn from `seed` when not given, symbols having
    `sizes` (1 if not given). time_budget: seconds. trials: the most candidates of a kernel.
    threads, opt_level: as `compile` takes them; what is found holds for this number of threads.
    history: the file to append to, by default the one that `compile` reads. An interruption leaves
    in it what was measured and won by then. progress: gets what is done, and the share done.
    Raises `UsageError` when the history cannot be read or written, and what `compile` raises.
    """
    path = default_history() if history is None else os.fspath(history)
    if path is None:
        raise UsageError(
            "programs are not kept (VERAX_CACHE is off), so there is no place for a history",
            next_step="name a file with history= or --history",
        )
    if not 0 < time_budget < float("inf"):
        raise UsageError(
            f"the time budget is {time_budget} seconds", next_step="give a number above 0"
        )
    if trials is not None and trials < 1:
        raise UsageError(f"trials is {trials}", next_step="give 1 or more, or leave it out")
    network, arrays = with_examples(model, inputs)
    graph = graph_of(network)
    if arrays is None:
        drawn, _ = draw_inputs(graph, seed, {s: 1 for s in graph.symbols()} | dict(sizes or {}))
        arrays = {name: drawn[name] for name in graph.arguments}
    level = DEFAULT_LEVEL if opt_level is None else opt_level
    source = getattr(network, "source", None)
    return tune_graph(
        graph,
        Settings(level, threads or 0),
        as_arrays(arrays),
        History(path),
        budget=time_budget,
        trials=trials,
        progress=progress,
        model=str(source) if source else graph.name,
    )
