"""`Runner`: the protocol between subjects and the judge, and protocols of optional abilities.

A subject may spell the names of its tensors differently ("scores:0", "serving_default_x:0", or its
own names in the network's order). `matched_names` is the one rule by which they are brought
together, on both sides of the protocol; what it assumed is always said.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, runtime_checkable

import numpy as np

from verax.base.option_groups.deprecation import renamed_members
from verax.ir.graph import Graph
from verax.ir.stored import in_type
from verax.ir.types import DType
from verax.records.bisection import Step

Shape = tuple[int | None, ...] | None
"""Sizes, None for one that is open; None when nothing is known."""
SUFFIX, PREFIX = ":0", "serving_default_"
"""What TensorFlow puts around the names of tensors."""
ENVIRONMENT = "environment."
"""Prefix of what a Runner's `describe` says of the machine ("environment.card"): it stands in a
record's environment."""
RENAMED_METHODS = {"optimisations": "optimizations"}
"""Methods of the protocols by the names that they had up to Verax 0.1, and their names now."""
__getattr__ = renamed_members(__name__, {"Optimising": "Optimizing"})


class Naming(Enum):
    """How far a subject's names of inner values can be trusted.

    network: it runs this very network and shows its values (what is taken for granted where a
    Runner states nothing). given: a user gave the names along with arrays. hint: they are names of
    another program (a module's parts, another network's values), and equal ones may have nothing
    to do with each other.
    """

    network = "network"
    given = "given"
    hint = "hint"


@dataclass(frozen=True)
class Capabilities:
    """What a Runner can do beside running a whole network, and what is known of how it computes.

    Abilities that are methods (`run_poisoned`, `run_steps`, ...) are had by
    who has the method; what has to be known of them is here.
    """

    watches: bool = False
    """`keep` makes it show values inside the network. Without it a subject shows what it has,
    whatever is asked."""
    truncates: bool = False
    """It runs any part of a network that it is handed, so that a mistake can be searched for."""
    own_weights: bool = False
    """Of one that truncates: the weights come from a model of its own, not from the graph that it
    is handed, so that they cannot be made smaller."""
    stepwise: bool = False
    """Every value that it shows is what the next node read: nothing is ever fused. Without it a
    node is reported as faulty only if larger regions are wrong as well (`locate.enlarge`), which is
    less sharp."""
    naming: Naming = Naming.network
    """How far its names of inner values can be trusted."""
    fast_algorithms: frozenset[str] | None = None
    """Names of the fast algorithms that it may use; None when it does not say. See
    `decide.possible`."""
    any_device: bool = False
    """A GPU may have computed the numbers: they come from one, or nobody knows where from."""
    stores_in: frozenset[str] = frozenset()
    """16-bit formats in which it says that it stores values declared float32: who asks for bfloat16
    gets its errors, and so they are no mistakes."""
    own_process: bool = False
    """Another process computes its numbers, while this one may do something else."""
    poison: str = ""
    """Of a `Poisonable`: the memory that it fills, in words for people."""
    resets: bool = True
    """Of a `Remembering`: `run_steps` may be called again, and then begins again with `state`."""
    slow_steps: bool = False
    """Of an `Optimizing`: every step compiles for long, so they are searched only when the subject
    is wrong."""
    script: str = ""
    """The runtime that the script of a minimal case calls ("onnxruntime", "verax", "cmd", ...);
    empty for one that no script can call, whose recorded answer is shown instead."""

    def of_network(self, naming: Naming) -> Capabilities:
        """The same where the subject runs a network of which the names are worth `naming`: values
        of another network are not what the nodes of this one read."""
        own = naming is Naming.network
        return dataclasses.replace(self, naming=naming, stepwise=self.stepwise and own)


@runtime_checkable
class Runner(Protocol):
    """An implementation under test.

    name: how reports call it ("onnxruntime", "verax:O1"). stored_inputs: for recorded answers, the
    inputs that they belong to, as far as they were recorded too; None when the subject can run on
    any inputs.
    """

    name: str
    stored_inputs: Mapping[str, np.ndarray] | None

    @property
    def capabilities(self) -> Capabilities:
        """What it can do beside; mostly an attribute of the class."""

    def describe(self) -> dict[str, str]:
        """Versions and settings, as text by name; after a run, also what was assumed.

        What stands under "note" is told to the reader of a verdict; what begins with ENVIRONMENT is
        of the machine that it ran on (a GPU, its driver, its flags).
        """

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        """Outputs of the network by name, with the values named in `keep` as far as they exist.

        Values are named as in `graph`. Raises `VeraxError` when the subject fails.
        """


