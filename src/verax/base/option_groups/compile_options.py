"""Options of `compile`, `tune` and `bench`, in groups (`base.option_groups.options`): Python, the
command line, records and `.vx` files carry each whole.

A new option is a field here and in the keywords below it, and whatever reads it.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypedDict

from verax.base.machine.memory import parse_bytes
from verax.base.machine.processor import NAMES
from verax.base.option_groups.options import (
    COMPILING,
    RESULT,
    RUNNING,
    CheckOptions,
    ModelOptions,
    PassOptions,
    as_texts,
    option,
    require_seed,
    require_sound,
    same_option,
)
from verax.base.option_groups.settings import DEFAULT_LEVEL, MAX_PROGRAMS, Settings

Path: TypeAlias = str | os.PathLike[str]
BUDGET = 60.0
"""Seconds that tuning may take when nobody says otherwise."""
TURN_TIMEOUT = 300.0
"""Seconds that an engine may take to load, or for one turn."""

ENGINES = (
    *("verax", "verax:saved", "torch-zentorch", "ncnn", "mnn"),
    *("verax:O0", "verax:O1", "verax:O2", "verax:O3"),
    *("onnxruntime", "onnxruntime:disabled", "onnxruntime:basic"),
    *("onnxruntime:extended", "onnxruntime:all"),
    *("openvino", "openvino:f32", "openvino:bf16", "openvino:f16", "openvino:default"),
    *("tvm", "tvm:O0", "tvm:O1", "tvm:O2"),
    *("torch", "torch-compiled", "litert", "litert-builtin", "litert-reference"),
)
"""Names of `runners.registry.ENGINES`, which takes its time to import; tests/cli/test_help.py holds
the two together."""


@dataclass(frozen=True)
class CompilationOptions:
    """How a model is compiled: of `compile`.

    opt_level: 0 (every node by itself), 1 (fused; the same bits), 2 (scales folded into weights:
    within rounding) or 3 (fast algorithms: approximate), which is the default. All give the
    same bits on every machine. threads: None for as many as this process has cores, fewer under a
    CPU quota or OMP_NUM_THREADS. target: of `base.machine.processor.NAMES`, or "host". disable,
    require: names of passes. allow: ("bf16",) lets O3 round the factors of products to bfloat16;
    the certificate says what it costs. checked: verify the graph around every pass. memory: bytes,
    or "8G", that one value and the program's buffers may take; 0 for VERAX_MEMORY or most of what
    is free. programs: how many are held, one for each set of input sizes; of more, the one that was
    used longest ago is dropped, with a warning. background: sizes that come often, and that a
    program for many sizes answers, get one of their own, made on a thread of low priority beside
    the calls; the same bits. require_native: refuse a node that would run on the
    reference, in Python. recipe: of an earlier program of the same model (`exe.recipe`, its JSON
    file, or a .vx file): the same bits, or `CompileError`; it says level and passes itself.
    certify: judge the program against float64 before it is handed over; layers whose approximation
    does not stand go back to direct summation.
    draws: sets of inputs to draw for that, where none are given. seed: of those. cache: keep
    program and certificate on disk, and take them from there if they were made before
    (`verax.compiler.artifacts.cache` says where and when). tuned: take the schedules that
    `tune` found for exactly these kernels on this machine, and behind them those that come with
    Verax for its processors; False for none; a file is that history, which then stands alone.
    history: the file that they are in, by default the one beside the cached programs. They change
    no bit, and `exe.plan` says which there were.
    """

    opt_level: int | None = option(
        None,
        "0: every node by itself. 1: fused, same bits. 2: scales folded, within rounding. "
        "3: Winograd's and Strassen's algorithms, approximate. By default 3.",
        COMPILING,
        "-O",
        "--opt-level",
    )
    threads: int | None = option(
        None,
        "Threads that the program is made for, and whose history is looked up; 0: as many as "
        "cores, CPU quota and OMP_NUM_THREADS allow (`verax doctor`).",
        COMPILING,
        "--threads",
        minimum=0,
    )
    target: str = option(
        "host",
        f"host, {', '.join(NAMES)}; cuda is the first card of this machine, cuda:1 the second.",
        COMPILING,
    )
    disable: tuple[str, ...] = same_option(PassOptions, "disable")
    require: tuple[str, ...] = option((), "A pass to run anyway.", COMPILING)
    allow: tuple[str, ...] = option(
        (),
        "Let O3 take the factors of products in bfloat16; --certify says what it costs.",
        COMPILING,
        "--allow",
        metavar="bf16",
        commas=True,
    )
    checked: bool = option(False, "Verify the graph around every pass.", COMPILING, "--checked")
    memory: int | str = option(
        0,
        "The most that one value, or the buffers of all programs that are held, may take: 8G, "
        "512M; by default VERAX_MEMORY, or most of what is free, for each of them.",
        COMPILING,
        metavar="SIZE",
    )
    programs: int = option(
        MAX_PROGRAMS,
        "How many programs are held, one for each set of input sizes; of more, the one used "
        "longest ago is dropped.",
        COMPILING,
        metavar="N",
        minimum=1,
    )
    background: bool = True
    require_native: bool = option(
        False, "Refuse a model that needs the reference anywhere.", COMPILING, "--require-native"
    )
    recipe: Any = option(  # noqa: RUF009 (it makes a field, as the others)
        None,
        "Follow the recipe of an earlier program (JSON, or a .vx file): the same bits, or an "
        "error.",
        COMPILING,
        metavar="FILE",
        files=True,
    )
    certify: bool = option(
        False,
        "Judge the program against float64 first, and keep the certificate in the file.",
        COMPILING,
        "--certify",
    )
    draws: int = option(
        1, "Sets of inputs to draw for the certificate, if none is given.", COMPILING
    )
    seed: int = same_option(CheckOptions, "seed")
    cache: bool = option(True, "Take a program that was compiled before from the disk.", COMPILING)
    tuned: bool = option(
        True,
        "Take schedules that `verax tune` found on this machine, or that come with Verax.",
        COMPILING,
    )
    history: str | None = option(
        None,
        "Take the schedules that `verax tune --history FILE` found; by default those of "
        "`verax tune` without it.",
        COMPILING,
        metavar="FILE",
        files=True,
    )

    def __post_init__(self) -> None:
        for name in ("disable", "require", "allow"):
            object.__setattr__(self, name, tuple(dict.fromkeys(as_texts(getattr(self, name)))))
        if isinstance(self.tuned, str | os.PathLike):
            object.__setattr__(self, "history", os.fspath(self.tuned))
            object.__setattr__(self, "tuned", True)
        if self.history is not None:
            object.__setattr__(self, "history", os.fspath(self.history))
        require_seed(self.seed)

    @property
    def selects_passes(self) -> bool:
        """True if level or passes are given, which a recipe says itself."""
        return self.opt_level is not None or bool(self.disable or self.require or self.allow)

    @property
    def settings(self) -> Settings:
        """The part that changes generated code: the fields that `Settings` has as well."""
        names = {f.name for f in dataclasses.fields(self)}
        shared = [f.name for f in dataclasses.fields(Settings) if f.name in names]
        values = {name: getattr(self, name) for name in shared}
        if self.opt_level is None:
            values["opt_level"] = DEFAULT_LEVEL
        values["threads"] = self.threads or 0
        if isinstance(self.memory, str):
            values["memory"] = parse_bytes(self.memory) if self.memory != "0" else 0
        return Settings(**values)

    def to_notes(self) -> dict[str, Any]:
        """All options by name, for files that leave this machine: without its paths."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {name: v for name, v in values.items() if name not in ("recipe", "history")}


