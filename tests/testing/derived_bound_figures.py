"""The figures of docs/derived_bounds.md: 200 plain functions, judged with variants and faults.

`python -m tests.testing.derived_bound_figures SEED [numpy|torch|jax] [float32|bfloat16|float16]`
prints them; with `small` behind also how small a fault is seen. The meanings are written with
NumPy; those of PyTorch and JAX are the same code with another `np`.
"""

from __future__ import annotations

import sys
import types
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial, reduce
from importlib import import_module
from typing import Any

import ml_dtypes
import numpy as np
from tests.testing.derived_bound_functions import Array, Formula, PlainFunction, f32, functions

from verax.base.errors import VeraxError
from verax.records.verdict import Kind
from verax.testing.function_judging import judge_function
from verax.testing.random_rounding import SampledFunction
from verax.testing.random_rounding_numpy import NumpyFunction

TYPES = {"float32": f32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}

SMALL = (1e-4, 1e-5, 1e-6, 1e-7)
"""Relative errors by which how small a fault is seen is measured."""


def small_faults(meaning: Formula) -> dict[str, Formula]:
    """One factor of everything, and of one element alone, by size."""

    def scaled(*xs: Array, by: float) -> Array:
        return np.asarray(meaning(*(x.astype(np.float64) for x in xs))) * (1 + by)

    def one(*xs: Array, by: float) -> Array:
        y = np.array(meaning(*(x.astype(np.float64) for x in xs)))
        y.flat[np.argsort(np.abs(y), axis=None)[3 * y.size // 4]] *= 1 + by
        return y

    return {
        f"{text}, {by:g}": partial(formula, by=by)
        for text, formula in (("everything scaled", scaled), ("one element", one))
        for by in SMALL
    }


@dataclass
class Figures:
    """Cases and false answers by kind of variant and by type."""

    cases: Counter[tuple[str, str]] = field(default_factory=Counter)
    false: Counter[tuple[str, str]] = field(default_factory=Counter)
    undecided: Counter[tuple[str, str]] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    named: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))


def with_library(formula: Formula, library: Any) -> Formula:
    """The same code with another `np`, in the functions that it closes over as well."""

    def changed(value: Any) -> Any:
        home = str(getattr(value, "__module__", "")).split(".")
        if home[0] == "numpy":  # a function of NumPy itself
            return reduce(getattr, [*home[1:], value.__name__], library)
        if not isinstance(value, types.FunctionType):
            return value
        cells = tuple(types.CellType(changed(c.cell_contents)) for c in value.__closure__ or ())
        found = {
            k: changed(v) for k, v in value.__globals__.items() if k in value.__code__.co_names
        }
        names = {**value.__globals__, **found, "np": library}
        return types.FunctionType(value.__code__, names, None, value.__defaults__, cells or None)

    return changed(formula)  # type: ignore[no-any-return]


def of_numpy(function: PlainFunction, inputs: list[Array]) -> SampledFunction:
    return NumpyFunction(function.meaning, inputs, function.name)


def of_torch(function: PlainFunction, inputs: list[Array]) -> SampledFunction:
    """Through PyTorch's own NumPy, whose arrays hold tensors."""
    home, library = (
        import_module("verax.testing.random_rounding_torch"),
        import_module("torch._numpy"),
    )
    meaning = with_library(function.meaning, library)

    def tensors(*xs: Any) -> Any:
        return meaning(*map(library.asarray, xs)).tensor

    return home.TorchFunction(tensors, inputs, function.name)  # type: ignore[no-any-return]


def of_jax(function: PlainFunction, inputs: list[Array]) -> SampledFunction:
    home, library = import_module("verax.testing.random_rounding_jax"), import_module("jax.numpy")
    meaning = with_library(function.meaning, library)
    return home.JaxFunction(meaning, inputs, function.name)  # type: ignore[no-any-return]


LIBRARIES: dict[str, Callable[[PlainFunction, list[Array]], SampledFunction]] = {
    "numpy": of_numpy,
    "torch": of_torch,
    "jax": of_jax,
}


def answer(function: PlainFunction, variant: Formula, seed: int, library: str, short: str) -> Kind:
    """What is said of a variant. short: the type of inputs and answer; inside it is float32."""
    given = [
        x.astype(TYPES[short]) if x.dtype == f32 else x for x in map(np.asarray, function.inputs)
    ]
    wide = [x.astype(f32) if x.dtype == TYPES[short] else x.copy() for x in given]
    with np.errstate(all="ignore"):
        y = np.asarray(variant(*wide)).astype(f32).astype(TYPES[short])
    ready = LIBRARIES[library](function, given)
    names = [f"input_{i}" for i in range(len(given))]
    judged = judge_function(ready, names, [y], [], subject={"name": "variant"}, seed=seed)
    return judged.verdict.kind


def measure(
    selected: Iterator[PlainFunction],
    small: bool = False,
    library: str = "numpy",
    short: str = "float32",
) -> Figures:
    """Judge every variant; what is false is a correct one called a mistake, or a faulty one not."""
    figures = Figures()
    for seed, function in enumerate(selected):
        groups = {
            "correct": function.correct,
            "unstable": function.unstable,
            "faulty": function.faulty,
            "small": small_faults(function.meaning) if small else {},
        }
        for group, variants in groups.items():
            for kind, variant in variants.items():
                key = (group, kind)
                figures.cases[key] += 1
                try:
                    decided = answer(function, variant, seed, library, short)
                except VeraxError as error:
                    figures.refused[f"{function.name}: {str(error.cause)[:90]}"] += 1
                    continue
                figures.undecided[key] += decided is Kind.undecided
                wrong = (decided is Kind.mistake) != (group in ("faulty", "small"))
                if wrong and decided is not Kind.undecided:
                    figures.false[key] += 1
                    figures.named[key].append(function.name)
    return figures


def main() -> None:
    words = sys.argv[1:]
    seed = int(next((w for w in words if w.isdigit()), "2026"))
    library = next((w for w in words if w in LIBRARIES), "numpy")
    short = next((w for w in words if w in TYPES), "float32")
    figures = measure(functions(seed=seed), "small" in words, library, short)
    for key in sorted(figures.cases):
        names = dict(Counter(figures.named[key]))
        print(
            f"| {key[0]} | {key[1]} | {figures.cases[key]} | {figures.false[key]} | "
            f"{figures.undecided[key]} | {names or ''} |"
        )
    for group in ("correct", "unstable", "faulty", "small"):
        keys = [k for k in figures.cases if k[0] == group]
        totals = [sum(c[k] for k in keys) for c in (figures.cases, figures.false)]
        print(group, *totals, sum(figures.undecided[k] for k in keys))
    print("refused:", dict(figures.refused))


if __name__ == "__main__":
    main()
