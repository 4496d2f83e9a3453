"""Help is there at once, in groups, with examples first; and a mistyped command is answered."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import subprocess
import sys
from importlib import import_module
from typing import get_type_hints

import pytest

from tests.cli.conftest import Cli
from verax.base.option_groups.compile_options import ENGINES
from verax.base.option_groups.options import PANELS, PhotoOptions, flags_of
from verax.cli.app import COMMANDS
from verax.images import FITS, ORDERS
from verax.ir.pixels import LAYOUTS
from verax.runners import registry

SLOW = {"numpy", "rich", "onnx", "llvmlite", "pydantic", "PIL", "google", "ml_dtypes"}
"""Packages that take a tenth of a second each."""
MOST_MODULES = 200
"""What help may import, Python's own modules among them; 166 when this was written."""
LOADED = """
import json, sys
from verax.cli.main import main
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["verax", *arguments]
    try:
        main()
    except SystemExit as leaving:
        assert not leaving.code or not arguments  # without any, typer leaves with another code
    print("\\0")
print(json.dumps(sorted(sys.modules)))
"""


def test_no_help_imports_what_is_slow() -> None:
    asked = [[], ["--help"], ["check", "-h"], *([name, "--help"] for name in COMMANDS)]
    done = subprocess.run(
        [sys.executable, "-c", LOADED, json.dumps(asked)],
        capture_output=True,
        text=True,
        check=True,
    )
    *texts, modules = done.stdout.split("\0")
    said = [text.count("Usage: ") for text in texts]
    assert said in ([1] * len(asked), [0, *[1] * (len(asked) - 1)])  # the first may be an error
    loaded = set(json.loads(modules))
    assert not {name.partition(".")[0] for name in loaded} & SLOW
    assert not {name for name in loaded if re.match(r"verax\.(?!base|cli)|verax\.cli\.work", name)}
    # One of each command's options is what they add to one another.
    assert len(loaded) < MOST_MODULES + len(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_what_a_command_does_takes_the_options_that_it_has(name: str) -> None:
    options = set(inspect.signature(import_module(f"verax.cli.{name}").command).parameters)
    taken = get_type_hints(import_module(f"verax.cli.work.{name}").perform)
    del taken["return"]
    groups = {n: kind for n, kind in taken.items() if dataclasses.is_dataclass(kind)}
    flags = [flag for kind in groups.values() for flag in flags_of(kind)]
    assert options == taken.keys() - groups.keys() | set(flags)
    assert len(options) == len(taken) - len(groups) + len(flags)


def test_help_names_the_engines_that_there_are() -> None:
    assert set(ENGINES) == set(registry.ENGINES)


def test_options_of_check_are_in_groups_behind_examples(cli: Cli) -> None:
    text = cli("check", "--help").out
    places = [text.index(f"\n{group}:") for group in ("Arguments", "Options", *PANELS[:3])]
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
        flags_of(PhotoOptions)[name].help for name in ("image_layout", "image_order", "image_fit")
    )
    assert said == " ".join(f"One of {', '.join(names)}." for names in (LAYOUTS, ORDERS, FITS))
