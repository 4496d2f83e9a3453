"""Runtimes that `verax bench` times beside ours and that nobody judges: their files are no networks
that we read. How each is run stands in `engines`."""

from __future__ import annotations

from verax.runners.engines import Engine
from verax.runners.spec import RunnerSpec

SPEC = RunnerSpec(
    {},
    timed_only={
        "torch-zentorch": Engine(
            "torch", (".pt2", ".py"), {"compiled": True, "backend": "zentorch"}
        ),
        "ncnn": Engine("ncnn", (".param",)),
        "mnn": Engine("mnn", (".mnn",)),
    },
)