@runtime_checkable
class Poisonable(Protocol):
    """A Runner that can run with its memory pre-filled, which exposes reads of uninitialized
    memory.

    `Capabilities.poison` says which memory; it is empty where that cannot be done after all.
    """

    def run_poisoned(
        self,
        graph: Graph,
        inputs: Mapping[str, np.ndarray],
        keep: Sequence[str] | None = None,
        *,
        fill: int,
    ) -> dict[str, np.ndarray]:
        """As `run`; every byte of that memory is `fill` (0 to 255) beforehand."""


@runtime_checkable
class Remembering(Protocol):
    """A Runner that passes a network's state from run to run by itself."""

    def run_steps(
        self,
        graph: Graph,
        steps: Sequence[Mapping[str, np.ndarray]],
        state: Mapping[str, np.ndarray],
        keep: Sequence[str] | None = None,
        *,
        fill: int | None = None,
    ) -> list[dict[str, np.ndarray]]:
        """For each run the values that `Runner.run` gives; new state among them, under the names
        of the outputs that hold it, as far as the subject can show it.

        steps: the graph's arguments, run by run. state: what it has to begin with. fill: as in
        `Poisonable.run_poisoned`, where that is possible.
        """


@runtime_checkable
class Optimizing(Protocol):
    """A Runner that can stop at steps of its optimization."""

    def optimizations(
        self, graph: Graph, inputs: Mapping[str, np.ndarray]
    ) -> Sequence[tuple[str, Runner]]:
        """(name of the step, subject at that step), the plain one first, the whole one last."""


@runtime_checkable
class Selective(Protocol):
    """A Runner that can leave out single steps of its optimization, and may tell what one did."""

    def optimizations(
        self, graph: Graph, inputs: Mapping[str, np.ndarray]
    ) -> Sequence[tuple[str, Runner]]:
        """As `Optimizing.optimizations`; of a subject with some steps, those that it does."""

    def with_steps(self, names: Sequence[str]) -> Selective:
        """The subject with these of its steps (names of `optimizations`) and no others.

        It raises `VeraxError` when it runs if that cannot be had.
        """

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        """As `Runner.run`."""

    def step(self, graph: Graph, inputs: Mapping[str, np.ndarray], number: int) -> Step:
        """What the step at index `number` of `optimizations` did."""


def with_present_names(subject: Runner) -> Runner:
    """The same subject. If its class has the method `optimizations` under the name that the
    protocol gave it up to Verax 0.1, it gets the present one as well, and a warning says so."""
    kind = type(subject)
    for old, new in RENAMED_METHODS.items():
        if hasattr(kind, old) and not hasattr(kind, new):
            setattr(kind, new, getattr(kind, old))
            warnings.warn(
                f"{kind.__name__}.{old} is called {new} by the protocol now", stacklevel=2
            )
    return subject


def described_apart(subject: Runner) -> tuple[dict[str, str], dict[str, str]]:
    """What a subject says of itself, and what of the machine that it ran on."""
    described = subject.describe()
    machine = {k: v for k, v in described.items() if k.startswith(ENVIRONMENT)}
    own = {k: v for k, v in described.items() if k not in machine}
    return own, {k.removeprefix(ENVIRONMENT): v for k, v in machine.items()}


def bare(name: str) -> str:
    """`name` without what TensorFlow puts around it: `serving_default_x:0` is `x`."""
    return name.removesuffix(SUFFIX).removeprefix(PREFIX)


def matched_names(
    own: Mapping[str, Shape], foreign: Mapping[str, Shape], *, by_order: bool = False
) -> dict[str, str] | None:
    """For every name in `foreign`, its counterpart in `own`; None when that is ambiguous.

    In this order: equal names; equal but for TensorFlow's suffix and prefix; the only one left on
    both sides (its axes may be in another order); the only one left of its shape. by_order: where
    as many are left on both sides, and shapes agree one by one, order decides.
    """
    matches = {name: name for name in foreign if name in own}
    for own_name in own:
        same = [g for g in foreign if g not in matches and bare(g) == bare(own_name)]
        if own_name not in matches.values() and len(same) == 1:
            matches[same[0]] = own_name
    open_, left = _left(own, matches.values()), _left(foreign, matches)
    if len(open_) == len(left) == 1 and _resembles(own[open_[0]], foreign[left[0]]):
        return {**matches, left[0]: open_[0]}
    for name in left:
        fitting = [w for w in open_ if shape_fits(own[w], foreign[name])]
        similar = [g for g in left if fitting and shape_fits(own[fitting[0]], foreign[g])]
        if len(fitting) == 1 and len(similar) == 1:
            matches[name] = fitting[0]
    open_, left = _left(own, matches.values()), _left(foreign, matches)
    if left and by_order and len(open_) == len(left):
        in_order = dict(zip(left, open_))
        if all(shape_fits(own[w], foreign[g]) for g, w in in_order.items()):
            return {**matches, **in_order}
    return None if left else matches


