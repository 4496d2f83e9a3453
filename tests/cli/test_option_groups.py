"""Options are declared once, in groups that the command line, Python and records share."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import types
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pytest

import verax
from verax.base.errors import UsageError
from verax.base.option_groups import compile_options, options
from verax.base.option_groups.compile_options import BenchOptions, CompilationOptions, TuneOptions
from verax.base.option_groups.options import CheckOptions, PassOptions, flags_of
from verax.base.option_groups.settings import DEFAULT_LEVEL, Settings
from verax.cli.app import COMMANDS
from verax.cli.judging import GROUPS, Request
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge.agreement import agree
from verax.judge.bisect import bisect
from verax.judge.check import check
from verax.ops.pointwise.activation import Relu
from verax.records.benchmark import Benchmark
from verax.records.tuning import TuningRecord
from verax.runners.arrays import ArraysRunner
from verax.runners.own import ReferenceRunner

from .conftest import Cli

SOURCE = Path(verax.__file__).parent
OLD = (
    '{"allow": ["bf16"], "disable": ["fold_constants"], "evaluation": false, "image": null, '
    '"image_fit": "crop", "image_layout": null, "image_mean": null, "image_order": "BGR", '
    '"image_range": null, "image_std": null, "images": null, "inject": [], "input": ["x=a.npy"], '
    '"memory": "2G", "model": "net.onnx", "other": "reference", "output": null, "params": null, '
    '"passes": null, "require_power": 0.5, "seed": 7, "shape": ["n=3"], "steps": null, '
    '"subject": "verax:O1", "threads": 2, "timeout": 9.0, "watch": true, "winograd": false}'
)
"""Options as records held them before there were groups."""


GROUP_TYPES = [
    one
    for room in (options, compile_options)
    for one in vars(room).values()
    if dataclasses.is_dataclass(one) and isinstance(one, type) and flags_of(one)
]
KEYWORDS = {
    CheckOptions: options.CheckKeywords,
    PassOptions: options.PassKeywords,
    CompilationOptions: compile_options.CompilationKeywords,
    TuneOptions: compile_options.TuneKeywords,
}
TAKING: dict[Callable[..., object], tuple[type, ...]] = {
    verax.check: (PassOptions, CheckOptions),
    verax.bisect: (PassOptions, CheckOptions),
    verax.evaluate: (PassOptions,),
    verax.compile: (CompilationOptions,),
    verax.tune: (TuneOptions,),
    check: (CheckOptions,),
    bisect: (CheckOptions,),
    agree: (CheckOptions,),
}
"""Functions of Python, with the groups whose fields they take by name."""


def relu() -> Graph:
    b = Builder("relu")
    x = b.input("x", TensorType.parse("float32[3, 5]"))
    return b.graph([b.add(Relu(), [x], ["y"], "relu")])


def test_records_of_before_are_read_and_written_the_same() -> None:
    request = Request.from_options(json.loads(OLD))
    assert request.judging == CheckOptions(
        winograd=False, allow=("bf16",), require_power=0.5, timeout=9.0, memory="2G", seed=7
    )
    assert request.optimizations == PassOptions(disable=("fold_constants",))
    assert (request.photo.image_order, request.photo.image_fit) == ("BGR", "crop")
    assert (request.inputs.input, request.reading.shape) == (("x=a.npy",), ("n=3",))
    written = json.loads(json.dumps(request.to_options()))
    assert written == {**json.loads(OLD), "value": [], "device": ""}
    assert Request.from_options(written) == request


@pytest.mark.parametrize("name", ["judging", "explain", "unheard_of"])
def test_a_record_has_no_option_without_a_flag(name: str) -> None:
    with pytest.raises(UsageError, match="options that this version lacks"):
        Request.from_options({**json.loads(OLD), name: True})


def test_every_option_of_a_request_has_one_name() -> None:
    hints = get_type_hints(Request)
    names = [n for n in hints if n not in GROUPS]
    names += [n for group in GROUPS for n in flags_of(hints[group])]
    assert len(names) == len(set(names))


def test_an_option_is_declared_in_one_file() -> None:
    """No command names an option of a group that it takes whole, neither where it is declared nor
    where it is done."""
    for command in COMMANDS:
        perform = import_module(f"verax.cli.work.{command}").perform
        taken = [kind for kind in get_type_hints(perform).values() if kind in GROUP_TYPES]
        flags = {name for group in taken for name in flags_of(group)}
        for place in (f"cli/{command}.py", f"cli/work/{command}.py"):
            tree = ast.parse((SOURCE / place).read_text())
            declared = {
                arg.arg
                for node in ast.walk(tree)
                if isinstance(node, ast.FunctionDef) and node.name in ("command", "perform")
                for arg in (*node.args.args, *node.args.kwonlyargs)
            }
            assert not declared & flags, place


@pytest.mark.parametrize("group", KEYWORDS, ids=lambda group: group.__name__)
def test_keywords_are_the_fields_of_their_group(group: type) -> None:
    """What a type checker accepts by name is what the group holds, and lists for tuples."""
    declared, accepted = get_type_hints(group), get_type_hints(KEYWORDS[group])
    assert list(declared) == list(accepted)
    for name, hint in declared.items():
        kinds = {Sequence[str] if kind == tuple[str, ...] else kind for kind in members(hint)}
        assert kinds <= members(accepted[name]), name


def members(hint: object) -> set[object]:
    return set(get_args(hint)) if isinstance(hint, types.UnionType) else {hint}


@pytest.mark.parametrize("function", TAKING, ids=lambda f: f"{f.__module__}.{f.__name__}")
def test_help_lists_and_describes_every_keyword(function: Callable[..., object]) -> None:
    parameters, text = inspect.signature(function).parameters, inspect.getdoc(function) or ""
    assert not any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for group in TAKING[function]:
        for field in dataclasses.fields(group):
            assert parameters[field.name].kind is inspect.Parameter.KEYWORD_ONLY
            assert parameters[field.name].default == field.default
            assert re.search(rf"\b{field.name}\b[^.]*:", text), field.name
    hints = get_type_hints(function)  # what type checkers see is the same set of names
    accepted = set(get_type_hints(get_args(hints["keywords"])[0]))
    assert accepted == {f.name for group in TAKING[function] for f in dataclasses.fields(group)}


def test_no_function_of_the_interface_hides_its_keywords() -> None:
    for name in verax.__all__:
        value = getattr(verax, name)
        if inspect.isfunction(value):
            kinds = [p.kind for p in inspect.signature(value).parameters.values()]
            assert inspect.Parameter.VAR_KEYWORD not in kinds or name in FORMAT_DEPENDENT, name


FORMAT_DEPENDENT = ("load",)
"""Functions whose further keywords are those of a file's reader."""


