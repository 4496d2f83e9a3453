"""Branches and loops: the calls of their bodies, chosen and repeated by the program's own code.

A body is lowered like a network of its own whose inputs and outputs are values of the one around
it: constants among them are its constants, the rest lies where the program has it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from verax.compiler.kernels.sizes import static_size
from verax.compiler.place.calls import BranchCall, KernelCall, LoopCall, Native, RepeatCall
from verax.compiler.place.copies import copies
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.storage import Buffer, MemorySpace, Physical, Placed, Pointer
from verax.compiler.plan.choice import Alternatives, Choice, NoKernel, Planning, plans
from verax.compiler.plan.fusion import Group
from verax.compiler.plan.graph_plan import GraphPlan, plan_graph
from verax.ir.graph import Builder, Graph, Node
from verax.ir.operator import Evaluation, as_tuple
from verax.ir.types import DType, TensorType
from verax.ops.control import control
from verax.ops.control.control import ENDLESS, MISFIT, If, Loop
from verax.ops.control.subgraphs import body_of
from verax.ops.pointwise.identity import Identity

SIZE_LIMIT = 1 << 24
"""Constants with more elements are not made while lowering."""


@dataclasses.dataclass(frozen=True)
class _PlannedBody:
    """A body of a node: the names of its inputs, its graph with the program's constants, and its
    plan."""

    inputs: tuple[str, ...]
    graph: Graph
    plan: GraphPlan


def _plan_body(
    planning: Planning, text: str, inputs: Sequence[str | TensorType], location: str
) -> _PlannedBody | NoKernel:
    """A body whose inputs are values of the program, or are of these types. `NoKernel` where a part
    of it has none."""
    inner = planning.inside(_graph(planning.graph, text, inputs), location)
    before = len(planning.decisions.records)
    plan = plan_graph(inner)
    for step in plan.steps:
        reason = step.choice.reason if isinstance(step.choice, NoKernel) else ""
        if not all(inner.graph.types[v].is_static for v in step.group.root.outputs):
            reason = reason or "it counts"
        if reason:
            del planning.decisions.records[before:]
            return NoKernel(f"inside of it, {step.group.root.place}: {reason}")
    return _PlannedBody(body_of(text).inputs, inner.graph, plan)


def plan_if(planning: Planning, node: Node) -> Alternatives:
    """One alternative; its detail: the planned branches, None for one that may not be taken. Of a
    constant condition the branch that is taken."""
    op, constants = node.op, planning.graph.constants
    assert isinstance(op, If)
    condition, *outer_values = (v or "" for v in node.inputs)
    texts = [(f"{field} of {node.place}", getattr(op, field)) for field in op.fields]
    if condition in constants:
        texts = [texts[not constants[condition].reshape(-1)[0]]]
        if not texts[0][1]:
            return NoKernel(MISFIT)
    before = len(planning.decisions.records)
    branches: list[_PlannedBody | None] = []
    for location, text in texts:
        branch = _plan_body(planning, text, outer_values, location) if text else None
        if isinstance(branch, NoKernel):
            del planning.decisions.records[before:]
            return branch
        branches.append(branch)
    return (Choice("branch", detail=tuple(branches)),)


@plans(If, plan=plan_if)
def place_if(lowering: Lowering, group: Group, choice: Choice) -> None:
    """The branches write to the same places."""
    node = group.root
    condition, *outer_values = (v or "" for v in node.inputs)
    outputs = [lowering.values.write_contiguous(v) for v in node.outputs]
    sides = [
        _calls(lowering, body, outer_values, outputs) if body else None for body in choice.detail
    ]
    if len(sides) == 1:
        lowering.calls.steps += sides[0] or ()
        return
    flag = lowering.calls.flag(f"{MISFIT}\n{node.place}")
    truth = lowering.values.read_contiguous(condition).pointer
    lowering.calls.steps.append(BranchCall(truth, sides[0], sides[1], flag, group.label))


def plan_loop(planning: Planning, node: Node) -> Alternatives:
    """One alternative; its detail: the planned body."""
    op, types = node.op, planning.graph.types
    assert isinstance(op, Loop)
    carried = [types[v] for v in node.outputs[: op.carried]]
    outside = [v or "" for v in node.inputs[2 + op.carried :]]
    body_inputs: list[str | TensorType] = [TensorType(DType.int64, ()), *carried, *outside]
    body = _plan_body(planning, op.body, body_inputs, f"body of {node.place}")
    return body if isinstance(body, NoKernel) else (Choice("loop of a body", detail=body),)


@plans(Loop, plan=plan_loop)
def place_loop(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Carried values are read in one place and written in another, and copied back after a run."""
    node, op, types = group.root, group.root.op, lowering.graph.types
    assert isinstance(op, Loop)
    limit, first = (v and lowering.values.read_contiguous(v).pointer for v in node.inputs[:2])
    start = [v or "" for v in node.inputs[2 : 2 + op.carried]]
    outside = [v or "" for v in node.inputs[2 + op.carried :]]
    trip_index = lowering.values.allocate(Physical(TensorType(DType.int64, ())))
    going = lowering.values.allocate(Physical(TensorType(DType.bool_, ())))
    results = [lowering.values.write_contiguous(v) for v in node.outputs]
    row_outputs = [
        lowering.values.allocate(Physical(_row(types[v]))) for v in node.outputs[op.carried :]
    ]
    carried, stacked = results[: op.carried], results[op.carried :]
    for value, target in zip(start, carried):
        lowering.calls.copy(
            lowering.values.read_contiguous(value), target, f"{group.label}: {value}"
        )
    after = [lowering.values.allocate(target.physical) for target in carried]
    inputs: list[str | Placed] = [trip_index, *carried, *outside]
    calls = list(_calls(lowering, choice.detail, inputs, [going, *after, *row_outputs]))
    for source, target in zip(after, carried):
        calls += _copied(lowering, source, target, target.pointer, group.label)
    for source, target in zip(row_outputs, stacked):
        step = static_size(source.physical.nbytes)
        moving = Pointer(target.buffer, target.byte_offset, step)
        calls += _copied(lowering, source, source, moving, group.label)
    max_trips = control.MOST_RUNS
    flag = lowering.calls.flag(f"{ENDLESS.format(max_trips)}\n{node.place}")
    lowering.calls.steps.append(
        LoopCall(
            limit or None, first or None, max_trips, trip_index.pointer, going.pointer,
            tuple(calls), flag,
            group.label,
        )
    )  # fmt: skip


