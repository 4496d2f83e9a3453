"""`generate`: case number `index` of a seed, the same on every machine."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache

import numpy as np

import verax.ops
from verax.base.errors import VeraxError
from verax.campaign.random_networks import random_network
from verax.export.onnx.writer import OLDEST_WRITTEN, to_onnx
from verax.hunt.case import Draft, DrawnCase, HuntCase, NoCase, pick
from verax.hunt.corpus import model_case
from verax.hunt.file_cases import automatic_pads, old_operator_set, symbolic
from verax.hunt.near_misses import PATTERNS
from verax.hunt.operators import drawn, extreme, is_small, operands, placed, placed_with
from verax.hunt.surroundings import AFTER, BEFORE
from verax.hunt.unspecified import unspecified
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.onnx_format.dtypes import newest_opset
from verax.onnx_format.package import checker, onnx
from verax.reference.evaluate import evaluate

assert verax.ops  # registers the operators
ATTEMPTS = 300
"""Draws for one case, most of which make no model of ONNX."""
NO_GRAPH = (NoCase, VeraxError, ValueError, TypeError, IndexError, KeyError, ArithmeticError)
"""What attributes and inputs that do not belong together run into."""


def generate(
    seed: int,
    index: int,
    operators: tuple[str, ...] = (),
    families: tuple[str, ...] = (),
    models: str = "",
) -> HuntCase:
    """Case `index` of `seed`. operators: only these are drawn alone (all where empty); families: of
    FAMILIES, only these, and MODEL for those of the folder `models`.

    The model passes the ONNX standard's own checker, and its float64 reference can be evaluated.
    Raises `NoCase` when nothing fitting comes up.
    """
    random = np.random.default_rng([seed, index])
    names = operators or of_onnx()
    weighted = (*WEIGHTED, *(MODEL,) * MODEL_WEIGHT) if models else WEIGHTED
    usable = [f for f in weighted if not families or f in families]
    if not usable:
        raise NoCase
    for _ in range(ATTEMPTS):
        family = pick(random, usable)
        try:
            if family == MODEL:
                case = model_case(models, index, seed)
            else:
                case = FAMILIES[family](random, names)
            opset = None if case.file else _checked(case.graph, random)
            with warnings.catch_warnings(action="ignore"):  # of what is empty
                values = evaluate(case.graph, case.inputs, keep="all")
            if unspecified(case.graph, values):
                continue
        except NO_GRAPH:
            if usable == [MODEL] * len(usable):
                raise NoCase from None  # nothing is drawn of it
            continue
        return HuntCase(
            *(seed, index, family, case.reason, case.aim, case.graph, case.inputs, opset, case.file)
        )
    raise NoCase


@cache
def of_onnx() -> tuple[str, ...]:
    """Operators that ONNX has by the same name. Others are written as several, and what a runtime
    makes of those is argued with the standard less directly."""
    return tuple(sorted(name for name in REGISTRY if onnx.defs.has(name)))


def _checked(graph: Graph, random: np.random.Generator) -> int | None:
    """An operator set that can say the graph, of which the standard's checker accepts the model;
    None for the oldest. Raises `NoCase`."""
    requested = pick(random, (None, *range(OLDEST_WRITTEN, newest_opset() + 1)))
    for opset in dict.fromkeys((requested, None)):
        try:
            checker.check_model(to_onnx(graph, opset), full_check=True)
        except VeraxError:
            continue
        except Exception as error:  # the checker's own classes of errors have no common base
            raise NoCase from error
        return opset
    raise NoCase


def _draft(random: np.random.Generator, name: str) -> Draft:
    return Draft(Builder(name), random)


def _operator(random: np.random.Generator, names: tuple[str, ...]) -> DrawnCase:
    case = drawn(random, names)
    draft = _draft(random, case.op.kind)
    outputs = placed(draft, case)
    if not is_small(case):
        raise NoCase
    reason = case.label or "as declared"
    return DrawnCase(case.op.kind, reason, draft.builder.graph(outputs), draft.inputs)


def _extreme(random: np.random.Generator, names: tuple[str, ...]) -> DrawnCase:
    case, reason = extreme(drawn(random, names), random)
    draft = _draft(random, case.op.kind)
    return DrawnCase(case.op.kind, reason, draft.builder.graph(placed(draft, case)), draft.inputs)


def _surrounded(random: np.random.Generator, names: tuple[str, ...]) -> DrawnCase:
    """An operator whose first input is stored otherwise, and whose result is moved on."""
    case = drawn(random, names)
    first = case.inputs[0]
    if first is None or 0 in case.constant or not first.ndim or not is_small(case):
        raise NoCase
    draft = _draft(random, case.op.kind)
    before, after = pick(random, sorted(BEFORE)), pick(random, ("", *sorted(AFTER)))
    value = BEFORE[before](draft, first)
    outputs = placed_with(draft, case.op, [value, *operands(draft, case, 1)])
    result = AFTER[after](draft, outputs[0]) if after else outputs[0]
    reason = f"{before} in front" + (f", {after} behind" if after else "")
    return DrawnCase(
        case.op.kind, reason, draft.builder.graph((result, *outputs[1:])), draft.inputs
    )


def _near_miss(random: np.random.Generator, names: tuple[str, ...]) -> DrawnCase:
    pattern = pick(random, PATTERNS)
    draft = _draft(random, "pattern")
    output, changed = pattern.build(draft)
    return DrawnCase(pattern.name, changed, draft.builder.graph([output]), draft.inputs)


def _network(random: np.random.Generator, names: tuple[str, ...]) -> DrawnCase:
    network = random_network(int(random.integers(1 << 31)))
    kinds = {n.op.kind for n in network.graph.nodes}
    return DrawnCase("network", f"{len(kinds)} operators", network.graph, network.inputs)


def _automatic_pads(random: np.random.Generator, names: tuple[str, ...]) -> DrawnCase:
    return automatic_pads(random)


def _symbolic(random: np.random.Generator, names: tuple[str, ...]) -> DrawnCase:
    """Another family's case in a file that leaves sizes, and some constants, to the run."""
    return symbolic(pick(random, (_operator, _surrounded, _near_miss))(random, names), random)


def _old_operator_set(random: np.random.Generator, names: tuple[str, ...]) -> DrawnCase:
    return old_operator_set(random)


FAMILIES: dict[str, Callable[[np.random.Generator, tuple[str, ...]], DrawnCase]] = {
    "operator": _operator,
    "extreme": _extreme,
    "surrounded": _surrounded,
    "near_miss": _near_miss,
    "network": _network,
    "auto_pad": _automatic_pads,
    "symbolic": _symbolic,
    "old_opset": _old_operator_set,
}
WEIGHTED = (
    *("operator",) * 4,
    *("extreme",) * 2,
    *("surrounded",) * 4,
    *("near_miss",) * 5,
    "network",
    *("auto_pad",) * 2,
    *("symbolic",) * 3,
    *("old_opset",) * 3,
)
"""Families, each as often as it is to be drawn."""
MODEL = "model"
"""The family of a folder's models."""
MODEL_WEIGHT = 6
