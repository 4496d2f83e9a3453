"""`assert_correct`: an answer is what rounding makes of a meaning.

Otherwise an `AssertionError` says where it is not, by how much, and what it looks like.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Unpack

import numpy as np

from verax.base.errors import UnsupportedError, UsageError
from verax.base.option_groups.keywords import with_options
from verax.base.option_groups.options import CheckKeywords, CheckOptions, changed
from verax.base.tensors import is_tensor
from verax.ir.operator import Operator
from verax.records.verdict import Kind, Verdict
from verax.testing.accumulation import accumulation_named
from verax.testing.failure_message import FailureEvidence
from verax.testing.function_judging import SURE, judge_function
from verax.testing.input_power import constant_inputs, saturated_outputs
from verax.testing.meanings import (
    called_as,
    function_of,
    is_plain_function,
    library_of,
    positional,
    resolved,
)
from verax.testing.network_judging import by_exported, by_network
from verax.testing.operator_judging import by_operator
from verax.testing.outcome import (
    AssertionOptions,
    Outcome,
    passed_verdict,
    require_undeclared,
    with_repeats,
)
from verax.testing.subjects import Answers, number_as_array


@with_options(CheckOptions)
def assert_correct(
    actual: Any,
    meaning: Any,
    inputs: Any,
    *,
    accumulate: str | None = None,
    split_k: int = 1,
    atomics: bool = False,
    allow_blind: bool = False,
    library: str = "",
    **keywords: Unpack[CheckKeywords],
) -> Verdict:
    """Assert that `actual` is what rounding makes of `meaning` on `inputs`; no tolerance is chosen.

        verax.assert_correct(my_conv, "Conv(strides=(2, 2), pads=((1, 1), (1, 1)))", (x, w))
        verax.assert_correct(y, lambda a, b: np.tanh(a @ b), (a, b))

    actual: an array, a number, several of them, a callable, or any subject of `check`. A
    callable is given the inputs by position, in the meaning's order and in the library and on the
    device that they are of, and is called several times.
    meaning: an operator (`verax.ops.Conv(strides=(2, 2))`) or its text; a model, loaded or as a
    path; a module; or a function of NumPy's, PyTorch's or JAX's arrays that can be evaluated in
    float64. A function that PyTorch exports is judged node by node; of others a bound is derived by
    running them under random rounding (docs/derived_bounds.md says how often that is wrong).
    inputs: an array, several by position, or arrays by name.
    accumulate: the type that sums are accumulated in ("float32", "float16", "bfloat16", "float64",
    "int32"); by default float32, or float64 for float64. What is coarser than declared fails.
    split_k: how many partial sums may each be stored in the result's type before they are added.
    atomics: whether two calls may differ by the order of a sum. allow_blind: pass on inputs that
    could not show a mistake (constants, saturated outputs). library: of a function ("numpy",
    "torch", "jax") where its inputs do not tell. keywords: fields of `CheckOptions`; `allow` names
    coarser arithmetics that pass ("TF32", "bf16", "int8").

    Returns the verdict. Raises `IncorrectError` or `BlindCheckError`, which are `AssertionError`s
    that carry the verdict; `VeraxError` for arguments that make no sense, and distributed tensors.
    """
    request = AssertionOptions(
        "" if accumulate is None else accumulation_named(str(accumulate)),
        _positive(split_k),
        atomics,
        allow_blind,
        library,
        changed(CheckOptions(), keywords),
    )
    subject, actual = resolved(meaning), number_as_array(actual, inputs)
    if isinstance(subject, Operator):
        outcome = by_operator(actual, subject, inputs, request)
    elif is_plain_function(subject):
        outcome = _by_function(actual, subject, inputs, request)
    else:
        require_undeclared(request, "a model")
        outcome = by_network(actual, subject, inputs, request)
    return passed_verdict(outcome, request)


def _positive(split_k: int) -> int:
    if split_k < 1:
        raise UsageError(
            f"split_k is {split_k}", next_step="give the number of partial sums, 1 for none"
        )
    return int(split_k)


def _by_function(
    actual: Any, function: Callable[..., Any], inputs: Any, request: AssertionOptions
) -> Outcome:
    """Judge by a function: as a network where PyTorch exports it, else by a derived bound."""
    named = positional(inputs)
    if request.split_k > 1:
        require_undeclared(request, "a function")
    kind = library_of(function, list(named.values()), request.library)
    if kind == "torch" and any(map(is_tensor, named.values())) and not request.accumulate:
        outcome = by_exported(actual, function, inputs, request)
        if outcome is not None:
            return outcome
    return _by_derived_bound(actual, function, named, request)


def _by_derived_bound(
    actual: Any, function: Callable[..., Any], named: Mapping[str, Any], request: AssertionOptions
) -> Outcome:
    ready = function_of(function, named, request.library)
    answers = Answers(actual, list(named.values()))
    if answers.first is None:
        raise UnsupportedError(
            "the meaning is a plain function, and the answer is neither arrays nor a function",
            next_step="give arrays, a tuple or dictionary of them, or a function",
        )
    outputs = list(map(str, actual)) if isinstance(actual, Mapping) else []
    judged = judge_function(
        ready,
        list(named),
        answers.first,
        outputs,
        subject={"name": answers.name},
        accumulate=request.accumulate,
        seed=request.options.seed,
    )
    verdict = with_repeats(judged.verdict, answers)
    bounds = judged.bounds
    evidence = FailureEvidence(
        f"what {called_as(function)} means",
        dict(zip(bounds, answers.first)),
        {k: b.expected for k, b in bounds.items()},
        {k: b.sigma for k, b in bounds.items()},
        sure=SURE,
    )
    blind: list[str] = []
    if not request.allow_blind and verdict.kind is not Kind.mistake:
        arrays = dict(zip(named, ready.inputs))
        order = list(arrays)
        expected = [b.expected for b in bounds.values()]

        def with_input(name: str, array: np.ndarray) -> list[np.ndarray]:
            return ready.with_input(order.index(name), array)

        kinds = answers.kinds()
        blind = [
            *constant_inputs(arrays),
            *saturated_outputs(
                expected, arrays, with_input, list(bounds), kinds, request.options.seed
            ),
        ]
    return Outcome(verdict, evidence, blind)
