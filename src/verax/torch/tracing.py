"""A graph of Dynamo or AOTAutograd, for the sizes of one call: what Verax computes of it, and what
remains beside that.

Results that are no computation stay PyTorch's: an output that is a view of an input is made as one,
so that it shares the input's memory as in eager PyTorch, and numbers (sizes) are given as they are.
The rest is exported as ATen operators, with the user's lines of Python on every node, and imported
by the same table as `.pt2` files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from verax.base.arrays import as_array
from verax.base.errors import UnsupportedError
from verax.base.optional import optional
from verax.frontends.model import Model
from verax.frontends.torch import load_torch
from verax.frontends.torch.source_lines import line_of
from verax.torch.open_graph import OpenGraph

torch: Any = optional("torch", "to use verax.torch")


@dataclass(frozen=True)
class Computed:
    """An output that the program computes: its number among those, strides that are not the usual
    ones, and whether it is complex, of which the program computes pairs."""

    index: int
    strides: tuple[int, ...] | None
    pair: bool = False


@dataclass(frozen=True)
class ViewOf:
    """An output that shares the memory of an argument, or is it."""

    argument: int
    itself: bool
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Fixed:
    """An output that is no tensor, and the same for all calls of these sizes."""

    value: Any


WRITERS = ("setitem", "iadd", "isub", "imul", "itruediv", "imatmul")
"""Functions of Python that write to their first argument."""
Output = Computed | ViewOf | Fixed


@dataclass(frozen=True)
class Traced:
    """model: None when nothing is to be computed. arguments: number of the argument behind each of
    the model's inputs. outputs: in the graph's order. changed: argument -> the model's output that
    is its content afterwards. lines: the user's line behind each node, by its name."""

    model: Model | None
    arguments: Mapping[str, int]
    outputs: tuple[Output, ...]
    changed: Mapping[int, str]
    lines: Mapping[str, str]


