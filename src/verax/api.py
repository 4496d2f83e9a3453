"""The Python interface: `load`, `compile`, `reference`, `check`, `bisect`, `evaluate`,
`substitute`.

`import verax` does not import this module until one of its names is used, so that it stays cheap.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, Unpack

import numpy as np

from verax.base.arrays import as_arrays
from verax.base.errors import UsageError
from verax.base.option_groups.keywords import with_options
from verax.base.option_groups.options import (
    CHECKED_AS_USUAL,
    CheckOptions,
    JudgingKeywords,
    PassOptions,
    changed,
    parted,
)
from verax.base.option_groups.settings import DEFAULT_LEVEL
from verax.base.process.helpers import helper_scope
from verax.base.storage.reading import stamp
from verax.base.tensors import is_function, is_module, named_inputs
from verax.by_value import by_value, same_inputs, same_outputs
from verax.compiler.artifacts.saved_program import SavedExecutable
from verax.compiling import Network, graph_of, model_of
from verax.evaluation.accuracy_drop import find_accuracy_drop
from verax.exchanged import Exchanged, exchanged
from verax.frontends.model import Model
from verax.images import ImageOptions
from verax.ir.graph import Graph
from verax.ir.pixels import Pixels
from verax.judge import check as judge_check
from verax.judge.align.networks import align as judge_align
from verax.judge.bisect import bisect as judge_bisect
from verax.judge.bisect import with_accuracy
from verax.judge.locate.consecutive import in_steps
from verax.judge.protocol import Naming, Runner
from verax.judge.regions.network import Progress
from verax.loading import load
from verax.records.alignment import Alignment
from verax.records.bisection import Bisection
from verax.records.verdict import Verdict
from verax.reference.evaluate import evaluate as evaluate_graph
from verax.repro.write import prepare, write_cases
from verax.runners.children.child_runner import TIMEOUT
from verax.runners.children.limited import limited
from verax.runners.inputs_as_given import inputs_by_input, with_devices, with_inputs_like
from verax.runners.passes import with_passes
from verax.runners.pytorch.torch_calls import named_examples
from verax.runners.subjects.factory import runner_of
from verax.runners.subjects.resolve import (
    LoadedNetwork,
    ModelFile,
    NamedRunner,
    OnnxProgram,
    ProgramFile,
    Resolved,
    RunnerOnFile,
    TextSubject,
    resolve,
)
from verax.verified_conversion import Converted
from verax.verified_conversion import convert as convert_verified

Arrays: TypeAlias = Mapping[str, np.ndarray]
ShareProgress: TypeAlias = Callable[[str, float], None]
"""Called with what is being done, and the share done."""
Inputs: TypeAlias = Arrays | Sequence[Arrays]
"""Of one run; or, for a network that remembers, of several consecutive ones."""
Subject: TypeAlias = Any
"""A `Runner`, a runner's name, a network, an executable, a path, arrays by name, an array or
several in the order of the outputs, a torch module or a function from arrays to arrays."""


def reference(
    model: Network,
    inputs: Any,
    *,
    state: Arrays | None = None,
    keep: str | Sequence[str] = "outputs",
) -> dict[str, np.ndarray]:
    """Float64 values of a model by its operators' reference semantics.

    inputs: by name; of a torch.nn.Module as `load` takes them.
    state: of a model that remembers, in its declared types; what is left out has its initial value.
    Its new values are outputs of the names that `model.graph.state` gives. keep: "outputs", "all",
    or names of values.
    """
    network, inputs = with_examples(model, inputs)
    graph = graph_of(network)
    values = {**inputs_of(graph, inputs), **as_arrays(state or {})}
    return evaluate_graph(graph, values, keep=keep)


def substitute(
    model: Network, replacements: Mapping[Any, Callable[..., Any]], inputs: Any = None
) -> Exchanged:
    """The network with nodes exchanged for functions of arrays, forward only.

        net = verax.substitute("net.onnx", {"Conv": my_conv, "head_*": other})
        net(x), net.verdicts, net.verdict

    replacements: a pattern of node names, a kind of operator, a class of operators or a predicate
    of nodes -> a function of the node's inputs in order, which may name attributes (`strides`) and
    gives its outputs. Each is judged alone, and the whole, at every run. inputs: examples for a
    torch.nn.Module; of a living one `verax.torch.substitute` exchanges layers, with gradients.
    Raises `UsageError` for a key that fits no node, and for networks that remember.
    """
    network, _ = with_examples(model, inputs)
    return exchanged(graph_of(network), replacements)


def subject_of(
    subject: Subject,
    model: Network | None = None,
    threads: int = 0,
    timeout: float | None = None,
    device: str = "",
) -> Runner:
    """The Runner behind whatever the user calls a subject; `model` is what it is judged against.

    Raises `UsageError` when the model's file is another one than was loaded.

    device: of a runner by name, "" for where the model is. timeout: seconds that one of its runs
    may take; None for no limit in this process, and `runners.children.child_runner.TIMEOUT` in
    others.
    """
    resolved = _loaded(resolve(subject))
    loaded = model if isinstance(model, Model) else None
    runner = runner_of(
        resolved,
        source=_source(resolved, model),
        threads=threads,
        timeout=TIMEOUT if timeout is None else timeout,
        program=loaded.program if loaded else None,
        calls=(loaded.modules or None) if loaded else None,
        device=device,
    )
    runner = _aligned(resolved, runner, model)
    return runner if timeout is None else limited(runner, timeout)


def _loaded(subject: Resolved) -> Resolved:
    """The subject; of a file that runs in no runtime but ours, what `load` makes of it."""
    match subject:
        case ProgramFile(path):
            return resolve(load(path))
        case ModelFile(path) if not subject.is_onnx:
            return resolve(load(path))
        case OnnxProgram(program):
            return resolve(load(program))
    return subject


def _aligned(subject: Resolved, runner: Runner, model: Network | None) -> Runner:
    """The runner, under the names of the network it is judged by where it runs another file, or
    another network whose inputs are laid out, or outputs named, otherwise."""
    if model is None or isinstance(model, str | os.PathLike):
        return runner
    match subject:
        case LoadedNetwork(network):
            first, second = graph_of(model), graph_of(network)
            alike = same_inputs(first, second) and same_outputs(first, second)
            return runner if alike else by_value(runner, second)
        case RunnerOnFile(_, _, path) if subject.is_onnx:
            runs_named_by_hint = runner.capabilities.naming is Naming.hint
            return by_value(runner, graph_of(path)) if runs_named_by_hint else runner
    return runner


def _source(subject: Resolved, model: Network | None) -> str | os.PathLike[str] | None:
    """The file of the model, if there is one. Raises `UsageError` when the subject would read it,
    and it is another one than was loaded."""
    file = model.source if isinstance(model, Model) else model
    if not isinstance(file, str | os.PathLike) or not os.path.exists(file):
        return None
    ours = isinstance(subject, NamedRunner) and subject.is_ours
    stamped = model.stamp if isinstance(model, Model) else ()
    if stamped and isinstance(subject, TextSubject) and not ours and stamped != stamp(str(file)):
        raise UsageError(
            "the model's file has changed since it was loaded; a runtime would be given another "
            "network than the one that it is judged by",
            place=str(file),
            next_step="load it again",
        )
    return file


@with_options(PassOptions, CheckOptions)
def check(
    model: Network,
    subject: Subject = f"verax:O{DEFAULT_LEVEL}",
    inputs: Inputs | None = None,
    *,
    other: Subject | None = None,
    sizes: Mapping[str, int] | None = None,
    pixels: Mapping[str, Pixels] | None = None,
    device: str = "",
    progress: Progress | None = None,
    options: CheckOptions = CHECKED_AS_USUAL,
    **keywords: Unpack[JudgingKeywords],
) -> Verdict:
    """Judge what `subject` makes of `model`, value by value, against the float64 meaning.

    model: what `load` reads, a function of PyTorch's tensors (`torch.matmul`) among it. subject: a
    runner's name ("onnxruntime", "verax:O1", ...), a model, an executable, a path (.npz, .onnx,
    .vx), arrays by name, an array or several in the order of the outputs, a torch module or
    ExportedProgram, which runs on its own device, or a function from inputs to outputs, which is
    handed arrays of the library and device that `inputs` are of. inputs: arrays or tensors by name,
    drawn (seeded) when not given; a list of them for consecutive runs of a model that remembers,
    which is judged over two runs or more; of a torch.nn.Module or a function as `load` takes them.
    Arrays may be of PyTorch, JAX, CuPy or whatever has `__dlpack__`, on any device. other: a second
    subject; the verdict's comparisons say which of the two is nearer to the float64 meaning, by
    names that differ. device: of a subject that is a runner's name ("cuda:0" for "torch"), "" for
    where the model is. sizes, pixels: of inputs that are drawn, by symbol and by input; the latter
    by default as the file says. progress: called with (nodes judged, nodes in all, what is judged).
    options: how it is judged; keywords: its fields, which come before it, and those of
    `PassOptions` for the subject's optimizations.
    Raises what `verax.judge.check` raises.
    """
    inputs_as_given = inputs
    network, inputs = with_examples(model, inputs)
    passes, judging_keywords = parted(PassOptions(), keywords)
    runner = subject_of(subject, network, device=device)
    runner = with_passes(_taking(inputs_as_given, runner, network), passes)
    graph = graph_of(network)
    second = (
        None if other is None else _taking(inputs_as_given, subject_of(other, network), network)
    )
    if second is not None:
        name_apart(runner, second, (subject, other))
    verdict = judge_check(
        graph,
        runner,
        _of_runs(graph, inputs),
        other=second,
        sizes=sizes,
        pixels=pixels_of(network) if pixels is None else pixels,
        progress=progress,
        options=changed(options, judging_keywords),
    )
    return with_devices(verdict, inputs_by_input(*_signature(network), inputs_as_given))


def name_apart(first: Runner, second: Runner, subjects: tuple[Subject, Subject]) -> None:
    """Give two runners of one check names that tell which is which: those they have, else what the
    user called them by, else "(first)" and "(second)" behind."""
    if first.name != second.name:
        return
    texts = [s if isinstance(s, str) else "" for s in subjects]
    if all(texts) and texts[0] != texts[1]:
        first.name, second.name = texts
    elif first is not second:
        first.name, second.name = f"{first.name} (first)", f"{second.name} (second)"


def with_examples(model: Network, inputs: Any) -> tuple[Model | Graph, Any]:
    """A model and its inputs by name; of a torch.nn.Module or a function they are also what it is
    exported with, in any form that `load` takes."""
    if not (is_module(model) or is_function(model)):
        return model_of(model), inputs
    network = model_of(model, inputs)
    assert isinstance(network, Model)
    return network, named_examples(network.program, inputs)


def _taking(inputs: Any, runner: Runner, network: Model | Graph) -> Runner:
    """The subject; a function is handed what it is judged on: tensors, or arrays of JAX or CuPy, on
    the device that the user's are on."""
    return with_inputs_like(runner, *_signature(network), inputs)


