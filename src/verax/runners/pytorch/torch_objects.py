"""PyTorch objects as subjects: modules watched by forward hooks, and ExportedPrograms."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from verax.base.machine.devices import module_device
from verax.base.optional import installed_version, optional
from verax.ir.graph import Graph
from verax.judge.protocol import Naming, shape_fits, shape_of
from verax.runners.feeding import collect, feed
from verax.runners.functions import called, named_results
from verax.runners.memory import InProcess
from verax.runners.pytorch.torch_compiling import Compiling, steps
from verax.runners.pytorch.torch_device import TorchDevice
from verax.runners.pytorch.torch_memory import Memory, borrowed, written
from verax.runners.pytorch.torch_tensors import (
    PURPOSE,
    arguments,
    flat_inputs,
    from_torch,
    input_devices,
    named_leaves,
    new_contents,
    output_names,
    program_device,
    run_exported,
    tensors_of,
    to_torch,
    user_shapes,
)

Call = tuple[str, int]
"""Path of a submodule ("layer1.0.conv1") and the number of its call, from 0."""


class TorchModuleRunner(InProcess):
    """Calls a `torch.nn.Module`, and hooks its submodules.

    calls: the call of a submodule that gives a value, as the network's exported program tells it;
    nothing else is then taken for one of its values. Without it (the network is no such program) a
    submodule shows the value that a node exported from it produces (ONNX nodes are called
    `/layer1/layer1.0/conv1/Conv`), or that carries its name ("layer1.0.conv1"). program: the
    ExportedProgram that tells how the inputs are handed over; without it they go by the names of
    the module's parameters, or else in the network's order.
    """

    capabilities = dataclasses.replace(InProcess.capabilities, watches=True, naming=Naming.hint)

    def __init__(
        self,
        module: Any,
        name: str = "",
        *,
        calls: Mapping[str, Call] | None = None,
        program: Any = None,
    ) -> None:
        self.module = module
        self.torch_device = TorchDevice(module_device(module) or _inputs_device(program))
        self.capabilities = self.torch_device.capable(self.capabilities)
        self.name = name or f"torch:{type(module).__name__}"
        self.calls, self.program = calls, program
        self._notes: dict[str, str] = {}
        self._unfit: dict[str, str] = {}

    def describe(self) -> dict[str, str]:
        version = installed_version("torch")
        details = {"kind": "torch module", "version": version, "mode": "evaluation"}
        details |= {**self.torch_device.describe(), **self._notes}
        if self._in_training():
            details["note"] = (
                f"{self.name} is in training mode and was judged in evaluation mode, as at "
                "inference; it was left as it was. Where you run it, call eval() first"
            )
        return details

    def _in_training(self) -> list[Any]:
        """The module's parts in training mode; none of what torch.export made, which has no modes
        left."""
        torch = optional("torch", PURPOSE)
        if isinstance(self.module, torch.fx.GraphModule):
            return []
        return [submodule for submodule in self.module.modules() if submodule.training]

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        with borrowed(self.module, evaluating=self._in_training()) as memory:
            memory.put({v: inputs[v] for v in graph.state if v in inputs})
            return self._run(graph, inputs, keep, memory)

    def run_steps(
        self,
        graph: Graph,
        steps: Sequence[Mapping[str, np.ndarray]],
        state: Mapping[str, np.ndarray],
        keep: Sequence[str] | None = None,
        *,
        fill: int | None = None,
    ) -> list[dict[str, np.ndarray]]:
        """As `judge.protocol.Remembering.run_steps`; the module gets its own buffers back."""
        with (
            borrowed(self.module, evaluating=self._in_training()) as memory,
            contextlib.nullcontext() if fill is None else self._poisoned(fill),
        ):
            memory.put(state)
            return [self._run(graph, inputs, keep, memory) for inputs in steps]

    def _run(
        self,
        graph: Graph,
        inputs: Mapping[str, np.ndarray],
        keep: Sequence[str] | None,
        memory: Memory,
    ) -> dict[str, np.ndarray]:
        """Values of one run, from what the module's buffers hold now."""
        torch = optional("torch", PURPOSE)
        args, kwargs, tensors = called(self._arguments, (graph, inputs), self.name)
        values: dict[str, np.ndarray] = {}
        recorders: dict[Any, dict[int, str]] = {}
        for value, (path, call_index) in self._watched(graph, keep or ()).items():
            if path in self._paths():
                recorders.setdefault(self.module.get_submodule(path), {})[call_index] = value
        handles = [m.register_forward_hook(_recorder(values, v)) for m, v in recorders.items()]
        try:
            with torch.no_grad(), self.torch_device.entered():
                result = called(lambda: self.module(*args, **kwargs), (), self.name)
        finally:
            for handle in handles:
                handle.remove()
        if keep:
            self._unfit = self._without_unfit(graph, values)
        self._notes = {**self._unfit, **memory.notes(graph)}
        changed = {**memory.new(graph.state), **new_contents(tensors, written(graph))}
        return {**values, **_results(graph, result, self.name), **changed}

    def _arguments(
        self, graph: Graph, inputs: Mapping[str, np.ndarray]
    ) -> tuple[tuple[Any, ...], dict[str, Any], dict[str, Any]]:
        """Positional and named arguments, and the tensors among them by the network's names."""
        if self.program is not None and list(user_shapes(self.program)) == list(graph.arguments):
            device = module_device(self.module)
            # A program of this device knows better: lengths of sequences may stay on the processor.
            fitting = device in input_devices(self.program).values()
            flat = flat_inputs(self.program, inputs, None if fitting else device)
            return *arguments(self.program, flat), tensors_of(self.program, flat)
        device = self.torch_device.device
        tensors = {v: to_torch(np.asarray(inputs[v]), device) for v in graph.arguments}
        if tensors.keys() <= _parameters(self.module.forward):
            return (), tensors, tensors
        return tuple(tensors.values()), {}, tensors

    def _poisoned(self, fill: int) -> contextlib.AbstractContextManager[None]:
        return self.torch_device.poisoned(fill)

    def _without_unfit(self, graph: Graph, values: dict[str, np.ndarray]) -> dict[str, str]:
        """Remove from `values` those that were matched by name alone and have another shape than
        the network's; return a note for `describe` that lists them."""
        if self.calls is not None:
            return {}
        unfit = [v for v in values if module_path(graph.producers[v].name) != v]
        unfit = [v for v in unfit if not shape_fits(shape_of(graph, v), values[v].shape)]
        for value in unfit:
            del values[value]
        text = "parts of these names give other shapes than the network's values: "
        return {"not used": text + ", ".join(unfit)} if unfit else {}

    def _paths(self) -> set[str]:
        """Every submodule by each of its paths."""
        return {p for p, _ in self.module.named_modules(remove_duplicate=False) if p}

    def _watched(self, graph: Graph, keep: Sequence[str]) -> dict[str, Call]:
        """Value -> the call of a submodule that makes it, where that is clear."""
        if self.calls is not None:
            return {v: self.calls[v] for v in keep if v in self.calls}
        leaves = {p for p, m in self.module.named_modules() if p and not list(m.children())}
        by_name: dict[str, Call] = {}
        makers: dict[str, list[str]] = {}
        for value in keep:
            node = graph.producers.get(value)
            if value in leaves:
                by_name[value] = (value, 0)
            elif node is not None and len(node.outputs) == 1:
                makers.setdefault(module_path(node.name), []).append(value)
        clear = {path: v[0] for path, v in makers.items() if path in leaves and len(v) == 1}
        by_node = {value: (path, 0) for path, value in clear.items()}
        # A submodule shows one value, and the node's scope says more than an equal name does.
        return {**{v: c for v, c in by_name.items() if c[0] not in clear}, **by_node}


