"""What the runtime computes for a program of open sizes, and whether all of it can be: sizes that
data decide are counted before they are used."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from verax.compiler.kernels.sizes import dims_of
from verax.compiler.place.calls import (
    Native,
    ReferenceCall,
    RepeatCall,
    SizeCall,
    Step,
    kernel_calls,
)
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.size_table import SizeTable
from verax.ir.assumptions import Assumptions, Condition, NotOpenError, assumptions
from verax.ir.dim import DimLike, symbols
from verax.ir.graph import Graph
from verax.runtime.open_sizes import CountedSize, OpenSizes


def open_sizes_of(
    lowering: Lowering, table: SizeTable, counted: Sequence[CountedSize]
) -> OpenSizes:
    """What the runtime computes for each set of sizes, and for each count."""
    assumed, graph = assumptions(), lowering.graph
    assert assumed is not None
    native = Native | SizeCall
    if not all(isinstance(step, native) for step in lowering.calls.steps):
        step = next(s for s in lowering.calls.steps if not isinstance(s, native))
        reason = f": {step.reason}" if isinstance(step, ReferenceCall) else ""
        raise NotOpenError(f"{step.label} has no kernel for open sizes{reason}")
    inputs, outputs = (
        tuple(tuple(map(str, graph.types[v].dims)) for v in values)
        for values in (graph.inputs, graph.outputs)
    )
    if table.symbol_count != len(assumed.sizes):
        raise NotOpenError("a size that data decide was met when kernels had been chosen")
    _require_counted_before_use(lowering.calls.steps, graph)
    of_counts, of_inputs = (
        [c for c in assumed.conditions if _rests_on_counts(c, assumed) is expected]
        for expected in (True, False)
    )
    return OpenSizes(
        tuple(s for s in assumed.sizes if s not in assumed.counted),
        tuple((str(c.difference), c.relation) for c in of_inputs),
        table.texts(),
        table.buffers(),
        lowering.calls.status_bytes,
        inputs,
        outputs,
        len(assumed.counted),
        tuple(dataclasses.replace(c, name=assumed.counted[f"d{c.symbol}"]) for c in counted),
        tuple(
            (str(c.difference), c.relation, "" if c.elements is None else str(c.elements))
            for c in of_counts
        ),
    )


def _rests_on_counts(condition: Condition, assumed: Assumptions) -> bool:
    return assumed.is_counted(condition.difference) or assumed.is_counted(condition.elements)


def _require_counted_before_use(steps: Sequence[Step], graph: Graph) -> None:
    """Raises `NotOpenError` where a size that data decide is used and no kernel has counted it."""
    assumed = assumptions()
    assert assumed is not None
    if not assumed.counted:
        return
    defined: set[str] = set()

    def require(sizes: Iterable[DimLike], label: str) -> None:
        for size in sizes:
            missing = symbols(size) & assumed.counted.keys() - defined
            if missing:
                names = ", ".join(assumed.counted[n] for n in sorted(missing))
                raise NotOpenError(f"{label} needs the sizes {names}, which nothing counts")

    for step in steps:
        if isinstance(step, SizeCall):
            require([step.limit], step.label)
            defined.add(step.symbol)
        elif isinstance(step, Native):
            if isinstance(step, RepeatCall):
                require([step.times], step.label)
            for call in kernel_calls([step]):
                pointers = [n for p in call.args for n in (p.buffer.nbytes, p.byte_offset, p.step)]
                require([*call.elements, *pointers, *dims_of(call.spec)], call.label)
    require((d for v in graph.outputs for d in graph.types[v].dims), "the network")
