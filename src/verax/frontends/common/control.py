"""Branches and loops of every format, as the nodes that they stand for.

A format's reader or importer says what its own nodes are (`Branch`, `Repeat`, `Scan`). A branch
whose condition is known while the model is read (it depends on sizes, say) is taken and the other
one dropped; loops whose number of runs is known are unrolled. What only running decides is kept
(`KeptBranch`, `KeptRepeat`) and becomes an operator of the graph (`bodies`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from verax.base.errors import ModelError, UnsupportedError
from verax.frontends.common.context import Conversion, Result, Row
from verax.frontends.common.foreign import ForeignNode, Subgraph
from verax.ir.types import TensorType

DOMAIN = "control"
"""Of the nodes that are made here; `ROWS` converts them, in every format."""
MAX_RUNS = 1000
"""How often the body of a loop may be repeated in the graph."""
MAX_COPIES = 20_000
"""Nodes that one loop may be unrolled into; a longer one stays a loop."""
MAX_DEPTH = 32
"""Bodies within bodies."""
GIVE = (
    "give the input that decides it as a constant (values={NAME: VALUE} in Python, --value "
    "NAME=NUMBER), or export for fixed sizes"
)
NOTHING = Subgraph((), (), {}, ())


@dataclass(frozen=True)
class Branch(ForeignNode):
    """One of two graphs. inputs: the condition, then what the graphs take."""

    then: Subgraph = NOTHING
    other: Subgraph = NOTHING


@dataclass(frozen=True)
class Repeat(ForeignNode):
    """A loop as ONNX has it. inputs: how often at most or "", whether at all or "", the carried
    values. The body takes the number of the run, a truth, the carried values, and gives whether it
    goes on, the carried values, rows.

    run: how many bodies stand before it; collected: for each of its stacked outputs the values so
    far.
    """

    body: Subgraph = NOTHING
    run: int = 0
    collected: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class While(ForeignNode):
    """A loop as functions have it. inputs: the carried values; `test` takes them and gives whether
    the body runs (again), the body takes them and gives them anew."""

    test: Subgraph = NOTHING
    body: Subgraph = NOTHING


@dataclass(frozen=True)
class Scan(ForeignNode):
    """A loop over slices. inputs: `kept` carried values, what is sliced along `axes` (from its end
    where `backwards`), further values. The body takes carried values, slices, further values, and
    gives carried values and rows, which are stacked along `out_axes`."""

    body: Subgraph = NOTHING
    kept: int = 0
    axes: tuple[int, ...] = ()
    backwards: tuple[int, ...] = ()
    out_axes: tuple[int, ...] = ()
    out_backwards: tuple[int, ...] = ()


Control = Branch | Repeat | While | Scan


@dataclass(frozen=True)
class KeptBranch(Branch):
    """Chosen while running."""


@dataclass(frozen=True)
class KeptRepeat(Repeat):
    """Repeated as running decides."""


@dataclass(frozen=True)
class Scope:
    """What expanding needs of an import.

    known: the content of a value, by the file's name, or None; type: its type; fresh: a name that
    nothing has.
    """

    known: Callable[[str], np.ndarray | None]
    type: Callable[[str], TensorType]
    fresh: Callable[[str], str]


def unfold(node: ForeignNode, scope: Scope) -> list[ForeignNode] | None:
    """The nodes that stand for one of control flow, None for another one or one that is kept.

    Raises `UnsupportedError` when it cannot be expressed, `ModelError` when its bodies do not fit
    it.
    """
    if isinstance(node, KeptBranch | KeptRepeat) or not isinstance(node, Control):
        return None
    if node.depth >= MAX_DEPTH:
        raise ModelError("bodies of If and Loop lie too deep in each other", place=node.place)
    if isinstance(node, Branch):
        return _branch(node, scope)
    if isinstance(node, While):
        return _while(node, scope)
    return _repeat(node, scope) if isinstance(node, Repeat) else _scan(node, scope)


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """An attribute with what a graph in it takes from outside called by other names."""
    if not isinstance(value, Subgraph):
        return value
    own = {*value.inputs, *value.constants, *(o for n in value.nodes for o in n.outputs)}
    outer = {old: new for old, new in names.items() if old not in own}
    nodes = tuple(_on(n, outer) for n in value.nodes)
    return replace(value, nodes=nodes, outputs=tuple(outer.get(o, o) for o in value.outputs))


def _on(node: ForeignNode, names: Mapping[str, str], **changes: Any) -> ForeignNode:
    """A node on values of other names."""
    bodies = {
        name: renamed(getattr(node, name), names)
        for name in ("then", "other", "test", "body")
        if hasattr(node, name)
    }
    return replace(
        node,
        inputs=tuple(names.get(i, i) for i in node.inputs),
        attributes={k: renamed(v, names) for k, v in node.attributes.items()},
        **bodies,
        **changes,
    )


def placed(
    node: ForeignNode,
    graph: Subgraph,
    given: Sequence[str],
    results: Sequence[str],
    scope: Scope,
    part: str,
) -> list[ForeignNode]:
    """A body's nodes on the values `given`, defining `results`."""
    if len(graph.inputs) != len(given) or len(graph.outputs) != len(results):
        raise ModelError(
            f"its body has {len(graph.inputs)} inputs and {len(graph.outputs)} outputs, and should "
            f"have {len(given)} and {len(results)}",
            place=node.place,
        )
    prefix = f"{node.name or next((o for o in node.outputs if o), node.op_type)}/{part}/"
    names = dict(zip(graph.inputs, given))
    nodes: list[ForeignNode] = []
    for name, array in graph.constants.items():
        names[name] = scope.fresh(f"{prefix}{name}")
        nodes.append(constant(names[name], array))
    for inner in graph.nodes:
        made = {o: scope.fresh(f"{prefix}{o}") for o in inner.outputs if o}
        if twice := made.keys() & names.keys():
            raise ModelError(f"{min(twice)!r} is defined twice in a body", place=node.place)
        nodes.append(
            _on(
                inner,
                names,
                outputs=tuple(made.get(o, "") for o in inner.outputs),
                name=f"{prefix}{inner.name or inner.op_type}",
                depth=node.depth + 1,
            )
        )
        names.update(made)
    for formal, result in zip(graph.outputs, results):
        if result:
            nodes.append(identity(names.get(formal, formal), result))
    return nodes


