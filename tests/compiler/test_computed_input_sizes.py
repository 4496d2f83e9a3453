"""Inputs whose sizes follow from those of others, as a mask of past and sequence has them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.test_bits import bits
from verax.base.errors import InputError
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.executable import Executable
from verax.ir.dim import symbol
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import DType, TensorType
from verax.reference import promised

PAST, SEQUENCE = symbol("past"), symbol("sequence")


def positions() -> Graph:
    """[past + sequence] + the past's length, above it or not, and a number of it: what decoders
    make of a growing past."""
    b = Builder("net")

    def add(kind: str, *inputs: str, **attributes: object) -> str:
        return b.add(REGISTRY[kind](**attributes), list(inputs))

    mask = b.input("mask", TensorType(DType.int64, (PAST + SEQUENCE,)))
    past = b.input("cache", TensorType(DType.float32, (PAST, 3)))
    new = b.input("new", TensorType(DType.float32, (SEQUENCE, 3)))
    length = add("Shape", past, start=0, end=1)
    moved = add("Add", mask, add("Mul", length, b.constant(np.array([3]))))
    later = add("Greater", moved, length)
    joined = add("Concat", past, new, axis=0)
    shown = add("Where", add("Unsqueeze", later, b.constant(np.array([1]))), joined,
                b.constant(np.array(-1.5, np.float32)))  # fmt: skip
    return b.graph([shown, moved])


def feeds(past: int, sequence: int, more: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng([past, sequence])
    return {
        "mask": rng.integers(-4 * past, 4, past + sequence + more),
        "cache": rng.standard_normal((past, 3)).astype(np.float32),
        "new": rng.standard_normal((sequence, 3)).astype(np.float32),
    }


@pytest.mark.parametrize("level", [0, 1, 2])
def test_one_program_serves_all_lengths_of_a_past(level: int) -> None:
    graph = positions()
    exe = compile(graph, Settings(level, threads=1))
    assert isinstance(exe, Executable)
    for past, sequence in ((4, 2), (5, 3), (9, 4), (17, 2), (30, 7)):
        arrays = feeds(past, sequence)
        wanted, found = promised(graph, arrays), exe.run(arrays)
        assert [bits(found[v]) for v in graph.outputs] == [bits(wanted[v]) for v in graph.outputs]
    if level:  # at O0 no pass computes what sizes make
        assert not exe._programs and len(exe._open.programs) == 1


def test_a_size_that_does_not_follow_is_refused() -> None:
    exe = compile(positions(), Settings(1, threads=1))
    for wrong in (feeds(4, 2, more=1), feeds(5, 2, more=-1)):
        with pytest.raises(InputError, match=r"input 'mask'"):
            exe.run(wrong)
    exe.run(feeds(4, 2))
    exe.run(feeds(5, 3))
    with pytest.raises(InputError, match="past \\+ sequence = 8"):
        exe.run(feeds(5, 3, more=1))
