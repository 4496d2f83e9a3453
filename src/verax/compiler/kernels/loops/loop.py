"""The generic loop kernel: out[i] = expr(in0[i], in1[i], ...) over strided accesses.

It covers whatever is neither a contraction nor a reduction: elementwise chains with
broadcasting on planar and on blocked (NCHW16c) tensors, casts, comparisons, fills, and copies of
every kind (transpose, slice, concatenation part, pad interior, tile, expand, layout conversion),
and reads through index tensors (gather, resize, reflecting pads).

A `LoopSpec` says what is computed, over which dims and with which strides; how is decided here:
dims are merged, the unit-stride dim of the output is vectorized, inputs that run along another
dim are transposed in registers, the outer dims become work items. The result of every element
depends on its expression alone, so bits cannot depend on any of these choices.
"""

from __future__ import annotations

import math
from dataclasses import replace

from verax.compiler.kernels.llvm.builder import ELEMENT_TYPES, Kernel, ModuleBuilder
from verax.compiler.kernels.loops.emit import emit_rows, emit_tiles
from verax.compiler.kernels.loops.spec import Access, Lookup, LoopPlan, LoopSpec
from verax.compiler.kernels.registry import emits
from verax.compiler.kernels.sizes import Size, all_open
from verax.ir.dim import Dim

__all__ = ["Access", "Lookup", "LoopSpec", "emit_loop", "plan_loop"]

_ITEM_ELEMENTS = 2048  # a work item holds about so many elements, if the dims allow
_CHUNK = 4096  # and one dim longer than this is cut when there are few items otherwise
_FEW_ITEMS = 16
_TILE_COST = 80  # dearer expressions are not repeated 16 times in a tile


@emits(LoopSpec, dtypes=ELEMENT_TYPES, settle=all_open)
def emit_loop(module: ModuleBuilder, spec: LoopSpec) -> Kernel:
    """The kernel of `spec`; the same spec gives the same kernel.

    args: a pointer per input, then one per output, then, if `spec.checked`, a pointer to an int32
    that is set to 1 when a run-time index is out of range (element 0 is read instead).
    Outputs may be the very memory of an input with equal strides; any other overlap is an error.
    """
    n_args = len(spec.inputs) + len(spec.outputs) + spec.checked
    fb = module.kernel(spec, n_args, hint="loop")
    if fb.finished:
        assert fb.kernel is not None
        return fb.kernel
    plan = plan_loop(spec)
    if plan.elements == 0:
        return fb.finish(0)
    (emit_tiles if plan.tile is not None else emit_rows)(fb, plan)
    flops = plan.elements * spec.operations
    return fb.finish(plan.items, flops, spec.bytes)


def plan_loop(spec: LoopSpec) -> LoopPlan:
    """How `spec` is executed: merged dims, vector dim, tile dim, work items."""
    spec = simplified(spec)
    dims = spec.dims
    vector = len(dims) - 1
    tile = _tile_dim(spec, vector)
    if tile is not None:
        spec = _move_dim(spec, tile, len(dims) - 2)
        outer = spec.dims[:-2]
        return LoopPlan(spec, tile=len(dims) - 2, item_dims=outer, inner_dims=(), chunk=0)
    outer, extent = dims[:-1], dims[-1]
    split, inner = len(outer), extent
    while split and _at_most(inner * outer[split - 1], _ITEM_ELEMENTS):
        split -= 1
        inner *= outer[split]
    has_few_items = _at_most(math.prod(outer[:split]), _FEW_ITEMS - 1) or isinstance(extent, Dim)
    chunk = (
        _CHUNK if has_few_items and split == len(outer) and not _at_most(extent, 2 * _CHUNK) else 0
    )
    return LoopPlan(spec, tile=None, item_dims=outer[:split], inner_dims=outer[split:], chunk=chunk)


def simplified(spec: LoopSpec) -> LoopSpec:
    """An equal spec with few dims, that of the first output's unit stride last."""
    return _merged(_sorted(_without_units(spec)))


def _at_most(size: Size, limit: int) -> bool:
    """Whether `size` is known to be no larger than `limit`."""
    return isinstance(size, int) and size <= limit


def _with_dims(spec: LoopSpec, order: list[int]) -> LoopSpec:
    """The spec with its dims in another order; dims left out must have extent 1."""

    def pick(access: Access) -> Access:
        return replace(access, strides=tuple(access.strides[d] for d in order))

    return replace(
        spec,
        dims=tuple(spec.dims[d] for d in order),
        inputs=tuple(map(pick, spec.inputs)),
        outputs=tuple(map(pick, spec.outputs)),
    )


def _move_dim(spec: LoopSpec, source: int, target: int) -> LoopSpec:
    order = [d for d in range(len(spec.dims)) if d != source]
    order.insert(target, source)
    return _with_dims(spec, order)


def _without_units(spec: LoopSpec) -> LoopSpec:
    dims = [d for d, n in enumerate(spec.dims) if n != 1]
    if not dims:
        dims = [len(spec.dims) - 1] if spec.dims else []
    if not dims:  # a scalar: one dim of extent 1
        one = (1,)
        return replace(
            spec,
            dims=one,
            inputs=tuple(replace(a, strides=(0,)) for a in spec.inputs),
            outputs=tuple(replace(a, strides=one) for a in spec.outputs),
        )
    return _with_dims(spec, dims)


def _sorted(spec: LoopSpec) -> LoopSpec:
    """Dims by falling stride of the first output, so that its unit stride comes last.

    Where strides are read at run time they keep their order, but for the unit stride.
    """
    strides = spec.outputs[0].strides
    static_strides = [s for s in strides if isinstance(s, int)]
    if len(static_strides) == len(strides):
        order = sorted(range(len(static_strides)), key=lambda d: -abs(static_strides[d]))
    else:
        order = sorted(range(len(strides)), key=lambda d: strides[d] == 1)
    return _with_dims(spec, order)


def _merged(spec: LoopSpec) -> LoopSpec:
    """Neighboring dims joined where every access walks through both in one stride."""
    d = 0
    while d + 1 < len(spec.dims):
        extent = spec.dims[d + 1]
        accesses = (*spec.inputs, *spec.outputs)
        if all(a.strides[d] == a.strides[d + 1] * extent for a in accesses):

            def join(a: Access, d: int = d) -> Access:
                return replace(a, strides=a.strides[:d] + a.strides[d + 1 :])

            spec = replace(
                spec,
                dims=(*spec.dims[:d], spec.dims[d] * extent, *spec.dims[d + 2 :]),
                inputs=tuple(map(join, spec.inputs)),
                outputs=tuple(map(join, spec.outputs)),
            )
            d = max(d - 1, 0)
        else:
            d += 1
    return spec


def _tile_dim(spec: LoopSpec, vector: int) -> int | None:
    """The dim along which inputs are contiguous that are not so along the vector dim."""
    if spec.cost > _TILE_COST or any(o.strides[vector] != 1 for o in spec.outputs):
        return None
    if _at_most(spec.dims[vector], 2):
        return None
    votes: dict[int, int] = {}
    for index, access in enumerate(spec.inputs):
        if index in spec.index_inputs or access.strides[vector] in (0, 1):
            continue
        if any(spec.inputs[look.input].strides[vector] != 0 for look in access.lookups):
            continue
        for d in range(vector):
            index_moves = any(spec.inputs[look.input].strides[d] != 0 for look in access.lookups)
            if access.strides[d] == 1 and not _at_most(spec.dims[d], 3) and not index_moves:
                votes[d] = votes.get(d, 0) + 1
    return max(votes, key=lambda d: votes[d]) if votes else None
