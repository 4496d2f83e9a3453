"""What kernels can compute a node, as data: one rule per operator states the alternatives, planning
chooses among them, and placing gives the chosen one addresses.

A rule sees the graph and the target alone. It returns `Choice`s, in order of preference, or
`NoKernel` with the reason that the plan prints. Nothing that it returns has an address, so choices
can be compared, hashed and printed, and placing one cannot fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from verax.compiler.kernels.dtypes import unknown
from verax.compiler.kernels.registry import dtypes_of
from verax.compiler.kernels.target import Target
from verax.compiler.plan.counting import counts_size
from verax.compiler.plan.epilogues import fits_epilogue
from verax.compiler.plan.layouts import Layout, Pads
from verax.compiler.plan.steps import Decisions
from verax.ir.assumptions import while_there_are
from verax.ir.dim import DimLike
from verax.ir.graph import Graph, Node
from verax.ir.operator import Operator
from verax.ir.types import TensorType
from verax.ops.pointwise.elementwise import Elementwise
from verax.ops.quantized.per_element import Parametrized

if TYPE_CHECKING:
    from verax.compiler.plan.fusion import Group


@dataclass(frozen=True)
class NoKernel:
    """No kernel computes the node, which then runs on the reference. reason: printed by plans."""

    reason: str


@dataclass(frozen=True)
class Choice:
    """One way of computing a node with kernels.

    kernel: the family, by which the rule's placing function tells its alternatives apart.
    inputs: (index, layout, zero borders) of inputs that the kernel wants in a certain layout; the
    others are read row-major. output: the layout of the first output, of all of them if
    `every_output`; None where either serves, then the operands decide. takes_epilogue: elementwise
    nodes can be computed where the result is written. spec: the type of spec whose kernel does
    that, which has to know the element types of their operands. detail: what the rule worked out
    and placing needs, such as a spec without strides; it follows from the graph.

    An alternative is taken only if these hold: blocked_inputs, row_major_inputs: indices of inputs
    that are, or are not, made in blocks; blocked_readers: everything that reads the output wants
    blocks; alone: there is no epilogue.
    """

    kernel: str
    inputs: tuple[tuple[int, Layout, Pads], ...] = ()
    output: Layout | None = None
    every_output: bool = False
    takes_epilogue: bool = False
    spec: type | None = None
    blocked_inputs: tuple[int, ...] = ()
    row_major_inputs: tuple[int, ...] = ()
    blocked_readers: bool = False
    alone: bool = False
    detail: Any = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        read = "".join(
            f", input {i} {layout}{f' with border {pads}' if any(map(any, pads)) else ''}"
            for i, layout, pads in self.inputs
        )
        return f"{self.kernel}{read}" + (f", output {self.output}" if self.output else "")

    def layout_of(self, index: int) -> Layout | None:
        """The layout that it wants of an input; None where it does not say."""
        return next((layout for i, layout, _ in self.inputs if i == index), None)


Alternatives = tuple[Choice, ...] | NoKernel


class Planning:
    """The graph that is planned, the target, what may be decided, and the alternatives of every
    node that was asked for, each computed once.

    rewrite(graph, target, decisions): what becomes of a graph before it is planned. `graph` is
    given as it is and rewritten here, and so are bodies of branches and loops.
    """

    def __init__(
        self,
        graph: Graph,
        target: Target,
        decisions: Decisions,
        rewrite: Callable[[Graph, Target, Decisions], Graph] = lambda graph, *_: graph,
    ) -> None:
        self.graph, self.target, self.decisions = (
            rewrite(graph, target, decisions), target, decisions,
        )  # fmt: skip
        self._rewrite = rewrite
        self._alternatives: dict[int, Alternatives] = {}

    def inside(self, graph: Graph, location: str) -> Planning:
        """The planning of a body; its decisions are counted with the others."""
        return Planning(graph, self.target, self.decisions.inside(location), self._rewrite)

    def alternatives(self, node: Node) -> Alternatives:
        """What the node's rule states; `NoKernel` where no rule is registered."""
        if id(node) not in self._alternatives:
            self._alternatives[id(node)] = self._apply_rule(node)
        return self._alternatives[id(node)]

    def _apply_rule(self, node: Node) -> Alternatives:
        rule = RULES.get(node.op.kind)
        if rule is None:
            return NoKernel(self._unregistered(node))
        types = [t for t in self.graph.input_types(node) if t is not None]
        outputs = self.graph.output_types(node)
        if not all(t.is_static for t in (types if counts_size(node.op) else (*types, *outputs))):
            return NoKernel(MOVING)
        with while_there_are(elements_of(self.graph, node)):
            stated = [t for t in outputs if (t.is_fixed if counts_size(node.op) else t.is_static)]
            if any(0 in t.shape for t in stated):
                return NoKernel("nothing to compute")  # the reference knows the shape
            return rule.plan(self, node)

    def _unregistered(self, node: Node) -> str:
        """Why no rule is registered for an operator."""
        op = node.op
        if isinstance(op, Parametrized):
            return (
                "computed parameters that do not broadcast, or types of which it has no expression"
            )
        if op.no_kernel or not isinstance(op, Elementwise):
            return op.no_kernel or "no lowering is registered"
        types = (*self.graph.input_types(node), *self.graph.output_types(node))
        return f"no expression of it for {', '.join(sorted({str(t.dtype) for t in types if t}))}"

    def refused(self, node: Node, *specs: type) -> NoKernel | None:
        """`NoKernel` if the emitter of one of these types of spec does not know the element type of
        an input or output of the node."""
        types = (*self.graph.input_types(node), *self.graph.output_types(node))
        return self.refused_types(types, *specs)

    def refused_types(self, types: Iterable[TensorType | None], *specs: type) -> NoKernel | None:
        """The same for the element types of these tensors."""
        return self.refused_names([str(t.dtype) for t in types if t is not None], *specs)

    def refused_names(self, names: Sequence[str], *specs: type) -> NoKernel | None:
        """The same for element types by name."""
        for spec in specs:
            reason = unknown(names, dtypes_of(spec, self.target))
            if reason:
                return NoKernel(reason)
        return None


