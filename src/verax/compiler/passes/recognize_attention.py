"""Attention written out: two products with a Softmax between them, and what stands around it.

What holds for every match:

C1  Values are float32, of static shapes; queries, keys and values have one rank, of two at least.
C2  The first product's right factor is K with its last two axes exchanged, by a Transpose that may
    also bring the heads forward; Softmax is over the last axis.
C3  The scale is one number, times the scores or dividing them, before the mask.
C4  The mask widens nothing and comes after the scale: Add, or Where with one number.
C5  What lies inside is read by nothing outside and is no output of the network.
C6  Heads of keys and values are the queries' own, one for all, or shared by neighbors.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from verax.compiler.passes.patterns import (
    AllFalse,
    AnyNode,
    Anything,
    AnyValue,
    BoundPattern,
    Is,
    NodePattern,
    NumberPattern,
    OneOf,
    PatternMatch,
    Reduce,
    Tagged,
    is_private,
)
from verax.ir.dim_forms import broadcasts
from verax.ir.graph import Graph, Node
from verax.ir.rewrite import Rewriter
from verax.ir.text import parse_graph
from verax.ir.types import DType
from verax.ops.movement.gather import Gather
from verax.ops.movement.reshaping import Transpose
from verax.ops.pointwise.logic import Not
from verax.ops.sums.attention import Attention
from verax.ops.sums.softmax import Softmax
from verax.records.trace import Trace

ZERO, LOWEST = Is(0.0), Is(-math.inf)
PRODUCT = BoundPattern("product", NodePattern("MatMul", AnyValue("q"), AnyValue("k")))
SCALED = BoundPattern(
    "scaled",
    OneOf(
        PRODUCT,
        NodePattern("Mul", PRODUCT, NumberPattern("scale")),
        NodePattern("Div", PRODUCT, NumberPattern("divisor", infinite=True)),
    ),
)
MASK, HIDDEN = AnyValue("mask"), NumberPattern("hidden", infinite=True)
MASKED = BoundPattern(
    "masked",
    OneOf(
        SCALED,
        NodePattern("Add", SCALED, MASK),
        NodePattern("Where", MASK, SCALED, HIDDEN),
        Tagged("inverted", NodePattern("Where", MASK, HIDDEN, SCALED)),
    ),
)
SHARES = BoundPattern("shares", AnyNode("Softmax", MASKED))
HIGHEST = Reduce("ReduceMax", AnyValue("masked"), axes="row")
ZEROS = ("nan_to_zero", "masked_to_zero")
"""Fields of Attention, and tags of what a Where puts 0 for: NaN, as PyTorch writes it; rows that
are masked whole, as we write it, by their maximum."""
FILLED = BoundPattern(
    "filled",
    OneOf(
        SHARES,
        NodePattern("Where", AllFalse(), Anything(), SHARES),  # as ONNX's Attention has it
        Tagged(ZEROS[0], NodePattern("Where", AnyNode("IsNaN", AnyValue("shares")), ZERO, SHARES)),
        Tagged(
            ZEROS[1],
            NodePattern(
                "Where",
                OneOf(AnyNode("Equal", HIGHEST, LOWEST), AnyNode("Equal", LOWEST, HIGHEST)),
                ZERO,
                SHARES,
            ),
        ),
    ),
)
ATTENTION = AnyNode("MatMul", FILLED, AnyValue("v"))
TRANSPOSED = AnyNode("Transpose", AnyValue("source"))
UNIT = OneOf(AnyNode("Reshape", AnyValue("source")), AnyNode("Unsqueeze", AnyValue("source")))
REPEATED = OneOf(
    AnyNode("Gather", AnyValue("source"), AnyValue("index")),
    AnyNode("Reshape", BoundPattern("wide", AnyNode("Expand", BoundPattern("unit", UNIT)))),
)
"""Heads that several queries share, each written several times."""


def recognize_attention(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Recognize attention in its parts, with the transpositions of heads around it.

    Given:  %t = Transpose(perm=(0, 2, 3, 1))(%k); %s = Mul()(MatMul()(%q, %t), 0.125)
            %p = Softmax(axis=3)(Add()(%s, %mask)); %y = MatMul()(%p, %v)
    Result: %y = Attention(scale=0.125, heads_inside='k')(%q, %k, %v, %mask)

    The mask is added, or chooses between scores and one number; where it is the triangle of what is
    not later, attention is causal. 0 for shares that are NaN, or of rows that are masked whole,
    belongs to it. Scales of queries or keys alone stay where they are. Heads that several queries
    share are read where they lie, not repeated (Gather, or Expand and Reshape).

    Numeric effect: none. The operator is these parts, each in its order; scores and shares are only
    kept from memory.
    """
    matches: dict[str, _Match] = {}
    claimed: set[str] = set()
    for node in graph.nodes:
        match = _match(graph, node, claimed)
        if match is not None and (limit is None or len(matches) < limit):
            matches[match.root] = match
            claimed |= match.inner | {match.root}
    inner = {v for match in matches.values() for v in match.inner}
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        value = node.outputs[0] if node.outputs else ""
        if value in inner:
            continue
        if value in matches:
            _write(rewriter, node, matches[value])
        else:
            rewriter.keep(node)
    return rewriter.finish()


