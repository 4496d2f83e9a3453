"""One graph of `torch.compile` as compiled programs: one for each set of sizes, up to a limit.

Weights are constants of a program. Whoever changes one gets another program; when that happens
twice after few runs, weights become inputs of the program, so that training does not compile at
every step.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from verax import compiling
from verax.base.errors import CompileError, VeraxError
from verax.base.machine.torch_guard import in_own_thread
from verax.base.optional import optional
from verax.ir.assumptions import NotOpenError
from verax.torch.open_graph import OpenGraph, open_graph
from verax.torch.options import CompileOptions
from verax.torch.reporting import GraphReport
from verax.torch.tensors import (
    Witness,
    array_of,
    device_of_tensors,
    device_value,
    of_kind,
    tensor_of,
    tensor_on,
    with_strides,
)
from verax.torch.tracing import Computed, Fixed, Output, outputs_for, trace, trace_open

torch: Any = optional("torch", "to use verax.torch")
MOST_SIZES = 1024
"""Of which the outputs are known."""
CHANGES = 2
"""So many programs given up early, one after the other, make weights inputs."""
EARLY = 16
"""Runs after which a program was worth its compilation."""


class GraphProgram:
    """A graph compiled for the sizes of `arguments`, or for open ones."""

    def __init__(
        self,
        graph: Any,
        arguments: Sequence[Any],
        constants: Sequence[int],
        options: CompileOptions,
        opened: OpenGraph | None = None,
    ) -> None:
        """opened: what `graph` leaves open. Raises `NotOpenError` where that cannot be left so."""
        self.device = device_of_tensors(arguments)
        on_card = self.device.type != "cpu"
        self._value_of: Callable[[Any], Any] = device_value if on_card else array_of
        self._tensor_of: Callable[[Any], Any] = tensor_of
        if on_card:
            self._tensor_of = partial(tensor_on, device=self.device)
        traced = (
            trace(graph, arguments, constants)
            if opened is None
            else trace_open(opened, graph, arguments, constants)
        )
        if traced is None:
            raise NotOpenError("the graph decides by its sizes")
        self.graph, self.is_open = graph, opened is not None
        self._outputs: dict[tuple[Any, ...], tuple[Output, ...]] = {}
        self.traced = traced
        self.inputs = list(traced.arguments.items())
        self.outputs = traced.outputs
        used = set(traced.arguments.values())
        self.built_in = [
            (i, Witness(arguments[i], reads=not on_card)) for i in constants if i not in used
        ]
        self.executable = None
        self.runs = 0
        if traced.model is not None:
            self.results = traced.model.graph.returned
            self.changed = list(traced.changed.items())
            self.executable = compiling.compile(
                traced.model,
                opt_level=options.opt_level,
                threads=options.threads,
                target=options.target or (str(self.device) if on_card else "host"),
                require_native=options.require_native,
                certify=options.certify,
                allow=options.allow,
                samples=self._arrays(arguments) if options.certify else None,
            )
            certificate = self.executable.certificate
            if certificate is not None and not certificate.holds:
                raise CompileError(
                    f"the program is not certified: {'; '.join(certificate.problems)}",
                    next_step="compile at a lower opt_level, or without certify",
                )
        if self.is_open:
            self._require_sizes(arguments)

    def serves(self, arguments: Sequence[Any]) -> bool:
        """Whether it gives what a program for the sizes of these arguments would."""
        if not self.is_open or sizes_of(arguments) in self._outputs:
            return True
        try:
            self._require_sizes(arguments)
        except VeraxError:
            return False
        return True

    def _require_sizes(self, arguments: Sequence[Any]) -> None:
        """Have the executable ready for these sizes. Raises `VeraxError`."""
        outputs = outputs_for(self.graph, arguments)
        if list(map(type, outputs)) != list(map(type, self.outputs)):
            raise NotOpenError("which outputs are views depends on sizes")
        assert self.executable is not None
        self.executable.prepare(self._arrays(arguments))
        if len(self._outputs) > MOST_SIZES:
            self._outputs.clear()
        self._outputs[sizes_of(arguments)] = outputs

    @property
    def on_reference(self) -> tuple[str, ...]:
        """Nodes that no kernel takes."""
        return () if self.executable is None else self.executable.plan.on_reference

    def stale(self, arguments: Sequence[Any]) -> bool:
        """Whether a weight that is built in has changed."""
        return any(witness.changed(arguments[i]) for i, witness in self.built_in)

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        """The graph's outputs."""
        self.runs += 1
        tensors: list[Any] = []
        if self.executable is not None:
            answers = self.executable.run(self._arrays(arguments))
            tensors = [self._tensor_of(answers[v]) for v in self.results]
            for i, new in self.changed:
                with torch.no_grad():
                    after = self._tensor_of(answers[new])
                    arguments[i].copy_(of_kind(after, arguments[i].is_complex()))
        outputs = self._outputs[sizes_of(arguments)] if self.is_open else self.outputs
        results = []
        for output in outputs:
            if isinstance(output, Computed):
                result = of_kind(tensors[output.index], output.pair)
                results.append(with_strides(result, output.strides))
            elif isinstance(output, Fixed):
                results.append(output.value)
            elif output.itself:
                results.append(arguments[output.argument])
            else:
                source = arguments[output.argument]
                results.append(source.as_strided(output.shape, output.strides, output.offset))
        return results

    def _arrays(self, arguments: Sequence[Any]) -> dict[str, Any]:
        return {name: self._value_of(arguments[i]) for name, i in self.inputs}


