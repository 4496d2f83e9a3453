"""What a loop kernel computes, as data: `Access`, `Lookup`, `LoopSpec`; and its `LoopPlan`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from verax.compiler.kernels.llvm.builder import ELEMENT_SIZES
from verax.compiler.kernels.sizes import Size, ceil_div
from verax.compiler.kernels.target import LANES
from verax.numerics.arith import PRIMITIVES
from verax.numerics.expr import Apply, Expr, input_dtypes, nodes
from verax.numerics.functions_double import FUNCTIONS as IN_DOUBLE

INDEXES = ("int32", "int64", "int8", "uint8", "int16")
"""Element types of indices."""


@dataclass(frozen=True)
class Lookup:
    """An address part read from an index tensor: index * stride elements.

    input: which input of the spec holds the index (one of INDEXES, itself without lookups).
    size: extent of the axis; indices in [-size, size) are valid, negative ones count from the end.
    checked: False for a table of ours, whose entries are known to be in [0, size).
    """

    input: int
    size: Size
    stride: Size
    checked: bool = True


@dataclass(frozen=True)
class Access:
    """Where element (i0, i1, ...) lies: offset + sum(i * stride) + lookups, in elements.

    strides: one per dim of the spec; 0 repeats (broadcast), negative ones walk backwards.
    """

    dtype: str
    strides: tuple[Size, ...]
    offset: Size = 0
    lookups: tuple[Lookup, ...] = ()


def names(accesses: Iterable[Access]) -> tuple[str, ...]:
    """Element types of `accesses`, each once."""
    return tuple(dict.fromkeys(a.dtype for a in accesses))


def arrow(inputs: Iterable[Access], outputs: Iterable[Access]) -> str:
    """Element types read and written, for a plan: one name where they are the same."""
    read, written = " and ".join(names(inputs)), " and ".join(names(outputs))
    return written if read in ("", written) else f"{read} to {written}"


@dataclass(frozen=True)
class LoopSpec:
    """outputs[k][i] = exprs[k](inputs[0][i], inputs[1][i], ...) for all i in dims.

    exprs: over `Input(number of the input)`; index inputs need not occur in them.
    ValueError when ranks, dtypes or counts do not fit.
    """

    dims: tuple[Size, ...]
    inputs: tuple[Access, ...]
    outputs: tuple[Access, ...]
    exprs: tuple[Expr, ...]

    def __post_init__(self) -> None:
        if not self.outputs or len(self.outputs) != len(self.exprs):
            raise ValueError("a loop needs one expression per output, and at least one")
        if any(isinstance(n, int) and n < 0 for n in self.dims):
            raise ValueError(f"negative extent in {self.dims}")
        for access in (*self.inputs, *self.outputs):
            if len(access.strides) != len(self.dims):
                raise ValueError(f"{access} does not fit the dims {self.dims}")
            for look in access.lookups:
                index = self.inputs[look.input]
                if index.dtype not in INDEXES or index.lookups:
                    raise ValueError(f"{index} cannot serve as an index")
        for output, expr in zip(self.outputs, self.exprs, strict=True):
            if output.lookups:
                raise ValueError("outputs cannot be indexed")
            if output.dtype != expr.dtype:
                raise ValueError(f"an expression of {expr.dtype} is stored as {output.dtype}")
            for input_index, dtype in input_dtypes(expr).items():
                if input_index >= len(self.inputs) or self.inputs[input_index].dtype != dtype:
                    raise ValueError(
                        f"the expression's input {input_index} of {dtype} does not exist"
                    )

    def __str__(self) -> str:
        count = self.operations
        done = f"{count} operations on" if count > 1 else "1 operation on" if count else "move"
        size = "x".join(map(str, self.dims)) or "1"
        return f"{done} {size} {arrow(self.inputs, self.outputs)}"

    @cached_property
    def dtypes(self) -> tuple[str, ...]:
        """Of everything read and written."""
        return names((*self.inputs, *self.outputs))

    @cached_property
    def index_inputs(self) -> frozenset[int]:
        """Numbers of the inputs that serve as indices."""
        return frozenset(look.input for a in self.inputs for look in a.lookups)

    @cached_property
    def value_inputs(self) -> tuple[int, ...]:
        """Numbers of the inputs that the expressions read."""
        return tuple(sorted({i for e in self.exprs for i in input_dtypes(e)}))

    @property
    def checked(self) -> bool:
        """Whether some index must be checked at run time (and the error flag is an argument)."""
        return any(look.checked for a in self.inputs for look in a.lookups)

    @property
    def operations(self) -> int:
        """Operations per element."""
        return sum(isinstance(n, Apply) for e in self.exprs for n in nodes(e))

    @cached_property
    def cost(self) -> int:
        """About the machine instructions per vector: how much code one repetition is."""
        applied = [n for e in self.exprs for n in nodes(e) if isinstance(n, Apply)]
        return sum(
            1 if n.function in PRIMITIVES else 100 if n.function in IN_DOUBLE else 24
            for n in applied
        )

    @property
    def bytes(self) -> Size:
        """Memory touched, at most."""
        total: Size = 0
        for access in (*self.inputs, *self.outputs):
            elements = math.prod(
                n for n, s in zip(self.dims, access.strides, strict=True) if s != 0
            )
            total += elements * ELEMENT_SIZES[access.dtype]
        return total


@dataclass(frozen=True)
class LoopPlan:
    """How a spec is executed. The last dim of `spec` is vectorized.

    tile: the dim (the last but one) along which inputs are transposed, or None.
    item_dims: leading dims that are flattened into work items; inner_dims: dims looped over
    inside an item. chunk: elements of the vector dim per item, 0 for all of it.
    """

    spec: LoopSpec
    tile: int | None
    item_dims: tuple[Size, ...]
    inner_dims: tuple[Size, ...]
    chunk: int

    @property
    def elements(self) -> Size:
        return math.prod(self.spec.dims)

    @property
    def pieces(self) -> Size:
        """Parts that the vector dim, or the tile dim, is cut into for work items."""
        if self.tile is not None:
            return ceil_div(self.spec.dims[self.tile], LANES)
        return ceil_div(self.spec.dims[-1], self.chunk) if self.chunk else 1

    @property
    def items(self) -> Size:
        """Independent work items; 0 when there is nothing to do."""
        return math.prod(self.item_dims) * self.pieces if self.elements != 0 else 0