def example() -> Graph:
    """What `verax passes` shows."""
    return parse_graph(
        """
        graph "recognize_attention"
        input %q: float32[2, 3, 5, 4]
        input %k: float32[2, 7, 3, 4]
        input %v: float32[2, 3, 7, 6]
        input %mask: float32[2, 1, 1, 7]
        const %scale: float32[] = [0.5]
        %t: float32[2, 3, 4, 7] = Transpose(perm=(0, 2, 3, 1))(%k)
        %s: float32[2, 3, 5, 7] = MatMul()(%q, %t)
        %r: float32[2, 3, 5, 7] = Mul()(%s, %scale)
        %m: float32[2, 3, 5, 7] = Add()(%r, %mask)
        %p: float32[2, 3, 5, 7] = Softmax(axis=3)(%m)
        %y: float32[2, 3, 5, 6] = MatMul()(%p, %v)
        output %y
        """
    )


@dataclasses.dataclass
class _Match:
    """Parts of one attention. operands: queries, keys, values; inner: values that vanish; root: the
    value that it makes; inverted: the mask keeps where it is false."""

    op: Attention
    operands: list[str]
    inner: set[str]
    root: str
    mask: str | None = None
    inverted: bool = False


@dataclasses.dataclass(frozen=True)
class _Scores:
    """How scores become what Softmax takes. product: their value; inverted: the mask keeps where
    it is false."""

    product: str
    scale: float = 1.0
    divisor: float = 1.0
    mask: str | None = None
    hidden: float = -math.inf
    inverted: bool = False


def _write(rewriter: Rewriter, node: Node, match: _Match) -> None:
    inputs = [rewriter.map(v) for v in match.operands]
    if match.mask is not None:
        constant = rewriter.old.constants.get(match.mask)
        mask = rewriter.map(match.mask)
        if match.inverted and constant is not None:
            mask = rewriter.constant(np.logical_not(constant))
        elif match.inverted:
            mask = rewriter.add(Not(), [mask])
        inputs.append(mask)
    output = rewriter.add(match.op, inputs, node.name, rewriter.names(node))
    rewriter.replace(node, output, "recognize_attention")


def _match(graph: Graph, node: Node, claimed: set[str]) -> _Match | None:
    """The attention whose last product is `node`; None where it is none."""
    if node.op.kind != "MatMul":
        return None
    for match in ATTENTION.match(graph, node.outputs[0], PatternMatch()):
        scores = _scores(graph, match.bound)
        if scores is None or not is_private(graph, match, node.outputs[0]):
            continue
        inner = set(match.nodes - {node.outputs[0]})
        if not all(graph.types[v].is_static for v in inner):
            continue
        safe = graph.producers[match.bound["shares"]].op.attributes()["masked_to_zero"]
        zeros = {n: True for n in ZEROS if n in match.bound or (safe and n == "masked_to_zero")}
        attention = _operands(graph, node, match.bound, scores, inner, claimed, zeros)
        if attention is not None and _is_valid(graph, attention):
            return attention
    return None


