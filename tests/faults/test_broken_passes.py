"""Every pass has a broken twin: the mistake is noticed, and the pass is named.

A twin is the pass with one mistake that somebody might make in it. It takes the place of the pass;
`bisect` must call the result a mistake and name the pass, or, where a pass that is exact changes
bits within rounding, say that it broke its promise.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from tests.faults import quantised_twins

from verax.base.option_groups.settings import Settings
from verax.compiler.passes import fold_attention_scales as attention_scales
from verax.compiler.passes import fold_constants as constants
from verax.compiler.passes import fold_pads as pads
from verax.compiler.passes import hoist_scales as hoisting
from verax.compiler.passes import recognize_attention as attention
from verax.compiler.passes import reduce_strength as strength
from verax.compiler.passes import share_constants as sharing
from verax.compiler.passes import split_einsum as split
from verax.compiler.passes import tokens_as_images as tokens
from verax.compiler.passes.affine import AffineMap
from verax.compiler.passes.base import Pass
from verax.compiler.passes.canonicalize import _Canonical
from verax.compiler.passes.choose_bfloat16 import choose_bfloat16
from verax.compiler.passes.choose_strassen import choose_strassen
from verax.compiler.passes.choose_winograd import choose_winograd
from verax.compiler.passes.fold_scales import _Backward, fold_scales
from verax.compiler.passes.trim_kernels import trim_kernels
from verax.compiler.pipeline import levels
from verax.ir.graph import Builder, Graph, Node
from verax.ir.operator import REGISTRY
from verax.ir.rewrite import Rewriter
from verax.ir.types import TensorType
from verax.judge.bisect import bisect
from verax.judge.check import check
from verax.ops.movement.reshaping import Transpose
from verax.ops.pointwise.arithmetic import Add
from verax.ops.pointwise.cast import Cast
from verax.records.bisection import Bisection
from verax.records.trace import Trace
from verax.records.verdict import Kind
from verax.runners.own import VeraxRunner

Rewriting = Callable[..., tuple[Graph, Trace]]
Network = Callable[[Builder, str], str]


class Sketch:
    """A network from x, float32[2, 3, 9, 7], with constants from a seed of its own."""

    def __init__(self, shape: str = "2, 3, 9, 7") -> None:
        self.b = Builder("net")
        self.random = np.random.default_rng(len(shape) + 40)
        self.x = self.b.input("x", TensorType.parse(f"float32[{shape}]"))

    def add(self, kind: str, *inputs: str | None, name: str = "", **attributes: object) -> str:
        return self.b.add(REGISTRY[kind](**attributes), list(inputs), [], name)

    def array(self, *values: object, dtype: type = np.float32) -> str:
        return self.b.constant(np.array(values, dtype))

    def normal(self, *shape: int) -> str:
        return self.b.constant(self.random.standard_normal(shape).astype(np.float32))

    def graph(self, *outputs: str) -> Graph:
        return self.b.graph([self.add("Tanh", v, name=f"end{i}") for i, v in enumerate(outputs)])


def conv(s: Sketch, x: str, channels: tuple[int, int] = (5, 3), **attributes: object) -> str:
    return s.add("Conv", x, s.normal(*channels, 3, 3), s.normal(channels[0]), **attributes)


# --- fold_constants: a table in half precision


def halved_constants(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Keep what was folded in float16."""
    folded = constants._values

    def coarse(*arguments: object) -> object:
        found = folded(*arguments)  # type: ignore[arg-type]
        return found and [a.astype(np.float16).astype(a.dtype) for a in found]

    with patch.object(constants, "_values", coarse):
        return constants.fold_constants(graph, limit)


def exponentials() -> Graph:
    s = Sketch()
    return s.graph(s.add("Mul", s.add("Relu", s.x), s.add("Exp", s.normal(3, 1, 1))))


# --- remove_identity: two casts that come back