def _inputs_device(program: Any) -> Any:
    """The `torch.device` that the program was exported with inputs on; None without a program."""
    devices = {} if program is None else input_devices(program)
    return next(iter(devices.values()), None)


def _parameters(function: Callable[..., Any]) -> set[str]:
    """Names that arguments of `function` can be given by."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return set()
    return {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}


def module_path(node: str) -> str:
    """`layer1.0.conv1` of `/layer1/layer1.0/conv1/Conv`: the module a node was exported from."""
    scopes = [s for s in node.split("/") if s][:-1]
    path: list[str] = []
    for scope in scopes:
        if path and scope.startswith(f"{path[-1]}."):
            path.pop()
        path.append(scope)
    return ".".join(path)


def _recorder(recorded: dict[str, np.ndarray], values: Mapping[int, str]) -> Any:
    """A forward hook that copies a submodule's output into `recorded`. values: call index -> the
    value's name, for the calls to record."""
    count = 0

    def hook(module: Any, inputs: Any, output: Any) -> None:
        nonlocal count
        tensors = [tensor for _, tensor in named_leaves(output)]
        if count in values and len(tensors) == 1:
            recorded[values[count]] = from_torch(tensors[0])
        count += 1

    return hook


def _results(graph: Graph, result: Any, name: str) -> dict[str, np.ndarray]:
    """The module's result as arrays by name: its own keys where they are outputs of the network,
    otherwise the network's outputs in order."""
    leaves = list(named_leaves(result))
    keys = [key for key, _ in leaves]
    arrays = [from_torch(tensor) for _, tensor in leaves]
    keyed = [key for key in keys if key]
    all_named = all(key in graph.outputs for key in keyed)
    if len(arrays) == len(graph.returned) and (not all_named or len(keyed) < len(keys)):
        keys = list(graph.returned)
    elif not all(keys):
        return named_results(graph, arrays, name)
    return dict(zip(keys, arrays))