def _left(names: Iterable[str], used: Iterable[str]) -> list[str]:
    gone = set(used)
    return [n for n in names if n not in gone]


def shape_fits(a: Shape, b: Shape) -> bool:
    """Whether two shapes agree as far as they are known."""
    if a is None or b is None:
        return True
    return len(a) == len(b) and all(x is None or y is None or x == y for x, y in zip(a, b))


def _resembles(a: Shape, b: Shape) -> bool:
    """Whether two shapes agree up to the order of axes, as far as they are known."""
    if a is None or b is None or shape_fits(a, b):
        return True
    sizes, other_sizes = [n for n in a if n is not None], [n for n in b if n is not None]
    shorter, longer = sorted((sizes, other_sizes), key=len)
    return len(a) == len(b) and all(shorter.count(n) <= longer.count(n) for n in shorter)


def renamed_answers(
    graph: Graph, answers: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """A subject's values under this network's names, and what was assumed, in sentences.

    Names that the network knows stay. Strange ones are brought to outputs that were not given when
    that is clear; else they stay strange.
    """
    named = {k: v for k, v in answers.items() if k in graph.types}
    strange = {k: v for k, v in answers.items() if k not in graph.types}
    named = {k: as_declared(graph, k, a) for k, a in named.items()}
    if not strange:
        return named, ()
    notes = []
    stems: dict[str, list[str]] = {}
    for value in graph.types:
        stems.setdefault(bare(value), []).append(value)
    for name in list(strange):
        meant = stems.get(bare(name), [])
        if len(meant) == 1 and meant[0] not in named:
            named[meant[0]] = strange.pop(name)
            notes.append(f"{name!r} was taken for {meant[0]!r}")
    missing = {v: shape_of(graph, v) for v in graph.outputs if v not in named}
    if missing and len(missing) == len(strange):
        matches = matched_names(missing, {k: v.shape for k, v in strange.items()})
        for name, output in (matches or {}).items():
            named[output] = strange.pop(name)
            notes.append(f"{name!r} was taken for the output {output!r}")
    named = {k: as_declared(graph, k, a) for k, a in named.items()}
    return {**named, **strange}, tuple(notes)


def stored_for(
    graph: Graph, stored: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """Recorded inputs under this network's names, and what was assumed, in sentences."""
    shapes = {v: shape_of(graph, v) for v in graph.inputs}
    left = {k: v for k, v in stored.items() if k not in graph.types}
    same = {k: [v for v in shapes if v not in stored and bare(v) == bare(k)] for k in left}
    matches = {k: v[0] for k, v in same.items() if len(v) == 1}
    missing = {v: s for v, s in shapes.items() if v not in stored and v not in matches.values()}
    unmatched = {k: v.shape for k, v in left.items() if k not in matches}
    if len(missing) == len(unmatched):
        matches |= matched_names(missing, unmatched) or {}
    named = {k: v for k, v in stored.items() if k in shapes}
    named |= {name: stored[k] for k, name in matches.items()}
    named = {v: as_declared(graph, v, a) for v, a in named.items()}
    return named, tuple(f"{k!r} was taken for the input {v!r}" for k, v in matches.items())


def is_number(array: np.ndarray) -> bool:
    """Whether the elements are of a type that a tensor may have."""
    return array.dtype.name in list(DType)


def as_declared(graph: Graph, value: str, array: np.ndarray) -> np.ndarray:
    """An observed or recorded array in the declared type of its value, where its encoding is known.

    .npy has no word for the types of `ml_dtypes`: NumPy stores their bytes; others store the codes
    of floats of 8 bits, or their numbers in a wider type, as `verax.record` does. Integers
    of 4 and 2 bits are counted in bytes.
    """
    type_ = graph.types.get(value)
    declared = None if type_ is None else type_.dtype
    if declared is None or not (declared.is_narrow or declared is DType.bfloat16):
        return array
    array = in_type(array, declared)
    return array.astype(declared.counted) if array.dtype == declared.numpy else array


def shape_of(graph: Graph, value: str) -> Shape:
    """The declared shape of a value, None for sizes that are open."""
    return tuple(d if isinstance(d, int) else None for d in graph.types[value].dims)
