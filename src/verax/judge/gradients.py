"""Gradients of a layer from the meaning of its operators, and judging gradients that others made.

The vector-Jacobian rules of the judge carry a cotangent from a network's outputs back to its inputs
in float64. For layers that only multiply and add (convolutions, products, what moves elements), the
same rules tell what rounding may do to a gradient: applied to squares they give the sum of squared
products, applied to magnitudes the sum of magnitudes, applied to ones the number of products, and
these three are what the error model of a sum takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from verax.base.errors import UnsupportedError
from verax.ir.graph import Graph
from verax.judge.decide.criterion import decide
from verax.judge.decide.local import meaning
from verax.judge.regions.vjp import rule_of
from verax.judge.regions.vjp_step import VjpStep
from verax.numerics import statistics as st
from verax.numerics.error_model import Rounding, sum_of_products
from verax.records.verdict import Finding, Kind
from verax.reference.evaluate import to_work

Arrays = Mapping[str, np.ndarray]
LINEAR = frozenset(
    (
        *("Conv", "ConvTranspose", "Gemm", "MatMul", "Add", "Transpose", "Reshape", "Flatten"),
        *("Squeeze", "Unsqueeze", "Identity", "Expand"),
    )
)
"""Operators whose rules only multiply and add, with no sign of their own."""


@dataclass(frozen=True)
class GradientFinding:
    """The finding on the gradient of one argument.

    kind, reason: as in a verdict; largest: the largest difference from the float64 gradient; size:
    root mean square of that gradient; words: what was done instead, where that is known.
    """

    kind: Kind
    reason: str
    largest: float = 0.0
    size: float = 0.0
    words: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.words or self.reason}"


class Pulled:
    """Gradients of a graph for one set of inputs.

    inputs: by name, in their declared types. Raises `UnsupportedError` where an operator has no
    derivative rule.
    """

    def __init__(self, graph: Graph, inputs: Arrays) -> None:
        self.graph = graph
        self.values: dict[str, np.ndarray] = {}
        for name, array in {**inputs, **graph.constants}.items():
            dtype = graph.types[name].dtype
            self.values[name] = to_work(np.asarray(array), dtype, np.dtype(np.float64))
        self.steps = []
        for node in graph.nodes:
            arrays = [None if v is None else self.values[v] for v in node.inputs]
            types = [None if v is None else graph.types[v] for v in node.inputs]
            reference = meaning(node, arrays, types, graph.output_types(node), errors=False)
            self.values.update(zip(node.outputs, reference.outputs))
            self.steps.append((node, reference.ev))

    def back(
        self,
        cotangents: Arrays,
        names: Sequence[str],
        change: Callable[[np.ndarray], np.ndarray] = lambda x: x,
    ) -> dict[str, np.ndarray]:
        """Gradients of the inputs in `names`, float64; zeros where no output depends on one.

        cotangents: by output. change: applied to every value that a rule reads.
        """
        graph, dependent = self.graph, set(names)
        for node in graph.nodes:
            if any(v in dependent for v in node.inputs):
                dependent.update(v for v in node.outputs if graph.types[v].dtype.is_float)
        gradients = {v: np.asarray(g, np.float64) for v, g in cotangents.items()}
        for node, ev in reversed(self.steps):
            if not any(v in gradients for v in node.outputs):
                continue
            needed = tuple(
                v in dependent and t is not None and t.dtype.is_float
                for v, t in zip(node.inputs, ev.inputs)
            )
            first = not any(v in gradients for v in node.outputs[1:])
            output_gradients = [
                gradients.pop(v) if v in gradients else np.zeros(self.values[v].shape)
                for v in node.outputs
            ]
            if not any(needed):
                continue
            rule = rule_of(node, ev.outputs, first)
            if rule is None:
                raise UnsupportedError("no derivative is known", place=node.place)
            read = [
                None if v is None
                else change(self.values[v]) if self.values[v].dtype.kind == "f"
                else self.values[v]
                for v in node.inputs
            ]  # fmt: skip
            outputs = tuple(self.values[v] for v in node.outputs)
            try:
                with np.errstate(all="ignore"):
                    slopes = rule(
                        VjpStep(node.op, ev, tuple(read), outputs, needed), output_gradients
                    )
            except NotImplementedError as error:
                raise UnsupportedError(
                    "no derivative is known to its parameters", place=node.place
                ) from error
            for value, slope, is_needed in zip(node.inputs, slopes, needed):
                if is_needed and value is not None and slope is not None:
                    gradients[value] = gradients[value] + slope if value in gradients else slope
        return {v: gradients.get(v, np.zeros(self.values[v].shape)) for v in names}

    def roundings(self, cotangents: Arrays, names: Sequence[str]) -> dict[str, Rounding] | None:
        """Rounding of each gradient in float32; None where no error model applies."""
        if any(node.op.kind not in LINEAR for node in self.graph.nodes):
            return None
        if any(getattr(node.op, a, 1.0) != 1.0 for node in self.graph.nodes for a in FACTORS):
            return None

        def sums(change: Callable[[np.ndarray], np.ndarray]) -> dict[str, np.ndarray]:
            changed = {v: change(np.asarray(g, np.float64)) for v, g in cotangents.items()}
            return self.back(changed, names, change)

        total, squares = self.back(cotangents, names), sums(np.square)
        magnitudes, counts = sums(np.abs), sums(np.ones_like)
        return {v: sum_of_products(total[v], magnitudes[v], squares[v], counts[v]) for v in names}


FACTORS = ("alpha", "beta")
"""Attributes that scale what a rule gives."""


def judged_gradient(
    actual: np.ndarray | None,
    expected: np.ndarray,
    rounding: Rounding | None,
    batch: int,
    finding: Finding | None = None,
) -> GradientFinding:
    """Judge a float32 gradient against the float64 one. actual: None for one that was left out.
    finding: of the gradients' own network, where the rounding is not known in closed form."""
    size = float(np.sqrt(np.mean(np.square(expected)))) if expected.size else 0.0
    if actual is None:
        if not expected.any():
            return GradientFinding(Kind.identical, "nothing depends on it", 0.0, size)
        return GradientFinding(
            Kind.mistake, "no gradient was given", float(np.abs(expected).max()), size, "left out"
        )
    if actual.shape != expected.shape:
        reason = f"the shape is {actual.shape}, it should be {expected.shape}"
        return GradientFinding(Kind.mistake, reason, np.inf, size)
    largest = float(np.abs(actual - expected).max(initial=0.0))
    with np.errstate(over="ignore"):
        once = expected.astype(actual.dtype)
    if np.array_equal(once, actual):
        return GradientFinding(Kind.identical, "the float64 gradient rounded once", largest, size)
    if rounding is None and finding is not None:
        words = _factor(actual, expected, batch) if finding.kind is Kind.mistake else ""
        return GradientFinding(finding.kind, finding.reason, largest, size, words)
    if rounding is None:
        return GradientFinding(
            Kind.undecided, "how rounding moves this gradient is not known", largest, size
        )
    decision = decide(actual, expected, rounding)
    words = ""
    if decision.kind is Kind.mistake:
        for factor, text in _factors(batch).items():
            scaled = Rounding(abs(factor) * rounding.sigma, abs(factor) * rounding.bound)
            exact = not factor and not actual.any()
            rounds = factor and decide(actual, factor * expected, scaled).kind in FINE
            if exact or rounds:
                words = text
                break
    return GradientFinding(decision.kind, decision.reason, largest, size, words)


FINE = (Kind.identical, Kind.rounding)


def _factor(actual: np.ndarray, expected: np.ndarray, batch: int) -> str:
    """The mistake that a gradient is by a factor, "" where it is none: what is left of it is far
    less than what the factor changes."""
    for factor, text in _factors(batch).items():
        left = st.root_mean_square(actual - factor * expected)
        if left <= st.SHARED_ERROR * st.root_mean_square((1 - factor) * expected):
            return text
    return ""


def _factors(batch: int) -> dict[float, str]:
    """Mistakes that people make, as factors of the right gradient."""
    factors = {0.0: "left at zero", -1.0: "of the wrong sign", 2.0: "counted twice", 0.5: "halved"}
    if batch > 1:
        factors |= {
            1 / batch: "averaged over the batch instead of summed",
            float(batch): "summed over the batch instead of averaged",
        }
    return factors
