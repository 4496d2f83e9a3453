"""`Graph`: an immutable, typed network in single static assignment form.

Values are named by strings, each defined once: as an input, a constant, or an output of a node.
Nodes stand in an order in which they can be executed.

A network may remember: `updates` pairs an input with the output that is its new content. Inputs
with an `initial` value are state, which whoever runs the network hands on from run to run; the
others belong to the caller, and the network writes to them. Computing stays a pure function.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType

import numpy as np

from verax.base.errors import GraphError, InputError
from verax.base.notebooks import of_text
from verax.base.printing import OneLine, first_few
from verax.ir.dim import DimLike
from verax.ir.operator import Inference, Operator
from verax.ir.printer import print_graph
from verax.ir.shapes import known_outputs
from verax.ir.types import DType, TensorType

MAX_RANK = 32
"""Axes of a tensor: NumPy holds 64 and broadcasts 32."""
KNOWN_LIMIT = 4096
"""Constants with at most this many elements are known to type rules (shapes, axes, scales)."""


@dataclasses.dataclass(frozen=True)
class Node:
    """One application of an operator. An omitted optional input is None.

    `name` is the node's name in the file it came from, or one made from its first output.
    """

    op: Operator
    inputs: tuple[str | None, ...]
    outputs: tuple[str, ...]
    name: str = ""

    @property
    def place(self) -> str:
        """How errors name this node."""
        return f"node {self.name or self.outputs[0]!r} ({self.op.kind})"


class Names(tuple[str, ...]):
    """Names in order. Asking whether one is among them takes as long for many as for a few."""

    def __contains__(self, name: object) -> bool:
        return name in self._members

    @cached_property
    def _members(self) -> frozenset[str]:
        return frozenset(self)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Graph(OneLine):
    """A network. `inputs` and `outputs` are value names in order; `types` covers every value.

    updates: input -> the output that is its content after the run. initial: of those inputs that
    are the network's own state, the value before the first run. bounds: (lowest, highest) sizes
    that symbols of the inputs are stated to have, by name; None is no bound.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[str, np.ndarray]
    types: Mapping[str, TensorType]
    name: str = "graph"
    updates: Mapping[str, str] = dataclasses.field(default_factory=dict)
    initial: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    bounds: Mapping[str, tuple[int, int | None]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for array in (*self.constants.values(), *self.initial.values()):
            array.setflags(write=False)
        # Passes ask of every node whether its values are outputs, of which there may be as many.
        object.__setattr__(self, "inputs", Names(self.inputs))
        object.__setattr__(self, "outputs", Names(self.outputs))
        object.__setattr__(self, "updates", MappingProxyType(dict(self.updates)))
        object.__setattr__(self, "initial", MappingProxyType(dict(self.initial)))
        object.__setattr__(self, "bounds", MappingProxyType(dict(self.bounds)))
        object.__setattr__(self, "constants", MappingProxyType(dict(self.constants)))
        object.__setattr__(self, "types", MappingProxyType(dict(self.types)))

    @cached_property
    def state(self) -> Mapping[str, str]:
        """What the network remembers: input -> the output that holds its new value."""
        return {v: o for v, o in self.updates.items() if v in self.initial}

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        """Inputs that the caller gives: all but the state."""
        return Names(v for v in self.inputs if v not in self.initial)

    @cached_property
    def results(self) -> tuple[str, ...]:
        """Outputs for the caller: all but the state's new values."""
        own = set(self.state.values())
        return Names(v for v in self.outputs if v not in own)

    @cached_property
    def returned(self) -> tuple[str, ...]:
        """Outputs that are neither new state nor the new content of an input: what a function of
        the same meaning returns."""
        changed = set(self.updates.values())
        return Names(v for v in self.outputs if v not in changed)

    @cached_property
    def producers(self) -> Mapping[str, Node]:
        """The node that defines each value (inputs and constants have none)."""
        return {output: node for node in self.nodes for output in node.outputs}

    @cached_property
    def consumers(self) -> Mapping[str, tuple[Node, ...]]:
        """The nodes that read each value, in order, once per reading."""
        readers: dict[str, list[Node]] = {}
        for node in self.nodes:
            for value in node.inputs:
                if value is not None:
                    readers.setdefault(value, []).append(node)
        return {value: tuple(nodes) for value, nodes in readers.items()}

    def input_types(self, node: Node) -> tuple[TensorType | None, ...]:
        return tuple(None if v is None else self.types[v] for v in node.inputs)

    def output_types(self, node: Node) -> tuple[TensorType, ...]:
        return tuple(self.types[v] for v in node.outputs)

    def constant_inputs(self, node: Node) -> tuple[np.ndarray | None, ...]:
        """Constant arrays among the node's inputs, None elsewhere."""
        return tuple(None if v is None else self.constants.get(v) for v in node.inputs)

    def symbols(self) -> frozenset[str]:
        """Symbols that the inputs' types leave open."""
        return frozenset().union(*(self.types[v].symbols() for v in self.inputs))

    def __eq__(self, other: object) -> bool:
        """Equal names, nodes, types and constants, bit for bit."""
        if not isinstance(other, Graph):
            return NotImplemented
        return (
            (self.name, self.inputs, self.outputs, self.nodes)
            == (other.name, other.inputs, other.outputs, other.nodes)
            and dict(self.types) == dict(other.types)
            and dict(self.updates) == dict(other.updates)
            and dict(self.bounds) == dict(other.bounds)
            and _same_arrays(self.constants, other.constants)
            and _same_arrays(self.initial, other.initial)
        )

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return print_graph(self)

    def _brief(self) -> str:
        return self._brief_with(len(self.nodes))

    def _brief_with(self, count: int) -> str:
        inputs = first_few(f"{v} {self.types[v]}" for v in self.arguments) or "no input"
        outputs = first_few(f"{v} {self.types[v]}" for v in self.results) or "no output"
        return f"{self.name}, {count} nodes; {inputs} -> {outputs}"

    def _repr_html_(self) -> str:
        return of_text(f"{self.name or 'network'}: {len(self.nodes)} nodes", str(self))


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays have one dtype, one shape and the same bytes, or the same dimensions."""
    if a.dtype == b.dtype == object:
        return a.shape == b.shape and all(x is y or x == y for x, y in zip(a.flat, b.flat))
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _same_arrays(a: Mapping[str, np.ndarray], b: Mapping[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(same_bits(array, b[name]) for name, array in a.items())


class Builder:
    """Builds a Graph node by node, inferring types as it goes.

    >>> b = Builder("net"); x = b.input("x", TensorType.parse("float32[n, 3]"))
    >>> y = b.add(Relu(), [x]); graph = b.graph([y])
    """

    def __init__(self, name: str = "graph", reserved: Container[str] = ()) -> None:
        """reserved: value names that `fresh` never gives: whoever defines them does so by name."""
        self.name, self.reserved = name, reserved
        self.inputs: list[str] = []
        self.nodes: list[Node] = []
        self.constants: dict[str, np.ndarray] = {}
        self.types: dict[str, TensorType] = {}
        self.known: dict[str, np.ndarray] = {}
        self._numbered: dict[str, int] = {}  # hint -> the last number given behind it

    def fresh(self, hint: str = "v") -> str:
        """A value name that is neither used yet nor reserved."""
        if self._is_free(hint):
            return hint
        i = self._numbered.get(hint, 0) + 1
        while not self._is_free(name := f"{hint}_{i}"):
            i += 1
        self._numbered[hint] = i
        return name

    def _is_free(self, name: str) -> bool:
        return name not in self.types and name not in self.reserved

    def _define(self, name: str, type_: TensorType) -> str:
        if type_.rank > MAX_RANK:
            raise InputError(
                f"a tensor of {type_.rank} axes: at most {MAX_RANK} are supported",
                place=f"value {name!r}",
                next_step="merge axes with Reshape before they become so many",
            )
        if name in self.types:
            raise GraphError(f"the value {name!r} is defined twice", place=self.name)
        self.types[name] = type_
        return name

    def input(self, name: str, type_: TensorType) -> str:
        self.inputs.append(self._define(name, type_))
        return name

    def constant(self, array: np.ndarray, name: str = "") -> str:
        """Add a constant; the array is kept, not copied, and made read-only.

        An array of objects holds dimensions (`assumptions`), and is an int64 tensor.
        """
        array = np.asarray(array)
        is_open = array.dtype == object
        type_ = TensorType(DType.int64, array.shape) if is_open else TensorType.of(array)
        name = self._define(name or self.fresh("c"), type_)
        self.constants[name] = array
        if array.size <= KNOWN_LIMIT:
            self.known[name] = array
        return name

    def add(
        self,
        op: Operator,
        inputs: Sequence[str | None],
        outputs: Sequence[str] = (),
        name: str = "",
    ) -> str:
        """Append a node, return its first output. Raises `GraphError` when types do not fit."""
        return self.add_all(op, inputs, outputs, name)[0]

    def add_all(
        self,
        op: Operator,
        inputs: Sequence[str | None],
        outputs: Sequence[str] = (),
        name: str = "",
        types: tuple[TensorType, ...] | None = None,
    ) -> tuple[str, ...]:
        """As `add`, returning every output. types: theirs, where they are known already, and their
        content is not."""
        inputs = tuple(inputs)
        for value in inputs:
            if value is not None and value not in self.types:
                raise GraphError(f"the value {value!r} is used but not defined", place=name)
        count = op.output_count
        names = list(outputs)
        while len(names) < count:
            names.append(
                self.fresh(name or op.kind.lower())
                if not names
                else self.fresh(f"{names[0]}.{len(names)}")
            )
        node = Node(op, inputs, tuple(names), name)
        contents: tuple[np.ndarray | None, ...] = (None,) * count
        if types is None:
            types, contents = infer_node(node, self.types, self.known)
        for value, type_, content in zip(names, types, contents, strict=True):
            self._define(value, type_)
            if content is not None:
                self.known[value] = content
        self.nodes.append(node)
        return tuple(names)

    def graph(
        self,
        outputs: Iterable[str],
        updates: Mapping[str, str] | None = None,
        initial: Mapping[str, np.ndarray] | None = None,
    ) -> Graph:
        """The finished graph. updates, initial: as in `Graph`."""
        outputs = tuple(outputs)
        for value in outputs:
            if value not in self.types:
                raise GraphError(f"the output {value!r} is not defined", place=self.name)
        return Graph(
            tuple(self.inputs),
            outputs,
            tuple(self.nodes),
            self.constants,
            self.types,
            self.name,
            updates or {},
            initial or {},
        )


def infer_node(
    node: Node, types: Mapping[str, TensorType], contents: Mapping[str, np.ndarray]
) -> tuple[tuple[TensorType, ...], tuple[np.ndarray | None, ...]]:
    """Output types of a node and, for shape computations, its output values."""
    op = node.op
    count = len(node.inputs)
    if count < op.min_inputs or (op.max_inputs is not None and count > op.max_inputs):
        expected = f"{op.min_inputs} to {'any number' if op.max_inputs is None else op.max_inputs}"
        raise GraphError(f"{count} inputs given, {expected} expected", place=node.place)
    ctx = Inference(
        tuple(None if v is None else types[v] for v in node.inputs),
        tuple(None if v is None else contents.get(v) for v in node.inputs),
        node.name or node.outputs[0],
    )
    if not op.takes_narrow:
        _require_computed(node, ctx.types)
    try:
        output_types = tuple(op.infer(ctx))
    except GraphError as error:
        raise GraphError(error.cause, place=node.place, next_step=error.next_step) from error
    if len(output_types) != len(node.outputs):
        raise GraphError(
            f"{op.kind} has {len(output_types)} outputs, {len(node.outputs)} are named",
            place=node.place,
        )
    for type_ in output_types:
        if any(isinstance(d, int) and d < 0 for d in type_.dims):
            raise GraphError(f"the output would have the type {type_}", place=node.place)
    return output_types, known_outputs(op, ctx, output_types)


def _require_computed(node: Node, types: Sequence[TensorType | None]) -> None:
    for i, type_ in enumerate(types):
        if type_ is not None and type_.dtype.is_narrow:
            raise GraphError(
                f"input {i} is {type_}, and {node.op.kind} does not compute in {type_.dtype}",
                place=node.place,
                next_step="put a Cast or a DequantizeLinear before it",
            )


def source_of(graph: Graph, value: str, kinds: Collection[str] = ("Identity",)) -> str:
    """What a value is made of, operators of these kinds aside: of their first inputs."""
    node = graph.producers.get(value)
    while node is not None and node.op.kind in kinds:
        value = node.inputs[0] or ""
        node = graph.producers.get(value)
    return value


def reinfer(
    graph: Graph,
    input_types: Mapping[str, TensorType],
    values: Mapping[str, np.ndarray] | None = None,
) -> Graph:
    """The same graph with other input types (static shapes for symbols, for instance).

    `values` turns inputs into constants: what a type rule needs to know (a shape given as input).
    State among them is state no more; whoever hands it on has to know that.
    """
    values = values or {}
    b = Builder(graph.name)
    for name in graph.inputs:
        if name in values:
            b.constant(np.asarray(values[name]), name)
        else:
            b.input(name, input_types.get(name, graph.types[name]))
    for name, array in graph.constants.items():
        b.constant(array, name)
    for node in graph.nodes:
        b.add_all(node.op, node.inputs, node.outputs, node.name)
    updates = {v: o for v, o in graph.updates.items() if v not in values}
    initial = {v: a for v, a in graph.initial.items() if v not in values}
    inferred = b.graph(graph.outputs, updates, initial)
    open_ones = inferred.symbols() if graph.bounds else frozenset()
    bounds = {s: ends for s, ends in graph.bounds.items() if s in open_ones}
    return dataclasses.replace(inferred, bounds=bounds) if bounds else inferred


def specialize(graph: Graph, sizes: Mapping[str, DimLike]) -> Graph:
    """`graph` with symbols of its inputs replaced by `sizes`."""
    return reinfer(graph, {v: graph.types[v].substitute(sizes) for v in graph.inputs})


def walk_values(graph: Graph) -> Iterator[str]:
    """Every value: inputs, constants, then node outputs in order."""
    yield from graph.inputs
    yield from graph.constants
    for node in graph.nodes:
        yield from node.outputs
