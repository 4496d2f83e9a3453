"""Damage for files of any format: bytes, words and whole tokens, also inside of archives.

    python -m tests.formats.fuzzing 1000 pt2 keras      # that many mutations of each seed; figures
    python -m tests.formats.fuzzing 1000 --run          # all formats; what is imported is run, too

The figures name whatever was neither a model nor a clear error, the slowest and the largest.
"""

from __future__ import annotations

import copy
import io
import json
import re
import struct
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tests.formats.confined import Outcome, outcomes
from tests.formats.open_files import OPEN
from tests.formats.small_files import EXAMPLES, SMALL, Files, written
from tests.frontends.from_mxnet.mxnet_models import stored as mxnet_cases
from tests.runtime.vx_mutations import at, places

BYTES = (0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF)
WORDS = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32 - 4)
NUMBERS = (b"0", b"-1", b"1", b"2", b"9999999999", b"1e999", b"-9223372036854775809", b"null",
           b"[]", b"{}", b'""', b"true", b"NaN")  # fmt: skip
TOKEN = re.compile(rb'"[^"]{0,80}"|-?\d[\d.e+-]*|true|false|null|\(.*?\)')
BATCH = 500
MXNET_CASES = ("deconv_target", "pool_lp", "rnn_rnn_tanh_2", "box_nms_2", "slice_axis_open", "pad")


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """The data with one to four changes."""
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 5))):
        if changed:
            _mutate(changed, rng)
    return bytes(changed)


def _mutate(data: bytearray, rng: np.random.Generator) -> None:
    at, kind = int(rng.integers(len(data))), int(rng.integers(8))
    if kind == 0:
        data[at] ^= 1 << int(rng.integers(8))
    elif kind == 1:
        data[at] = int(rng.choice(BYTES))
    elif kind == 2:
        word = int(rng.choice((*WORDS, len(data), at)))
        data[at : at + 4] = struct.pack("<I", word)
    elif kind == 3:
        del data[at : at + int(rng.integers(1, 40))]
    elif kind == 4:
        data[at:at] = rng.bytes(int(rng.integers(1, 9)))
    elif kind == 5:
        other = int(rng.integers(len(data)))
        data[at:at] = data[other : other + int(rng.integers(1, 60))]
    elif kind == 6 and rng.random() < 0.2:
        del data[at:]
    else:
        _token(data, at, rng)


def _token(data: bytearray, at: int, rng: np.random.Generator) -> None:
    """Replace a token of text by another of the same file, or by an extreme value."""
    found = TOKEN.search(data, at, at + 4000)
    if found is None:
        return
    other = TOKEN.search(data, int(rng.integers(len(data))))
    swap = other is not None and rng.random() < 0.5
    new = other[0] if other is not None and swap else NUMBERS[int(rng.integers(len(NUMBERS)))]
    data[found.start() : found.end()] = new


def damaged(files: Files, rng: np.random.Generator) -> Files:
    """The files with one of them damaged; half of the damage to a zip is inside of a member, half
    of that to JSON leaves it JSON."""
    name = list(files)[int(rng.integers(len(files)))]
    data = files[name]
    if data[:2] == b"PK" and rng.random() < 0.5:
        return {**files, name: _inside(data, rng)}
    return {**files, name: _by_kind(data, rng)}


def _by_kind(data: bytes, rng: np.random.Generator) -> bytes:
    """As `mutated`, or JSON with one to three other leaves: damage to its bytes rarely leaves it
    readable."""
    if data[:1] in (b"{", b"[") and rng.random() < 0.5:
        tree = json.loads(data)
        for _ in range(int(rng.integers(1, 4))):
            _change_leaf(tree, rng)
        return json.dumps(tree).encode()
    return mutated(data, rng)


