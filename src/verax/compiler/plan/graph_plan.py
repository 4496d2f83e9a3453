"""The plan of a graph: which nodes run as one, by which alternatives, and where values lie.

Fusion asks every node's alternatives for an epilogue; then each group, in the order in which they
run, takes the first of its alternatives that the layouts decided before it admit, and decides those
of its results. The plan is data: nothing in it has an address, and placing follows it.
"""

from __future__ import annotations

from dataclasses import dataclass

from verax.compiler.kernels.loops.loop import LoopSpec
from verax.compiler.plan.choice import MOVING, RULES, Choice, NoKernel, Planning, elements_of
from verax.compiler.plan.epilogues import is_per_channel
from verax.compiler.plan.expressions import Operand, chain_expr, is_elementwise, operands
from verax.compiler.plan.fusion import Group, group_nodes
from verax.compiler.plan.layouts import Decided, Layout, can_block, same_dims, widest
from verax.compiler.plan.shared_blocks import result_slices_of
from verax.compiler.plan.steps import BLOCK, Decisions
from verax.ir.assumptions import while_there_are
from verax.ir.dim import same
from verax.ir.graph import Graph, Node
from verax.ir.types import TensorType
from verax.ops.movement.reshaping import Transpose
from verax.ops.quantized.quantization import DequantizeLinear

LOOP = Choice("loop")
"""A chain of elementwise nodes, in rows or in blocks."""
STORED = Choice("stored constant")
"""A dequantized constant, which products read as the network stores it: computed if somebody asks
for its numbers."""


@dataclass(frozen=True)
class PlannedStep:
    """A group and how it is computed."""

    group: Group
    choice: Choice | NoKernel

    def __str__(self) -> str:
        choice = self.choice
        description = f"reference: {choice.reason}" if isinstance(choice, NoKernel) else str(choice)
        return f"{self.group.label}: {description}"


@dataclass(frozen=True)
class GraphPlan:
    """The steps in the order in which they run, and the layouts. Its text is a line per step."""

    steps: tuple[PlannedStep, ...]
    layouts: Decided

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))


def plan_graph(planning: Planning) -> GraphPlan:
    """Fuse, choose and lay out, as far as the decisions of `planning` allow."""
    decisions = planning.decisions

    def takes_epilogue(graph: Graph, node: Node) -> bool:
        alternatives = planning.alternatives(node)
        return not isinstance(alternatives, NoKernel) and any(
            c.takes_epilogue for c in alternatives
        )

    def joins(graph: Graph, root: Node, value: str, node: Node) -> bool:
        return is_elementwise(graph, root) or RULES[root.op.kind].fits(graph, value, node)

    layouts = Decided(planning.graph)
    steps: list[PlannedStep] = []
    for group in group_nodes(planning.graph, takes_epilogue, joins, decisions):
        choice = _choose(planning, layouts, group)
        _record_layouts(layouts, group, choice, decisions)
        split = isinstance(choice, NoKernel) or _is_epilogue_refused(planning, group, choice)
        if split and group.fused:  # some of the nodes may have a kernel
            steps += [
                PlannedStep(one, _choose(planning, layouts, one)) for one in map(Group, group.nodes)
            ]
        else:
            steps.append(PlannedStep(group, choice))
    layouts.result_slices = result_slices_of(planning.graph, layouts)
    return GraphPlan(tuple(steps), layouts)


def _is_epilogue_refused(planning: Planning, group: Group, choice: Choice) -> bool:
    """True if the kernel does not know the element type of an operand of the fused nodes."""
    if not group.fused or choice.spec is None:
        return False
    chain = chain_expr(planning.graph, group.fused, [group.root.outputs[0]])
    types = planning.graph.types
    names = [
        str(types[o].dtype) if isinstance(o, str) else o.dtype.name for o in chain.operands[1:]
    ]
    return planning.refused_names([*names, chain.expr.dtype], choice.spec) is not None


def _choose(planning: Planning, layouts: Decided, group: Group) -> Choice | NoKernel:
    """The first alternative that the layouts decided so far admit."""
    with while_there_are(elements_of(planning.graph, *group.nodes)):
        return _planned_choice(planning, layouts, group)


def _planned_choice(planning: Planning, layouts: Decided, group: Group) -> Choice | NoKernel:
    graph, root = planning.graph, group.root
    if not is_elementwise(graph, root):
        return _first_possible(planning, layouts, root, has_epilogue=bool(group.fused))
    types = _types(graph, group)
    if not all(t.is_static for t in types):
        return NoKernel(MOVING)
    if any(0 in graph.types[v].shape for n in group.nodes for v in n.outputs):
        return NoKernel("nothing to compute")
    refused = planning.refused_types(types, LoopSpec)
    if refused is not None:
        return refused
    fixed = all(v in graph.constants for v in root.inputs if v)
    if isinstance(root.op, DequantizeLinear) and fixed and not group.fused:
        return LOOP if group.output in graph.outputs else STORED
    return LOOP


