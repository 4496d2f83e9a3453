"""`onnx.backend.base.Backend` over the compiler or the reference.

>>> import verax.onnx_backend as backend
>>> backend.prepare(model).run([x])
>>> backend.prepare(model, engine="compiler", settings=Settings(opt_level=1)).run([x])
>>> backend.prepare(model, engine="reference").run([x])

A sequence is a list of arrays, an optional that holds nothing is None. What Verax lacks raises
`RefusedError`, which ONNX's test runners count as skipped.

A model whose types depend on the values of inputs (a shape given as an input, say) is imported
anew for each set of such values: small integer and boolean inputs are then constants.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from verax.base.errors import InputError, UnsupportedError, UsageError, VeraxError
from verax.base.option_groups.settings import Settings
from verax.frontends.common.context import ValueNeededError
from verax.frontends.model import Model
from verax.frontends.onnx import load_onnx
from verax.frontends.onnx.sequences import item_name, stated_outputs
from verax.ir.graph import Graph
from verax.ir.types import DType, TensorType
from verax.onnx_format.dtypes import CODES
from verax.onnx_format.package import backend, helper, onnx, runner
from verax.reference.evaluate import bind_symbols, evaluate_node

Arrays = Mapping[str, np.ndarray]
Engine = Callable[[Graph, Arrays], dict[str, np.ndarray]]
VALUE_LIMIT = 64
"""Integer inputs with at most this many elements may be shapes, axes or counts."""


class RefusedError(UnsupportedError, runner.BackendIsNotSupposedToImplementIt):
    """What Verax lacks, as ONNX's test runners know it."""


def _refused(error: UnsupportedError) -> RefusedError:
    return RefusedError(error.cause, place=error.place, next_step=error.next_step)


def run_reference(graph: Graph, inputs: Arrays) -> dict[str, np.ndarray]:
    """Outputs by meaning: each node in float64, its results rounded to their declared types."""
    bind_symbols(graph, inputs)
    values: dict[str, np.ndarray | None] = {**graph.constants, **inputs}
    for node in graph.nodes:
        arrays = [None if v is None else values[v] for v in node.inputs]
        types = tuple(None if a is None else TensorType.of(a) for a in arrays)
        wide = [
            a.astype(np.float64) if a is not None and t is not None and t.dtype.is_float else a
            for a, t in zip(arrays, types)
        ]
        declared = graph.output_types(node)
        for name, type_, result in zip(
            node.outputs, declared, evaluate_node(node, wide, types, declared), strict=True
        ):
            with np.errstate(all="ignore"):
                values[name] = result.astype(type_.dtype.numpy)
    return {name: np.asarray(values[name]) for name in graph.outputs}


def run_compiled(graph: Graph, inputs: Arrays, settings: Settings) -> dict[str, np.ndarray]:
    """Outputs of compiled code."""
    # The reference must be usable without loading LLVM.
    compiling = importlib.import_module("verax.compiler.compile")
    return compiling.compile(graph, settings).run(dict(inputs))


class PreparedModel(backend.BackendRep):
    """A model ready to run. `run` takes the inputs in order, or by name."""

    def __init__(self, proto: onnx.ModelProto, engine: Engine) -> None:
        self.proto, self.engine = proto, engine
        constant = {tensor.name for tensor in proto.graph.initializer}
        self.names = [v.name for v in proto.graph.input if v.name not in constant]
        self.sequences = {v.name for v in proto.graph.input if _is_sequence(v.type)}
        self.model: Model | None = None
        try:
            self.model = load_onnx(proto)
        except UnsupportedError as error:
            if not isinstance(error, ValueNeededError):
                raise _refused(error) from error
        except VeraxError:
            # Perhaps the type rules need values of inputs; without inputs there are none to come.
            if not self.names:
                raise

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Outputs in the model's order."""
        if not isinstance(inputs, Mapping):
            positional = list(inputs) if isinstance(inputs, Sequence) else [inputs]
            if len(positional) != len(self.names):
                raise InputError(f"{len(positional)} inputs given, the model takes {self.names}")
            inputs = dict(zip(self.names, positional))
        arrays, lengths = _spread(inputs, self.sequences)
        model = self._model(arrays, lengths)
        graph = model.graph
        results = self.engine(graph, {n: arrays[n] for n in graph.inputs if n in arrays})
        names = [v.name for v in self.proto.graph.output]
        return backend.namedtupledict("Outputs", names)(
            *(_gathered(results, stated_outputs(model.metadata, n)) for n in names)
        )

    def _model(self, arrays: Arrays, lengths: Mapping[str, int | None]) -> Model:
        if self.model is not None and not _open(self.model.graph):
            return self.model
        values = {n: a for n, a in arrays.items() if _may_be_shape(a)}
        shapes = {n: a.shape for n, a in arrays.items() if n not in values}
        try:
            return load_onnx(self.proto, shapes={**shapes, **lengths}, values=values)
        except UnsupportedError as error:
            raise _refused(error) from error


