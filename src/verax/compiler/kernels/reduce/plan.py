"""How a reduction is walked: dims joined, and whether rows are taken one by one or side by side;
and what is computed once for a row."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from verax.compiler.kernels.loops.spec import Access
from verax.compiler.kernels.reduce.spec import ReduceSpec
from verax.compiler.kernels.sizes import Size, moves, numbers
from verax.numerics.expr import Apply, Expr, Input, nodes


def _map_strides(spec: ReduceSpec, outer: list[list[int]], reduced: list[list[int]]) -> ReduceSpec:
    """Dims regrouped: each new dim is a run of old ones that walk in the last one's stride."""
    n = len(spec.outer)
    dims = (*spec.outer, *spec.reduced)

    def extent(run: list[int]) -> Size:
        size: Size = 1
        for d in run:
            size *= dims[d]
        return size

    def full(a: Access) -> Access:
        return replace(a, strides=tuple(a.strides[run[-1]] for run in outer + reduced))

    def rows(a: Access) -> Access:
        return replace(a, strides=tuple(a.strides[run[-1]] for run in outer))

    assert all(d < n for run in outer for d in run)
    return replace(
        spec,
        outer=tuple(map(extent, outer)),
        reduced=tuple(map(extent, reduced)),
        inputs=tuple(map(full, spec.inputs)),
        row_outputs=tuple((rows(a), e) for a, e in spec.row_outputs),
        element_outputs=tuple((full(a), e) for a, e in spec.element_outputs),
    )


def simplified(spec: ReduceSpec) -> ReduceSpec:
    """Without dims of extent 1, neighbors merged; reduced dims keep their order."""
    n = len(spec.outer)
    dims = (*spec.outer, *spec.reduced)
    full = (*spec.inputs, *(a for a, _ in spec.element_outputs))
    rows = tuple(a for a, _ in spec.row_outputs)

    def runs(dim_indices: list[int], accesses: Sequence[Access]) -> list[list[int]]:
        merged: list[list[int]] = []
        for d in dim_indices:
            last = merged[-1][-1] if merged else None
            if last is not None and all(
                a.strides[last] == a.strides[d] * dims[d] for a in accesses
            ):
                merged[-1].append(d)
            else:
                merged.append([d])
        return merged

    outer = runs([d for d in range(n) if dims[d] != 1], (*full, *rows))
    reduced = runs([d for d in range(n, len(dims)) if dims[d] != 1], full)
    return _map_strides(spec, outer, reduced)


def _moving(spec: ReduceSpec) -> list[Access]:
    n = len(spec.outer)
    return [a for a in spec.inputs if moves(a.strides[n:])]


def with_known_groups(spec: ReduceSpec) -> ReduceSpec:
    """How many rows there are and how long they are is read at run time, except where some groups
    of elements are left out."""
    if all(stage.group_stride == 1 for stage in spec.stages):
        return spec
    return replace(spec, reduced=numbers(spec.reduced))


def across_dim(spec: ReduceSpec) -> int | None:
    """The outer dim along which neighboring rows are interleaved, if that is the better way."""
    n = len(spec.outer)
    if spec.reduced and any(a.strides[-1] == 1 and moves(a.strides[:n]) for a in _moving(spec)):
        return None  # what does not move from row to row is read as well across
    best = None
    for d in range(n):
        unit = all(a.strides[d] in (0, 1) for a in spec.inputs)
        if unit and any(a.strides[d] == 1 for a in spec.inputs) and _typical(spec.outer[d]) >= 4:
            more = best is None or _typical(spec.outer[d]) > _typical(spec.outer[best])
            best = d if more else best
    return best


def _typical(extent: Size) -> int:
    """An extent as a number; one that is read at run time is taken for a large one."""
    return extent if isinstance(extent, int) else 1 << 30


def outer_moved_last(spec: ReduceSpec, dim: int) -> ReduceSpec:
    n, rank = len(spec.outer), len(spec.outer) + len(spec.reduced)
    order = [[d] for d in range(n) if d != dim] + [[dim]]
    return _map_strides(spec, order, [[d] for d in range(n, rank)])


def with_unit_reduced(spec: ReduceSpec) -> ReduceSpec:
    def extend(a: Access) -> Access:
        return replace(a, strides=(*a.strides, 0))

    return replace(
        spec,
        reduced=(1,),
        inputs=tuple(map(extend, spec.inputs)),
        element_outputs=tuple((extend(a), e) for a, e in spec.element_outputs),
    )


def row_constants(exprs: Sequence[Expr], still: Collection[int]) -> list[Expr]:
    """The largest subexpressions that read only inputs in `still`, and any: none within another."""
    same: dict[Expr, bool | None] = {}  # of an expression without inputs: None
    constants: dict[Expr, None] = {}

    def is_found(node: Expr) -> bool:
        return isinstance(node, Apply) and same[node] is True

    for expr in exprs:
        for node in nodes(expr):
            if isinstance(node, Input):
                same[node] = node.index in still
            elif isinstance(node, Apply):
                argument_flags = {same[a] for a in node.args} - {None}
                same[node] = all(argument_flags) if argument_flags else None
            else:
                same[node] = None
            if isinstance(node, Apply) and same[node] is False:
                constants |= dict.fromkeys(filter(is_found, node.args))
        if is_found(expr):
            constants[expr] = None
    return list(constants)