COMPILED_AS_USUAL = CompilationOptions()


class CompilationKeywords(TypedDict, total=False):
    """The fields of `CompilationOptions` as keyword arguments."""

    opt_level: int | None
    threads: int | None
    target: str
    disable: str | Sequence[str]
    require: str | Sequence[str]
    allow: str | Sequence[str]
    checked: bool
    memory: int | str
    programs: int
    background: bool
    require_native: bool
    recipe: Any
    certify: bool
    draws: int
    seed: int
    cache: bool
    tuned: bool | Path
    history: Path | None


@dataclass(frozen=True)
class TuneOptions:
    """How schedules are measured: of `tune`.

    time_budget: seconds. trials: the most candidates of a kernel. threads, opt_level: as `compile`
    takes them; what is found holds for this number of threads. history: the file to append to, by
    default the one that `compile` reads. resume: candidates that the history has of exactly these
    kernels and this machine are not measured again. cost_model: candidates come in the order of a
    model fitted from the history, if it has enough and LightGBM or scikit-learn is installed. seed:
    of inputs that are drawn.
    """

    time_budget: float = option(BUDGET, "How long it may take.", RUNNING, metavar="SECONDS")
    trials: int | None = option(
        None, "The most candidates of a kernel.", RUNNING, "--trials", minimum=1
    )
    threads: int | None = option(
        None,
        "Threads; 0: as many as cores, CPU quota and OMP_NUM_THREADS allow (`verax doctor`).",
        RUNNING,
        "--threads",
        minimum=0,
    )
    opt_level: int | None = same_option(CompilationOptions, "opt_level")
    history: str | None = option(
        None,
        "The history to append to; by default the one that every compilation reads, beside the "
        "kept programs (`verax cache`).",
        RESULT,
        metavar="FILE",
        files=True,
    )
    resume: bool = option(
        False,
        "Go on where a run was ended: what the history has of exactly these kernels and this "
        "machine is not measured again.",
        RUNNING,
        "--resume",
    )
    cost_model: bool = option(
        True,
        "Try candidates in the order of a model that is fitted from the history, where LightGBM or "
        "scikit-learn is installed.",
        RUNNING,
    )
    seed: int = same_option(CheckOptions, "seed")

    def __post_init__(self) -> None:
        if self.history is not None:
            object.__setattr__(self, "history", os.fspath(self.history))
        budget, trials = self.time_budget, self.trials
        require_sound(0 < budget < float("inf"), "time_budget", budget, "a number above 0")
        require_sound(trials is None or trials >= 1, "trials", trials, "1 or more, or leave it out")

    @property
    def settings(self) -> Settings:
        """What is compiled for tuning."""
        return CompilationOptions(opt_level=self.opt_level, threads=self.threads).settings


