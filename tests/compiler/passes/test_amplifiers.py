"""Layers that passes leave exact because an operator behind them amplifies errors."""

from __future__ import annotations

import time

import numpy as np
import pytest
from tests.compiler.amplifying import (
    ALGORITHMS,
    AMPLIFIERS,
    BY_OWN_NORM,
    Piece,
    approximated,
    axes,
    bias,
    convolution,
    feature_norm,
    log,
    network,
    number,
    op,
    pooled,
    product,
    quantized,
    residual,
    spatial_norm,
    unary,
    unit_norm,
)

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.passes.choose_bfloat16 import choose_bfloat16
from verax.compiler.passes.choose_strassen import choose_strassen
from verax.compiler.passes.choose_winograd import choose_winograd
from verax.ir.amplification import amplifiers
from verax.ir.graph import Builder, Graph
from verax.ir.printer import print_graph
from verax.ir.types import TensorType
from verax.records.trace import Trace

PASSES = {"strassen": choose_strassen, "winograd": choose_winograd}


def chosen(algorithm: str, graph: Graph) -> Trace:
    trace = PASSES[algorithm](graph)[1]
    assert trace.rewrites + len(trace.refused) == 1
    return trace


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("name", AMPLIFIERS)
def test_it_is_refused_before_an_amplifier(algorithm: str, name: str) -> None:
    assert chosen(algorithm, network(algorithm, unary("Relu"), AMPLIFIERS[name])).refused
    for between in ((), (bias, unary("Neg"))):
        harmless = algorithm == "strassen" and name in BY_OWN_NORM
        trace = chosen(algorithm, network(algorithm, *between, AMPLIFIERS[name]))
        assert bool(trace.refused) != harmless


def test_what_cuts_off_large_numbers_may_leave_only_errors() -> None:
    """A row errs relative to itself; where Relu leaves nothing of it but an error, a norm makes
    that 1. An epsilon or a floor keeps it small."""

    def guarded(b: Builder, v: str) -> str:
        return b.add(op("LpNormalization", axis=-1, floor=0.01), [v])

    for cut in (unary("Relu"), unary("Clip"), unary("Gelu")):
        assert chosen("strassen", network("strassen", cut, unit_norm)).refused
        assert not chosen("strassen", network("strassen", cut, guarded)).refused


HARMLESS: dict[str, tuple[Piece, ...]] = {
    "nothing": (),
    "activation": (bias, unary("Gelu")),
    "softmax": (unary("Softmax", axis=1),),
    "layer norm": (residual, feature_norm("LayerNormalization", 1e-12)),
    "residual": (bias, residual, log),
    "quantized": (quantized,),
    "spatial norm": (spatial_norm(1e-5),),
}
HARMLESS_ROWS: dict[str, tuple[Piece, ...]] = {
    "layer norm of rows": (feature_norm("LayerNormalization", 1e-5),),
    "layer norm of epsilon 1e-6": (feature_norm("LayerNormalization", float(np.float32(1e-6))),),
    "RMS norm": (feature_norm("RMSNormalization", 1e-12),),
    "RMS norm behind an activation": (unary("Relu"), feature_norm("RMSNormalization", 1e-5)),
    "product": (unary("Relu"), product, log),
    "unit norm": (bias, unit_norm),
}
HARMLESS_PIXELS: dict[str, tuple[Piece, ...]] = {
    "convolution": (unary("Relu"), convolution, log),
    "pooled": (pooled, product, unit_norm),
    "flattened": (unary("Flatten"), product, log),
}


@pytest.mark.parametrize(
    "algorithm, name",
    [(a, n) for a in ALGORITHMS for n in HARMLESS]
    + [("strassen", n) for n in HARMLESS_ROWS]
    + [("winograd", n) for n in HARMLESS_PIXELS],
)
def test_it_is_chosen_where_nothing_amplifies(algorithm: str, name: str) -> None:
    pieces = {**HARMLESS, **HARMLESS_ROWS, **HARMLESS_PIXELS}[name]
    trace = chosen(algorithm, network(algorithm, *pieces))
    assert not trace.refused, trace.refused


@pytest.mark.parametrize(
    "pieces",
    [
        (product, unary("Relu"), log),
        (product, unit_norm),
        (feature_norm("LayerNormalization", 1e-5),),
        (feature_norm("RMSNormalization", 1e-5),),
        (pooled, log),
        (pooled, unit_norm),
        (unary("MaxPool", kernel_shape=(2, 2)), unit_norm),
    ],
)
def test_pixels_of_a_tile_stay_apart_until_they_are_added_up(pieces: tuple[Piece, ...]) -> None:
    """A dark pixel errs by what a bright one beside it does, also behind 1x1 convolutions."""
    assert chosen("winograd", network("winograd", *pieces)).refused


