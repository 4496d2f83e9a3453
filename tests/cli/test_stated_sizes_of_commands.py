"""`--shape` by axis, name and bounds, and `--programs`, in the commands that take them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Cli
from verax.base.errors import UsageError
from verax.base.option_groups.compile_options import BenchOptions, CompilationOptions
from verax.cli.console import parse_shapes


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("n=2", {"n": 2}),
        ("x=1x3x?x224", {"x": (1, 3, None, 224)}),
        ("x=1,3, ?,224", {"x": (1, 3, None, 224)}),
        ("ids[1]=128", {"ids[1]": 128}),
        ("n=batch", {"n": "batch"}),
        ("n=box", {"n": "box"}),
        ("n=1:512", {"n": ((1, 512),)}),
        ("n=:512", {"n": ((None, 512),)}),
        ("n=4:", {"n": ((4, None),)}),
        ("x=batch,1:8,20", {"x": ("batch", (1, 8), 20)}),
        ("x=1:8x3", {"x": ((1, 8), 3)}),
        ("a=b=3", {"a=b": 3}),
        ("n=?", {"n": (None,)}),
    ],
)
def test_sizes_are_read_as_they_are_written(text: str, stated: object) -> None:
    assert parse_shapes([text]) == stated


@pytest.mark.parametrize("text", ["n", "n=", "=3", "n=-1", "n=1.5", "n=:", "n=a b", "x=1,,2"])
def test_what_is_no_size_is_told_with_examples(text: str) -> None:
    with pytest.raises(UsageError, match="is not of the form NAME=SIZES") as caught:
        parse_shapes([text])
    assert "n=1:512" in caught.value.next_step


def test_a_name_that_is_given_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="gives 'n' twice"):
        parse_shapes(["n=2", "n=3"])


@pytest.mark.parametrize("text", ["image[0]=3", "n=3", "image=3,1,24,20"])
def test_a_run_takes_an_axis_and_a_name(cli: Cli, digits: Path, tmp_path: Path, text: str) -> None:
    record = tmp_path / "run.json"
    assert cli("run", digits, "--shape", text, "--programs", "2", "--json", record).code == 0
    outputs = json.loads(record.read_text())["outputs"].values()
    assert {output["shape"][0] for output in outputs} == {3}


def test_bounds_are_shown_and_kept_to(cli: Cli, digits: Path, tmp_path: Path) -> None:
    assert "n: 5 to 9" in cli("inspect", digits, "--shape", "n=5:9").out.replace("  ", " ")
    record = tmp_path / "run.json"
    assert cli("run", digits, "--shape", "n=5:9", "--json", record).code == 0
    outputs = json.loads(record.read_text())["outputs"].values()
    assert {output["shape"][0] for output in outputs} == {5}
    np.save(tmp_path / "x.npy", np.zeros((4, 1, 24, 20), np.float32))
    refused = cli("run", digits, "--shape", "n=5:9", "--input", tmp_path / "x.npy")
    assert (refused.code, "size 4; n is stated to be 5 to 9" in refused.err) == (2, True)


@pytest.mark.parametrize("command", ["run", "bench"])
def test_an_unknown_name_is_answered_with_the_known_ones(
    cli: Cli, digits: Path, command: str
) -> None:
    refused = cli(command, digits, "--shape", "m=3")
    assert refused.code == 2 and "n (image[0])" in refused.err.replace("\n", " ")


def test_programs_are_counted_by_every_command(cli: Cli, digits: Path, tmp_path: Path) -> None:
    assert BenchOptions(programs=3).engine_settings == {"programs": 3}
    assert CompilationOptions(programs=3).settings.programs == 3
    assert cli("run", digits, "--shape", "n=2", "--programs", "0").code == 2
    program = tmp_path / "net.vx"
    done = cli("compile", digits, "--shape", "image[0]=2", "--programs", "3", "-o", program)
    assert done.code == 0
    refused = cli("run", program, "--programs", "3")
    assert (refused.code, "leave --programs out" in refused.err) == (2, True)
