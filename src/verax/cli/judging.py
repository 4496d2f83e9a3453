"""What `verax check` was asked for, as one value, and carrying it out.

A `Request` can be written into a record and read back: that is how a record is replayed.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from verax.api import name_apart, subject_of
from verax.base.errors import InputError, UsageError
from verax.base.settings import DEFAULT_LEVEL
from verax.cli.console import parse_shapes
from verax.cli.inputs import PHOTOS, files_of, image_options, photogenic, read_inputs
from verax.cli.models import load_models
from verax.frontends.model import Model
from verax.images import ImageOptions, read_image
from verax.judge import check
from verax.judge.agreement import agree
from verax.judge.align.networks import align
from verax.judge.protocol import Runner
from verax.records.codec import from_plain, to_plain
from verax.replay import Recipe, Record, hashes_of, network_hash
from verax.runners.passes import PassOptions, with_passes
from verax.runners.subjects.resolve import ModelFile, NamedRunner, resolve_text

MOST_THREADS = 1 << 12
"""A record that asks for more was not made by a machine."""
Show = Callable[[str, float], None]
"""Progress: what is being done, and the share done."""
Models = Mapping[str, Model]
"""Those subjects that are model files."""


@dataclass(frozen=True)
class Request:
    """The options of `verax check`; names and meanings as on the command line."""

    model: str
    subject: str = f"verax:O{DEFAULT_LEVEL}"
    other: str | None = None
    input: tuple[str, ...] = ()
    image: str | None = None
    images: str | None = None
    output: str | None = None
    image_layout: str | None = None
    image_order: str | None = None
    image_range: str | None = None
    image_mean: str | None = None
    image_std: str | None = None
    image_fit: str = "stretch"
    watch: bool = True
    winograd: bool = True
    threads: int = 0
    shape: tuple[str, ...] = ()
    seed: int = 0
    params: str | None = None
    require_power: float | None = None
    timeout: float | None = None
    memory: str | None = None
    steps: int | None = None
    passes: tuple[str, ...] | None = None
    disable: tuple[str, ...] = ()
    inject: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    evaluation: bool = False

    @property
    def photo(self) -> ImageOptions:
        """How images become arrays. Raises `UsageError`."""
        return image_options(
            self.image_layout,
            self.image_order,
            self.image_range,
            self.image_mean,
            self.image_std,
            self.image_fit,
        )

    @property
    def files(self) -> tuple[str, ...]:
        """Every file that is read, and folders that are one model."""
        subjects = [resolve_text(text, here=False).files for text in self.subjects]
        photos = (str(f) for f in _photos(self.images))
        image = (self.image,) if self.image else ()
        params = (self.params,) if self.params else ()
        return (
            self.model,
            *params,
            *itertools.chain(*subjects),
            *image,
            *photos,
            *files_of(self.input),
            *self.inject,
        )

    @property
    def programs(self) -> tuple[str, ...]:
        """What carrying it out runs with the rights of this process: commands, compiled programs,
        files of Python, and models that their runtime's loader may run code of."""
        named = [s for s in self.subjects if resolve_text(s, here=False).runs_code]
        return (*named, *self.inject)

    @property
    def subjects(self) -> tuple[str, ...]:
        """Those that are judged, as they were typed."""
        return (self.subject,) if self.other is None else (self.subject, self.other)

    def moved(self, places: Mapping[str, str]) -> Request:
        """The same request with files at other places."""
        one: dict[str, Any] = {
            name: places.get(value, value)
            for name in ("model", "params", "image")
            if (value := getattr(self, name)) is not None
        } | {
            name: resolve_text(text, here=False).at(places)
            for name, text in zip(("subject", "other"), self.subjects)
        }
        inputs = []
        for text in self.input:
            old = files_of((text,))[0]
            head, _, tail = text.rpartition(old)
            inputs.append(head + places.get(old, old) + tail)
        inject = tuple(places.get(file, file) for file in self.inject)
        return dataclasses.replace(self, input=tuple(inputs), inject=inject, **one)

    @staticmethod
    def from_options(options: object) -> Request:
        """The request of a recipe; options that it does not name are as they are by default.

        Raises `UsageError` for options of another version, and for values that none may have.
        """
        if not isinstance(options, dict):
            raise UsageError("the options of the record are no object")
        usual = to_plain(Request(""))
        strange = sorted(options.keys() - usual.keys())
        if strange:
            raise UsageError(
                f"the record was made with options that this version lacks ({strange[0]!a:.80})",
                next_step="use the version of Verax that wrote it",
            )
        made: Request = from_plain(Request, {**usual, **options}, "options")
        for name, sound in (
            ("threads", 0 <= made.threads <= MOST_THREADS),
            ("seed", made.seed >= 0),
            ("steps", made.steps is None or made.steps >= 1),
            ("require_power", made.require_power is None or made.require_power >= 0),
            ("timeout", made.timeout is None or made.timeout > 0),
        ):
            if not sound:
                raise UsageError(f"the record's option {name} is {getattr(made, name)}")
        return made


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
    sizes = parse_shapes(list(request.shape))
    loaded, *others = load_models(
        (request.model, *subjects),
        sizes,
        request.params,
        command="verax check",
        evaluation=request.evaluation,
    )
    models = dict(zip(subjects, others))
    found = network_hash(loaded.graph)
    if network not in ("", found):
        raise InputError(
            "the model's file is the recorded one and now means another network: its external "
            "weights or this version's reader changed",
            place=request.model,
            next_step="check it anew without --replay",
        )
    compares = request.images is not None or (request.subject in models and request.other is None)
    if request.steps is not None and compares:
        what = "--images" if request.images is not None else "the comparison of two model files"
        raise UsageError(
            f"--steps does not go with {what}",
            next_step="leave it out, or name a runner as the subject",
        )
    recipe = Recipe(dataclasses.asdict(request), hashes_of(request.files), found)
    if request.images is not None:
        record: Record = _agree(request, loaded, models, show)
    elif request.subject in models and request.other is None:
        record = _align(request, loaded, models[request.subject], show)
    else:
        record = _check(request, loaded, models, show)
    return dataclasses.replace(record, replay=recipe.to_text())


