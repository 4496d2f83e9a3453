"""Help is there at once, in groups, with examples first; and a mistyped command is answered."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from importlib import import_module

import pytest

from tests.cli.conftest import Cli
from verax.cli import options
from verax.cli.app import COMMANDS
from verax.images import FITS, ORDERS
from verax.ir.pixels import LAYOUTS

SLOW = {"numpy", "rich", "onnx", "llvmlite", "pydantic", "PIL", "google", "ml_dtypes"}
"""Packages that take a tenth of a second each."""
LOADED = """
import json, sys
from verax.cli.main import main
sys.argv = ["verax", *sys.argv[1:]]
try:
    main()
except SystemExit as leaving:
    assert not leaving.code
print("\\0" + json.dumps(sorted(sys.modules)))
"""


@pytest.mark.parametrize("arguments", [["--help"], [], ["check", "--help"], ["check", "-h"]])
def test_help_imports_nothing_slow(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *arguments], capture_output=True, text=True, check=False
    )
    text, _, modules = done.stdout.partition("\0")
    if arguments:  # without any, typer leaves with another code
        loaded = set(json.loads(modules))
        assert not {name.partition(".")[0] for name in loaded} & SLOW
        rooms = {name for name in loaded if re.match(r"verax\.(?!base|cli)", name)}
        assert not rooms
    assert "Usage: " in text + done.stderr


def test_options_of_check_are_in_groups_behind_examples(cli: Cli) -> None:
    text = cli("check", "--help").out
    places = [text.index(f"\n{group}:") for group in ("Arguments", "Options", *options.GROUPS[:3])]
    assert places == sorted(places)
    assert text.index("verax check net.onnx onnxruntime") < places[0]
    ungrouped = text[text.index("\nOptions:") : text.index("\nInputs:")]
    assert re.findall(r"--[\w-]+", ungrouped) == ["--help"]
    judged = text[text.index("\nHow it is judged:") : text.index("\nWhat comes out:")]
    assert "--allow" in judged and "--require-power" in judged and "--json" not in judged


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_listed_with_its_first_sentence(name: str, cli: Cli) -> None:
    function = import_module(f"verax.cli.{name}").command
    first = " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())
    assert COMMANDS[name] == first
    assert max(map(len, cli(name, "--help").out.splitlines())) <= 100


def test_a_mistyped_command_is_answered_with_the_nearest(cli: Cli) -> None:
    result = cli("chekc", "net.onnx")
    assert result.code == 2 and "No such command 'chekc'. Did you mean check" in result.err
    assert "Did you mean" not in cli("xyzzy").err


def test_the_help_names_what_photos_may_be() -> None:
    said = " ".join(
        str(getattr(options, name).__metadata__[0].help)
        for name in ("ImageLayout", "ImageOrder", "ImageFit")
    )
    assert said == " ".join(f"One of {', '.join(names)}." for names in (LAYOUTS, ORDERS, FITS))