# Nodes of every format


def identity(source: str, result: str) -> ForeignNode:
    return ForeignNode("Identity", (source,), (result,), domain=DOMAIN)


def constant(name: str, array: Any) -> ForeignNode:
    return ForeignNode("Constant", (), (name,), {"value": np.asarray(array)}, domain=DOMAIN)


def stack(values: Sequence[str], result: str, axis: int = 0) -> ForeignNode:
    """One tensor of equal ones, along a new axis."""
    return ForeignNode("Stack", tuple(values), (result,), {"axis": axis}, domain=DOMAIN)


def _row(source: str, result: str, axis: int, index: int) -> ForeignNode:
    return ForeignNode("Row", (source,), (result,), {"axis": axis, "index": index}, domain=DOMAIN)


def _convert_identity(c: Conversion) -> Result:
    return c.operator("Identity")


def _convert_constant(c: Conversion) -> Result:
    return c.named_constant(c.attributes.get("value"))


def _convert_stack(c: Conversion) -> Result:
    axis = c.integer("axis")
    axes = c.ints([axis])
    rows = [c.add("Unsqueeze", [value, axes]) for value in c.operands]
    return c.result("Concat", rows, axis=axis)


def _convert_row(c: Conversion) -> Result:
    index = c.constant(c.integer("index"), np.int64)
    return c.apply("Gather", [c.required(0), index], axis=c.integer("axis"))


def _convert_join(c: Conversion) -> Result:
    return c.operator("Concat", axis=0)


def _convert_add(c: Conversion) -> Result:
    return c.operator("Add")


