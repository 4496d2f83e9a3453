"""Options in groups, each declared once: Python takes a group, the command line builds it from the
flags that its fields carry, and records hold its fields by name.

A field that has a `Flag` is an option of every command that takes the group; one without is for
Python alone. `--help` needs this file, so nothing slow may be imported here.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, TypeVar

from verax.base.errors import UsageError

G = TypeVar("G")
INPUTS, PHOTOS, RUNNING = "Inputs", "Photos as inputs", "How it runs"
JUDGING, RESULT, COMPILING = "How it is judged", "What comes out", "Compiling"
PANELS = (INPUTS, PHOTOS, RUNNING, COMPILING, JUDGING, RESULT)
"""Panels of options, in the order of `--help`; options of none come first."""
LARGEST_SEED = (1 << 64) - 1
"""As records hold whole numbers."""
FLAG = "flag"
"""Key of a field's metadata."""


@dataclass(frozen=True)
class Flag:
    """How an option is given on the command line.

    help: what `--help` says. panel: of PANELS. names: of the flag, where they are not the field's.
    metavar: what stands for the value. minimum, maximum: of a number. commas: several values of one
    flag are parted by commas. files: the values are paths.
    """

    help: str
    panel: str
    names: tuple[str, ...] = ()
    metavar: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    commas: bool = False
    files: bool = False


def option(default: Any, text: str, panel: str, *names: str, **details: Any) -> Any:
    """A field with a flag; arguments as of `Flag`."""
    return dataclasses.field(default=default, metadata={FLAG: Flag(text, panel, names, **details)})


def same_option(group: type, field: str) -> Any:
    """A field with the flag and the default of a field of another group."""
    declared = next(f for f in dataclasses.fields(group) if f.name == field)
    return dataclasses.field(default=declared.default, metadata=dict(declared.metadata))


def flags_of(group: type | object) -> dict[str, Flag]:
    """The flags of a group by the name of the field."""
    fields: Sequence[Any] = dataclasses.fields(group)  # type: ignore[arg-type]
    return {f.name: f.metadata[FLAG] for f in fields if FLAG in f.metadata}


def changed(group: G, keywords: Mapping[str, Any]) -> G:
    """The group with other values, by the names of its fields; lists become tuples.

    Raises `UsageError` for a name that it has not, and for values that an option cannot have.
    """
    if not keywords:
        return group
    names = [f.name for f in dataclasses.fields(group)]  # type: ignore[arg-type]
    for name in keywords:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            raise UsageError(
                f"there is no option {name!r}" + (f"; is {near[0]!r} meant?" if near else ""),
                next_step=f"choose from {', '.join(names)}",
            )
    values = {k: tuple(v) if isinstance(v, list | set) else v for k, v in keywords.items()}
    return dataclasses.replace(group, **values)  # type: ignore[type-var]


def parted(group: G, keywords: Mapping[str, Any]) -> tuple[G, dict[str, Any]]:
    """The group with those of the keywords that are its fields, and the other keywords. Raises as
    `changed`."""
    names = {f.name for f in dataclasses.fields(group)}  # type: ignore[arg-type]
    own = {k: v for k, v in keywords.items() if k in names}
    return changed(group, own), {k: v for k, v in keywords.items() if k not in names}


def as_texts(values: Sequence[str]) -> tuple[str, ...]:
    """Texts of a caller as a group holds them; one text stands for one value."""
    return (values,) if isinstance(values, str) else tuple(map(str, values))


def require_sound(sound: bool, name: str, value: Any, expected: str) -> None:
    """Raise `UsageError` unless `sound`: the option's value is not what is expected of it."""
    if not sound:
        flag = f"--{name.replace('_', '-')}"
        raise UsageError(f"the option {name} ({flag}) is {value}", next_step=f"give {expected}")


def require_seed(seed: int) -> None:
    """Raise `UsageError` unless `seed` is one that every generator and record takes."""
    require_sound(0 <= seed <= LARGEST_SEED, "seed", seed, "a whole number of 64 bits, 0 or more")


