"""Second opinions on a small case, and the confidence that follows from them.

Who answers: our reference in exact rational arithmetic, the reference evaluator of the package onnx
(other people's reading of the standard), other installed runtimes, and the subject's own runtime
without optimizations. Each answer is judged as the subject's was; an opinion supports the alarm
when it is right by our reference, and speaks against it when it is wrong by it as well.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from verax.api import subject_of
from verax.base.errors import VeraxError
from verax.export.onnx.writer import to_onnx
from verax.frontends.model import Model
from verax.ir.graph import Graph
from verax.judge.decide.local import conform
from verax.judge.regions.network import survey
from verax.onnx_format.package import onnx, onnx_reference
from verax.records.hunt import HIGH, LOW, MEDIUM
from verax.records.verdict import Kind
from verax.reference.evaluate import evaluate
from verax.runners.registry import SPEC_OF

Values = Mapping[str, np.ndarray]
OWN_ARITHMETIC = "exact rational arithmetic"
STANDARD = "onnx.reference"
RUNTIMES = ("onnxruntime:disabled", "openvino:f32", "verax:O0")
"""Runtimes that are asked where they are installed and are not the subject."""
OF_TFLITE = ("litert-reference", "litert-builtin", "onnxruntime:disabled", "verax:O0")
"""The same for a TFLite file, which ONNX Runtime gets written as ONNX."""
EXACT_ELEMENTS = 4096
"""Elements of inputs up to which exact arithmetic is tried: each is a Python object."""


@dataclass(frozen=True)
class Opinion:
    """What somebody else makes of a case.

    supports: their answer is right by our reference, so theirs and ours agree; None where they gave
    none. independent: they share no code with us. words: their answer in words.
    """

    source: str
    supports: bool | None
    independent: bool
    words: str


def is_wrong(graph: Graph, inputs: Values, answer: Values, seed: int = 0) -> bool:
    """True if `answer` lacks an output of the graph, or the judge calls one of them a mistake."""
    if any(v not in answer for v in graph.outputs):
        return True
    outputs = {v: conform(np.asarray(answer[v]), graph.types[v].dtype) for v in graph.outputs}
    judged = survey(graph, inputs, outputs, seed=seed, measure_power=False)
    return any(f.kind is Kind.mistake for f in judged.findings)


def opinions(
    graph: Graph,
    inputs: Values,
    subject: str,
    against: str = "",
    actual: Values | None = None,
    model: Model | None = None,
) -> tuple[Opinion, ...]:
    """Everybody's who can be asked. subject: text; against: another runner's name to be asked;
    actual: the subject's outputs, None where it gave none; model: the file that all of them run,
    None for the graph written as ONNX."""
    return tuple(
        _judged(source, independent, answer, graph, inputs, actual)
        for source, independent, answer in _answers(graph, inputs, subject, against, model)
    )


def _answers(
    graph: Graph, inputs: Values, subject: str, against: str, model: Model | None
) -> Iterator[tuple[str, bool, Values | str]]:
    """(who, whether they share no code with us, their outputs or why there are none)."""
    if sum(a.size for a in inputs.values()) <= EXACT_ELEMENTS:
        yield OWN_ARITHMETIC, False, _attempt(lambda: _exact(graph, inputs))
    yield STANDARD, subject != STANDARD, _attempt(lambda: _standard(graph, inputs, model))
    in_onnx = model is None or _is_onnx(model)
    for name in dict.fromkeys((against, *(RUNTIMES if in_onnx else OF_TFLITE))):
        if not name or name == subject or not is_installed(name):
            continue
        runtime = re.split("[:-]", name)[0]
        independent = runtime != "verax" and runtime not in subject
        file = model if in_onnx or runtime == "litert" else None
        yield name, independent, _attempt(lambda: subject_of(name, file).run(graph, inputs))  # noqa: B023


def is_installed(name: str) -> bool:
    """True if a runner exists by this name and its package is there."""
    spec = SPEC_OF.get(name)
    if spec is None:
        return name.partition(":")[0] == "cmd"
    return not spec.package or importlib.util.find_spec(spec.package) is not None


def _attempt(run: object) -> Values | str:
    """What `run` gives, or why it gives nothing."""
    try:
        return run()  # type: ignore[operator, no-any-return]
    except VeraxError as error:
        return error.cause
    except Exception as error:  # foreign code, of which any error means that it has no opinion
        return f"{type(error).__name__}: {error}"


def _exact(graph: Graph, inputs: Values) -> Values:
    """The outputs in fractions, rounded to float64. Raises what a function that has no rational
    result raises."""
    values = evaluate(graph, inputs, work=object)
    return {
        v: a.astype(np.float64) if graph.types[v].dtype.is_float else a for v, a in values.items()
    }


def _standard(graph: Graph, inputs: Values, model: Model | None) -> Values:
    """The outputs by the reference implementation of the package onnx."""
    proto = to_onnx(graph) if model is None or not _is_onnx(model) else onnx.load(model.source)
    evaluator = onnx_reference.ReferenceEvaluator(proto)
    with np.errstate(all="ignore"), contextlib.redirect_stdout(None):
        results = evaluator.run(None, {v: inputs[v] for v in graph.inputs})
    return {v: np.asarray(a) for v, a in zip(evaluator.output_names, results)}


def _is_onnx(model: Model) -> bool:
    return Path(model.source).suffix == ".onnx"


def _judged(
    source: str,
    independent: bool,
    answer: Values | str,
    graph: Graph,
    inputs: Values,
    actual: Values | None,
) -> Opinion:
    if isinstance(answer, str):
        return Opinion(source, None, independent, f"no answer ({' '.join(answer.split())[:100]})")
    try:
        wrong = is_wrong(graph, inputs, answer)
    except VeraxError as error:
        return Opinion(source, None, independent, f"its answer cannot be judged ({error.cause})")
    if not wrong:
        return Opinion(source, True, independent, "agrees with our reference")
    if actual is not None and not is_nearer(answer, actual, evaluate(graph, inputs)):
        return Opinion(source, None, independent, "differs from our reference and the subject")
    return Opinion(source, False, independent, "differs from our reference")


def is_nearer(answer: Values, actual: Values, reference: Values) -> bool:
    """True if an answer is nearer to the subject's outputs than to the reference, or they cannot be
    compared: only then does it take the subject's side."""

    def distance(second: Values) -> float:
        total = 0.0
        for name in reference:
            x, y = (np.asarray(v[name]).astype(np.float64) for v in (answer, second))
            total += float(np.square(np.nan_to_num(x - y, posinf=np.inf)).sum())
        return total

    try:
        return distance(actual) <= distance(reference)
    except (KeyError, ValueError, TypeError):
        return True