def _change_leaf(tree: Any, rng: np.random.Generator) -> None:
    """A leaf becomes one near to it, or another one's value; texts have other digits."""
    leaves = [p for p in places(tree) if p and not isinstance(at(tree, p), dict | list)]
    if not leaves:
        return
    path, other = (leaves[int(rng.integers(len(leaves)))] for _ in range(2))
    old = at(tree, path)
    new = at(tree, other)
    if rng.random() < 0.7:
        if isinstance(old, bool):
            new = not old
        elif isinstance(old, int | float):
            new = old + int(rng.choice((-1, 1, 7)))
        elif isinstance(old, str) and (digits := [m.start() for m in re.finditer(r"\d", old)]):
            where = digits[int(rng.integers(len(digits)))]
            new = f"{old[:where]}{rng.integers(12)}{old[where + 1 :]}"
    at(tree, path[:-1])[path[-1]] = new


def _inside(data: bytes, rng: np.random.Generator) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = {n: archive.read(n) for n in archive.namelist()}
    sizes = np.array([len(d) ** 0.5 for d in entries.values()])
    chosen = list(entries)[int(rng.choice(len(entries), p=sizes / sizes.sum()))]
    entries[chosen] = _by_kind(entries[chosen], rng)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def seeds() -> dict[str, list[Files]]:
    """What is mutated: the small files, those with open sizes, the example network, and operators
    that MXNet's files hold."""
    found = {kind: [make()] for kind, make in SMALL.items()}
    for kind, (make, *_) in OPEN.items():
        found[kind.partition(" ")[0]].append(make())
    for path in EXAMPLES.glob("digits.*"):
        kind = path.suffix[1:]
        files = {path.name: path.read_bytes()}
        if files not in found[kind]:
            found[kind].append(files)
    found["mxnet"] += [_mxnet_case(name) for name in MXNET_CASES]
    return found


def _mxnet_case(name: str) -> Files:
    """A stored operator; its symbol says the shapes of the inputs, so that it loads by itself."""
    case = mxnet_cases()[name]
    symbol = copy.deepcopy(case.symbol)
    for node in symbol["nodes"]:
        if node["name"] in case.inputs:
            shape = str(case.inputs[node["name"]].shape)
            node.setdefault("attrs", {})["__shape__"] = shape
    return {"net-symbol.json": json.dumps(symbol).encode(), "net-0000.params": case.params}


@dataclass
class Tally:
    """What became of the mutations of one format."""

    kinds: Counter[str] = field(default_factory=Counter)
    unclear: list[tuple[int, Outcome]] = field(default_factory=list)
    slowest: float = 0.0
    largest: int = 0

    def add(self, number: int, outcome: Outcome) -> None:
        self.kinds[outcome.kind] += 1
        if not outcome.clear:
            self.unclear.append((number, outcome))
        self.slowest = max(self.slowest, outcome.seconds)
        self.largest = max(self.largest, outcome.memory)


def fuzzed(
    kinds: Sequence[str], each: int, seed: int = 0, *, run: bool = False
) -> dict[str, Tally]:
    """Mutate every seed of the formats `each` times; mutation i is `damaged(files,
    default_rng(seed + i))`, and the numbers of unclear ones are those i. run: also compile and run
    what is imported."""
    tallies = {kind: Tally() for kind in kinds}
    jobs = [
        (kind, files, seed + i) for kind in kinds for files in seeds()[kind] for i in range(each)
    ]
    for start in range(0, len(jobs), BATCH):
        part = jobs[start : start + BATCH]
        with tempfile.TemporaryDirectory() as folder:
            paths = [
                written(Path(folder) / str(j), damaged(files, np.random.default_rng(number)))
                for j, (_, files, number) in enumerate(part)
            ]
            found = outcomes(paths, run=run)
        for (kind, _, number), outcome in zip(part, found, strict=True):
            tallies[kind].add(number, outcome)
    return tallies


def main() -> None:
    each, *kinds = (a for a in sys.argv[1:] if a != "--run")
    for kind in kinds or SMALL:
        tally = fuzzed([kind], int(each), run="--run" in sys.argv)[kind]
        print(
            f"{kind:10} {dict(tally.kinds)}; unclear {len(tally.unclear)}; slowest "
            f"{tally.slowest:.2f} s, largest {tally.largest / 1e6:.0f} MB", flush=True,
        )  # fmt: skip
        for number, outcome in tally.unclear:
            print("   ", number, outcome.kind, outcome.text[-300:], flush=True)


if __name__ == "__main__":
    main()
