"""One program for many sizes gives the bits of programs made for each of them.

A network whose sizes are symbols is compiled for one set of them (`ir.assumptions`); for every other
set that the program says it serves, its bits are those of a program made for these sizes alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.compiler.graphs import networks
from tests.compiler.test_bits import bits
from tests.compiler.test_operators import graph_of
from verax.base.errors import GraphError, InputError
from verax.base.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.specialize import Specialized, Specializer
from verax.ir.assumptions import Assumptions, Condition, assuming
from verax.ir.dim import symbol
from verax.ir.graph import Builder, Graph, reinfer, specialize
from verax.ir.operator import REGISTRY
from verax.ir.types import DType, TensorType
from verax.ops.movement.slicing import Concat
from verax.ops.pointwise.arithmetic import Add
from verax.ops.windows.convolution import Conv

Arrays = Mapping[str, np.ndarray]


def opened(graph: Graph, sizes: Mapping[str, int], settings_: Settings) -> Specialized | None:
    """The program of `graph` made while its symbols have these sizes."""
    return Specializer(settings_).specialize_open(graph, dict(sorted(sizes.items())))


def run_opened(program: Specialized, sizes: Mapping[str, int], inputs: Arrays) -> dict[str, Any]:
    """Outputs of a program that serves `sizes`, twice, with other memory the second time."""
    in_order = tuple(n for _, n in sorted(sizes.items()))
    assert program.open_sizes.serves(in_order)
    sized = program.program.sized(in_order)
    arrays = [inputs[v] for v in program.inputs]
    first = program.program.run(arrays, sized)
    program.program.poison(0xA5)
    again = program.program.run(arrays, sized)
    names = [s.name for s in program.binary.outputs]
    assert all(bits(a) == bits(b) for a, b in zip(first, again, strict=True))
    return dict(zip(names, first, strict=True))


def assert_as_alone(graph: Graph, program: Specialized, sizes: Mapping[str, int], inputs: Arrays,
                    settings_: Settings) -> None:  # fmt: skip
    """The program gives what one made for these sizes gives."""
    want = compile(specialize(graph, sizes), settings_).run(inputs)
    got = run_opened(program, sizes, inputs)
    for value, array in want.items():
        assert got[value].shape == array.shape
        assert bits(got[value]) == bits(array), (str(graph), sizes, program.plan.lines)


# --- random networks

SIZES = st.fixed_dictionaries(
    {"h": st.integers(3, 40), "n": st.integers(1, 3), "w": st.integers(3, 40)}
)


@settings(max_examples=25)
@given(networks(5), st.lists(SIZES, min_size=1, max_size=2), st.sampled_from([0, 1, 2, 3]),
       st.integers(1, 2))  # fmt: skip
def test_random_networks_have_the_bits_of_known_sizes(
    network: tuple[Graph, dict[str, np.ndarray]],
    other_sizes: list[dict[str, int]],
    level: int,
    threads: int,
) -> None:
    graph, inputs = network
    n, channels, h, w = inputs["x"].shape
    dims = (symbol("n"), channels, symbol("h"), symbol("w"))
    try:
        symbolic = reinfer(graph, {"x": TensorType(DType.float32, dims)})
        made_for = other_sizes[0]
        options = Settings(level, threads=threads, quick=True)
        program = opened(symbolic, made_for, options)
    except GraphError:  # a reshape that only the first size fits, a window that is too large
        assume(False)
    assume(program is not None)
    assert program is not None
    for sizes in ({"h": h, "n": n, "w": w}, *other_sizes):
        in_order = tuple(size for _, size in sorted(sizes.items()))
        if program.open_sizes.serves(in_order):
            rng = np.random.default_rng(sum(in_order))
            shape = (sizes["n"], channels, sizes["h"], sizes["w"])
            x = rng.standard_normal(shape).astype(np.float32)
            assert_as_alone(symbolic, program, sizes, {"x": x}, options)
