"""What `verax tune` does: schedules measured here or on devices, without changing a bit."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import typer
from rich.text import Text

from verax.base.errors import UsageError
from verax.base.option_groups.compile_options import DeviceOptions, TuneOptions
from verax.base.option_groups.options import InputOptions, ModelOptions
from verax.cli.console import (
    can_write,
    errors,
    noting_interruption,
    output,
    parse_shapes,
    parse_values,
    progress,
    write_json,
)
from verax.cli.inputs import read_inputs
from verax.cli.models import load_file, require_model
from verax.cli.results import write_record
from verax.compiler.artifacts.default_history import default_history
from verax.device_tuning import DeviceResult, tune_devices
from verax.images import ImageOptions
from verax.records.codec import to_plain
from verax.records.tuning import TuningRecord
from verax.report.tuning import tuning_table
from verax.tuning import tune

SCHEMA = "verax.tuned-devices/1"


def perform(
    *,
    model: Path,
    tuning: TuneOptions,
    devices: DeviceOptions,
    inputs: InputOptions,
    reading: ModelOptions,
    workers: int,
    ray: str | None,
    json: Path | None,
    html: Path | None,
) -> None:
    """Carry out the command with the options of `verax.cli.tune`."""
    history = tuning.history or default_history()
    can_write(json, html, reads=[model, reading.params, history])
    devices = dataclasses.replace(devices, workers=workers, ray=ray)
    if not devices.device and (devices.workers or devices.ray is not None):
        raise UsageError(
            "--workers and --ray build for devices, and none is named",
            next_step="name one, for instance --device host,cores=1",
        )
    found = load_file(model, reading)
    loaded = require_model(found, model, "a compiled program has its schedules", "give the model")
    given = read_inputs(inputs, loaded.inputs, ImageOptions(), loaded.pixels).arrays
    if devices.device:
        _on_devices(model, tuning, devices, reading, dict(given or {}), json, html)
        return
    with noting_interruption(history, _kept_in(history)), progress(model.name) as show:
        record = tune(loaded, given or None, progress=show, options=tuning)
    _show(record)
    write_record(record, json, html)
    if not record.is_right:
        raise typer.Exit(1)


def _on_devices(
    model: Path,
    tuning: TuneOptions,
    devices: DeviceOptions,
    reading: ModelOptions,
    arrays: dict[str, Any],
    json: Path | None,
    html: Path | None,
) -> None:
    history = tuning.history or default_history()
    if history is None:
        raise UsageError(
            "programs are not kept (VERAX_CACHE is off), so there is no place for a history",
            next_step="name a file with --history",
        )
    if html is not None:
        raise UsageError(
            "several devices have no page of their own",
            next_step="write --json, or tune without --device",
        )
    keywords = {
        "shapes": parse_shapes(reading.shape) or None,
        "values": parse_values(reading.value),
        "params": reading.params,
        "evaluation": reading.evaluation,
    }
    with noting_interruption(history, _kept_in(history)), progress(model.name) as show:
        results = tune_devices(
            model, devices, history, tuning,
            reading=keywords, inputs=arrays or None, progress=show,
        )  # fmt: skip
    for result in results:
        _show_device(result)
    output.print(Text(f"history: {history}"), style="dim", soft_wrap=True)
    write_json(json, SCHEMA, {"devices": [to_plain(result) for result in results]})
    if not all(result.is_right for result in results):
        raise typer.Exit(1)
    if any(result.record is None for result in results):
        if any(result.ends for result in results if result.record is None):
            errors.print(Text(_kept_in(history)), soft_wrap=True)
        raise typer.Exit(2)


def _kept_in(history: str | None) -> str:
    return f"what was measured is in {history}; the same command with --resume goes on from there"


def _show(record: TuningRecord) -> None:
    output.print(tuning_table(record))
    output.print(Text(str(record)), soft_wrap=True)
    output.print(Text(f"history: {record.history}"), style="dim", soft_wrap=True)


def _show_device(result: DeviceResult) -> None:
    again = result.ends if result.record is not None else result.ends[:-1]
    for end in again:
        errors.print(Text(f"warning: {result.label} ended, and was begun again: {end}"))
    if result.record is not None:
        output.print(Text(f"{result.label}:"))
        output.print(tuning_table(result.record))
        output.print(Text(str(result.record)), soft_wrap=True)
    else:
        text = f" {result.label} was not tuned: {result.error}"
        errors.print(Text.assemble(("error:", "red"), text), soft_wrap=True)
