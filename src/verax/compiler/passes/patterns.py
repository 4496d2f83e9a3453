"""Patterns over the nodes that make a value, and the rewriting of what matches: the common part of
the passes that recognize an operator in its decomposition.

A pattern is data: `Product(X, Apply("Sigmoid", X))`. It is matched from its last node backwards.
What holds for every match, so that no pass has to say it:

C1  The operands of Add, Mul, Max and Min may stand in either order, and a `Product` in any
    association, with Pow for equal factors and Div for reciprocal ones.
C2  A number is a constant of one element. `Is(v)` takes the float nearest to v of the constant's
    type and no other: not its neighbor.
C3  Values are float32, of static shapes, and the last one has the shape of the leaf "x": no
    constant inside has widened anything.
C4  What lies inside is read by nothing outside and is no output of the network.
C5  Reductions keep their axes, which are constants, and all of a pattern are over the same.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from verax.ir.graph import Graph, Node
from verax.ir.operator import REGISTRY, Operator
from verax.ir.rewrite import Rewriter
from verax.ir.types import DType
from verax.ops.sums.reduction import Reduction
from verax.records.trace import Trace

COMMUTES = frozenset({"Add", "Mul", "Max", "Min"})


@dataclass(frozen=True)
class PatternMatch:
    """What was found. bound: by name the value of a leaf or a parameter, the float of a number, the
    axes of the reductions; nodes: all that matched, the last one included."""

    bound: Mapping[str, Any] = field(default_factory=dict)
    nodes: frozenset[str] = frozenset()

    def bind(self, name: str, bound_value: Any) -> Iterator[PatternMatch]:
        """This match with `name` bound to `bound_value`; nothing where it is bound otherwise."""
        if name not in self.bound:
            yield dataclasses.replace(self, bound={**self.bound, name: bound_value})
        elif self.bound[name] == bound_value:
            yield self

    def through(self, node: Node) -> PatternMatch:
        return dataclasses.replace(self, nodes=self.nodes | {node.outputs[0]})


class Pattern(Protocol):
    """Something to look for. `match` yields every match at `value` that extends `prior`.

    Two patterns are equal when they are one object: those are the factors that Pow may stand for.
    """

    def match(
        self, graph: Graph, value: str | None, prior: PatternMatch
    ) -> Iterator[PatternMatch]: ...


@dataclass(frozen=True, eq=False)
class Leaf:
    """Any float32 value that is not a constant; the same value wherever the name occurs."""

    name: str

    def match(self, graph: Graph, value: str | None, prior: PatternMatch) -> Iterator[PatternMatch]:
        if value is None or value in graph.constants:
            return
        if graph.types[value].dtype is DType.float32 and graph.types[value].is_static:
            yield from prior.bind(self.name, value)


@dataclass(frozen=True, eq=False)
class Parameter:
    """A float32 constant of any shape."""

    name: str

    def match(self, graph: Graph, value: str | None, prior: PatternMatch) -> Iterator[PatternMatch]:
        constant = graph.constants.get(value or "")
        if constant is not None and constant.dtype == np.float32:
            yield from prior.bind(self.name, value)


@dataclass(frozen=True, eq=False)
class Anything:
    """An operand that does not matter, as a shape whose effect the types tell."""

    def match(self, graph: Graph, value: str | None, prior: PatternMatch) -> Iterator[PatternMatch]:
        if value is not None:
            yield prior


@dataclass(frozen=True, eq=False)
class AnyValue:
    """Any value, constants and other element types too; the same one wherever the name occurs."""

    name: str

    def match(self, graph: Graph, value: str | None, prior: PatternMatch) -> Iterator[PatternMatch]:
        if value is not None:
            yield from prior.bind(self.name, value)


@dataclass(frozen=True, eq=False)
class BoundPattern:
    """A pattern whose own value is bound, too."""

    name: str
    pattern: Pattern

    def match(self, graph: Graph, value: str | None, prior: PatternMatch) -> Iterator[PatternMatch]:
        for head in prior.bind(self.name, value):
            yield from self.pattern.match(graph, value, head)


@dataclass(frozen=True, eq=False)
class Tagged:
    """A pattern that is told from its alternatives by `tag`, which is bound to True."""

    tag: str
    pattern: Pattern

    def match(self, graph: Graph, value: str | None, prior: PatternMatch) -> Iterator[PatternMatch]:
        for head in prior.bind(self.tag, True):
            yield from self.pattern.match(graph, value, head)


@dataclass(frozen=True, eq=False)
class NumberPattern:
    """A number that the match tells: a finite one, unless infinities are allowed."""

    name: str
    infinite: bool = False

    def match(self, graph: Graph, value: str | None, prior: PatternMatch) -> Iterator[PatternMatch]:
        constant = _scalar_constant(graph, value, self.infinite)
        if constant is not None:
            yield from prior.bind(self.name, float(constant))


@dataclass(frozen=True, eq=False)
class AllFalse:
    """A constant of truth values that are all false."""

    def match(self, graph: Graph, value: str | None, prior: PatternMatch) -> Iterator[PatternMatch]:
        constant = graph.constants.get(value or "")
        if constant is not None and not constant.any():
            yield prior


@dataclass(frozen=True, eq=False)
class Is:
    """The number `value`, as its constant's type has it (C2); 0 with its sign."""

    value: float

    def match(self, graph: Graph, value: str | None, prior: PatternMatch) -> Iterator[PatternMatch]:
        constant = _scalar_constant(graph, value, infinite=True)
        if constant is None or (constant.dtype.kind != "f" and not np.isfinite(self.value)):
            return
        nearest = constant.dtype.type(self.value)
        exact = constant.dtype.kind == "f" or float(nearest) == self.value
        if exact and constant == nearest and np.signbit(constant) == np.signbit(nearest):
            yield prior


