"""Language models beside ONNX Runtime and its GenAI: prefill, decode and memory.

A decoder of Qwen2's or Llama's type with random weights, written by GenAI's model builder in
float32, float16 and 8 or 4 bits (`MatMulNBits`), is given one prompt and continued, each token the
likeliest. Every engine runs in a process of its own: `verax.generation.Generator`; ONNX Runtime,
past in and present out; GenAI, whose cache has room for all tokens at once; llama.cpp with a file
of the same shape and bits (from the wheel xllamacpp, where it is installed). Times are those of the
best of three runs behind a first one, which warms up: processor seconds on one thread, seconds on
several, where waiting threads count. Memory is the process's peak.

    python -m benchmarks.language_models FOLDER...                # folders of the model builder
    python -m benchmarks.language_models --make FOLDER --shape 1b # FOLDER/int4, FOLDER/int8, ...
    python -m benchmarks.language_models FOLDER/int8 --threads 2
    python -m benchmarks.language_models FOLDER/int4 --write docs/language_models_speed.md
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.language_model_files import FOLDERS, SEED, SHAPES, VOCABULARY, make

PROMPT, TOKENS, RUNS = 128, 32, 3
ROOMS = (512, 4096)

Continue = Callable[[Sequence[int], int], list[int]]
"""(prompt, how many) -> tokens; calls `MARK.decoding` when the first one is there."""


class Mark:
    """When a run began, and when its prompt was done. threads: of the engine."""

    prefilled = begun = 0.0
    threads = 1

    def clock(self) -> float:
        """The seconds that count."""
        return time.process_time() if self.threads == 1 else time.perf_counter()

    def decoding(self) -> None:
        self.prefilled = self.clock()


MARK = Mark()


def with_verax(folder: Path, room: int) -> Continue:
    from verax.generation import Generator

    generator = Generator(folder, threads=MARK.threads, cache=False, room=room)

    def run(prompt: Sequence[int], count: int) -> list[int]:
        tokens: list[int] = []
        steps = generator.stream(list(prompt), room - len(prompt), stop=())
        for step in itertools.islice(steps, count):
            if not tokens:
                MARK.decoding()
            tokens.append(int(step.tokens[0] or 0))
        return tokens

    return run


def with_onnxruntime(folder: Path, room: int) -> Continue:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = MARK.threads, 1
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options)
    pasts = [i for i in session.get_inputs() if i.name.startswith("past")]
    outputs = [o.name for o in session.get_outputs()]
    heads = json.loads((folder / "genai_config.json").read_text())["model"]["decoder"]
    shape = (1, heads["num_key_value_heads"], 0, heads["head_size"])
    dtype = np.float16 if pasts[0].type == "tensor(float16)" else np.float32

    def run(prompt: Sequence[int], count: int) -> list[int]:
        cache = {p.name: np.zeros(shape, dtype) for p in pasts}
        tokens, ids, seen = [], list(prompt), 0
        while len(tokens) < count:
            seen += len(ids)
            given = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, seen), np.int64)}
            found = dict(zip(outputs, session.run(None, given | cache), strict=True))
            cache = {n: found[n.replace("past_key_values", "present")] for n in cache}
            ids = [int(found["logits"][0, -1].argmax())]
            if not tokens:
                MARK.decoding()
            tokens += ids
        return tokens

    return run


def with_genai(folder: Path, room: int) -> Continue:
    import onnxruntime_genai as genai

    config = genai.Config(str(folder))
    config.overlay(json.dumps({"model": {"decoder": {"session_options": {
        "intra_op_num_threads": MARK.threads, "inter_op_num_threads": 1}}}}))  # fmt: skip
    model = genai.Model(config)

    def run(prompt: Sequence[int], count: int) -> list[int]:
        params = genai.GeneratorParams(model)
        params.set_search_options(max_length=room, min_length=room, do_sample=False)
        generator = genai.Generator(model, params)
        generator.append_tokens(np.array([prompt], np.int32))
        for i in range(count):
            generator.generate_next_token()
            if not i:
                MARK.decoding()
        return [int(t) for t in generator.get_sequence(0)[len(prompt) :]]

    return run


def with_llamacpp(folder: Path, room: int) -> Continue:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(folder / "model.gguf")
    params.n_ctx, params.n_parallel, params.n_gpu_layers = room, 1, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = MARK.threads
    params.cache_prompt, params.cache_ram_mib, params.warmup = False, 0, False
    server = xllamacpp.Server(params)

    def complete(prompt: Sequence[int], count: int) -> None:
        options = {"prompt": list(prompt), "n_predict": count, "temperature": 0.0}
        answer = server.handle_completions(options | {"ignore_eos": True, "cache_prompt": False})
        assert answer["usage"]["completion_tokens"] == count, answer

    def run(prompt: Sequence[int], count: int) -> list[int]:
        times = []
        for tokens in (1, count):  # the first token follows the prompt at once
            begin = MARK.clock()
            complete(prompt, tokens)
            times.append(MARK.clock() - begin)
        first, whole = times
        MARK.prefilled = MARK.clock() - (whole - first)
        MARK.begun = MARK.prefilled - first
        return []

    return run


ENGINES = {"Verax": with_verax, "ONNX Runtime": with_onnxruntime, "GenAI": with_genai,
           "llama.cpp": with_llamacpp}  # fmt: skip


def worker(engine: str, folder: Path, room: int) -> dict[str, Any]:
    """One engine, in this process."""
    prompt = np.random.default_rng(SEED).integers(3, VOCABULARY, PROMPT).tolist()
    run = ENGINES[engine](folder, room)
    begin = MARK.clock()
    run(prompt, 6)  # compiles, and finds every kernel
    first = MARK.clock() - begin
    prefill, decode, tokens = [], [], []
    for _ in range(RUNS):
        MARK.begun = MARK.clock()
        tokens = run(prompt, TOKENS)
        end = MARK.clock()
        prefill.append(PROMPT / (MARK.prefilled - MARK.begun))
        decode.append((TOKENS - 1) / (end - MARK.prefilled))
    return {
        "engine": engine,
        "room": room,
        "first": first,
        "prefill": max(prefill),
        "decode": max(decode),
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        "held": _held(),
        "tokens": tokens,
    }


def _held() -> float:
    """Megabytes of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def measured(folders: Sequence[Path], threads: int) -> list[dict[str, Any]]:
    """Rows of all engines, each in its own process."""
    found = []
    for folder in folders:
        for engine in ENGINES:
            if engine == "llama.cpp" and not (
                importlib.util.find_spec("xllamacpp") and (folder / "model.gguf").exists()
            ):
                continue
            for room in ROOMS if engine in ("Verax", "GenAI") else ROOMS[:1]:
                command = [sys.executable, "-m", "benchmarks.language_models", str(folder)]
                command += ["--worker", engine, "--room", str(room), "--threads", str(threads)]
                environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
                done = subprocess.run(
                    command, capture_output=True, text=True, check=False, env=environment
                )
                if done.returncode:
                    row = {"engine": engine, "room": room, "failed": done.stderr[-400:]}
                else:
                    row = json.loads(done.stdout.splitlines()[-1])
                found.append({"model": folder.name, "threads": threads, **row})
                print(json.dumps(found[-1]), flush=True)
    return found


