"""Exact passes: what they rewrite, what they leave alone, and that no bit changes."""

from __future__ import annotations

import numpy as np
import pytest

import verax.ops  # noqa: F401  (registers the operators)
from verax.base.errors import UsageError
from verax.base.option_groups.settings import Settings
from verax.compiler.passes import fold_constants as folding
from verax.compiler.passes.base import PassClass
from verax.compiler.passes.fold_constants import fold_constants
from verax.compiler.passes.fold_pads import fold_pads
from verax.compiler.passes.merge_common import merge_common
from verax.compiler.passes.remove_dead_code import remove_dead_code
from verax.compiler.passes.remove_identity import remove_identity
from verax.compiler.pipeline.levels import PIPELINE, passes_for, run_passes
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.reference import promised


def array(*shape: int, seed: int = 5) -> np.ndarray:
    """Normal numbers; the same for the same shape and seed."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def kinds(graph: Graph) -> list[str]:
    return [n.op.kind for n in graph.nodes]


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def padded_convolution(pads: tuple[int, ...], fill: float | None = None) -> Graph:
    b = Builder("padded")
    x = b.input("x", TensorType.parse("float32[2, 3, 6, 7]"))
    given = [x, b.constant(ints(*pads))]
    if fill is not None:
        given.append(b.constant(np.float32(fill).reshape(())))
    p = b.add(REGISTRY["Pad"](), given, ["p"])
    conv = REGISTRY["Conv"](strides=(2, 2), pads=((0, 1), (1, 0)))
    return b.graph([b.add(conv, [p, b.constant(array(4, 3, 3, 2))], ["y"])])


def same_bits(before: Graph, after: Graph) -> bool:
    inputs = {v: array(*before.types[v].shape) for v in before.inputs}
    old, new = promised(before, inputs), promised(after, inputs)
    return all(old[a].tobytes() == new[b].tobytes() for a, b in zip(before.outputs, after.outputs))


def test_asymmetric_zero_pads_become_the_convolutions_own() -> None:
    graph = padded_convolution((0, 0, 0, 2, 0, 0, 1, 0))
    after, trace = fold_pads(graph)
    assert kinds(after) == ["Conv"]
    assert after.nodes[0].op.attributes()["pads"] == ((0, 2), (3, 0))
    assert trace.rewrites == 1
    assert same_bits(graph, after)


@pytest.mark.parametrize(
    ("pads", "fill"),
    [((0, 0, 0, 1, 0, 0, 1, 0), 0.5), ((0, 1, 0, 0, 0, -1, 0, 0), None),
     ((0, 0, -1, 1, 0, 0, 1, 0), None)],
)  # fmt: skip
def test_other_pads_are_left_alone(pads: tuple[int, ...], fill: float | None) -> None:
    graph = padded_convolution(pads, fill)
    assert kinds(fold_pads(graph)[0]) == ["Pad", "Conv"]


def padded_pool(kind: str, fill: float, **attributes: object) -> Graph:
    b = Builder("padded")
    x = b.input("x", TensorType.parse("float32[2, 3, 6, 7]"))
    pads = b.constant(ints(0, 0, 1, 0, 0, 0, 2, 3))
    p = b.add(REGISTRY["Pad"](), [x, pads, b.constant(np.float32(fill).reshape(()))], ["p"])
    pool = REGISTRY[kind](kernel_shape=(3, 2), strides=(2, 3), **attributes)
    return b.graph(b.add_all(pool, [p], ["y", "at"][: pool.output_count]))


@pytest.mark.parametrize(
    ("kind", "fill", "attributes"),
    [
        ("AveragePool", 0.0, {}),
        ("AveragePool", 0.0, {"count_include_pad": True, "pads": ((0, 1), (1, 0))}),
        ("AveragePool", -0.0, {"dilations": (2, 1)}),
        ("LpPool", 0.0, {"p": 1}),
        ("LpPool", 0.0, {"pads": ((1, 0), (0, 1))}),
        ("MaxPool", -np.inf, {"pads": ((1, 0), (0, 1))}),
    ],
)
def test_a_border_becomes_the_pools_own(
    kind: str, fill: float, attributes: dict[str, object]
) -> None:
    graph = padded_pool(kind, fill, **attributes)
    after, trace = fold_pads(graph)
    assert (kinds(after), trace.rewrites) == ([kind], 1)
    assert same_bits(graph, after)


@pytest.mark.parametrize(
    ("kind", "fill", "attributes"),
    [
        ("AveragePool", 0.5, {}),
        ("AveragePool", 0.0, {"pads": ((0, 1), (1, 0))}),  # its own does not count
        ("AveragePool", 0.0, {"ceil_mode": True}),  # the last window begins in the border
        ("AveragePool", 0.0, {"pads": "SAME_UPPER"}),
        ("MaxPool", 0.0, {}),
        ("MaxPool", -np.inf, {"with_indices": True}),
        ("LpPool", np.nan, {}),
    ],
)
def test_a_border_that_a_pool_cannot_say_stays(
    kind: str, fill: float, attributes: dict[str, object]
) -> None:
    assert kinds(fold_pads(padded_pool(kind, fill, **attributes))[0]) == ["Pad", kind]


def test_constants_are_folded_with_the_bits_of_run_time() -> None:
    b = Builder("constants")
    x = b.input("x", TensorType.parse("float32[2, 5]"))
    t = b.add(REGISTRY["Exp"](), [b.constant(array(5))])
    t = b.add(REGISTRY["Div"](), [t, b.constant(array(2, 1))])
    graph = b.graph([b.add(REGISTRY["Add"](), [x, t], ["y"])])
    after, trace = fold_constants(graph)
    assert kinds(after) == ["Add"]
    assert trace.rewrites == 2
    assert same_bits(graph, after)


def test_shape_computations_of_known_sizes_are_folded() -> None:
    b = Builder("shapes")
    x = b.input("x", TensorType.parse("float32[2, 3, 5]"))
    s = b.add(REGISTRY["Shape"](), [x])
    first = b.add(REGISTRY["Gather"](), [s, b.constant(ints(0))])
    wanted = b.add(REGISTRY["Concat"](axis=0), [first, b.constant(ints(-1))])
    graph = b.graph([b.add(REGISTRY["Reshape"](), [x, wanted], ["y"])])
    after = remove_dead_code(fold_constants(graph)[0])[0]
    assert kinds(after) == ["Reshape"]
    assert after.types["y"].shape == (2, 15)


def test_identity_dead_code_and_common_nodes_go() -> None:
    b = Builder("tidy")
    x = b.input("x", TensorType.parse("float32[3, 2]"))
    i = b.add(REGISTRY["Identity"](), [x])
    p, q = b.add(REGISTRY["Relu"](), [i]), b.add(REGISTRY["Relu"](), [x])
    b.add(REGISTRY["Abs"](), [q], ["unused"])
    graph = b.graph([b.add(REGISTRY["Sub"](), [p, q], ["y"])])
    after = graph
    for step in (remove_identity, merge_common, remove_dead_code):
        after, _ = step(after)
    assert kinds(after) == ["Relu", "Sub"]
    assert same_bits(graph, after)


def test_outputs_keep_their_names() -> None:
    b = Builder("outputs")
    x = b.input("x", TensorType.parse("float32[3]"))
    graph = b.graph([b.add(REGISTRY["Identity"](), [x], ["y"]),
                     b.add(REGISTRY["Relu"](), [x], ["z"])])  # fmt: skip
    after, _ = run_passes(graph, Settings(checked=True))
    assert after.outputs == ("y", "z")


def test_level_0_does_nothing_and_level_1_only_what_is_exact() -> None:
    assert passes_for(Settings(opt_level=0)) == ()
    assert {p.kind for p in passes_for(Settings(opt_level=1))} == {PassClass.exact}


def test_passes_are_disabled_and_required_by_name() -> None:
    without = passes_for(Settings(disable=("fold_pads",)))
    assert "fold_pads" not in [p.name for p in without]
    assert [p.name for p in passes_for(Settings(opt_level=0, require=("merge_common",)))] == [
        "merge_common"
    ]
    with pytest.raises(UsageError, match="unknown pass 'fold_pds'"):
        passes_for(Settings(disable=("fold_pds",)))


def test_every_pass_explains_itself() -> None:
    for step in PIPELINE:
        missing = [k for k in ("Given:", "Result:", "Numeric effect:") if k not in step.help]
        assert not missing, step.name


def test_large_results_are_folded_if_what_they_are_made_of_is_as_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tied embedding, transposed for the last product, is; what a small constant grows to is
    not."""
    monkeypatch.setattr(folding, "SIZE_LIMIT", 1000)
    b = Builder("net")
    x = b.input("x", TensorType.parse("float32[50]"))
    table = b.constant(array(40, 50))
    rows = b.add(REGISTRY["Transpose"](perm=(1, 0)), [table])
    y = b.add(REGISTRY["MatMul"](), [x, rows])
    grown = b.add(REGISTRY["Expand"](), [b.constant(np.float32([2])), b.constant(ints(40, 50))])
    graph = b.graph([y, b.add(REGISTRY["Add"](), [grown, x])])
    assert [n.op.kind for n in fold_constants(graph)[0].nodes] == ["MatMul", "Expand", "Add"]