class GraphPrograms:
    """What torch.compile calls for one graph.

    graph: the GraphModule. constants: numbers of the arguments that are weights. report: where what
    happens is written down. keep: a graph that cannot be compiled runs in eager PyTorch whatever
    the options say.
    """

    def __init__(
        self,
        graph: Any,
        constants: Sequence[int],
        options: CompileOptions,
        report: GraphReport,
        keep: bool = False,
    ) -> None:
        self.graph, self.options, self.report = graph, options, report
        self.constants = tuple(constants) if options.freeze else ()
        self.keep = keep or options.fallback == "eager"
        self._programs: OrderedDict[tuple[Any, ...], GraphProgram] = OrderedDict()
        self._lock = threading.RLock()
        self._eager = False
        self._early = 0
        self._opened = None if options.certify else open_graph(graph)

    def clear(self) -> None:
        """Forget every program; the next run compiles."""
        with self._lock:
            self._programs.clear()

    def prepare(self, arguments: Sequence[Any]) -> GraphProgram | None:
        """The program for these arguments, compiled if need be; None when the graph runs in eager
        PyTorch. Raises `VeraxError` when it cannot be compiled and must be."""
        with self._lock:
            key = self._key(arguments)
            program = self._programs.get(key)
            if program is not None and not program.serves(arguments):
                self._opened = None
                self._programs.clear()
                key, program = self._key(arguments), None
            if program is not None and program.stale(arguments):
                self.report.weight_changes += 1
                self._early = self._early + 1 if program.runs < EARLY else 0
                if self._early == CHANGES:
                    self.constants = ()
                    self.report.note("weights change often, and are inputs of the program now")
                    self._programs.clear()
                program = None
            if program is None and not self._eager:
                program = self._compile(arguments)
            if program is not None:
                key = self._key(arguments)
                self._programs[key] = program
                self._programs.move_to_end(key)
                if len(self._programs) > self.options.programs:
                    self._programs.popitem(last=False)
                    self.report.dropped += 1
        return program

    def __call__(self, *arguments: Any) -> Any:
        arguments = tuple(map(plain, arguments))
        program = self.prepare(arguments)
        self.report.runs += 1
        return self.graph(*arguments) if program is None else program.run(arguments)

    def _key(self, arguments: Sequence[Any]) -> tuple[Any, ...]:
        return sizes_of(arguments) if self._opened is None else self._opened.key(arguments)

    def _compile(self, arguments: Sequence[Any]) -> GraphProgram | None:
        program = self._compile_open(arguments)
        try:
            # PyTorch keeps what is being traced per thread; here it is in the middle of its own.
            program = program or in_own_thread(
                torch, GraphProgram, self.graph, arguments, self.constants, self.options
            )
        except VeraxError as error:
            if not self.keep:
                raise
            self._eager = True
            self.report.fallback = str(error)
            return None
        self.report.programs += 1
        self.report.on_reference = program.on_reference
        return program

    def _compile_open(self, arguments: Sequence[Any]) -> GraphProgram | None:
        """A program that leaves sizes open, unless there is nothing to leave, or it cannot be."""
        if self._opened is None:
            return None
        inputs = self.graph, arguments, self.constants, self.options, self._opened
        try:
            return in_own_thread(torch, GraphProgram, *inputs)
        except VeraxError:  # the usual road says what is the matter, if anything is
            self._opened = None
            return None


def sizes_of(arguments: Sequence[Any]) -> tuple[Any, ...]:
    """What decides a program of known sizes."""
    return tuple((a.shape, a.dtype) if isinstance(a, torch.Tensor) else a for a in arguments)


def plain(value: Any) -> Any:
    """A symbolic number as the number that it is now."""
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return value.node.hint
    return value
