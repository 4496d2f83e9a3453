"""One pool of workers for everything that is too much for one process: processes, or Ray.

A *task* is plain data for a function that is named by a text ("package.module:function") and runs
in a *worker*; an *actor* is an object that lives in a worker of its own and may have a *device* for
itself. What tasks need (models, samples) is content: it is named by its SHA-256 and reaches every
host once. `open_pool` gives a `WorkerPool`; on one machine its workers are processes, on a cluster
they are actors of Ray Core, which places them (the extra `verax[ray]`). No scheduler is written
here, nothing of networks is known here, and nothing but the base may be imported.

What workers run is code of packages that they have installed, by name, and what comes back is JSON
with bytes beside it, never a pickle of ours. A Ray cluster as such is trusted: whoever reaches it
may run what he likes on it.
"""

from verax.distributed.contents import Reference, fetch
from verax.distributed.device import ExclusiveDevice
from verax.distributed.opening import open_pool
from verax.distributed.outcome import (
    RemoteError,
    TaskOutcome,
    WorkerDiedError,
    WorkerLateError,
)
from verax.distributed.pool import Actor, WorkerPool
from verax.distributed.processes import require_room

__all__ = [
    "Actor",
    "ExclusiveDevice",
    "Reference",
    "RemoteError",
    "TaskOutcome",
    "WorkerDiedError",
    "WorkerLateError",
    "WorkerPool",
    "fetch",
    "open_pool",
    "require_room",
]
