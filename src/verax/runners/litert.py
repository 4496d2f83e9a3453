"""LiteRT (TensorFlow Lite) as a subject: a .tflite file run by Google's interpreter."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from verax.base.errors import UnsupportedError
from verax.ir.graph import Graph
from verax.runners.children.child_runner import TIMEOUT
from verax.runners.children.consecutive_runs import ConsecutiveRunner, put_together, taken_apart
from verax.runners.engines import Engine
from verax.runners.engines import litert as engine
from verax.runners.feeding import feed
from verax.runners.file_runner import FileRunner
from verax.runners.spec import RunnerSpec, RunnerVariant, RunRequest, framework


def answer(
    request: Mapping[str, Any], inputs: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Run `request["path"]`; inner tensors by their names in the file when "keep" asks for any.

    Then the default delegate (XNNPACK) gives way to the built-in kernels, because it hides what it
    fuses, and that is said. State lies in variable tensors, which the interpreter keeps from run to
    run, or in variables behind handles, which it shows to nobody: they begin with what the file
    fills them with, and their new content is seen where the operator that assigns it reads it, as
    long as inner tensors stay.
    """
    engine.runtime()  # what is missing is said first
    kernels, watched = request["kernels"], bool(request["keep"])
    if watched:
        kernels = "builtin" if kernels == "default" else kernels
    interpreter = engine.interpreter(request["path"], request["threads"], kernels, watched=watched)
    slots = {d["name"]: d for d in interpreter.get_input_details()}
    shapes = {n: tuple(None if i < 0 else int(i) for i in _open(d)) for n, d in slots.items()}
    steps, state = taken_apart(inputs)
    fed = [feed(shapes, arrays) for arrays in steps]
    notes = dict(fed[0][1])
    if watched and kernels != request["kernels"]:
        notes["watched with"] = "the built-in kernels: the default delegate shows nothing inside"
    for name, array in fed[0][0].items():
        if tuple(slots[name]["shape"]) != array.shape:
            interpreter.resize_tensor_input(slots[name]["index"], array.shape)
    interpreter.allocate_tensors()
    memory = _tensor_indices(interpreter)
    assigned = _assigned(interpreter)
    for name, array in state.items():
        if memory[name] in assigned:
            raise UnsupportedError(
                "LiteRT gives nobody access to a variable behind a handle: it begins with what the "
                "file fills it with",
                place=f"state {name!r}",
            )
        interpreter.set_tensor(memory[name], array)
    state_tensors = {
        new: assigned.get(memory[v], memory[v])
        for v, new in request["state"].items()
        if watched or memory[v] not in assigned
    }
    answers = []
    for named, _ in fed:
        for name, array in named.items():
            interpreter.set_tensor(slots[name]["index"], array)
        interpreter.invoke()
        values = _values(interpreter, request["keep"] or ())
        new_state = {new: interpreter.get_tensor(index) for new, index in state_tensors.items()}
        answers.append({**values, **new_state})
    declared = [d["name"] for d in interpreter.get_output_details()]
    return {"notes": notes, "declared": declared}, put_together(answers)


def _tensor_indices(interpreter: Any) -> dict[str, int]:
    """Indices of tensors by their names as the importer makes them: with the index where a name is
    missing or used twice."""
    details = interpreter.get_tensor_details()
    numbered = {f"{d['name'] or 'tensor'}:{d['index']}": d["index"] for d in details}
    return numbered | {d["name"]: d["index"] for d in details}


def _values(interpreter: Any, keep: Sequence[str]) -> dict[str, np.ndarray]:
    """The outputs, and those of the inner values asked for that it has."""
    values = {}
    if keep:
        names, computed = set(keep), _computed(interpreter)
        for detail in interpreter.get_tensor_details():
            if detail["name"] in names and detail["index"] in computed:
                values[detail["name"]] = np.array(interpreter.get_tensor(detail["index"]))
    for detail in interpreter.get_output_details():
        values[detail["name"]] = np.array(interpreter.get_tensor(detail["index"]))
    return values