def confidence(
    seen: Sequence[Opinion], *, alone: bool, is_bare: bool = True, doubt: str = ""
) -> tuple[str, str]:
    """How sure it is that the subject is wrong, and why. alone: the small case shows it by itself;
    is_bare: outside of Verax as well; doubt: why the standard may not state the result, as of
    `doubtful`.

    high: somebody who shares no code with us agrees with our reference, nobody independent
    disagrees, and nothing of the above speaks against it. medium: only our own exact arithmetic or
    compiler agrees, or the case needs its surroundings. low: an independent implementation differs
    from our reference, nobody agrees, or the subject's own script does not show it.
    """
    support = [o for o in seen if o.supports and o.independent]
    against = [o for o in seen if o.supports is False and o.independent]
    own = [o for o in seen if o.supports and not o.independent]
    summary = "; ".join(f"{o.source} {o.words}" for o in seen) or "nobody else could be asked"
    if against and len(against) >= len(support):
        return LOW, f"the reading of the standard is disputed: {summary}"
    if not is_bare:
        return LOW, f"outside of Verax it does not show: {summary}"
    if not support and not own:
        return LOW, summary
    reasons = [doubt] * bool(doubt) + ["the small case does not show it by itself"] * (not alone)
    level = HIGH if support and not against and not reasons else MEDIUM
    return level, "; ".join([summary, *reasons])


def confidence_of_failure(
    seen: Sequence[Opinion], *, is_bare: bool, doubt: str = ""
) -> tuple[str, str]:
    """The same of a subject that gives no answer, or not always the same one.

    high: an independent implementation computes the model, and gets what our reference gets. low:
    nobody independent does, so that nothing shows that the standard allows the model.
    """
    support = [o for o in seen if o.supports and o.independent]
    summary = "; ".join(f"{o.source} {o.words}" for o in seen) or "nobody else could be asked"
    if not is_bare:
        return LOW, f"outside of Verax it does not show: {summary}"
    if not support:
        return LOW, f"nobody independent computes the model: {summary}"
    if doubt or any(o.supports is False and o.independent for o in seen):
        return MEDIUM, "; ".join([summary, doubt]) if doubt else summary
    return HIGH, summary


def doubtful(graph: Graph, inputs: Values, reference: Values) -> str:
    """Why the standard may not state this result: what operators make of infinities, of numbers
    that are none, and of axes without elements is seldom written down. "" where nothing is so."""
    arrays = [*inputs.values(), *graph.constants.values(), *reference.values()]
    floats = [np.asarray(a) for a in arrays if np.asarray(a).dtype.kind == "f"]
    if not all(np.isfinite(a).all() for a in floats):
        return "there are infinities, or what is no number, which the standard seldom states"
    sizes = [tuple(graph.types[v].dims) for v in (*inputs, *reference) if v in graph.types]
    if any(0 in dims for dims in sizes) or any(np.asarray(a).size == 0 for a in reference.values()):
        return "there are no elements along an axis, which the standard seldom states"
    return ""
