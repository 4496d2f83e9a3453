"""Tuning against rules alone, on the float32 networks of `make bench`.

    python -m benchmarks.tuned --minutes 10 --workers 2 --json out/tuned.json
    python -m benchmarks.tuned --minutes 2 --networks mobilenetv2 resnet18

Each network is tuned from an empty history on one device (`--device`), with builders beside it;
then it runs in turns with the rules' schedules and with what was found, bits compared. The ratio is
the median of neighboring turns, beside its noise. Where tuning beats the rules by more than 3 % the
rules should learn from it: the kernels with the largest gains are listed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from panel_files import source_of
from panel_zoo import PANEL
from verax.base.option_groups.compile_options import DeviceOptions, TuneOptions
from verax.device_tuning import tune_devices
from verax.records.codec import to_plain
from verax.records.tuning import TUNED, TuningRecord

LISTED = 3
"""Kernels of a network that are listed."""


def tuned(name: str, given: argparse.Namespace) -> TuningRecord | str:
    """The record of a network; in words why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        (result,) = tune_devices(
            source_of(name, 1, given.folder, given.folder),
            DeviceOptions(device=(given.device,), workers=given.workers),
            given.history or Path(folder) / "tuning.jsonl",
            TuneOptions(time_budget=60 * given.minutes, threads=given.threads, opt_level=3),
            inputs=PANEL[name].inputs(7),
        )
    return result.record or result.error


def row(name: str, record: TuningRecord) -> str:
    """A line of the table."""
    trials = sum(k.trials for k in record.kernels)
    kernels = f"{sum(k.outcome == TUNED for k in record.kernels)} of {len(record.kernels)}"
    kept = "" if record.kept else ", not kept"
    return (
        f"| {name} | {record.seconds:.0f} | {trials} | {kernels} | {1 / record.ratio:.3f}, "
        f"{100 * record.noise:.1f} %{kept} | {'same' if record.is_right else 'OTHER'} |"
    )


def gains(record: TuningRecord) -> list[str]:
    """The kernels that gained most of the network's time."""
    won = [k for k in record.kernels if k.outcome == TUNED]
    won.sort(key=lambda k: k.best_us - k.rule_us)
    return [
        f"  {k.share:.1%} of the time, {k.rule_us / k.best_us:.3f} times as fast: {k.spec}: "
        f"{k.schedule} (by rule {k.rule})"
        for k in won[:LISTED]
    ]


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--networks", nargs="+", choices=PANEL, default=list(PANEL))
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--device", default="host")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path("out/panel"))
    parser.add_argument("--history", type=Path, help="By default an empty one for each network.")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    records: dict[str, Any] = {}
    print("| network | seconds | candidates | kernels tuned | times as fast, noise | bits |")
    print("|---|---|---|---|---|---|", flush=True)
    notes: list[str] = []
    for name in given.networks:
        record = tuned(name, given)
        if isinstance(record, str):
            notes.append(f"{name}: {record}")
            continue
        print(row(name, record), flush=True)
        records[name] = to_plain(record)
        if record.kept and record.ratio < 1 / 1.03:
            notes += [f"{name}:", *gains(record)]
    print("\n".join(["", *notes]))
    if given.json is not None:
        given.json.write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main()
