"""Seeded random networks with their inputs: small ones of every operator, and deep ones.

Every network is asymmetric (batch > 1, pairwise different sizes, pads of both ends), its values are
of ordinary size, and equal seeds give equal networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from verax.base.errors import GraphError
from verax.campaign.network_sketch import Sketch
from verax.campaign.random_nodes import EXACTLY, IMAGE_MAKERS, MAKERS
from verax.ir.graph import Graph

FEWEST_NODES, MOST_NODES = 2, 25
ATTEMPTS = 400
"""Draws after which a network is taken as it is."""
LIKELY = ("Conv", "GroupedConv", "BatchNormalization", "Relu", "Binary", "Conv", "Relu")
"""Makers that are drawn more often, as real networks have them more often."""
SMALLEST_SIDE = 4
"""Images are not made smaller than this by choice of what to build upon."""
RANK_OF_IMAGES = 4


@dataclass(frozen=True)
class Network:
    """A graph and the float32 arrays that it is judged on, by input name."""

    graph: Graph
    inputs: dict[str, np.ndarray]
    seed: int


def random_network(seed: int, must: Sequence[str] = (), nodes: int | None = None) -> Network:
    """A small network: 2 to 25 nodes, or about `nodes`, over an image [2-3, 3-8, 9-16, 7-19].

    must: names in EXACTLY that the network has to contain. Deterministic for its arguments.
    """
    random = np.random.default_rng([seed, len(must), *map(_index_of, must)])
    s = Sketch(f"random{seed}", random)
    batch, channels = int(random.integers(2, 4)), int(random.integers(3, 9))
    height, width = int(random.integers(9, 17)), int(random.integers(7, 20))
    shape = (batch, channels, height, width + (width == height))
    current = s.input("x", random.standard_normal(shape).astype(np.float32))
    size = nodes or int(random.integers(FEWEST_NODES, MOST_NODES + 1))
    missing, tame = list(must), [current]
    for _ in range(ATTEMPTS):
        if len(s.builder.nodes) >= size and not missing:
            break
        name = missing[0] if missing else _choose(random)
        x = _base(s, tame, name)
        before = len(s.builder.nodes)
        try:
            value = EXACTLY[name](s, x)
        except GraphError:
            continue
        tame += [v for n in s.builder.nodes[before:] for v in n.outputs if s.tame(v)]
        if missing and s.tame(value):
            missing.pop(0)
    return Network(s.graph(), s.inputs, seed)


def _index_of(name: str) -> int:
    return list(EXACTLY).index(name)


def _choose(random: np.random.Generator) -> str:
    names = [*MAKERS, *LIKELY]
    return names[int(random.integers(len(names)))]


def _base(s: Sketch, tame: list[str], maker: str) -> str:
    """The value to build upon: mostly the newest, of images when the maker needs one."""
    fitting = [v for v in tame if len(s.shape(v)) >= 2]
    if maker in IMAGE_MAKERS or maker == "Flatten":
        images = [v for v in fitting if len(s.shape(v)) == RANK_OF_IMAGES]
        fitting = [v for v in images if min(s.shape(v)[2:]) >= SMALLEST_SIDE] or images
    newest = s.random.random() < 0.6
    return fitting[-1] if newest else fitting[int(s.random.integers(len(fitting)))]
