"""`assert_gradients`: vector-Jacobian products, judged with the same care as values.

Cotangents are drawn; the gradients that they pull back are held against those of the meaning in
float64, by bounds that are derived by running the meaning's own backward pass under random
rounding. Of operators that only multiply and add the error model of sums says it instead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Unpack

import numpy as np

from verax.base.arrays import as_array
from verax.base.errors import UnsupportedError, UsageError
from verax.base.option_groups.keywords import with_options
from verax.base.option_groups.options import CheckKeywords, CheckOptions, changed
from verax.base.tensors import is_module
from verax.ir.operator import Operator
from verax.numerics import statistics as st
from verax.numerics.formats import FORMATS, dtype_name
from verax.records.verdict import Kind, Verdict
from verax.runners.array_forms import form_like
from verax.runners.functions import called, function_name
from verax.testing.accumulation import accumulation_named
from verax.testing.failure_message import FailureEvidence
from verax.testing.function_judging import SURE, judge_function
from verax.testing.input_power import constant_inputs
from verax.testing.meanings import (
    CLASSES,
    HOMES,
    called_as,
    is_plain_function,
    library_of,
    positional,
    resolved,
)
from verax.testing.operator_gradient import OperatorGradient
from verax.testing.outcome import AssertionOptions, Outcome, passed_verdict, with_repeats
from verax.testing.random_rounding import SampledFunction
from verax.testing.random_rounding_numpy import NumpyFunction
from verax.testing.subjects import Answers, copied, listed

MODULES = "verax.testing.torch_modules"
"""Loaded when modules of PyTorch are judged."""


@dataclasses.dataclass(frozen=True)
class Pair:
    """A forward function, and its vector-Jacobian product: of inputs and then of cotangents, the
    gradients of the float inputs in order."""

    forward: Callable[..., Any]
    vjp: Callable[..., Any]


@with_options(CheckOptions)
def assert_gradients(
    function: Any,
    meaning: Any,
    inputs: Any,
    *,
    accumulate: str | None = None,
    atomics: bool = False,
    allow_blind: bool = False,
    library: str = "",
    **keywords: Unpack[CheckKeywords],
) -> Verdict:
    """Assert that the gradients of `function` are what rounding makes of those of `meaning`.

        verax.assert_gradients(MyNorm.apply, torch.nn.functional.layer_norm, (x, (40,)))
        verax.assert_gradients((forward, backward), (mean, mean_vjp), x)

    function: a function of PyTorch's tensors or of JAX's arrays, which is differentiated by its
    library; a module of PyTorch; or a pair (forward, vjp) of functions of arrays, vjp of the inputs
    and then the outputs' cotangents, which gives the gradients of the float inputs in order.
    meaning: the same, or an operator or its text. Of two modules the gradients of parameters are
    judged too; they have the same names, and the values of the first.
    inputs: an array or tensor, several by position, or by name; integers get no gradient.
    Other arguments, and what is returned and raised: as of `assert_correct`.
    """
    request = AssertionOptions(
        "" if accumulate is None else accumulation_named(str(accumulate)),
        atomics=atomics,
        allow_blind=allow_blind,
        library=library,
        options=changed(CheckOptions(), keywords),
    )
    named = positional(inputs)
    name = _name(function)
    subject = resolved(meaning)
    if is_module(function):
        modules = import_module(MODULES)
        function, subject, named = modules.with_parameters(function, subject, named)
    case = _Case(named, name, request)
    forward = function[0] if isinstance(function, tuple) else function
    if isinstance(function, tuple) and len(function) != 2:
        raise _no_function("the function", function)
    kind = library_of(forward, list(named.values()), library)
    outputs = listed(called(forward, [copied(v) for v in named.values()], name), name)
    cotangents = case.drawn(outputs)
    vjp = case.vjp_of(function, kind, len(outputs), name)
    answers = Answers(vjp, [*named.values(), *cotangents.values()])
    ready = case.meaning_of(subject, kind, cotangents)
    return passed_verdict(case.judged(answers, ready, outputs), request)


def _name(function: Any) -> str:
    first = function[0] if isinstance(function, tuple) and function else function
    return function_name(first)


def _no_function(role: str, value: Any) -> UsageError:
    return UsageError(
        f"{role} cannot be differentiated: a {type(value).__name__} is given",
        next_step="give a function of PyTorch's tensors or of JAX's arrays, a module, or a pair "
        "(forward, vjp) of functions",
    )


class _Case:
    """One assertion: inputs by name, and which of them have gradients."""

    def __init__(self, named: Mapping[str, Any], name: str, request: AssertionOptions) -> None:
        self.named, self.name, self.request = dict(named), name, request
        self.arrays = {
            k: np.asarray(as_array(v, f"input {k!r}"))
            for k, v in named.items()
            if not isinstance(v, tuple)
        }
        self.differentiated = [
            i for i, k in enumerate(named)
            if k in self.arrays and dtype_name(self.arrays[k].dtype) in FORMATS
        ]  # fmt: skip
        if not self.differentiated:
            raise UsageError(
                "no input holds floating-point numbers, so that there is no gradient",
                next_step="give at least one float input",
            )

    @property
    def labels(self) -> list[str]:
        """Names of the gradients."""
        return [f"gradient of {list(self.named)[i]}" for i in self.differentiated]

    def drawn(self, outputs: Sequence[np.ndarray]) -> dict[str, Any]:
        """A random cotangent of each output, of its type and in the inputs' form."""
        random = np.random.default_rng([self.request.options.seed, 1])
        form = form_like(next(iter(self.named.values())))
        drawn = {}
        for i, output in enumerate(outputs):
            if dtype_name(output.dtype) not in FORMATS:
                raise UsageError(
                    f"output {i} is {output.dtype}: it has no gradient",
                    place=self.name,
                    next_step="judge a function that returns its floating-point results alone",
                )
            array = random.standard_normal(output.shape).astype(output.dtype)
            drawn[f"cotangent_{i}"] = array if form is None else form(array)
        return drawn

    def vjp_of(self, function: Any, kind: str, outputs: int, name: str) -> Callable[..., Any]:
        """The vector-Jacobian product of a function of a library, or that of a pair."""
        if isinstance(function, tuple):
            vjp = function[1]
        elif kind in HOMES and callable(function):
            vjp = import_module(HOMES[kind]).vjp_of(function, self.differentiated, outputs)
        else:
            raise _no_function("a function of NumPy's arrays", function)

        def gradients(*arguments: Any) -> Any:
            return vjp(*arguments)

        gradients.__name__ = f"the gradient of {name}"
        return gradients

    def meaning_of(self, subject: Any, kind: str, cotangents: Mapping[str, Any]) -> SampledFunction:
        """The meaning's vector-Jacobian product, ready for float64 and random rounding."""
        hosts = [np.asarray(as_array(v)) for v in cotangents.values()]
        if isinstance(subject, Operator):
            return OperatorGradient(subject, self.named, self.differentiated, hosts)
        plain = is_plain_function(subject) or isinstance(subject, tuple)
        if not plain:
            raise UnsupportedError(
                "gradients are judged by functions, modules and operators, and the meaning is a "
                f"{type(subject).__name__}",
                next_step="give the function that it stands for",
            )
        arrays = [*self.arrays.values(), *hosts]
        label = called_as(subject[0] if isinstance(subject, tuple) else subject)
        if isinstance(subject, tuple):
            pair = Pair(*subject) if len(subject) == 2 else None
            if pair is None:
                raise _no_function("the meaning", subject)
            return NumpyFunction(pair.vjp, arrays, label)
        own = library_of(subject, list(self.named.values()), self.request.library)
        own = kind if own == "numpy" else own
        if own not in HOMES:
            raise _no_function("a meaning of NumPy's arrays", subject)
        home = import_module(HOMES[own])
        vjp = home.vjp_of(subject, self.differentiated, len(hosts))
        ready: SampledFunction = getattr(home, CLASSES[own])(vjp, arrays, label)
        return ready

    def judged(
        self, answers: Answers, ready: SampledFunction, outputs: Sequence[np.ndarray]
    ) -> Outcome:
        """The outcome of judging the gradients that a function gave."""
        assert answers.first is not None
        judged = judge_function(
            ready,
            [*self.arrays, *(f"cotangent_{i}" for i in range(len(outputs)))],
            answers.first,
            self.labels,
            subject={"name": answers.name},
            accumulate=self.request.accumulate,
            seed=self.request.options.seed,
            operator="gradient",
        )
        verdict = with_repeats(judged.verdict, answers)
        bounds = judged.bounds
        evidence = FailureEvidence(
            f"that of {ready.label}",
            dict(zip(bounds, answers.first)),
            {k: b.expected for k, b in bounds.items()},
            {k: b.sigma for k, b in bounds.items()},
            sure=SURE,
        )
        batch = outputs[0].shape[0] if outputs and outputs[0].ndim else 1
        evidence.causes = tuple(
            f"{f.value}: {words}"
            for f in verdict.outputs
            if f.kind is Kind.mistake and f.value in evidence.actual
            for words in factor_readings(
                evidence.actual[f.value], evidence.expected[f.value], bounds[f.value].sigma, batch
            )
        )
        blind = []
        if not self.request.allow_blind and verdict.kind is not Kind.mistake:
            blind = [*constant_inputs(self.arrays), *_constant_gradients(evidence.expected)]
        return Outcome(verdict, evidence, blind)


def _constant_gradients(expected: Mapping[str, np.ndarray]) -> Iterator[str]:
    if not any(e.size for e in expected.values()):
        yield "the gradients are empty: nothing was compared"
    for name, value in expected.items():
        if value.size and not value.any():
            yield f"the {name} is zero everywhere: nothing depends on it here"


def factor_readings(
    actual: np.ndarray, expected: np.ndarray, sigma: np.ndarray | None, batch: int
) -> Iterator[str]:
    """Mistakes that people make, as factors of the right gradient."""
    if actual.shape != expected.shape or sigma is None:
        return
    if not actual.any():
        yield "left at zero"
        return
    factors = {-1.0: "of the wrong sign", 2.0: "counted twice", 0.5: "halved"}
    if batch > 1:
        factors |= {
            1 / batch: "averaged over the batch instead of summed",
            float(batch): "summed over the batch instead of averaged",
        }
    wide = actual.astype(np.float64)
    for factor, words in factors.items():
        z = st.standardised(wide - factor * expected, np.maximum(1, abs(factor)) * sigma)
        if st.group_test(z).statistic <= 1:
            yield words
            return