def test_what_is_subtracted_must_be_of_another_origin() -> None:
    """x - mean(x) is as far from an addition of something else as can be."""

    def centered(b: Builder, v: str) -> str:
        return b.add(op("Sub"), [v, b.add(op("ReduceMean"), [v, axes(b, -1)])])

    assert chosen("strassen", network("strassen", centered, log)).refused
    assert not chosen("strassen", network("strassen", residual, log)).refused

    def twice(b: Builder, v: str) -> str:
        return b.add(op("Add"), [v, b.add(op("Tanh"), [v])])

    assert chosen("strassen", network("strassen", twice, log)).refused


def test_it_says_which_operator_would_amplify() -> None:
    def named(b: Builder, v: str) -> str:
        return b.add(op("Log"), [v], ["y"], "decibels")

    trace = chosen("strassen", network("strassen", unary("Relu"), named))
    (note,) = trace.refused
    assert note == (
        "choose_strassen: node 'decibels' (Log) would amplify errors: node 'layer' (MatMul)"
    )


def test_bfloat16_is_refused_as_well() -> None:
    assert choose_bfloat16(network("strassen", log))[1].refused
    assert not choose_bfloat16(network("strassen", unary("Relu")))[1].refused


def test_a_node_that_is_kept_is_not_refused() -> None:
    trace = choose_strassen(network("strassen", log), keep=("layer",))[1]
    assert (trace.rewrites, trace.refused) == (0, ())


def test_bodies_of_branches_and_loops_are_looked_into() -> None:
    def branch(kind: str) -> Piece:
        def piece(b: Builder, v: str) -> str:
            inner = Builder("body")
            x = inner.input("x", b.types[v])
            text = print_graph(inner.graph([inner.add(op(kind), [x])]))
            truth = b.input("truth", TensorType.parse("bool[]"))
            return b.add(op("If", then_branch=text, else_branch=text), [truth, v])

        return piece

    assert chosen("strassen", network("strassen", branch("Log"))).refused
    assert not chosen("strassen", network("strassen", branch("Tanh"))).refused

    def loop(b: Builder, v: str) -> str:
        """The error comes to the logarithm in the second run."""
        inner = Builder("body")
        inner.input("i", TensorType.parse("int64[]"))
        a, c = inner.input("a", b.types[v]), inner.input("c", b.types[v])
        truth = inner.input("truth", TensorType.parse("bool[]"))
        outputs = [inner.add(op("Identity"), [truth]), inner.add(op("Log"), [c]),
                   inner.add(op("Tanh"), [a])]  # fmt: skip
        text = print_graph(inner.graph(outputs))
        runs, beside = axes(b, 3), b.input("beside", b.types[v])
        given = b.input("goes_on", TensorType.parse("bool[]"))
        return b.add(op("Loop", body=text, carried=2), [runs, None, v, beside, given])

    assert chosen("strassen", network("strassen", loop)).refused


def test_state_carries_an_error_into_the_next_run() -> None:
    def made(update: bool) -> Graph:
        b = Builder("net")
        k = approximated(b, "strassen")
        state = b.input("state", b.types[k])
        y = b.add(op("Log"), [state])
        return b.graph([y, k], {state: k} if update else {})

    assert chosen("strassen", made(True)).refused
    assert not chosen("strassen", made(False)).refused


def test_the_program_says_what_was_refused() -> None:
    exe = compile(network("strassen", unary("Relu"), log), Settings(3, threads=1))
    (note,) = exe.trace.refused
    assert "would amplify errors" in note and note in str(exe.plan)
    assert not exe.recipe.algorithms
    assert not compile(network("strassen", log), Settings(2, threads=1)).trace.refused


def test_five_thousand_nodes_take_no_time() -> None:
    b = Builder("net")
    v = b.input("x", TensorType.parse("float32[3, 5]"))
    sources = []
    for _ in range(1000):
        v = b.add(op("MatMul"), [v, b.constant(np.eye(5, dtype=np.float32))])
        sources.append(v)
        for _ in range(4):
            v = b.add(op("Add"), [b.add(op("Relu"), [v]), number(b, 1.0)])
    v = b.add(op("Log"), [v])
    graph = b.graph([v])
    start = time.process_time()
    found = amplifiers(graph, dict.fromkeys(sources, ()))
    assert time.process_time() - start < 2
    assert list(found) == sources[-1:] and found[sources[-1]].op.kind == "Log"
