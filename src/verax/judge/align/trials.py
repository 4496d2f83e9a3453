"""Tries two pieces of network on numbers of our own, to see whether they always agree.

Numbers are drawn at sizes that pass every corner of the operators (see `drives`, `corners`), until
both sides of each have been seen. Results must agree as far as float64 and the rounding of weights
allow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from verax.base.errors import VeraxError
from verax.ir.graph import Node
from verax.judge.align.corners import RULES, CornerCoverage, Missing, interval
from verax.judge.align.drives import Drive, farther, of_sizes
from verax.judge.align.identities import MOVEMENT, unequal, unfolded
from verax.judge.align.permutations import Arrangement
from verax.judge.align.pieces import NetworkPiece, movable
from verax.judge.align.subgraph_changes import changes
from verax.judge.align.values import Side, roundable
from verax.numerics import statistics as st
from verax.ops.control.control import Control
from verax.records.alignment import AttributeDifference

FURTHER = 4
"""Larger and larger numbers that are tried while a corner has a side to which none came."""
LEAST_FINITE = 0.1
"""Share of finite results from which on a trial counts."""
PERTURBED = 2.0**-50
"""Relative disturbance by which float64's own noise in a piece is measured."""
AFFINE = MOVEMENT | frozenset(
    (
        *("Conv", "ConvTranspose", "MatMul", "Gemm", "Add", "Sub", "Mul", "Sum", "Neg", "Pad"),
        *("BatchNormalization", "AveragePool", "GlobalAveragePool", "ReduceMean", "ReduceSum"),
        *("Concat", "Slice", "Split", "Gather", "Expand", "Tile", "DepthToSpace", "SpaceToDepth"),
    )
)
"""Operators whose results are polynomials of what they read: one trial is enough."""
Feed = tuple[str, Callable[[np.ndarray], np.ndarray]]
"""A value of the first network, and how the array of another is made from it."""


@dataclass(frozen=True)
class PieceTrial:
    """Result of trying two pieces. differs: description of numbers on which they differ, "" for
    none; changes: attributes that differ; missing: corner sides that no number reached; obstacle:
    why the trial is not conclusive, "" if it is."""

    nodes: tuple[tuple[Node, ...], tuple[Node, ...]]
    differs: str = ""
    drive: Drive | None = None
    changes: tuple[AttributeDifference, ...] = ()
    missing: tuple[Missing, ...] = ()
    obstacle: str = ""

    @property
    def same(self) -> bool:
        """Whether the pieces are the same."""
        return not (self.differs or self.changes or self.missing or self.obstacle)


