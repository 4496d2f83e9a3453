"""ONNX's own operator suites on an engine of ours, counted right, wrong and refused.

    python -m tests.suites.onnx_suite --engine reference --match conv --list

Cases run in forked worker processes with a time and a memory limit, so that one that crashes
counts as wrong and stops nothing. A case is right when every output has the case's type and shape
and lies within the case's own rtol and atol. For 16-bit floats, whose spacing exceeds the cases'
1e-3, rtol is at least two units in the last place: ONNX's own runner does so for bfloat16.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import multiprocessing
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from verax.base.errors import UnsupportedError, VeraxError
from verax.base.option_groups.settings import Settings
from verax.onnx_backend import prepare

SECONDS, GIGABYTES = 60, 8
EXACT = {
    name: lambda x: numpy_parts(np.fft.ifft(x[..., 0] + 1j * x[..., 1].astype(float), axis=1))
    for name in ("test_dft_inverse", "test_dft_inverse_opset19")
}
"""What cases expect, in double precision, of which the stored answers, rounded to float32 along the
way, are further off than the case's own tolerance allows (1.9e-7 where 0 is exact, 1e-7)."""
TWO_ULPS = {"bfloat16": 2.0**-6, "float16": 2.0**-9}
"""Two units in the last place, relative to the smallest number of a binade."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of one case: right, wrong, refused (unsupported, by name) or error."""

    name: str
    kind: str
    detail: str = ""


