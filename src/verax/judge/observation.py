"""`observe`: what a subject gave for a network, on which inputs, and what was assumed of it.

Stages of a check read the Observation and change nothing in it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from verax.base.errors import InputError, UsageError, VeraxError
from verax.ir.graph import Graph, Node, same_bits, specialize
from verax.ir.pixels import Pixels
from verax.judge.harness.naming import names
from verax.judge.inputs import INITIAL, draw_inputs, untelling
from verax.judge.locate.consecutive import StepRunner, written_notes
from verax.judge.locate.enlarge import without_fused_shapes
from verax.judge.protocol import Runner, is_number, renamed_answers, stored_for
from verax.ops.pointwise.identity import Identity
from verax.reference.evaluate import bind_symbols

Arrays = Mapping[str, np.ndarray]
Answer = tuple[dict[str, np.ndarray], tuple[str, ...]]
"""Values under the network's names, and what was assumed, in sentences."""


@dataclass(frozen=True)
class Observation:
    """What a subject gave, under the names of the network.

    graph: the network as the subject runs it. fixed: with the sizes of these inputs, and constant
    outputs that are computed. inputs: by name; origins: where each came from, in words. first: the
    unwatched answer; outputs: the network's outputs in it. values: what is judged, inner values
    among them where the subject could be watched; watching_changed: whether the outputs came out
    otherwise then. notes: what was assumed, in sentences.
    """

    graph: Graph
    fixed: Graph
    subject: Runner
    inputs: dict[str, np.ndarray]
    origins: Mapping[str, str]
    first: Arrays
    outputs: dict[str, np.ndarray]
    values: dict[str, np.ndarray]
    watching_changed: bool
    notes: tuple[str, ...]

    @property
    def known(self) -> dict[str, np.ndarray]:
        """The network's inputs and all values."""
        return {**self.inputs, **self.values}

    def run(self, inputs: Arrays) -> dict[str, np.ndarray]:
        """What the subject gives for other inputs, unwatched."""
        return answer_of(self.subject, self.fixed, inputs)[0]


def observe(
    graph: Graph,
    subject: Runner,
    inputs: Arrays | None,
    *,
    watch: bool = True,
    seed: int = 0,
    sizes: Mapping[str, int] | None = None,
    pixels: Mapping[str, Pixels] | None = None,
    begun: Callable[[Graph, Arrays], None] | None = None,
) -> Observation:
    """Run the subject once, and once more for the values inside where it can be watched.

    graph, subject: as `in_steps` made them. inputs: by name; those stored with the subject, or
    drawn, when None. begun: called with the specialized graph and the inputs before the subject
    runs. The rest as for `check`. Raises `InputError` when inputs do not fit,
    `UsageError` when the answer has no value of the network, and what the subject fails with.
    """
    notes = written_notes(graph)
    notes += subject.notes() if isinstance(subject, StepRunner) else []
    arrays, origins, assumed = _inputs_of(graph, subject, inputs, seed, sizes, pixels)
    notes += assumed
    notes += untelling({v: a for v, a in arrays.items() if origins.get(v) != INITIAL})
    fixed = _with_computed_outputs(specialize(graph, bind_symbols(graph, arrays)))
    if begun is not None:
        begun(fixed, arrays)
    first, assumed = answer_of(subject, graph, arrays)
    notes += assumed
    outputs = {v: first[v] for v in graph.outputs if v in first}
    observed, changed = first, False
    if watch and subject.capabilities.watches:
        observed, changed, more = _watched(fixed, subject, arrays, outputs)
        notes += [note for note in more if note not in notes]
    values = {v: a for v, a in observed.items() if v in fixed.producers}
    values, assumptions = without_fused_shapes(fixed, subject, arrays, values)
    notes += assumptions
    strangers = [v for v in observed if v not in fixed.types]
    if strangers:
        notes.append(f"the subject also gave {names(strangers)}, which this network has not")
    if not values:
        raise UsageError(
            f"the subject gave no value of this network (it gave {names(observed)})",
            place=subject.name,
            next_step=f"name its answers as the network does: {names(graph.outputs)}",
        )
    missing = [v for v in graph.outputs if v not in outputs and v not in graph.inputs]
    if missing:
        notes.append(f"the subject gave no {', '.join(missing)}")
    return Observation(
        graph, fixed, subject, arrays, origins, first, outputs, values, changed, tuple(notes)
    )


