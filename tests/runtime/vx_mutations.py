"""Hostile .vx files: a sound one, changed in a few places, with all its checksums made right again.

    python -m tests.runtime.vx_mutations < names.txt

loads and runs every file named on a line of its own, and prints a JSON line about each before the
next one. What is never changed are the instructions themselves: whoever changes those may do
anything, and no check could tell.
"""

from __future__ import annotations

import copy
import hashlib
import json
import resource
import signal
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import verax
from verax.base.errors import VeraxError
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import DType, TensorType

PREFIX, PAGE = struct.Struct("<8sII32s"), 4096
SECONDS, MEMORY = 20, 4 << 30
"""What one file may take in a child."""


# Sound programs


def convolution() -> Graph:
    """Native code on several threads: weights, borders, two inputs and outputs."""
    rng = np.random.default_rng(31)
    b = Builder("convolution")
    x = b.input("x", TensorType(DType.float32, (2, 3, 19, 23)))
    y = b.input("y", TensorType(DType.float32, (5,)))
    w = b.constant(rng.standard_normal((16, 3, 3, 3), np.float32), "w")
    v = b.constant(rng.standard_normal((16, 5), np.float32), "v")
    h = b.add(REGISTRY["Conv"](pads=((1, 1), (1, 1))), [x, w])
    h = b.add(REGISTRY["Relu"](), [h], ["h"])
    z = b.add(REGISTRY["MatMul"](), [v, y], ["z"])
    return b.graph([h, z])


def gathering() -> Graph:
    """A checked index, a table of positions among the weights, and a step in Python."""
    rng = np.random.default_rng(32)
    b = Builder("gathering")
    x = b.input("x", TensorType(DType.float32, (7, 4)))
    index = b.input("i", TensorType(DType.int64, (3, 2)))
    taken = b.add(REGISTRY["Gather"](), [x, index])
    axis = b.constant(np.array(1, np.int64), "axis")
    summed = b.add(REGISTRY["CumSum"](), [taken, axis], name="sums")
    scale = b.constant(rng.standard_normal(4).astype(np.float32), "scale")
    return b.graph([b.add(REGISTRY["Mul"](), [summed, scale], ["scaled"])])


def in_python() -> Graph:
    """No native code; values whose sizes only running can tell."""
    b = Builder("in_python")
    x = b.input("x", TensorType(DType.float32, (3, 5)))
    k = b.constant(np.array([2], np.int64), "k")
    best, places = b.add_all(REGISTRY["TopK"](), [x, k], ["best", "places"], "top")
    found = b.add(REGISTRY["NonZero"](), [best], ["found"], "nonzero")
    counted = b.add(REGISTRY["CumSum"](), [found, b.constant(np.array(0, np.int64), "axis")])
    return b.graph([places, counted])


SOUND: dict[str, Callable[[], Graph]] = {
    "convolution": convolution,
    "gathering": gathering,
    "in_python": in_python,
}


