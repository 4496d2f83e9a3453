"""How each runtime loads a model and runs it, in one place for judging and for timing.

A module here imports nothing but NumPy, `base` and its runtime: `verax bench` times it, and takes
its memory, in a process that holds nothing else. Its function `prepared(model, threads, settings)`
gives a `Prepared`; runners share the part that loads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Inputs = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Prepared:
    """A loaded model. `bind` takes the inputs once and gives a function that runs one inference
    and returns the outputs in order."""

    version: str
    bind: Callable[[Inputs], Callable[[], Sequence[np.ndarray]]]


@dataclass(frozen=True)
class Engine:
    """What a runner's registration says of its engine.

    module: the one here with the function `prepared`; settings: what that takes besides the model
    and the threads; suffixes: of the files that it reads.
    """

    module: str
    suffixes: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
