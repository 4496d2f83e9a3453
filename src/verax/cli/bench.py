"""`verax bench`: the speed of a model beside other runtimes."""

from __future__ import annotations

from verax.base.option_groups.compile_options import BenchOptions
from verax.base.option_groups.options import InputOptions
from verax.cli.late import done_in
from verax.cli.options import Html, Json, Model


@done_in("verax.cli.work.bench", timing=BenchOptions, inputs=InputOptions)
def command(model: Model, json: Json = None, html: Html = None) -> None:
    """Time a model beside other runtimes: own processes, taking turns, medians and a ratio."""
