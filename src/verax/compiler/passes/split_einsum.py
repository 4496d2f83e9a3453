"""A sum of products of three tensors and more as products of two, which kernels compute."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from itertools import combinations

from verax.ir.graph import Graph, Node
from verax.ir.rewrite import Rewriter
from verax.ir.text import parse_graph
from verax.ir.types import DType
from verax.ops.sums.einsum import Einsum
from verax.records.trace import Trace

Term = tuple[str, ...]


def split_einsum(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Split an Einsum of three or more inputs into a chain of Einsums of two.

    Given:  %y = Einsum(equation="ab,bc,cd->ad")(%u, %v, %w)
    Result: %t = Einsum(equation="ab,bc->ac")(%u, %v); %y = Einsum(equation="cd,ac->ad")(%w, %t)

    The pair that takes the fewest multiplications comes first, of equal ones the earliest; labels
    that neither the output nor another input has are summed at once. float32 and float64 with known
    sizes; no input has a label twice.

    Numeric effect: the same sum over the reals, its parts rounded between the products, by the
    distributive law. A part may overflow where the whole does not.
    """
    rewriter = Rewriter(graph, limit)
    for node in graph.nodes:
        steps = None if rewriter.spent else chain(graph, node)
        if steps is None:
            rewriter.keep(node)
            continue
        values = [rewriter.map(v) for v in node.inputs]
        for index, (first, second, equation) in enumerate(steps, 1):
            pair = [values[first], values[second]]
            values = [v for i, v in enumerate(values) if i not in (first, second)]
            names = rewriter.names(node) if index == len(steps) else []
            name = node.name if index == len(steps) else ""
            values.append(rewriter.add(Einsum(equation=equation), pair, name, names))
        (last_output,) = values
        assert last_output is not None
        rewriter.replace(node, last_output, "split_einsum")
    return rewriter.finish()


def chain(graph: Graph, node: Node) -> list[tuple[int, int, str]] | None:
    """(first, second, equation) of each product: both indices are removed from the list of terms
    and the result is appended. None for nodes that stay as they are."""
    types = graph.input_types(node)
    if not isinstance(node.op, Einsum) or len(types) < 3:
        return None
    static_types = [t for t in types if t is not None and t.is_static and 0 not in t.shape]
    if len(static_types) < len(types) or static_types[0].dtype not in (
        DType.float32,
        DType.float64,
    ):
        return None
    named, output = node.op.axis_labels([t.rank for t in static_types])
    labels = list(dict.fromkeys(label for term in (*named, output) for label in term))
    if len(labels) > len(string.ascii_letters) or any(len(set(t)) < len(t) for t in named):
        return None
    letter = dict(zip(labels, string.ascii_letters))
    sizes: dict[str, int] = {}
    for term, type_ in zip(named, static_types, strict=True):
        for label, size in zip(term, type_.shape, strict=True):
            sizes[letter[label]] = max(size, sizes.get(letter[label], 1))
    terms: list[Term] = [tuple(letter[label] for label in term) for term in named]
    last = tuple(letter[label] for label in output)
    steps = []
    while len(terms) > 1:
        first, second = min(
            combinations(range(len(terms)), 2), key=lambda p: _cost(terms, p, sizes)
        )
        other_terms = [t for i, t in enumerate(terms) if i not in (first, second)]
        output_term = (
            _remaining_labels(terms[first], terms[second], [*other_terms, last])
            if other_terms
            else last
        )
        input_terms = ",".join("".join(terms[i]) for i in (first, second))
        steps.append((first, second, f"{input_terms}->{''.join(output_term)}"))
        terms = [*other_terms, output_term]
    return steps


def _cost(terms: Sequence[Term], pair: tuple[int, int], sizes: dict[str, int]) -> int:
    """Multiplications that the product of a pair takes."""
    return math.prod(sizes[label] for label in {*terms[pair[0]], *terms[pair[1]]})


def _remaining_labels(first: Term, second: Term, other_terms: Sequence[Term]) -> Term:
    """Labels of the product of two terms: those that another term reads, in order of appearance."""
    read_labels = {label for term in other_terms for label in term}
    return tuple(label for label in dict.fromkeys((*first, *second)) if label in read_labels)


def example() -> Graph:
    """What `verax passes` shows."""
    return parse_graph(
        """
        graph "split_einsum"
        input %u: float32[2, 3]
        input %v: float32[3, 5]
        input %w: float32[5, 7]
        %y: float32[2, 7] = Einsum(equation="ab,bc,cd->ad")(%u, %v, %w)
        output %y
        """
    )
