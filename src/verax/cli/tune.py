"""`verax tune`: schedules measured on this machine, without changing a bit."""

from __future__ import annotations

from verax.base.option_groups.compile_options import DeviceOptions, TuneOptions
from verax.base.option_groups.options import InputOptions, ModelOptions
from verax.cli.late import done_in
from verax.cli.options import Html, Json, Model, Ray, Workers


@done_in(
    "verax.cli.work.tune",
    tuning=TuneOptions,
    devices=DeviceOptions,
    inputs=InputOptions,
    reading=ModelOptions,
)
def command(
    model: Model,
    workers: Workers = 0,
    ray: Ray = None,
    json: Json = None,
    html: Html = None,
) -> None:
    """Measure other schedules for a model's kernels (tiles, order, prefetching), and keep what is
    faster here.

    No number changes: candidates with other bits are faults and never taken, and the network's
    outputs before and after are compared. Exit code 1 if any bit differs. What was measured when
    you press Ctrl-C is kept, and with --resume not measured again.

    Each --device measures for itself, with nothing else on its cores, while --workers make what it
    measures. A device that ends is begun again; one that gives other bits is in quarantine.
    """
