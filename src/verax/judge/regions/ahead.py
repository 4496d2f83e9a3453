"""What judging a network's outputs begins with, while a subject in another process still computes
them: the float64 meaning and its samples need the inputs alone."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from verax.base.deadline import Clock, OutOfTime
from verax.ir.graph import Graph
from verax.judge.regions.budget import in_context
from verax.judge.regions.network import Ahead, survey_ahead


class DrawnAhead:
    """The samplers of `survey_ahead`, drawn in a thread of its own from `begin` on.

    clock: of the check; it is stopped where the context is left by an error, so that nobody waits
    for samples of an answer that does not come."""

    def __init__(self, clock: Clock, seed: int) -> None:
        self.clock, self.seed = clock, seed
        self._pool = ThreadPoolExecutor(1)
        self._drawn: Future[Ahead] | None = None

    def __enter__(self) -> DrawnAhead:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None:
            self.clock.stop()
        self._pool.shutdown()

    def begin(self, graph: Graph, inputs: Mapping[str, np.ndarray]) -> None:
        """Draw for the outputs of a specialized graph."""
        draw = in_context(survey_ahead)
        self._drawn = self._pool.submit(draw, graph, inputs, graph.outputs, self.seed)

    def take(self) -> Ahead:
        """What was drawn, when it is; nothing where nothing was begun or the time was up."""
        if self._drawn is None:
            return {}
        try:
            return self._drawn.result()
        except OutOfTime:
            return {}
        finally:
            self._drawn = None
