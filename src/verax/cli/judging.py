"""`Request`: the arguments and options of `verax check` as one value, and `perform`, which runs it.

A `Request` can be written into a record and read back: that is how a record is replayed.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from verax.api import name_apart, subject_of
from verax.base.errors import InputError, UsageError
from verax.base.option_groups.options import (
    CheckOptions,
    InputOptions,
    ModelOptions,
    PassOptions,
    PhotoOptions,
    flags_of,
)
from verax.base.option_groups.settings import DEFAULT_LEVEL
from verax.cli.inputs import PHOTOS, files_of, image_options, photogenic, read_inputs
from verax.cli.models import load_models
from verax.frontends.model import Model
from verax.images import read_image
from verax.judge import check
from verax.judge.agreement import agree
from verax.judge.align.networks import align
from verax.judge.protocol import Runner
from verax.records.codec import from_plain, to_plain
from verax.replay import Record, ReplayOptions, hashes_of, network_hash
from verax.runners.passes import with_passes
from verax.runners.subjects.resolve import ModelFile, NamedRunner, resolve_text

MOST_THREADS = 1 << 12
"""Upper limit for the threads that a record may request."""
Show = Callable[[str, float], None]
"""Progress callback: (name of the stage, share done from 0 to 1)."""
Models = Mapping[str, Model]
"""Subject text -> model, for the subjects that are model files."""


GROUPS = ("judging", "optimizations", "inputs", "photo", "reading")
"""Fields of a request that are groups of options; a record holds their options by name."""


@dataclass(frozen=True)
class Request:
    """What `verax check` is asked to do: its arguments, and its options in groups."""

    model: str
    subject: str = f"verax:O{DEFAULT_LEVEL}"
    other: str | None = None
    images: str | None = None
    output: str | None = None
    threads: int = 0
    judging: CheckOptions = field(default_factory=CheckOptions)
    optimizations: PassOptions = field(default_factory=PassOptions)
    inputs: InputOptions = field(default_factory=InputOptions)
    photo: PhotoOptions = field(default_factory=PhotoOptions)
    reading: ModelOptions = field(default_factory=ModelOptions)
    device: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        """Every file that is read, and folders that are one model."""
        subjects = [resolve_text(text, here=False).files for text in self.subjects]
        photos = (str(f) for f in _photos(self.images))
        image = (self.inputs.image,) if self.inputs.image else ()
        params = (self.reading.params,) if self.reading.params else ()
        return (
            self.model,
            *params,
            *itertools.chain(*subjects),
            *image,
            *photos,
            *files_of(self.inputs.input),
            *self.optimizations.inject,
        )

    @property
    def programs(self) -> tuple[str, ...]:
        """What carrying it out runs with the rights of this process: commands, compiled programs,
        files of Python, and models that their runtime's loader may run code of."""
        named = [s for s in self.subjects if resolve_text(s, here=False).runs_code]
        return (*named, *self.optimizations.inject)

    @property
    def subjects(self) -> tuple[str, ...]:
        """Those that are judged, as they were typed."""
        return (self.subject,) if self.other is None else (self.subject, self.other)

    def with_paths(self, new_paths: Mapping[str, str]) -> Request:
        """The same request with files at other places."""
        inputs = []
        for text in self.inputs.input:
            old = files_of((text,))[0]
            head, _, tail = text.rpartition(old)
            inputs.append(head + new_paths.get(old, old) + tail)
        image, params = (
            None if path is None else new_paths.get(path, path)
            for path in (self.inputs.image, self.reading.params)
        )
        inject = tuple(new_paths.get(file, file) for file in self.optimizations.inject)
        subject, *second = (resolve_text(s, here=False).at(new_paths) for s in self.subjects)
        return dataclasses.replace(
            self,
            model=new_paths.get(self.model, self.model),
            subject=subject,
            other=second[0] if second else None,
            inputs=InputOptions(tuple(inputs), image),
            reading=dataclasses.replace(self.reading, params=params),
            optimizations=dataclasses.replace(self.optimizations, inject=inject),
        )

    def to_options(self) -> dict[str, Any]:
        """All options by name, as a record holds them."""
        plain = {
            f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in GROUPS
        }
        groups = [getattr(self, name) for name in GROUPS]
        return plain | {name: getattr(g, name) for g in groups for name in flags_of(g)}

    @staticmethod
    def from_options(options: object) -> Request:
        """The request of a record; options that it does not name are as they are by default.

        Raises `UsageError` for options of another version, and for values that none may have.
        """
        if not isinstance(options, dict):
            raise UsageError("the options of the record are no object")
        usual = to_plain(Request("").to_options())
        strange = sorted(options.keys() - usual.keys())
        if strange:
            raise UsageError(
                f"the record was made with options that this version lacks ({strange[0]!a:.80})",
                next_step="use the version of Verax that wrote it",
            )
        flat, defaults = {**usual, **options}, to_plain(Request(""))
        for name in GROUPS:
            flat[name] = {**defaults[name], **{k: flat[k] for k in defaults[name] if k in flat}}
        request: Request = from_plain(Request, flat, "options")
        if not 0 <= request.threads <= MOST_THREADS:
            raise UsageError(f"the option threads is {request.threads}")
        return request


