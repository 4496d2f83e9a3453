"""How many different outputs has one network on one input, over instruction sets and threads?

    python benchmarks/hashes.py --machine aarch64=arm/qemu --emulate avx512 --json hashes.json
    python benchmarks/hashes.py --stored hashes.json other.json --page docs/hashes.md
    python benchmarks/hashes.py --stored hashes.json --drawing docs/hashes.svg   # needs matplotlib

The networks are those of the panel that a script makes (`panel_zoo`), each on one seeded input.
Every run gives the SHA-256 over its outputs' names, types, shapes and bytes (`digests`), and what
counts is how many distinct ones an engine has. Verax runs at O1 and O3, each of which promises bits
of its own. Its programs are made here, and run in processes of their own: here for every target
that this machine has, on further machines by `--machine` (a command that runs Python there, an
emulated ARM64 for one), and on processors that `--emulate` boots with nothing under the program
(`benchmarks.emulated`). The peers run at their defaults in float32 with every instruction set that
they can be told to stop at, each setting in a process of its own. What cannot run here is said, and
stored with the reason; `--stored` adds runs that were made elsewhere. Exit code 1 when Verax has
more than one hash at a level.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from benchmarks.digests import SHOWN, digest  # noqa: E402  (found by the line above)
from benchmarks.hashes_page import (  # noqa: E402
    INSTRUCTIONS,
    LEVELS,
    SETTINGS,
    THREADS,
    Run,
    Setting,
    broken,
    counted,
    page,
    ratios,
)
from benchmarks.provenance import commit, today  # noqa: E402

NETWORKS = ("resnet18", "mobilenetv2", "efficientnet_b0", "segformer_b0", "mobilenetv2-int8")
FILES = {"onnxruntime": ".onnx", "openvino": ".onnx", "torch": ".pt2"}


@dataclasses.dataclass(frozen=True)
class Case:
    """A network's files, without their suffix, and the file of its input."""

    name: str
    stem: str
    inputs: str


# ---------------------------------------------------------------------------------- the peers


def outputs_of(
    engine: str, file: Path, inputs: Mapping[str, np.ndarray], threads: int
) -> dict[str, np.ndarray]:
    """What a peer computes with that many threads."""
    if engine == "onnxruntime":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        names = [o.name for o in session.get_outputs()]
        return dict(zip(names, map(np.asarray, session.run(names, dict(inputs)))))
    if engine == "openvino":
        import openvino

        told = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
        compiled = openvino.Core().compile_model(str(file), "CPU", told)
        found = compiled(dict(inputs))
        return {f"{n}": np.asarray(found[output]) for n, output in enumerate(compiled.outputs)}
    import torch

    torch.set_num_threads(threads)
    with torch.no_grad():
        given = [torch.from_numpy(array) for array in inputs.values()]
        found = torch.export.load(file).module()(*given)
    parts = found if isinstance(found, tuple | list) else (found,)
    return {f"{n}": part.numpy() for n, part in enumerate(parts)}