@dataclass(frozen=True)
class CheckOptions:
    """How a subject is judged: of `check`, `bisect`, and the image that `agree` judges.

    watch: whether to ask for values inside the network. winograd: whether the subject may use
    Winograd's and other fast algorithms; False makes the check sharper. explain: whether to find
    out what the guilty nodes did, or what is wrong around the network. twice: whether to run the
    subject again, in poisoned memory where it allows that. require_power: relative error that must
    have shown in every node; a check that misses it is `undecided`. allow: arithmetics ("bf16",
    "TF32", "Strassen", ...) whose errors the network may make large without the verdict being
    *precision lost*, and unstable algorithms that may lose digits. timeout: seconds that judging
    may take, beside the subject's first runs, 600 when not given; what it does not get to is
    unchecked or undecided, and the record says so. steps: how many consecutive runs of a network
    that remembers are judged, by default two. memory: bytes, or "8G", that judging may take, half
    of what is free when not given; what does not fit is unchecked, the record says why. seed: of
    inputs that are drawn, and of the judge's samples.
    """

    watch: bool = option(True, "Ask the subject for values inside the network.", RUNNING)
    winograd: bool = option(
        True, "The subject may use Winograd's algorithm; without, sharper.", JUDGING
    )
    explain: bool = True
    twice: bool = True
    require_power: float | None = option(
        None,
        "Undecided unless a relative error of R would have shown in every node.",
        JUDGING,
        metavar="R",
        minimum=0.0,
    )
    allow: tuple[str, ...] = option(
        (),
        "An arithmetic (bf16, TF32, fp16, int8, Winograd, Strassen, FFT) whose errors the "
        "network may make large: precision, where it would be precision lost; or an unstable "
        'algorithm ("variance by difference of squares") that may lose digits.',
        JUDGING,
        metavar="NAME",
    )
    timeout: float | None = option(
        None,
        "The longest that one run of the subject may take, and judging beside it. "
        "Without: 300 for a subject in a process of its own, no limit for one in this process; 600 "
        "for judging, which then answers with what it knows.",
        JUDGING,
        metavar="SECONDS",
    )
    steps: int | None = option(
        None,
        "Consecutive runs, on the same inputs, that are judged of a model that remembers; 2 "
        "when not given. Values of run N are called NAME@N.",
        INPUTS,
        metavar="N",
        minimum=1,
    )
    memory: str | int | None = option(
        None,
        "What judging may take (8G, 512M); half of what is free by default. What does not "
        "fit is judged in pieces or called unchecked.",
        JUDGING,
        metavar="SIZE",
    )
    seed: int = option(
        0, "For inputs that are drawn: 64 bits.", INPUTS, minimum=0, maximum=LARGEST_SEED
    )

    def __post_init__(self) -> None:
        if isinstance(self.allow, str):
            object.__setattr__(self, "allow", (self.allow,))
        power, seconds = self.require_power, self.timeout
        require_seed(self.seed)
        require_sound(power is None or power >= 0, "require_power", power, "0 or more")
        require_sound(seconds is None or seconds > 0, "timeout", seconds, "seconds, above 0")
        require_sound(self.steps is None or self.steps >= 1, "steps", self.steps, "1 or more")


CHECKED_AS_USUAL = CheckOptions()


class CheckKeywords(TypedDict, total=False):
    """The fields of `CheckOptions` as keyword arguments."""

    watch: bool
    winograd: bool
    explain: bool
    twice: bool
    require_power: float | None
    allow: str | Sequence[str]
    timeout: float | None
    steps: int | None
    memory: str | int | None
    seed: int