def test_settings_take_every_field_that_they_share_with_the_options() -> None:
    asked = CompilationOptions(
        opt_level=2, threads=3, target="avx2", disable=["fold_scales"], checked=True, memory="2G"
    )
    assert asked.settings == Settings(2, 3, "avx2", ("fold_scales",), checked=True, memory=2 << 30)
    assert CompilationOptions().settings == Settings(DEFAULT_LEVEL)


def test_a_program_carries_the_options_that_it_was_compiled_with(tmp_path: Path) -> None:
    exe = verax.compile(relu(), opt_level=1, disable=["fold_scales"], cache=False, seed=5)
    exe.save(tmp_path / "relu.vx")
    loaded = verax.load(tmp_path / "relu.vx")
    fields = {f.name for f in dataclasses.fields(CompilationOptions)}
    assert loaded.options.keys() == fields - {"recipe", "history"}
    assert (loaded.options["opt_level"], loaded.options["disable"]) == (1, ["fold_scales"])
    assert (loaded.options["cache"], loaded.options["seed"]) == (False, 5)


def test_records_of_tuning_and_timing_carry_their_options() -> None:
    plain = {"model": "net", "opt_level": 1, "threads": 2, "kernels": [], "before": [2.0]}
    plain |= {"after": [1.0], "ratio": 0.5, "noise": 0.1, "kept": True, "equal_bits": True}
    plain |= {"seconds": 3.0, "budget": 5.0, "history": "h", "faults": [], "host": {}}
    text = json.dumps({"schema": "verax.tuning-record/1", **plain, "environment": {}})
    before = TuningRecord.from_json(text)
    assert before.options is None
    tuned = dataclasses.replace(before, options=TuneOptions(time_budget=5.0, trials=7))
    assert TuningRecord.from_json(tuned.to_json()) == tuned
    timed = Benchmark("net", {}, (), options=BenchOptions(against="mnn", shape=("n=3",)))
    assert Benchmark.from_json(timed.to_json()) == timed
    old = json.loads(dataclasses.replace(timed, options=None).to_json())
    del old["options"]
    assert Benchmark.from_json(json.dumps({**old, "schema": "verax.benchmark/2"})).options is None


def test_a_file_of_tuned_schedules_is_the_history() -> None:
    assert CompilationOptions(tuned="a.jsonl") == CompilationOptions(history="a.jsonl")  # type: ignore[arg-type]


def test_python_takes_a_group_or_its_options() -> None:
    wrong = ArraysRunner({"in:x": relu_input(), "y": relu_input() + 1})
    group = CheckOptions(explain=False, allow=("bf16",), seed=11)
    by_group = check(relu(), wrong, options=group)
    by_name = check(relu(), wrong, explain=False, allow=["bf16"], seed=11)
    both = verax.check(
        relu(), wrong, options=CheckOptions(allow=("bf16",), seed=3), seed=11, explain=False
    )
    assert by_group == by_name == both
    assert (by_group.allowed, by_group.seed) == (("bf16",), 11)
    assert (
        bisect(relu(), wrong, options=group).record
        == bisect(relu(), wrong, seed=11, allow="bf16", explain=False).record
    )


def relu_input() -> np.ndarray:
    return np.random.default_rng(5).standard_normal((3, 5)).astype(np.float32)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("timeout", 0.0),
        ("timeout", float("nan")),
        ("require_power", -1.0),
        ("seed", -1),
        ("seed", 1 << 64),
    ],
)
def test_what_an_option_cannot_be_is_refused_everywhere(
    name: str, value: float, cli: Cli, tiny: Path
) -> None:
    with pytest.raises(UsageError, match=f"the option {name} "):
        check(relu(), ReferenceRunner(), **{name: value})
    found = cli("check", tiny, f"--{name.replace('_', '-')}", value)
    assert found.code == 2
    with pytest.raises(UsageError):
        Request.from_options({**json.loads(OLD), name: value})


def test_an_unknown_option_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="no option 'alow'; is 'allow' meant"):
        check(relu(), ReferenceRunner(), alow=["bf16"])  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="no option 'winnograd'"):
        verax.bisect(relu(), "reference", winnograd=False)  # type: ignore[call-arg]


def test_the_commands_that_judge_have_the_same_options() -> None:
    flags = flags_of(CheckOptions)
    for command in ("check", "bisect"):
        parameters = inspect.signature(import_module(f"verax.cli.{command}").command).parameters
        assert flags.keys() <= parameters.keys()
    assert flags.keys() == {f.name for f in dataclasses.fields(CheckOptions)} - {"explain", "twice"}
