"""The Python interface: `load`, `compile`, `reference`, `check`, `bisect`, `evaluate`,
`substitute`.

`import verax` does not import this module until one of its names is used, so that it stays cheap.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from verax.base.arrays import as_arrays
from verax.base.errors import UsageError
from verax.base.kept import keeping
from verax.base.memory import parse_bytes
from verax.base.reading import stamp
from verax.base.settings import DEFAULT_LEVEL, Settings
from verax.certified import compile_certified
from verax.compiler.cache import default_cache
from verax.compiler.driver import Executable
from verax.compiler.measured import measured
from verax.compiler.recipe import follow, require_same
from verax.compiler.saved import SavedExecutable
from verax.compiler.saving import read_recipe, save
from verax.evaluation import evaluate as evaluate_samples
from verax.evaluation.falls import find_fall
from verax.exchanged import Exchanged, exchanged
from verax.formats import VX
from verax.frontends.model import Model
from verax.images import ImageOptions
from verax.ir.graph import Graph
from verax.ir.pixels import Pixels
from verax.judge import check as judge_check
from verax.judge.align.networks import align as judge_align
from verax.judge.bisect import bisect as judge_bisect
from verax.judge.bisect import with_accuracy
from verax.judge.locate.consecutive import in_steps
from verax.judge.protocol import Runner
from verax.judge.regions.network import Progress
from verax.loading import is_from, load
from verax.records.alignment import Alignment
from verax.records.bisection import Bisection
from verax.records.evaluation import Evaluation
from verax.records.recipe import Recipe
from verax.records.verdict import Verdict
from verax.reference.evaluate import evaluate as evaluate_graph
from verax.repro.write import prepare, write_cases
from verax.runners.child_runner import TIMEOUT
from verax.runners.executables import ExecutableRunner
from verax.runners.limited import limited
from verax.runners.network import NetworkRunner
from verax.runners.own import VeraxRunner
from verax.runners.passes import PassOptions, with_passes
from verax.runners.registry import RUNNERS, resolve
from verax.runners.torch_calls import (
    as_tensors,
    in_its_form,
    is_module,
    is_tensor,
    named_examples,
    placed,
)
from verax.verified_conversion import Converted
from verax.verified_conversion import convert as convert_verified

Arrays: TypeAlias = Mapping[str, np.ndarray]
Inputs: TypeAlias = Arrays | Sequence[Arrays]
"""Of one run; or, for a network that remembers, of several consecutive ones."""
Network: TypeAlias = Any
"""A `Model`, a `Graph`, a path, or an object that `load` reads."""
Subject: TypeAlias = Any
"""A `Runner`, a runner's name, a network, an executable, a path, arrays by name, a torch module or
a function from arrays to arrays."""


OWN = ("verax", "reference")
"""Runners that are given the network in memory, never its file."""


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
                by_name = placed(list(self.inputs), arrays, named)
                arrays = tuple(by_name[v] for v in self.inputs)
            return super().__call__(*arrays)
        found = self.run(placed(list(self.inputs), arrays, named))
        results = [found[v] for v in self.graph.returned]
        return in_its_form(self.program, results) if self.program else as_tensors(results)

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
    known = isinstance(network, Model | SavedExecutable | Executable)
    loaded = network if known else load(network, inputs=inputs)
    if isinstance(loaded, SavedExecutable | Executable):
        raise UsageError(
            "a compiled program does not say what is right",
            place=str(network) if isinstance(network, str | os.PathLike) else "",
            next_step="give the model that it was compiled from",
        )
    return loaded


def graph_of(network: Network, inputs: Any = None) -> Graph:
    """The graph of a model, of a graph, or of whatever `load` reads."""
    found = model_of(network, inputs)
    return found.graph if isinstance(found, Model) else found


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
    within rounding) or 3 (Winograd's algorithm: approximate), which is the default. All give the
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
    most = parse_bytes(memory) if isinstance(memory, str) else memory
    settings = Settings(
        DEFAULT_LEVEL if opt_level is None else opt_level,
        threads or 0,
        target,
        tuple(disable),
        tuple(require),
        checked,
        memory=most,
        require_native=require_native,
        allow=(allow,) if isinstance(allow, str) else tuple(dict.fromkeys(allow)),
    )
    network, followed = model_of(model, inputs), read_recipe(recipe)
    graph = graph_of(network)
    program = network.program if isinstance(network, Model) else None
    kept, found = default_cache() if cache else None, measured(tuned, settings)
    if not certify:
        exe = Compiled(graph, settings, followed, kept, found)
        exe.program = program
        return exe
    settings = settings if followed is None else follow(followed, settings)
    pixels = network.pixels if isinstance(network, Model) else None
    exe, certificate = compile_certified(
        lambda asked: Compiled(graph, asked, cache=kept, tuned=found),
        graph,
        settings,
        samples=samples,
        draws=draws,
        seed=seed,
        pixels=pixels,
        progress=progress,
        cache=kept,
    )
    if followed is not None:
        require_same(followed, exe.recipe)  # a layer that went back is another recipe
    exe.certificate = certificate
    exe.program = program
    return exe


def reference(
    model: Network,
    inputs: Any,
    *,
    state: Arrays | None = None,
    keep: str | Sequence[str] = "outputs",
) -> dict[str, np.ndarray]:
    """Float64 values of a model by its operators' meaning.

    inputs: by name; of a torch.nn.Module as `load` takes them.
    state: of a model that remembers, in its declared types; what is left out has its initial value.
    Its new values are outputs of the names that `model.graph.state` gives. keep: "outputs", "all",
    or names of values.
    """
    network, inputs = with_examples(model, inputs)
    given = {**as_arrays(inputs), **as_arrays(state or {})}
    return evaluate_graph(graph_of(network), given, keep=keep)


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
) -> Runner:
    """The Runner behind whatever the user calls a subject; `model` is what it is judged against.

    Raises `UsageError` when the model's file is another one than was loaded.

    timeout: seconds that one of its runs may take; None for no limit in this process, and
    `runners.child_runner.TIMEOUT` in others.
    """
    runner = _runner_of(subject, model, threads, TIMEOUT if timeout is None else timeout)
    return runner if timeout is None else limited(runner, timeout)


def _runner_of(subject: Subject, model: Network | None, threads: int, timeout: float) -> Runner:
    if is_from(subject, "torch.onnx"):
        subject = load(subject)
    if isinstance(subject, Model | Graph):
        name = subject.source if isinstance(subject, Model) else ""
        return NetworkRunner(graph_of(subject), name, Settings(threads=threads))
    if isinstance(subject, str | os.PathLike) and os.fspath(subject).endswith(VX.suffixes):
        subject = load(subject)
    if isinstance(subject, Executable | SavedExecutable):
        return ExecutableRunner(subject, type(subject).__name__.lower())
    source = model.source if isinstance(model, Model) else model
    known = source if isinstance(source, str | os.PathLike) and os.path.exists(source) else None
    reads = isinstance(subject, str) and subject.partition(":")[0] not in OWN
    was = model.stamp if reads and isinstance(model, Model) and known is not None else ()
    if was and was != stamp(str(known)):
        raise UsageError(
            "the model's file has changed since it was loaded; a runtime would be given another "
            "network than the one that it is judged by",
            place=str(known),
            next_step="load it again",
        )
    program = model.program if isinstance(model, Model) else None
    calls = model.modules or None if isinstance(model, Model) else None
    return resolve(
        subject, source=known, threads=threads, program=program, calls=calls, timeout=timeout
    )


def check(
    model: Network,
    subject: Subject = f"verax:O{DEFAULT_LEVEL}",
    inputs: Inputs | None = None,
    *,
    passes: Sequence[str] | None = None,
    disable: Sequence[str] = (),
    inject: Sequence[str] = (),
    **options: Any,
) -> Verdict:
    """Judge what `subject` makes of `model`, value by value, against the float64 meaning.

    subject: a runner's name ("onnxruntime", "verax:O1", ...), a model, an executable, a path
    (.npz, .onnx, .vx), arrays by name, a torch module or ExportedProgram, or a function from inputs
    to outputs. inputs: arrays or tensors by name, drawn (seeded) when not given; a list of them for
    consecutive runs of a model that remembers, which is judged over two runs or more; of a
    torch.nn.Module as `load` takes them. passes,
    disable, inject: of the subject's optimisations, as for `bisect`. options: those of
    `verax.judge.check`.
    """
    network, inputs = with_examples(model, inputs)
    options.setdefault("pixels", _pixels_of(network))
    chosen = PassOptions.of(passes, disable, inject)
    runner = with_passes(subject_of(subject, network), chosen)
    return judge_check(graph_of(network), runner, _of_runs(inputs), **options)


def with_examples(model: Network, inputs: Any) -> tuple[Model | Graph, Any]:
    """A model and its inputs by name; of a torch.nn.Module they are also what it is exported
    with, in any form that `load` takes."""
    if not is_module(model):
        return model_of(model), inputs
    network = model_of(model, inputs)
    assert isinstance(network, Model)
    return network, named_examples(network.program, inputs)


def _given(inputs: Arrays | None) -> Arrays | None:
    return None if inputs is None else as_arrays(inputs)


def _of_runs(inputs: Inputs | None) -> Inputs | None:
    """Inputs of one run or of several, as arrays."""
    if inputs is None or isinstance(inputs, Mapping):
        return _given(inputs)
    return [as_arrays(one) for one in inputs]


def _pixels_of(model: Network) -> dict[str, Pixels]:
    """What the file says of its image inputs, where it is at hand."""
    return model.pixels if isinstance(model, Model) else {}


def align(
    first: Network, second: Network, inputs: Arrays | None = None, **options: Any
) -> Alignment:
    """Whether two networks are one function, whatever their names and layouts; if not, where they
    part and by what.

    inputs: by the first network's names; drawn (seeded) when not given. options: those of
    `verax.judge.align.networks.align`.
    """
    return judge_align(graph_of(first), graph_of(second), _given(inputs), **options)


def convert(model: Network, path: str | os.PathLike[str], **options: Any) -> Converted:
    """Write a model of any format as ONNX, run the file with ONNX Runtime and judge the result.

    The verdict is stored in the file, too. options: those of
    `verax.verified_conversion.convert` (opset, verify, inputs, seed). Raises what it raises.
    """
    loaded = model if isinstance(model, Model) else load(model)
    if isinstance(loaded, SavedExecutable):
        raise UsageError("a compiled program cannot be turned back into a model", place=str(model))
    return convert_verified(loaded, path, **options)


@keeping()
def evaluate(
    model: Network,
    data: Any,
    labels: Any = None,
    *,
    against: Subject | None = None,
    opt_level: int | None = None,
    threads: int = 0,
    timeout: float | None = None,
    passes: Sequence[str] | None = None,
    disable: Sequence[str] = (),
    inject: Sequence[str] = (),
    **options: Any,
) -> Evaluation:
    """How often a model, compiled by Verax, is right on labelled samples; with `against`, on which
    of them another implementation chooses differently, and whether rounding explains it.

    data: a folder of images, an .npz file, an array [n, ...] or arrays by name. labels: a file, or
    an array [n] of class numbers or names; what the data state if not given. against: a subject as
    `check` takes it. opt_level, threads, passes, disable, inject: of the compiled model, as for
    `bisect`. timeout: seconds for one run of `against`. options, and what is raised: those of
    `verax.evaluation.evaluate.evaluate`.
    """
    network = model_of(model)
    plain = Settings()
    level = DEFAULT_LEVEL if opt_level is None else opt_level
    own = VeraxRunner(dataclasses.replace(plain, opt_level=level, threads=threads))
    own = own.with_passes(PassOptions.of(passes, disable, inject))
    subject = None if against is None else _network_or_subject(against, network, threads, timeout)
    options.setdefault("pixels", _pixels_of(network))
    return evaluate_samples(graph_of(network), own, data, labels, against=subject, **options)


def _network_or_subject(
    subject: Subject, model: Network, threads: int, timeout: float | None
) -> Runner:
    """As `subject_of`; but a model's file, ONNX among them, is compiled by Verax."""
    if isinstance(subject, str | os.PathLike) and subject not in RUNNERS:
        path = os.fspath(subject)
        if os.path.exists(path) and not path.endswith((".npz", *VX.suffixes)):
            subject = load(path)
    return subject_of(subject, model, threads, timeout)


