"""What an attention kernel computes, and how its work is cut, as data (see `attention`)."""

from __future__ import annotations

import dataclasses
import math

from verax.compiler.kernels.llvm.builder import ELEMENT_SIZES
from verax.compiler.kernels.products.gemm import Matrix
from verax.compiler.kernels.sizes import Size, ceil_div, minimum
from verax.compiler.kernels.target import LANES

F32 = "float32"
MOST_ITEMS = 32
"""Each has scratch memory of its own, if it is the first of its thread's."""


@dataclasses.dataclass(frozen=True)
class Shared:
    """Which of the packed matrices a head reads: number outer * `outer` + head // `repeats`."""

    outer: int
    repeats: int


@dataclasses.dataclass(frozen=True)
class Mask:
    """What is added to scores, of their type, or where they are kept (bool). Where `at` has columns
    that are neighbors, every row can be read up to a multiple of 16 columns."""

    at: Matrix
    dtype: str


@dataclasses.dataclass(frozen=True)
class AttentionSpec:
    """y = softmax(q k^T * scale / divisor, masked) v, for i < outer and every head j < inner.

    n queries and m keys of d features, values of e; columns of q and y are neighbors. keys,
    values: whose packed matrices a head reads.

    rows_of: where keys and values lie if they are not packed; a row is a key, its features are
    neighbors, and d and e are multiples of 8 and of 16. ignores_hidden: each query reads the values
    of its first keys alone, up to the last visible one in whole sixteens. counts: where it stands
    how many they are, an int64 for each query, a multiple of 16 or m; None: as many as `causal`
    leaves visible, if it does. skips_later: causal queries stop as early, but with the bits of all
    keys: where values are not finite or a sum is -0, zero times what is left is added.

    Arguments of the kernel: q, packed keys, packed values, the mask if there is one, counts if
    there are any or, if `skips_later`, by head of the values whether one is not finite (int64);
    scratch (`scratch_bytes`), y.
    """

    outer: Size
    inner: Size
    n: Size
    m: Size
    d: int
    e: int
    q: Matrix
    y: Matrix
    keys: Shared
    values: Shared
    scale: float = 1.0
    divisor: float = 1.0
    mask: Mask | None = None
    hidden: float = -math.inf
    causal: bool = False
    masked_to_zero: bool = False
    nan_to_zero: bool = False
    dtype: str = F32
    rows_of: tuple[Matrix, Matrix] | None = None
    ignores_hidden: bool = False
    counts: Matrix | None = None
    skips_later: bool = False

    def __str__(self) -> str:
        masked = f", {self.mask.dtype} mask" if self.mask else ""
        queries = f"{self.outer * self.inner} x [{self.n}, {self.d}]"
        causal = ", causal" if self.causal else ""
        packed = ", not packed" if self.rows_of else ""
        return f"{self.dtype} attention {queries} to [{self.m}, {self.e}]{masked}{causal}{packed}"

    @property
    def is_bounded(self) -> bool:
        """True if queries may read fewer than m keys."""
        return self.skips_later or (
            self.ignores_hidden and (self.causal or self.counts is not None)
        )

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Of everything read, added in and written."""
        return (self.dtype, self.mask.dtype) if self.mask else (self.dtype,)

    @property
    def row(self) -> Size:
        """Elements from one row of scores to the next: no power of two, so that rows do not evict
        one another."""
        return ceil_div(self.m, LANES) * LANES + LANES


@dataclasses.dataclass(frozen=True)
class AttentionSchedule:
    """A tile of scores is `rows` queries by `blocks` * 16 keys, and likewise of results; `tiles`
    such tiles of queries share their scratch memory and each panel that is read."""

    rows: int
    blocks: int
    tiles: int

    def __str__(self) -> str:
        return f"tile {self.rows} by {self.blocks * LANES}, {self.tiles} together"

    def groups(self, spec: AttentionSpec) -> Size:
        """Groups of queries of one head."""
        return ceil_div(spec.n, self.rows * self.tiles)

    def items(self, spec: AttentionSpec) -> Size:
        return minimum(MOST_ITEMS, spec.outer * spec.inner * self.groups(spec))

    def scratch_elements(self, spec: AttentionSpec) -> Size:
        """Of one item: the rows, and a spare one."""
        return (self.rows * self.tiles + 1) * spec.row

    def scratch_bytes(self, spec: AttentionSpec) -> Size:
        return self.items(spec) * self.scratch_elements(spec) * ELEMENT_SIZES[spec.dtype]
