"""`verax.tune`: schedules measured on this machine, on inputs that are given or drawn."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Unpack

from verax.api import Network, graph_of, with_examples
from verax.base.arrays import as_arrays
from verax.base.errors import UsageError
from verax.base.option_groups.compile_options import TUNED_AS_USUAL, TuneKeywords, TuneOptions
from verax.base.option_groups.keywords import with_options
from verax.base.option_groups.options import changed
from verax.compiler.artifacts.default_history import default_history
from verax.compiler.tune.history import History
from verax.compiler.tuner import Searching
from verax.compiler.tuner import tune as tune_graph
from verax.judge.inputs import draw_inputs
from verax.records.tuning import TuningRecord


@with_options(TuneOptions)
def tune(
    model: Network,
    inputs: Any = None,
    *,
    sizes: Mapping[str, int] | None = None,
    progress: Callable[[str, float], None] | None = None,
    options: TuneOptions = TUNED_AS_USUAL,
    **keywords: Unpack[TuneKeywords],
) -> TuningRecord:
    """Measure other schedules for a model's kernels on this machine, and keep what is faster.

    Numbers do not change: every candidate's bits are compared with those of the schedule chosen by
    rule, and the network's outputs before and after. `compile` takes what was found from then on.

    inputs: what the network is run with, by name; drawn when not given, symbols having `sizes` (1
    if not given). An interruption leaves in the history what was measured and won by then.
    progress: gets what is done, and the share done. options: how it is tuned; keywords: fields of
    it, which come before `options`.
    Raises `UsageError` when the history cannot be read or written, and what `compile` raises.
    """
    options = changed(options, keywords)
    path = default_history() if options.history is None else options.history
    if path is None:
        raise UsageError(
            "programs are not kept (VERAX_CACHE is off), so there is no place for a history",
            next_step="name a file with history= or --history",
        )
    network, given = with_examples(model, inputs)
    graph = graph_of(network)
    if given is None:
        drawn, _ = draw_inputs(
            graph, options.seed, {s: 1 for s in graph.symbols()} | dict(sizes or {})
        )
        given = {name: drawn[name] for name in graph.arguments}
    source = getattr(network, "source", None)
    record = tune_graph(
        graph,
        options.settings,
        as_arrays(given),
        History(path),
        Searching(
            budget=options.time_budget,
            trials=options.trials,
            resume=options.resume,
            learns=options.cost_model,
            model=str(source) if source else graph.name,
            progress=progress or (lambda message, share: None),
        ),
    )
    return dataclasses.replace(record, options=options)
