"""Runtimes that `verax bench` times beside ours and that nobody judges: their files are no networks
that we read. How each is run stands in `engines`."""

from __future__ import annotations

from verax.runners.engines import Engine
from verax.runners.spec import RunnerSpec

SPECS = (
    RunnerSpec({}, "ncnn", ("ncnn",), {"ncnn": Engine("ncnn", (".param",))}),
    RunnerSpec({}, "MNN", ("MNN",), {"mnn": Engine("mnn", (".mnn",))}),
    RunnerSpec(
        {},
        "zentorch",
        ("zentorch",),
        {
            "torch-zentorch": Engine(
                "torch", (".pt2", ".py"), {"compiled": True, "backend": "zentorch"}
            )
        },
    ),
)
