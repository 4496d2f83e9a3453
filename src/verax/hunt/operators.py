"""Cases of single operators, from the test cases that every operator declares.

The declarations set every attribute away from its default; here attributes of two of them are
mixed, inputs become constants (which is where runtimes prepack and fold), sizes become zero or one,
ranks extreme, and integers those at the ends of their type.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from verax.hunt.case import Draft, NoCase, as_stored, pick
from verax.ir.operator import REGISTRY, Case, Operator

ELEMENTWISE = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "PRelu", "Where", "Equal", "Less")
"""Operators whose inputs broadcast."""
EDGE_OPERATORS = (
    *("Max", "Min", "Clip", "Sign", "Equal", "Less", "Greater", "GreaterOrEqual", "LessOrEqual"),
    *("ArgMax", "ArgMin", "TopK", "ReduceMax", "ReduceMin", "Where", "Relu"),
)
"""Operators whose result at the ends of an integer type the standard states: nothing overflows."""
CONSTANT_SHARE, MIXED_SHARE = 0.4, 0.35
"""Shares of cases with an input made a constant, and with attributes of two declarations."""
EXTRA_RANK = 6


def declared_cases(name: str, random: np.random.Generator) -> list[Case]:
    """The declared cases of an operator; [] where it has none."""
    cls = REGISTRY[name]
    return [] if cls.unsupported else list(cls.cases(random))


def drawn(random: np.random.Generator, names: tuple[str, ...]) -> Case:
    """A declared case of one of `names`, some with attributes of another one of it."""
    cases = declared_cases(pick(random, names), random)
    if not cases:
        raise NoCase
    case = pick(random, cases)
    return _mixed(case, pick(random, cases), random) if random.random() < MIXED_SHARE else case


def _mixed(case: Case, second: Case, random: np.random.Generator) -> Case:
    """`case` with some attributes of `second`; whether that makes a graph, building it tells."""
    attributes = case.op.attributes()
    for key, value in second.op.attributes().items():
        if random.random() < 0.4:
            attributes[key] = value
    op = dataclasses.replace(case.op, **attributes)
    return dataclasses.replace(case, op=op, label=f"{case.label} + {second.label}")


def placed(draft: Draft, case: Case) -> tuple[str, ...]:
    """The case in the draft: the names of its outputs."""
    return placed_with(draft, case.op, operands(draft, case))


def operands(draft: Draft, case: Case, begin: int = 0) -> list[str | None]:
    """Names of the case's inputs from `begin` in the draft, of which some are constants."""
    names: list[str | None] = []
    for i, array in enumerate(case.inputs[begin:], begin):
        if array is None:
            names.append(None)
        elif i in case.constant or (i and draft.random.random() < CONSTANT_SHARE):
            names.append(draft.constant(array))
        else:
            names.append(draft.input(array))
    if not draft.inputs:
        raise NoCase
    return names


def placed_with(draft: Draft, op: Operator, names: list[str | None]) -> tuple[str, ...]:
    while names and names[-1] is None:
        names.pop()
    op = as_stored(op)
    return draft.builder.add_all(op, names, (), draft.builder.fresh(op.kind.lower()))


def extreme(case: Case, random: np.random.Generator) -> tuple[Case, str]:
    """The case with an extreme size, rank or value, and which. Raises `NoCase` where none fits."""
    choices = [_empty_axis, _one_wide, _higher_rank]
    if case.op.kind in ELEMENTWISE:
        choices += [_scalars, _broadcast, _broadcast]
    if case.op.kind in EDGE_OPERATORS:
        choices += [_integer_edges] * 3
    return pick(random, choices)(case, random)


def _data(case: Case) -> list[int]:
    """Inputs that hold data, not axes or shapes."""
    return [i for i, a in enumerate(case.inputs) if a is not None and i not in case.constant]


def _resized(case: Case, random: np.random.Generator, size: int) -> tuple[Case, int]:
    """One axis of the first input cut to `size`, and of each that has the same size there."""
    indices = _data(case)
    first = None if not indices else case.inputs[indices[0]]
    if first is None or first.ndim == 0:
        raise NoCase
    axis = int(random.integers(first.ndim))
    inputs = list(case.inputs)
    for i in indices:
        array = inputs[i]
        if (
            array is not None
            and array.ndim == first.ndim
            and array.shape[axis] == first.shape[axis]
        ):
            inputs[i] = np.take(array, range(min(size, array.shape[axis])), axis)
    return dataclasses.replace(case, inputs=tuple(inputs)), axis


def _empty_axis(case: Case, random: np.random.Generator) -> tuple[Case, str]:
    smaller, axis = _resized(case, random, 0)
    return smaller, f"axis {axis} of size 0"


def _one_wide(case: Case, random: np.random.Generator) -> tuple[Case, str]:
    smaller, axis = _resized(case, random, 1)
    return smaller, f"axis {axis} of size 1"


def _higher_rank(case: Case, random: np.random.Generator) -> tuple[Case, str]:
    inputs = list(case.inputs)
    for i in _data(case):
        array = inputs[i]
        if array is not None and 0 < array.ndim < EXTRA_RANK:
            inputs[i] = array.reshape((1,) * (EXTRA_RANK - array.ndim) + array.shape)
    return dataclasses.replace(case, inputs=tuple(inputs)), f"rank {EXTRA_RANK}"


def _scalars(case: Case, random: np.random.Generator) -> tuple[Case, str]:
    inputs = [
        a.reshape(-1)[:1].reshape(()) if a is not None and i in _data(case) and a.size else a
        for i, a in enumerate(case.inputs)
    ]
    return dataclasses.replace(case, inputs=tuple(inputs)), "tensors of rank 0"


def _broadcast(case: Case, random: np.random.Generator) -> tuple[Case, str]:
    """Sizes of one in different axes of each input, and fewer axes in some."""
    full = (2, 5, 3, 4)
    inputs = list(case.inputs)
    for i in _data(case):
        array = inputs[i]
        if array is None or not array.size:
            raise NoCase
        shape = tuple(1 if random.random() < 0.4 else d for d in full)
        inputs[i] = np.resize(array, shape[int(random.integers(0, 4)) :])
    return dataclasses.replace(case, inputs=tuple(inputs)), "broadcast in several axes"


def _integer_edges(case: Case, random: np.random.Generator) -> tuple[Case, str]:
    """Integers at the ends of their type, where the operator takes them."""
    dtype = np.dtype(pick(random, ("int8", "uint8", "int32", "int64", "int64")))
    info = np.iinfo(dtype)
    edges = [info.min, info.min + 1, 0, 1, info.max - 1, info.max]
    if dtype.itemsize == 8:
        edges += [2**53, 2**53 + 1, -(2**53) - 1, 2**31, -(2**31) - 1]
    inputs = list(case.inputs)
    for i in _data(case):
        array = inputs[i]
        if array is not None and array.dtype.kind in "fiu":
            inputs[i] = random.choice(np.array(edges, dtype), array.shape)
    return dataclasses.replace(case, inputs=tuple(inputs)), f"ends of {dtype}"


def is_small(case: Case) -> bool:
    """True if it takes no time."""
    return all(a is None or a.size <= 1 << 16 for a in case.inputs)
