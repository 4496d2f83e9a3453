"""What holds for every registered operator: it meets its duties, and its duties agree.

A family needs no line here: registering an operator puts it under these tests.
"""

from __future__ import annotations

import itertools
import re
import zlib
from collections.abc import Collection
from functools import cache

import numpy as np
import pytest

import verax.ops
from verax.base.errors import GraphError
from verax.ir.checker import compatible
from verax.ir.dim import symbol
from verax.ir.graph import Node
from verax.ir.operator import REGISTRY, Case, Evaluation, Inference, Operator
from verax.ir.shapes import known_outputs
from verax.ir.text import parse_operator
from verax.ir.types import DType, TensorType
from verax.reference.evaluate import evaluate_node, to_work

assert verax.ops
SUPPORTED = [name for name, op in REGISTRY.items() if not op.unsupported]


def cases_of(name: str) -> list[Case]:
    return list(REGISTRY[name].cases(np.random.default_rng(zlib.crc32(name.encode()))))


CASES = {name: cache(lambda name=name: cases_of(name)) for name in SUPPORTED}


def types_of(case: Case) -> tuple[TensorType | None, ...]:
    return tuple(None if a is None else TensorType.of(a) for a in case.inputs)


def infer(case: Case, types: tuple[TensorType | None, ...]) -> tuple[TensorType, ...]:
    known = tuple(a if i in case.constant else None for i, a in enumerate(case.inputs))
    return tuple(case.op.infer(Inference(types, known, case.op.kind)))


def run(case: Case, *, promised: bool) -> tuple[np.ndarray, ...]:
    types = types_of(case)
    outputs = infer(case, types)
    arrays = [
        a if a is None or promised else to_work(a, t.dtype, np.dtype(np.float64))
        for a, t in zip(case.inputs, types)
    ]
    node = Node(case.op, ("",) * len(arrays), ("",) * len(outputs), case.label)
    return evaluate_node(node, arrays, types, outputs, promised_bits=promised)


def overrides(cls: type[Operator], duty: str) -> bool:
    return getattr(cls, duty) is not getattr(Operator, duty)


@pytest.mark.parametrize("name", REGISTRY)
def test_it_meets_its_duties_or_says_why_not(name: str) -> None:
    cls = REGISTRY[name]
    if cls.unsupported:
        pytest.skip(cls.unsupported)
    missing = [d for d in ("infer", "reference", "cases") if not overrides(cls, d)]
    if not cls.exact and not overrides(cls, "error"):
        missing.append("error")
    assert not missing
    assert cls.__doc__


@pytest.mark.parametrize("name", SUPPORTED)
def test_its_cases_set_every_attribute_away_from_its_default(name: str) -> None:
    cases = CASES[name]()
    assert cases
    for attribute in cases[0].op.attributes():
        values = {getattr(case.op, attribute) for case in cases}
        assert len(values) > 1, f"{attribute} is always {values}"


@pytest.mark.parametrize("name", SUPPORTED)
def test_inferred_types_are_those_of_the_values(name: str) -> None:
    for case in CASES[name]():
        outputs = infer(case, types_of(case))
        assert len(outputs) == case.op.output_count
        for declared, value in zip(outputs, run(case, promised=False), strict=True):
            fits = len(value.shape) == declared.rank and all(
                not isinstance(d, int) or d == n for d, n in zip(declared.dims, value.shape)
            )
            assert fits, f"{case.op} {case.label}: inferred {declared}, got {value.shape}"
        for declared, value in zip(outputs, run(case, promised=True), strict=True):
            assert value.dtype == declared.dtype.numpy, f"{case.op} {case.label}"


@pytest.mark.parametrize("name", SUPPORTED)
def test_types_over_symbols_become_the_numeric_ones(name: str) -> None:
    tried = accepted = 0
    for case in CASES[name]():
        types = types_of(case)
        numeric, sizes = infer(case, types), symbol_values(types)
        for chosen in symbolic_types(case, types):
            symbolic = infer_or_refuse(case, chosen)
            tried, accepted = tried + 1, accepted + (symbolic is not None)
            for got, want in zip(symbolic or numeric, numeric, strict=True):
                assert compatible(got.substitute(sizes), want), (
                    f"{case.op} {case.label}: {got}, with numbers {want}"
                )
    assert accepted or not tried, f"{name} refuses every symbol"


