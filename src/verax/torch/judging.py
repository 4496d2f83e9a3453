"""`torch.compile(module, backend="verax_judge")`: another backend, judged while the program runs,
graph by graph on the real inputs.

What the other backend gives is handed on unchanged. Beside it, the graph's meaning says what
rounding may do to each number. Where the outputs alone do not settle it (a mistake, or nodes whose
errors they would not show), the other backend compiles the graph once more with the values inside
as outputs, so that the node can be named, and with it the user's line of Python.
"""

from __future__ import annotations

import dataclasses
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from verax.base.arrays import as_array
from verax.base.errors import UsageError, VeraxError
from verax.base.machine.devices import devices_in
from verax.base.optional import optional
from verax.ir.cut import cut
from verax.ir.graph import Graph
from verax.judge.check import check
from verax.judge.protocol import Capabilities
from verax.records.verdict import Kind, Verdict
from verax.runners.functions import called
from verax.runners.pytorch.torch_device import TorchDevice, casts_on
from verax.torch import reporting
from verax.torch.backend import operators, weights
from verax.torch.options import JudgeOptions, options_of
from verax.torch.programs import plain
from verax.torch.reporting import GraphReport, Judged
from verax.torch.tensors import Witness, tensor_of
from verax.torch.tracing import Computed, trace, with_outputs, written_by

torch: Any = optional("torch", "to use verax.torch")