def work(asked: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What a peer's process does: every network with one setting."""
    for case in asked["cases"]:
        file = Path(case["stem"] + FILES[asked["engine"]])
        begin = time.perf_counter()
        with np.load(case["inputs"]) as stored:
            inputs = dict(stored)
        if not file.exists():
            yield {"network": case["name"], "failure": f"there is no {file.suffix} file of it"}
            continue
        try:
            found = digest(outputs_of(asked["engine"], file, inputs, asked["threads"]))
        except Exception as error:  # whatever a peer raises is its answer
            why = " ".join(f"{type(error).__name__}: {error}".split())
            yield {"network": case["name"], "failure": why[:200]}
            continue
        seconds = round(time.perf_counter() - begin, 2)
        yield {"network": case["name"], "digest": found, "seconds": seconds}


def peer_runs(engine: str, cases: Sequence[Case], timeout: float) -> Iterator[Run]:
    """Every setting of a peer with every number of threads."""
    for setting in SETTINGS[engine]:
        machine = " ".join(setting.command[:3]) if setting.command else "here"
        reason = _why_not(engine, setting)
        for threads in THREADS:
            if reason:
                found: dict[str, dict[str, Any]] = {c.name: {"failure": reason} for c in cases}
            else:
                found = _asked(engine, setting, threads, cases, timeout)
            version = importlib.metadata.version(engine) if _is_installed(engine) else ""
            for case in cases:
                said = found.get(case.name, {"failure": "it gave no answer in time"})
                yield Run(case.name, engine, setting.instructions, machine, threads,
                          version=version, **said)  # fmt: skip


def _is_installed(engine: str) -> bool:
    return importlib.util.find_spec(engine) is not None


def _why_not(engine: str, setting: Setting) -> str:
    """Why a setting cannot run here; nothing where it can."""
    from verax.base.machine import processor

    if not _is_installed(engine):
        return f"{engine} is not installed"
    if setting.command and shutil.which(setting.command[0]) is None:
        return f"{setting.command[0]} is not installed"
    if setting.instructions in processor.TARGETS and not processor.runs_here(setting.instructions):
        return f"this machine has no {INSTRUCTIONS[setting.instructions]}"
    return ""


def _asked(
    engine: str, setting: Setting, threads: int, cases: Sequence[Case], timeout: float
) -> dict[str, dict[str, Any]]:
    """What a process with that setting answers, by network."""
    asked = {"engine": engine, "threads": threads, "cases": [*map(dataclasses.asdict, cases)]}
    environment = {**os.environ, **setting.environment, "PYTHONPATH": str(ROOT / "src")}
    command = [*setting.command, sys.executable, __file__, "--work", json.dumps(asked)]
    answers, failure = _answers(command, environment, timeout)
    found: dict[str, dict[str, Any]] = {case.name: {"failure": failure} for case in cases}
    return found | {answer.pop("network"): answer for answer in answers}


# --------------------------------------------------------------------------------------- ours


def own_runs(case: Case, machines: Mapping[str, Sequence[str]], timeout: float) -> Iterator[Run]:
    """Verax at every level and number of threads. machines: target -> a command that runs Python
    there; targets that this machine has run here."""
    import verax
    from verax.base.machine import processor

    model = verax.load(f"{case.stem}.onnx")
    here = {t: [sys.executable] for t in ("avx512", "avx2") if processor.runs_here(t)}
    for target, command in {**machines, **here}.items():
        programs: dict[str, dict[str, Any]] = {}
        with tempfile.TemporaryDirectory() as folder:
            _tell_version(Path(folder))
            for level in LEVELS:
                for threads in THREADS:
                    path = f"{folder}/{level}-{threads}.vx"
                    exe = verax.compile(
                        model, opt_level=level, threads=threads, target=target, cache=False
                    )
                    exe.save(path)
                    programs[path] = {"engine": f"verax:O{level}", "threads": threads}
            asked = {"programs": list(programs), "inputs": case.inputs}
            environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{folder}"}
            command = [*command, __file__, "--work", json.dumps(asked)]
            answers, failure = _answers(command, environment, timeout)
            found = {answer.pop("program"): answer for answer in answers}
        machine = "here" if target in here else Path(command[0]).name
        for path, setting in programs.items():
            said = found.get(path, {"failure": failure})
            yield Run(network=case.name, instructions=target, machine=machine,
                      version=verax.__version__, **setting, **said)  # fmt: skip


def run_programs(asked: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What the process on a machine does: every program on the input."""
    import verax

    with np.load(asked["inputs"]) as stored:
        inputs = dict(stored)
    for program in asked["programs"]:
        begin = time.perf_counter()
        found = digest(verax.load(program).run(inputs))
        seconds = round(time.perf_counter() - begin, 2)
        yield {"program": program, "digest": found, "seconds": seconds}


def _tell_version(folder: Path) -> None:
    """So that a Python in which Verax is not installed knows which version it is."""
    from benchmarks import bits

    bits.tell_version(folder)


def _answers(
    command: Sequence[str], environment: Mapping[str, str], timeout: float
) -> tuple[list[dict[str, Any]], str]:
    """The lines of JSON that a worker printed, and why there are no more."""
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=timeout, check=False
        )
        said = done.stdout
        failure = f"it ended with exit code {done.returncode}"
        if done.returncode > 0 and done.stderr.strip():
            raised = [
                x for x in done.stderr.splitlines() if re.match(r"[\w.]+(Error|Exception)\b", x)
            ]
            failure += f": {' '.join((raised or ['no reason given'])[-1].split())[:200]}"
    except subprocess.TimeoutExpired as error:
        said = error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout or ""
        failure = f"it gave no answer in {timeout:.0f} s"
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")], failure


def booted_runs(case: Case, targets: Sequence[str], timeout: float) -> Iterator[Run]:
    """Verax's program, made here, on an emulated processor that boots it: one thread."""
    from benchmarks.emulated import machine

    import verax
    from verax.base.errors import UnsupportedError
    from verax.base.option_groups.settings import Settings
    from verax.compiler.compile import compile

    graph = verax.load(f"{case.stem}.onnx").graph
    with np.load(case.inputs) as stored:
        inputs = dict(stored)
    for target in targets:
        for level in LEVELS:
            begin, found, failure = time.perf_counter(), "", ""
            try:
                if lacking := machine.missing():
                    raise UnsupportedError(f"not installed: {', '.join(lacking)}")
                settings = Settings(opt_level=level, threads=1, target=target)
                image = compile(graph, settings).specialized.binary
                found = digest(machine.run(image, inputs, timeout))
            except UnsupportedError as error:
                failure = str(error)
            yield Run(case.name, f"verax:O{level}", target,
                      f"bochs {machine.PROCESSORS[target]}", 1, found, failure,
                      verax.__version__, round(time.perf_counter() - begin, 2))  # fmt: skip


def cases_in(folder: Path, names: Sequence[str]) -> list[Case]:
    """The networks, made in `folder` unless they are there, with their inputs."""
    import networks_zoo
    from panel_files import TWINS, source_of
    from panel_zoo import PANEL

    made = []
    for name in names:
        path = source_of(name, 1, folder, folder)
        file = path.with_suffix(".npz")
        if not file.exists():
            inputs = PANEL[TWINS.get(name, (name,))[0]].inputs(networks_zoo.SEED + 2)
            np.savez(file, **inputs)  # type: ignore[arg-type]
        made.append(Case(name, str(path.with_suffix("")), str(file)))
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS))
    engines = ["verax", *SETTINGS]
    parser.add_argument("--engines", nargs="*", default=engines, choices=engines)
    parser.add_argument("--machine", action="append", default=[], help="TARGET=COMMAND")
    parser.add_argument("--emulate", nargs="+", default=[], help="targets that Bochs boots")
    parser.add_argument("--folder", type=Path, default=ROOT / "out" / "panel", help="of networks")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds per process")
    parser.add_argument("--json", type=Path, help="where to write the record")
    parser.add_argument("--stored", type=Path, nargs="+", default=[], help="records made before")
    parser.add_argument("--page", type=Path, help="where to write the page")
    parser.add_argument("--drawing", type=Path, help="where to draw the picture, an SVG")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.work:
        asked = json.loads(given.work)
        for line in (run_programs if "programs" in asked else work)(asked):
            print(json.dumps(line), flush=True)
        return 0
    records = [json.loads(file.read_text()) for file in given.stored]
    runs = [Run(**run) for record in records for run in record["runs"]]
    if not given.stored:
        for run in _made(given):
            runs.append(run)
            answer = run.digest[:SHOWN] or f"NOT RUN: {run.failure}"
            print(f"{run.network} {run.engine} {run.instructions} ({run.machine}) "
                  f"{run.threads} threads: {answer}", file=sys.stderr, flush=True)  # fmt: skip
    record = {
        "commit": records[0]["commit"] if records else commit(),
        "date": records[0]["date"] if records else today(),
        "processor": records[0]["processor"] if records else _processor(),
        "runs": [dataclasses.asdict(run) for run in _later_first(runs)],
    }
    if given.json:
        given.json.write_text(json.dumps(record, indent=1) + "\n")
    if given.page:
        given.page.write_text(page(record))
    if given.drawing:
        from hashes_picture import draw

        stored = (ROOT / "docs" / "panel-avx2.md").read_text()
        draw(counted(runs), ratios(stored), given.drawing)
    for promise in broken(runs):
        print(f"{promise}: more than one hash", file=sys.stderr)
    return int(bool(broken(runs)) or not runs)


def _made(given: argparse.Namespace) -> Iterator[Run]:
    given.folder.mkdir(parents=True, exist_ok=True)
    cases = cases_in(given.folder, given.networks)
    told = (text.partition("=") for text in given.machine)
    machines = {target: shlex.split(command) for target, _, command in told}
    for case in cases:
        if "verax" in given.engines:
            yield from own_runs(case, machines, given.timeout)
        yield from booted_runs(case, given.emulate, given.timeout)
    for engine in SETTINGS:
        if engine in given.engines:
            yield from peer_runs(engine, cases, given.timeout)


def _later_first(runs: Sequence[Run]) -> list[Run]:
    """Of runs of one setting the last, so that a record of what failed before can be added to."""
    found = {(r.network, r.engine, r.instructions, r.machine, r.threads): r for r in runs}
    return list(found.values())


def _processor() -> str:
    from verax.base.machine.processor import processor_name

    return f"{processor_name() or platform.machine()}, {os.cpu_count()} cores"


if __name__ == "__main__":
    sys.exit(main())