class PieceTrials:
    """Trials of pieces of two networks.

    feeds: of each network, how arrays of its values are made from one of the first network's;
    sizes_open: see `identities.open_changes`."""

    def __init__(
        self,
        first: Side,
        second: Side,
        feeds: tuple[Mapping[str, Feed], Mapping[str, Feed]],
        sizes_open: bool,
        seed: int,
    ) -> None:
        self.first, self.second, self.feeds = first, second, feeds
        self.sizes_open, self.seed = sizes_open, seed
        self._roundable = {id(s.graph): roundable(s.graph) for s in (first, second)}

    def compare(
        self,
        a: NetworkPiece,
        b: NetworkPiece,
        arrangement: Arrangement,
        hinted: Sequence[Drive] = (),
    ) -> tuple[PieceTrial, str]:
        """The trial of both pieces, the second read by `arrangement`, and the kind of evidence
        (name of a field of `Evidence`). hinted: drives to begin with."""
        nodes = tuple(a.nodes), tuple(b.nodes)
        kinds = {n.op.kind for group in nodes for n in group}
        random = np.random.default_rng(self.seed)
        sides = CornerCoverage()
        constants = [*a.scalars(), *b.scalars()]
        drives = of_sizes(constants)
        if kinds <= AFFINE:
            drives = drives[:1]
        drives = [*hinted, *drives]
        agreeing = 0
        for drive in drives:
            outcome = self._outcome(a, b, arrangement, drive, random, sides)
            if outcome == "differ":
                return PieceTrial(nodes, drive.words, drive), ""
            agreeing += outcome == "agree"
        size = max([1e3, *(abs(c) for c in constants if abs(c) < 1e12)])
        for _ in range(FURTHER):
            if not sides.missing():
                break
            size *= 32
            drive = farther(size)
            if self._outcome(a, b, arrangement, drive, random, sides) == "differ":
                return PieceTrial(nodes, drive.words, drive), ""
        graphs = self.first.graph, self.second.graph
        unequal_nodes = unequal((nodes[0], graphs[0]), (nodes[1], graphs[1]), self.sizes_open)
        unlike = tuple(u.difference for u in unequal_nodes)
        obstacle = "" if agreeing else "no numbers of ours gave finite results"
        if _has_subgraphs(nodes):
            obstacle = "loops, choices of boxes and corners within branches are not tried"
        trial = PieceTrial(nodes, changes=unlike, missing=tuple(sides.missing()), obstacle=obstacle)
        return trial, "trial" if kinds - MOVEMENT else "movement"

    def _outcome(
        self,
        a: NetworkPiece,
        b: NetworkPiece,
        arrangement: Arrangement,
        drive: Drive,
        random: np.random.Generator,
        sides: CornerCoverage,
    ) -> str:
        """ "agree", "differ", or "" when the numbers say nothing."""
        masters: dict[str, np.ndarray] = {}
        fed: list[dict[str, np.ndarray]] = [{}, {}]
        for piece, feed, leaves in zip((a, b), self.feeds, fed):
            for name in piece.leaves:
                master, make = feed[name]
                if master not in masters:
                    masters[master] = self._drawn(master, drive, random)
                leaves[name] = make(masters[master])
        try:
            x, y = a.run(fed[0], sides), b.run(fed[1], sides)
        except (VeraxError, ValueError, IndexError, ZeroDivisionError):
            return ""
        if y.size != x.size or x.dtype.kind != y.dtype.kind:
            return "differ"
        y = arrangement.apply(y)
        if x.dtype.kind != "f":
            return "agree" if np.array_equal(x, y) else "differ"
        finite = np.isfinite(x) & np.isfinite(y)
        if not finite.all():
            if not np.array_equal(np.nan_to_num(x[~finite]), np.nan_to_num(y[~finite])):
                return "differ"
            if finite.mean() < LEAST_FINITE:
                return ""
            x, y = np.where(finite, x, 0.0), np.where(finite, y, 0.0)
        size = st.root_mean_square(x)
        floor = st.FLOAT64_NOISE * size
        if st.root_mean_square(x - y) <= st.group_limit(x.size) * floor:
            return "agree"
        total = np.full(x.shape, floor**2)
        for measure in (self._rounded, self._noise):
            for piece, leaves, is_second in ((a, fed[0], False), (b, fed[1], True)):
                sigma = measure(piece, leaves, random)
                if sigma is not None:
                    sigma = np.nan_to_num(sigma, posinf=0.0)
                    total += np.square(arrangement.apply(sigma) if is_second else sigma)
            statistic = st.group_test(st.standardised(y - x, np.sqrt(total))).statistic
            if statistic <= st.SUSPICIOUS_T:
                return "agree"
        return "differ"

    def _rounded(
        self, piece: NetworkPiece, leaves: Mapping[str, Any], random: np.random.Generator
    ) -> np.ndarray | None:
        """Standard deviation of a piece's value by rounding of weights."""
        return piece.spread(leaves, self.seed, self._roundable[id(piece.graph)])

    def _noise(
        self, piece: NetworkPiece, leaves: Mapping[str, Any], random: np.random.Generator
    ) -> np.ndarray:
        """Change of a piece's value by float64 roundings of its leaves."""
        disturbed = {
            k: x * (1 + PERTURBED * random.standard_normal(x.shape)) if x.dtype.kind == "f" else x
            for k, x in leaves.items()
        }
        return np.abs(piece.run(disturbed) - piece.run(leaves))

    def _drawn(self, master: str, drive: Drive, random: np.random.Generator) -> np.ndarray:
        """Numbers for a value, between those that the operator which makes it can give."""
        drawn = drive.draw(self.first.values[master], random)
        low, high = interval(self.first.graph, master)
        return drawn if drawn.dtype.kind != "f" else np.clip(drawn, low, high)


def _has_subgraphs(nodes: Sequence[Sequence[Node]]) -> bool:
    """Whether the pieces hold loops and branches that are not alike and that numbers fed to them
    cannot be followed into."""
    ops = [[n.op for n in group if isinstance(n.op, Control) or not movable(n)] for group in nodes]
    if len(ops[0]) == len(ops[1]) and all(not changes(a, b) for a, b in zip(*ops)):
        return False
    inner = [n for group in nodes for n in unfolded(group) if n not in group]
    followed = all(
        n.op.kind == "If" for group in nodes for n in group if n.op in (*ops[0], *ops[1])
    )
    return not followed or any(n.op.kind in RULES for n in inner)