def _computed(interpreter: Any) -> set[int]:
    """Indices of the tensors that an operator writes: a weight may bear a layer's name."""
    return {int(i) for op in interpreter._get_ops_details() for i in op["outputs"]}


def _assigned(interpreter: Any) -> dict[int, int]:
    """Handle of a variable -> the tensor that is assigned to it last."""
    operators = [o for o in interpreter._get_ops_details() if o["op_name"] == "ASSIGN_VARIABLE"]
    return {int(o["inputs"][0]): int(o["inputs"][1]) for o in operators}


def _open(detail: Mapping[str, Any]) -> Any:
    """The declared shape, -1 where a size is open."""
    declared = detail.get("shape_signature")
    return detail["shape"] if declared is None or not len(declared) else declared


STEPS = {
    "reference": "reference kernels",
    "builtin": "built-in kernels",
    "default": "XNNPACK delegate",
}
"""What each kind of kernels is called as a step."""


class LiteRtRunner(ConsecutiveRunner, FileRunner):
    """A .tflite file run by LiteRT. kernels: one of KERNELS; quantized results depend on it."""

    prefix = "litert"
    packages = ("ai-edge-litert",)
    suffixes = (".tflite",)
    answer = staticmethod(answer)

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        kernels: str = "default",
        threads: int = 0,
        isolated: bool = True,
        timeout: float = TIMEOUT,
    ) -> None:
        super().__init__(
            path,
            detail=f"{kernels} kernels",
            request={"kernels": kernels},
            threads=threads,
            isolated=isolated,
            timeout=timeout,
        )
        if kernels != "default":
            self.name = self.name.replace("litert", f"litert-{kernels}", 1)
        self.kernels = kernels
        self._arguments: dict[str, Any] = {
            "threads": threads,
            "isolated": isolated,
            "timeout": timeout,
        }

    def run_steps(
        self,
        graph: Graph,
        steps: Sequence[Mapping[str, np.ndarray]],
        state: Mapping[str, np.ndarray],
        keep: Sequence[str] | None = None,
        *,
        fill: int | None = None,
    ) -> list[dict[str, np.ndarray]]:
        """A fresh interpreter has its initial content already: only another one is handed over."""
        changed_state = {
            name: array
            for name, array in state.items()
            if name not in graph.initial or not np.array_equal(array, graph.initial[name])
        }
        return super().run_steps(graph, steps, changed_state, keep, fill=fill)

    def optimizations(
        self, graph: Graph, inputs: Mapping[str, np.ndarray]
    ) -> list[tuple[str, LiteRtRunner]]:
        """The same file on the reference kernels, on the built-in ones, and on those with the
        default delegate (XNNPACK), up to the subject's own."""
        names = ["reference", "builtin", "default"]
        earlier = [
            (STEPS[name], LiteRtRunner(self._request["path"], kernels=name, **self._arguments))
            for name in names[: names.index(self.kernels)]
        ]
        for _, runner in earlier:
            runner.capabilities = self.capabilities
        return [*earlier, (STEPS[self.kernels], self)]


def _of_file(request: RunRequest, path: str, kernels: str = "default") -> LiteRtRunner:
    name = "litert" if kernels == "default" else f"litert-{kernels}"
    file = request.file(name, path)
    options: dict[str, Any] = {"threads": request.threads, "timeout": request.timeout}
    return LiteRtRunner(file, kernels=kernels, **options)


def _variant(description: str, kernels: str) -> RunnerVariant:
    settings = {} if kernels == "default" else {"kernels": kernels}
    of_file = partial(_of_file, kernels=kernels)
    return framework(description, of_file, Engine("litert", (".tflite",), settings))


SPEC = RunnerSpec(
    {
        "litert": _variant("LiteRT, running a .tflite file", "default"),
        "litert-builtin": _variant("LiteRT without XNNPACK, running a .tflite file", "builtin"),
        "litert-reference": _variant("LiteRT's reference kernels, on a .tflite file", "reference"),
    },
    "ai_edge_litert",
    LiteRtRunner.packages,
)
