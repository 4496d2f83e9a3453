"""`compile`, and what it gives: apart from the rest of the interface, so that whoever only compiles
does not wait for the judge and the runners to be imported."""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

import numpy as np

from verax.base.errors import UsageError
from verax.base.lazy import deferred
from verax.base.option_groups.compile_options import (
    COMPILED_AS_USUAL,
    CompilationKeywords,
    CompilationOptions,
)
from verax.base.option_groups.keywords import with_options
from verax.base.option_groups.options import changed
from verax.base.tensors import inputs_by_name, is_tensor
from verax.compiler.artifacts.cache import RECORD, ProgramCache, default_cache
from verax.compiler.artifacts.default_history import tuned_schedules
from verax.compiler.artifacts.save import read_recipe, save
from verax.compiler.artifacts.saved_program import SavedExecutable
from verax.compiler.compile import compile_as
from verax.compiler.executable import Executable
from verax.compiler.specialized import MANY_BYTES
from verax.frontends.model import Model
from verax.ir.deferred import DeferredGraph, deferred_from
from verax.ir.graph import Graph
from verax.loading import load, record_name

if TYPE_CHECKING:
    from verax.compiler.pipeline.recipe import follow, require_same
else:  # only followed recipes need it
    follow = deferred("verax.compiler.pipeline.recipe:follow")
    require_same = deferred("verax.compiler.pipeline.recipe:require_same")

Network: TypeAlias = Any
"""A `Model`, a `Graph`, a path, or an object that `load` reads."""
Arrays: TypeAlias = Mapping[str, np.ndarray]
Progress: TypeAlias = Callable[[int, int, str], None]
"""Called with (nodes judged, nodes in all, name of the node)."""
CERTIFIED, TENSORS = "verax.certified", "verax.runners.pytorch.torch_calls"
DEFERRED = "verax.frontends.deferred_model"
"""Loaded when they are needed."""


class Compiled(Executable):
    """A compiled network: `run({"x": x})`, `exe(x)`, `plan`, `save("net.vx")`.

    program: the PyTorch program that it was made from, if it was one. options: of `compile`; a
    file that it is saved to holds them.
    """

    program: Any = None
    options: CompilationOptions = COMPILED_AS_USUAL

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
        self,
        path: str | os.PathLike[str],
        *,
        sign: str | os.PathLike[str] | None = None,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        """Write the program used last to a .vx file, which `load` reads without the model.

        sizes: of all open sizes by name: in its place the program for many sizes is written that
        is made for these, and serves all that decide alike (`docs/changing_sizes.md`). sign: a PEM
        file with the Ed25519 private key to sign it with (see `runtime.signature`).
        Raises `InputError` when shapes are symbolic and nothing was run yet, `UsageError` when
        the file cannot be written or there is no such key.
        """
        save(self, path, sign, self.options, sizes)


def model_of(
    network: Network, inputs: Any = None, shapes: Mapping[str, Any] | None = None
) -> Model | Graph:
    """A model or a graph as it is, anything else as `load` reads it."""
    if shapes and isinstance(network, Graph | Model):
        raise UsageError(
            "sizes are given for a model that is loaded already",
            place=", ".join(shapes),
            next_step="give shapes to verax.load, or the model's file to verax.compile",
        )
    if isinstance(network, Graph):
        return network
    is_loaded = isinstance(network, Model | SavedExecutable | Executable)
    loaded = network if is_loaded else load(network, inputs=inputs, shapes=shapes)
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


@with_options(CompilationOptions)
def compile(
    model: Network,
    inputs: Any = None,
    *,
    shapes: Mapping[str, Any] | None = None,
    samples: Arrays | Sequence[Arrays] | None = None,
    progress: Progress | None = None,
    options: CompilationOptions = COMPILED_AS_USUAL,
    **keywords: Unpack[CompilationKeywords],
) -> Compiled:
    """Compile a model to native code: at once for fixed shapes, at the first run for open ones.

    model: a `Model`, a graph, or whatever `load` reads. inputs: what a `torch.nn.Module` is
    exported with, shapes: sizes for what the model leaves open, both as `load` takes them.
    samples: inputs for a certificate, one set or several; by default some are drawn.
    `exe.certificate` says what was found, and whether it holds. progress: of judging. options: how
    it is compiled; keywords: fields of it, which come before `options`.

    Raises `InputError` before it would take more memory than it may, `UnsupportedError` for what
    `require_native` refuses, `CompileError` where a recipe cannot be followed, and `UsageError` for
    a recipe beside a level or passes.
    """
    options = changed(options, keywords)
    if options.recipe is not None and options.selects_passes:
        raise UsageError(
            "a recipe says itself which passes run",
            next_step="leave opt_level, disable, require and allow out",
        )
    settings = options.settings
    network, followed = model_of(model, inputs, shapes), read_recipe(options.recipe)
    graph = releasable_graph(network) if isinstance(network, Model) else network
    program = network.program if isinstance(network, Model) else None
    origin = network.origin if isinstance(network, Model) else None
    key = origin.key if origin is not None else ""
    program_cache = default_cache() if options.cache else None
    schedules = tuned_schedules(
        options.history or options.tuned if options.tuned else False, settings
    )
    if not options.certify:
        exe = compile_as(Compiled, graph, settings, followed, program_cache, schedules, key)
        exe.program, exe.options = program, options
        exe.release_translations()
        if program_cache is not None and isinstance(network, Model):
            _keep_record(program_cache, network, exe)
        return exe
    settings = settings if followed is None else follow(followed, settings)
    pixels = network.pixels if isinstance(network, Model) else None
    exe, certificate = import_module(CERTIFIED).compile_certified(
        lambda asked: compile_as(
            Compiled, graph, asked, cache=program_cache, tuned=schedules, origin=key
        ),
        graph,
        settings,
        samples=samples,
        draws=options.draws,
        seed=options.seed,
        pixels=pixels,
        progress=progress,
        cache=program_cache,
    )
    if followed is not None:
        require_same(followed, exe.recipe)  # a layer that went back is another recipe
    exe.certificate = certificate
    exe.program, exe.options = program, options
    exe.release_translations()
    return exe


def releasable_graph(model: Model) -> Graph:
    """The model's graph, or one that is equal and gives its constants up when they are packed: they
    are had from the model again if somebody holds it, else from its files."""
    graph, origin = model.graph, model.origin
    if origin is None or isinstance(graph, DeferredGraph) or graph.updates:
        return graph
    if sum(a.nbytes for a in graph.constants.values()) <= MANY_BYTES:
        return graph
    reference = weakref.ref(graph)
    return deferred_from(graph, lambda: reference() or origin.model().graph)


def _keep_record(cache: ProgramCache, model: Model, exe: Executable) -> None:
    """Keep what lets `load` leave the file's nodes unread next time, unless it did so now."""
    origin = model.origin
    if origin is None or not exe.is_decided_by_shapes:
        return
    deferred_models = import_module(DEFERRED)
    if not isinstance(model, deferred_models.DeferredModel):
        record = deferred_models.record_of(model)
        if record is not None:
            cache.keep_text(record_name(origin.sha256, origin.options), json.dumps(record), RECORD)