class Parts:
    """A .vx file taken apart."""

    def __init__(self, data: bytes) -> None:
        self.magic, self.version, length, _ = PREFIX.unpack_from(data)
        self.header = json.loads(data[PREFIX.size : PREFIX.size + length])
        start = -(-(PREFIX.size + length) // PAGE) * PAGE
        self.sections = {}
        for name, entry in self.header["sections"].items():
            begin = start + entry["offset"]
            self.sections[name] = data[begin : begin + entry["size"]]

    def assembled(self, text: bytes | None = None, *, tables: bool = True) -> bytes:
        """The file with right checksums; tables: with right offsets and sizes as well."""
        body = b""
        table = self.header.get("sections") if isinstance(self.header, dict) else None
        for name, content in self.sections.items():
            if tables and isinstance(table, dict):
                digest = hashlib.sha256(content).hexdigest()
                table[name] = {"offset": len(body), "size": len(content), "sha256": digest}
            body += content + bytes(-len(content) % PAGE)
        if text is None:
            text = json.dumps(self.header).encode()
        prefix = PREFIX.pack(self.magic, self.version, len(text), hashlib.sha256(text).digest())
        return prefix + text + bytes(-(PREFIX.size + len(text)) % PAGE) + body


# Changes


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of everything in a JSON tree."""
    yield path
    if isinstance(tree, dict | list):
        for key, child in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from places(child, (*path, key))


def at(tree: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


STRANGE: list[Any] = [
    *(None, True, False, 0, -1, 1, 2, 63, 1 << 31, (1 << 63) - 1, 1 << 63, 10**40, 1.5, 1e308, ""),
    *("x", "segment_0", "pool_stop", "memcpy", "\ud800", "\0", "float64", "python", "io", "[/red]"),
    *([], {}, [[]], [1] * 70, {"kind": "Segment"}, "9" * 70_000, "float32[" + "(" * 900),
    *("Conv(" + "-" * 3000 + "1)", "Pad(pads=" + "(" * 150 + ")" * 150 + ")", "Add()", "Relu(1)"),
    *("TopK(axis=9)", "CumSum(axis='x')", "Reshape()", "NonZero()", "Conv(groups=0)", "Gather()"),
]


def change(rng: np.random.Generator, header: Any) -> None:
    """One change somewhere in the header, of a kind that suits the place."""
    paths = list(places(header))[1:]
    if not paths:  # earlier changes have left nothing
        return
    path = paths[int(rng.integers(len(paths)))]
    parent, key, old = at(header, path[:-1]), path[-1], at(header, path)
    kind = int(rng.integers(7))
    if kind == 0:
        parent[key] = copy.deepcopy(STRANGE[int(rng.integers(len(STRANGE)))])
    elif kind == 1:  # something of the same kind from elsewhere
        others = [at(header, p) for p in paths if type(at(header, p)) is type(old)]
        parent[key] = copy.deepcopy(others[int(rng.integers(len(others)))])
    elif kind == 2 and isinstance(old, int):
        steps = (old + 1, old - 1, 2 * old, old // 2, old + 4, old + 64, old * 4096, -old)
        parent[key] = steps[int(rng.integers(len(steps)))]
    elif kind == 3:
        del parent[key]
    elif kind == 4 and isinstance(parent, list):
        parent.insert(int(rng.integers(len(parent) + 1)), copy.deepcopy(old))
    elif kind == 5 and isinstance(parent, list):
        other = int(rng.integers(len(parent)))
        parent[key], parent[other] = parent[other], old
    elif isinstance(parent, dict):
        parent["unknown"] = old
    else:
        parent[key] = [copy.deepcopy(old)]


def mutants(data: bytes, seed: int, count: int) -> Iterator[tuple[str, bytes]]:
    """(label, file): hostile files made of a sound one."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        parts = Parts(data)
        kind = number % 8
        if kind == 7:
            yield f"{number} content", content(rng, parts)
            continue
        for _ in range(1 + int(rng.integers(3))):
            change(rng, parts.header)
        # In the others the table of sections keeps what was done to it.
        yield f"{number} fields", parts.assembled(tables=kind < 4)


def content(rng: np.random.Generator, parts: Parts) -> bytes:
    """Sections of other sizes and with other content, outside of the instructions."""
    code, weights = bytearray(parts.sections["code"]), bytearray(parts.sections["weights"])
    kind = int(rng.integers(6))
    if kind == 0:
        cut = int(rng.integers(len(code) + 1))
        parts.sections["code"] = bytes(code[:cut])
    elif kind == 1:
        parts.sections["weights"] = bytes(weights[: int(rng.integers(len(weights) + 1))])
    elif kind == 2 and weights:
        where = int(rng.integers(len(weights)))
        weights[where : where + 8] = rng.bytes(8)
        parts.sections["weights"] = bytes(weights)
    elif kind == 3:
        parts.sections["code"], parts.sections["weights"] = bytes(weights), bytes(code)
    elif code:  # the object file's own header and tables, which end it
        tables = int.from_bytes(code[40:48], "little")
        spans = [*range(4, 64), *range(tables, len(code))]
        for _ in range(1 + int(rng.integers(4))):
            where = spans[int(rng.integers(len(spans)))]
            code[where] = int(rng.integers(256))
        parts.sections["code"] = bytes(code)
    return parts.assembled()


def texts(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Headers that are no JSON, or too much of it."""
    plain = json.dumps(Parts(data).header).encode()
    twice = plain.replace(b'"arena_bytes": ', b'"arena_bytes": 1, "arena_bytes": ', 1)
    number = plain.replace(b'"arena_bytes": ', b'"arena_bytes": ' + b"9" * 6000, 1)
    for label, text in {
        "empty": b"",
        "deep lists": b"[" * 200_000,
        "deep and closed": b"[" * 100_000 + b"]" * 100_000,
        "deep objects": b'{"a":' * 100_000,
        "deep inside": plain.replace(b'"notes": {', b'"notes": {"graph": ' + b"[" * 99_999, 1),
        "a list": b"[]",
        "a number": b"7",
        "not UTF-8": b"\xff\xfe" + plain,
        "UTF-16": plain.decode().encode("utf-16"),
        "twice": twice,
        "long number": number,
        "NaN": plain.replace(b'"opt_level": 1', b'"opt_level": NaN', 1),
        "infinity": plain.replace(b'"opt_level": 1', b'"opt_level": 1e999', 1),
    }.items():
        yield label, Parts(data).assembled(text)


# The child


def outcome(path: str) -> str:
    """What loading and running a file does: the numbers' digest, or an error's class."""
    try:
        loaded = verax.load(path)
        rng = np.random.default_rng(5)
        given = {}
        for name, type_ in loaded.inputs.items():
            if type_.size * type_.dtype.itemsize > 1 << 26:
                return "large"
            drawn = rng.integers(0, 3, type_.shape).astype(type_.dtype.numpy)
            given[name] = drawn
        found = loaded.run(given)
        assert isinstance(loaded.plan, tuple) and isinstance(loaded.graph_text, str)
        digest = hashlib.sha256(b"".join(a.tobytes() for a in found.values())).hexdigest()
        return f"ran {digest}"
    except VeraxError as error:
        assert error.cause and str(error).encode() and error.exit_code == 2
        return type(error).__name__


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for line in sys.stdin:
        path = line.rstrip("\n")
        signal.alarm(SECONDS)
        try:
            said = outcome(path)
        except Exception as error:
            said = f"foreign {type(error).__name__}: {error}"[:300]
        print(json.dumps({"path": path, "outcome": said}), flush=True)


if __name__ == "__main__":
    main()
