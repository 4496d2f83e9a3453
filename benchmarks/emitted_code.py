"""Digests of the code that the compiler emits, to prove that a change of the compiler emits the
same: recorded once with the old tree, once with the new one, and compared.

    PYTHONPATH=old/src python benchmarks/emitted_code.py record old.json --files FOLDER
    PYTHONPATH=new/src python benchmarks/emitted_code.py record new.json --files FOLDER
    python benchmarks/emitted_code.py compare old.json new.json

Each network of the panel is compiled at O1 and O3 for several targets and numbers of threads, as
far as the text that LLVM gets: equal text, weights and schedule are equal object code, and without
LLVM all of it takes a minute or two. Recorded are SHA-256 of the text, of the weights, of the rest
of the binary, of the plan and of what the recipe says of numbers. `--files` keeps the networks'
files, which are written once. With `--operators` every case of every operator is compiled as well,
its further inputs fed and constant, which reaches the kernels that no network of the panel calls.
Exit code of `compare`: 1 where a digest differs.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import json
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

import numpy as np

import verax
from panel_files import NAMES, SHAPES, Skipped, source_of
from verax.base.errors import VeraxError
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.place.binary import assembly
from verax.frontends.model import Model
from verax.ir.graph import Builder, Graph, specialize
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType

MODELS = Path("../shared/models")
SETTINGS: tuple[Settings, ...] = (
    Settings(1, threads=1, target="avx512bf16"),
    Settings(3, threads=2, target="avx512bf16", allow=("bf16",)),
    Settings(3, threads=1, target="avx512vnni"),
    Settings(3, threads=2, target="avx2"),
)
"""Both levels, one and two threads, every kind of product of bytes, pairs of bfloat16."""
OPERATOR_SETTINGS: tuple[Settings, ...] = (
    Settings(1, threads=1, target="avx512bf16"),
    Settings(3, threads=2, target="avx2"),
)
Digests = dict[str, str]


@contextlib.contextmanager
def without_llvm() -> Iterator[None]:
    """While programs are compiled to the text that LLVM would get; they cannot be run."""

    def digest_of(text: str, target: object) -> bytes:
        return hashlib.sha256(text.encode()).digest()

    def text_digests(self: assembly.Assembly) -> bytes:
        own = digest_of(self.module.ir_text(), self.target)
        parts = [(self._result(p, write), names) for p, write, names in self._entries]
        return repr([own, *parts]).encode()

    assembly.COMPILED_KERNELS.forget()
    try:
        with (
            mock.patch.object(assembly, "code_of", digest_of),
            mock.patch.object(assembly.Assembly, "object_code", text_digests),
            mock.patch("verax.compiler.specialize.load_program"),
        ):
            yield
    finally:
        assembly.COMPILED_KERNELS.forget()


def digests_of(graph: Graph, settings: Settings) -> Digests:
    """SHA-256 of all that a program is made of, by what it is. Call it in `without_llvm`."""
    program = compile(graph, settings).specialized
    binary, recipe = program.binary, program.recipe(settings)
    rest = dataclasses.replace(binary, object_code=b"", weights=np.zeros(0, np.uint8))
    numbers = [(r.name, r.digest) for r in recipe.rewritings], dict(recipe.algorithms)
    parts = {
        "code": binary.object_code,
        "weights": binary.weights.tobytes(),
        "image": repr(rest).encode(),
        "plan": str(program.plan).encode(),
        "numbers": repr(numbers).encode(),
    }
    return {name: hashlib.sha256(content).hexdigest() for name, content in parts.items()}


def network_of(name: str, folder: Path, models: Path) -> Graph:
    """The graph of one of the panel's networks, batch 1. Raises `Skipped`."""
    loaded = verax.load(source_of(name, 1, folder, models), shapes=SHAPES.get(name))
    assert isinstance(loaded, Model)
    return specialize(loaded.graph, dict.fromkeys(loaded.graph.symbols(), 1))


def operator_graphs(name: str) -> Iterator[tuple[str, Graph]]:
    """A graph for each case of an operator, the inputs behind the first fed or constant."""
    seed = zlib.crc32(f"emitted code of {name}".encode())
    for number, case in enumerate(REGISTRY[name].cases(np.random.default_rng(seed))):
        for constant in (False, True):
            builder = Builder(name)
            values: list[str | None] = []
            for i, array in enumerate(case.inputs):
                if array is None:
                    values.append(None)
                elif i in case.constant or (constant and i):
                    values.append(builder.constant(np.array(array), f"c{i}"))
                else:
                    values.append(builder.input(f"x{i}", TensorType.of(array)))
            graph = builder.graph(builder.add_all(case.op, values))
            yield f"{name} {number}{' constant' * constant}", graph


def record_operators() -> dict[str, Digests]:
    """Digests of every case of every operator; "refused" where it is not compiled."""
    found: dict[str, Digests] = {}
    with without_llvm():
        for name in sorted(n for n, op in REGISTRY.items() if not op.unsupported):
            for run, graph in operator_graphs(name):
                for one in OPERATOR_SETTINGS:
                    try:
                        digests = digests_of(graph, one)
                    except VeraxError as error:
                        digests = {"refused": str(error)}
                    found[f"{run} O{one.opt_level} {one.target}"] = digests
    return found


def differences(old: dict[str, Digests], new: dict[str, Digests]) -> list[str]:
    """What differs between two recordings, in words."""
    found = [f"{run}: only in one of the two" for run in sorted(old.keys() ^ new.keys())]
    for run in old.keys() & new.keys():
        parts = [part for part in old[run] if old[run][part] != new[run].get(part)]
        found += [f"{run}: {', '.join(parts)}"] if parts else []
    return sorted(found)


def record(names: Sequence[str], folder: Path, models: Path) -> dict[str, Digests]:
    """Digests by network and settings; what was skipped is printed."""
    found: dict[str, Digests] = {}
    for name in names:
        try:
            graph = network_of(name, folder, models)
        except Skipped as why:
            print(f"{name}: skipped, {why}", flush=True)
            continue
        begun = time.process_time()
        with without_llvm():
            for one in SETTINGS:
                run = f"{name} O{one.opt_level} {one.target} {one.threads} threads"
                found[run] = digests_of(graph, one)
        print(f"{name}: {time.process_time() - begun:.1f} s", flush=True)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("to", type=Path)
    recording.add_argument("--files", type=Path, required=True, help="where networks are kept")
    recording.add_argument("--models", type=Path, default=MODELS, help="real networks")
    recording.add_argument("--networks", nargs="*", default=NAMES)
    recording.add_argument(
        "--operators", action="store_true", help="every operator's cases as well"
    )
    comparing = commands.add_parser("compare")
    comparing.add_argument("old", type=Path)
    comparing.add_argument("new", type=Path)
    given = parser.parse_args(arguments)
    if given.command == "record":
        print(f"the compiler of {Path(verax.__file__).parent}")
        found = record(given.networks, given.files, given.models)
        if given.operators:
            found |= record_operators()
        given.to.write_text(json.dumps(found, indent=1))
        return 0
    old, new = (json.loads(path.read_text()) for path in (given.old, given.new))
    apart = differences(old, new)
    print("\n".join(apart) or f"equal: all {len(old)} programs")
    return 1 if apart else 0


if __name__ == "__main__":
    sys.exit(main())
