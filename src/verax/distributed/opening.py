"""`open_pool`: a pool as `--workers` and `--ray` ask for it."""

from __future__ import annotations

import os
from importlib import import_module

from verax.base.optional import require
from verax.distributed.pool import WorkerPool
from verax.distributed.processes import ProcessPool

AUTO = "auto"
"""The address of the cluster that this machine belongs to; where there is none, one is begun."""
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
}
"""Environment of Ray, which reads it when it is imported: no statistics are sent, processes are not
ended for their memory, and nothing is printed between what a command prints."""


def open_pool(workers: int = 0, ray: str | None = None) -> WorkerPool:
    """A pool of `workers` processes of this machine, or, with `ray`, of workers of a Ray cluster.

    workers: 0 stands for one process, and on a cluster for one worker for each of its cores. ray: a
    cluster's address as `ray.init` takes it ("host:6379", "ray://host:10001"); "auto" or "" for the
    one that this machine belongs to, which is started for this process where there is none. Raises
    `MissingPackageError` where Ray is not installed, `UsageError` when no cluster is there.
    """
    if ray is None:
        return ProcessPool(workers or 1)
    for name, setting in SETTINGS.items():
        os.environ.setdefault(name, setting)
    require("ray", "ray")
    on_ray = import_module("verax.distributed.on_ray")  # needs Ray, which takes a second to import
    pool: WorkerPool = on_ray.RayPool(workers, ray or AUTO)
    return pool