def _read_once(graph: Graph, value: str) -> bool:
    """C5, of a transposition or a repetition, which may be read elsewhere: then it stays."""
    return value not in graph.outputs and len(graph.consumers.get(value, ())) == 1


def _scores(graph: Graph, bound: Mapping[str, Any]) -> _Scores | None:
    """How scores become shares; None where the types, axes or numbers are not those of attention
    (C2 to C4)."""
    types = {name: graph.types[bound[name]] for name in ("product", "scaled", "masked", "shares")}
    shares, rank = graph.producers[bound["shares"]].op, types["shares"].rank
    assert isinstance(shares, Softmax)
    if rank < 2 or shares.axis % rank != rank - 1 or bound.get("row", (rank - 1,)) != (rank - 1,):
        return None
    mask, scale, divisor = bound.get("mask"), bound.get("scale", 1.0), bound.get("divisor", 1.0)
    is_widened = types["product"] != types["scaled"] or types["scaled"].dims != types["masked"].dims
    if is_widened or graph.types[bound["filled"]] != types["shares"] or not divisor:
        return None
    if mask is not None and not graph.types[mask].is_static:
        return None
    hidden, inverted = bound.get("hidden", -math.inf), "inverted" in bound
    return _Scores(bound["product"], *_factors(scale, divisor), mask, hidden, inverted)


def _factors(scale: float, divisor: float) -> tuple[float, float]:
    """What to multiply and to divide by: a product, where it has the same bits."""
    if abs(math.frexp(divisor)[0]) == 0.5 and 2.0**-126 <= abs(divisor) <= 2.0**126:
        return scale / divisor, 1.0
    return scale, divisor


def _operands(
    graph: Graph,
    node: Node,
    bound: Mapping[str, Any],
    scores: _Scores,
    inner: set[str],
    claimed: set[str],
    zeros: dict[str, bool],
) -> _Match | None:
    """Where queries, keys, values and the result lie (C2). zeros: fields that say what 0 stands
    for."""
    rank, root = graph.types[node.outputs[0]].rank, node.outputs[0]
    named_values = [(name, bound[name]) for name in "qkv"]
    if any(graph.types[v].rank != rank for _, v in named_values):
        return None
    swapped, inside, operands = _swapped(rank), "", []
    for name, value in named_values:
        source, perm = value, tuple(range(rank))
        for match in () if value in claimed else TRANSPOSED.match(graph, value, PatternMatch()):
            source, perm = match.bound["source"], _perm(graph, graph.producers[value])
        if name == "k":  # its last two axes are exchanged besides
            perm = (*perm[:-2], perm[-1], perm[-2])
        if perm == swapped:
            inside += name
        elif name != "k":
            source = value
        elif perm != tuple(range(rank)):
            return None
        if source != value and _read_once(graph, value):
            inner.add(value)
        operands.append(_unshared(graph, source, rank - (2 if name in inside else 3), inner))
    after = graph.consumers.get(root, ())
    last_transpose = after[0] if _read_once(graph, root) else node
    if isinstance(last_transpose.op, Transpose) and _perm(graph, last_transpose) == swapped:
        inner.add(root)
        inside, root = f"{inside}y", last_transpose.outputs[0]
    op = Attention(
        scale=scores.scale,
        divisor=scores.divisor,
        hidden=scores.hidden,
        heads_inside=inside,
        **zeros,
    )
    added = graph.types[scores.mask].dtype is DType.float32 if scores.mask else False
    if added and not np.any(graph.constants.get(scores.mask or "", 1)):
        return _Match(op, operands, inner, root)  # -0 + 0 is another zero, of the same exp
    if scores.mask is None or not _is_triangle(graph, scores.mask, scores):
        return _Match(op, operands, inner, root, scores.mask, scores.inverted)
    causal: Attention = dataclasses.replace(op, causal=True)  # type: ignore[call-arg]
    return _Match(causal, operands, inner, root)


def _swapped(rank: int) -> tuple[int, ...]:
    """The permutation that exchanges heads and rows; of matrices there is none."""
    if rank < 3:
        return ()
    return (*range(rank - 3), rank - 2, rank - 3, rank - 1)


