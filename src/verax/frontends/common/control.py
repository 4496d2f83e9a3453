"""Branches and loops of every format, as the nodes that they stand for.

A format's reader or importer says what its own nodes are (`Branch`, `CountedLoop`, `Scan`). A
branch whose condition is known while the model is read (it depends on sizes, say) is taken and the
other one dropped; loops whose number of runs is known are unrolled. What only running decides is
kept (`KeptBranch`, `KeptRepeat`) and becomes an operator of the graph (`subgraphs`).
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
MAX_NESTED_COPIES = 40_000
"""Nodes that loops within loops, which multiply, may be unrolled into, all together; then they stay
loops."""
ASSUMED_RUNS = 32
"""How often a loop in a body runs, before that is known."""
NODES_AROUND = 4
"""Nodes that each run of a body takes besides."""
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
    otherwise: Subgraph = NOTHING


@dataclass(frozen=True)
class CountedLoop(ForeignNode):
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
class SubgraphCall(ForeignNode):
    """A graph that runs once. inputs: what it takes."""

    body: Subgraph = NOTHING


@dataclass(frozen=True)
class Scan(ForeignNode):
    """A loop over slices. inputs: `kept` carried values, what is sliced along `axes` (from its end
    where `backwards`), further values. The body takes carried values, slices, further values, and
    gives carried values and rows, which are stacked along `out_axes`."""

    body: Subgraph = NOTHING
    carried_count: int = 0
    axes: tuple[int, ...] = ()
    backwards: tuple[int, ...] = ()
    out_axes: tuple[int, ...] = ()
    out_backwards: tuple[int, ...] = ()


Control = Branch | CountedLoop | While | SubgraphCall | Scan


@dataclass(frozen=True)
class KeptBranch(Branch):
    """Chosen while running."""


@dataclass(frozen=True)
class KeptRepeat(CountedLoop):
    """Repeated as running decides."""


@dataclass
class CopyCount:
    """How many nodes loops within loops were unrolled into."""

    nested: int = 0

    def may_go_on(self, node: CountedLoop | Scan) -> bool:
        """Whether a loop may be unrolled further; its body is not counted yet."""
        return self.nested <= MAX_NESTED_COPIES or not _is_nested(node)

    def add(self, node: CountedLoop | Scan, runs: int = 1) -> None:
        if _is_nested(node):
            self.nested += runs * (len(node.body.nodes) + NODES_AROUND)


def _is_nested(node: CountedLoop | Scan) -> bool:
    """Whether a loop lies in a body, or another body in its own."""
    return node.depth > 0 or any(_bodies(n) for n in node.body.nodes)


def _bodies(node: ForeignNode) -> list[Subgraph]:
    """The graphs in a node of control flow, also before a format has made it one of `Control`."""
    fields = [getattr(node, f, None) for f in ("then", "otherwise", "test", "body")]
    return [g for g in (*fields, *node.attributes.values()) if isinstance(g, Subgraph)]


def weight(graph: Subgraph) -> int:
    """Nodes of a body, where bodies in it are assumed to run several times."""
    total = max(1, len(graph.nodes))
    for node in graph.nodes:
        runs = 1 if isinstance(node, Branch) or node.op_type == "If" else ASSUMED_RUNS
        total += sum(runs * weight(body) for body in _bodies(node))
    return total


@dataclass(frozen=True)
class Scope:
    """What expanding needs of an import.

    known: the content of a value, by the file's name, or None; type: its type; fresh: a name that
    nothing has; copies: what was unrolled so far.
    """

    known_value: Callable[[str], np.ndarray | None]
    type: Callable[[str], TensorType]
    fresh: Callable[[str], str]
    copies: CopyCount


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
    if isinstance(node, SubgraphCall):
        return placed(node, node.body, node.inputs, node.outputs, scope, "call")
    if isinstance(node, While):
        return _while(node, scope)
    return _repeat(node, scope) if isinstance(node, CountedLoop) else _scan(node, scope)


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
        for name in ("then", "otherwise", "test", "body")
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
    operands: Sequence[str],
    results: Sequence[str],
    scope: Scope,
    label: str,
) -> list[ForeignNode]:
    """Copies of a body's nodes that read `operands` and define `results`."""
    if len(graph.inputs) != len(operands) or len(graph.outputs) != len(results):
        raise ModelError(
            f"its body has {len(graph.inputs)} inputs and {len(graph.outputs)} outputs, and should "
            f"have {len(operands)} and {len(results)}",
            place=node.place,
        )
    prefix = f"{node.name or next((o for o in node.outputs if o), node.op_type)}/{label}/"
    names = dict(zip(graph.inputs, operands))
    nodes: list[ForeignNode] = []
    for name, array in graph.constants.items():
        names[name] = scope.fresh(f"{prefix}{name}")
        nodes.append(constant(names[name], array))
    for inner in graph.nodes:
        own_names = {o: scope.fresh(f"{prefix}{o}") for o in inner.outputs if o}
        if twice := own_names.keys() & names.keys():
            raise ModelError(f"{min(twice)!r} is defined twice in a body", place=node.place)
        nodes.append(
            _on(
                inner,
                names,
                outputs=tuple(own_names.get(o, "") for o in inner.outputs),
                name=f"{prefix}{inner.name or inner.op_type}",
                depth=node.depth + 1,
            )
        )
        names.update(own_names)
    for formal, result in zip(graph.outputs, results):
        if result:
            nodes.append(identity(names.get(formal, formal), result))
    return nodes