def verax_judge(
    graph: Any,
    arguments: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """The backend itself: what `torch.compile` calls for each graph.

    options: see `JudgeOptions`. `verax.torch.report()` has the verdicts. Raises `UsageError` for
    options that do not exist, and whatever the inner backend raises.
    """
    judge_options = options_of(JudgeOptions, options, mode, "verax_judge")
    inner = torch._dynamo.lookup_backend(judge_options.inner)
    report = reporting.opened("judged", operators(graph))
    return Judging(graph, arguments, inner, judge_options, report)


verax_judge.reset = reporting.forget  # type: ignore[attr-defined]  # where PyTorch looks for it


class Judging:
    """What torch.compile calls for one graph."""

    def __init__(
        self,
        graph: Any,
        arguments: Sequence[Any],
        inner: Callable[..., Any],
        options: JudgeOptions,
        report: GraphReport,
    ) -> None:
        self.graph = _copied(graph)  # the inner backend may rewrite its own
        self.inner, self.options, self.report = inner, options, report
        self.constants = weights(graph, arguments)
        written = {_memory(n) for node in self.graph.graph.nodes for n in written_by(node)}
        placeholders = [n for n in self.graph.graph.nodes if n.op == "placeholder"]
        self.still = {i for i in self.constants if _memory(placeholders[i]) not in written}
        self.compiled = inner(graph, arguments)
        kinds = dict.fromkeys(("cpu", *(a.device.type for a in _tensors(arguments))))
        self.casts = [k for k in kinds if casts_on(k)]
        if self.casts:
            report.note(
                f"not judged: autocast is on ({', '.join(self.casts)}), whose casts are not in "
                "the graph"
            )
        self._random = random.Random(0)
        self._lock = threading.Lock()
        self._meaning: _GraphNetwork | None = None
        self._key: tuple[Any, ...] = ()

    def __call__(self, *arguments: Any) -> Any:
        self.report.runs += 1
        first = self.report.runs == 1
        if self.casts or (not first and self._random.random() >= self.options.rate):
            self.report.unjudged += 1
            return self.compiled(*arguments)
        if reporting.spent() >= self.options.budget:
            self.report.unjudged += 1
            self.report.note("the budget is spent")
            return self.compiled(*arguments)
        before = [_snapshot(a, i in self.still) for i, a in enumerate(map(plain, arguments))]
        results = self.compiled(*arguments)
        for words in _other_types(self.graph, results):
            self.report.note(words)
        self._judge(before, list(results), list(arguments))
        return results

    def _judge(self, arguments: list[Any], results: list[Any], after: list[Any]) -> None:
        begin = time.perf_counter()
        with self._lock, torch.no_grad():
            try:
                meaning = self._meant(arguments)
                subject = _RecordedRun(meaning, arguments, results, after, self.inner)
                verdict = _verdict(subject, self.options)
            except VeraxError as error:
                self.report.unjudged += 1
                self.report.note(f"not judged: {error}")
            else:
                locations = [f"{b.node}: {meaning.lines[b.node]}" for b in verdict.blame
                         if b.node in meaning.lines]  # fmt: skip
                judged = Judged(self.report.runs, verdict, tuple(dict.fromkeys(locations)))
                self.report.verdicts.append(judged)
        reporting.spend(time.perf_counter() - begin)

    def _meant(self, arguments: list[Any]) -> _GraphNetwork:
        key = tuple((a.shape, a.dtype) if isinstance(a, torch.Tensor) else a for a in arguments)
        cached = self._meaning
        if cached is None or key != self._key or cached.stale(arguments):
            self._meaning, self._key = _GraphNetwork(self.graph, arguments, self.constants), key
        assert self._meaning is not None
        return self._meaning


def _other_types(graph: Any, results: Sequence[Any]) -> list[str]:
    """Outputs of another element type than the graph has, which numbers alone would not show."""
    (end,) = graph.graph.find_nodes(op="output")
    texts = []
    for i, (node, result) in enumerate(zip(end.args[0], results)):
        declared = getattr(node, "meta", {}).get("example_value")
        if not (isinstance(declared, torch.Tensor) and isinstance(result, torch.Tensor)):
            continue
        if declared.dtype != result.dtype:
            texts.append(f"mistake: output {i} is {result.dtype}, the program has {declared.dtype}")
    return texts


class _GraphNetwork:
    """A graph of PyTorch as a network of Verax, and which of its nodes gives which value.

    graph: the network. inputs: name -> number of the argument. outputs: number of an output of the
    PyTorch graph -> value. inner: value -> the node of the PyTorch graph that gives it.
    """

    def __init__(self, graph: Any, arguments: list[Any], constants: Sequence[int]) -> None:
        (end,) = graph.graph.find_nodes(op="output")
        results = list(end.args[0])
        nodes = _watchable(graph)
        traced = trace(with_outputs(graph, [*results, *nodes]), arguments, constants)
        if traced.model is None:
            raise UsageError("the graph computes nothing")
        full_graph, self.module, self.lines = traced.model.graph, graph, traced.lines
        values = {
            i: full_graph.returned[o.index]
            for i, o in enumerate(traced.outputs)
            if isinstance(o, Computed)
        }
        self.outputs = {i: v for i, v in values.items() if i < len(results)}
        self.results = results
        self.changed = traced.changed
        restricted = cut(
            full_graph, full_graph.inputs, [*self.outputs.values(), *full_graph.updates.values()]
        )
        self.graph = dataclasses.replace(restricted, updates=full_graph.updates)
        inner_nodes = {v: nodes[i - len(results)] for i, v in values.items() if i >= len(results)}
        self.inner = {v: n for v, n in inner_nodes.items() if v in self.graph.types}
        self.inputs = {v: i for v, i in traced.arguments.items() if v in self.graph.inputs}
        used = set(traced.arguments.values())
        self.built_in = [(i, Witness(arguments[i])) for i in constants if i not in used]

    def stale(self, arguments: list[Any]) -> bool:
        """Whether a weight has changed since."""
        return any(witness.changed(arguments[i]) for i, witness in self.built_in)


class _RecordedRun:
    """The inner backend as the judge's subject: what it gave in the run, and, compiled once more,
    what it gives inside. after: the arguments behind the run, for what was written to."""

    stored_inputs: Mapping[str, np.ndarray] | None = None

    def __init__(
        self,
        meaning: _GraphNetwork,
        arguments: list[Any],
        results: list[Any],
        after: list[Any],
        inner: Callable[..., Any],
    ) -> None:
        self.meaning, self.arguments, self.results = meaning, arguments, results
        self.after, self.inner = after, inner
        self.capabilities = Capabilities(any_device=any(devices_in(arguments)))
        self.name = str(getattr(inner, "__name__", type(inner).__name__))
        self._first: Mapping[str, np.ndarray] | None = None

    def describe(self) -> dict[str, str]:
        details = {"kind": "backend of torch.compile", "version": str(torch.__version__)}
        devices = (t.device for t in _tensors(self.arguments) if t.device.type != "cpu")
        return {**details, **TorchDevice(next(devices, None)).describe()}

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        """As `judge.protocol.Runner.run`; without `keep`, and on the run's inputs, what was given
        then."""
        meaning = self.meaning
        same = self._first is None or all(inputs[v] is a for v, a in self._first.items())
        if keep is None and same:
            self._first = dict(inputs)
            return self._named_values(self.results, self.after)
        inner_names = [v for v in keep or () if v in meaning.inner]
        requested = [*meaning.results, *(meaning.inner[v] for v in inner_names)]
        module = with_outputs(meaning.module, requested)
        arguments = list(self.arguments)
        for name, i in meaning.inputs.items():
            arguments[i] = tensor_of(np.array(inputs[name])).to(arguments[i].device)
        compiled = called(self.inner, (module, list(arguments)), self.name)
        answers = called(compiled, arguments, self.name)
        inner = dict(zip(inner_names, answers[len(meaning.results) :]))
        values = {v: np.array(as_array(a)) for v, a in inner.items()}
        return {**values, **self._named_values(answers, arguments)}

    def _named_values(self, results: Sequence[Any], after: Sequence[Any]) -> dict[str, np.ndarray]:
        meaning = self.meaning
        values = {v: results[i] for i, v in meaning.outputs.items()}
        values |= {new: after[i] for i, new in meaning.changed.items()}
        return {v: np.array(as_array(t)) for v, t in values.items()}


def _verdict(subject: _RecordedRun, options: JudgeOptions) -> Verdict:
    """The outputs first; with the values inside where those do not settle it."""
    meaning = subject.meaning
    arrays = {v: as_array(subject.arguments[i]) for v, i in meaning.inputs.items()}

    def judged() -> Verdict:
        return check(meaning.graph, subject, arrays, winograd=options.winograd, twice=False)

    verdict = judged()
    is_decided = verdict.kind in (Kind.identical, Kind.rounding, Kind.precision)
    blind = verdict.coverage is not None and verdict.coverage.blind
    if meaning.inner and (not is_decided or blind):
        subject.capabilities = dataclasses.replace(subject.capabilities, watches=True)
        verdict = judged()
    return verdict


def _tensors(values: Sequence[Any]) -> list[Any]:
    return [v for v in values if isinstance(v, torch.Tensor)]


def _snapshot(value: Any, still: bool) -> Any:
    """The value as it is now, whatever happens to it afterwards. What stays still is not copied."""
    if not isinstance(value, torch.Tensor) or still:
        return value
    return value.detach().clone()


def _copied(graph: Any) -> Any:
    (end,) = graph.graph.find_nodes(op="output")
    return with_outputs(graph, list(end.args[0]))


def _watchable(graph: Any) -> list[Any]:
    """Nodes that give a tensor which nothing writes to, so that it is the same at the end."""
    written = {_memory(n) for node in graph.graph.nodes for n in written_by(node)}
    return [n for n in graph.graph.nodes if _gives_tensor(n) and _memory(n) not in written]


def _memory(node: Any) -> Any:
    """What two nodes have in common whose tensors share memory; the node where nobody knows."""
    value = node.meta.get("example_value")
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else node


def _gives_tensor(node: Any) -> bool:
    value = node.meta.get("example_value")
    return node.op.startswith("call") and isinstance(value, torch.Tensor)