def _is_sequence(type_: onnx.TypeProto) -> bool:
    """True for a sequence and for an optional one."""
    if type_.HasField("optional_type"):
        return _is_sequence(type_.optional_type.elem_type)
    return type_.HasField("sequence_type")


def _gathered(results: Arrays, items: list[str] | str | None) -> Any:
    """An output: an array, a list of arrays for a sequence, None for an empty optional."""
    if items is None or isinstance(items, str):
        return items and results[items]
    return [results[v] for v in items]


def _spread(
    inputs: Mapping[str, Any], sequences: Collection[str]
) -> tuple[dict[str, np.ndarray], dict[str, int | None]]:
    """Arrays by name, those of a sequence under their own names, and how long each sequence is;
    None for an optional that holds nothing."""
    arrays: dict[str, np.ndarray] = {}
    lengths: dict[str, int | None] = {}
    for name, value in inputs.items():
        if value is None:
            lengths[name] = None
        elif name in sequences:
            lengths[name] = len(value)
            arrays.update({item_name(name, i): np.asarray(v) for i, v in enumerate(value)})
        else:
            arrays[name] = np.asarray(value)
    return arrays, lengths


def _open(graph: Graph) -> bool:
    """Whether sizes are left that only running can tell."""
    return any(
        symbol.startswith("_") for type_ in graph.types.values() for symbol in type_.symbols()
    )


def _may_be_shape(array: np.ndarray) -> bool:
    small = array.size <= VALUE_LIMIT and array.ndim <= 1
    return small and (array.dtype.kind in "iub" or array.ndim == 0 or array.dtype == np.float32)


class VeraxBackend(backend.Backend):
    """Verax as a backend of ONNX; runs on the CPU."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether the model imports."""
        try:
            cls.prepare(model, device, **kwargs)
        except VeraxError:
            return False
        return True

    @classmethod
    def prepare(
        cls,
        model: onnx.ModelProto,
        device: str = "CPU",
        *,
        engine: str = "compiler",
        settings: Settings | None = None,
        **kwargs: Any,
    ) -> PreparedModel:
        """Import a model. engine: "compiler", under `settings`, or "reference". Raises
        `RefusedError`, an `UnsupportedError`, naming what is missing."""
        if not cls.supports_device(device):
            raise UsageError(f"the device {device!r} is not supported", next_step="use 'CPU'")
        if engine == "reference":
            return PreparedModel(model, run_reference)
        if engine == "compiler":
            compiler_settings = settings or Settings()
            return PreparedModel(
                model, lambda graph, arrays: run_compiled(graph, arrays, compiler_settings)
            )
        raise UsageError(f"there is no engine {engine!r}", next_step="reference or compiler")

    @classmethod
    def run_model(
        cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """Import and run once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Any = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run a single node; `opset_version` in kwargs chooses its operator set."""
        names = [name for name in dict.fromkeys(node.input) if name]
        arrays = dict(zip(names, map(np.asarray, inputs)))
        values = [
            helper.make_tensor_value_info(n, CODES[DType.of(a)], a.shape) for n, a in arrays.items()
        ]
        outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        version = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        model = helper.make_model(
            helper.make_graph([node], "node", values, outputs),
            opset_imports=[helper.make_opsetid(node.domain, version)],
        )
        return cls.prepare(model, device, **kwargs).run(arrays)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Only the CPU."""
        return device.partition(":")[0] == "CPU"


is_compatible = VeraxBackend.is_compatible
prepare = VeraxBackend.prepare
run_model = VeraxBackend.run_model
run_node = VeraxBackend.run_node
supports_device = VeraxBackend.supports_device