def condition(name: str, node: ForeignNode, scope: Scope) -> bool | None:
    """The truth value of the condition `name`; None where it is computed at run time."""
    content = scope.known_value(name)
    if content is None:
        return None
    if content.size != 1:
        raise ModelError(f"its condition has {content.size} elements", place=node.place)
    return bool(content.reshape(-1)[0])


def _branch(node: Branch, scope: Scope) -> list[ForeignNode]:
    truth = condition(node.inputs[0], node, scope)
    if truth is None:
        fields = {k: getattr(node, k) for k in node.__dataclass_fields__}
        return [KeptBranch(**fields)]
    label, graph = ("then", node.then) if truth else ("else", node.otherwise)
    return placed(node, graph, node.inputs[1:], node.outputs, scope, label)


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
    loop = CountedLoop(
        node.op_type, ("", first, *node.inputs), node.outputs, {}, node.name, depth=node.depth,
        body=body,
    )  # fmt: skip
    return [*before, loop]


def invariant(body: Subgraph) -> set[int]:
    """Indices of the carried values that a loop's body returns unchanged; -1 is its condition."""
    passed = {
        n.outputs[0]: n.inputs[0]
        for n in body.nodes
        if n.op_type == "Identity" and len(n.inputs) == len(n.outputs) == 1
    }

    def source(name: str) -> str:
        for _ in range(len(passed)):
            name = passed.get(name, name)
        return name

    formals_and_results = enumerate(zip(body.inputs[1:], body.outputs), -1)
    return {i for i, (formal, result) in formals_and_results if source(result) == formal}


