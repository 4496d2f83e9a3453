"""Small MXNet networks for the tests: those that MXNet itself answered, and hand-made ones."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from verax.frontends.model import Model
from verax.frontends.mxnet import load_mxnet


@dataclass(frozen=True)
class Stored:
    """One case of operators.npz: a symbol, its params, inputs, and MXNet's outputs."""

    symbol: dict[str, Any]
    params: bytes
    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]

    def load(self, folder: Path, symbol: dict[str, Any] | None = None, shapes: Any = None) -> Model:
        """Write the case, perhaps with another symbol, and import it (with the inputs' shapes)."""
        path = write(folder, self.symbol if symbol is None else symbol, self.params)
        return load_mxnet(path, shapes or {k: v.shape for k, v in self.inputs.items()})


@cache
def stored() -> Mapping[str, Stored]:
    """The cases of single operators: all but the whole networks of make_networks.py."""
    files = ("operators.npz", "recurrent.npz", "numpy.npz", "names.npz")
    return {name: case for file in files for name, case in read(file).items()}


@cache
def read(file_name: str) -> Mapping[str, Stored]:
    """The cases in a file that make_operators.py wrote, by name."""
    with np.load(Path(__file__).with_name(file_name)) as file:
        arrays = {k: file[k] for k in file.files}
    found = {}
    for name, symbol in json.loads(arrays.pop("symbols").tobytes()).items():
        own = {k.partition("/")[2]: v for k, v in arrays.items() if k.startswith(f"{name}/")}
        params = own.get("params")
        found[name] = Stored(
            symbol,
            params_bytes({}) if params is None else params.tobytes(),
            {k[3:]: v for k, v in own.items() if k.startswith("in:")},
            {k[4:]: v for k, v in own.items() if k.startswith("out:")},
        )
    return found


def write(folder: Path, symbol: Any, params: bytes, name: str = "net") -> Path:
    """The pair of files; returns the symbol's path."""
    path = folder / f"{name}-symbol.json"
    path.write_text(json.dumps(symbol))
    (folder / f"{name}-0000.params").write_bytes(params)
    return path


FLAGS = {"float32": 0, "float64": 1, "float16": 2}
"""MXNet's numbers of element types."""


def array_bytes(array: np.ndarray, layout: str = "v2") -> bytes:
    """One array of floats as MXNet writes it: layout "legacy", "v1", "v2" or "v3"."""
    legacy = layout == "legacy"
    head = b"" if legacy else struct.pack("<I", 0xF993FAC7 + int(layout[1]))
    if layout in ("v2", "v3"):
        head += struct.pack("<i", 0)
    size = "I" if legacy else "q"
    shape = struct.pack(f"<I{array.ndim}{size}", array.ndim, *array.shape)
    flag = FLAGS[str(array.dtype)]
    return head + shape + struct.pack("<iii", 1, 0, flag) + array.tobytes()


def params_bytes(arrays: Mapping[str, np.ndarray], layout: str = "v2") -> bytes:
    """A whole params file."""
    names = b"".join(struct.pack("<Q", len(n.encode())) + n.encode() for n in arrays)
    body = b"".join(array_bytes(a, layout) for a in arrays.values())
    count = struct.pack("<Q", len(arrays))
    return struct.pack("<QQ", 0x112, 0) + count + body + count + names


def symbol(*nodes: tuple[str, str, dict[str, str], list[int]], heads: int = -1) -> dict[str, Any]:
    """A symbol of (operator, name, attributes, inputs); the last node is the output."""
    made = [
        {"op": op, "name": name, "attrs": attributes, "inputs": [[i, 0, 0] for i in inputs]}
        for op, name, attributes, inputs in nodes
    ]
    return {"nodes": made, "heads": [[heads % len(made), 0, 0]]}


def small() -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """A convolution and an activation, and the convolution's arrays."""
    rng = np.random.default_rng(3)
    conv = {"kernel": "(3, 2)", "num_filter": "4", "stride": "(2, 1)"}
    nodes = symbol(
        ("null", "data", {}, []),
        ("null", "c_weight", {}, []),
        ("null", "c_bias", {}, []),
        ("Convolution", "c", conv, [0, 1, 2]),
        ("Activation", "a", {"act_type": "relu"}, [3]),
    )
    return nodes, {
        "arg:c_weight": rng.standard_normal((4, 3, 3, 2), dtype=np.float32),
        "arg:c_bias": rng.standard_normal(4, dtype=np.float32),
    }
