"""Our own implementations as subjects: the compiler at its levels, and the NumPy evaluator."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from verax.base.machine.devices import HOST
from verax.base.option_groups.options import PassOptions
from verax.base.option_groups.settings import DEFAULT_LEVEL, LEVELS, Settings
from verax.base.printing import Named
from verax.compiler.compile import compile as compile_graph
from verax.compiler.describe.step_text import step_between
from verax.compiler.executable import Executable
from verax.compiler.pipeline.levels import decisions_only, passes_for, run_passes
from verax.ir.graph import Graph, specialize
from verax.judge.protocol import Capabilities
from verax.records.bisection import Step
from verax.records.trace import Rewrite
from verax.reference.evaluate import bind_symbols, evaluate, promised
from verax.runners.engines import Engine
from verax.runners.spec import RunnerSpec, RunnerVariant, RunRequest

SAME_BITS = 1
"""The highest level that changes no number."""
FAST = frozenset({"Winograd", "Strassen"})
"""What the highest level may compute by."""
KEPT = 2
"""Programs that a runner keeps: of the network as it is, and with its inner values shown."""


@dataclasses.dataclass(frozen=True)
class _Watching:
    """A program whose outputs include those inner values that its passes left.

    output_names: value of the network -> output of the program."""

    graph: Graph
    keep: tuple[str, ...]
    bindings: Mapping[str, int]
    executable: Executable
    output_names: Mapping[str, str]

    def fits(self, graph: Graph, keep: Sequence[str], bindings: Mapping[str, int]) -> bool:
        """True if the program can run `graph` on these sizes and shows the values in `keep`."""
        same = self.graph is graph and self.keep == tuple(keep)
        return same and dict(bindings) == self.bindings


class VeraxRunner(Named):
    """Our compiler at a level. Inner values are shown by making them outputs; where a level changes
    numbers (O2), of what it made of the network, and only those that it still has."""

    stored_inputs: Mapping[str, np.ndarray] | None = None

    def __init__(self, settings: Settings, executable: Executable | None = None) -> None:
        """executable: a program that was compiled with these settings, if there is one."""
        self.settings = settings
        self.name = f"verax:O{settings.opt_level}"
        self.capabilities = Capabilities(
            watches=True,
            truncates=True,
            stepwise=True,
            fast_algorithms=FAST if settings.opt_level == max(LEVELS) else frozenset(),
            poison="the arena of the compiled program",
            script="verax",
        )
        self._executables: list[tuple[Graph, tuple[str, ...], Executable]] = []
        if executable is not None:
            self._executables.append((executable.graph, executable.graph.outputs, executable))
        self._watching: _Watching | None = None
        self._steps: tuple[Graph, list[tuple[str, VeraxRunner]]] | None = None
        self._rewrites: tuple[Rewrite, ...] = ()

    def describe(self) -> dict[str, str]:
        return {k: str(v) for k, v in dataclasses.asdict(self.settings).items()}

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        if keep and self.settings.opt_level > SAME_BITS:
            return self._watched(graph, inputs, keep)
        return _stepped(self._compiled(graph, keep), inputs)

    def _watched(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str]
    ) -> dict[str, np.ndarray]:
        """Outputs and those values in `keep` that the passes left, by their names.

        The passes run on the network without `keep`, because a pass leaves an output alone; what
        they left of `keep` becomes outputs afterwards. The program is reused for runs on the same
        sizes."""
        bindings = bind_symbols(graph, inputs)
        if self._watching is not None and self._watching.fits(graph, keep, bindings):
            outputs = _stepped(self._watching.executable, inputs)
            return {v: outputs[to] for v, to in self._watching.output_names.items()}
        fixed = specialize(graph, bindings)
        rewritten, trace = run_passes(fixed, self.settings)
        computed = {v for node in rewritten.nodes for v in node.outputs}
        left = {v: trace.values[v] for v in keep if trace.values.get(v) in computed}
        output_names = {**dict(zip(graph.outputs, rewritten.outputs)), **left}
        watched_graph = dataclasses.replace(
            rewritten, outputs=tuple(dict.fromkeys(output_names.values()))
        )
        output_names |= {value: rewritten.state[v] for v, value in graph.state.items()}
        stop = self.settings.stop_after
        stop_after = None if stop is None else max(0, stop - trace.rewrites)
        exact = dataclasses.replace(
            decisions_only(self.settings), stop_after=stop_after, quick=True
        )
        made_of = compile_graph(watched_graph, exact)
        self._watching = _Watching(graph, tuple(keep), dict(bindings), made_of, output_names)
        outputs = _stepped(made_of, inputs)
        return {v: outputs[to] for v, to in output_names.items()}

    def run_steps(
        self,
        graph: Graph,
        steps: Sequence[Mapping[str, np.ndarray]],
        state: Mapping[str, np.ndarray],
        keep: Sequence[str] | None = None,
        *,
        fill: int | None = None,
    ) -> list[dict[str, np.ndarray]]:
        """As `judge.protocol.Remembering.run_steps`: the executable hands on its own state."""
        executable = self._compiled(graph, keep if self.settings.opt_level <= SAME_BITS else None)
        executable.reset()
        executable.state = state
        results = []
        for inputs in steps:
            if fill is not None:
                executable.step(inputs)
                executable.program.poison(fill)
            outputs = executable.run(inputs)
            new = {graph.state[v]: array for v, array in executable.state.items()}
            results.append({**outputs, **new})
        return results

    def run_poisoned(
        self,
        graph: Graph,
        inputs: Mapping[str, np.ndarray],
        keep: Sequence[str] | None = None,
        *,
        fill: int,
    ) -> dict[str, np.ndarray]:
        executable = self._compiled(graph, keep if self.settings.opt_level <= SAME_BITS else None)
        _stepped(executable, inputs)
        executable.program.poison(fill)
        return _stepped(executable, inputs)

    def _compiled(self, graph: Graph, keep: Sequence[str] | None) -> Executable:
        """A program whose outputs include `keep`: one of the last few, or compiled now."""
        names = _with_outputs(graph, keep)
        for compiled_graph, outputs, executable in self._executables:
            if compiled_graph is graph and outputs == names:
                return executable
        with_outputs = dataclasses.replace(graph, outputs=names)
        executable = compile_graph(with_outputs, self.settings)
        self._executables = [(graph, names, executable), *self._executables[: KEPT - 1]]
        return executable

    def optimizations(
        self, graph: Graph, inputs: Mapping[str, np.ndarray]
    ) -> list[tuple[str, VeraxRunner]]:
        """(name, runner) per step: O0, then each runner does one step more: the rewrites of the
        passes, then the decisions to fuse nodes and to keep values in blocked layouts."""
        settings = self.settings
        if settings.opt_level == 0:
            return [("O0", self)]
        if self._steps is not None and self._steps[0] is graph:
            return self._steps[1]
        exe = self._compiled(graph, None)
        _stepped(exe, inputs)
        plain = Settings(0, settings.threads, settings.target, memory=settings.memory)
        steps = [("O0", VeraxRunner(plain))]
        self._rewrites = exe.trace.records
        names = exe.trace.notes or (f"O{settings.opt_level}",)
        for count, name in enumerate(names[:-1], 1):
            stopped = dataclasses.replace(settings, stop_after=count)
            steps.append((name, VeraxRunner(stopped)))
        self._steps = graph, [*steps, (names[-1], self)]
        return self._steps[1]

    def with_passes(self, options: PassOptions) -> VeraxRunner:
        """As `runners.passes.Configurable.with_passes`."""
        pass_options = dataclasses.asdict(options)
        runner = VeraxRunner(dataclasses.replace(self.settings, **pass_options))
        passes_for(runner.settings)  # what does not exist is said first
        return runner

    def with_steps(self, names: Sequence[str]) -> VeraxRunner:
        """As `judge.protocol.Selective.with_steps`; names as `optimizations` has listed them."""
        listed = {str(one) for one in self._rewrites}
        ids = [one.id for one in self._rewrites if str(one) in names]
        steps = (*ids, *(name for name in names if name not in listed))
        return VeraxRunner(dataclasses.replace(self.settings, steps=steps))

    def step(self, graph: Graph, inputs: Mapping[str, np.ndarray], index: int) -> Step:
        """As `judge.protocol.Selective.step`."""
        steps = self.optimizations(graph, inputs)
        programs = []
        for _, runner in steps[index - 1 : index + 1]:
            exe = runner._compiled(graph, None)
            _stepped(exe, inputs)
            programs.append(exe.specialized)
        return step_between(steps[index][0], index, programs[0], programs[1], self.settings)


class ReferenceRunner(Named):
    """The operators' reference in float32 NumPy; with `bits`, the bits that O0 and O1 promise."""

    capabilities = Capabilities(
        watches=True, truncates=True, stepwise=True, fast_algorithms=frozenset()
    )
    stored_inputs: Mapping[str, np.ndarray] | None = None

    def __init__(self, *, bits: bool = False) -> None:
        self.bits = bits
        self.name = "reference:promised" if bits else "reference"

    def describe(self) -> dict[str, str]:
        return {"arithmetic": "promised bits" if self.bits else "float32, NumPy"}

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        names = _with_outputs(graph, keep)
        if self.bits:
            return promised(graph, inputs, keep=names)
        values = evaluate(graph, inputs, work=np.float32, keep=names)
        return {v: a.astype(graph.types[v].dtype.numpy, copy=False) for v, a in values.items()}