def _row(stacked: TensorType) -> TensorType:
    return TensorType(stacked.dtype, stacked.dims[1:])


def _copied(
    lowering: Lowering, source: Placed, like: Placed, to: Pointer, label: str
) -> list[KernelCall]:
    """Calls that copy a value to an address where it lies as `like`."""
    return [
        KernelCall(spec, lowering.calls.schedule(spec), (source.pointer, to), f"{label}: next")
        for spec in copies(source.physical, like.physical)
    ]


def _calls(
    lowering: Lowering,
    body: _PlannedBody,
    inputs: Sequence[str | Placed],
    outputs: Sequence[Placed],
) -> tuple[Native, ...]:
    """The calls of a body on `inputs` (values or what is placed), writing to `outputs`."""
    graph = body.graph
    inner = lowering.inside(graph, body.plan)
    at: dict[Buffer, Placed] = {}
    slots = dict(zip(graph.inputs, inner.values.io))
    for name, value in zip(body.inputs, inputs):
        if name in graph.inputs:
            at[slots[name]] = (
                lowering.values.read_contiguous(value) if isinstance(value, str) else value
            )
    at |= dict(zip(inner.values.io[len(graph.inputs) :], outputs, strict=True))
    return tuple(_relocated(step, at) for step in inner.calls.steps if isinstance(step, Native))


def _graph(outer: Graph, text: str, inputs: Sequence[str | TensorType]) -> Graph:
    """A body with the program's constants, what follows from types and constants computed."""
    body = body_of(text)
    b = Builder(body.name)
    for name, value in zip(body.inputs, inputs, strict=True):
        if isinstance(value, TensorType):
            b.input(name, value)
        elif value in outer.constants:
            b.constant(outer.constants[value], name)
        else:
            b.input(name, outer.types[value])
    for node in body.nodes:
        values = b.add_all(node.op, node.inputs, node.outputs, node.name)
        contents = _constant_outputs(b, b.nodes[-1])
        if contents is not None:
            b.nodes.pop()
            b.constants.update(zip(values, contents))
    outputs: list[str] = []
    for name in body.outputs:  # each lies in a place of its own, which is nothing that is read
        own = name not in b.inputs and name not in outputs
        outputs.append(name if own else b.add(Identity(), [name]))
    return b.graph(outputs)


def _constant_outputs(b: Builder, node: Node) -> list[np.ndarray] | None:
    """What a node makes of constants, in promised bits; None where it reads something else."""
    contents = [b.known.get(v) for v in node.outputs]
    if all(k is not None and k.dtype != object for k in contents):
        return [np.asarray(k, order="C") for k in contents]
    if any(v is not None and v not in b.constants for v in node.inputs):
        return None
    outputs = tuple(b.types[v] for v in node.outputs)
    if not node.inputs or any(not t.is_static or int(t.size) > SIZE_LIMIT for t in outputs):
        return None
    types = tuple(None if v is None else b.types[v] for v in node.inputs)
    arrays = [None if v is None else b.constants[v] for v in node.inputs]
    with np.errstate(all="ignore"):
        results = as_tuple(node.op.canonical(Evaluation(types, outputs), *arrays))
    return [np.asarray(r, t.dtype.numpy, order="C") for r, t in zip(results, outputs)]


def _relocated(step: Native, at: Mapping[Buffer, Placed]) -> Native:
    """A call of a body on the places of the program around it."""

    def move(pointer: Pointer) -> Pointer:
        if pointer.buffer.space is not MemorySpace.io or pointer.buffer not in at:
            return pointer
        target = at[pointer.buffer].pointer
        return Pointer(target.buffer, target.byte_offset + pointer.byte_offset, pointer.step)

    if isinstance(step, KernelCall):
        return dataclasses.replace(step, args=tuple(map(move, step.args)))
    if isinstance(step, BranchCall):
        sides = [
            None if calls is None else tuple(_relocated(c, at) for c in calls)
            for calls in (step.then, step.orelse)
        ]
        return dataclasses.replace(
            step, condition=move(step.condition), then=sides[0], orelse=sides[1]
        )
    if isinstance(step, RepeatCall):
        body = [dataclasses.replace(c, args=tuple(map(move, c.args))) for c in step.body]
        return dataclasses.replace(step, body=tuple(body))
    return dataclasses.replace(
        step,
        limit=step.limit and move(step.limit),
        first=step.first and move(step.first),
        body=tuple(_relocated(c, at) for c in step.body),
    )
