"""When agreement proves nothing: limits of blindness, and the decision on a blind check.

A value is visible when an error of the limit of its type would have been detected. A value that is
rounded to a coarser type before it is observed has that type's limit: a float32 angle whose cosine
is passed on in float16 is judged in float16.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from verax.ir.graph import Node
from verax.ir.types import TensorType
from verax.judge.decide.criterion import Decision
from verax.numerics import statistics as st
from verax.records.verdict import Kind, Power

AGREEING = (Kind.rounding, Kind.identical, Kind.precision)
"""What agreement is called. *precision* here is of fast algorithms, which are told by the size of
their errors; an arithmetic that predicts the errors themselves is looked for afterwards."""


def limits(
    nodes: Sequence[Node],
    observed: Collection[str],
    types: Mapping[str, TensorType],
    limit_of: Callable[[str], float],
) -> dict[str, float]:
    """By float value of the nodes, the limit of the coarsest type on the best path to an observed
    value. limit_of: a type's own limit, larger for coarser types."""
    limit_by_value: dict[str, float] = {}
    ahead: dict[str, float] = {}
    for node in reversed(nodes):
        floats = [v for v in node.outputs if types[v].dtype.is_float]
        for value in floats:
            own = limit_of(str(types[value].dtype))
            limit_by_value[value] = own if value in observed else max(own, ahead.get(value, own))
        if floats:
            onward = min(limit_by_value[v] for v in floats)
            for name in node.inputs:
                if name is not None:
                    ahead[name] = min(onward, ahead.get(name, np.inf))
    return limit_by_value


def unless_blind(
    decision: Decision, power: Sequence[Power], limit: Mapping[str, float]
) -> Decision:
    """`decision`, or undecided where agreement proves nothing about most of the inner values.

    limit: relative error from which on each value of `power` has to be visible, or from one step
    of the quantization around it."""
    thresholds = {p.value: max(limit[p.value], p.step) for p in power}
    blind = [p.value for p in power if not p.smallest_visible <= thresholds[p.value]]
    seen = len(power) - len(blind)
    if decision.kind not in AGREEING or not st.is_blind(seen, len(power)):
        return decision
    half = sorted(p.smallest_visible for p in power)[(len(power) - 1) // 2]
    median_note = f" of errors below {half:.2g}, which half of them would show" if half < 1 else ""
    size = ""
    if decision.kind is Kind.precision:
        size = f", and errors of the size of {decision.test}'s are no agreement"
    return Decision(
        Kind.undecided,
        f"the check is blind{size}: a relative error of {thresholds[blind[0]]:.2g} in {blind[0]!r} "
        f"would not show here, nor in {len(blind) - 1} more of {len(power)} values inside, so "
        f"agreement proves nothing{median_note}",
        "power",
        decision.statistic,
        decision.group,
        sigma=decision.sigma,
        error=decision.error,
    )