def _types(graph: Graph, group: Group) -> list[TensorType]:
    """Types of all that the nodes of a group read and compute."""
    types = (t for n in group.nodes for t in (*graph.input_types(n), *graph.output_types(n)))
    return [t for t in types if t is not None]


def _first_possible(
    planning: Planning, layouts: Decided, node: Node, has_epilogue: bool = False
) -> Choice | NoKernel:
    """The first alternative of a node whose conditions hold now."""
    alternatives = planning.alternatives(node)
    if isinstance(alternatives, NoKernel):
        return alternatives
    return next(
        c
        for c in alternatives
        if not (c.alone and has_epilogue) and _is_possible(planning, layouts, node, c)
    )


def _is_possible(planning: Planning, layouts: Decided, node: Node, choice: Choice) -> bool:
    """True if the conditions of an alternative hold, epilogues aside."""
    blocked = layouts.blocked
    return (
        all(node.inputs[i] in blocked for i in choice.blocked_inputs)
        and not any(node.inputs[i] in blocked for i in choice.row_major_inputs)
        and (not choice.blocked_readers or _readers_want_blocks(planning, layouts, node))
    )


def _readers_want_blocks(planning: Planning, layouts: Decided, node: Node) -> bool:
    """True if everything that reads a node's output wants it in blocks, and something does."""
    graph, value = planning.graph, node.outputs[0]
    readers = graph.consumers.get(value, ())
    if not readers or value in graph.outputs:
        return False
    return all(_wants_blocks(planning, layouts, reader, value) for reader in readers)


def _wants_blocks(planning: Planning, layouts: Decided, reader: Node, value: str) -> bool:
    """True if a kernel wants blocks, or an elementwise node has another operand in blocks."""
    graph = planning.graph
    if is_elementwise(graph, reader):
        shape = graph.types[value].dims
        operands = [v for v in reader.inputs if v is not None and v != value]
        return any(
            same_dims(graph.types[v].dims, shape) and _is_made_in_blocks(planning, layouts, v)
            for v in operands
        )
    choice = _first_possible(planning, layouts, reader)
    indices = [i for i, v in enumerate(reader.inputs) if v == value]
    return isinstance(choice, Choice) and all(
        choice.layout_of(i) is Layout.blocked for i in indices
    )


def _is_made_in_blocks(planning: Planning, layouts: Decided, value: str) -> bool:
    """True if a value is blocked, or will be, by a kernel that may take the sum as its epilogue."""
    if value in layouts.blocked:
        return True
    node = planning.graph.producers.get(value)
    if node is None or isinstance(node.op, Transpose) or is_elementwise(planning.graph, node):
        return False
    choice = _first_possible(planning, layouts, node)
    return isinstance(choice, Choice) and choice.output is Layout.blocked


def _record_layouts(
    layouts: Decided, group: Group, choice: Choice | NoKernel, decisions: Decisions
) -> None:
    """Record the layouts of the group's results and the borders that it needs around its inputs."""
    planned = choice if isinstance(choice, Choice) else LOOP
    if planned.output is None:
        blocks = decisions.runs(BLOCK) and _prefers_blocked(layouts, group)
    else:
        blocks = planned.output is Layout.blocked
    text = f"{group.output!r} stays blocked"
    if blocks and decisions.allows(BLOCK, text, group.output, (group.output,)):
        layouts.blocked.add(group.output)
        if planned.every_output:
            layouts.blocked.update(group.root.outputs)
    elif blocks or not decisions.runs(BLOCK):
        layouts.row_major.update(v for n in group.nodes for v in n.outputs)
    for index, layout, pads in planned.inputs:
        value = group.root.inputs[index]
        assert value is not None
        text, subject = f"{value!r} comes as pixels", f"{value}>{group.output}"
        if layout is Layout.pixels and not decisions.allows(BLOCK, text, subject, (value,)):
            continue
        key = (value, layout)
        layouts.borders[key] = widest(layouts.borders.get(key, ()), pads)


def _prefers_blocked(layouts: Decided, group: Group) -> bool:
    """True if a chain is better computed in the blocked layout: one operand comes blocked already
    and the others can be read so."""
    graph = layouts.graph
    output = graph.types[group.output]
    if not all(t.is_static for t in _types(graph, group)) or not can_block(output):
        return False
    inner = {v for n in group.nodes for v in n.outputs}
    read = [
        o
        for n in group.nodes
        for o in operands(graph, n).values()
        if not (isinstance(o, str) and o in inner)
    ]
    comes_blocked = any(
        isinstance(o, str) and o in layouts.blocked and same_dims(graph.types[o].dims, output.dims)
        for o in read
    )
    return comes_blocked and all(_can_be_blocked(graph, o, output) for o in read)


def _can_be_blocked(graph: Graph, operand: Operand, output: TensorType) -> bool:
    """True if an operand can be read in blocks beside an output of this type."""
    if not isinstance(operand, str):
        return operand.size == 1 or is_per_channel(operand, output.rank)
    type_ = graph.types[operand]
    if type_.rank != output.rank:
        return False
    # Broadcasting along space is a stride of zero; along channels it would repeat one lane.
    return same(type_.dims[1], output.dims[1]) and can_block(type_)