def answer_of(
    subject: Runner, graph: Graph, inputs: Arrays, keep: Sequence[str] | None = None
) -> Answer:
    """The subject's values under the network's names, and what was assumed.

    Raises `UsageError` when one does not hold numbers.
    """
    values = {k: np.asarray(v) for k, v in subject.run(graph, inputs, keep).items()}
    for name, array in values.items():
        if array.dtype.kind not in "biuf" and not is_number(array):
            raise UsageError(
                f"the subject gave {array.dtype} elements, which are no real numbers",
                place=f"value {name!r} of {subject.name}",
                next_step="give arrays of integers, booleans or floats",
            )
    return renamed_answers(graph, values)


def _watched(
    graph: Graph, subject: Runner, inputs: Arrays, outputs: Arrays
) -> tuple[dict[str, np.ndarray], bool, tuple[str, ...]]:
    """Values inside; whether watching changed the outputs; and what is to be said, of that too."""
    inner = [v for node in graph.nodes for v in node.outputs]
    try:
        observed, assumed = answer_of(subject, graph, inputs, inner)
    except VeraxError as error:
        note = f"the subject could not be watched inside: {error.cause}"
        return dict(outputs), False, (note,)
    changed = [v for v, a in outputs.items() if v in observed and not same_bits(a, observed[v])]
    if not changed:
        return observed, False, assumed
    note = (
        f"watching changes the subject: {', '.join(changed)} came out with other bits when "
        "inner values were kept (many runtimes fuse nodes otherwise); the unwatched outputs "
        "were judged as well"
    )
    return observed, True, (*assumed, note)


def _inputs_of(
    graph: Graph,
    subject: Runner,
    inputs: Arrays | None,
    seed: int,
    sizes: Mapping[str, int] | None,
    pixels: Mapping[str, Pixels] | None,
) -> tuple[dict[str, np.ndarray], dict[str, str], tuple[str, ...]]:
    """Inputs by name, where each came from, and what was assumed."""
    stored, assumed = stored_for(graph, subject.stored_inputs or {})
    if inputs is not None:
        arrays = {k: np.asarray(v) for k, v in inputs.items()}
        for name in sorted(arrays.keys() & stored.keys()):
            if not same_bits(arrays[name], stored[name]):
                raise InputError(
                    "the recorded answers belong to another input",
                    place=f"input {name!r} of {subject.name}",
                    next_step="leave the inputs out to use the recorded ones",
                )
        return *_with_state(graph, arrays, dict.fromkeys(inputs, "given")), assumed
    if subject.stored_inputs is None:
        return *draw_inputs(graph, seed, sizes, pixels), assumed
    absent = [v for v in graph.arguments if v not in stored]
    if absent:
        raise InputError(
            f"the recorded answers come without the input {names(absent)}",
            place=subject.name,
            next_step="give the inputs that the answers belong to, or store them as in:NAME",
        )
    origins = dict.fromkeys(stored, f"stored with {subject.name}")
    return *_with_state(graph, stored, origins), assumed


def _with_state(
    graph: Graph, arrays: dict[str, np.ndarray], origins: dict[str, str]
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """With the initial value of state that was not given."""
    begin = {v: a for v, a in graph.initial.items() if v not in arrays}
    return {**arrays, **begin}, {**origins, **dict.fromkeys(begin, INITIAL)}


def _with_computed_outputs(graph: Graph) -> Graph:
    """The same graph, whose constant outputs pass through an Identity: what a subject gives for
    them is judged like any value."""
    fixed = [v for v in dict.fromkeys(graph.outputs) if v in graph.constants]
    if not fixed:
        return graph
    sources = {v: f"{v}/constant" for v in fixed}
    while not graph.types.keys().isdisjoint(sources.values()):
        sources = {v: f"{name}'" for v, name in sources.items()}
    copies = [Node(Identity(), (sources[v],), (v,), v) for v in fixed]
    nodes = [
        dataclasses.replace(n, inputs=tuple(v and sources.get(v, v) for v in n.inputs))
        for n in graph.nodes
    ]
    return dataclasses.replace(
        graph,
        nodes=(*copies, *nodes),
        constants={sources.get(v, v): array for v, array in graph.constants.items()},
        types={**graph.types, **{sources[v]: graph.types[v] for v in fixed}},
    )