@dataclass(frozen=True)
class PassOptions:
    """What a user asks of a subject's optimizations, by their names.

    passes: the only ones that run, None for all; disable: those that do not; inject: files with
    further ones, which are code that is run.
    """

    passes: tuple[str, ...] | None = option(
        None,
        "Only these passes and decisions run (see `verax passes`).",
        RUNNING,
        metavar="A,B",
        commas=True,
    )
    disable: tuple[str, ...] = option(
        (), "Passes and decisions that do not run.", RUNNING, metavar="A,B", commas=True
    )
    inject: tuple[str, ...] = option(
        (),
        "A pass of your own: the file defines a function with a docstring and a line such as "
        "PASS = Pass(function, PassClass.reassociates, after=('fold_constants',)), and runs behind "
        "those passes. This RUNS the code in that file.",
        RUNNING,
        metavar="FILE.py",
        files=True,
    )

    def __post_init__(self) -> None:
        for name in ("passes", "disable", "inject"):
            values = getattr(self, name)
            object.__setattr__(self, name, None if values is None else as_texts(values))


class PassKeywords(TypedDict, total=False):
    """The fields of `PassOptions` as keyword arguments."""

    passes: str | Sequence[str] | None
    disable: str | Sequence[str]
    inject: str | Sequence[str]


class JudgingKeywords(CheckKeywords, PassKeywords, total=False):
    """How a subject is judged, and with which of its optimizations."""


@dataclass(frozen=True)
class PhotoOptions:
    """How pictures become arrays, in the texts of the command line; None for what the model's file
    says, or is usual (`verax.images`)."""

    image_layout: str | None = option(None, "One of NCHW, NHWC, CHW, HWC, NHW, HW.", PHOTOS)
    image_order: str | None = option(None, "One of RGB, BGR, GRAY.", PHOTOS)
    image_range: str | None = option(
        None, "What black and white become (0,1).", PHOTOS, metavar="LOW,HIGH"
    )
    image_mean: str | None = option(None, "Subtracted, in the range.", PHOTOS, metavar="R,G,B")
    image_std: str | None = option(None, "Divided by.", PHOTOS, metavar="R,G,B")
    image_fit: str = option("stretch", "One of stretch, crop, pad.", PHOTOS)


@dataclass(frozen=True)
class InputOptions:
    """Files of inputs. input: texts NAME=FILE. image: a photo for the only input of one."""

    input: tuple[str, ...] = option(
        (),
        "An input: .npy, .npz (NAME=FILE.npz:KEY for one array of it), .png or .jpg. "
        "Without NAME=, an .npz gives arrays by their names, anything else the only input.",
        INPUTS,
        "--input",
        "-i",
        metavar="NAME=FILE",
    )
    image: str | None = option(
        None, "A photo for the only input that can take one.", INPUTS, files=True
    )


@dataclass(frozen=True)
class ModelOptions:
    """How a model's file is read.

    shape: texts NAME=SIZES for what it leaves open (`verax.load`). value: texts NAME=NUMBER, inputs
    to be made constants. params: the arrays of an MXNet symbol. evaluation: read an ONNX file of
    training as it is at inference.
    """

    shape: tuple[str, ...] = option(
        (),
        "Sizes that the model leaves open: an input's (x=1x3x224x224), of one axis of it (x[0]=1) "
        "or a dimension's by its name (n=1). For a number: ? (stays open), bounds (n=1:512) or a "
        "name (x[0]=batch, x=batch,3,224,224).",
        INPUTS,
        metavar="NAME=SIZES",
    )
    value: tuple[str, ...] = option(
        (),
        "An input of an ONNX model to be made a constant (sr=16000): branches and loops that "
        "it decides are decided then.",
        INPUTS,
        metavar="NAME=NUMBER",
    )
    params: str | None = option(
        None,
        "The arrays of an MXNet symbol; else NAME-NNNN.params beside it, the newest epoch.",
        INPUTS,
        metavar="FILE",
        files=True,
    )
    evaluation: bool = option(
        False,
        "Read an ONNX file that was exported in training mode as it is at inference: Dropout "
        "drops nothing, BatchNormalization uses its stored statistics.",
        INPUTS,
        "--eval",
    )
