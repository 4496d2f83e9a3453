"""`verax.substitute`: nodes of any imported network exchanged for functions of arrays.

The network is cut at the exchanged nodes; the stages between them are compiled to the bits that
Verax promises, so that whatever differs is the functions' doing. Each function is judged alone,
against the meaning of the node whose place it takes and on the arrays that it was given, and the
outputs of the whole as well.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from verax.base.arrays import as_array, as_arrays
from verax.base.errors import UsageError
from verax.base.option_groups.settings import Settings
from verax.base.printing import OneLine, first_few
from verax.base.tensors import named_inputs
from verax.compiler.compile import compile
from verax.compiler.executable import Executable
from verax.ir.cut import cut
from verax.ir.graph import Graph, Node
from verax.judge.check import check
from verax.records.verdict import Verdict
from verax.reference.evaluate import bind_symbols
from verax.runners.arrays import ArraysRunner
from verax.runners.functions import called

LEVEL = 1
"""Of the stages: the promised bits."""


class Exchanged(OneLine):
    """A network with functions in the place of some nodes: `run({"x": x})` or `net(x)`.

    nodes: name -> the function's name, in the order in which they run. verdicts: what the last run
    showed of each, by name; verdict: of the network's outputs (None before a run).
    """

    def __init__(self, graph: Graph, functions: Mapping[int, Callable[..., Any]]) -> None:
        if graph.state:
            raise UsageError(
                "nodes of a network that remembers cannot be exchanged",
                place=graph.name,
                next_step="exchange layers of the PyTorch module: verax.torch.substitute",
            )
        self.graph = graph
        self._functions = {i: functions[i] for i in sorted(functions)}
        self.nodes = {label(graph.nodes[i]): _name(f) for i, f in self._functions.items()}
        self.verdicts: dict[str, Verdict] = {}
        self.verdict: Verdict | None = None
        self._stages = tuple(_stages(graph, set(functions)))
        self._compiled: dict[int, Executable] = {}

    def __call__(self, *arrays: Any) -> Any:
        """Inputs by position; one array, or a tuple of several outputs."""
        if len(arrays) != len(self.graph.inputs):
            raise UsageError(
                f"{len(arrays)} arrays are given, the network takes {len(self.graph.inputs)}",
                next_step=f"give {', '.join(self.graph.inputs)}",
            )
        outputs = self.run(dict(zip(self.graph.inputs, arrays)))
        results = tuple(outputs[v] for v in self.graph.returned)
        return results[0] if len(results) == 1 else results

    def run(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The outputs by name, with every exchanged node judged.

        Raises `InputError` when inputs do not fit, `UsageError` that names the node and quotes its
        function when that fails or gives arrays of other shapes.
        """
        arrays = as_arrays(named_inputs(inputs, self.graph.inputs))
        bind_symbols(self.graph, arrays)
        values: dict[str, np.ndarray] = {**self.graph.constants, **arrays}
        self.verdicts = {}
        for index, stage in enumerate(self._stages):
            if stage.node is not None:
                self._exchanged(stage.node, values)
            elif stage.graph.nodes:
                exe = self._compiled.get(index)
                if exe is None:
                    exe = self._compiled[index] = compile(stage.graph, Settings(opt_level=LEVEL))
                values |= exe.run({v: values[v] for v in stage.graph.inputs})
        results = {v: np.asarray(values[v]) for v in self.graph.outputs}
        recorded = ArraysRunner(results, "the network with nodes exchanged")
        self.verdict = check(self.graph, recorded, arrays, twice=False)
        return results

    def _exchanged(self, index: int, values: dict[str, np.ndarray]) -> None:
        node, function = self.graph.nodes[index], self._functions[index]
        arrays = [None if v is None else np.array(values[v]) for v in node.inputs]
        words = f"{_name(function)} for {label(node)} ({node.op.kind})"
        input_copies = [None if a is None else a.copy() for a in arrays]

        def call() -> Any:
            return function(*arrays, **_settings(function, node, len(arrays)))

        returned = called(call, (), words)
        listed = list(returned) if isinstance(returned, tuple | list) else [returned]
        if len(listed) != len(node.outputs):
            raise UsageError(
                f"it gave {len(listed)} arrays, the node gives {len(node.outputs)}", place=words
            )
        node_outputs = {}
        for value, result in zip(node.outputs, listed):
            type_, array = self.graph.types[value], as_array(result)
            expected = tuple(d if isinstance(d, int) else None for d in type_.dims)
            fits = len(expected) == array.ndim and all(
                w is None or w == n for w, n in zip(expected, array.shape)
            )
            if not fits:
                raise UsageError(
                    f"it gave the shape {array.shape}, the node gives {type_}", place=words
                )
            with np.errstate(over="ignore"):
                node_outputs[value] = array.astype(type_.dtype.numpy, copy=False)
        values |= node_outputs
        alone = cut(self.graph, [v for v in node.inputs if v is not None], node.outputs)
        node_inputs = {v: a for v, a in zip(node.inputs, input_copies) if v in alone.inputs}
        subject = ArraysRunner(node_outputs, words)
        self.verdicts[label(node)] = check(alone, subject, node_inputs, twice=False)  # type: ignore[arg-type]

    def _brief(self) -> str:
        answer = "not run yet" if self.verdict is None else _answer_text(self.verdict)
        return f"{self.graph.name}, {first_few(self.nodes)} exchanged; {answer}"

    def __str__(self) -> str:
        lines = []
        for name, function in self.nodes.items():
            verdict = self.verdicts.get(name)
            answer = "not run yet" if verdict is None else _answer_text(verdict)
            lines.append(f"{name} by {function}: {answer}")
        if self.verdict is not None:
            lines.append(f"the network's outputs: {_answer_text(self.verdict)}")
        return "\n".join(lines)


