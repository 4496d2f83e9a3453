"""Hostile files, as data: archives that lie, names that do, pickles, a million nodes.

Every entry is (label, files); what is allowed to come of them is the test's business.
"""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from collections.abc import Iterator
from typing import Any

from onnx import helper
from tests.formats.greedy_files import DEEP, Entry
from tests.formats.small_files import (
    EXAMPLES,
    Files,
    pt2,
    tf_graph,
    tf_node,
)
from tests.frontends.from_coreml.coreml_models import network, setting
from tests.frontends.from_keras.h5_files import sequential
from tests.frontends.from_mxnet.mxnet_models import params_bytes, symbol
from tests.frontends.from_tflite.tflite_writer import Op, T, model
from tests.frontends.onnx_models import model as onnx_model

from verax.frontends.tensorflow.messages import CLASSES

MANY = 1_000_000
ESCAPE = "\x1b[2J\x1b]0;owned\x07\x9b31m\rx\x08"
"""Clears a terminal and renames its window."""


class Bomb:
    """Whoever unpickles this ends the process."""

    def __reduce__(self) -> Any:
        return (exit, (3,))


PICKLES = [pickle.dumps(Bomb(), protocol=p) for p in (0, 2, 4)]


# Archives that lie


def _zip(entries: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in entries.items():
            archive.writestr(name, data, compression)
    return buffer.getvalue()


def _entries(path: str) -> dict[str, bytes]:
    with zipfile.ZipFile(EXAMPLES / path) as archive:
        return {n: archive.read(n) for n in archive.namelist()}


def lying_zips() -> Iterator[Entry]:
    """For each zip format: bombs, slips, claimed sizes, duplicates, encrypted members."""
    for suffix, target in (("pt2", "model.json"), ("keras", "config.json"),
                           ("keras", "model.weights.h5")):  # fmt: skip
        entries = _entries(f"digits.{suffix}")
        (name,) = (n for n in entries if n.endswith(target))
        file = f"net.{suffix}"
        bomb = _zip({name: b" " * (1 << 26)})
        yield f"a bomb as {target}", {file: _zip({**entries, name: b" " * (1 << 26)})}
        yield f"a bomb in a bomb as {target}", {file: _zip({**entries, name: bomb})}
        yield (
            f"a slip from {target}",
            {file: _zip({f"../../{n}" if n == name else n: d for n, d in entries.items()})},
        )
        yield (
            f"an absolute {target}",
            {file: _zip({f"/etc/{n}" if n == name else n: d for n, d in entries.items()})},
        )
        whole = _zip(entries, zipfile.ZIP_STORED)
        for label, size in (("2^32 - 2", 2**32 - 2), ("1", 1), ("0", 0)):
            lied = bytearray(whole)
            at = _central(whole, name)
            lied[at + 20 : at + 28] = struct.pack("<II", size, size)
            yield f"{target} claims {label} bytes", {file: bytes(lied)}
        moved = bytearray(whole)
        at = _central(whole, name)
        moved[at + 42 : at + 46] = struct.pack("<I", len(whole) - 3)
        yield f"{target} lies at the end", {file: bytes(moved)}
        locked = bytearray(whole)
        locked[at + 8] |= 1
        yield f"{target} is encrypted", {file: bytes(locked)}
        odd = bytearray(whole)
        odd[at + 10 : at + 12] = struct.pack("<H", 97)
        yield f"{target} is compressed in an unknown way", {file: bytes(odd)}
        twice = io.BytesIO(whole)
        with zipfile.ZipFile(twice, "a") as archive:
            archive.writestr(name, b"[" * DEEP)
        yield f"{target} is there twice", {file: twice.getvalue()}
        yield f"{target} is deep", {file: _zip({**entries, name: b"[" * 10 * DEEP})}
        yield f"{target} is a pickle", {file: _zip({**entries, name: PICKLES[1]})}
    many = {f"a{i}": b"" for i in range(20_000)}
    yield "a zip of 20,000 files", {"net.pt2": _zip(many, zipfile.ZIP_STORED)}
    yield "a keras zip of 20,000 files", {"net.keras": _zip(many, zipfile.ZIP_STORED)}


def _central(data: bytes, name: str) -> int:
    """Where the central directory's record of a member starts."""
    at = data.rindex(b"PK\x01\x02", 0, data.rindex(name.encode()))
    return at


# Names


def named(name: str) -> dict[str, Files]:
    """A small model of each format whose nodes and values bear `name`."""
    relu = helper.make_node("Relu", [name], [name + "y"], name=name)
    onnx = onnx_model([relu], {name: (2, 3)}, {name + "y": (2, 3)})
    onnx.metadata_props.add(key=name, value=name)
    graph = CLASSES["Graph"]()
    holder = tf_node(graph, name, "Placeholder", dtype=1)
    holder.attr["shape"].shape.dim.add(size=3)
    tf_node(graph, name + "y", "Relu", name, T=1)
    tensors = [T((2, 3), name=name), T((2, 3), name=name + "y")]
    coreml = network(
        [("activation", name, [name], [name + "y"], setting(ReLU=None))],
        {name: (2, 3)}, {name + "y": ()},
    )  # fmt: skip
    nodes = symbol(("null", name, {"__shape__": "(2, 3)"}, []), ("relu", name + "y", {}, [0]))
    keras = sequential([("ReLU", {"name": name}, [])], [2, 3])
    torch = pt2([("relu.default", {"self": name}, name + "y")], {name: (2, 3)})
    return {
        "onnx": {"net.onnx": onnx.SerializeToString()},
        "pb": {"net.pb": graph.SerializeToString()},
        "tflite": {"net.tflite": model(tensors, [Op("ABS", [0], [1])], [0], [1])},
        "mlmodel": {"net.mlmodel": coreml.SerializeToString()},
        "mxnet": {
            "net-symbol.json": json.dumps(nodes).encode(),
            "net-0000.params": params_bytes({}),
        },
        "h5": {"net.h5": keras},
        "pt2": {"net.pt2": torch},
    }


def wild_names() -> Iterator[Entry]:
    """The names that a terminal, C or UTF-8 may stumble over, in every format."""
    for label, name in (("NUL", "a\0b"), ("an escape", ESCAPE), ("nothing", ""),
                        ("a long one", "n" * 100_000), ("a line", "a\nb = Relu(c)")):  # fmt: skip
        for kind, files in named(name).items():
            yield f"{label} in {kind}", files
    surrogate = {k: v for k, v in named("QQQ").items() if k in ("onnx", "pb", "tflite", "mlmodel")}
    for kind, files in surrogate.items():
        raw = {n: d.replace(b"QQQ", b"\xed\xa0\x80") for n, d in files.items()}
        yield f"a surrogate in {kind}", raw
    for kind in ("mxnet", "pt2"):
        files = named("QQQ")[kind]
        yield (
            f"a surrogate in {kind}",
            {
                n: d.replace(b"QQQ", b"\\ud800") if kind == "mxnet" else _patched(d)
                for n, d in files.items()
            },
        )


def _patched(data: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = {n: archive.read(n) for n in archive.namelist()}
    return _zip({n: d.replace(b"QQQ", b"\\ud800") for n, d in entries.items()})


# A million nodes


def million() -> Iterator[Entry]:
    """Long chains: refused or read, but soon."""
    relu = b'{"op": "relu", "name": "n%d", "inputs": [[%d, 0, 0]]}'
    nodes = [b'{"op": "null", "name": "data", "attrs": {"__shape__": "(2, 3)"}, "inputs": []}']
    nodes += [relu % (i, i) for i in range(MANY)]
    text = b'{"nodes": [' + b",".join(nodes) + b'], "heads": [[%d, 0, 0]]}' % MANY
    yield "mxnet", {"net-symbol.json": text, "net-0000.params": params_bytes({})}
    graph = tf_graph((2, 3))
    rows = []
    for i in range(MANY):
        name, read = f"n{i}".encode(), (f"n{i - 1}" if i else "x").encode()
        body = b"\n" + bytes([len(name)]) + name + b"\x12\x04Relu\x1a" + bytes([len(read)]) + read
        rows.append(b"\n" + bytes([len(body)]) + body)
    yield "pb", {"net.pb": graph.SerializeToString() + b"".join(rows)}
    base = onnx_model([], {"x": (2, 3)}, {f"n{MANY - 1}": None})
    graph_bytes = [base.graph.SerializeToString()]
    for i in range(MANY):
        name, read = f"n{i}".encode(), (f"n{i - 1}" if i else "x").encode()
        body = b"\n" + bytes([len(read)]) + read + b"\x12" + bytes([len(name)]) + name
        body += b'"\x04Relu'
        graph_bytes.append(b"\n" + bytes([len(body)]) + body)
    whole = b"".join(graph_bytes)
    base.ClearField("graph")
    data = base.SerializeToString() + b":" + _varint(len(whole)) + whole
    yield "onnx", {"net.onnx": data}


def _varint(value: int) -> bytes:
    found = b""
    while value > 127:
        found += bytes([value & 127 | 128])
        value >>= 7
    return found + bytes([value])
