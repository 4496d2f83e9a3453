"""Random networks with nodes strewn in that do nothing, undo each other or could be cheaper."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from tests.compiler.renaming import NODE_NAMES, renamed
from tests.compiler.test_bits import bits
from verax.campaign.deep_networks import deep_network
from verax.campaign.random_networks import random_network
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.rewrite import Rewriter
from verax.ir.types import DType
from verax.reference import promised

HOSTILE = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-45, 3.4e38)


@dataclass(frozen=True)
class Salt:
    """Adds to a builder; each grain takes a float32 value of static shape and gives one back."""

    b: Builder
    rng: np.random.Generator

    def add(self, kind: str, *inputs: str | None, **attributes: object) -> str:
        return self.b.add(REGISTRY[kind](**attributes), list(inputs))

    def ints(self, *values: int) -> str:
        return self.b.constant(np.array(values, np.int64))

    def lanes(self, x: str, *choice: float) -> str:
        """A scalar, or a number for each index of axis 1."""
        rank = self.b.types[x].rank
        wide = rank > 1 and self.rng.random() < 0.5
        shape = (self.b.types[x].shape[1], *(1,) * (rank - 2)) if wide else ()
        return self.b.constant(self.rng.choice(np.array(choice, np.float32), shape))

    def axis(self, x: str) -> int:
        rank = self.b.types[x].rank
        return int(self.rng.integers(-rank, rank))

    def reshapes(self, x: str) -> str:
        shape = self.b.types[x].shape
        flat = self.add("Reshape", x, self.ints(-1))
        wide = self.add("Unsqueeze", flat, self.ints(0))
        return self.add("Reshape", wide, self.ints(*shape))

    def pool(self, x: str) -> str:
        kind = str(self.rng.choice(["MaxPool", "AveragePool"]))
        shape = self.b.types[x].shape
        if not 3 <= len(shape) <= 5 or 0 in shape:  # no window fits into nothing
            return x
        return self.add(kind, x, kernel_shape=(1,) * (len(shape) - 2))

    def pads(self, x: str) -> str:
        rank = self.b.types[x].rank
        fill = self.b.constant(self.rng.choice(np.array([0.0, -0.0, 2.0], np.float32)))
        y = self.add("Pad", x, self.ints(*self.rng.integers(0, 2, 2 * rank)), fill)
        y = self.add("Pad", y, self.ints(*self.rng.integers(0, 2, 2 * rank)), fill)
        return self.add("Slice", y, self.ints(*(1,) * rank), self.ints(*(99999,) * rank))

    def split(self, x: str) -> str:
        axis = self.axis(x)
        size = self.b.types[x].shape[axis]
        first = int(self.rng.integers(0, size + 1))
        op = REGISTRY["Split"](num_outputs=2, axis=axis)
        parts = self.b.add_all(op, [x, self.ints(first, size - first)])
        order = parts if self.rng.random() < 0.7 else parts[::-1]
        return self.add("Concat", *order, axis=axis)

    def joined(self, x: str) -> str:
        axis = self.axis(x)
        rank, size = self.b.types[x].rank, self.b.types[x].shape[axis]
        both = self.add("Concat", x, self.add("Neg", x), axis=axis % rank)
        shift = int(self.rng.choice([0, size, size - 1]))
        ends = self.ints(shift + size)
        return self.add("Slice", both, self.ints(shift), ends, self.ints(axis % rank))

    def unit(self, x: str) -> str:
        kind, choice = UNIT[int(self.rng.integers(len(UNIT)))]
        c = self.lanes(x, *choice)
        if self.rng.random() < 0.3 and kind in ("Add", "Mul", "Max", "Min"):
            return self.add(kind, c, x)
        return self.add(kind, x, c)

    def quotient(self, x: str) -> str:
        return self.add("Div", x, self.lanes(x, 2, 0.5, -4, 1))

    def clip(self, x: str) -> str:
        low = self.b.constant(self.rng.choice(np.array([-np.inf, -3.4e38, -2], np.float32)))
        return self.add("Clip", x, low)

    def grain(self, x: str) -> str:
        made: list[Callable[[str], str]] = [
            self.reshapes, self.pool, self.pads, self.split, self.joined, self.unit, self.unit,
            self.quotient, self.clip,
        ]  # fmt: skip
        return made[int(self.rng.integers(len(made)))](x)


UNIT: tuple[tuple[str, tuple[float, ...]], ...] = (
    ("Mul", (1,)), ("Div", (1,)), ("Pow", (1,)), ("Add", (-0.0,)), ("Sub", (0.0,)),
    ("Max", (-np.inf,)), ("Min", (np.inf,)), ("Add", (0.0, -0.0)), ("Sub", (-0.0,)),
)  # fmt: skip


def salted(graph: Graph, rng: np.random.Generator, share: float = 0.3) -> Graph:
    """The network with a grain behind a `share` of its float32 values; some are outputs as well."""
    rewriter = Rewriter(graph)
    salt, shown = Salt(rewriter.new, rng), []

    def strew(value: str) -> None:
        type_ = graph.types[value]
        plain = type_.dtype is DType.float32 and type_.is_static and type_.rank > 0
        if not plain or rng.random() >= share:
            return
        made = salt.grain(rewriter.values[value])
        if rng.random() < 0.5:
            shown.append(salt.add("Neg", made))
        if value not in graph.outputs and rewriter.new.types[made] == type_:
            rewriter.values[value] = made

    for value in graph.inputs:
        strew(value)
    for node in graph.nodes:
        rewriter.keep(node)
        strew(node.outputs[0])
    return rewriter.new.graph([*(rewriter.values[v] for v in graph.outputs), *shown])


def random_case(seed: int) -> tuple[Graph, dict[str, np.ndarray]]:
    """A salted network of either kind, under names of every style in turn; every third has inputs
    of NaN, infinities and zeros."""
    network = deep_network(seed) if seed % 40 == 39 else random_network(seed)
    rng = np.random.default_rng([seed, 1107])
    inputs = dict(network.inputs)
    if seed % 3 == 0:
        for name, array in inputs.items():
            places = rng.random(array.shape) < 0.02
            inputs[name] = np.where(places, rng.choice(HOSTILE, array.shape), array).astype("f4")
    graph = salted(network.graph, rng)
    return renamed(graph, list(NODE_NAMES)[seed % len(NODE_NAMES)], seed), inputs


def same_promised_bits(before: Graph, after: Graph, inputs: Mapping[str, np.ndarray]) -> bool:
    """Whether both graphs promise the same bits at each output, all NaN counting as one."""
    with np.errstate(all="ignore"):
        old, new = promised(before, inputs), promised(after, inputs)
    return all(
        bits(np.asarray(old[a])) == bits(np.asarray(new[b]))
        for a, b in zip(before.outputs, after.outputs, strict=True)
    )