def _subject(request: Request, loaded: Model, models: Models) -> Runner:
    """The subject that is judged, with the optimisations asked for."""
    chosen = PassOptions(request.passes, request.disable, request.inject)
    return with_passes(_runner(request, loaded, models, request.subject), chosen)


def _runner(request: Request, loaded: Model, models: Models, text: str) -> Runner:
    return subject_of(models.get(text, text), loaded, request.threads, request.timeout)


def _check(request: Request, loaded: Model, models: Models, show: Show) -> Record:
    image = Path(request.image) if request.image else None
    given = read_inputs(list(request.input), image, loaded.inputs, request.photo, loaded.pixels)
    subject = _subject(request, loaded, models)
    other = _runner(request, loaded, models, request.other) if request.other else None
    if other is not None:
        name_apart(subject, other, (request.subject, request.other))
    verdict = check(
        loaded.graph,
        subject,
        given.arrays or None,
        other=other,
        seed=request.seed,
        watch=request.watch,
        winograd=request.winograd,
        require_power=request.require_power,
        allow=request.allow,
        timeout=request.timeout,
        pixels=loaded.pixels,
        steps=request.steps,
        progress=lambda done, total, what: show(what, done / max(total, 1)),
    )
    inputs = tuple(
        dataclasses.replace(i, origin="; ".join(given.steps.get(i.name, (i.origin,))))
        for i in verdict.inputs
    )
    read = loaded.metadata.get("read as at inference", "")
    notes = (f"read as at inference (--eval): {read}",) if read else ()
    return dataclasses.replace(verdict, inputs=inputs, notes=(*verdict.notes, *notes))


def _align(request: Request, loaded: Model, second: Model, show: Show) -> Record:
    image = Path(request.image) if request.image else None
    given = read_inputs(list(request.input), image, loaded.inputs, request.photo, loaded.pixels)
    return align(
        loaded.graph,
        second.graph,
        given.arrays or None,
        seed=request.seed,
        names=(request.model, request.subject),
        timeout=request.timeout,
        progress=show,
    )


def _agree(request: Request, loaded: Model, models: Models, show: Show) -> Record:
    folder = Path(request.images or "")
    if not os.path.isdir(folder):
        raise UsageError("there is no such folder of images", place=str(folder))
    if request.input or request.image or request.other:
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
    options, said = request.photo, loaded.pixels.get(name)

    def reading(file: Path) -> Callable[[], dict[str, np.ndarray]]:
        def read() -> dict[str, np.ndarray]:
            array = read_image(file, loaded.inputs[name], options, said).array
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
        seed=request.seed,
        progress=show,
        watch=request.watch,
        winograd=request.winograd,
    )
    first = folder / record.judged.partition(", row ")[0]
    steps = read_image(first, loaded.inputs[name], options, said)
    return dataclasses.replace(record, steps=steps.steps)


def _photos(folder: str | None) -> list[Path]:
    """Image files in a folder and below, in order of their names."""
    if folder is None:
        return []
    return sorted(f for f in Path(folder).rglob("*") if f.suffix.lower() in PHOTOS and f.is_file())