def page(found: Sequence[dict[str, Any]]) -> str:
    """A table in Markdown."""
    lines = [
        "| weights | engine | room | first run s | prefill tokens/s | decode tokens/s | peak MB | "
        "held MB | tokens |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    own = {r["model"]: r.get("tokens") for r in reversed(found) if r["engine"] == "Verax"}
    for row in found:
        if "failed" in row:
            lines.append(f"| {row['model']} | {row['engine']} | {row['room']} | failed | | | | | |")
            continue
        ours = own.get(row["model"]) or []
        same = next((i for i, (a, b) in enumerate(zip(ours, row["tokens"])) if a != b), len(ours))
        room = "" if row["engine"] == "ONNX Runtime" else f"{row['room']:,}"
        equal = f"{same} of {len(ours)} equal" if row["tokens"] and row["engine"] != "Verax" else ""
        lines.append(
            f"| {row['model']} | {row['engine']} | {room} | {row['first']:.1f} | "
            f"{row['prefill']:.1f} | {row['decode']:.1f} | {row['megabytes']:,.0f} | "
            f"{row['held']:,.0f} | {equal} |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--make", nargs="*", choices=list(FOLDERS), help="write models into it")
    parser.add_argument("--shape", choices=list(SHAPES), default="24x896", help="of --make")
    parser.add_argument("--threads", type=int, default=1, help="of every engine")
    parser.add_argument("--worker", choices=list(ENGINES), help=argparse.SUPPRESS)
    parser.add_argument("--room", type=int, default=ROOMS[0], help=argparse.SUPPRESS)
    parser.add_argument("--write", type=Path, help="a file for the table")
    asked = parser.parse_args()
    MARK.threads = asked.threads
    if asked.make is not None:
        make(asked.folders[0], SHAPES[asked.shape], asked.make or list(FOLDERS))
    elif asked.worker:
        print(json.dumps(worker(asked.worker, asked.folders[0], asked.room)))
    else:
        table = page(measured(asked.folders, asked.threads))
        print(table)
        if asked.write:
            asked.write.write_text(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
