"""What a reduction kernel computes, as data: stages over rows, then results per row and element."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from verax.compiler.kernels.llvm.builder import ELEMENT_SIZES
from verax.compiler.kernels.loops.spec import Access, arrow, names
from verax.compiler.kernels.sizes import Size, minimum, moves
from verax.compiler.kernels.target import LANES
from verax.ir.dim import same
from verax.numerics.expr import Apply, Expr, input_dtypes, nodes
from verax.numerics.reductions import KINDS, elements_read


@dataclass(frozen=True)
class Stage:
    """One pass over the row: finish(reduce(element)).

    kind: "sum", "squares" (of float32 or float64), "prod", "max" or "min", in the order of
    `numerics.reductions`. element: over the inputs and the results of earlier stages; its dtype is
    reduced in. finish: over the same numbering, this stage's own number being the reduced value;
    None: that. group_stride: every so many-th of the row's groups of LANES elements is reduced,
    from the first on."""

    kind: str
    element: Expr
    finish: Expr | None = None
    group_stride: int = 1


@dataclass(frozen=True)
class ReduceSpec:
    """For every index of `outer`: reduce over `reduced` in row-major order, in stages, and write.

    Expressions number what they read: Input(i) is inputs[i]; Input(len(inputs) + j) is the
    result of stage j. Accesses of inputs and element outputs have one stride per outer and
    reduced dim, in that order; those of row outputs one per outer dim. `finish` and row outputs
    may read only inputs that do not move along reduced dims.
    ValueError when ranks or dtypes do not fit.
    """

    outer: tuple[Size, ...]
    reduced: tuple[Size, ...]
    inputs: tuple[Access, ...]
    stages: tuple[Stage, ...]
    row_outputs: tuple[tuple[Access, Expr], ...] = ()
    element_outputs: tuple[tuple[Access, Expr], ...] = ()

    def __post_init__(self) -> None:
        rank, outer_rank = len(self.outer) + len(self.reduced), len(self.outer)
        if not self.row_outputs and not self.element_outputs:
            raise ValueError("a reduction needs an output")
        full = (*self.inputs, *(a for a, _ in self.element_outputs))
        rows = tuple(a for a, _ in self.row_outputs)
        for access, expected in [(a, rank) for a in full] + [(a, outer_rank) for a in rows]:
            if len(access.strides) != expected:
                raise ValueError(f"{access} needs {expected} strides")
            if access.lookups:
                raise ValueError("a reduction reads no indices")
        for index, stage in enumerate(self.stages):
            if stage.kind not in KINDS:
                raise ValueError(f"unknown reduction {stage.kind!r}")
            if stage.kind == "squares" and stage.element.dtype not in ("float32", "float64"):
                raise ValueError(f"squares of {stage.element.dtype} are not added up by FMA")
            self._check(stage.element, index, per_row=False)
            if stage.finish is not None:
                self._check(stage.finish, index + 1, per_row=True)
        for outputs, per_row in ((self.row_outputs, True), (self.element_outputs, False)):
            for access, expr in outputs:
                self._check(expr, len(self.stages), per_row)
                if access.dtype != expr.dtype:
                    raise ValueError(f"an expression of {expr.dtype} is stored as {access.dtype}")

    def __str__(self) -> str:
        stages = ", ".join(s.kind for s in self.stages)
        written = [a for a, _ in (*self.row_outputs, *self.element_outputs)]
        types = arrow(self.inputs, written)
        return f"{types} reduction ({stages}) of {list(self.outer)} rows of {list(self.reduced)}"

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Of everything read, reduced in and written."""
        written = names(a for a, _ in (*self.row_outputs, *self.element_outputs))
        reduced = (s.element.dtype for s in self.stages)
        return tuple(dict.fromkeys((*names(self.inputs), *reduced, *written)))

    def result_dtype(self, stage: int) -> str:
        """Dtype of what stage number `stage` gives."""
        reduction = self.stages[stage]
        return (reduction.finish or reduction.element).dtype

    def _check(self, expr: Expr, stages: int, per_row: bool) -> None:
        n = len(self.inputs)
        for index, dtype in input_dtypes(expr).items():
            if index >= n + stages:
                raise ValueError(f"input {index} is not known at stage {stages}")
            if index >= n:
                own = per_row and index == n + stages - 1
                actual = self.result_dtype(index - n)
                if dtype != actual and not (own and dtype == self.stages[index - n].element.dtype):
                    raise ValueError(f"stage {index - n} gives {actual}, not {dtype}")
            elif self.inputs[index].dtype != dtype:
                raise ValueError(f"input {index} is {self.inputs[index].dtype}, not {dtype}")
            elif per_row and moves(self.inputs[index].strides[len(self.outer) :]):
                raise ValueError(f"input {index} differs within a row")

    @property
    def rows(self) -> Size:
        return math.prod(self.outer)

    @property
    def length(self) -> Size:
        """Elements of a row."""
        return math.prod(self.reduced)

    @property
    def operations(self) -> int:
        """Operations per element."""
        exprs = [s.element for s in self.stages] + [e for _, e in self.element_outputs]
        return len(self.stages) + sum(isinstance(n, Apply) for e in exprs for n in nodes(e))

    @property
    def bytes(self) -> Size:
        """Memory touched, at most."""
        dims = (*self.outer, *self.reduced)
        accesses: Iterable[Access] = (
            *self.inputs, *(a for a, _ in self.element_outputs), *(a for a, _ in self.row_outputs)
        )  # fmt: skip
        total: Size = 0
        for a in accesses:
            moving = (n for n, s in zip(dims, a.strides, strict=False) if not same(s, 0))
            elements = math.prod(moving)
            total += elements * ELEMENT_SIZES[a.dtype]
        return total


def elements_of_stage(length: Size, group_stride: int) -> Size:
    """How many elements of a row of `length` are in each `group_stride`-th group of LANES."""
    if group_stride == 1:
        return length
    if isinstance(length, int):
        return elements_read(length, group_stride)
    groups, remainder = divmod(length, group_stride * LANES)
    return groups * LANES + minimum(LANES, remainder)