class Replay(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Runs a graph node by node, so that what each node knows of its origin is kept."""

    def __init__(self, graph: Any) -> None:
        super().__init__()
        self.graph = graph

    def forward(self, *arguments: Any) -> Any:
        with torch.fx.traceback.preserve_node_meta():
            return torch.fx.Interpreter(self.graph).run(*arguments)


def trace(graph: Any, arguments: Sequence[Any], constants: Sequence[int] = ()) -> Traced:
    """The graph for arguments of these sizes.

    graph: a GraphModule that gives a flat sequence. arguments: tensors and numbers. constants: of
    which arguments the values may be built in; one that the graph writes to stays an argument.
    Raises `UnsupportedError` that names operators and the user's lines.
    """
    with torch._guards.tracing(None), torch.no_grad():
        # Other objects on the same memory: what `mark_dynamic` wrote on the user's stays there.
        arguments = [a.detach() if isinstance(a, torch.Tensor) else a for a in arguments]
        outputs = _outputs(graph, arguments)
        computed = [i for i, o in enumerate(outputs) if isinstance(o, Computed)]
        subgraph = _subgraph(graph, computed)
        if not computed and not _writes(subgraph):
            return Traced(None, {}, tuple(outputs), {}, {})
        program = export(Replay(subgraph), tuple(arguments))
        names = input_names(program)
        named = [(names[i], arguments[i]) for i in constants]
        values = {name: np.array(as_array(a)) for name, a in named if name is not None}
        model = load_torch(program, values=values)
    positions = {name: i for i, name in enumerate(names) if name is not None}
    return Traced(
        model,
        {v: positions[v] for v in model.inputs},
        tuple(outputs),
        {positions[v]: new for v, new in model.graph.updates.items()},
        lines_of(program),
    )


def trace_open(
    opened: OpenGraph, graph: Any, arguments: Sequence[Any], constants: Sequence[int] = ()
) -> Traced | None:
    """`trace` of `graph`, whose model leaves the sizes of `opened` open; None where PyTorch decides
    by a size, or nothing is to be computed. `outputs` are those for these arguments."""
    with torch._guards.tracing(None), torch.no_grad():
        arguments = [a.detach() if isinstance(a, torch.Tensor) else a for a in arguments]
        outputs = _outputs(graph, arguments)
        computed = [i for i, o in enumerate(outputs) if isinstance(o, Computed)]
        subgraph = _subgraph(opened.graph, computed)
        if not computed or _writes(subgraph):
            return None
        tensors = tuple(arguments[i] for i in opened.arguments)
        program = export(Replay(subgraph), tensors, opened.dynamic_shapes)
        names = input_names(program)
        named = [(names[opened.arguments.index(i)], arguments[i]) for i in constants]
        values = {name: np.array(as_array(a)) for name, a in named if name is not None}
        model = load_torch(program, values=values)
    if not model.graph.symbols() or model.graph.updates:
        return None
    positions = {n: i for n, i in zip(names, opened.arguments, strict=True) if n is not None}
    arguments_by_name = {v: positions[v] for v in model.inputs}
    return Traced(model, arguments_by_name, tuple(outputs), {}, lines_of(program))


def outputs_for(graph: Any, arguments: Sequence[Any]) -> tuple[Output, ...]:
    """The kind of each output for these arguments."""
    with torch._guards.tracing(None), torch.no_grad():
        detached = [a.detach() if isinstance(a, torch.Tensor) else a for a in arguments]
        return tuple(_outputs(graph, detached))


def export(module: Any, arguments: tuple[Any, ...], dynamic_shapes: Any = None) -> Any:
    """`torch.export.export`, its refusal as an `UnsupportedError`."""
    try:
        return torch.export.export(module, arguments, dynamic_shapes=dynamic_shapes, strict=False)
    except Exception as error:
        raise UnsupportedError(
            f"torch.export cannot trace the graph: {str(error).partition(chr(10))[0][:300]}",
            next_step="the numbers in this graph may decide how it goes on; torch.compile splits "
            "it there when that part is a function of its own under torch.compiler.disable",
        ) from error


def lines_of(program: Any) -> dict[str, str]:
    """The user's line behind each node of a program that has one."""
    lines = {n.name: line_of(n) for n in program.graph.nodes if n.op == "call_function"}
    return {name: line for name, line in lines.items() if line}


def _outputs(graph: Any, arguments: Sequence[Any]) -> list[Output]:
    """The kind of each output, determined by running the graph on tensors without content."""
    mode = torch._subclasses.fake_tensor.FakeTensorMode(allow_non_fake_inputs=True)
    fakes = [mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in arguments]
    memory = {
        f.untyped_storage()._cdata: i
        for i, f in reversed(list(enumerate(fakes)))
        if isinstance(f, torch.Tensor)
    }
    try:
        with mode:
            results = graph(*fakes)
    except Exception as error:
        raise UnsupportedError(
            f"the graph cannot be followed without its numbers: "
            f"{str(error).partition(chr(10))[0][:300]}",
        ) from error
    outputs: list[Output] = []
    count = 0
    for value in results:
        if not isinstance(value, torch.Tensor):
            outputs.append(Fixed(value))
            continue
        shape, strides = tuple(map(int, value.shape)), tuple(map(int, value.stride()))
        source = memory.get(value.untyped_storage()._cdata)
        if source is not None and value.dtype == fakes[source].dtype:
            same = fakes[source] is value
            outputs.append(ViewOf(source, same, shape, strides, int(value.storage_offset())))
        else:
            _require_same_device(value, fakes)
            usual = value.is_contiguous() or value.numel() == 0
            outputs.append(Computed(count, None if usual else strides, value.is_complex()))
            count += 1
    return outputs


def _require_same_device(value: Any, arguments: Sequence[Any]) -> None:
    """Raise `UnsupportedError` for a result that lies elsewhere than the tensors of the graph."""
    devices = {a.device for a in arguments if isinstance(a, torch.Tensor) and a.dim()}
    if devices and value.device not in devices:
        raise UnsupportedError(
            f"the graph moves a tensor to {value.device}",
            next_step="move it outside of what is compiled",
        )


def _subgraph(graph: Any, computed: Sequence[int]) -> Any:
    """The same graph with these of its outputs only."""
    (end,) = graph.graph.find_nodes(op="output")
    return with_outputs(graph, [end.args[0][i] for i in computed])


def with_outputs(graph: Any, outputs: Sequence[Any]) -> Any:
    """A graph that gives these nodes (or numbers) of another one, without what that takes not.

    What is written in place stays, whether the result is read or not.
    """
    copied = torch.fx.Graph()
    copies: dict[Any, Any] = {}
    copied.graph_copy(graph.graph, copies)
    copied.output(tuple(copies.get(o, o) for o in outputs))
    for node in reversed(copied.nodes):
        if node.op.startswith(("call", "get")) and not node.users and not written_by(node):
            copied.erase_node(node)
    return torch.fx.GraphModule(graph, copied)


def written_by(node: Any) -> list[Any]:
    """The nodes whose tensors a node writes to, as far as its name and arguments tell."""
    if not node.op.startswith("call"):
        return []
    name = str(getattr(node.target, "__name__", node.target))
    written = [a for a in (node.kwargs.get("out"),) if isinstance(a, torch.fx.Node)]
    inside = name.endswith("_") and not name.endswith("__")
    if inside or name in WRITERS or node.kwargs.get("inplace"):
        written += [a for a in node.args[:1] if isinstance(a, torch.fx.Node)]
    if name == "batch_norm" and any(node.args[5:6]):
        written += [a for a in node.args[1:3] if isinstance(a, torch.fx.Node)]
    return written


def _writes(graph: Any) -> bool:
    """Whether anything in a graph is written to."""
    return any(written_by(n) for n in graph.graph.nodes)


def input_names(program: Any) -> list[str | None]:
    """The name of each argument in the program, None of one that is no tensor."""
    specs = [s for s in program.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
    return [s.arg.name if type(s.arg).__name__ == "TensorArgument" else None for s in specs]
