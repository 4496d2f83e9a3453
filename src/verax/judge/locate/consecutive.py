"""Judges networks with state over several consecutive runs, as one unrolled network.

One run cannot show that state is dropped. `in_steps` unrolls the network, and wraps the subject so
that one run of the unrolled network is that many runs of the subject, each beginning with what the
one before it left. All judging is then that of a network without state.

A subject that hands its state on itself (`protocol.Remembering`) is let alone between the runs; any
other gets the state it gave as an input of the next run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from verax.base.errors import InputError, UsageError, VeraxError
from verax.base.printing import Named
from verax.ir.graph import Graph, specialize
from verax.ir.unroll import Unrolled, unrolled
from verax.judge.protocol import (
    Optimizing,
    Poisonable,
    Remembering,
    Runner,
    renamed_answers,
)
from verax.judge.regions.network import survey
from verax.records.verdict import Explanation, Kind
from verax.reference.evaluate import bind_symbols

STEPS = 2
"""Consecutive runs when the caller does not say how many."""
MOST_NODES = 100_000
"""Nodes of all runs together; a network of more is still judged over one."""
MOST = 16
"""States that are tried one by one as the one that was dropped."""
Arrays = Mapping[str, np.ndarray]
Inputs = Arrays | Sequence[Arrays] | None


class StepRunner(Named):
    """`runner` on several consecutive runs of `network`, seen as one run of the unrolled network.

    A graph that is no unrolled network is a part of one: the runner gets it as it is, under the
    names of the network when it lies within one run.
    """

    def __init__(self, runner: Runner, network: Graph, unrolling: Unrolled) -> None:
        self.runner, self.network, self.unrolling = runner, network, unrolling
        self.name, self.stored_inputs = runner.name, runner.stored_inputs
        poison = runner.capabilities.poison if isinstance(runner, Poisonable) else ""
        self.capabilities = dataclasses.replace(runner.capabilities, poison=poison)
        self._assumptions: dict[str, str] = {}
        self._ran = False

    @property
    def repeatable(self) -> bool:
        """True if it can run again, from the beginning."""
        return not isinstance(self.runner, Remembering) or self.capabilities.resets

    def describe(self) -> dict[str, str]:
        count = len(self.unrolling.names)
        runs = {"consecutive runs": str(count)} if count > 1 else {}
        return {**self.runner.describe(), **runs, **self._assumptions}

    def notes(self) -> list[str]:
        """Sentences for the reader of the verdict on the runs that were judged."""
        count, remembered = len(self.unrolling.names), ", ".join(self.network.state)
        runs = f"{count} consecutive runs were judged" if count > 1 else "one run was judged"
        notes = [f"the network remembers {remembered}: {runs}"]
        if count > 1:
            notes.append("values of run N are called NAME@N, nodes too")
        return notes

    def run(
        self, graph: Graph, inputs: Arrays, keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        return self._run(graph, inputs, keep, None)

    def run_poisoned(
        self,
        graph: Graph,
        inputs: Arrays,
        keep: Sequence[str] | None = None,
        *,
        fill: int,
    ) -> dict[str, np.ndarray]:
        """As `judge.protocol.Poisonable.run_poisoned`; for a runner that is one."""
        return self._run(graph, inputs, keep, fill)

    def optimizations(self, graph: Graph, inputs: Arrays) -> list[tuple[str, Runner]]:
        """The runner's optimization steps, each wrapped over the same runs."""
        if not isinstance(self.runner, Optimizing):
            return []
        steps = self.unrolling.split(inputs)
        variants = self.runner.optimizations(self.network, steps[0])
        return [(name, StepRunner(r, self.network, self.unrolling)) for name, r in variants]

    def _run(
        self, graph: Graph, inputs: Arrays, keep: Sequence[str] | None, fill: int | None
    ) -> dict[str, np.ndarray]:
        if set(graph.inputs) != set(self.unrolling.graph.inputs):
            return self._run_part(graph, inputs, keep, fill)
        if self._ran and not self.repeatable:
            raise UsageError(
                "it cannot be put back to where it began, so it is run once only",
                place=self.name,
                next_step="give an executable, a module or a runner's name",
            )
        self._ran = True
        inputs_by_run = self.unrolling.split(inputs)
        steps = [{v: one[v] for v in self.network.arguments} for one in inputs_by_run]
        state = {v: inputs_by_run[0][v] for v in self.network.state}
        requested = {*(keep or ())}
        inner = [
            v
            for v in self.network.producers
            if any(names[v] in requested for names in self.unrolling.names)
        ]
        inner_kept = None if keep is None else inner
        if isinstance(self.runner, Remembering):
            answers = self.runner.run_steps(self.network, steps, state, inner_kept, fill=fill)
        else:
            answers = list(self._one_by_one(steps, state, inner_kept, fill))
        values_by_name: dict[str, np.ndarray] = {}
        for names, answer in zip(self.unrolling.names, answers):
            values = {k: np.asarray(v) for k, v in answer.items()}
            named, assumptions = renamed_answers(self.network, values)
            self._assumptions |= {f"assumed ({n})": note for n, note in enumerate(assumptions, 1)}
            values_by_name |= {names.get(v, v): a for v, a in named.items()}
        return values_by_name

    def _one_by_one(
        self, steps: Sequence[Arrays], state: Arrays, keep: Sequence[str] | None, fill: int | None
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yield the results of each run, the state passed on between them if the subject takes
        any."""
        takes_state = True
        for run, arrays in enumerate(steps, 1):
            try:
                arguments = {**arrays, **state} if takes_state else arrays
                answer = self._single(self.network, arguments, keep, fill)
            except VeraxError as error:
                if run > 1:
                    raise
                takes_state = False
                answer = self._without_state(arrays, keep, fill, error)
            yield answer
            if not takes_state:
                continue
            values, _ = renamed_answers(self.network, {k: np.asarray(v) for k, v in answer.items()})
            missing = [v for v, new in self.network.state.items() if new not in values]
            if missing:
                self._assumptions["state"] = f"it gave no new {', '.join(missing)}: run once only"
                return
            state = {v: values[new] for v, new in self.network.state.items()}

    def _without_state(
        self, inputs: Arrays, keep: Sequence[str] | None, fill: int | None, error: VeraxError
    ) -> dict[str, np.ndarray]:
        """A run without state as input; raises `error` where the subject refuses that too."""
        try:
            answer = self._single(self.network, inputs, keep, fill)
        except VeraxError:
            raise error from None
        self._assumptions["state"] = "it takes none"
        return answer

    def _run_part(
        self, graph: Graph, inputs: Arrays, keep: Sequence[str] | None, fill: int | None
    ) -> dict[str, np.ndarray]:
        """Run a part of the unrolled network, under the network's own names if it lies in one
        run."""
        for run, names in enumerate(self.unrolling.names):
            produced = {v for node in graph.nodes for v in node.outputs}
            own = {new: v for v, new in names.items()}
            if run == 0 or not produced <= own.keys() or not set(graph.inputs) <= own.keys():
                continue
            own_graph = renamed(graph, own)
            own_inputs = {own[v]: a for v, a in inputs.items()}
            own_keep = None if keep is None else [own[v] for v in keep if v in own]
            results = self._single(own_graph, own_inputs, own_keep, fill)
            return {names.get(v, v): a for v, a in results.items()}
        return self._single(graph, inputs, keep, fill)

    def _single(
        self, graph: Graph, inputs: Arrays, keep: Sequence[str] | None, fill: int | None
    ) -> dict[str, np.ndarray]:
        if fill is not None and isinstance(self.runner, Poisonable):
            return self.runner.run_poisoned(graph, inputs, keep, fill=fill)
        return self.runner.run(graph, inputs, keep)


def renamed(graph: Graph, names: Mapping[str, str]) -> Graph:
    """The same graph with other names of values; those that `names` lacks stay."""
    nodes = tuple(
        dataclasses.replace(
            n,
            inputs=tuple(v and names.get(v, v) for v in n.inputs),
            outputs=tuple(names.get(v, v) for v in n.outputs),
        )
        for n in graph.nodes
    )
    return dataclasses.replace(
        graph,
        inputs=tuple(names.get(v, v) for v in graph.inputs),
        outputs=tuple(names.get(v, v) for v in graph.outputs),
        nodes=nodes,
        constants={names.get(v, v): a for v, a in graph.constants.items()},
        types={names.get(v, v): t for v, t in graph.types.items()},
    )


def in_steps(
    graph: Graph, subject: Runner, inputs: Inputs = None, steps: int | None = None
) -> tuple[Graph, Runner, Arrays | None]:
    """The network, the subject and the inputs over consecutive runs; unchanged if the network has
    no state or is unrolled already.

    inputs: of every run, or of one, which every run then gets; the state, if given, is that of the
    first. steps: how many runs; as many as inputs, else `STEPS`; 1 for recorded answers. Raises
    `UsageError` when the two do not fit or are too many, `InputError` for a network that remembers
    nothing and gets inputs of several runs.
    """
    if isinstance(subject, StepRunner):
        return graph, subject, _only(inputs)
    if not graph.state:
        if steps is not None and steps > 1:
            raise UsageError(
                f"{steps} consecutive runs are asked for, and the network remembers nothing",
                place=graph.name,
                next_step="judge one run: every other one is the same",
            )
        return graph, subject, _only(inputs)
    listed = [inputs] if isinstance(inputs, Mapping) else list(inputs or ())
    several = inputs is not None and not isinstance(inputs, Mapping)
    count = steps or (len(listed) if several else STEPS)
    if subject.stored_inputs is not None:
        if count > 1 and steps is not None:
            raise UsageError(
                f"{steps} consecutive runs are asked for, and recorded answers are those of one",
                place=subject.name,
                next_step="record each run, with the state that it began with as in:NAME",
            )
        count = 1
    if count > 1 and count * len(graph.nodes) > MOST_NODES:
        raise UsageError(
            f"{count} runs of {len(graph.nodes)} nodes are more than can be judged at once",
            place="steps",
            next_step=f"ask for at most {max(1, MOST_NODES // len(graph.nodes))}",
        )
    if count < 1 or (several and count != len(listed)):
        raise UsageError(f"{count} steps are asked for, and inputs of {len(listed)} are given")
    if not listed:
        unrolling = unrolled([graph] * count)
        return unrolling.graph, StepRunner(subject, graph, unrolling), None
    run_inputs = [{k: np.asarray(a) for k, a in one.items()} for one in listed]
    run_inputs = run_inputs if several else run_inputs * count
    begin = {v: run_inputs[0][v] for v in graph.state if v in run_inputs[0]}
    run_inputs = [{v: a for v, a in one.items() if v not in begin} for one in run_inputs]
    graphs = [specialize(graph, bind_symbols(graph, {**one, **begin})) for one in run_inputs]
    unrolling = unrolled(graphs if several else [graph] * count)
    arrays = {
        names[v]: a for names, one in zip(unrolling.names, run_inputs) for v, a in one.items()
    }
    return unrolling.graph, StepRunner(subject, graph, unrolling), {**arrays, **begin}


def written_notes(graph: Graph) -> list[str]:
    """Inputs that the network writes to, in sentences."""
    return [
        f"the network writes to its input {v!r}; the new content is judged as the output {new!r}"
        for v, new in graph.updates.items()
        if v not in graph.state
    ]


def _only(inputs: Inputs) -> Arrays | None:
    """The inputs of a single run."""
    if inputs is None or isinstance(inputs, Mapping):
        return inputs
    if len(inputs) != 1:
        raise InputError(
            f"inputs of {len(inputs)} runs are given, and the network remembers nothing",
            next_step="judge one run after the other",
        )
    return inputs[0]


def state_causes(
    graph: Graph, subject: Runner, inputs: Arrays, actual: Arrays, *, seed: int = 0
) -> tuple[Explanation, ...]:
    """An explanation by lost state under which all actual values are within rounding, or ().

    graph: of `in_steps`, specialized. Every run may have begun with the initial state, or with the
    one before the previous run; all of the state, or one value of it.
    """
    if not isinstance(subject, StepRunner) or len(subject.unrolling.names) < 2:
        return ()
    names, state = subject.unrolling.names, subject.network.state
    groups: list[tuple[str, ...]] = [tuple(state)]
    if 1 < len(state) <= MOST:
        groups += [(v,) for v in state]
    for behind in range(len(names), 0, -1):
        if behind not in (1, len(names)) or (behind == 1 and len(names) == 2):
            continue
        for group in groups:
            rewired = _rewired(graph, names, state, group, behind)
            # New state that was never written is that of the run before, or the first.
            fresh = {
                v: a
                for v, a in actual.items()
                if v not in _stale(names, state, group, actual, inputs)
            }
            statistic = _worst_statistic(rewired, inputs, fresh, seed)
            if statistic is not None:
                listed = ", ".join(repr(v) for v in group)
                words = (
                    f"the new state {listed} was dropped: every run began with the first one's"
                    if behind == len(names)
                    else f"the state {listed} was stale: every run began with that of the run "
                    "before the last"
                )
                name = "state dropped" if behind == len(names) else "stale state"
                return (Explanation(name, words, {}, statistic),)
    return ()


def _before(
    names: Sequence[Mapping[str, str]], state: Mapping[str, str], value: str, run: int
) -> str:
    """What a state value is called in the unrolled graph before `run` (0 is the first)."""
    return value if run <= 0 else names[run - 1][state[value]]


def _rewired(
    graph: Graph,
    names: Sequence[Mapping[str, str]],
    state: Mapping[str, str],
    group: Sequence[str],
    behind: int,
) -> Graph:
    """The unrolled graph whose runs read the state of `group` from `behind` runs too early."""
    nodes = {}
    for run in range(1, len(names)):
        own = set(names[run].values()) - set(names[run - 1].values())
        changed = {
            _before(names, state, v, run): _before(names, state, v, run - behind) for v in group
        }
        for node in graph.nodes:
            if node.outputs[0] in own:
                inputs = tuple(v and changed.get(v, v) for v in node.inputs)
                nodes[node.outputs[0]] = dataclasses.replace(node, inputs=inputs)
    return dataclasses.replace(graph, nodes=tuple(nodes.get(n.outputs[0], n) for n in graph.nodes))


def _stale(
    names: Sequence[Mapping[str, str]],
    state: Mapping[str, str],
    group: Sequence[str],
    actual: Arrays,
    inputs: Arrays,
) -> set[str]:
    """New values of state that are, bit for bit, the initial ones."""
    stale = set()
    for value in group:
        for step in names:
            new = step[state[value]]
            if new in actual and np.array_equal(actual[new], inputs[value]):
                stale.add(new)
    return stale


def _worst_statistic(graph: Graph, inputs: Arrays, actual: Arrays, seed: int) -> float | None:
    """The worst statistic of `actual` against the graph's reference; None if it exceeds
    rounding."""
    if not any(v in graph.producers for v in actual):
        return None
    try:
        findings = survey(graph, inputs, actual, seed=seed, measure_power=False).findings
    except VeraxError:
        return None
    accepted = (Kind.identical, Kind.rounding, Kind.precision)
    if not findings or any(f.kind not in accepted for f in findings):
        return None
    return max(f.statistic for f in findings)
