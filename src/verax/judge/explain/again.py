"""A node evaluated over and over on other numbers of the same shapes: what does not depend on them
(types, room, dtypes) is looked at once. A search among thousands of hypotheses spent most of its
time there, the arrays of small regions being small."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.base.errors import VeraxError
from verax.ir.graph import Node
from verax.ir.operator import Evaluation, as_tuple
from verax.ir.types import TensorType
from verax.judge.decide.local import ReferenceValues, meaning

SMALL = 1 << 16
"""Elements of an input up to which its float64 copy is kept for the next time."""


class Again:
    """The float64 outputs of one node, as `decide.local.meaning` gives them.

    inputs, declared, outputs: what `first` was evaluated on. May not be called with numbers that
    warn, outside of `np.errstate`."""

    def __init__(
        self,
        node: Node,
        inputs: Sequence[Any],
        declared: Sequence[TensorType | None],
        outputs: tuple[TensorType, ...],
        first: ReferenceValues,
    ) -> None:
        self.node, self.declared, self.outputs = node, tuple(declared), outputs
        self.ev = Evaluation(first.ev.inputs, outputs)
        self.dtypes = [self.ev.dtype(t.dtype) for t in outputs]
        self.shapes = [None if x is None else np.shape(x) for x in inputs]
        self.is_float = [t is not None and t.dtype.is_float for t in declared]
        # an open size or an integer of a few bits is looked at each time
        self.is_plain = all(t.is_static for t in outputs) and not any(
            t is not None and t.dtype.is_narrow for t in declared
        )
        self._wide: dict[int, tuple[Any, np.ndarray]] = {}

    def __call__(self, inputs: Sequence[Any]) -> tuple[np.ndarray, ...]:
        """Raises the `VeraxError` that the operator refuses the inputs with."""
        shapes = [None if x is None else np.shape(x) for x in inputs]
        if not self.is_plain or shapes != self.shapes:
            return self._anew(inputs)
        wide = [
            self._widened(i, x) if is_float and x is not None else x
            for i, (x, is_float) in enumerate(zip(inputs, self.is_float, strict=True))
        ]
        try:
            results = as_tuple(self.node.op.reference(self.ev, *wide))
        except (VeraxError, MemoryError):
            return self._anew(inputs)  # says it with its place
        return tuple(
            np.asarray(r).astype(d, copy=False) for r, d in zip(results, self.dtypes, strict=True)
        )

    def _anew(self, inputs: Sequence[Any]) -> tuple[np.ndarray, ...]:
        return meaning(self.node, inputs, self.declared, self.outputs, errors=False).outputs

    def _widened(self, i: int, array: Any) -> np.ndarray:
        """Input number i in float64; that of a constant is kept."""
        if array.dtype == np.float64:
            return array
        source, wide = self._wide.get(i, (None, None))
        if source is not array or wide is None:
            wide = array.astype(np.float64)
            if array.size <= SMALL:
                self._wide[i] = (array, wide)
        return wide
