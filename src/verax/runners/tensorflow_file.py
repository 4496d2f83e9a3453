"""TensorFlow as a subject: frozen graphs, SavedModels and Keras files, run by TensorFlow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from verax.base.errors import UsageError
from verax.base.optional import optional
from verax.judge.protocol import Shape
from verax.runners.feeding import feed
from verax.runners.file_runner import FileRunner
from verax.runners.spec import RunnerSpec, RunRequest, framework

Answered = tuple[dict[str, Any], dict[str, np.ndarray]]


def answer(request: Mapping[str, Any], inputs: Mapping[str, np.ndarray]) -> Answered:
    """Run `request["path"]`; inner tensors by their names in the file, as far as "keep" asks."""
    tensorflow = optional("tensorflow", "to run the subject 'tensorflow'")
    if request["threads"]:
        tensorflow.config.threading.set_intra_op_parallelism_threads(request["threads"])
    path = Path(request["path"])
    if path.name == "saved_model.pb":
        path = path.parent
    if path.is_dir():
        return _saved_model(tensorflow, path, request, inputs)
    if path.suffix == ".pb":
        return _graph_def(tensorflow, path, request, inputs)
    return _keras(tensorflow, path, request, inputs)


def _graph_def(
    tensorflow: Any, path: Path, request: Mapping[str, Any], inputs: Mapping[str, np.ndarray]
) -> Answered:
    v1 = tensorflow.compat.v1
    definition = v1.GraphDef()
    definition.ParseFromString(path.read_bytes())
    with v1.Graph().as_default() as graph:
        v1.import_graph_def(definition, name="")
        takers = [o for o in graph.get_operations() if o.type in ("Placeholder", "_Arg")]
        named, notes = feed({o.name: _shape(o.outputs[0].shape) for o in takers}, inputs)
        fetches = _existing(graph, [*request["outputs"], *request["keep"]])
        if not any(v in fetches for v in request["outputs"]):
            ends = [o for o in graph.get_operations() if o.outputs and not _read(o)]
            fetches |= {o.name: o.outputs[0] for o in ends}
        with v1.Session(graph=graph) as session:
            feeds = {f"{name}:0": array for name, array in named.items()}
            return {"notes": notes}, _arrays(session.run(fetches, feeds))


def _read(operation: Any) -> bool:
    return any(t.consumers() for t in operation.outputs)


def _existing(graph: Any, names: Iterable[str]) -> dict[str, Any]:
    """Tensors of `graph` by the names asked for, those that exist."""
    tensors = {}
    for name in names:
        try:
            tensors[name] = graph.get_tensor_by_name(name if ":" in name else f"{name}:0")
        except (KeyError, ValueError):
            continue
    return tensors


def _saved_model(
    tensorflow: Any, path: Path, request: Mapping[str, Any], inputs: Mapping[str, np.ndarray]
) -> Answered:
    loaded = tensorflow.saved_model.load(str(path))
    if not loaded.signatures:
        raise UsageError("the SavedModel has no signature to call", place=str(path))
    name = "serving_default"
    function = loaded.signatures[name if name in loaded.signatures else min(loaded.signatures)]
    specs = function.structured_input_signature[1]
    named, notes = feed({k: _shape(s.shape) for k, s in specs.items()}, inputs)
    tensors = {k: tensorflow.constant(a) for k, a in named.items()}
    values = _arrays(function(**tensors))
    reply = {"notes": notes, "declared": list(values)}
    inner = _existing(function.graph, request["keep"])
    if inner:
        order = [t.name.partition(":")[0] for t in function.inputs if t.name.split(":")[0] in specs]
        feeds = [t for t in function.inputs if t.name.partition(":")[0] in specs]
        pruned = function.prune(feeds, list(inner.values()))
        inner_tensors = pruned(*(tensors[k] for k in order))
        values = {**_arrays(dict(zip(inner, inner_tensors))), **values}
    return reply, values


def _keras(
    tensorflow: Any, path: Path, request: Mapping[str, Any], inputs: Mapping[str, np.ndarray]
) -> Answered:
    keras = tensorflow.keras
    model = keras.models.load_model(str(path), compile=False)
    takers = {t.name: _shape(t.shape) for t in model.inputs}
    named, notes = feed(takers, inputs)
    outputs = dict(zip(model.output_names, model.outputs))
    for layer in model.layers:
        if layer.name in request["keep"] and not isinstance(layer.output, list | tuple):
            outputs.setdefault(layer.name, layer.output)
    reply = {"notes": notes, "declared": list(model.output_names)}
    watched_model = keras.Model(model.inputs, list(outputs.values()))
    results = watched_model([tensorflow.constant(named[t]) for t in takers], training=False)
    listed = results if isinstance(results, list | tuple) else [results]
    return reply, _arrays(dict(zip(outputs, listed)))


def _shape(shape: Any) -> Shape:
    """A TensorShape or a tuple as sizes; None for an open rank."""
    if getattr(shape, "rank", 0) is None:
        return None
    return tuple(None if d is None else int(d) for d in shape)


def _arrays(values: Mapping[str, Any]) -> dict[str, np.ndarray]:
    arrays = {k: v.numpy() if hasattr(v, "numpy") else np.asarray(v) for k, v in values.items()}
    arrays = {
        k: np.stack([a.real, a.imag], -1) if a.dtype.kind == "c" else a for k, a in arrays.items()
    }  # complex numbers are pairs
    return {k: a for k, a in arrays.items() if a.dtype.kind in "biuf" or a.dtype.name == "bfloat16"}


class TensorFlowRunner(FileRunner):
    """A frozen graph (.pb), a SavedModel folder or a Keras file run by TensorFlow."""

    prefix = "tensorflow"
    packages = ("tensorflow", "tensorflow-cpu", "tensorflow-intel")
    suffixes = (".pb", ".h5", ".hdf5", ".keras", "")
    answer = staticmethod(answer)


def _of_file(request: RunRequest, path: str) -> TensorFlowRunner:
    file = request.file("tensorflow", path)
    return TensorFlowRunner(file, threads=request.threads, timeout=request.timeout)


SPEC = RunnerSpec(
    {
        "tensorflow": framework(
            "TensorFlow, running a .pb, SavedModel or Keras file", _of_file, runs_code=True
        )
    },
    "tensorflow",
    TensorFlowRunner.packages,
)