def _repeat(node: CountedLoop, scope: Scope) -> list[ForeignNode]:
    limit_name, goes_on, *carried = node.inputs
    stacked = len(node.outputs) - len(carried)
    if stacked < 0 or len(node.body.outputs) != 1 + len(node.outputs):
        raise ModelError(
            f"it has {len(carried)} carried values and {len(node.outputs)} outputs, its body gives "
            f"{len(node.body.outputs)}",
            place=node.place,
        )
    node = replace(node, collected=node.collected or ((),) * stacked)
    if not limit_name and -1 in invariant(node.body):
        raise UnsupportedError("a loop that nothing ends is not supported", place=node.place)
    again = _runs_again(node, limit_name, goes_on, scope)
    if again is None:
        return _kept_repeat(node, scope)
    if not again:
        return _finished(node, carried, scope)
    scope.copies.add(node)
    run = node.run
    count, more = scope.fresh(f"{node.outputs[0]}/run"), scope.fresh(f"{node.outputs[0]}/go")
    results = [scope.fresh(f"{o}/{run}") for o in ("go", *node.outputs)]
    nodes = [
        constant(count, np.array(run, np.int64)),
        constant(more, np.array(True)),
        *placed(node, node.body, (count, more, *carried), results, scope, str(run)),
    ]
    carried_count = len(carried)
    step = replace(
        node,
        inputs=(limit_name, results[0], *results[1 : 1 + carried_count]),
        run=run + 1,
        collected=tuple((*c, r) for c, r in zip(node.collected, results[1 + carried_count :])),
    )
    return [*nodes, step]


def _runs_again(node: CountedLoop, limit_name: str, goes_on: str, scope: Scope) -> bool | None:
    """True if the loop runs once more; None where that is computed at run time, or the loop runs
    too often to be unrolled."""
    again = condition(goes_on, node, scope) if goes_on else True
    if again is False:
        return False
    limit = scope.known_value(limit_name) if limit_name else None
    if limit is not None and node.run >= int(limit.reshape(-1)[0]):
        return False
    if again is None or (limit_name and limit is None) or not scope.copies.may_go_on(node):
        return None
    nodes_per_run = weight(node.body)
    total_runs = node.run + 1 if limit is None else int(limit.reshape(-1)[0])
    return None if total_runs > MAX_RUNS or total_runs * nodes_per_run > MAX_COPIES else True


def _kept_repeat(node: CountedLoop, scope: Scope) -> list[ForeignNode]:
    """The loop of the remaining runs, its rows appended to those of the unrolled runs."""
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


def _finished(node: CountedLoop, carried: Sequence[str], scope: Scope) -> list[ForeignNode]:
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
    carried_count, sliced = node.carried_count, len(node.axes)
    stacked = len(node.outputs) - carried_count
    if stacked < 0 or len(node.out_axes) != stacked or len(node.inputs) < carried_count + sliced:
        raise ModelError("its numbers of inputs and outputs do not fit", place=node.place)
    carried, sources = (
        list(node.inputs[:carried_count]),
        node.inputs[carried_count : carried_count + sliced],
    )
    further = node.inputs[carried_count + sliced :]
    length = _length(node, sources, scope)
    if length is None or not scope.copies.may_go_on(node):
        return _scan_while_running(node, scope)
    scope.copies.add(node, length)
    collected: list[list[str]] = [[] for _ in range(stacked)]
    nodes: list[ForeignNode] = []
    for run in range(length):
        rows = []
        for source, axis, back in zip(sources, node.axes, node.backwards):
            row = scope.fresh(f"{source}/{run}")
            nodes.append(made_of.row(source, row, axis, length - 1 - run if back else run))
            rows.append(row)
        results = [scope.fresh(f"{node.outputs[0]}/{run}") for _ in node.body.outputs]
        operands = (*carried, *rows, *further)
        nodes += placed(node, node.body, operands, results, scope, str(run))
        carried = results[:carried_count]
        for column, result, back in zip(collected, results[carried_count:], node.out_backwards):
            column.insert(0 if back else len(column), result)
    nodes += [identity(v, o) for v, o in zip(carried, node.outputs) if o]
    for values, result, axis in zip(collected, node.outputs[carried_count:], node.out_axes):
        nodes += [stack(values, result, axis)] if result else []
    return nodes


