"""What every operator does with types of 8, 4 and 2 bits: it moves them, converts them, or refuses
them by node and type; nothing computes in them in silence, and nothing raises anything else.

A family needs no line here: registering an operator puts it under these tests.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

import verax.ops
from verax.base.errors import GraphError
from verax.base.option_groups.settings import Settings
from verax.compiling import compile
from verax.ir.graph import Builder, Node, infer_node
from verax.ir.operator import REGISTRY, Case
from verax.ir.types import DType, TensorType
from verax.reference.evaluate import promised

assert verax.ops
NAMES = [name for name, op in REGISTRY.items() if not op.unsupported]
KINDS = (DType.float8_e5m2, DType.int4)
OTHERWISE = {"If", "Loop", "QuantizeLinear"}
"""Whose bodies fix the types of their first case, and which gives narrow types, not takes them."""


def first_case(name: str) -> Case:
    return next(iter(REGISTRY[name].cases(np.random.default_rng(zlib.crc32(name.encode())))))


def inferred(case: Case, types: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
    """The outputs' types, of a node as graphs have it."""
    inputs = tuple(None if t is None else f"x{i}" for i, t in enumerate(types))
    given = {n: t for n, t in zip(inputs, types) if n is not None and t is not None}
    known = {f"x{i}": np.asarray(case.inputs[i]) for i in case.constant}
    for count in range(1, 6):
        node = Node(case.op, inputs, tuple(f"y{i}" for i in range(count)), "the node")
        try:
            return infer_node(node, given, known)[0]
        except GraphError as error:
            if "are named" not in error.cause:
                raise
    raise AssertionError(case.op)


def exchanged(name: str) -> Iterator[tuple[Case, tuple[int, ...], DType]]:
    """The first case with each of its inputs, and all of one type, in a narrow type."""
    case = first_case(name)
    numbers = [i for i, a in enumerate(case.inputs) if a is not None and i not in case.constant]
    for kind in KINDS:
        groups = {tuple(numbers), *((i,) for i in numbers)}
        groups |= {tuple(i for i in numbers if case.inputs[i].dtype == t)  # type: ignore[union-attr]
                   for t in {case.inputs[i].dtype for i in numbers}}  # type: ignore[union-attr]  # fmt: skip
        for group in sorted(groups - {()}):
            yield case, group, kind


@pytest.mark.parametrize("name", NAMES)
def test_an_operator_refuses_what_it_does_not_compute_in(name: str) -> None:
    for case, group, kind in exchanged(name):
        types = [
            None if a is None else TensorType.of(a).with_dtype(kind) if i in group
            else TensorType.of(a) for i, a in enumerate(case.inputs)
        ]  # fmt: skip
        if case.op.takes_narrow:
            try:
                inferred(case, types)
            except GraphError as error:
                assert "the node" in error.place and str(error.cause)
            continue
        with pytest.raises(GraphError, match=f"{name} does not compute in {kind}") as caught:
            inferred(case, types)
        assert "the node" in caught.value.place and f"input {group[0]}" in caught.value.cause


@pytest.mark.parametrize("name", [n for n in NAMES if REGISTRY[n].takes_narrow])
def test_what_takes_narrow_types_compiles_to_its_meaning(name: str) -> None:
    taken = 0
    for case, group, kind in exchanged(name):
        arrays = [
            np.abs(a).astype(np.int32).astype(kind.numpy) if i in group and a is not None else a
            for i, a in enumerate(case.inputs)
        ]
        builder = Builder("case")
        try:
            names = [
                None if a is None else builder.constant(a, f"x{i}") if i in case.constant
                else builder.input(f"x{i}", TensorType.of(a)) for i, a in enumerate(arrays)
            ]  # fmt: skip
            outputs = inferred(case, [None if a is None else TensorType.of(a) for a in arrays])
            results = [f"y{i}" for i in range(len(outputs))]
            builder.add_all(case.op, names, results, "the node")
            graph = builder.graph(results)
        except GraphError:
            continue
        given = {n: a for n, a in zip(names, arrays) if n in graph.inputs}
        want = promised(graph, given)
        made = compile(graph, Settings(opt_level=1, threads=1)).run(given)
        for result in results:
            assert made[result].dtype == want[result].dtype
            assert made[result].tobytes() == want[result].tobytes(), (group, kind)
        taken += 1
    assert bool(taken) != (name in OTHERWISE)


def with_types(name: str) -> Iterator[tuple[str, Case]]:
    """The first case with each attribute that is an element type, and may be that of the result, a
    narrow one."""
    case = first_case(name)
    for field in dataclasses.fields(case.op):
        if "DType" in str(field.type):
            for kind in KINDS:
                try:
                    yield (
                        field.name,
                        dataclasses.replace(
                            case, op=dataclasses.replace(case.op, **{field.name: kind})
                        ),
                    )
                except GraphError:
                    continue


TYPED = [n for n in NAMES if any("DType" in str(f.type) for f in dataclasses.fields(REGISTRY[n]))]


@pytest.mark.parametrize("name", TYPED)
def test_a_result_of_a_narrow_type_is_computed_or_refused(name: str) -> None:
    for field, case in with_types(name):
        types = [None if a is None else TensorType.of(a) for a in case.inputs]
        try:
            outputs = inferred(case, types)
        except GraphError as error:
            assert "the node" in error.place, field
            continue
        builder = Builder("case")
        names = [
            None if a is None else builder.constant(np.asarray(a), f"x{i}") if i in case.constant
            else builder.input(f"x{i}", TensorType.of(a)) for i, a in enumerate(case.inputs)
        ]  # fmt: skip
        results = [f"y{i}" for i in range(len(outputs))]
        builder.add_all(case.op, names, results, "the node")
        graph = builder.graph(results)
        given = {n: a for n, a in zip(names, case.inputs) if n in graph.inputs}
        want = promised(graph, given)
        made = compile(graph, Settings(opt_level=1, threads=1)).run(given)
        for result, type_ in zip(results, outputs):
            assert made[result].dtype == want[result].dtype == type_.dtype.numpy, field
            assert made[result].tobytes() == want[result].tobytes(), field
