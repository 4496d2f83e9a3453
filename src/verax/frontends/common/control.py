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
from verax.frontends.common import control_nodes as made_of
from verax.frontends.common.control_nodes import constant, identity, stack
from verax.frontends.common.foreign import ForeignNode, Subgraph
from verax.ir.types import TensorType

MAX_RUNS = 1000
"""How often the body of a loop may be repeated in the graph."""
MAX_COPIES = 20_000
"""Nodes that one loop may be unrolled into; a longer one stays a loop."""
MAX_DEPTH = 32
"""Bodies within bodies."""
GIVE = (
    "give the input that decides it as a constant (values={NAME: VALUE} in Python, --value "
    "NAME=NUMBER), or sizes that decide it (shapes={NAME: SIZES}, --shape NAME=SIZES)"
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
class Call(ForeignNode):
    """A graph that runs once. inputs: what it takes."""

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


Control = Branch | Repeat | While | Call | Scan


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
    if isinstance(node, Call):
        return placed(node, node.body, node.inputs, node.outputs, scope, "call")
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
    inner = [v for n in nodes for v in n.attributes.values() if isinstance(v, Subgraph)]
    read = {*value.outputs, *(i for n in value.nodes for i in n.inputs)}
    changed = any(i in outer for i in read) or any(v.message is None for v in inner)
    message = None if changed else value.message
    outputs = tuple(outer.get(o, o) for o in value.outputs)
    return replace(value, nodes=nodes, outputs=outputs, message=message)


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
            nodes.append(ForeignNode("Join", (first, row), (result,), domain=made_of.DOMAIN))
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
    if length is None:
        return _scan_while_running(node, scope)
    collected: list[list[str]] = [[] for _ in range(stacked)]
    nodes: list[ForeignNode] = []
    for run in range(length):
        rows = []
        for source, axis, back in zip(sources, node.axes, node.backwards):
            row = scope.fresh(f"{source}/{run}")
            nodes.append(made_of.row(source, row, axis, length - 1 - run if back else run))
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


def _scan_while_running(node: Scan, scope: Scope) -> list[ForeignNode]:
    """The loop over a size that is open, or too long to be written out."""
    kept, sliced, hint = node.kept, len(node.axes), node.outputs[0]
    sources = [scope.fresh(f"{hint}/{v}") for v in node.inputs[kept:]]
    nodes = [identity(v, to) for v, to in zip(node.inputs[kept:], sources)]
    size = scope.fresh(f"{hint}/length")
    nodes.append(made_of.length(sources[0], size, node.axes[0]))
    body, run, go = node.body, scope.fresh(f"{hint}/run"), scope.fresh(f"{hint}/go")
    if len(body.inputs) != len(node.inputs) or len(body.outputs) != len(node.outputs):
        raise ModelError("its body does not take what it gives it", place=node.place)
    slices = [
        made_of.row_at(source, run, formal, axis, size if back else "")
        for source, formal, axis, back in zip(
            sources, body.inputs[kept:], node.axes, node.backwards
        )
    ]
    handed = [identity(v, to) for v, to in zip(sources[sliced:], body.inputs[kept + sliced :])]
    inner = Subgraph(
        (run, go, *body.inputs[:kept]),
        (go, *body.outputs),
        body.constants,
        (*slices, *handed, *body.nodes),
    )
    rows = [scope.fresh(f"{o}/rows") if o else "" for o in node.outputs[kept:]]
    nodes.append(
        KeptRepeat(
            node.op_type, (size, "", *node.inputs[:kept]), (*node.outputs[:kept], *rows), {},
            node.name, depth=node.depth, body=inner, collected=((),) * len(rows),
        )
    )  # fmt: skip
    ends = zip(rows, node.outputs[kept:], node.out_axes, node.out_backwards)
    nodes += [made_of.unrolled(r, o, axis, back) for r, o, axis, back in ends if o]
    return nodes


def _length(node: Scan, sources: Sequence[str], scope: Scope) -> int | None:
    """How often it runs; None where that is open, or more often than is written out."""
    found = set()
    for source, axis in zip(sources, node.axes):
        type_ = scope.type(source)
        if not -type_.rank <= axis < type_.rank:
            raise ModelError(f"it scans axis {axis} of {type_}", place=node.place)
        found.add(type_.dims[axis])
    if len(found) != 1:
        raise ModelError(f"it scans along sizes {found} at once", place=node.place)
    (size,) = found
    if not isinstance(size, int) or not 0 < size <= MAX_RUNS:
        return None
    return size if size * len(node.body.nodes) <= MAX_COPIES else None


def chosen_by(
    index: str, given: Sequence[str], branches: Sequence[Subgraph], node: ForeignNode
) -> list[ForeignNode]:
    """A chain of branches: the one whose number `index` is, the last one for any other number.

    node: what it is in the file, for names and outputs; its inputs are not read. The nodes are in
    an order in which they can run, and the last one makes the outputs.
    """
    names = tuple(f"{node.name}/is {i}" for i in range(len(branches) - 1))
    nodes = [made_of.equals(index, i, truth) for i, truth in enumerate(names)]
    *first, other = [replace(g, inputs=(*names, *g.inputs)) for g in branches]
    formal = (*names, *(f"{node.name}/given {i}" for i in range(len(given))))
    for i in range(len(first) - 1, 0, -1):
        outputs = tuple(f"{node.name}/{i} gives {k}" for k in range(len(node.outputs)))
        inner = Branch(
            node.op_type, (names[i], *formal), outputs, {}, f"{node.name}/{i}",
            then=first[i], other=other,
        )  # fmt: skip
        other = Subgraph(formal, outputs, {}, (inner,))
    given = (*names, *given)
    if first:
        choice = Branch(
            node.op_type, (names[0], *given), node.outputs, {}, node.name,
            then=first[0], other=other,
        )  # fmt: skip
        return [*nodes, choice]
    return [Call(node.op_type, given, node.outputs, {}, node.name, body=other)]