ROWS: dict[tuple[str, str], Row] = {
    (DOMAIN, "Identity"): _convert_identity,
    (DOMAIN, "Constant"): _convert_constant,
    (DOMAIN, "Stack"): _convert_stack,
    (DOMAIN, "Row"): _convert_row,
    (DOMAIN, "Join"): _convert_join,
    (DOMAIN, "Add"): _convert_add,
}


def condition(name: str, node: ForeignNode, scope: Scope) -> bool | None:
    """What a condition is; None when only running tells."""
    found = scope.known(name)
    if found is None:
        return None
    if found.size != 1:
        raise ModelError(f"its condition has {found.size} elements", place=node.place)
    return bool(found.reshape(-1)[0])


def _branch(node: Branch, scope: Scope) -> list[ForeignNode]:
    chosen = condition(node.inputs[0], node, scope)
    if chosen is None:
        fields = {k: getattr(node, k) for k in node.__dataclass_fields__}
        return [KeptBranch(**fields)]
    part, graph = ("then", node.then) if chosen else ("else", node.other)
    return placed(node, graph, node.inputs[1:], node.outputs, scope, part)


def _while(node: While, scope: Scope) -> list[ForeignNode]:
    """The loop with its condition at the end of its body, and once before it."""
    hint = node.name or node.op_type
    first, again, run, go = (scope.fresh(f"{hint}/{n}") for n in ("first", "again", "run", "go"))
    before = placed(node, node.test, node.inputs, [first], scope, "first")
    after = placed(node, node.test, node.body.outputs, [again], scope, "again")
    body = Subgraph(
        (run, go, *node.body.inputs),
        (again, *node.body.outputs),
        node.body.constants,
        (*node.body.nodes, *after),
    )
    loop = Repeat(
        node.op_type, ("", first, *node.inputs), node.outputs, {}, node.name, depth=node.depth,
        body=body,
    )  # fmt: skip
    return [*before, loop]


def invariant(body: Subgraph) -> set[int]:
    """Carried values that a loop's body hands on as they are; -1 is the truth that it goes on."""
    passed = {
        n.outputs[0]: n.inputs[0]
        for n in body.nodes
        if n.op_type == "Identity" and len(n.inputs) == len(n.outputs) == 1
    }

    def source(name: str) -> str:
        for _ in range(len(passed)):
            name = passed.get(name, name)
        return name

    pairs = enumerate(zip(body.inputs[1:], body.outputs), -1)
    return {i for i, (formal, made) in pairs if source(made) == formal}


def _repeat(node: Repeat, scope: Scope) -> list[ForeignNode]:
    most, goes_on, *carried = node.inputs
    stacked = len(node.outputs) - len(carried)
    if stacked < 0 or len(node.body.outputs) != 1 + len(node.outputs):
        raise ModelError(
            f"it has {len(carried)} carried values and {len(node.outputs)} outputs, its body gives "
            f"{len(node.body.outputs)}",
            place=node.place,
        )
    node = replace(node, collected=node.collected or ((),) * stacked)
    if not most and -1 in invariant(node.body):
        raise UnsupportedError("a loop that nothing ends is not supported", place=node.place)
    again = _runs_again(node, most, goes_on, scope)
    if again is None:
        return _kept(node, scope)
    if not again:
        return _finished(node, carried, scope)
    run = node.run
    count, more = scope.fresh(f"{node.outputs[0]}/run"), scope.fresh(f"{node.outputs[0]}/go")
    results = [scope.fresh(f"{o}/{run}") for o in ("go", *node.outputs)]
    nodes = [
        constant(count, np.array(run, np.int64)),
        constant(more, np.array(True)),
        *placed(node, node.body, (count, more, *carried), results, scope, str(run)),
    ]
    kept = len(carried)
    step = replace(
        node,
        inputs=(most, results[0], *results[1 : 1 + kept]),
        run=run + 1,
        collected=tuple((*c, r) for c, r in zip(node.collected, results[1 + kept :])),
    )
    return [*nodes, step]


