"""The campaign of honest runs, and the planted mistakes beside it.

    make honest ARGS="runs --only 'llama|resnet18/float32'"    # or: python -m benchmarks.honest
    python -m benchmarks.honest runs --seconds 600             # goes on where it stopped
    python -m benchmarks.honest planted                        # mistakes in the same networks
    python -m benchmarks.honest show llama/float32/onnx/openvino/watched/plain
    python -m benchmarks.honest table -o docs/honest.md        # from what was recorded

Outcomes are kept in out/honest as JSON lines; `--again` judges anew what matches.
"""

from __future__ import annotations

import argparse
import random
import re
import time
import zlib
from pathlib import Path
from typing import Any

from benchmarks.honest import campaign
from benchmarks.honest.files import runs_of_files, runs_of_quantised
from benchmarks.honest.lite import runs_of_lite
from benchmarks.honest.outcomes import ACCUSED, DIED, TIMED_OUT, UNDECIDED, Outcome, append, read
from benchmarks.honest.runs import Run, runs_of
from benchmarks.pools import add_pool_options, pool_of, run_script
from benchmarks.provenance import stamped

from verax.distributed import WorkerPool

FOLDER = Path("out/honest")
RUNS, PLANTED = "runs.jsonl", "planted.jsonl"
ORDER_SEED = 4
TOGETHER = 25
"""Architectures between two lines about how it goes."""


def keys_of_runs(only: str, share: float = 1.0) -> dict[str, list[str]]:
    """Architecture -> keys of its runs that match, architectures in a fixed random order.

    share: of the runs, a fair sample; the same one each time, and within every larger one."""
    from benchmarks.honest.architectures import registry

    listed = [(name, list(runs_of(name, number))) for number, name in enumerate(registry())]
    found = {}
    for name, runs in (*listed, *runs_of_files(), *runs_of_quantised(), *runs_of_lite()):
        matching = [run.key for run in runs if re.search(only, run.key)]
        found[name] = [k for k in matching if zlib.crc32(k.encode()) < share * 2**32]
    names = [n for n, keys in found.items() if keys]
    random.Random(ORDER_SEED).shuffle(names)  # what an early end leaves is a fair sample
    return {n: found[n] for n in names}


def keys_of_plants(only: str) -> dict[str, list[str]]:
    """Architecture -> keys of the mistakes planted in it that match."""
    from benchmarks.honest.architectures import registry
    from benchmarks.honest.planted import keys_of

    names = [*registry(), *(name for name, _ in runs_of_quantised())]
    found = {n: [k for k in keys_of(n) if re.search(only, k)] for n in names}
    return {n: keys for n, keys in found.items() if keys}


def died(key: str, why: str) -> Any:
    """The outcome of a run that took its process down."""
    if key.split("/")[1] == "planted":
        from benchmarks.honest.planted import SKIPPED, PlantedOutcome

        return PlantedOutcome(key, "", SKIPPED, reasons=[f"the process died: {why}"])
    from benchmarks.honest.networks import belongs

    family, origin = belongs(key.partition("/")[0])
    result = TIMED_OUT if why.startswith("no answer") else DIED
    return Outcome(key, family, origin, result, reasons=[why])


def run_campaign(options: argparse.Namespace) -> int:
    """Judge what matches and was not judged yet."""
    if options.part == "planted":
        from benchmarks.honest.planted import PlantedOutcome as kind

        path, listed = options.folder / PLANTED, keys_of_plants(options.only)
    else:
        kind, path, listed = (
            Outcome,
            options.folder / RUNS,
            keys_of_runs(options.only, options.share),
        )
    judge, began = campaign.version(), time.monotonic()
    done = {} if options.again else read(path, kind)
    if options.outdated:
        done = {k: o for k, o in done.items() if o.judge == judge}
    if options.redo:
        words = options.redo.split(",")
        known = read(path, kind)
        done = {k: o for k, o in known.items() if _word(o) not in words}
        listed = {
            n: [k for k in keys if k in known and k not in done] for n, keys in listed.items()
        }
        listed = {n: keys for n, keys in listed.items() if keys}
    if options.limit:
        listed = dict(list(listed.items())[: options.limit])
    with pool_of(options) as pool:
        _judge(options, listed, done, kind, path, judge, began, pool)
    results = [_word(o) for k, o in read(path, kind).items() if re.search(options.only, k)]
    print({r: results.count(r) for r in dict.fromkeys(results)})
    return 1 if ACCUSED in results else 0