def _perm(graph: Graph, node: Node) -> tuple[int, ...]:
    rank = graph.types[node.outputs[0]].rank
    assert isinstance(node.op, Transpose)
    perm = tuple(reversed(range(rank))) if node.op.perm is None else node.op.perm
    return tuple(p % rank for p in perm)


def _is_triangle(graph: Graph, mask: str, scores: _Scores) -> bool:
    """True if a constant bool mask [.., rows, columns] hides exactly the later keys."""
    constant = graph.constants.get(mask)
    if constant is None or constant.dtype != np.bool_:
        return False
    rows, columns = graph.types[scores.product].shape[-2:]
    if constant.size != rows * columns or constant.ndim < 2:
        return False
    visible = np.logical_not(constant) if scores.inverted else constant
    return visible.shape[-2:] == (rows, columns) and np.array_equal(
        visible.reshape(rows, columns), np.tri(rows, columns, dtype=np.bool_)
    )


def _unshared(graph: Graph, value: str, axis: int, inner: set[str]) -> str:
    """The heads of which `value` has each several times, side by side; else `value` (C6)."""
    if axis < 0:
        return value
    for match in REPEATED.match(graph, value, PatternMatch()):
        repeats = _gathers if "index" in match.bound else _expands
        if repeats(graph, value, match.bound, axis):
            if all(_read_once(graph, v) for v in match.nodes):
                inner |= match.nodes
            return str(match.bound["source"])
    return value


def _gathers(graph: Graph, value: str, bound: Mapping[str, Any], axis: int) -> bool:
    """True if a Gather takes each head several times, side by side."""
    op, type_ = graph.producers[value].op, graph.types[bound["source"]]
    indices, own = graph.constants.get(bound["index"]), type_.dims[axis]
    assert isinstance(op, Gather)
    if indices is None or indices.ndim != 1 or op.axis % type_.rank != axis:
        return False
    if not isinstance(own, int) or not own or indices.size % own:
        return False
    return np.array_equal(indices, np.repeat(np.arange(own), indices.size // own))


def _expands(graph: Graph, value: str, bound: Mapping[str, Any], axis: int) -> bool:
    """True for [.., h, m, d] as [.., h, 1, m, d], expanded to [.., h, r, m, d], as
    [.., h r, m, d]."""
    types = [graph.types[v] for v in (bound["source"], bound["unit"], bound["wide"], value)]
    if not all(t.is_static for t in types):
        return False
    own, unit, wide, merged = (t.shape for t in types)
    if len(own) != len(merged) or len(wide) != len(own) + 1:
        return False
    head, tail = own[: axis + 1], own[axis + 1 :]
    times = wide[axis + 1]
    fits = unit == (*head, 1, *tail) and wide == (*head, times, *tail)
    return fits and merged == (*own[:axis], own[axis] * times, *tail)


def _is_valid(graph: Graph, match: _Match) -> bool:
    """True if C1, C4 and C6 hold for the types: every operand has all batches, or one for all."""
    types = [graph.types[v] for v in match.operands]
    if any(t.dtype is not DType.float32 or not t.is_static or 0 in t.shape for t in types):
        return False
    rank = types[0].rank
    if any(t.rank != rank for t in types):
        return False
    result = graph.types[match.root]
    shapes = [
        (*s[:-3], s[-2], s[-3], s[-1]) if name in match.op.heads_inside else s
        for s, name in zip([*(t.shape for t in types), result.shape], "qkvy")
    ]
    q, k, v, y = shapes
    if rank > 2 and (q[-3] != y[-3] or q[-3] % k[-3] or q[-3] % v[-3]):
        return False
    all_batches = math.prod(y[:-3])
    batches = [math.prod(s[:-3]) for s in shapes]
    if match.mask is not None:
        mask = graph.types[match.mask]
        scores = (*y[:-1], k[-2])
        wide = (1,) * (rank - mask.rank) + mask.shape
        if len(wide) != rank or not all(broadcasts(a, b) for a, b in zip(wide, scores)):
            return False
        batches.append(math.prod(wide[:-3]))
    return all(broadcasts(b, all_batches) for b in batches)