def _stepped(executable: Executable, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every output of the graph, for inputs that may hold its state."""
    own = executable.graph.state
    state = {v: array for v, array in inputs.items() if v in own}
    outputs, new = executable.step({v: a for v, a in inputs.items() if v not in own}, state)
    return {**outputs, **{own[v]: array for v, array in new.items()}}


def _with_outputs(graph: Graph, keep: Sequence[str] | None) -> tuple[str, ...]:
    inner = (v for v in keep or () if v in graph.producers and v not in graph.outputs)
    return (*graph.outputs, *inner)


def _at_level(request: RunRequest, level: int) -> VeraxRunner:
    target = "host" if request.device in HOST else request.device
    return VeraxRunner(Settings(opt_level=level, threads=request.threads, target=target))


SPEC = RunnerSpec(
    {
        **{
            f"verax:O{level}": RunnerVariant(
                f"our compiler at level O{level}",
                partial(_at_level, level=level),
                Engine("verax", (), {"opt_level": level}),
                takes_device=True,
            )
            for level in LEVELS
        },
        "reference": RunnerVariant(
            "the operators' meaning in float32 NumPy", lambda _: ReferenceRunner(bits=False)
        ),
        "reference:promised": RunnerVariant(
            "the bits that O0 and O1 promise, in NumPy (slow)", lambda _: ReferenceRunner(bits=True)
        ),
    },
    timed_only={
        "verax": Engine("verax", (), {"opt_level": DEFAULT_LEVEL}),
        "verax:saved": Engine("verax", (".vx",)),
    },
)