class ExportedProgramRunner(InProcess):
    """Runs a `torch.export.ExportedProgram`; inner values under the names of its nodes.

    compiled: by `torch.compile`, which shows no inner values; compiling: how, if not by Inductor
    and whole.
    """

    def __init__(
        self,
        program: Any,
        name: str = "torch:ExportedProgram",
        *,
        compiled: bool = False,
        compiling: Compiling | None = None,
        threads: int = 0,
        naming: Naming = Naming.hint,
    ) -> None:
        self.compiling = compiling or (Compiling() if compiled else None)
        compiled = self.compiling is not None
        self.program, self.compiled, self.threads = program, compiled, threads
        self.torch_device = TorchDevice(program_device(program))
        self.name = name.replace("torch", "torch-compiled", 1) if compiled else name
        # Eager PyTorch runs an exported program node by node.
        own = dataclasses.replace(
            self.capabilities, watches=not compiled, stepwise=not compiled, slow_steps=True
        )
        self.capabilities = self.torch_device.capable(own).of_network(naming)
        self._notes: dict[str, str] = {}
        self._applied: list[str] | None = None

    def optimizations(
        self, graph: Graph, inputs: Mapping[str, np.ndarray]
    ) -> list[tuple[str, ExportedProgramRunner]]:
        """As `TorchFileRunner.optimizations`."""
        if self.compiling is None:
            return [("eager", self)]
        self._applied = []
        try:
            self.run(graph, inputs)
            compilings = steps(self._applied)
        finally:
            self._applied = None
        program, threads = self.program, self.threads
        naming = self.capabilities.naming
        runners = [
            (
                name,
                ExportedProgramRunner(program, compiling=compiling, threads=threads, naming=naming),
            )
            for name, compiling in compilings
        ]
        return [*runners[:-1], (runners[-1][0], self)]

    def describe(self) -> dict[str, str]:
        version = installed_version("torch")
        mode = {"mode": "compiled"} if self.compiled else {}
        details = {"kind": "torch ExportedProgram", "version": version, **mode}
        return {**details, **self.torch_device.describe(), **self._notes}

    def _poisoned(self, fill: int) -> contextlib.AbstractContextManager[None]:
        return self.torch_device.poisoned(fill)

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        arguments = {v: inputs[v] for v in graph.arguments}
        return self.run_steps(graph, [arguments], inputs, keep)[0]

    def run_steps(
        self,
        graph: Graph,
        steps: Sequence[Mapping[str, np.ndarray]],
        state: Mapping[str, np.ndarray],
        keep: Sequence[str] | None = None,
        *,
        fill: int | None = None,
    ) -> list[dict[str, np.ndarray]]:
        """As `judge.protocol.Remembering.run_steps`; the program keeps its own state."""
        torch = optional("torch", PURPOSE)
        shapes = user_shapes(self.program)
        fed = [feed(shapes, inputs) for inputs in steps]
        self._notes = fed[0][1]
        declared = output_names(self.program)
        before = torch.get_num_threads()
        if self.threads:
            torch.set_num_threads(self.threads)
        module = self.program.module()
        call = None if self.compiling is None else self.compiling.call(torch, module)
        counting = (
            contextlib.nullcontext()
            if self.compiling is None
            else self.compiling.counted(self._applied)
        )
        results = []
        try:
            with (
                counting,
                borrowed(module) as memory,
                contextlib.nullcontext() if fill is None else self._poisoned(fill),
                self.torch_device.entered(),
            ):
                memory.put({v: state[v] for v in graph.state if v in state})
                for named, _ in fed:
                    options = {"module": module, "call": call, "written": written(graph)}
                    run = partial(run_exported, self.program, named, keep or (), **options)
                    values, notes = collect(graph, called(run, (), self.name), declared)
                    self._notes |= {**notes, **memory.notes(graph)}
                    results.append({**values, **memory.new(graph.state)})
        finally:
            torch.set_num_threads(before)
        return results
