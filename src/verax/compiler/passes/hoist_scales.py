"""Scales of queries and keys move before the transpositions of their heads."""

from __future__ import annotations

import dataclasses

import numpy as np

from verax.compiler.passes.patterns import NumberPattern, PatternMatch
from verax.ir.dim import DimLike
from verax.ir.graph import Graph, Node
from verax.ir.rewrite import Rewriter
from verax.ir.text import parse_graph
from verax.ops.movement.reshaping import Reshape, Transpose
from verax.ops.pointwise.arithmetic import Mul
from verax.ops.sums.softmax import Softmax
from verax.records.trace import Trace

BETWEEN = ("Mul", "Div", "Add", "Where")
"""What may stand between a product and the Softmax of its rows."""
FACTOR = NumberPattern("factor")


def hoist_scales(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Scale queries and keys before their heads are transposed, and transpose keys in one step.

    Given:  %a = Reshape()(%k, [6, 7, 4]); %b = Transpose(perm=(0, 2, 1))(%a)
            %c = Reshape()(%b, [2, 3, 4, 7])
            %y = Softmax()(MatMul()(%q, Mul()(%c, 0.7)))
    Result: %t = Transpose(perm=(0, 1, 3, 2))(Mul()(%k, 0.7)); %y = Softmax()(MatMul()(%q, %t))

    Only of products whose rows go into Softmax; so attention is recognized as PyTorch's exporter
    writes it, which gives queries and keys the root of the scale each.

    Numeric effect: none. Every element is multiplied by the same number, wherever it lies.
    """
    chains: dict[tuple[str, int], _Chain] = {}
    spare: set[str] = set()
    for node in graph.nodes:
        if node.op.kind == "MatMul" and _is_scores(graph, node.outputs[0]):
            operands = [(i, _chain(graph, node.inputs[i] or "", spare)) for i in (0, 1)]
            useful = [(i, chain) for i, chain in operands if chain is not None and chain.helps]
            if useful and (limit is None or len({n for n, _ in chains}) < limit):
                chains |= {(node.outputs[0], i): chain for i, chain in useful}
                spare |= {v for _, chain in useful for v in chain.values}
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        value = node.outputs[0] if node.outputs else ""
        own = [chains.get((value, i)) for i in (0, 1)]
        if value in spare:
            continue
        if any(own):
            inputs = [_written(rewriter, chain) if chain else rewriter.map(node.inputs[i])
                      for i, chain in enumerate(own)]  # fmt: skip
            output = rewriter.add(node.op, inputs, node.name, rewriter.names(node))
            rewriter.replace(node, output, "hoist_scales")
        else:
            rewriter.keep(node)
    return rewriter.finish()


def example() -> Graph:
    """What `verax passes` shows."""
    return parse_graph(
        """
        graph "hoist_scales"
        input %q: float32[2, 3, 5, 4]
        input %k: float32[2, 3, 7, 4]
        const %flat: int64[3] = [6, 7, 4]
        const %heads: int64[4] = [2, 3, 4, 7]
        const %factor: float32[] = [0.75]
        %a: float32[6, 7, 4] = Reshape()(%k, %flat)
        %b: float32[6, 4, 7] = Transpose(perm=(0, 2, 1))(%a)
        %c: float32[2, 3, 4, 7] = Reshape()(%b, %heads)
        %d: float32[2, 3, 4, 7] = Mul()(%c, %factor)
        %s: float32[2, 3, 5, 7] = MatMul()(%q, %d)
        %y: float32[2, 3, 5, 7] = Softmax(axis=3)(%s)
        output %y
        """
    )


@dataclasses.dataclass(frozen=True)
class _Chain:
    """How an operand came about. values: those in between, which nothing else reads; perm: axis i
    of the operand is axis perm[i] of the source."""

    source: str
    perm: tuple[int, ...]
    factor: float | None
    values: tuple[str, ...]
    helps: bool


def _is_scores(graph: Graph, value: str) -> bool:
    """Whether a product's rows go into a Softmax alone."""
    for _ in range(len(BETWEEN)):
        readers = graph.consumers.get(value, ())
        if len(readers) != 1 or value in graph.outputs:
            return False
        if isinstance(readers[0].op, Softmax):
            return True
        if readers[0].op.kind not in BETWEEN:
            return False
        value = readers[0].outputs[0]
    return False


def _chain(graph: Graph, value: str, spare: set[str]) -> _Chain | None:
    """Transpositions above a value, with one scale at most among them."""
    perm, factor = tuple(range(graph.types[value].rank)), None
    values: list[str] = []
    hoists = straightens = moved_since = False
    while value in graph.producers and value not in spare and _read_once(graph, value):
        node = graph.producers[value]
        scaled = _scaled(graph, node) if factor is None else None
        flat = _through_matrices(graph, node)
        if scaled is not None:
            inner, factor = scaled
            passed = [value]
        elif isinstance(node.op, Transpose):
            own = tuple(reversed(range(len(perm)))) if node.op.perm is None else node.op.perm
            perm = tuple(own[p] for p in perm)
            inner, passed, moved_since = node.inputs[0] or "", [value], factor is not None
        elif flat is not None:
            inner, passed = flat
            rank = len(perm)
            own = (*range(rank - 2), rank - 1, rank - 2)
            perm = tuple(own[p] for p in perm)
            straightens, moved_since = True, factor is not None
        else:
            break
        hoists |= moved_since
        values += passed
        value = inner
    return _Chain(value, perm, factor, tuple(values), hoists or straightens) if values else None


def _read_once(graph: Graph, value: str) -> bool:
    return value not in graph.outputs and len(graph.consumers.get(value, ())) == 1


def _scaled(graph: Graph, node: Node) -> tuple[str, float] | None:
    """(x, c) of x c, c one number, of x's type."""
    if not isinstance(node.op, Mul):
        return None
    for value, factor in (node.inputs, node.inputs[::-1]):
        for match in FACTOR.match(graph, factor, PatternMatch()):
            if graph.types[value or ""] == graph.types[node.outputs[0]]:
                return value or "", match.bound["factor"]
    return None


def _through_matrices(graph: Graph, node: Node) -> tuple[str, list[str]] | None:
    """(x, values passed) of [.., n, d] made [m, n, d], then [m, d, n], then [.., d, n]."""
    transpose = graph.producers.get(node.inputs[0] or "")
    if not isinstance(node.op, Reshape) or transpose is None:
        return None
    if not isinstance(transpose.op, Transpose) or transpose.op.perm != (0, 2, 1):
        return None
    flat = graph.producers.get(transpose.inputs[0] or "")
    if flat is None:
        return None
    inner = [transpose.outputs[0], flat.outputs[0]]
    if not isinstance(flat.op, Reshape) or not all(_read_once(graph, v) for v in inner):
        return None
    source, matrices, result = (
        graph.types[v or ""].dims for v in (flat.inputs[0], flat.outputs[0], node.outputs[0])
    )
    if not _is_transposed(source, matrices, result):
        return None
    return flat.inputs[0] or "", [node.outputs[0], *inner]


def _is_transposed(
    source: tuple[DimLike, ...], matrices: tuple[DimLike, ...], result: tuple[DimLike, ...]
) -> bool:
    """Whether `matrices` are the last two axes of `source`, and `result` has them exchanged."""
    swapped = (*source[:-2], source[-1], source[-2])
    return len(source) > 2 and result == swapped and matrices[1:] == source[-2:]


def _written(rewriter: Rewriter, chain: _Chain) -> str:
    """The operand, scaled first."""
    value = rewriter.map(chain.source)
    assert value is not None
    if chain.factor is not None:
        dtype = rewriter.type_of(value).dtype.numpy
        factor = rewriter.constant(np.array(chain.factor, dtype))
        value = rewriter.add(Mul(), [value, factor])
    if chain.perm != tuple(range(len(chain.perm))):
        value = rewriter.add(Transpose(perm=chain.perm), [value])
    return value