def _scalar_constant(graph: Graph, value: str | None, infinite: bool = False) -> np.ndarray | None:
    """A constant of one number as an array without axes; None for other values."""
    constant = graph.constants.get(value or "")
    if constant is None or constant.size != 1 or constant.dtype.kind not in "fiu":
        return None
    allowed = ~np.isnan(constant) if infinite else np.isfinite(constant)
    return constant.reshape(()) if allowed.all() else None


@dataclass(frozen=True, eq=False, init=False)
class NodePattern:
    """A node of this kind with exactly these attributes, its operands in either order (C1). An
    operand that is None is not given."""

    kind: str
    operands: tuple[Pattern | None, ...]
    attributes: tuple[tuple[str, Any], ...]

    def __init__(self, kind: str, *operands: Pattern | None, **attributes: Any) -> None:
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "operands", operands)
        object.__setattr__(self, "attributes", tuple(attributes.items()))

    def match(self, graph: Graph, value: str | None, prior: PatternMatch) -> Iterator[PatternMatch]:
        node = _float32_node(graph, value, self.kind)
        if node is None or node.op != REGISTRY[self.kind](**dict(self.attributes)):
            return
        patterns = self.operands + (None,) * (len(node.inputs) - len(self.operands))
        actual = node.inputs + (None,) * (len(patterns) - len(node.inputs))
        yield from _match_operands(graph, patterns, actual, prior.through(node))
        if self.kind in COMMUTES and len(actual) == 2 and actual[0] != actual[1]:
            yield from _match_operands(graph, patterns, actual[::-1], prior.through(node))


@dataclass(frozen=True, eq=False, init=False)
class AnyNode:
    """A node of this kind with any attributes, on any element types, in the order of its operands;
    those behind the stated ones do not matter."""

    kind: str
    operands: tuple[Pattern, ...]

    def __init__(self, kind: str, *operands: Pattern) -> None:
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "operands", operands)

    def match(self, graph: Graph, value: str | None, prior: PatternMatch) -> Iterator[PatternMatch]:
        node = graph.producers.get(value or "")
        if node is None or node.op.kind != self.kind or len(node.inputs) < len(self.operands):
            return
        yield from _match_operands(graph, self.operands, node.inputs, prior.through(node))


def _float32_node(graph: Graph, value: str | None, kind: str) -> Node | None:
    """The node of operator `kind` whose only output is this float32 value; None for others."""
    node = graph.producers.get(value or "")
    if node is None or node.op.kind != kind or len(node.outputs) != 1:
        return None
    return node if graph.types[node.outputs[0]].dtype is DType.float32 else None