def casts_that_come_back(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Remove a Cast to the type that the Cast before it left, whatever was between."""
    rewriter = Rewriter(graph, limit)
    for node in graph.nodes:
        before = graph.producers.get(node.inputs[0] or "")
        pair = isinstance(node.op, Cast) and before is not None and isinstance(before.op, Cast)
        if pair and before is not None and not rewriter.spent:
            source = rewriter.map(before.inputs[0])
            assert source is not None
            rewriter.replace(node, source, "remove_identity")
        else:
            rewriter.keep(node)
    return rewriter.finish()


def whole_numbers() -> Graph:
    s = Sketch()
    wide = s.add("Mul", s.x, s.array(4.5))
    return s.graph(s.add("Cast", s.add("Cast", wide, to="int32"), to="float32"))


# --- share_constants: by type and shape


def shared_by_shape(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Compare no bytes."""
    with (
        patch.object(sharing, "_checksum", lambda array: 0),
        patch.object(sharing, "same_bits", lambda a, b: True),
    ):
        return sharing.share_constants(graph, limit)


def two_scales() -> Graph:
    s = Sketch()
    first = s.add("Mul", s.x, s.array([[1.5]], [[0.5]], [[2.0]]))
    return s.graph(s.add("Mul", s.add("Sigmoid", first), s.array([[1.5]], [[0.5]], [[2.5]])))


# --- canonicalize: parts joined in another order


def parts_in_any_order(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Take the Concat of all parts of a Split for the whole, in whatever order."""

    def whole(self: _Canonical, node: object, source: str) -> list[str] | None:
        before = self.producers.get(source)
        joined = {self.rewriter.map(v) for v in node.inputs}  # type: ignore[attr-defined]
        if before is None or before.op.kind != "Split" or joined != {*before.outputs}:
            return None
        return [before.inputs[0] or ""]

    with patch.object(_Canonical, "_split_input", whole):
        return _Canonical(graph, limit).run()


def swapped_halves() -> Graph:
    s = Sketch("2, 6, 5, 7")
    x = s.add("Relu", s.x)
    a, b = s.b.add_all(REGISTRY["Split"](axis=1, num_outputs=2), [x])
    return s.graph(s.add("Concat", b, a, axis=1))


# --- reduce_strength: the sign of a power of two, and of zero


def unsigned_reciprocals(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Multiply with 2^-k whatever the divisor's sign."""
    healthy = strength._reciprocal

    def unsigned(rewriter: Rewriter, node: object) -> np.ndarray | None:
        found = healthy(rewriter, node)  # type: ignore[arg-type]
        return None if found is None else np.abs(found)

    with patch.object(strength, "_reciprocal", unsigned):
        return strength.reduce_strength(graph, limit)


def quotients() -> Graph:
    s = Sketch()
    return s.graph(s.add("Div", s.add("Sin", s.x), s.array([[2.0]], [[-4.0]], [[0.5]])))


def any_zero(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Remove x + 0 for both zeros: +0 turns -0 into +0, which 1 / x tells apart."""
    with patch.dict(strength.UNITS, {Add: lambda c: c == 0}):
        return strength.reduce_strength(graph, limit)


def negative_zeros() -> Graph:
    s = Sketch()
    zeros = s.add("Neg", s.add("Relu", s.add("Neg", s.add("Abs", s.x))))  # -0 everywhere
    return s.b.graph([s.add("Neg", s.add("Add", zeros, s.array([[0.0]], [[0.0]], [[0.0]])))])


# --- cancel_transposes: equal permutations for inverse ones


def equal_permutations(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Cancel two transpositions of one permutation, which need not be its own inverse."""
    rewriter = Rewriter(graph, limit)
    for node in graph.nodes:
        before = graph.producers.get(node.inputs[0] or "")
        pair = isinstance(node.op, Transpose) and before is not None and before.op == node.op
        if pair and before is not None and not rewriter.spent:
            source = rewriter.map(before.inputs[0])
            assert source is not None
            rewriter.replace(node, source, "cancel_transposes")
        else:
            rewriter.keep(node)
    return rewriter.finish()


def turned_twice() -> Graph:
    s = Sketch("2, 5, 5, 5")  # of other sizes, the shapes would not fit
    x = s.add("Mul", s.x, s.normal(5, 1, 1))
    for _ in range(2):
        x = s.add("Transpose", x, perm=(0, 2, 3, 1))
    return s.graph(s.add("Mul", x, s.normal(5, 1, 1)))


# --- tokens_as_images: rows for columns


def columns_first(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Take the pixels of an image column by column."""

    with patch.object(tokens, "_first", lambda axes: (0, axes + 1, *range(axes, 0, -1))):
        return tokens.tokens_as_images(graph, limit)


def square_image() -> Graph:
    s = Sketch("2, 9, 3")
    image = s.add(
        "Reshape", s.add("Transpose", s.x, perm=(0, 2, 1)), s.array(2, 3, 3, 3, dtype=int)
    )
    return s.graph(conv(s, image))


# --- fold_pads: the ends change places


def swapped_ends(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Take (begin, end) for (end, begin)."""
    healthy = pads.border_of

    def swapped(*arguments: object) -> object:
        found = healthy(*arguments)  # type: ignore[arg-type]
        return found and dataclasses.replace(found, widths=[(b, a) for a, b in found.widths])

    with patch.object(pads, "border_of", swapped):
        return pads.fold_pads(graph, limit)


def padded() -> Graph:
    s = Sketch()
    widths = s.array(0, 0, 0, 1, 0, 0, 1, 1, dtype=np.int64)
    return s.graph(conv(s, s.add("Pad", s.add("Sigmoid", s.x), widths), strides=(2, 1)))


# --- trim_kernels: the positions at the beginning are kept


def first_positions(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Take as many weights from the beginning of the kernel."""
    made, trace = trim_kernels(graph, limit)
    (whole,) = (array for array in graph.constants.values() if array.ndim == 4)
    constants = {
        value: whole[:, :, : array.shape[2], : array.shape[3]] if array.ndim == 4 else array
        for value, array in made.constants.items()
    }
    return dataclasses.replace(made, constants=constants), trace


def far_reaching() -> Graph:
    s = Sketch()
    far = ((11, 11), (11, 11))
    return s.graph(conv(s, s.add("Relu", s.x), pads=far, dilations=(11, 11)))


# --- fold_scales: conditions that are not asked for


def any_sign(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Move negative scales through Relu and MaxPool, too."""
    with patch.object(AffineMap, "keeps_order", True):
        return fold_scales(graph, limit)


def negative_scale() -> Graph:
    s = Sketch()
    scale = s.array([[1.5]], [[-0.5]], [[0.75]], [[2.0]], [[0.3]])
    return s.graph(s.add("Mul", s.add("Relu", conv(s, s.x)), scale))


def negative_maximum() -> Graph:
    s = Sketch()
    scale = s.array([[1.5]], [[-0.5]], [[0.75]], [[2.0]], [[0.3]])
    pool = s.add("MaxPool", conv(s, s.x), kernel_shape=(2, 3), strides=(2, 1))
    return s.graph(s.add("Mul", pool, scale))


def any_fill(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Move a scale through a Pad with whatever it fills in."""
    with patch.object(_Backward, "_pads_zeros", lambda self, node, axis: True):
        return fold_scales(graph, limit)


def any_channels(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Move a scale by channel through a Pad that moves the channels."""
    pads_zeros = _Backward._pads_zeros
    of_none = lambda self, node, axis: pads_zeros(self, node, None)  # noqa: E731
    with patch.object(_Backward, "_pads_zeros", of_none):
        return fold_scales(graph, limit)


def shifted() -> Graph:
    s = Sketch()
    widths = s.array(0, 1, 0, 0, 0, -1, 0, 0, dtype=np.int64)
    scale = s.array([[1.5]], [[0.5]], [[0.75]], [[2.0]], [[0.3]])
    return s.graph(s.add("Mul", s.add("Pad", conv(s, s.x), widths), scale))


def filled() -> Graph:
    s = Sketch()
    widths = s.array(0, 0, 1, 0, 0, 0, 0, 2, dtype=np.int64)
    fill = s.b.constant(np.array(1.25, np.float32))
    scale = s.array([[1.5]], [[0.5]], [[0.75]], [[2.0]], [[0.3]])
    return s.graph(s.add("Mul", s.add("Pad", conv(s, s.x), widths, fill), scale))


# --- split_einsum: a label that is summed too early


def forgets_the_others(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Keep the labels of the output only, whoever else has them."""
    left = split._remaining_labels
    with patch.object(split, "_remaining_labels", lambda a, b, others: left(a, b, others[-1:])):
        return split.split_einsum(graph, limit)


def three_factors() -> Graph:
    s = Sketch()
    factors = (s.x, s.normal(7, 5), s.normal(3, 5))
    return s.graph(s.add("Einsum", *factors, equation="abcd,de,be->ac"))


# --- choose_winograd: pads made equal


def equal_pads(
    graph: Graph, limit: int | None = None, keep: Sequence[str] = ()
) -> tuple[Graph, Trace]:
    """Spread an axis' padding evenly over its ends."""
    graph, trace = choose_winograd(graph, limit, keep)
    nodes = []
    for node in graph.nodes:
        if node.op.kind == "WinogradConv":
            even = tuple(((a + b) // 2, (a + b + 1) // 2) for a, b in node.op.pads)  # type: ignore[attr-defined]
            node = dataclasses.replace(node, op=dataclasses.replace(node.op, pads=even))  # type: ignore[call-arg]
        nodes.append(node)
    return dataclasses.replace(graph, nodes=tuple(nodes)), trace


def wide() -> Graph:
    s = Sketch("2, 18, 29, 23")
    more = {"kernel_shape": (3, 3), "pads": ((0, 2), (1, 1))}
    return s.graph(conv(s, s.add("Relu", s.x), (20, 18), **more))


# --- choose_winograd: filters of one group given to another


def next_groups(
    graph: Graph, limit: int | None = None, keep: Sequence[str] = ()
) -> tuple[Graph, Trace]:
    """Give every group its neighbour's filters."""
    graph, trace = choose_winograd(graph, limit, keep)
    constants = dict(graph.constants)
    for node in graph.nodes:
        if node.op.kind == "WinogradConv":
            w = constants[node.inputs[1]]
            constants[node.inputs[1]] = np.roll(w, len(w) // node.op.groups, axis=0)  # type: ignore[attr-defined]
    return dataclasses.replace(graph, constants=constants), trace


def wide_groups() -> Graph:
    s = Sketch("2, 32, 29, 23")
    more = {"kernel_shape": (3, 3), "pads": ((0, 2), (1, 1)), "groups": 2}
    return s.graph(conv(s, s.add("Relu", s.x), (32, 16), **more))


# --- choose_strassen: the halves of the weights exchanged


def other_half(
    graph: Graph, limit: int | None = None, keep: Sequence[str] = ()
) -> tuple[Graph, Trace]:
    """Take the columns, or filters, of the right half for those of the left one."""
    graph, trace = choose_strassen(graph, limit, keep)
    constants = dict(graph.constants)
    for node in graph.nodes:
        if node.op.kind in ("StrassenMatMul", "StrassenConv"):
            w, axis = constants[node.inputs[1]], int(node.op.kind == "StrassenMatMul")
            constants[node.inputs[1]] = np.roll(w, w.shape[axis] // 2, axis=axis)
    return dataclasses.replace(graph, constants=constants), trace


def large() -> Graph:
    s = Sketch("2, 97, 896")
    return s.graph(s.add("MatMul", s.add("Relu", s.x), s.normal(896, 896)))


def pointwise() -> Graph:
    s = Sketch("2, 256, 15, 13")
    weights = s.normal(288, 256, 1, 1)
    return s.graph(s.add("Conv", s.add("Relu", s.x), weights, s.normal(288)))


# --- choose_bfloat16: the rounded weights of the filter beside


def next_filters(
    graph: Graph, limit: int | None = None, keep: Sequence[str] = ()
) -> tuple[Graph, Trace]:
    """Give every filter its neighbour's weights."""
    graph, trace = choose_bfloat16(graph, limit, keep)
    constants = dict(graph.constants)
    for node in graph.nodes:
        maker = graph.producers.get(node.inputs[0])
        if maker is not None and maker.op.kind == "Bfloat16Factor":
            constants[node.inputs[1]] = np.roll(constants[node.inputs[1]], 1, axis=0)
    return dataclasses.replace(graph, constants=constants), trace


def many_terms() -> Graph:
    s = Sketch("2, 18, 9, 7")
    return s.graph(conv(s, s.add("Relu", s.x), (5, 18), strides=(2, 1)))


# --- merge_common: attributes are not looked at


def merged_by_kind(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Merge nodes of one kind and the same inputs."""
    rewriter = Rewriter(graph, limit)
    made: dict[object, list[str]] = {}
    for node in graph.nodes:
        key = node.op.kind, tuple(rewriter.map(v) for v in node.inputs)
        shown = any(v in graph.outputs for v in node.outputs)
        if key in made and not shown and not rewriter.spent:
            rewriter.replace(node, made[key], "merge_common")
        else:
            rewriter.keep(node)
            made.setdefault(key, [rewriter.values[v] for v in node.outputs])
    return rewriter.finish()


def two_slopes() -> Graph:
    s = Sketch()
    first, second = (s.add("LeakyRelu", s.x, alpha=a) for a in (0.125, 0.375))
    return s.graph(s.add("Sub", s.add("Exp", first), second))


# --- remove_dead_code: what is optional


def without_optional(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Remove constants that only an optional input reads, as if nobody did."""
    rewriter = Rewriter(graph, limit)
    for node in graph.nodes:
        rewriter.keep(node)
        bias = node.inputs[2] if node.op.kind == "Conv" and len(node.inputs) > 2 else None
        if bias is not None and not rewriter.spent:
            last = rewriter.new.nodes[-1]
            inputs = (*last.inputs[:2], None)
            rewriter.new.nodes[-1] = dataclasses.replace(last, inputs=inputs)
            rewriter.record(node, "remove_dead_code")
    return rewriter.finish()


def biased() -> Graph:
    s = Sketch()
    return s.graph(conv(s, s.add("Relu", s.x)))


BITS = "bits"
"""Evidence against a pass that is exact, where the judge cannot call it a mistake."""
# --- recognize_attention: a division that rounds


def any_divisor(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Multiply by the reciprocal whatever it is."""
    with patch.object(attention, "_factors", lambda scale, divisor: (scale / divisor, 1.0)):
        return attention.recognize_attention(graph, limit)


def attended() -> Graph:
    s = Sketch()
    turned = s.add("Transpose", s.add("Sin", s.x), perm=(0, 1, 3, 2))
    scores = s.add("Div", s.add("MatMul", s.x, turned), s.array(5.65685))
    return s.graph(s.add("MatMul", s.add("Softmax", scores), s.add("Cos", s.x)))


# --- hoist_scales: keys whose features differ between products


def any_matrices(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Transpose keys as if their heads were whole, whatever was made of them."""
    with patch.object(hoisting, "_is_transposed", lambda source, matrices, result: True):
        return hoisting.hoist_scales(graph, limit)


def rows_of_all_heads() -> Graph:
    """Keys [2, 3, 9, 7], transposed as two matrices of the rows of all three heads."""
    s = Sketch()
    flat = s.add("Reshape", s.add("Sin", s.x), s.array(2, 27, 7, dtype=np.int64))
    turned = s.add("Transpose", flat, perm=(0, 2, 1))
    keys = s.add("Reshape", turned, s.array(2, 3, 7, 9, dtype=np.int64))
    root = s.b.constant(np.array(0.75, np.float32))
    return s.graph(s.add("Softmax", s.add("MatMul", s.x, s.add("Mul", keys, root))))


# --- fold_attention_scales: the scale of queries is forgotten


def forgotten_scale(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    scaled = attention_scales._scaled

    def unscaled(graph: Graph, attention: Node, index: int) -> tuple[str, float] | None:
        found = scaled(graph, attention, index)
        return None if found is None else (found[0], 1.0)

    with patch.object(attention_scales, "_scaled", unscaled):
        return attention_scales.fold_attention_scales(graph, limit)


def scaled_queries() -> Graph:
    s = Sketch()
    queries = s.add("Mul", s.add("Tanh", s.x), s.b.constant(np.array(0.6, np.float32)))
    return s.graph(s.add("Attention", queries, s.x, s.add("Cos", s.x)))


TWINS: list[tuple[str, Rewriting, Callable[[], Graph], str]] = [
    ("fold_constants", halved_constants, exponentials, ""),
    ("remove_identity", casts_that_come_back, whole_numbers, ""),
    ("share_constants", shared_by_shape, two_scales, ""),
    ("canonicalize", parts_in_any_order, swapped_halves, ""),
    ("reduce_strength", unsigned_reciprocals, quotients, ""),
    ("reduce_strength", any_zero, negative_zeros, BITS),
    ("cancel_transposes", equal_permutations, turned_twice, ""),
    ("tokens_as_images", columns_first, square_image, ""),
    ("fold_pads", swapped_ends, padded, ""),
    ("trim_kernels", first_positions, far_reaching, ""),
    ("fold_scales", any_sign, negative_scale, ""),
    ("fold_scales", any_sign, negative_maximum, ""),
    ("fold_scales", any_fill, filled, ""),
    ("fold_scales", any_channels, shifted, ""),
    ("split_einsum", forgets_the_others, three_factors, ""),
    ("recognize_attention", any_divisor, attended, BITS),
    ("hoist_scales", any_matrices, rows_of_all_heads, ""),
    ("fold_attention_scales", forgotten_scale, scaled_queries, ""),
    ("choose_winograd", equal_pads, wide, ""),
    ("choose_winograd", next_groups, wide_groups, ""),
    ("choose_strassen", other_half, large, ""),
    ("choose_strassen", other_half, pointwise, ""),
    ("choose_bfloat16", next_filters, many_terms, ""),
    ("merge_common", merged_by_kind, two_slopes, ""),
    ("remove_dead_code", without_optional, biased, ""),
    *quantised_twins.TWINS,
]
"""(pass, its twin, a network in which it errs, the evidence)."""
IDS = [f"{name}-{twin.__name__}-{network.__name__}" for name, twin, network, _ in TWINS]
LEVEL = {p.name: levels.FIRST_LEVEL[p.kind] for p in levels.PIPELINE}
ALLOW = {p.name: (p.allowance,) for p in levels.PIPELINE if p.allowance}


def runner(name: str) -> VeraxRunner:
    return VeraxRunner(Settings(LEVEL[name], threads=1, allow=ALLOW.get(name, ())))


def bisected(name: str, network: Callable[[], Graph]) -> Bisection:
    return bisect(network(), runner(name), seed=3).record


@pytest.mark.parametrize(("name", "twin", "network", "evidence"), TWINS, ids=IDS)
def test_a_broken_twin_is_noticed_and_named(
    name: str,
    twin: Rewriting,
    network: Callable[[], Graph],
    evidence: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def exchanged(step: Pass) -> Pass:
        return dataclasses.replace(step, run=run) if step.name == name else step

    def run(*arguments: object, **more: object) -> tuple[Graph, Trace]:
        return twin(*arguments, **more)

    run.__name__ = name
    monkeypatch.setattr(levels, "PIPELINE", tuple(map(exchanged, levels.PIPELINE)))
    record = bisected(name, network)
    found = record.optimizations
    assert found is not None
    assert found.guilty.startswith(f"{name}: "), found.words
    assert found.steps[0].part == name
    assert found.steps[0].level == f"O{LEVEL[name]}"
    assert found.steps[0].before != found.steps[0].after
    if evidence == BITS:
        assert found.steps[0].exact
        assert "promises to change no bit" in found.words
    else:
        assert record.verdict.kind is Kind.mistake
        assert found.cured is True
        assert {b.guilty_pass.partition(":")[0] for b in record.verdict.blame} == {name}


@pytest.mark.parametrize(("name", "network"), [(t[0], t[2]) for t in TWINS], ids=IDS)
def test_the_pass_itself_is_right_on_that_network(name: str, network: Callable[[], Graph]) -> None:
    verdict = check(network(), runner(name), seed=3)
    assert verdict.kind in (Kind.identical, Kind.rounding, Kind.precision), verdict.reasons


def has_twins_of_its_own(name: str) -> bool:
    """Whether the tests of a pass plant broken twins and have them named."""
    file = Path(__file__).parents[1] / "compiler" / "passes" / f"test_{name}.py"
    text = file.read_text() if file.is_file() else ""
    planted = "\nBROKEN = {" in text or "\nBROKEN: " in text
    return planted and bool(re.search(rf'assert_named\(.*"{name}"\)', text))


def test_every_pass_has_a_twin() -> None:
    planted = {t[0] for t in TWINS}
    names = [p.name for p in levels.PIPELINE]
    lacking = [n for n in names if n not in planted and not has_twins_of_its_own(n)]
    assert not lacking, f"plant a mistake in {', '.join(lacking)}, and see it found"
