"""Settings of the whole suite: the same cases on every machine, one thread for foreign libraries.

Hypothesis draws the same cases every time; `make campaign` draws fresh ones (the profile "fresh"):
what they find becomes a test of its own. No test sees what another one drew.
"""

from __future__ import annotations

import os
import random
import sys

import pytest
from hypothesis import HealthCheck, settings

# Tests run side by side: a pool of OpenMP threads in each of them would fight for the cores.
os.environ["OMP_NUM_THREADS"] = "1"

# No deadlines: a busy machine is not a fault. Nothing depends on Hypothesis noticing CI by itself.
calm = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("fresh", derandomize=False, **calm)
settings.register_profile("same", derandomize=True, database=None, **calm)
settings.load_profile("same")

TORCH_SEED = 67280421310721
"""The one that torch starts with: whether an earlier test has loaded it makes no difference."""


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Every test finds the generators of `random` and torch as if it were the first."""
    random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(TORCH_SEED)
