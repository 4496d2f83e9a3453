"""What is promised is computed by nothing whose bits another machine has otherwise: none of NumPy's
elementary functions, nor of the C library's, nor products of floats in an order of BLAS's own."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.numerics.test_arithmetic_version import KINDS, OPERATORS, in_type, promised

from verax.base.errors import VeraxError
from verax.ir.operator import REGISTRY, Case
from verax.numerics import functions_meaning

FUNCTIONS = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "power", "float_power", "cbrt"),
    *("sin", "cos", "tan", "arcsin", "arccos", "arctan", "arctan2", "hypot", "logaddexp"),
    *("sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh"),
)
PRODUCTS = ("matmul", "dot", "vdot", "inner", "tensordot", "einsum")


class MachineBits(AssertionError):
    """A function was called that has other bits elsewhere."""


def forbidden(name: str, own: Callable[..., Any], products: bool) -> Callable[..., Any]:
    """`own`, which must not be given floats (of products: not two arrays of them)."""

    def called(*args: Any, **named: Any) -> Any:
        floats = [a for a in args if isinstance(a, np.ndarray) and a.dtype.kind in "fV"]
        if len(floats) > products:
            raise MachineBits(f"np.{name} of {[a.dtype for a in floats]}")
        return own(*args, **named)

    return called


def cases(name: str) -> list[Case]:
    """An operator's cases, with their float32 numbers in every type of float."""
    own = list(REGISTRY[name].cases(np.random.default_rng(zlib.crc32(name.encode()))))
    others = [in_type(case, kind) for kind in KINDS for case in own]
    return [*own, *(case for case in others if case is not None)]


@pytest.mark.parametrize("name", OPERATORS)
def test_nothing_promised_comes_from_functions_of_the_machine(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = cases(name)
    for function in FUNCTIONS:
        monkeypatch.setattr(np, function, forbidden(function, getattr(np, function), False))
    for function in functions_meaning.FUNCTIONS:
        fails = forbidden(f"meaning's {function}", functions_meaning.FUNCTIONS[function], False)
        monkeypatch.setitem(functions_meaning.FUNCTIONS, function, fails)
    products = {f: getattr(np, f) for f in PRODUCTS}
    for case in drawn:
        floats = any(a is not None and a.dtype.kind in "fV" for a in case.inputs)
        for function, own in products.items():  # those of integers in float64 are exact
            monkeypatch.setattr(np, function, forbidden(function, own, True) if floats else own)
        with contextlib.suppress(VeraxError):
            promised(case)


def test_it_would_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np, "exp", forbidden("exp", np.exp, False))
    with pytest.raises(MachineBits, match=r"np\.exp of"):
        np.exp(np.ones(3))
    with pytest.raises(MachineBits):
        forbidden("matmul", np.matmul, True)(np.ones((2, 2)), np.ones((2, 2)))
