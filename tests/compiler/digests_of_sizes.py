"""Prints hashes of what programs for many sizes answer: open, counted, growing and bound caches.

Run: python -m tests.compiler.digests_of_sizes [LEVEL] [TARGET]. The same lines on every machine.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping

import numpy as np
from benchmarks.detectors import detector

from tests.compiler.decoder_graphs import CACHES, VOCABULARY, Arrays, decoder
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.executable import Executable
from verax.frontends.onnx.importer import load_onnx
from verax.ir.dim import symbol
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import DType, TensorType

ROOM = 9


def images() -> Graph:
    """3x3 convolutions at two resolutions, a pointwise one by rows, a mean and a softmax."""
    rng = np.random.default_rng(51)
    b = Builder("images")
    x = b.input("x", TensorType(DType.float32, (symbol("n"), 16, symbol("h"), symbol("w"))))

    def convolved(v: str, channels: int, filters: int, size: int) -> str:
        w = rng.standard_normal((filters, channels, size, size)).astype(np.float32) / 12
        pads = ((size // 2, size // 2),) * 2
        return b.add(REGISTRY["Relu"](), [b.add(REGISTRY["Conv"](pads=pads), [v, b.constant(w)])])

    v = convolved(x, 16, 64, 3)
    v = b.add(REGISTRY["MaxPool"](kernel_shape=(2, 3), strides=(2, 2)), [v])
    v = convolved(convolved(v, 64, 48, 3), 48, 40, 1)
    v = b.add(REGISTRY["ReduceMean"](), [v, b.constant(np.array([3]))])
    return b.graph([b.add(REGISTRY["Softmax"](axis=1), [v])])


def of_images(settings: Settings) -> Iterator[Mapping[str, np.ndarray]]:
    rng, exe = np.random.default_rng(52), compile(images(), settings)
    for n, h, w in ((2, 9, 13), (1, 17, 12), (3, 6, 23)):
        yield exe.run({"x": rng.standard_normal((n, 16, h, w)).astype(np.float32)})
    assert exe._open.programs


def sequences() -> Graph:
    """A recurrent layer, normalizations over an open axis, and a product of two open factors."""
    rng = np.random.default_rng(56)
    b = Builder("sequences")
    x = b.input("x", TensorType(DType.float32, (symbol("t"), symbol("n"), 8)))

    def constant(*shape: int) -> str:
        return b.constant(rng.standard_normal(shape).astype(np.float32))

    lstm = REGISTRY["LSTM"](hidden_size=11, direction="reverse")
    y = b.add(lstm, [x, constant(1, 44, 8), constant(1, 44, 11), constant(1, 88)])
    y = b.add(REGISTRY["Transpose"](perm=(2, 1, 3, 0)), [y])  # [n, 1, 11, t]
    y = b.add(REGISTRY["InstanceNormalization"](), [y, constant(1), constant(1)])
    y = b.add(REGISTRY["LayerNormalization"](), [y, constant(1)])
    return b.graph([y, b.add(REGISTRY["Einsum"](equation="nhit,nhjt->nhij"), [y, y])])


def of_sequences(settings: Settings) -> Iterator[Mapping[str, np.ndarray]]:
    rng, exe = np.random.default_rng(57), compile(sequences(), settings)
    for t, n in ((6, 2), (90, 3), (19, 5)):
        yield exe.run({"x": rng.standard_normal((t, n, 8)).astype(np.float32)})
    assert exe._open.programs


def of_detector(settings: Settings) -> Iterator[Mapping[str, np.ndarray]]:
    rng, exe = np.random.default_rng(53), compile(load_onnx(detector()).graph, settings)
    for h, w in ((64, 97), (75, 81)):
        yield exe.run({"image": rng.standard_normal((1, 3, h, w)).astype(np.float32)})
    assert exe._open.programs


def of_growing_caches(settings: Settings) -> Iterator[Mapping[str, np.ndarray]]:
    rng, exe = np.random.default_rng(54), compile(load_onnx(decoder("grouped")).graph, settings)
    dims = {v: exe.inputs[v].dims for v in CACHES}
    caches: Arrays = {v: np.zeros((1, s[1], 0, s[3]), np.float32) for v, s in dims.items()}
    seen = 0
    for count in (5, 1, 3, 1):
        seen += count
        given = {"input_ids": rng.integers(0, VOCABULARY, (1, count))}
        found = exe.run({**given, "attention_mask": np.ones((1, seen), np.int64), **caches})
        caches = {v: found[o] for v, o in CACHES.items()}
        yield found
    assert exe._open.programs


def of_bound_caches(settings: Settings) -> Iterator[Mapping[str, np.ndarray]]:
    rng = np.random.default_rng(55)
    exe: Executable = compile(load_onnx(decoder("grouped", ROOM)).graph, settings).bind(CACHES)
    seen = 0
    for count in (4, 1, 3):
        seen += count
        ids, mask = rng.integers(0, VOCABULARY, (1, count)), (np.arange(ROOM) < seen)[None] * 1
        yield {**exe.run({"input_ids": ids, "attention_mask": mask}), **exe.state}


CASES = {
    "images": of_images,
    "sequences": of_sequences,
    "detector": of_detector,
    "growing caches": of_growing_caches,
    "bound caches": of_bound_caches,
}


def digests(settings: Settings) -> dict[str, str]:
    """A hash over shapes and bits of all outputs, by case."""
    found = {}
    for name, case in CASES.items():
        digest = hashlib.sha256()
        for outputs in case(settings):
            for value in sorted(outputs):
                array = np.ascontiguousarray(outputs[value])
                digest.update(f"{value} {array.dtype} {array.shape} ".encode() + array.tobytes())
        found[name] = digest.hexdigest()
    return found


def main(level: str = "1", target: str = "host") -> None:
    print(json.dumps(digests(Settings(int(level), threads=1, target=target))))


if __name__ == "__main__":
    main(*sys.argv[1:])
