"""`open_pool`: a pool as `--workers` and `--ray` ask for it."""

from __future__ import annotations

from importlib import import_module

from verax.base.optional import require
from verax.distributed.pool import Pool
from verax.distributed.processes import ProcessPool

AUTO = "auto"
"""The address of the cluster that this machine belongs to; where there is none, one is started."""


def open_pool(workers: int = 0, ray: str | None = None) -> Pool:
    """A pool of `workers` processes of this machine, or, with `ray`, of workers of a Ray cluster.

    workers: 0 stands for one process, and on a cluster for one worker for each of its cores. ray: a
    cluster's address as `ray.init` takes it ("host:6379", "ray://host:10001"); "auto" or "" for the
    one that this machine belongs to, which is started for this process where there is none. Raises
    `MissingPackageError` where Ray is not installed, `UsageError` when no cluster is there.
    """
    if ray is None:
        return ProcessPool(workers or 1)
    require("ray", "ray")
    on_ray = import_module("verax.distributed.on_ray")  # needs Ray, which takes a second to import
    pool: Pool = on_ray.RayPool(workers, ray or AUTO)
    return pool
