"""If, Loop and Scan as the nodes that they stand for.

A branch whose condition is known while the model is read (it depends on sizes, say) is taken and
the other one dropped. One that is chosen while running becomes both branches and a choice between
their results, which must be of the same type. Loops whose number of runs is known are unrolled.
What only data decide how often it runs is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from verax.base.errors import ModelError, UnsupportedError
from verax.frontends.common.foreign import ForeignNode
from verax.frontends.common.ledger import Attributes
from verax.frontends.onnx.reader import Subgraph
from verax.ir.types import TensorType

CONTROL = ("If", "Loop", "Scan")
MAX_RUNS = 1000
"""How often the body of a loop may be repeated in the graph."""
MAX_DEPTH = 32
"""Bodies within bodies."""
GIVE = (
    "give the input that decides it as a constant (values={NAME: VALUE} in Python, --value "
    "NAME=NUMBER), or export for fixed sizes"
)


@dataclass(frozen=True)
class Choice(ForeignNode):
    """Between two values of the same type: inputs are the condition, then, else."""


@dataclass(frozen=True)
class LoopStep(ForeignNode):
    """What is left of a Loop. run: how many bodies stand before it; collected: for each of its
    stacked outputs the values so far."""

    run: int = 0
    collected: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Scope:
    """What expanding needs of an import.

    known: the content of a value, by the file's name, or None; type: its type; fresh: a name that
    nothing has; open_branches: beginnings of the names of nodes of which only running tells whether
    they count, for whoever names what is wrong with them.
    """

    known: Callable[[str], np.ndarray | None]
    type: Callable[[str], TensorType]
    fresh: Callable[[str], str]
    open_branches: list[str]


def is_control(node: ForeignNode) -> bool:
    """Whether `unfold` takes the node."""
    return isinstance(node, Choice | LoopStep) or (node.domain, node.op_type) in {
        ("", kind) for kind in CONTROL
    }


def unfold(node: ForeignNode, attributes: Attributes, scope: Scope) -> list[ForeignNode]:
    """The nodes that stand for a control-flow node.

    Raises `UnsupportedError` when only running tells what it does, `ModelError` when its bodies do
    not fit it.
    """
    if node.depth >= MAX_DEPTH:
        raise ModelError("bodies of If and Loop lie too deep in each other", place=node.place)
    if isinstance(node, Choice):
        return _choose(node, scope)
    kind = {"If": _branch, "Loop": _loop, "Scan": _scan}[node.op_type]
    nodes = kind(node, attributes, scope)
    if not isinstance(node, LoopStep):
        attributes.close()
    return nodes


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """An attribute with what a graph in it takes from outside called by other names."""
    if not isinstance(value, Subgraph):
        return value
    own = {*value.inputs, *value.constants, *(o for n in value.nodes for o in n.outputs)}
    outer = {old: new for old, new in names.items() if old not in own}
    nodes = tuple(
        replace(
            n,
            inputs=tuple(outer.get(i, i) for i in n.inputs),
            attributes={k: renamed(v, outer) for k, v in n.attributes.items()},
        )
        for n in value.nodes
    )
    return replace(value, nodes=nodes, outputs=tuple(outer.get(o, o) for o in value.outputs))


def _graph(node: ForeignNode, attributes: Attributes, name: str) -> Subgraph:
    found = attributes.get(name)
    if not isinstance(found, Subgraph):
        raise ModelError(f"the attribute {name} is no graph", place=node.place)
    return found


def _placed(
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
    prefix = _prefix(node, part)
    names = dict(zip(graph.inputs, given))
    nodes: list[ForeignNode] = []
    for name, array in graph.constants.items():
        names[name] = scope.fresh(f"{prefix}{name}")
        nodes.append(_constant(names[name], array))
    for inner in graph.nodes:
        made = {o: scope.fresh(f"{prefix}{o}") for o in inner.outputs if o}
        if twice := made.keys() & names.keys():
            raise ModelError(f"{min(twice)!r} is defined twice in a body", place=node.place)
        nodes.append(
            replace(
                inner,
                inputs=tuple(names.get(i, i) for i in inner.inputs),
                outputs=tuple(made.get(o, "") for o in inner.outputs),
                attributes={k: renamed(v, names) for k, v in inner.attributes.items()},
                name=f"{prefix}{inner.name or inner.op_type}",
                depth=node.depth + 1,
            )
        )
        names.update(made)
    for formal, result in zip(graph.outputs, results):
        if result:
            nodes.append(_identity(names.get(formal, formal), result))
    return nodes


def _prefix(node: ForeignNode, part: str) -> str:
    return f"{node.name or next((o for o in node.outputs if o), node.op_type)}/{part}/"


def _identity(source: str, result: str) -> ForeignNode:
    return ForeignNode("Identity", (source,), (result,), {}, "", version=14)


def _constant(name: str, array: np.ndarray) -> ForeignNode:
    return ForeignNode("Constant", (), (name,), {"value": array}, "", version=13)


def _condition(name: str, node: ForeignNode, scope: Scope) -> bool | None:
    """What a condition is; None when only running tells."""
    found = scope.known(name)
    if found is None:
        return None
    if found.size != 1:
        raise ModelError(f"its condition has {found.size} elements", place=node.place)
    return bool(found.reshape(-1)[0])


# If


def _branch(node: ForeignNode, attributes: Attributes, scope: Scope) -> list[ForeignNode]:
    branches = [_graph(node, attributes, name) for name in ("then_branch", "else_branch")]
    if len(node.inputs) != 1 or not node.inputs[0]:
        raise ModelError("it has no condition", place=node.place)
    chosen = _condition(node.inputs[0], node, scope)
    if chosen is not None:
        part = "then" if chosen else "else"
        return _placed(node, branches[not chosen], (), node.outputs, scope, part)
    nodes, results = [], []
    for branch, part in zip(branches, ("then", "else")):
        names = tuple(scope.fresh(f"{o}/{part}") if o else "" for o in node.outputs)
        scope.open_branches.append(_prefix(node, part))
        nodes += _placed(node, branch, (), names, scope, part)
        results.append(names)
    return nodes + [
        Choice("If", (node.inputs[0], a, b), (o,), {}, node.name, version=node.version)
        for o, a, b in zip(node.outputs, *results)
        if o
    ]


def _choose(node: Choice, scope: Scope) -> list[ForeignNode]:
    types = [scope.type(v) for v in node.inputs[1:]]
    if types[0] != types[1]:
        raise UnsupportedError(
            f"a branch that is chosen while running is not supported where it gives {types[0]} or "
            f"{types[1]}",
            place=node.place,
            next_step=GIVE,
        )
    return [ForeignNode("Where", node.inputs, node.outputs, {}, node.name, version=16)]


# Loop


def _loop(node: ForeignNode, attributes: Attributes, scope: Scope) -> list[ForeignNode]:
    body = _graph(node, attributes, "body")
    run = node.run if isinstance(node, LoopStep) else 0
    most, goes_on, *carried = (*node.inputs, "", "")[: max(2, len(node.inputs))]
    stacked = len(node.outputs) - len(carried)
    if stacked < 0 or len(body.outputs) != 1 + len(node.outputs):
        raise ModelError(
            f"it has {len(carried)} carried values and {len(node.outputs)} outputs, its body gives "
            f"{len(body.outputs)}",
            place=node.place,
        )
    collected = node.collected if isinstance(node, LoopStep) else ((),) * stacked
    if not _runs_again(node, most, goes_on, run, scope):
        return _finished(node, carried, collected, scope)
    count, more = scope.fresh(f"{node.outputs[0]}/run"), scope.fresh(f"{node.outputs[0]}/go")
    results = [scope.fresh(f"{o}/{run}") for o in ("go", *node.outputs)]
    nodes = [
        _constant(count, np.array(run, np.int64)),
        _constant(more, np.array(True)),
        *_placed(node, body, (count, more, *carried), results, scope, str(run)),
    ]
    kept = len(carried)
    step = LoopStep(
        "Loop", (most, results[0], *results[1 : 1 + kept]), node.outputs, node.attributes,
        node.name, version=node.version, depth=node.depth, run=run + 1,
        collected=tuple((*c, r) for c, r in zip(collected, results[1 + kept :])),
    )  # fmt: skip
    return [*nodes, step]


def _runs_again(node: ForeignNode, most: str, goes_on: str, run: int, scope: Scope) -> bool:
    limit = scope.known(most) if most else None
    if most and limit is None:
        raise UnsupportedError(
            "a loop is not supported where only running tells how often it runs",
            place=node.place,
            next_step=GIVE,
        )
    again = _condition(goes_on, node, scope) if goes_on else True
    if again is None:
        raise UnsupportedError(
            "a loop is not supported where its end depends on what it computes",
            place=node.place,
            next_step=GIVE,
        )
    again = again and (limit is None or run < int(limit.reshape(-1)[0]))
    if again and run >= MAX_RUNS:
        raise UnsupportedError(
            f"a loop that runs more than {MAX_RUNS} times is not supported",
            place=node.place,
            next_step=GIVE,
        )
    return again


def _finished(
    node: ForeignNode,
    carried: Sequence[str],
    collected: Sequence[Sequence[str]],
    scope: Scope,
) -> list[ForeignNode]:
    nodes = [_identity(v, o) for v, o in zip(carried, node.outputs) if o]
    for values, result in zip(collected, node.outputs[len(carried) :]):
        if result and not values:
            raise UnsupportedError(
                "a loop that never runs is not supported where it stacks outputs", place=node.place
            )
        if result:
            nodes += _stack(values, result, 0, scope)
    return nodes


def _stack(values: Sequence[str], result: str, axis: int, scope: Scope) -> list[ForeignNode]:
    """One tensor of equal ones, along a new axis."""
    axes = scope.fresh(f"{result}/axes")
    nodes, rows = [_constant(axes, np.array([axis], np.int64))], []
    for i, value in enumerate(values):
        rows.append(scope.fresh(f"{result}/row{i}"))
        nodes.append(ForeignNode("Unsqueeze", (value, axes), (rows[-1],), {}, "", version=13))
    together = {"axis": axis}
    return [*nodes, ForeignNode("Concat", tuple(rows), (result,), together, "", version=13)]


# Scan


def _scan(node: ForeignNode, attributes: Attributes, scope: Scope) -> list[ForeignNode]:
    if node.version < 9:
        raise UnsupportedError(
            "Scan before opset 9 is not supported",
            place=node.place,
            next_step="onnx.version_converter converts a model to another opset",
        )
    body = _graph(node, attributes, "body")
    scanned = attributes.integer("num_scan_inputs", 0)
    kept = len(node.inputs) - scanned
    stacked = len(node.outputs) - kept
    if not 0 < scanned <= len(node.inputs) or stacked < 0:
        raise ModelError("its numbers of inputs and outputs do not fit", place=node.place)
    axes = attributes.integers("scan_input_axes", (0,) * scanned)
    backwards = attributes.integers("scan_input_directions", (0,) * scanned)
    out_axes = attributes.integers("scan_output_axes", (0,) * stacked)
    out_backwards = attributes.integers("scan_output_directions", (0,) * stacked)
    lists = ((axes, scanned), (backwards, scanned), (out_axes, stacked), (out_backwards, stacked))
    if any(len(found) != wanted for found, wanted in lists):
        raise ModelError("its axes or directions do not fit its inputs", place=node.place)
    carried, sources = list(node.inputs[:kept]), node.inputs[kept:]
    length = _length(node, sources, axes, scope)
    collected: list[list[str]] = [[] for _ in range(stacked)]
    nodes: list[ForeignNode] = []
    for run in range(length):
        rows = []
        for source, axis, back in zip(sources, axes, backwards):
            index, row = scope.fresh(f"{source}/at"), scope.fresh(f"{source}/{run}")
            nodes.append(_constant(index, np.array(length - 1 - run if back else run, np.int64)))
            along = {"axis": axis}
            nodes.append(ForeignNode("Gather", (source, index), (row,), along, "", version=13))
            rows.append(row)
        results = [scope.fresh(f"{node.outputs[0]}/{run}") for _ in body.outputs]
        nodes += _placed(node, body, (*carried, *rows), results, scope, str(run))
        carried = results[:kept]
        for column, result, back in zip(collected, results[kept:], out_backwards):
            column.insert(0 if back else len(column), result)
    nodes += [_identity(v, o) for v, o in zip(carried, node.outputs) if o]
    for values, result, axis in zip(collected, node.outputs[kept:], out_axes):
        nodes += _stack(values, result, axis, scope) if result else []
    return nodes


def _length(node: ForeignNode, sources: Sequence[str], axes: Sequence[int], scope: Scope) -> int:
    found = set()
    for source, axis in zip(sources, axes):
        type_ = scope.type(source)
        if not -type_.rank <= axis < type_.rank:
            raise ModelError(f"it scans axis {axis} of {type_}", place=node.place)
        found.add(type_.dims[axis])
    (size, *others) = found
    if others:
        raise ModelError(f"it scans along sizes {found} at once", place=node.place)
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
