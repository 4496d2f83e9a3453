"""Settings of the whole suite: the same cases on every machine, one thread for foreign libraries.

Hypothesis draws the same cases every time; `make campaign` draws fresh ones (the profile "fresh"):
what they find becomes a test of its own.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Tests run side by side: a pool of OpenMP threads in each of them would fight for the cores.
os.environ["OMP_NUM_THREADS"] = "1"

# No deadlines: a busy machine is not a fault. Nothing depends on Hypothesis noticing CI by itself.
calm = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("fresh", derandomize=False, **calm)
settings.register_profile("same", derandomize=True, database=None, **calm)
settings.load_profile("same")
