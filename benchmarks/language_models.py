"""Language models beside ONNX Runtime and its GenAI: prefill, decode and memory.

A decoder of Qwen2's type with random weights, written by GenAI's model builder in float32 and in
int4 (`MatMulNBits`), is given one prompt and continued, each token the likeliest. Every engine runs
in a process of its own, on one thread: `verax.generation.Generator`; ONNX Runtime, past in and
present out; GenAI, whose cache has room for all tokens at once. Times are processor seconds of the
second run, the first one warms up; memory is the process's peak.

    python -m benchmarks.language_models FOLDER...                # folders of the model builder
    python -m benchmarks.language_models --make FOLDER            # writes FOLDER/int4, FOLDER/fp32
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

PROMPT, TOKENS = 128, 32
ROOMS = (512, 4096)
SEED = 9
LAYERS, WIDTH, HEAD = 24, 896, 64
CONFIG = {"vocab_size": 32_000, "num_key_value_heads": 2, "max_position_embeddings": 8_192}
CONFIG |= {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}

Continue = Callable[[Sequence[int], int], list[int]]
"""(prompt, how many) -> tokens; calls `MARK.decoding` when the first one is there."""


class Mark:
    """When the prompt was done."""

    prefilled = 0.0

    def decoding(self) -> None:
        self.prefilled = time.process_time()


MARK = Mark()


def with_verax(folder: Path, room: int) -> Continue:
    from verax.generation import Generator

    generator = Generator(folder, threads=1, cache=False, room=room)

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
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options)
    pasts = [i for i in session.get_inputs() if i.name.startswith("past")]
    outputs = [o.name for o in session.get_outputs()]
    heads = json.loads((folder / "genai_config.json").read_text())["model"]["decoder"]
    shape = (1, heads["num_key_value_heads"], 0, heads["head_size"])

    def run(prompt: Sequence[int], count: int) -> list[int]:
        cache = {p.name: np.zeros(shape, np.float32) for p in pasts}
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
        "intra_op_num_threads": 1, "inter_op_num_threads": 1}}}}))  # fmt: skip
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


ENGINES = {"Verax": with_verax, "ONNX Runtime": with_onnxruntime, "GenAI": with_genai}


def worker(engine: str, folder: Path, room: int) -> dict[str, Any]:
    """One engine, in this process."""
    prompt = np.random.default_rng(SEED).integers(3, CONFIG["vocab_size"], PROMPT).tolist()
    run = ENGINES[engine](folder, room)
    begin = time.process_time()
    run(prompt, 6)  # compiles, and finds every kernel
    first = time.process_time() - begin
    begin = time.process_time()
    tokens = run(prompt, TOKENS)
    end = time.process_time()
    return {
        "engine": engine,
        "room": room,
        "first": first,
        "prefill": PROMPT / (MARK.prefilled - begin),
        "decode": (TOKENS - 1) / (end - MARK.prefilled),
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        "tokens": tokens,
    }


def make(folder: Path, layers: int, width: int) -> None:
    """Random weights, and what the model builder makes of them."""
    import tokenizers
    import torch
    import transformers

    torch.manual_seed(SEED)
    weights = folder / "weights"
    sizes = {"num_hidden_layers": layers, "hidden_size": width, "tie_word_embeddings": False}
    sizes |= {
        "num_attention_heads": width // HEAD,
        "intermediate_size": width * 38 // 7 // HEAD * HEAD,
    }
    config = transformers.Qwen2Config(**CONFIG, **sizes)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(weights)
    words = {chr(0x4E00 + i): i for i in range(CONFIG["vocab_size"] - 1)} | {"?": 31_999}
    own = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="?"))
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=own, unk_token="?", eos_token="?"
    ).save_pretrained(weights)  # the builder wants one
    package = importlib.util.find_spec("onnxruntime_genai")
    assert package is not None and package.origin is not None, "pip install onnxruntime-genai"
    builder = Path(package.origin).parent / "models" / "builder.py"
    for precision in ("int4", "fp32"):
        files = ["-i", weights, "-o", folder / precision, "-c", folder / "temporary"]
        command = [sys.executable, builder, *files, "-p", precision, "-e", "cpu"]
        subprocess.run([str(c) for c in command], check=True)


def measured(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Rows of all engines, each in its own process."""
    found = []
    for folder in folders:
        for engine in ENGINES:
            for room in ROOMS[:1] if engine == "ONNX Runtime" else ROOMS:
                command = [sys.executable, "-m", "benchmarks.language_models", str(folder)]
                command += ["--worker", engine, "--room", str(room)]
                done = subprocess.run(
                    command,
                    capture_output=True,
                    text=True,
                    check=False,
                    env=os.environ | {"OMP_NUM_THREADS": "1"},
                )
                if done.returncode:
                    row = {"engine": engine, "room": room, "failed": done.stderr[-400:]}
                else:
                    row = json.loads(done.stdout.splitlines()[-1])
                found.append({"model": folder.name, **row})
                print(json.dumps(found[-1]), flush=True)
    return found


def page(found: Sequence[dict[str, Any]]) -> str:
    """A table in Markdown."""
    lines = [
        "| weights | engine | room | first run s | prefill tokens/s | decode tokens/s | peak MB | "
        "tokens |",
        "|---|---|---|---|---|---|---|---|",
    ]
    own = {r["model"]: r.get("tokens") for r in reversed(found) if r["engine"] == "Verax"}
    for row in found:
        if "failed" in row:
            lines.append(f"| {row['model']} | {row['engine']} | {row['room']} | failed | | | | |")
            continue
        ours = own.get(row["model"]) or []
        same = next((i for i, (a, b) in enumerate(zip(ours, row["tokens"])) if a != b), len(ours))
        room = "" if row["engine"] == "ONNX Runtime" else f"{row['room']:,}"
        lines.append(
            f"| {row['model']} | {row['engine']} | {room} | {row['first']:.1f} | "
            f"{row['prefill']:.1f} | {row['decode']:.1f} | {row['megabytes']:,.0f} | "
            f"{'' if row['engine'] == 'Verax' else f'{same} of {len(ours)} equal'} |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--make", action="store_true", help="write models into the folder")
    parser.add_argument("--layers", type=int, default=LAYERS, help="of what --make writes")
    parser.add_argument("--width", type=int, default=WIDTH, help="likewise")
    parser.add_argument("--worker", choices=list(ENGINES), help=argparse.SUPPRESS)
    parser.add_argument("--room", type=int, default=ROOMS[0], help=argparse.SUPPRESS)
    parser.add_argument("--write", type=Path, help="a file for the table")
    asked = parser.parse_args()
    if asked.make:
        make(asked.folders[0], asked.layers, asked.width)
    elif asked.worker:
        print(json.dumps(worker(asked.worker, asked.folders[0], asked.room)))
    else:
        table = page(measured(asked.folders))
        print(table)
        if asked.write:
            asked.write.write_text(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