def node_cases() -> list[Any]:
    """ONNX's operator cases (1,884 in onnx 1.23)."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return collect_testcases(None)


def converted_cases() -> list[Any]:
    """Networks converted from PyTorch, stored in the onnx package (82)."""
    from onnx.backend.test.loader import load_model_tests

    return load_model_tests(kind="pytorch-converted")


def load_case(case: Any) -> tuple[onnx.ModelProto, list[tuple[list[Any], list[Any]]]]:
    """Model and data sets (inputs, outputs) of a case."""
    if case.model is not None:
        return case.model, [tuple(map(list, s)) for s in case.data_sets]  # type: ignore[misc]
    folder = Path(case.model_dir)
    sets = []
    for data in sorted(folder.glob("test_data_set_*")):
        sides = []
        for side in ("input", "output"):
            count = len(list(data.glob(f"{side}_*.pb")))
            files = [data / f"{side}_{i}.pb" for i in range(count)]
            sides.append([onnx.TensorProto.FromString(f.read_bytes()) for f in files])
        sets.append((sides[0], sides[1]))
    return onnx.load(folder / "model.onnx"), sets


def numpy_parts(numbers: np.ndarray) -> np.ndarray:
    """Complex numbers as ONNX has them: real and imaginary part along a last axis, float32."""
    return np.stack([numbers.real, numbers.imag], -1).astype(np.float32)


def _array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def run_case(case: Any, engine: str, settings: Settings) -> Outcome:
    """Run one case in this process."""
    try:
        model, sets = load_case(case)
        prepared = prepare(model, engine=engine, settings=settings)
        for inputs, outputs in sets:
            found = prepared.run([_array(v) for v in inputs])
            wanted = [_array(v) for v in outputs]
            if case.name in EXACT:
                wanted = [EXACT[case.name](_array(inputs[0]))]
            for i, (got, want) in enumerate(zip(found, wanted, strict=True)):
                if problem := differs(got, want, case.rtol, case.atol):
                    return Outcome(case.name, "wrong", f"output {i}: {problem}")
    except UnsupportedError as error:
        return Outcome(case.name, "refused", str(error).replace("\n", " "))
    except VeraxError as error:
        return Outcome(case.name, "error", str(error).replace("\n", " "))
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(where.filename).name}:{where.lineno}"
        return Outcome(case.name, "error", f"BUG {type(error).__name__} {error} ({place})")
    return Outcome(case.name, "right")


def differs(got: Any, want: Any, rtol: float, atol: float) -> str:
    """As `difference`, of sequences and of optionals, which may be None, too."""
    if not isinstance(want, list):
        if got is None or want is None:
            return "" if got is want else f"{got} for {want}"
        return difference(np.asarray(got), np.asarray(want), rtol, atol)
    if not isinstance(got, list) or len(got) != len(want):
        return f"{type(got).__name__} of {len(got)}, expected a sequence of {len(want)}"
    problems = (differs(g, w, rtol, atol) for g, w in zip(got, want))
    return next((f"tensor {i}: {p}" for i, p in enumerate(problems) if p), "")


def difference(got: np.ndarray, want: np.ndarray, rtol: float, atol: float) -> str:
    """What is wrong with an output, in a few words; empty when nothing is."""
    if got.dtype != want.dtype:
        return f"type {got.dtype}, expected {want.dtype}"
    if got.shape != want.shape:
        return f"shape {got.shape}, expected {want.shape}"
    if got.dtype.kind not in "fc" and not got.dtype.name.startswith(("bfloat", "float")):
        bad = got != want
    else:
        rtol = max(rtol, TWO_ULPS.get(got.dtype.name, 0.0))
        a, b = got.astype(np.float64), want.astype(np.float64)
        with np.errstate(all="ignore"):
            bad = ~np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True)
    if not bad.any():
        return ""
    place = tuple(int(i) for i in np.argwhere(bad)[0])
    return f"{bad.sum()} of {bad.size} differ, e.g. at {place}: {got[place]} for {want[place]}"


def _worker(pipe: Connection, cases: Sequence[Any], engine: str, settings: Settings) -> None:
    limit = GIGABYTES << 30
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    warnings.simplefilter("ignore")
    while (index := pipe.recv()) is not None:
        pipe.send(run_case(cases[index], engine, settings))


class _Process:
    """A worker with at most one case in hand."""

    def __init__(self, *args: Any) -> None:
        self.args = args
        self.start()

    def start(self) -> None:
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_worker, args=(theirs, *self.args), daemon=True)
        self.process.start()
        theirs.close()
        self.index: int | None = None

    def give(self, index: int) -> None:
        self.index, self.deadline = index, time.monotonic() + SECONDS
        self.pipe.send(index)

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def run_suite(
    cases: Sequence[Any], engine: str, settings: Settings, workers: int = 2
) -> list[Outcome]:
    """Run every case; outcomes in the order of the cases."""
    outcomes: dict[int, Outcome] = {}
    waiting = collections.deque(range(len(cases)))
    pool = [_Process(cases, engine, settings) for _ in range(workers)]
    try:
        while len(outcomes) < len(cases):
            for worker in pool:
                if worker.index is None and waiting:
                    worker.give(waiting.popleft())
            wait([w.pipe for w in pool if w.index is not None], timeout=1.0)
            for worker in pool:
                if worker.index is not None:
                    _collect(worker, cases, outcomes)
    finally:
        for worker in pool:
            worker.stop()
    return [outcomes[i] for i in range(len(cases))]


def _collect(worker: _Process, cases: Sequence[Any], outcomes: dict[int, Outcome]) -> None:
    index = worker.index
    assert index is not None
    failure = ""
    try:
        if worker.pipe.poll():
            outcomes[index] = worker.pipe.recv()
            worker.index = None
            return
        if time.monotonic() > worker.deadline:
            failure = f"no answer within {SECONDS} s"
    except (EOFError, OSError):
        worker.process.join()
        failure = f"the process died with exit code {worker.process.exitcode}"
    if failure:
        outcomes[index] = Outcome(cases[index].name, "wrong", failure)
        worker.stop()
        worker.start()


def by_operator(cases: Sequence[Any], outcomes: Sequence[Outcome]) -> str:
    """Lines of right of all cases by operator, those with refused or wrong ones first. A case that
    is written out in other operators belongs to the operator that it stands for."""
    last = {c.name: load_case(c)[0].graph.node[-1].op_type for c in cases}
    table: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for outcome in outcomes:
        whole = outcome.name.partition("_expanded")[0]
        table[last.get(whole, last[outcome.name])][outcome.kind] += 1
    rows = sorted(table.items(), key=lambda row: (row[1]["right"] - row[1].total(), row[0]))
    return "\n".join(
        f"{name:28}{kinds['right']:4} of {kinds.total():4}"
        + "".join(f", {n} {kind}" for kind, n in sorted(kinds.items()) if kind != "right")
        for name, kinds in rows
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Print counts and lists; exit code 1 when anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--engine", default="reference", choices=("reference", "compiler"))
    parser.add_argument("--suite", default="node", choices=("node", "pytorch-converted"))
    parser.add_argument("--opt-level", type=int, default=1)
    parser.add_argument("--match", default="", help="run cases whose name contains one of a,b,c")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--refused", action="store_true", help="list refused cases, too")
    parser.add_argument("--by-operator", action="store_true", help="count by operator, too")
    parser.add_argument("--json", help="write outcomes to a file")
    options = parser.parse_args(argv)
    cases = node_cases() if options.suite == "node" else converted_cases()
    parts = options.match.split(",")
    cases = [c for c in cases if any(part in c.name for part in parts)]
    settings = Settings(opt_level=options.opt_level, threads=1)
    outcomes = run_suite(cases, options.engine, settings, options.workers)
    for kind in ("refused", "error", "wrong"):
        if kind == "refused" and not options.refused:
            continue
        for outcome in outcomes:
            if outcome.kind == kind:
                print(f"{kind:8}{outcome.name}: {outcome.detail[:300]}")
    if options.by_operator:
        print(by_operator(cases, outcomes))
    counts = collections.Counter(o.kind for o in outcomes)
    print(f"{options.engine}: {len(outcomes)} cases, {dict(counts)}")
    if options.json:
        Path(options.json).write_text(json.dumps([dataclasses.asdict(o) for o in outcomes]))
    return 1 if counts["wrong"] or counts["error"] else 0


if __name__ == "__main__":
    sys.exit(main())
