"""Many runtimes in one process: does anything of ours crash beside ONNX Runtime and OpenVINO?

    python benchmarks/crowded.py --cases 500 --out out/crowded

Each batch of cases is a child process with faulthandler and core dumps on. A case draws steps in
random order: sessions of ONNX Runtime, compiled models of OpenVINO, programs of Verax (compiled,
or saved and loaded again), each with one to three threads, run, kept or dropped; all of them again,
against the float64 meaning; the collector; threads that run subjects meanwhile; forks; subjects
judged with fresh memory poisoned. At the end of a batch threads are left running, and the
interpreter ends under them. What dies is written to OUT with gdb's view of all its threads.

The threads that are left run programs of Verax. With `--leave all` they run the others' too, whose
Python interfaces do not bear that: Python 3.11 ends such a thread by unwinding it, and C++ code
that may not be unwound calls terminate. `--alone` draws no step of ours: what then still dies is
theirs.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import openvino
from onnx import TensorProto, helper, numpy_helper

import verax
from verax.runners.functions import FunctionRunner

BATCH_SECONDS = 900
Subject = Callable[[], np.ndarray]
TOLERANCE = 1e-3
"""Far above rounding: only memory that was trampled on is looked for here, the judge does better.
OpenVINO is asked for float32."""


def network(random: np.random.Generator) -> onnx.ModelProto:
    """Convolution, pooling, two dense layers: large enough to be shared out among threads."""
    rows, width, kinds = (int(random.integers(*b)) for b in ((2, 5), (19, 40), (5, 12)))
    channels = int(random.choice([6, 16, 17, 32]))
    w = random.standard_normal((channels, 3, 3, 3)).astype(np.float32) / 5
    d = random.standard_normal((channels, kinds)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "d"], ["m"]),
        helper.make_node("Softmax", ["m"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 3, 23, width])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, kinds])
    weights = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(d, "d")]
    graph = helper.make_graph(nodes, "net", [x], [y], weights)
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


class Case:
    """One network, its subjects that are alive, and threads that run them."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.random, self.folder = np.random.default_rng(seed), folder
        proto = network(self.random)
        self.bytes = proto.SerializeToString()
        shape = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim]
        self.x = self.random.standard_normal(shape).astype(np.float32)
        self.model = verax.load(self.bytes)
        self.expected = verax.reference(self.model, {"x": self.x})["y"]
        self.subjects: list[tuple[str, Subject]] = []
        self.end = threading.Event()
        self.threads: list[threading.Thread] = []
        self.wrong: list[str] = []

    def threads_drawn(self) -> int:
        return int(self.random.integers(1, 4))

    def ort(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads_drawn()
        options.log_severity_level = 3
        if self.random.random() < 0.3:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(
            self.bytes, options, providers=["CPUExecutionProvider"]
        )
        self.hold("onnxruntime", lambda: session.run(["y"], {"x": self.x})[0])

    def vino(self) -> None:
        core = openvino.Core()
        settings = {
            "INFERENCE_NUM_THREADS": self.threads_drawn(),
            "INFERENCE_PRECISION_HINT": "f32",
            "NUM_STREAMS": 1,
        }
        compiled = core.compile_model(core.read_model(self.bytes), "CPU", settings)
        lock = threading.Lock()

        def run() -> np.ndarray:
            with lock:  # its own rule: one inference of a request at a time
                return np.array(compiled({"x": self.x})[0])

        self.hold("openvino", run)

    def ours(self) -> None:
        level = int(self.random.integers(0, 2))
        exe = verax.compile(self.model, opt_level=level, threads=self.threads_drawn())
        self.hold("verax", lambda: exe.run({"x": self.x})["y"])

    def saved(self) -> None:
        exe = verax.compile(self.model, threads=self.threads_drawn())
        path = self.folder / f"{self.random.integers(1 << 40)}.vx"
        exe.save(path)
        loaded = verax.load(path)
        self.hold("verax", lambda: loaded.run({"x": self.x})["y"])

    def judged(self) -> None:
        """Right after the others were made: `check` poisons the memory that they allocate."""
        for name, subject in self.subjects[-2:]:
            verdict = verax.check(
                self.model, FunctionRunner(lambda x, s=subject: s(), name), {"x": self.x}
            )
            if verdict.exit_code == 1:
                self.wrong.append(f"{name} is judged {verdict.kind}")

    def hold(self, name: str, run: Subject) -> None:
        self.compare(name, run)
        if self.random.random() < 0.7:
            self.subjects.append((name, run))

    def compare(self, name: str, run: Subject) -> None:
        given = run()
        if not np.allclose(given, self.expected, atol=TOLERANCE, rtol=0):
            self.wrong.append(f"{name} is off by {np.abs(given - self.expected).max()}")

    def again(self) -> None:
        for name, run in self.subjects:
            self.compare(name, run)

    def drop(self) -> None:
        if self.subjects:
            self.subjects.pop(int(self.random.integers(len(self.subjects))))

    def collect(self) -> None:
        gc.collect()

    def meanwhile(self, daemon: bool = False, only: str = "") -> None:
        """A thread that runs one of the subjects until the case ends (never, for daemons)."""
        fit = [run for name, run in self.subjects if only in ("", name)]
        if not fit:
            return
        run = fit[int(self.random.integers(len(fit)))]

        def loop() -> None:
            while daemon or not self.end.is_set():
                run()

        thread = threading.Thread(target=loop, daemon=daemon)
        thread.start()
        if not daemon:
            self.threads.append(thread)

    def fork(self) -> None:
        """The child runs our programs; the others do not claim to survive a fork."""
        child = os.fork()
        if not child:
            signal.alarm(60)
            for name, run in self.subjects:
                if name == "verax":
                    self.compare(name, run)
            os._exit(1 if self.wrong else 0)
        code = os.waitpid(child, 0)[1]
        if code:
            self.wrong.append(f"a forked child ended with {code}")

    def run(self, steps: int, alone: bool) -> list[str]:
        kinds = [self.ort, self.vino, self.again, self.drop, self.collect, self.meanwhile]
        kinds += [] if alone else [self.ours, self.saved, self.judged, self.fork]
        odds = np.array([4, 3, 3, 2, 2, 3, 4, 2, 2, 1][: len(kinds)])
        for i in self.random.choice(len(kinds), steps, p=odds / odds.sum()):
            kinds[i]()
        self.again()
        self.end.set()
        for thread in self.threads:
            thread.join()
        return self.wrong


def batch(first: int, count: int, asked: argparse.Namespace) -> int:
    """Cases `first` and following, then an end of the interpreter under running threads."""
    faulthandler.enable()
    wrong: list[str] = []
    kept: list[Case] = []
    for seed in range(first, first + count):
        print(f"case {seed}", flush=True)
        case = Case(seed, Path.cwd())
        wrong += [f"case {seed}: {text}" for text in case.run(asked.steps, asked.alone)]
        if case.random.random() < 0.3:
            kept.append(case)
    for case in kept:
        case.meanwhile(daemon=True, only="" if asked.leave == "all" else "verax")
    print("leaving", json.dumps(wrong), flush=True)
    return 3 if wrong else 0


def examine(core: Path, to: Path) -> None:
    """What every thread was at, as gdb sees it."""
    with to.open("w") as stream:
        subprocess.run(
            ["gdb", "-batch", "-ex", "thread apply all bt 40", sys.executable, str(core)],
            stdout=stream,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=300,
        )


def campaign(asked: argparse.Namespace) -> int:
    cases, size, first, out = asked.cases, asked.size, asked.first, asked.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
    found = []
    for start in range(first, first + cases, size):
        count, began = min(size, first + cases - start), time.monotonic()
        command = [sys.executable, str(Path(__file__).resolve())]
        command += ["--batch", str(start), "--cases", str(count), "--steps", str(asked.steps)]
        command += ["--leave", asked.leave, *(["--alone"] if asked.alone else [])]
        with tempfile.TemporaryDirectory(prefix="verax-crowded-") as place:
            with (out / f"{start}.txt").open("w") as text:
                try:
                    code = subprocess.run(
                        command,
                        cwd=place,
                        stdout=text,
                        stderr=subprocess.STDOUT,
                        check=False,
                        timeout=BATCH_SECONDS,
                    ).returncode
                except subprocess.TimeoutExpired:
                    code = 124
            for core in Path(place).glob("core*"):
                if shutil.which("gdb"):
                    examine(core, out / f"{start}.gdb.txt")
        found.append({"first": start, "cases": count, "code": code})
        print(f"{found[-1]} {time.monotonic() - began:.0f} s", flush=True)
        (out / "summary.json").write_text(json.dumps(found, indent=1))
    bad = [b for b in found if b["code"]]
    print(f"{cases} cases in {len(found)} processes; {len(bad)} processes did not end well")
    return 1 if bad else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--size", type=int, default=10, help="cases in one process")
    parser.add_argument("--steps", type=int, default=14, help="steps of a case")
    parser.add_argument("--first", type=int, default=0, help="seed of the first case")
    parser.add_argument("--out", type=Path, default=Path("out/crowded"))
    parser.add_argument("--leave", choices=("ours", "all"), default="ours")
    parser.add_argument("--alone", action="store_true", help="no step of Verax")
    parser.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.batch is not None:
        return batch(asked.batch, asked.cases, asked)
    return campaign(asked)


if __name__ == "__main__":
    sys.exit(main())
