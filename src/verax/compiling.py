"""`compile`, and what it gives: apart from the rest of the interface, so that whoever only compiles
does not wait for the judge and the runners to be imported."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np

from verax.base.errors import UsageError
from verax.base.memory import parse_bytes
from verax.base.settings import DEFAULT_LEVEL, Settings
from verax.base.tensors import inputs_by_name, is_tensor
from verax.compiler.cache import default_cache
from verax.compiler.driver import Executable
from verax.compiler.recipe import follow, require_same
from verax.compiler.saved import SavedExecutable
from verax.compiler.saving import read_recipe, save
from verax.compiler.tuned_schedules import tuned_schedules
from verax.frontends.model import Model
from verax.ir.graph import Graph
from verax.loading import load
from verax.records.recipe import Recipe

Network: TypeAlias = Any
"""A `Model`, a `Graph`, a path, or an object that `load` reads."""
Arrays: TypeAlias = Mapping[str, np.ndarray]
Progress: TypeAlias = Callable[[int, int, str], None]
"""Called with (nodes judged, nodes in all, name of the node)."""
CERTIFIED, TENSORS = "verax.certified", "verax.runners.torch_calls"
"""Loaded when they are needed."""


class Compiled(Executable):
    """A compiled network: `run({"x": x})`, `exe(x)`, `plan`, `save("net.vx")`.

    program: the PyTorch program that it was made from, if it was one.
    """

    program: Any = None

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        """`run` with inputs by position and by name; one array, or a tuple of several outputs.

        For tensors of PyTorch there are tensors, in the form in which the module returns them (a
        dictionary stays one). Raises `InputError` or `UsageError` when inputs do not fit.
        """
        if not named and all(type(a) is np.ndarray for a in arrays):
            return super().__call__(*arrays)
        if not any(map(is_tensor, (*arrays, *named.values()))):
            if named:
                by_name = inputs_by_name(list(self.inputs), arrays, named)
                arrays = tuple(by_name[v] for v in self.inputs)
            return super().__call__(*arrays)
        calls = import_module(TENSORS)
        outputs = self.run(inputs_by_name(list(self.inputs), arrays, named))
        results = [outputs[v] for v in self.graph.returned]
        return (
            calls.as_module_output(self.program, results)
            if self.program
            else calls.as_tensors(results)
        )

    def save(
        self, path: str | os.PathLike[str], *, sign: str | os.PathLike[str] | None = None
    ) -> None:
        """Write the program used last to a .vx file, which `load` reads without the model.

        sign: a PEM file with the Ed25519 private key to sign it with (see `runtime.signature`).
        Raises `InputError` when shapes are symbolic and nothing was run yet, `UsageError` when
        the file cannot be written or there is no such key.
        """
        save(self, path, sign)


def model_of(network: Network, inputs: Any = None) -> Model | Graph:
    """A model or a graph as it is, anything else as `load` reads it."""
    if isinstance(network, Graph):
        return network
    is_loaded = isinstance(network, Model | SavedExecutable | Executable)
    loaded = network if is_loaded else load(network, inputs=inputs)
    if isinstance(loaded, SavedExecutable | Executable):
        raise UsageError(
            "a compiled program does not say what is right",
            place=str(network) if isinstance(network, str | os.PathLike) else "",
            next_step="give the model that it was compiled from",
        )
    return loaded


def graph_of(network: Network, inputs: Any = None) -> Graph:
    """The graph of a model, of a graph, or of whatever `load` reads."""
    model = model_of(network, inputs)
    return model.graph if isinstance(model, Model) else model


def compile(
    model: Network,
    inputs: Any = None,
    *,
    opt_level: int | None = None,
    threads: int | None = None,
    target: str = "host",
    disable: Sequence[str] = (),
    require: Sequence[str] = (),
    allow: Sequence[str] = (),
    checked: bool = False,
    memory: int | str = 0,
    require_native: bool = False,
    recipe: Recipe | str | os.PathLike[str] | None = None,
    certify: bool = False,
    samples: Arrays | Sequence[Arrays] | None = None,
    draws: int = 1,
    seed: int = 0,
    progress: Progress | None = None,
    cache: bool = True,
    tuned: bool | str | os.PathLike[str] = True,
) -> Compiled:
    """Compile a model to native code: at once for fixed shapes, at the first run for open ones.

    model: a `Model`, a graph, or whatever `load` reads. inputs: what a `torch.nn.Module` is
    exported with, as `load` takes them.
    opt_level: 0 (every node by itself), 1 (fused; the same bits), 2 (scales folded into weights:
    within rounding) or 3 (fast algorithms: approximate), which is the default. All give the
    same bits on every machine. threads: None for as many as this process has cores, fewer under a
    CPU quota or OMP_NUM_THREADS. disable, require: names of passes. allow: ("bf16",) lets O3 round
    the factors of products to bfloat16; the certificate says what it costs. checked: verify the
    graph around every pass. memory: bytes, or "8G", that one value and the program's buffers may
    take; 0 for VERAX_MEMORY or most of what is free. Raises `InputError` before it would take more.
    require_native: raise `UnsupportedError` for a node that would run on the reference, in Python.
    recipe: of an earlier program of the same model (`exe.recipe`, its JSON file, or a .vx file):
    the same bits, or `CompileError`. It says level and passes itself: `UsageError` with both.
    certify: judge the program against float64 before it is handed over; layers whose approximation
    does not stand go back to direct summation. `exe.certificate` says what was found, and whether
    it holds. samples: inputs for that, one set or several; by default `draws` sets are drawn from
    `seed`. cache: keep program and certificate on disk, and take them from there if they were made
    before; `verax.compiler.cache` says where and when. tuned: take the schedules that `tune` found
    for exactly these kernels on this machine, from the history beside the kept programs or from a
    file; False for none. They change no bit, and `exe.plan` says which were found.
    """
    if recipe is not None and (opt_level is not None or disable or require or allow):
        raise UsageError(
            "a recipe says itself which passes run",
            next_step="leave opt_level, disable, require and allow out",
        )
    max_bytes = parse_bytes(memory) if isinstance(memory, str) else memory
    settings = Settings(
        DEFAULT_LEVEL if opt_level is None else opt_level,
        threads or 0,
        target,
        tuple(disable),
        tuple(require),
        checked,
        memory=max_bytes,
        require_native=require_native,
        allow=(allow,) if isinstance(allow, str) else tuple(dict.fromkeys(allow)),
    )
    network, followed = model_of(model, inputs), read_recipe(recipe)
    graph = graph_of(network)
    program = network.program if isinstance(network, Model) else None
    program_cache, schedules = default_cache() if cache else None, tuned_schedules(tuned, settings)
    if not certify:
        exe = Compiled(graph, settings, followed, program_cache, schedules)
        exe.program = program
        return exe
    settings = settings if followed is None else follow(followed, settings)
    pixels = network.pixels if isinstance(network, Model) else None
    exe, certificate = import_module(CERTIFIED).compile_certified(
        lambda certified_settings: Compiled(
            graph, certified_settings, cache=program_cache, tuned=schedules
        ),
        graph,
        settings,
        samples=samples,
        draws=draws,
        seed=seed,
        pixels=pixels,
        progress=progress,
        cache=program_cache,
    )
    if followed is not None:
        require_same(followed, exe.recipe)  # a layer that went back is another recipe
    exe.certificate = certificate
    exe.program = program
    return exe
