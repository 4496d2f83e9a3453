"""`--memory SIZE`: what one value, or a program's buffers, may take at most."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from verax.base.option_groups.compile_options import BenchOptions, CompilationOptions


@pytest.mark.parametrize("command", ["run", "compile"])
def test_a_network_that_takes_more_is_refused(
    cli: Cli, digits: Path, tmp_path: Path, command: str
) -> None:
    to = ("-o", tmp_path / "net.vx") if command == "compile" else ()
    arguments = (command, digits, "--shape", "n=2", *to)
    refused = cli(*arguments, "--memory", "2K")
    assert refused.code == 2
    assert "more than the 2 KiB that are allowed" in refused.err
    assert cli(*arguments, "--memory", "1G").code == 0


def test_what_is_no_size_is_told(cli: Cli, digits: Path) -> None:
    done = cli("run", digits, "--shape", "n=2", "--memory", "8X")
    assert (done.code, "'8X' is no amount of memory" in done.err) == (2, True)


def test_a_compiled_program_has_its_buffers(cli: Cli, digits: Path, tmp_path: Path) -> None:
    program = tmp_path / "net.vx"
    assert cli("compile", digits, "--shape", "n=2", "-o", program).code == 0
    done = cli("run", program, "--memory", "1G")
    assert (done.code, "leave --memory out" in done.err) == (2, True)


def test_who_times_a_network_hands_it_on() -> None:
    assert BenchOptions(memory="3M").engine_settings == {"memory": "3M"}
    assert CompilationOptions(memory="3M").settings.memory == 3 << 20
    assert CompilationOptions(memory="0").settings.memory == 0