def _signature(network: Model | Graph) -> tuple[Any, tuple[str, ...]]:
    """The ExportedProgram that a network was made from, if it was, and its inputs."""
    program = network.program if isinstance(network, Model) else None
    return program, tuple(graph_of(network).arguments)


def inputs_of(graph: Graph, inputs: Any) -> Arrays:
    """Inputs of one run, in any form, as arrays by name. Raises `InputError`."""
    return as_arrays(named_inputs(inputs, graph.arguments))


def _inputs_or_none(graph: Graph, inputs: Any) -> Arrays | None:
    return None if inputs is None else inputs_of(graph, inputs)


def _of_runs(graph: Graph, inputs: Any) -> Inputs | None:
    """Inputs of one run or, listed, of several, as arrays by name. Raises `InputError`."""
    if not isinstance(inputs, list | tuple):
        return _inputs_or_none(graph, inputs)
    return [inputs_of(graph, one) for one in inputs]


def pixels_of(model: Network) -> dict[str, Pixels]:
    """What the file says of its image inputs, where it is at hand."""
    return model.pixels if isinstance(model, Model) else {}


def align(
    first: Network,
    second: Network,
    inputs: Arrays | None = None,
    *,
    seed: int = 0,
    sizes: Mapping[str, int] | None = None,
    names: tuple[str, str] = ("first", "second"),
    timeout: float | None = None,
    progress: ShareProgress | None = None,
) -> Alignment:
    """Whether two networks are one function, whatever their names and layouts; if not, where they
    part and by what.

    inputs: by the first network's names; drawn (seeded) when not given. Other arguments and errors
    are those of `verax.judge.align.networks.align`.
    """
    graph = graph_of(first)
    return judge_align(
        graph,
        graph_of(second),
        _inputs_or_none(graph, inputs),
        seed=seed,
        sizes=sizes,
        names=names,
        timeout=timeout,
        progress=progress,
    )


