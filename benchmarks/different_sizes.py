"""How long a network of thousands of nodes takes to compile in which no two have the same sizes.

Run: python -m benchmarks.different_sizes [--nodes 4000] [--open]

Every block of four nodes has a width of its own: a slice of the input, an elementwise operator and
one of ten further operators in turn (products, convolutions, pools, reductions, softmax,
normalization, transposes, concatenations), whose result is reduced. With --open, the first axis of
the input is a symbol. Reported: processor seconds of the compilation, of the first run and of
one more, distinct kernels by what they compute, and peak memory in MB.
"""

from __future__ import annotations

import argparse
import collections
import os
import resource
import tempfile
import time

import numpy as np

import verax.ops  # noqa: F401  (registers operators)
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.place.calls import kernel_calls
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType

ROWS, NARROWEST, JOINED = 3, 20, 50
SEED, RUNS = 47, 20


class _Blocks:
    """Adds blocks of four nodes to a graph."""

    def __init__(self, rows: str, count: int) -> None:
        self.b, self.rng = Builder("different sizes"), np.random.default_rng(SEED)
        self.x = self.b.input("x", TensorType.parse(f"float32[{rows}, {NARROWEST + count}]"))
        self.makers = (
            self.product,
            self.softmax,
            self.convolution,
            self.normalized,
            self.pooled,
            self.transposed,
            self.concatenated,
            self.maximum,
            self.padded,
            self.running,
        )

    def add(self, kind: str, *inputs: str, **fields: object) -> str:
        return self.b.add(REGISTRY[kind](**fields), list(inputs))

    def whole(self, *numbers: int) -> str:
        return self.b.constant(np.array(numbers, np.int64))

    def weights(self, *shape: int) -> str:
        return self.b.constant(self.rng.standard_normal(shape).astype(np.float32))

    def block(self, index: int) -> str:
        """The result of block `index`, [rows, 1]."""
        width = NARROWEST + index
        part = self.add("Slice", self.x, self.whole(0), self.whole(width), self.whole(1))
        part = self.add("Mul", part, self.weights(width))
        made = self.makers[index % len(self.makers)](part, width)
        return self.add("ReduceMean", made, self.whole(1), keepdims=True)

    def product(self, x: str, width: int) -> str:
        return self.add("MatMul", x, self.weights(width, 5 + width % 40))

    def softmax(self, x: str, width: int) -> str:
        return self.add("Softmax", x, axis=1)

    def convolution(self, x: str, width: int) -> str:
        """Of images of `width` pixels and one channel."""
        image = self.add("Unsqueeze", x, self.whole(1))
        made = self.add("Conv", image, self.weights(4 + width % 9, 1, 3), kernel_shape=(3,))
        return self.add("ReduceMax", made, self.whole(2), keepdims=False)

    def normalized(self, x: str, width: int) -> str:
        return self.add("LayerNormalization", x, self.weights(width))

    def pooled(self, x: str, width: int) -> str:
        image = self.add("Unsqueeze", x, self.whole(1))
        made = self.add("MaxPool", image, kernel_shape=(3,), strides=(2,))
        return self.add("Squeeze", made, self.whole(1))

    def transposed(self, x: str, width: int) -> str:
        turned = self.add("Transpose", x, perm=(1, 0))
        return self.add("MatMul", self.add("Softmax", x, axis=1), self.add("Relu", turned))

    def concatenated(self, x: str, width: int) -> str:
        return self.add("Concat", x, self.add("Neg", x), axis=1)

    def maximum(self, x: str, width: int) -> str:
        return self.add("Sub", x, self.add("ReduceMax", x, self.whole(1), keepdims=True))

    def padded(self, x: str, width: int) -> str:
        return self.add("Pad", x, self.whole(0, 2, 0, 1), mode="reflect")

    def running(self, x: str, width: int) -> str:
        return self.add("CumSum", x, self.whole(1))


def network(nodes: int, rows: str = str(ROWS)) -> Graph:
    """A network of at least so many nodes, [rows, width] to [rows, blocks] in some outputs."""
    blocks, joined = _Blocks(rows, nodes), []
    while len(blocks.b.nodes) < nodes:
        first = JOINED * len(joined)
        made = [blocks.block(first + i) for i in range(JOINED)]
        joined.append(blocks.add("Concat", *made, axis=1))
    return blocks.b.graph(joined)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=4000)
    parser.add_argument("--open", action="store_true", help="the first axis is a symbol")
    given = parser.parse_args()
    graph = network(given.nodes, "rows" if given.open else str(ROWS))
    width = int(graph.types["x"].dims[1])
    x = np.random.default_rng(SEED).standard_normal((ROWS, width)).astype(np.float32)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        begin = time.process_time()
        exe = compile(graph, Settings(threads=1))
        exe.run({"x": x})
        first, further = time.process_time() - begin, []
        for _ in range(RUNS):
            begin = time.process_time()
            exe.run({"x": x})
            further.append(time.process_time() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{len(graph.nodes)} nodes: compiled and run in {first:.1f} s, ", end="")
    print(f"a further run {1e3 * min(further):.2f} ms; peak {peak:.0f} MB")
    steps = exe.specialized.lowered.steps
    kinds = collections.Counter(
        kind
        for kind, _ in {(type(c.spec).__name__, (c.spec, c.schedule)) for c in kernel_calls(steps)}
    )
    print(f"{len(steps)} steps, distinct kernels: {dict(kinds)}")


if __name__ == "__main__":
    main()