TUNED_AS_USUAL = TuneOptions()


class TuneKeywords(TypedDict, total=False):
    """The fields of `TuneOptions` as keyword arguments."""

    time_budget: float
    trials: int | None
    threads: int | None
    opt_level: int | None
    history: Path | None
    resume: bool
    cost_model: bool
    seed: int


@dataclass(frozen=True)
class DeviceOptions:
    """Where schedules are measured, if not in this process: of `tune`.

    device: texts, each a device with exclusive use of its cores: a target or a GPU ("cuda:0",
    "cuda-emulated"), cores=N or cores=0-3, host=NAME, label=NAME. workers: builders of candidates
    beside them, at least one. ray: address of a Ray cluster, "auto" for the one of this machine.
    """

    device: tuple[str, ...] = option(
        (),
        "Measure on this device: a target or a GPU (cuda:0), cores=N (or cores=0-3), host=NAME, "
        "label=NAME. Several are tuned side by side, each for itself.",
        RUNNING,
        metavar="avx2,cores=4",
    )
    workers: int = 0
    ray: str | None = None


@dataclass(frozen=True)
class BenchOptions:
    """How a model is timed beside other engines: of `bench`, as texts of the command line where
    several values are given."""

    against: str = option(
        "onnxruntime",
        f"Engines, separated by commas: {', '.join(ENGINES)}.",
        RUNNING,
    )
    threads: str = option("1", "Thread counts, separated by commas.", RUNNING)
    rounds: int = option(15, "Turns that every engine takes.", RUNNING, minimum=1)
    timeout: float = option(
        TURN_TIMEOUT,
        "The longest that an engine may take to load the model and run it warm, or for one turn. "
        "One that takes longer is stopped and is in the table as failed.",
        RUNNING,
        metavar="SECONDS",
    )
    shape: tuple[str, ...] = same_option(ModelOptions, "shape")
    opt_level: int | None = same_option(CompilationOptions, "opt_level")
    target: str = option(
        "host",
        "Instructions that Verax may use: host, avx512 or avx2. Peers whose libraries (oneDNN, "
        "PyTorch's own kernels) can be held to AVX2 are held to it as well. cuda, cuda:1: a card.",
        COMPILING,
    )
    memory: int | str = same_option(CompilationOptions, "memory")
    programs: int = same_option(CompilationOptions, "programs")
    profile: bool = option(
        False,
        "Time every step of Verax's program by itself instead: time, GFLOP/s, share of the "
        "machine's peak, bytes, GB/s, algorithm, schedule, threads.",
        RESULT,
        "--profile",
    )
    trace: str | None = option(
        None,
        "Write the profile as a trace that chrome://tracing and Perfetto open.",
        RESULT,
        metavar="FILE",
        files=True,
    )
    seed: int = same_option(CheckOptions, "seed")

    @property
    def engine_settings(self) -> dict[str, Any]:
        """What Verax's engine is told: the fields of `compile` that are not as by default."""
        plain = BenchOptions()
        shared = ("opt_level", "target", "memory", "programs")
        return {n: v for n in shared if (v := getattr(self, n)) != getattr(plain, n)}