def _match_operands(
    graph: Graph,
    patterns: Sequence[Pattern | None],
    actual: Sequence[str | None],
    prior: PatternMatch,
) -> Iterator[PatternMatch]:
    """Matches in which every pattern matches its operand, in order."""
    if not patterns:
        yield prior
        return
    first = patterns[0]
    if first is None:
        heads = iter((prior,) if actual[0] is None else ())
    else:
        heads = first.match(graph, actual[0], prior)
    for head in heads:
        yield from _match_operands(graph, patterns[1:], actual[1:], head)


@dataclass(frozen=True, eq=False)
class Reduce:
    """A reduction that keeps its axes, which are bound as `axes` (C5)."""

    kind: str
    operand: Pattern
    axes: str = "axes"

    def match(self, graph: Graph, value: str | None, prior: PatternMatch) -> Iterator[PatternMatch]:
        node = _float32_node(graph, value, self.kind)
        if node is None or not isinstance(node.op, Reduction) or not node.op.keepdims:
            return
        x, over = (*node.inputs, None)[:2]
        if x is None or (over is not None and over not in graph.constants):
            return
        rank = graph.types[x].rank
        axes = node.op.reduced_axes(rank, None if over is None else graph.constants[over])
        for head in prior.through(node).bind(self.axes, axes) if axes else ():
            yield from self.operand.match(graph, x, head)


@dataclass(frozen=True, eq=False, init=False)
class OneOf:
    """Any of several patterns."""

    patterns: tuple[Pattern, ...]

    def __init__(self, *patterns: Pattern) -> None:
        object.__setattr__(self, "patterns", patterns)

    def match(self, graph: Graph, value: str | None, prior: PatternMatch) -> Iterator[PatternMatch]:
        for pattern in self.patterns:
            yield from pattern.match(graph, value, prior)


@dataclass(frozen=True, eq=False)
class Inverse:
    """The reciprocal of `divisor`: by itself as `itself`, in a product as a division as well."""

    divisor: Pattern
    itself: Pattern

    def match(self, graph: Graph, value: str | None, prior: PatternMatch) -> Iterator[PatternMatch]:
        yield from self.itself.match(graph, value, prior)


@dataclass(frozen=True, eq=False, init=False)
class Product:
    """The product of several factors, however it is multiplied out (C1)."""

    factors: tuple[Pattern, ...]

    def __init__(self, *factors: Pattern) -> None:
        object.__setattr__(self, "factors", factors)

    def match(self, graph: Graph, value: str | None, prior: PatternMatch) -> Iterator[PatternMatch]:
        if len(self.factors) == 1:
            yield from self.factors[0].match(graph, value, prior)
            return
        if _float32_node(graph, value, "Mul") is not None:
            for left, right in _bipartitions(self.factors):
                yield from NodePattern("Mul", Product(*left), Product(*right)).match(
                    graph, value, prior
                )
        elif _float32_node(graph, value, "Div") is not None:
            for i, factor in enumerate(self.factors):
                divisor = _divisor(factor)
                if divisor is not None:
                    remaining = Product(*self.factors[:i], *self.factors[i + 1 :])
                    yield from NodePattern("Div", remaining, divisor).match(graph, value, prior)
        elif len(set(self.factors)) == 1:
            power = NodePattern("Pow", self.factors[0], Is(len(self.factors)))
            yield from power.match(graph, value, prior)


def _bipartitions(
    factors: tuple[Pattern, ...],
) -> Iterator[tuple[tuple[Pattern, ...], tuple[Pattern, ...]]]:
    """(left, right) for each partition of `factors` into two, once: the first factor stays on the
    left, as Apply tries the operands in either order."""
    seen = set()
    for sides in itertools.product((True, False), repeat=len(factors) - 1):
        is_left = (True, *sides)
        left, right = (
            tuple(f for f, k in zip(factors, is_left) if k is side) for side in (True, False)
        )
        if right and (left, right) not in seen:
            seen.add((left, right))
            yield left, right


def _divisor(factor: Pattern) -> Pattern | None:
    """What division by means multiplication with a factor."""
    if isinstance(factor, Is):
        return Is(1 / factor.value)
    return factor.divisor if isinstance(factor, Inverse) else None


# --- names for what occurs often

X = Leaf("x")
ONE = Is(1.0)