def infer_or_refuse(
    case: Case, types: tuple[TensorType | None, ...]
) -> tuple[TensorType, ...] | None:
    """The output types; None when the operator refuses by naming a size that must be known."""
    try:
        return infer(case, types)
    except GraphError as error:
        named = "known" in error.cause or re.search(r"s\d+_\d+", error.cause)
        assert named, f"{case.op} {case.label} on {types}: {error}"
        return None


def symbol_values(types: tuple[TensorType | None, ...]) -> dict[str, int]:
    """The size that each symbol of `symbolic_types` stands for."""
    return {
        f"s{i}_{axis}": n
        for i, t in enumerate(types)
        if t is not None
        for axis, n in enumerate(t.shape)
    }


def symbolic_types(
    case: Case, types: tuple[TensorType | None, ...]
) -> list[tuple[TensorType | None, ...]]:
    """Types with one size made a symbol, with all sizes of one input, with all sizes.

    Lists of integers (shapes, axes) keep their lengths: ranks follow from them.
    """
    spots = [
        (i, axis)
        for i, t in enumerate(types)
        if t is not None and i not in case.constant and not (t.dtype.is_integer and t.rank == 1)
        for axis in range(t.rank)
    ]

    def made(chosen: Collection[tuple[int, int]]) -> tuple[TensorType | None, ...]:
        return tuple(
            t if t is None else t.with_dims(
                [symbol(f"s{i}_{a}") if (i, a) in chosen else d for a, d in enumerate(t.dims)]
            )
            for i, t in enumerate(types)
        )  # fmt: skip

    inputs = dict.fromkeys(i for i, _ in spots)
    groups = [{spot} for spot in spots] + [{s for s in spots if s[0] == i} for i in inputs]
    return [made(group) for group in groups] + [made(spots)] * (len(inputs) > 1)


@pytest.mark.parametrize("name", SUPPORTED)
def test_the_promised_bits_lie_within_the_error_bound(name: str) -> None:
    for case in CASES[name]():
        meant, promised = run(case, promised=False), run(case, promised=True)
        types, outputs = types_of(case), infer(case, types_of(case))
        wide = [
            a if a is None or t is None else to_work(a, t.dtype, np.dtype(np.float64))
            for a, t in zip(case.inputs, types)
        ]
        with np.errstate(all="ignore"):
            errors = case.op.error(Evaluation(types, outputs), wide, meant)
        assert len(errors) == len(outputs)
        for error, want, got, declared in zip(errors, meant, promised, outputs, strict=True):
            place = f"{case.op} {case.label}"
            if error is None:
                exact = want.astype(declared.dtype.numpy)
                if declared.dtype.is_narrow:  # NumPy knows no NaN of theirs
                    got, exact = got.astype(np.float64), exact.astype(np.float64)
                np.testing.assert_array_equal(got, exact, err_msg=place)
            elif declared.dtype in (DType.float32, DType.float64):
                assert np.all(error.sigma >= 0) and np.all(error.sigma <= error.bound * 2), place
                finite = np.isfinite(want)
                with np.errstate(all="ignore"):
                    far = finite & ~(np.abs(got - want) <= error.bound)
                assert not far.any(), f"{place}: {got[far][:3]} for {want[far][:3]}"
                np.testing.assert_array_equal(got[~finite], want[~finite], err_msg=place)


@pytest.mark.parametrize("name", SUPPORTED)
def test_shapes_are_computed_over_symbols(name: str) -> None:
    cls = REGISTRY[name]
    if not cls.symbolic:
        return
    for case in CASES[name]():
        types = types_of(case)
        if any(a is not None and a.dtype.kind not in "iu" for a in case.inputs):
            continue
        known = tuple(None if a is None else a.astype(object) for a in case.inputs)
        outputs = infer(case, types)
        found = known_outputs(case.op, Inference(types, known, name), outputs)
        for value, want in zip(found, run(case, promised=False), strict=True):
            if value is not None:
                np.testing.assert_array_equal(value, want, err_msg=f"{case.op} {case.label}")


@pytest.mark.parametrize("name", SUPPORTED)
def test_its_text_parses_back(name: str) -> None:
    for case in CASES[name]():
        assert parse_operator(str(case.op)) == case.op


def test_cases_are_the_same_for_one_seed() -> None:
    for name in itertools.islice(SUPPORTED, 0, None, 9):
        first, second = cases_of(name), cases_of(name)
        assert [c.op for c in first] == [c.op for c in second]
