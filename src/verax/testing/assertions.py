"""`assert_correct`: an answer is what rounding makes of a meaning, by `verax.check`."""

from __future__ import annotations

import ast
import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import verax.ops
from verax.api import check
from verax.base.arrays import as_array
from verax.base.errors import UsageError
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY, Operator
from verax.ir.types import TensorType
from verax.records.verdict import Verdict
from verax.testing.failures import BlindCheckError, IncorrectError

assert verax.ops  # registers the operators
MAX_LINES = 8
"""Lines of a failure message."""


def assert_correct(actual: Any, meaning: Any, inputs: Any, **options: Any) -> Verdict:
    """Judge what `actual` gives on `inputs` and return the verdict.

    actual: whatever `verax.check` takes as a subject: an array, arrays by name or in the order of
    the outputs, a function of the inputs. meaning: an operator or a text such as
    "Conv(strides=(2, 2))", or whatever `verax.check` takes as a model. inputs: by name or in order.
    options: of `verax.check`.
    Raises `IncorrectError` unless the verdict is identical, rounding or an allowed precision,
    `BlindCheckError` where every input is constant, which could show no mistake, and what
    `verax.check` raises.
    """
    __tracebackhide__ = True
    if isinstance(meaning, str) and (operator := _operator_of(meaning)) is not None:
        meaning = operator
    if isinstance(meaning, Operator):
        meaning, inputs = _one_node(meaning, inputs)
    verdict = check(meaning, actual, inputs, **options)
    constant = _constant_inputs(inputs)
    if constant and verdict.exit_code != 1:
        raise BlindCheckError(
            f"blind: {constant}; most mistakes would not show here\n"
            "next: give inputs whose elements differ (judge.inputs draws some)",
            verdict,
        )
    if verdict.exit_code != 0:
        raise IncorrectError(_message(verdict), verdict)
    return verdict


def _message(verdict: Verdict) -> str:
    """The report on a verdict as far as its first table, at most MAX_LINES lines."""
    lines = str(verdict).strip().splitlines()
    tables = [i for i, line in enumerate(lines) if line.startswith("┏")]
    return "\n".join(lines[: min(tables[0] - 1, MAX_LINES) if tables else MAX_LINES])


def _constant_inputs(inputs: Any) -> str:
    """A sentence on the inputs if each of them is one number everywhere; "" otherwise."""
    named = inputs if isinstance(inputs, Mapping) else dict(enumerate(_listed(inputs)))
    arrays = {name: as_array(value) for name, value in named.items()}
    arrays = {name: a for name, a in arrays.items() if a.size > 1}
    if not arrays or any((a != a.flat[0]).any() for a in arrays.values()):
        return ""
    return ", ".join(f"input {name} is {a.flat[0]} everywhere" for name, a in arrays.items())


def _listed(inputs: Any) -> Sequence[Any]:
    return inputs if isinstance(inputs, list | tuple) else (inputs,)


def _operator_of(text: str) -> Operator | None:
    """The operator that a text such as "Softmax(axis=1)" or "MatMul" names; None for a path.

    Raises `UsageError` for an operator or an attribute that there is not, and for values that are
    no literals.
    """
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        return None
    match tree:
        case ast.Name(name):
            keywords: list[ast.keyword] = []
        case ast.Call(ast.Name(name), [], keywords):
            pass
        case _:
            return None
    if name not in REGISTRY:
        near = difflib.get_close_matches(name, REGISTRY, 1)
        raise UsageError(
            f"there is no operator {name!r}" + (f"; is {near[0]!r} meant?" if near else ""),
            place=text,
            next_step="`verax ops` lists them",
        )
    fields = [f.name for f in dataclasses.fields(REGISTRY[name])]
    values = {}
    for keyword in keywords:
        if keyword.arg not in fields:
            raise UsageError(
                f"{name} has no attribute {keyword.arg!r}",
                place=text,
                next_step=f"it has {', '.join(fields) or 'none'}",
            )
        try:
            values[keyword.arg] = ast.literal_eval(keyword.value)
        except ValueError as error:
            raise UsageError(
                f"the attribute {keyword.arg!r} is no literal",
                place=text,
                next_step="write numbers, texts and tuples of them",
            ) from error
    return REGISTRY[name](**values)


def _one_node(operator: Operator, inputs: Any) -> tuple[Graph, dict[str, np.ndarray]]:
    """The network of one operator, and its inputs by name; those without names are a, b, c, ..."""
    named = (
        dict(inputs)
        if isinstance(inputs, Mapping)
        else {chr(ord("a") + i): value for i, value in enumerate(_listed(inputs))}
    )
    arrays = {str(name): as_array(value, f"input {name!r}") for name, value in named.items()}
    builder = Builder(operator.kind)
    names = [builder.input(name, TensorType.of(array)) for name, array in arrays.items()]
    outputs = builder.add_all(operator, names, name=operator.kind)
    return builder.graph(outputs), arrays