def _judge(
    options: argparse.Namespace,
    listed: dict[str, list[str]],
    done: dict[str, Any],
    kind: Any,
    path: Path,
    judge: str,
    began: float,
    pool: WorkerPool,
) -> None:
    """Have what is listed and not done judged, and recorded."""
    names = list(listed)
    for first in range(0, len(names), TOGETHER):
        some = names[first : first + TOGETHER]
        missing = [k for name in some for k in listed[name] if k not in done]
        left = None if options.seconds is None else options.seconds - (time.monotonic() - began)
        entries = campaign.run_keys(missing, died, options.folder, pool, seconds=left)
        for entry in entries if missing else ():
            outcome = kind(**entry) if isinstance(entry, dict) else entry
            outcome.judge = judge
            append(path, outcome)
            _say(outcome, options.verbose)
        now = read(path, kind)
        words = [_word(now[k]) for name in some for k in listed[name] if k in now]
        counts = ", ".join(f"{words.count(w)} {w}" for w in dict.fromkeys(words))
        print(f"[{first + len(some)}/{len(names)}] to {some[-1]}: {counts}", flush=True)


def _word(outcome: Any) -> str:
    """An outcome in a word."""
    if isinstance(outcome, Outcome):
        return outcome.result
    if outcome.result != "judged":
        return str(outcome.result)
    return "located" if outcome.located else "detected" if outcome.detected else "missed"


def _say(outcome: Any, verbose: bool) -> None:
    word = _word(outcome)
    if isinstance(outcome, Outcome) and outcome.again.startswith("it failed"):
        print(f"  repeated: {outcome.key}: {outcome.again[:200]}", flush=True)
    if verbose or word in (ACCUSED, UNDECIDED, "detected", "missed", "failed"):
        worst = outcome.worst.get("node", "") if isinstance(outcome, Outcome) else outcome.node
        reason = (outcome.reasons or [""])[0]
        print(f"  {word}: {outcome.key} {worst} ({outcome.seconds} s): {reason[:160]}", flush=True)


def show(options: argparse.Namespace) -> int:
    """Judge one run here and print the whole report."""
    from benchmarks.honest.networks import Forms
    from benchmarks.honest.worker import judged
    from rich.console import Console

    from verax.report.verdict import render_verdict

    run = Run.of(options.key)
    verdict = judged(run, Forms(run.architecture, options.folder), explain=options.explain)
    Console().print(render_verdict(verdict))
    if options.json:
        options.json.write_text(verdict.to_json())
    return int(verdict.exit_code)


def table(options: argparse.Namespace) -> int:
    """Write the page from the records."""
    from benchmarks.honest.planted import PlantedOutcome
    from benchmarks.honest.table import document
    from benchmarks.honest.table_quantised import quantised_document

    runs = read(options.folder / RUNS).values()
    after = read(options.folder / PLANTED, PlantedOutcome).values()
    before = read(options.before, PlantedOutcome).values() if options.before else ()
    made = quantised_document if options.quantised else document
    text = made(runs, before, after)
    if options.output is None:
        print(text)
    else:
        options.output.write_text(stamped(text))
    return 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="honest", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where outcomes are kept")
    parts = parser.add_subparsers(dest="part", required=True)
    for name, words in (("runs", "honest runs"), ("planted", "planted mistakes")):
        part = parts.add_parser(name, help=words)
        part.add_argument("--only", default="", metavar="REGEX", help="keys that match")
        part.add_argument("--share", type=float, default=1.0, help="of the runs, as a sample")
        part.add_argument("--limit", type=int, help="architectures")
        part.add_argument("--seconds", type=float, help="begin nothing new after so long")
        part.add_argument("--again", action="store_true", help="though it was judged before")
        part.add_argument("--outdated", action="store_true", help="also what another judge judged")
        part.add_argument("--redo", metavar="RESULTS", help="what came to these: mistake,undecided")
        part.add_argument("--verbose", action="store_true")
        add_pool_options(part)
    part = parts.add_parser("show", help="one run, with the judge's whole report")
    part.add_argument("key")
    part.add_argument("--explain", action="store_true")
    part.add_argument("--json", type=Path)
    part = parts.add_parser("table", help="the page for the docs, from what was recorded")
    part.add_argument("-o", "--output", type=Path)
    part.add_argument("--quantised", action="store_true", help="the page of quantised networks")
    part.add_argument("--before", type=Path, help="a record of planted mistakes to compare with")
    options = parser.parse_args(arguments)
    actions = {"runs": run_campaign, "planted": run_campaign, "show": show, "table": table}
    return int(actions[options.part](options))


if __name__ == "__main__":
    run_script(main)
