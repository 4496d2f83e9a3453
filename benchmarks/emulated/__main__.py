"""Are the bits those of this machine on processors that nobody here has?

    python -m benchmarks.emulated examples/digits/digits.onnx net.tflite --targets avx512 avx512vnni
    python benchmarks/bits.py --stored bits.json emulated.json      # one page of both

Each network is compiled at each level for each target, and its code, weights and inputs are put on
the disk of an emulated PC that has that processor (`machine`). What it writes back is hashed as
`benchmarks/bits.py` hashes, on the same inputs, and held against this machine's own run. Exit code
1 when bits differ.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import sys
import time
from pathlib import Path

from benchmarks import bits
from benchmarks.emulated import machine

import verax
from verax.base.errors import UnsupportedError
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.judge.inputs import draw_inputs


def main(arguments: list[str] | None = None) -> int:
    """What the file's first lines say; writes runs for `benchmarks/bits.py` with --json."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("networks", nargs="+")
    parser.add_argument("--targets", nargs="+", choices=machine.PROCESSORS, default=["avx512vnni"])
    parser.add_argument("--levels", nargs="+", type=int, choices=(0, 1, 2, 3), default=[1, 3])
    parser.add_argument("--shape", action="append", default=[], help="NAME=1x3x112x112")
    parser.add_argument("--seconds", type=float, default=600, help="for one run")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    if lacking := machine.missing():
        print(f"not installed: {', '.join(lacking)}", file=sys.stderr)
        return 2
    found: list[bits.Run] = []
    broken = False
    for path in given.networks:
        shapes = dict(map(bits.shape_of, given.shape))
        graph = verax.load(path, shapes=shapes).graph
        inputs = draw_inputs(graph)[0]
        for level in given.levels:
            want = bits.digest(compile(graph, Settings(opt_level=level, threads=1)).run(inputs))
            for target in given.targets:
                settings = Settings(opt_level=level, threads=1, target=target)
                begin = time.perf_counter()
                try:
                    image = compile(graph, settings).specialized.binary
                    outputs = machine.run(image, inputs, given.seconds)
                except UnsupportedError as error:
                    print(f"{Path(path).name} O{level} {target}: {error}", flush=True)
                    continue
                run = bits.Run(
                    Path(path).name, bits.digest(inputs)[: bits.SHOWN],
                    f"bochs {machine.PROCESSORS[target]}", platform.machine(), target, level, 1,
                    bits.digest(outputs), round(time.perf_counter() - begin, 2),
                )  # fmt: skip
                found.append(run)
                broken |= run.digest != want
                same = "as here" if run.digest == want else f"NOT {want[: bits.SHOWN]} as here"
                what = f"{run.network} O{level} {target} {run.digest[: bits.SHOWN]}"
                print(f"{what} {same}, {run.seconds:.0f} s", flush=True)
    if given.json:
        given.json.write_text(json.dumps([dataclasses.asdict(run) for run in found], indent=1))
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
