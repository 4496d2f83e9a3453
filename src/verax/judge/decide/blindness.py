"""When agreement proves nothing: limits of blindness, and the word on a check that is blind.

A value is seen when an error of the size that its type has a limit for would have shown. What is
rounded to a coarser type before it is shown cannot be asked for more than that type tells: a
float32 angle whose cosine is handed on in float16 is looked at through float16.
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
    shown: Collection[str],
    types: Mapping[str, TensorType],
    limit_of: Callable[[str], float],
) -> dict[str, float]:
    """Each float value of the nodes -> the limit of the coarsest type that it has to pass on the
    best way to a shown value. limit_of: a type's own limit, larger for coarser types."""
    found: dict[str, float] = {}
    ahead: dict[str, float] = {}
    for node in reversed(nodes):
        floats = [v for v in node.outputs if types[v].dtype.is_float]
        for value in floats:
            own = limit_of(str(types[value].dtype))
            found[value] = own if value in shown else max(own, ahead.get(value, own))
        if floats:
            onward = min(found[v] for v in floats)
            for name in node.inputs:
                if name is not None:
                    ahead[name] = min(onward, ahead.get(name, np.inf))
    return found


def unless_blind(
    decision: Decision, power: Sequence[Power], limit: Mapping[str, float]
) -> Decision:
    """The same, but undecided where agreement proves nothing about most of the values inside.

    limit: relative error from which on each value of `power` has to be visible, or from one step
    of the quantisation around it."""
    asked = {p.value: max(limit[p.value], p.step) for p in power}
    blind = [p.value for p in power if not p.smallest_visible <= asked[p.value]]
    seen = len(power) - len(blind)
    if decision.kind not in AGREEING or not st.is_blind(seen, len(power)):
        return decision
    half = sorted(p.smallest_visible for p in power)[(len(power) - 1) // 2]
    told = f" of errors below {half:.2g}, which half of them would show" if half < 1 else ""
    size = ""
    if decision.kind is Kind.precision:
        size = f", and errors of the size of {decision.test}'s are no agreement"
    return Decision(
        Kind.undecided,
        f"the check is blind{size}: a relative error of {asked[blind[0]]:.2g} in {blind[0]!r} "
        f"would not show here, nor in {len(blind) - 1} more of {len(power)} values inside, so "
        f"agreement proves nothing{told}",
        "power",
        decision.statistic,
        decision.group,
        sigma=decision.sigma,
        error=decision.error,
    )