def perform(request: Request, show: Show, network: str = "") -> Record:
    """Carry out a request: a verdict, an alignment (the subject is a model file), or an agreement
    (a folder of images), with its recipe.

    network: hash that the model must have ("" for any). Raises `UsageError` and `InputError` for
    what cannot be done.
    """
    is_runner = isinstance(resolve_text(request.model, here=False), NamedRunner)
    if is_runner and not os.path.exists(request.model):
        raise UsageError(
            f"{request.model!r} is a subject, not a model: the model comes first",
            next_step=f"verax check MODEL {request.model}",
        )
    subjects = [s for s in request.subjects if isinstance(resolve_text(s), ModelFile)]
    loaded, *second_models = load_models(
        (request.model, *subjects), request.reading, command="verax check"
    )
    models = dict(zip(subjects, second_models))
    actual_network = network_hash(loaded.graph)
    if network not in ("", actual_network):
        raise InputError(
            "the model's file is the recorded one and now means another network: its external "
            "weights or this version's reader changed",
            place=request.model,
            next_step="check it anew without --replay",
        )
    compares = request.images is not None or (request.subject in models and request.other is None)
    if request.judging.steps is not None and compares:
        mode = "--images" if request.images is not None else "the comparison of two model files"
        raise UsageError(
            f"--steps does not go with {mode}",
            next_step="leave it out, or name a runner as the subject",
        )
    recipe = ReplayOptions(request.to_options(), hashes_of(request.files), actual_network)
    if request.images is not None:
        record: Record = _agree(request, loaded, models, show)
    elif request.subject in models and request.other is None:
        record = _align(request, loaded, models[request.subject], show)
    else:
        record = _check(request, loaded, models, show)
    return dataclasses.replace(record, replay=recipe.to_text())


def _subject(request: Request, loaded: Model, models: Models) -> Runner:
    """The subject that is judged, with the optimizations asked for."""
    runner = _runner(request, loaded, models, request.subject)
    return with_passes(runner, request.optimizations)


def _runner(request: Request, loaded: Model, models: Models, text: str) -> Runner:
    takes = [s for s in request.subjects if resolve_text(s).takes_device]
    # With two subjects it is for those that take one; where none does, the first one says so.
    device = request.device if text in takes or not takes else ""
    subject = models.get(text, text)
    return subject_of(subject, loaded, request.threads, request.judging.timeout, device)


def _check(request: Request, loaded: Model, models: Models, show: Show) -> Record:
    photo = image_options(request.photo)
    prepared = read_inputs(request.inputs, loaded.inputs, photo, loaded.pixels)
    subject = _subject(request, loaded, models)
    second = _runner(request, loaded, models, request.other) if request.other else None
    if second is not None:
        name_apart(subject, second, (request.subject, request.other))
    verdict = check(
        loaded.graph,
        subject,
        prepared.arrays or None,
        other=second,
        options=request.judging,
        pixels=loaded.pixels,
        progress=lambda done, total, stage: show(stage, done / max(total, 1)),
    )
    inputs = tuple(
        dataclasses.replace(i, origin="; ".join(prepared.steps.get(i.name, (i.origin,))))
        for i in verdict.inputs
    )
    read = loaded.metadata.get("read as at inference", "")
    notes = (f"read as at inference (--eval): {read}",) if read else ()
    return dataclasses.replace(verdict, inputs=inputs, notes=(*verdict.notes, *notes))


def _align(request: Request, loaded: Model, second: Model, show: Show) -> Record:
    photo = image_options(request.photo)
    prepared = read_inputs(request.inputs, loaded.inputs, photo, loaded.pixels)
    return align(
        loaded.graph,
        second.graph,
        prepared.arrays or None,
        seed=request.judging.seed,
        names=(request.model, request.subject),
        timeout=request.judging.timeout,
        progress=show,
    )


def _agree(request: Request, loaded: Model, models: Models, show: Show) -> Record:
    folder = Path(request.images or "")
    if not os.path.isdir(folder):
        raise UsageError("there is no such folder of images", place=str(folder))
    if request.inputs != InputOptions() or request.other:
        raise UsageError(
            "--images gives the inputs: --input, --image and --other do not go with it",
            next_step="leave them out",
        )
    name = photogenic(loaded.inputs, loaded.pixels)
    if len(loaded.inputs) != 1:
        raise UsageError(
            "a folder of images suits models with one input",
            next_step="check one image at a time with --image and --input",
        )
    photos = _photos(request.images)
    options, pixels = image_options(request.photo), loaded.pixels.get(name)

    def reading(file: Path) -> Callable[[], dict[str, np.ndarray]]:
        def read() -> dict[str, np.ndarray]:
            array = read_image(file, loaded.inputs[name], options, pixels).array
            first = loaded.inputs[name].dims[0]
            copies = first if isinstance(first, int) and array.shape[0] == 1 else 1
            return {name: np.repeat(array, copies, axis=0) if copies > 1 else array}

        return read

    named = {f.relative_to(folder).as_posix(): reading(f) for f in photos}
    record = agree(
        loaded.graph,
        _subject(request, loaded, models),
        named,
        output=request.output,
        progress=show,
        options=request.judging,
    )
    first = folder / record.judged.partition(", row ")[0]
    steps = read_image(first, loaded.inputs[name], options, pixels)
    return dataclasses.replace(record, steps=steps.steps)


def _photos(folder: str | None) -> list[Path]:
    """Image files in a folder and below, in order of their names."""
    if folder is None:
        return []
    return sorted(f for f in Path(folder).rglob("*") if f.suffix.lower() in PHOTOS and f.is_file())