def elements_of(graph: Graph, *nodes: Node) -> DimLike:
    """How many elements these nodes make in all; of one that counts what it finds, how many it
    looks at. Where that is none, nothing has to be done for them."""
    total: DimLike = 0
    for node in nodes:
        if counts_size(node.op):
            total = total + graph.types[node.inputs[0] or ""].size
        else:
            for type_ in graph.output_types(node):
                total = total + type_.size
    return total


MOVING = "its shape is known only when it runs"
PlanNode = Callable[[Planning, Node], Alternatives]
PlaceNode = Callable[[Any, "Group", Choice], None]
Fits = Callable[[Graph, str, Node], bool]


@dataclass(frozen=True)
class PlanRule:
    """How one operator is compiled.

    plan(planning, node): its alternatives. place_node(lowering, group, choice): emits the calls of
    a group whose root has this operator. fits(graph, value, node): whether elementwise `node` can
    be computed behind the value that this node makes, by default a blocked one.
    """

    plan: PlanNode
    place_node: PlaceNode
    fits: Fits = fits_epilogue


RULES: dict[str, PlanRule] = {}
"""By operator."""


def plans(
    *operators: type[Operator] | str,
    plan: PlanNode,
    fits: Fits = fits_epilogue,
) -> Callable[[PlaceNode], PlaceNode]:
    """Register a placing function, with the rule that plans for it, for operators (classes or class
    names)."""

    def register(place_node: PlaceNode) -> PlaceNode:
        for op in operators:
            name = op if isinstance(op, str) else op.__name__
            assert name not in RULES, f"{name} is planned twice"
            RULES[name] = PlanRule(plan, place_node, fits)
        return place_node

    return register