def root(pattern: Pattern) -> Pattern:
    """A square root."""
    return OneOf(NodePattern("Sqrt", pattern), NodePattern("Pow", pattern, Is(0.5)))


def over(pattern: Pattern) -> Inverse:
    """A reciprocal."""
    itself = OneOf(NodePattern("Reciprocal", pattern), NodePattern("Div", ONE, pattern))
    return Inverse(pattern, itself)


def over_root(pattern: Pattern) -> Inverse:
    """A reciprocal square root."""
    direct = OneOf(NodePattern("Rsqrt", pattern), NodePattern("Pow", pattern, Is(-0.5)))
    return Inverse(root(pattern), OneOf(direct, over(root(pattern)), root(over(pattern))))


def mean(pattern: Pattern) -> Pattern:
    """A mean; where it is a sum divided by a number, "count" or "share" are held to the axes."""
    total = Reduce("ReduceSum", pattern)
    return OneOf(
        Reduce("ReduceMean", pattern),
        NodePattern("Div", total, NumberPattern("count")),
        NodePattern("Mul", total, NumberPattern("share")),
    )


def square(pattern: Pattern) -> Product:
    return Product(pattern, pattern)


# --- rewriting

Made = tuple[Operator, tuple[str | np.ndarray | None, ...]]
"""An operator and its inputs: values of the graph, or new constants."""


@dataclass(frozen=True)
class Rule:
    """What to look for, and what a match is; None when it is not, after all."""

    pattern: Pattern
    build: Callable[[Graph, PatternMatch], Made | None]


def replace_matches(
    graph: Graph, limit: int | None, name: str, rules: Sequence[Rule]
) -> tuple[Graph, Trace]:
    """Replace each match of a rule by one node: a node's largest match, first nodes first."""
    matched: dict[str, tuple[Made, frozenset[str]]] = {}
    claimed: set[str] = set()
    for node in reversed(graph.nodes):
        if node.outputs[0] in claimed:
            continue
        for replacement, nodes in _rule_matches(graph, node, rules):
            if not nodes & claimed:
                matched[node.outputs[0]] = replacement, nodes
                claimed |= nodes
                break
    roots = [n.outputs[0] for n in graph.nodes if n.outputs and n.outputs[0] in matched][:limit]
    replaced = set(roots)
    inner = {v for root in roots for v in matched[root][1]} - replaced
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        value = node.outputs[0]
        if value in inner:
            continue
        if value not in replaced:
            rewriter.keep(node)
            continue
        op, operands = matched[value][0]
        inputs = [
            rewriter.constant(v) if isinstance(v, np.ndarray) else rewriter.map(v) for v in operands
        ]
        output = rewriter.add(op, inputs, node.name, rewriter.names(node))
        rewriter.replace(node, output, name)
    return rewriter.finish()


def _rule_matches(
    graph: Graph, node: Node, rules: Sequence[Rule]
) -> Iterator[tuple[Made, frozenset[str]]]:
    value = node.outputs[0]
    for rule in rules:
        for match in rule.pattern.match(graph, value, PatternMatch()):
            x = match.bound["x"]
            if graph.types[x] != graph.types[value] or not is_private(graph, match, value):
                continue
            replacement = rule.build(graph, match)
            if replacement is not None:
                yield replacement, match.nodes


def is_private(graph: Graph, match: PatternMatch, last: str) -> bool:
    """C4."""
    inner = match.nodes - {last}
    return all(
        v not in graph.outputs
        and all(reader.outputs[0] in match.nodes for reader in graph.consumers.get(v, ()))
        for v in inner
    )


def averages(graph: Graph, match: PatternMatch) -> bool:
    """Whether what `mean` matched divides by the number of elements along the axes."""
    dims = graph.types[match.bound["x"]].shape
    count = int(np.prod([dims[a] for a in match.bound["axes"]]))
    return match.bound.get("count", count) == count and match.bound.get("share", 1 / count) * (
        count
    ) == 1  # fmt: skip


def trailing(graph: Graph, match: PatternMatch) -> int | None:
    """The first of the axes when they are the last ones of x without a gap."""
    rank, axes = graph.types[match.bound["x"]].rank, match.bound["axes"]
    return axes[0] if axes == tuple(range(axes[0], rank)) else None