def _runs_again(node: Repeat, most: str, goes_on: str, scope: Scope) -> bool | None:
    """Whether it runs once more; None when only running tells, or it runs too often to be written
    out."""
    again = condition(goes_on, node, scope) if goes_on else True
    if again is False:
        return False
    limit = scope.known(most) if most else None
    if limit is not None and node.run >= int(limit.reshape(-1)[0]):
        return False
    if again is None or (most and limit is None):
        return None
    each = max(1, len(node.body.nodes))
    whole = node.run + 1 if limit is None else int(limit.reshape(-1)[0])
    return None if whole > MAX_RUNS or whole * each > MAX_COPIES else True


def _kept(node: Repeat, scope: Scope) -> list[ForeignNode]:
    """The loop with the runs that are left, behind the rows of those that were written out."""
    fields = {k: getattr(node, k) for k in node.__dataclass_fields__}
    carried = len(node.inputs) - 2
    if not node.run or not node.collected:
        return [KeptRepeat(**fields)]
    rows = [scope.fresh(f"{o}/rows") if o else "" for o in node.outputs[carried:]]
    fields["outputs"] = (*node.outputs[:carried], *rows)
    nodes: list[ForeignNode] = [KeptRepeat(**fields)]
    for values, row, result in zip(node.collected, rows, node.outputs[carried:]):
        if result:
            first = scope.fresh(f"{result}/first")
            nodes.append(stack(values, first))
            nodes.append(ForeignNode("Join", (first, row), (result,), domain=DOMAIN))
    return nodes


def _finished(node: Repeat, carried: Sequence[str], scope: Scope) -> list[ForeignNode]:
    nodes = [identity(v, o) for v, o in zip(carried, node.outputs) if o]
    for values, result in zip(node.collected, node.outputs[len(carried) :]):
        if result and not values:
            raise UnsupportedError(
                "a loop that never runs is not supported where it stacks outputs", place=node.place
            )
        if result:
            nodes.append(stack(values, result))
    return nodes


def _scan(node: Scan, scope: Scope) -> list[ForeignNode]:
    kept, sliced = node.kept, len(node.axes)
    stacked = len(node.outputs) - kept
    if stacked < 0 or len(node.out_axes) != stacked or len(node.inputs) < kept + sliced:
        raise ModelError("its numbers of inputs and outputs do not fit", place=node.place)
    carried, sources = list(node.inputs[:kept]), node.inputs[kept : kept + sliced]
    further = node.inputs[kept + sliced :]
    length = _length(node, sources, scope)
    collected: list[list[str]] = [[] for _ in range(stacked)]
    nodes: list[ForeignNode] = []
    for run in range(length):
        rows = []
        for source, axis, back in zip(sources, node.axes, node.backwards):
            row = scope.fresh(f"{source}/{run}")
            nodes.append(_row(source, row, axis, length - 1 - run if back else run))
            rows.append(row)
        results = [scope.fresh(f"{node.outputs[0]}/{run}") for _ in node.body.outputs]
        given = (*carried, *rows, *further)
        nodes += placed(node, node.body, given, results, scope, str(run))
        carried = results[:kept]
        for column, result, back in zip(collected, results[kept:], node.out_backwards):
            column.insert(0 if back else len(column), result)
    nodes += [identity(v, o) for v, o in zip(carried, node.outputs) if o]
    for values, result, axis in zip(collected, node.outputs[kept:], node.out_axes):
        nodes += [stack(values, result, axis)] if result else []
    return nodes


def _length(node: Scan, sources: Sequence[str], scope: Scope) -> int:
    found = set()
    for source, axis in zip(sources, node.axes):
        type_ = scope.type(source)
        if not -type_.rank <= axis < type_.rank:
            raise ModelError(f"it scans axis {axis} of {type_}", place=node.place)
        found.add(type_.dims[axis])
    if len(found) != 1:
        raise ModelError(f"it scans along sizes {found} at once", place=node.place)
    (size,) = found
    if not isinstance(size, int):
        raise UnsupportedError(
            f"Scan is not supported along a size that is open ({size})",
            place=node.place,
            next_step="give the shapes when loading",
        )
    if not 0 < size <= MAX_RUNS:
        raise UnsupportedError(
            f"running {size} times is not supported; 1 to {MAX_RUNS} are", place=node.place
        )
    return size
