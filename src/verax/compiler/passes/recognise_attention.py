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
from collections.abc import Iterator

import numpy as np

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


def recognise_attention(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
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
        graph "recognise_attention"
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
    """How scores become what Softmax takes. product: the MatMul; inner: values on the way."""

    product: Node
    inner: frozenset[str]
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
    rewriter.replace(node, output, "recognise_attention")


def _match(graph: Graph, node: Node, claimed: set[str]) -> _Match | None:
    """The attention whose last product is `node`; None where it is none."""
    if node.op.kind != "MatMul":
        return None
    value, between, zeros = _filled(graph, node.inputs[0])
    shares = _float32_node(graph, value, "Softmax")
    if shares is None or not isinstance(shares.op, Softmax):
        return None
    rank = graph.types[shares.outputs[0]].rank
    if rank < 2 or shares.op.axis % rank != rank - 1:
        return None
    for scores in _scores(graph, shares.inputs[0]):
        inner = {shares.outputs[0], *scores.inner, scores.product.outputs[0], *between}
        if not _is_private(graph, inner, node):
            continue
        safe = {"masked_to_zero": True} if shares.op.masked_to_zero else {}
        match = _operands(graph, node, scores, inner, claimed, {**zeros, **safe})
        if match is not None and _is_valid(graph, match):
            return match
    return None


def _float32_node(graph: Graph, value: str | None, kind: str) -> Node | None:
    """The node of a kind that makes a float32 value of static shape (C1)."""
    node = graph.producers.get(value or "")
    if node is None or node.op.kind != kind:
        return None
    type_ = graph.types[node.outputs[0]]
    return node if type_.dtype is DType.float32 and type_.is_static else None


def _is_private(graph: Graph, inner: set[str], last: Node) -> bool:
    """C5."""
    readers = (r.outputs[0] for v in inner for r in graph.consumers.get(v, ()))
    return not inner & {*graph.outputs} and {*readers} <= inner | {last.outputs[0]}


def _read_once(graph: Graph, value: str) -> bool:
    """C5, of a transposition or a repetition, which may be read elsewhere: then it stays."""
    return value not in graph.outputs and len(graph.consumers.get(value, ())) == 1


def _filled(graph: Graph, value: str | None) -> tuple[str | None, frozenset[str], dict[str, bool]]:
    """(shares, values from there to `value`, which fields of Attention say what 0 stands for): of
    NaN, as PyTorch writes it, by IsNaN; of masked rows, as we write it, by their maximum; ONNX's
    Attention has a Where whose truths may all be known to be false."""
    select = _float32_node(graph, value, "Where")
    if select is None or value is None:
        return value, frozenset(), {}
    truths, fill, shares = select.inputs
    zero, test = _scalar_constant(graph, fill), graph.producers.get(truths or "")
    constant_truths = graph.constants.get(truths or "")
    if graph.types[shares or ""] != graph.types[value]:
        return value, frozenset(), {}
    if constant_truths is not None and not constant_truths.any():
        return shares, frozenset({value}), {}
    is_zero = zero == 0 and math.copysign(1, zero) > 0
    if test is None or not is_zero:
        return value, frozenset(), {}
    if test.op.kind == "IsNaN" and test.inputs[0] == shares:
        return shares, frozenset({value, test.outputs[0]}), {"nan_to_zero": True}
    top = _tested_maximum(graph, test, shares)
    if top is not None:
        return shares, frozenset({value, test.outputs[0], top}), {"masked_to_zero": True}
    return value, frozenset(), {}


def _tested_maximum(graph: Graph, test: Node, shares: str | None) -> str | None:
    """The maximum of each row of scores, where `test` asks whether it is -inf; else None."""
    softmax, numbers = (
        _float32_node(graph, shares, "Softmax"),
        [_scalar_constant(graph, v) for v in test.inputs],
    )
    if test.op.kind != "Equal" or softmax is None or -math.inf not in numbers:
        return None
    top = _float32_node(graph, test.inputs[1 - numbers.index(-math.inf)], "ReduceMax")
    if top is None or top.inputs[0] != softmax.inputs[0]:
        return None
    rank, axes = graph.types[softmax.outputs[0]].rank, graph.constants.get(top.inputs[1] or "")
    last = axes is not None and [int(a) % rank for a in axes.reshape(-1)] == [rank - 1]
    return top.outputs[0] if last and top.op.attributes()["keepdims"] else None


def _scalar_constant(graph: Graph, value: str | None) -> float | None:
    """A constant of one element that is no NaN."""
    constant = graph.constants.get(value or "")
    if constant is None or constant.size != 1 or constant.dtype != np.float32:
        return None
    scalar = float(constant.reshape(()))
    return None if math.isnan(scalar) else scalar


def _scores(graph: Graph, value: str | None) -> Iterator[_Scores]:
    """Readings of the input of Softmax as masked scores (C4), one at a time."""
    yield from _scaled(graph, value)
    add, select = _float32_node(graph, value, "Add"), _float32_node(graph, value, "Where")
    shape = graph.types[value or ""].dims
    masked_scores: list[tuple[str | None, str | None, float, bool]] = []
    if add is not None:
        a, b = add.inputs
        masked_scores += [(a, b, -math.inf, False), (b, a, -math.inf, False)]
    if select is not None:
        mask, chosen_scores, fill_scores = select.inputs
        for scores, fill, inverted in (
            (chosen_scores, fill_scores, False),
            (fill_scores, chosen_scores, True),
        ):
            hidden = _scalar_constant(graph, fill)
            if hidden is not None:
                masked_scores.append((scores, mask, hidden, inverted))
    for scores, mask, hidden, inverted in masked_scores:
        if graph.types[scores or ""].dims != shape or not graph.types[mask or ""].is_static:
            continue
        for inside in _scaled(graph, scores):
            yield dataclasses.replace(
                inside,
                inner=inside.inner | {value or ""},
                mask=mask,
                hidden=hidden,
                inverted=inverted,
            )


def _scaled(graph: Graph, value: str | None) -> Iterator[_Scores]:
    """Scores, times or by one number (C3)."""
    product = _float32_node(graph, value, "MatMul")
    if product is not None:
        yield _Scores(product, frozenset())
    mul, div = _float32_node(graph, value, "Mul"), _float32_node(graph, value, "Div")
    products: list[tuple[str | None, float | None, float | None]] = []
    if mul is not None:
        a, b = mul.inputs
        products += [(a, _scalar_constant(graph, b), 1.0), (b, _scalar_constant(graph, a), 1.0)]
    if div is not None:
        products.append((div.inputs[0], 1.0, _scalar_constant(graph, div.inputs[1])))
    for scores, scale, divisor in products:
        product = _float32_node(graph, scores, "MatMul")
        if product is None or graph.types[scores or ""] != graph.types[value or ""]:
            continue
        if scale is not None and math.isfinite(scale) and divisor:
            yield _Scores(product, frozenset({value or ""}), *_factors(scale, divisor))


def _factors(scale: float, divisor: float) -> tuple[float, float]:
    """What to multiply and to divide by: a product, where it has the same bits."""
    if abs(math.frexp(divisor)[0]) == 0.5 and 2.0**-126 <= abs(divisor) <= 2.0**126:
        return scale / divisor, 1.0
    return scale, divisor


def _operands(
    graph: Graph,
    node: Node,
    scores: _Scores,
    inner: set[str],
    claimed: set[str],
    zeros: dict[str, bool],
) -> _Match | None:
    """Where queries, keys, values and the result lie (C2). zeros: the fields of `_filled`."""
    named_values = [
        ("q", scores.product.inputs[0]),
        ("k", scores.product.inputs[1]),
        ("v", node.inputs[1]),
    ]
    rank, root = graph.types[node.outputs[0]].rank, node.outputs[0]
    if any(v is None or graph.types[v].rank != rank for _, v in named_values):
        return None
    swapped, inside, operands = _swapped(rank), "", []
    for name, value in named_values:
        source, perm = str(value), tuple(range(rank))
        transpose = None if value in claimed else _float32_node(graph, value, "Transpose")
        if transpose is not None:
            source, perm = str(transpose.inputs[0]), _perm(graph, transpose)
        if name == "k":  # its last two axes are exchanged besides
            perm = (*perm[:-2], perm[-1], perm[-2])
        if perm == swapped:
            inside += name
        elif name != "k":
            source = str(value)
        elif perm != tuple(range(rank)):
            return None
        if source != value and _read_once(graph, str(value)):
            inner.add(str(value))
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
    rows, columns = graph.types[scores.product.outputs[0]].shape[-2:]
    if constant.size != rows * columns or constant.ndim < 2:
        return False
    visible = np.logical_not(constant) if scores.inverted else constant
    return visible.shape[-2:] == (rows, columns) and np.array_equal(
        visible.reshape(rows, columns), np.tri(rows, columns, dtype=np.bool_)
    )


def _unshared(graph: Graph, value: str, axis: int, inner: set[str]) -> str:
    """The heads of which `value` has each several times, side by side; else `value` (C6)."""
    node = graph.producers.get(value)
    if node is None or axis < 0:
        return value
    source, between = None, {value}
    if isinstance(node.op, Gather):
        source = _gathered(graph, node, axis)
    elif node.op.kind == "Reshape":
        expand = graph.producers.get(node.inputs[0] or "")
        if expand is not None and expand.op.kind == "Expand":
            before = graph.producers.get(expand.inputs[0] or "")
            if before is not None and before.op.kind in ("Reshape", "Unsqueeze"):
                between |= {expand.outputs[0], before.outputs[0]}
                source = _expanded(graph, before, expand, node, axis)
    if source is None:
        return value
    if all(_read_once(graph, v) for v in between):
        inner |= between
    return source


def _gathered(graph: Graph, node: Node, axis: int) -> str | None:
    source, index = node.inputs[:2]
    assert isinstance(node.op, Gather) and source is not None
    indices, type_ = graph.constants.get(index or ""), graph.types[source]
    if indices is None or indices.ndim != 1 or node.op.axis % type_.rank != axis:
        return None
    own = type_.dims[axis]
    if not isinstance(own, int) or not own or indices.size % own:
        return None
    return (
        source if np.array_equal(indices, np.repeat(np.arange(own), indices.size // own)) else None
    )


def _expanded(graph: Graph, before: Node, expand: Node, node: Node, axis: int) -> str | None:
    """[.., h, m, d] as [.., h, 1, m, d], expanded to [.., h, r, m, d], as [.., h r, m, d]."""
    source = before.inputs[0]
    chain = [source, before.outputs[0], expand.outputs[0], node.outputs[0]]
    types = [graph.types[v or ""] for v in chain]
    if source is None or not all(t.is_static for t in types):
        return None
    own, unit, wide, merged = (t.shape for t in types)
    if len(own) != len(merged) or len(wide) != len(own) + 1:
        return None
    head, tail = own[: axis + 1], own[axis + 1 :]
    times = wide[axis + 1]
    fits = unit == (*head, 1, *tail) and wide == (*head, times, *tail)
    return source if fits and merged == (*own[:axis], own[axis] * times, *tail) else None


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
        if len(wide) != rank or any(a not in (1, b) for a, b in zip(wide, scores)):
            return False
        batches.append(math.prod(wide[:-3]))
    return all(b in (1, all_batches) for b in batches)