def convert(
    model: Network,
    path: str | os.PathLike[str],
    *,
    opset: int | None = None,
    verify: bool = True,
    inputs: Arrays | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Converted:
    """Write a model of any format as ONNX, run the file with ONNX Runtime and judge the result.

    The verdict is stored in the file, too. Arguments and errors are those of
    `verax.verified_conversion.convert`.
    """
    loaded = model if isinstance(model, Model) else load(model)
    if isinstance(loaded, SavedExecutable):
        raise UsageError("a compiled program cannot be turned back into a model", place=str(model))
    return convert_verified(
        loaded, path, opset=opset, verify=verify, inputs=inputs, seed=seed, progress=progress
    )


@with_options(PassOptions, CheckOptions)
@helper_scope()
def bisect(
    model: Network,
    subject: Subject = f"verax:O{DEFAULT_LEVEL}",
    inputs: Inputs | None = None,
    *,
    repro: str | os.PathLike[str] | None = None,
    force: bool = False,
    images: Any = None,
    labels: Any = None,
    image: ImageOptions | None = None,
    sizes: Mapping[str, int] | None = None,
    pixels: Mapping[str, Pixels] | None = None,
    progress: Progress | None = None,
    options: CheckOptions = CHECKED_AS_USUAL,
    **keywords: Unpack[JudgingKeywords],
) -> Bisection:
    """Judge as `check` does, then name the guilty nodes, what they computed instead, and the
    optimization that brought it.

    repro: an empty folder for minimal cases, one for each guilty node; force: write into it though
    it is not empty. images, labels: labelled samples as `evaluate` takes them: the step at which
    the accuracy falls is searched as well, and the inputs judged are samples that become wrong.
    image: how pictures become inputs. Other arguments and errors are those of `check`; its
    `timeout` is for the verdict, the searches after that have no limit.
    """
    inputs_as_given = inputs
    network, inputs = with_examples(model, inputs)
    graph = graph_of(network)
    runner = _taking(inputs_as_given, subject_of(subject, network), network)
    inputs = _of_runs(graph, inputs)
    passes, judging_keywords = parted(PassOptions(), keywords)
    runner = with_passes(runner, passes)
    judging = changed(options, judging_keywords)
    graph, runner, inputs = in_steps(graph, runner, inputs, judging.steps)
    judging = dataclasses.replace(judging, steps=None)  # unrolled already
    pixels = pixels_of(network) if pixels is None else pixels
    fall = None
    if images is not None:
        if inputs is not None:
            raise UsageError(
                "samples give the inputs, and inputs are given as well",
                next_step="leave one of them out",
            )
        fall = find_accuracy_drop(
            graph, runner, images, labels, image=image, pixels=pixels, progress=progress
        )
        inputs = fall.inputs
    folder = None if repro is None else prepare(repro, force=force)
    bisection = judge_bisect(
        graph, runner, inputs, sizes=sizes, pixels=pixels, progress=progress, options=judging
    )
    if fall is not None:
        bisection = with_accuracy(bisection, fall.search, fall.names)
    if folder is None:
        return bisection.record
    return write_cases(graph, runner, bisection, folder, options=judging, progress=progress)
