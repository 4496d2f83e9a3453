"""`load`: any model file, or a compiled program, which needs nothing of what models need.

Only the reader of the format in question is imported, so that a .vx file is run within a fraction
of the time that it takes to import the compiler.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import os
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from verax.base.caching import caching_is_off
from verax.base.errors import UsageError, VeraxError
from verax.base.storage.reading import recording, stamp
from verax.base.tensors import is_from, is_function, tensors_in
from verax.formats import MXNET, ONNX, PYTORCH, TENSORFLOW, TFLITE, VX, Format, format_of

if TYPE_CHECKING:
    from verax.compiler.artifacts.saved_program import SavedExecutable
    from verax.frontends.model import Model

CACHE, ORIGIN = "verax.compiler.artifacts.cache", "verax.frontends.origin"
DEFERRED = "verax.frontends.deferred_model"
"""Not loaded for a .vx file."""


def load(
    source: Any,
    *,
    shapes: Mapping[str, Any] | None = None,
    inputs: Any = None,
    values: Mapping[str, Any] | None = None,
    params: str | os.PathLike[str] | None = None,
    signature: str | None = None,
    trust_key: str | os.PathLike[str] | None = None,
    evaluation: bool = False,
) -> Model | SavedExecutable:
    """Load a model (a path of any format, the bytes of an ONNX file, an `onnx.ModelProto`, a
    `torch.export.ExportedProgram` or `torch.onnx.ONNXProgram`, or a `torch.nn.Module` or a function
    of PyTorch's tensors with example `inputs`) or a .vx file.

    shapes: sizes for what a model leaves open: of all axes of an input, {"x": (1, 3, 224, None)},
    of one, {"x[0]": 2}, or of a dimension by its name, {"batch": 2}. Each is a number, None (open,
    as the file has it), a name (axes of one name have one size) or bounds: {"batch": (1, 64)} stays
    open, and a size outside is refused. Axes of a `torch.nn.Module` that are given as None, a name
    or bounds are exported open.
    inputs: what a module or a function is exported with: one, a sequence of positional arguments,
    or a dictionary of keyword arguments. A module takes arrays or tensors, which are copied to the
    device of its parameters; a function takes tensors.
    values: inputs of an ONNX model to be made constants, {"sr": 16000}: branches and loops that
    they decide are decided then. Foreign runtimes are given the network without these inputs.
    params: the file with the arrays of an MXNet symbol, if it is not the one beside it.
    signature: which one of a SavedModel's, if not the default.
    evaluation: read an ONNX file that was exported in training mode as it is at inference: nothing
    is dropped, BatchNormalization uses its stored statistics. Foreign runtimes are given that
    network.
    trust_key: a PEM file with the Ed25519 public key that must have signed the .vx file. Such a
    file is machine code, and as trustworthy as its sender; model files of all formats only hold
    data.
    Raises `ModelError` when the file is damaged, `UnsupportedError` when it uses what Verax lacks,
    `UsageError` when there is no such file, `TrustError` when it is not signed by that key.
    """
    if not isinstance(source, str | os.PathLike):
        if trust_key is not None:
            raise _only_programs_are_signed("an object in memory", "")
        if is_function(source):
            _require_tensors(source, inputs)
        in_torch = is_from(source, "torch") and not is_from(source, "torch.onnx")
        if is_function(source) or in_torch:
            program: Model = PYTORCH.read(source, shapes=shapes, inputs=inputs)
            return program
        _no_examples(inputs, type(source).__name__)
        proto = source.model_proto if is_from(source, "torch.onnx") else source
        model: Model = ONNX.read(proto, shapes=shapes, evaluation=evaluation)
        return model
    _no_examples(inputs, os.fspath(source))
    file_format = format_of(source)
    if trust_key is not None and file_format is not VX:
        raise _only_programs_are_signed(f"a model of {file_format.name}", os.fspath(source))
    if params is not None and file_format is not MXNET:
        raise UsageError(
            f"a model of {file_format.name} has no second file with its arrays",
            place=str(params),
            next_step="params belong to an MXNet symbol, NAME-symbol.json",
        )
    if signature is not None and file_format is not TENSORFLOW:
        raise UsageError(
            f"a model of {file_format.name} has no signatures",
            place=str(source),
            next_step="signatures belong to SavedModel folders of TensorFlow",
        )
    if values and file_format is not ONNX:
        raise UsageError(
            f"inputs of a model of {file_format.name} cannot be made constants",
            place=str(source),
            next_step="convert it to ONNX first",
        )
    if evaluation and file_format is not ONNX:
        raise UsageError(
            f"a model of {file_format.name} is read as at inference anyway",
            place=str(source),
            next_step="leave --eval (evaluation=True) out",
        )
    if file_format is VX:
        if shapes:
            raise UsageError(
                "a compiled program has fixed shapes",
                place=str(source),
                next_step="compile the model again with the shapes you want",
            )
        compiled: SavedExecutable = VX.read(source, trust_key=trust_key)
        return compiled
    named_options: dict[str, Any] = {
        "params": params,
        "signature": signature,
        "values": values or None,
        "evaluation": evaluation or None,
    }
    options = {name: value for name, value in named_options.items() if value is not None}
    before = stamp(source)
    reading = _Reading.of(file_format, source, shapes) if not options else None
    if reading is not None:
        cached = reading.cached_model(before)
        if cached is not None:
            return cached
        return dataclasses.replace(reading.model(), stamp=before)
    model = file_format.read(source, shapes=shapes, **options)
    if model.source and os.fspath(model.source) != os.fspath(source):
        before = stamp(model.source)  # the file that a runtime is given: a .params has a symbol
    if values:  # the file takes inputs that this network does not have
        constants = ", ".join(f"{name} = {value}" for name, value in values.items())
        return dataclasses.replace(
            model, source="", metadata={**model.metadata, "inputs made constants": constants}
        )
    if "read as at inference" in model.metadata:
        return dataclasses.replace(model, source="")  # the file means another network
    return dataclasses.replace(model, stamp=before)


def _only_programs_are_signed(subject: str, location: str) -> UsageError:
    return UsageError(
        f"{subject} is not signed; compiled programs can be",
        place=location,
        next_step="leave the key out, or give the .vx file that was compiled with --sign",
    )


def _require_tensors(source: Any, inputs: Any) -> None:
    """Raise `UsageError` for a function that is no network, as its inputs are no tensors."""
    if inputs is None or tensors_in(inputs):
        return
    raise UsageError(
        "a function of arrays is no network: only functions of PyTorch's tensors are exported to "
        "one",
        place=str(getattr(source, "__name__", type(source).__name__)),
        next_step="write it in PyTorch and give its inputs as tensors, or give the network's file",
    )


def _no_examples(inputs: Any, location: str) -> None:
    if inputs is not None:
        raise UsageError(
            "example inputs are given for a model that tells its inputs itself",
            place=location,
            next_step="leave inputs out; they belong to a torch.nn.Module. Sizes that a model "
            "leaves open are given as shapes",
        )


def record_name(sha256: str, options: str) -> str:
    """The name of a cache's entry about the model in a file. options: of `Origin`."""
    name: str = import_module(CACHE).entry_name("model", sha256, options)
    return name


class _Reading:
    """Reading a file that a cache may know: who compiled it left a record, so that its nodes need
    not be read before a kept program runs."""

    def __init__(self, file_format: Format, path: str, shapes: Any, options: str) -> None:
        self.file_format, self.path, self.options = file_format, path, options
        self.shapes = copy.deepcopy(shapes)  # the caller may go on using his
        self._absolute_path = os.path.abspath(path)  # in the folder where the process is now

    @staticmethod
    def of(
        file_format: Format,
        source: str | os.PathLike[str],
        shapes: Mapping[str, Any] | None,
    ) -> _Reading | None:
        """None where programs are not kept, and for formats that find files by themselves."""
        if caching_is_off() or file_format not in (ONNX, PYTORCH, TFLITE):
            return None
        try:
            options = json.dumps([file_format.name, shapes or {}], sort_keys=True)
        except (TypeError, ValueError):
            return None
        return _Reading(file_format, os.fspath(source), shapes, options)

    def cached_model(self, before: tuple[object, ...]) -> Model | None:
        """The model by its record, which nothing but its file's bytes led to; None without one.

        before: the stamp of the file.
        """
        cache = import_module(CACHE).default_cache()
        if cache is None:
            return None
        try:
            sha256 = cache.file_sha256(self.path)
        except VeraxError:  # who reads the file says what is wrong with it
            return None
        text = cache.text(record_name(sha256, self.options), import_module(CACHE).RECORD)
        if text is None:
            return None
        origins = import_module(ORIGIN)
        try:
            record = json.loads(text)
            origin = origins.Origin(
                self._absolute_path, sha256, record["companions"], self.options, self._read
            )
            if not origins.has_companions(self.path, origin.companions, cache.file_sha256):
                return None
            model: Model = import_module(DEFERRED).DeferredModel.of(
                origin, record, before, self.path
            )
        except (VeraxError, LookupError, TypeError, ValueError):
            return None
        return model

    def model(self) -> Model:
        """The model from its file, and the bytes that it was read from."""
        with recording() as files:
            model: Model = self.file_format.read(self.path, shapes=self.shapes)
        origins = import_module(ORIGIN)
        digests = origins.files_of(self.path, files)
        if digests is None:
            return model
        origin = origins.Origin(self._absolute_path, *digests, self.options, self._read)
        return dataclasses.replace(model, origin=origin)

    def _read(self) -> Model:
        """The model once more."""
        model: Model = self.file_format.read(self._absolute_path, shapes=self.shapes)
        return model
