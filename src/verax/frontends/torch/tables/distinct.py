"""ATen operators that keep each of equal elements once: `torch.unique` and its kin.

How many there are is known when the program runs. Numbers that are NaN count as one, where PyTorch
keeps each of them.
"""

from __future__ import annotations

import numpy as np

from verax.frontends.common.context import Result
from verax.frontends.torch.rows import Aten, row


def _check(t: Aten) -> None:
    """Every output is made; who asked for which shows in what the program reads."""
    for name in ("return_inverse", "return_counts"):
        t.irrelevant(name, reason="outputs that nobody reads are left out either way")


@row("_unique2.default", "unique_dim.default")
def unique(t: Aten) -> Result:
    """The different elements, or slices along `dim`, in ascending order, where each element went,
    and how often each came."""
    t.irrelevant("sorted", reason="any order would do without, and PyTorch sorts on a CPU too")
    _check(t)
    x = t.tensor("self")
    if t.kind == "unique_dim":
        values, _, inverse, counts = t.add_all("Unique", [x], axis=t.axis("dim", x))
        return t.named([values, inverse, counts])
    values, _, inverse, counts = t.add_all("Unique", [x])
    return t.named([values, t.add("Reshape", [inverse, t.add("Shape", [x])]), counts])


@row("unique_consecutive.default")
def unique_consecutive(t: Aten) -> Result:
    """The flattened elements that differ from the one before, the run of each element, and the
    lengths of the runs."""
    if t.integer("dim") is not None:
        t.a.refuse("dim", "supported: runs of the flattened tensor")
    _check(t)
    x = t.tensor("self")
    flat = t.add("Reshape", [x, t.ints([-1])])
    size, end = t.known_size(flat, 0, "where the last run ends"), np.iinfo(np.int64).max
    if not size:
        t.refuse("an empty tensor")
    before = t.add("Slice", [flat, t.ints([0]), t.ints([-1])])
    after = t.add("Slice", [flat, t.ints([1]), t.ints([end])])
    changed = t.add("Not", [t.add("Equal", [before, after])])
    begins = t.add("Concat", [t.constant(np.ones(1, bool), np.bool_), changed], axis=0)
    values = t.add("Compress", [flat, begins], axis=0)
    run = t.add("CumSum", [t.cast(begins, "int64"), t.constant(0, np.int64)])
    runs = t.add("Sub", [run, t.constant(1, np.int64)])
    starts = t.add("Reshape", [t.add("NonZero", [begins]), t.ints([-1])])
    ends = t.add("Concat", [t.add("Slice", [starts, t.ints([1]), t.ints([end])]), t.ints([size])],
                 axis=0)  # fmt: skip
    inverse = t.add("Reshape", [runs, t.add("Shape", [x])])
    return t.named([values, inverse, t.add("Sub", [ends, starts])])
