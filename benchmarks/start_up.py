"""What it takes a fresh process to answer once: Verax beside its peers, each with one thread.

    python benchmarks/start_up.py resnet50.onnx --rounds 5
    python benchmarks/start_up.py resnet50.onnx --engines verax onnxruntime openvino

Counted from before the imports to the first answer. Verax compiles in a process of its own first
("cold"), and finds the program on the disk in those after it ("warm"); files are in the page cache.
Engines take turns. Seconds are the least of all rounds, of processor time and of a clock, which a
busy machine makes longer; memory is what the process held at most, in MB.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile

OPENING = """
import json, sys, time
import numpy as np

path, size = sys.argv[1], int(sys.argv[2])

def inputs(types):
    return {v: np.ones([d if isinstance(d, int) else size for d in dims], dtype)
            for v, (dims, dtype) in types.items()}
"""
CLOSING = """
seconds = time.process_time(), time.perf_counter() - begin
with open("/proc/self/status") as status:
    lines = dict(line.split(":", 1) for line in status if ":" in line)
print(json.dumps([*seconds, int(lines["VmHWM"].split()[0]) / 1024]))
"""
ENGINES = {
    "verax": """
import verax
exe = verax.compile(path, threads=1)
exe.run(inputs({v: (t.dims, t.dtype.numpy) for v, t in exe.inputs.items()}))
""",
    "onnxruntime": """
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
kinds = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32}
session.run(None, inputs({i.name: (i.shape, kinds[i.type]) for i in session.get_inputs()}))
""",
    "openvino": """
import openvino
settings = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}
compiled = openvino.Core().compile_model(path, "CPU", settings)
compiled(inputs({p.any_name: ([d.get_length() if d.is_static else "" for d in p.partial_shape],
                              p.element_type.to_dtype()) for p in compiled.inputs}))
""",
}


def measure(engine: str, model: str, size: int, environment: dict[str, str]) -> list[float]:
    """Seconds of processor time, seconds, and MB at most, of a fresh process."""
    clock = "import time; begin = time.perf_counter()\n"
    done = subprocess.run(
        [sys.executable, "-c", clock + OPENING + ENGINES[engine] + CLOSING, model, str(size)],
        stdout=subprocess.PIPE, text=True, check=True, env=environment,
    )  # fmt: skip
    figures: list[float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--size", type=int, default=1, help="of every open dimension")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=["verax", "onnxruntime"])
    arguments = parser.parse_args()
    runs: dict[str, list[list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "VERAX_CACHE": folder}
        if "verax" in arguments.engines:
            cold = measure("verax", arguments.model, arguments.size, environment)
            runs["verax, cold"] = [cold]
        for _ in range(arguments.rounds):
            for engine in arguments.engines:
                name = "verax, warm" if engine == "verax" else engine
                figures = measure(engine, arguments.model, arguments.size, environment)
                runs.setdefault(name, []).append(figures)
    print("| engine | processor time, s | clock, s | peak, MB |")
    print("|---|---|---|---|")
    for name, rows in runs.items():
        cpu, clock, peak = map(min, zip(*rows))
        print(f"| {name} | {cpu:.2f} | {clock:.2f} | {peak:.0f} |")


if __name__ == "__main__":
    main()
