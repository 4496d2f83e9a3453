"""Attention whose shares are stored in 16 bits before they meet the values.

Matrix units take factors of 16 bits, so that every fused kernel stores the shares that way; sums
are accumulated in float32 all the same.
"""

from __future__ import annotations

import numpy as np

from verax.base.arrays import as_array
from verax.ir.operator import Evaluation
from verax.ir.types import HALVES, TensorType
from verax.judge.decide.local import meaning
from verax.judge.decide.precision import to_float64
from verax.numerics import statistics as st
from verax.numerics.error_model import KAPPA
from verax.numerics.formats import FORMATS
from verax.ops.sums.attention import Attention
from verax.testing.operator_meaning import OperatorCase


def has_stored_shares(case: OperatorCase, actual: np.ndarray) -> bool:
    """True if the answer is attention in float32 with shares rounded to the inputs' 16 bits."""
    op, output = case.op, case.graph.types[case.graph.outputs[0]]
    arrays = [None if v is None else np.asarray(as_array(v)) for v in case.inputs.values()]
    types = [None if a is None else TensorType.of(a) for a in arrays]
    if not isinstance(op, Attention) or types[0] is None or types[0].dtype not in HALVES:
        return False
    node = next(n for n in case.graph.nodes if n.op is op)
    reference = meaning(node, arrays, types, case.graph.output_types(node))
    expected, rounding = reference.outputs[0], reference.roundings[0]
    if rounding is None or actual.shape != output.shape:
        return False
    wide = [to_float64(a) for a in arrays]
    q, k, v = op.operands(*wide[:3])
    mask = wide[3] if len(wide) > 3 else None
    shares = op.shares(Evaluation(tuple(types), (output,)), q, k, mask)
    unit = FORMATS[str(types[0].dtype)].unit_roundoff
    added = KAPPA * unit * np.sqrt(np.matmul(np.square(shares), np.square(v)))
    if "y" in op.heads_inside:
        added = np.swapaxes(added, -2, -3)
    with np.errstate(all="ignore"):
        z = st.standardised(actual.astype(np.float64) - expected, np.hypot(rounding.sigma, added))
    return st.group_test(z).statistic <= st.ROUNDING_T