@keeping()
def bisect(
    model: Network,
    subject: Subject = f"verax:O{DEFAULT_LEVEL}",
    inputs: Inputs | None = None,
    *,
    steps: int | None = None,
    repro: str | os.PathLike[str] | None = None,
    force: bool = False,
    winograd: bool = True,
    passes: Sequence[str] | None = None,
    disable: Sequence[str] = (),
    inject: Sequence[str] = (),
    images: Any = None,
    labels: Any = None,
    image: ImageOptions | None = None,
    **options: Any,
) -> Bisection:
    """Judge as `check` does, then name the guilty nodes, what they computed instead, and the
    optimisation that brought it.

    repro: an empty folder for minimal cases, one for each guilty node; force: write into it though
    it is not empty. passes: names of the only passes and decisions that the subject makes, None
    for all; disable: those that it does not; inject: files that define further ones, which are
    Python code that is run (docs/extend/pass.md). images, labels: labelled samples as `evaluate`
    takes them: the step at which the accuracy falls is searched as well, and the inputs judged are
    samples that become wrong. image: how pictures become inputs. Other options: those of
    `verax.judge.bisect.bisect`.
    """
    network, inputs = with_examples(model, inputs)
    inputs = _of_runs(inputs)
    chosen = PassOptions.of(passes, disable, inject)
    graph, runner = graph_of(network), with_passes(subject_of(subject, network), chosen)
    graph, runner, inputs = in_steps(graph, runner, inputs, steps)
    said = options.setdefault("pixels", _pixels_of(network))
    fall = None
    if images is not None:
        if inputs is not None:
            raise UsageError(
                "samples give the inputs, and inputs are given as well",
                next_step="leave one of them out",
            )
        show = options.get("progress")
        fall = find_fall(graph, runner, images, labels, image=image, pixels=said, progress=show)
        inputs = fall.inputs
    folder = None if repro is None else prepare(repro, force=force)
    found = judge_bisect(graph, runner, inputs, winograd=winograd, **options)
    if fall is not None:
        found = with_accuracy(found, fall.found, fall.names)
    if folder is None:
        return found.record
    return write_cases(
        graph, runner, found, folder, winograd=winograd, progress=options.get("progress")
    )