def _scan_while_running(node: Scan, scope: Scope) -> list[ForeignNode]:
    """A loop for a scan over an axis of dynamic size, or one too long to be unrolled."""
    carried_count, sliced, hint = node.carried_count, len(node.axes), node.outputs[0]
    sources = [scope.fresh(f"{hint}/{v}") for v in node.inputs[carried_count:]]
    nodes = [identity(v, to) for v, to in zip(node.inputs[carried_count:], sources)]
    size = scope.fresh(f"{hint}/length")
    nodes.append(made_of.length(sources[0], size, node.axes[0]))
    body, run, go = node.body, scope.fresh(f"{hint}/run"), scope.fresh(f"{hint}/go")
    if len(body.inputs) != len(node.inputs) or len(body.outputs) != len(node.outputs):
        raise ModelError("its body does not take what it gives it", place=node.place)
    slices = [
        made_of.row_at(source, run, formal, axis, size if back else "")
        for source, formal, axis, back in zip(
            sources, body.inputs[carried_count:], node.axes, node.backwards
        )
    ]
    handed = [
        identity(v, to) for v, to in zip(sources[sliced:], body.inputs[carried_count + sliced :])
    ]
    inner = Subgraph(
        (run, go, *body.inputs[:carried_count]),
        (go, *body.outputs),
        body.constants,
        (*slices, *handed, *body.nodes),
    )
    rows = [scope.fresh(f"{o}/rows") if o else "" for o in node.outputs[carried_count:]]
    nodes.append(
        KeptRepeat(
            node.op_type, (size, "", *node.inputs[:carried_count]),
            (*node.outputs[:carried_count], *rows), {},
            node.name, depth=node.depth, body=inner, collected=((),) * len(rows),
        )
    )  # fmt: skip
    ends = zip(rows, node.outputs[carried_count:], node.out_axes, node.out_backwards)
    nodes += [made_of.unrolled(r, o, axis, back) for r, o, axis, back in ends if o]
    return nodes


def _length(node: Scan, sources: Sequence[str], scope: Scope) -> int | None:
    """Number of runs; None where it is dynamic, or larger than is unrolled."""
    sizes = set()
    for source, axis in zip(sources, node.axes):
        type_ = scope.type(source)
        if not -type_.rank <= axis < type_.rank:
            raise ModelError(f"it scans axis {axis} of {type_}", place=node.place)
        sizes.add(type_.dims[axis])
    if len(sizes) != 1:
        raise ModelError(f"it scans along sizes {sizes} at once", place=node.place)
    (size,) = sizes
    if not isinstance(size, int) or not 0 < size <= MAX_RUNS:
        return None
    return size if size * weight(node.body) <= MAX_COPIES else None


def switch(
    index: str, operands: Sequence[str], branches: Sequence[Subgraph], node: ForeignNode
) -> list[ForeignNode]:
    """A chain of branches: the one whose number `index` is, the last one for any other number.

    node: what it is in the file, for names and outputs; its inputs are not read. The nodes are in
    an order in which they can run, and the last one makes the outputs.
    """
    names = tuple(f"{node.name}/is {i}" for i in range(len(branches) - 1))
    nodes = [made_of.equals(index, i, truth) for i, truth in enumerate(names)]
    *first, otherwise = [replace(g, inputs=(*names, *g.inputs)) for g in branches]
    formal = (*names, *(f"{node.name}/given {i}" for i in range(len(operands))))
    for i in range(len(first) - 1, 0, -1):
        outputs = tuple(f"{node.name}/{i} gives {k}" for k in range(len(node.outputs)))
        inner = Branch(
            node.op_type, (names[i], *formal), outputs, {}, f"{node.name}/{i}",
            then=first[i], otherwise=otherwise,
        )  # fmt: skip
        otherwise = Subgraph(formal, outputs, {}, (inner,))
    operands = (*names, *operands)
    if first:
        choice = Branch(
            node.op_type, (names[0], *operands), node.outputs, {}, node.name,
            then=first[0], otherwise=otherwise,
        )  # fmt: skip
        return [*nodes, choice]
    return [SubgraphCall(node.op_type, operands, node.outputs, {}, node.name, body=otherwise)]