def exchanged(graph: Graph, replacements: Mapping[Any, Callable[..., Any]]) -> Exchanged:
    """The network with nodes exchanged.

    replacements: a pattern of node names or a kind of operator ("Conv"), a class of operators, or a
    predicate of nodes -> a function of the node's inputs, in order (None for one left out), that
    may also name the operator's attributes (`strides`, `epsilon`, ...) and gives its outputs. The
    first that fits a node counts. Raises `UsageError` for a key that fits no node.
    """
    functions: dict[int, Callable[..., Any]] = {}
    for key, function in replacements.items():
        if not callable(function):
            raise UsageError(
                f"a {type(function).__name__} cannot stand in the place of a node",
                next_step="give a function of arrays",
            )
        matched = [i for i, node in enumerate(graph.nodes) if _fits(key, node)]
        if not matched:
            kinds = sorted({n.op.kind for n in graph.nodes})
            raise UsageError(
                f"no node fits {key!r}",
                place=graph.name,
                next_step=f"its operators are {', '.join(kinds)}; `verax inspect` lists its nodes",
            )
        for i in matched:
            functions.setdefault(i, function)
    return Exchanged(graph, functions)


def label(node: Node) -> str:
    """A node's name, or that of its first result."""
    return node.name or node.outputs[0]


@dataclass(frozen=True)
class _Stage:
    """An exchanged node by its number, or a part of the network between such nodes."""

    node: int | None
    graph: Graph


def _stages(graph: Graph, selected: set[int]) -> Iterator[_Stage]:
    """In an order in which each finds what it needs. A node belongs to the stage after the last
    exchanged node that leads to it."""
    depth = dict.fromkeys(graph.inputs, 0)
    level: list[int] = []
    for i, node in enumerate(graph.nodes):
        before = max((depth.get(v, 0) for v in node.inputs if v is not None), default=0)
        level.append(before)
        depth |= dict.fromkeys(node.outputs, before + (i in selected))
    available = set(graph.inputs)
    for stage in range(max(level, default=0) + 1):
        members = [i for i, at in enumerate(level) if at == stage and i not in selected]
        later = [n for i, n in enumerate(graph.nodes) if i in selected or level[i] > stage]
        read = {v for n in later for v in n.inputs} | set(graph.outputs)
        outputs = [v for i in members for v in graph.nodes[i].outputs if v in read]
        if outputs:
            yield _Stage(None, cut(graph, available, outputs))
            available |= set(outputs)
        for i in (i for i in selected if level[i] == stage):
            yield _Stage(i, graph)
            available |= set(graph.nodes[i].outputs)


def _fits(key: Any, node: Node) -> bool:
    if isinstance(key, str):
        return node.op.kind == key or fnmatchcase(label(node), key)
    if isinstance(key, type):
        return isinstance(node.op, key)
    if callable(key):
        return bool(key(node))
    raise UsageError(
        f"a node cannot be chosen by a {type(key).__name__}",
        next_step="give a pattern of names, a kind of operator, a class, or a predicate of nodes",
    )


def _settings(function: Callable[..., Any], node: Node, input_count: int) -> dict[str, Any]:
    """Attributes of the operator that the function's signature names behind its arrays."""
    try:
        parameters: Sequence[inspect.Parameter] = list(
            inspect.signature(function).parameters.values()
        )
    except (TypeError, ValueError):
        return {}
    op: Any = node.op
    attributes = {f.name: getattr(op, f.name) for f in fields(op)} if is_dataclass(op) else {}
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    behind = [p for p in named if p.kind is p.KEYWORD_ONLY or named.index(p) >= input_count]
    return {p.name: attributes[p.name] for p in behind if p.name in attributes}


def _answer_text(verdict: Verdict) -> str:
    return f"{verdict.kind}: {verdict.reasons[0]}" if verdict.reasons else str(verdict.kind)


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
