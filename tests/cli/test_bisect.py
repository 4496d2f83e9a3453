"""`verax bisect`: nodes, causes, passes and minimal cases from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import verax
from verax.records.bisection import Bisection
from verax.records.verdict import Kind

from .conftest import Cli


@pytest.fixture
def wrong(tiny: Path, tmp_path: Path) -> Path:
    """The small network with its convolution's pads swapped."""
    model = onnx.load(tiny)
    pads = next(a for a in model.graph.node[0].attribute if a.name == "pads")
    pads.CopyFrom(onnx.helper.make_attribute("pads", [2, 0, 0, 2]))
    path = tmp_path / "wrong.onnx"
    onnx.save(model, path)
    return path


def test_an_honest_compiler_is_right_and_no_pass_is_guilty(cli: Cli, tiny: Path) -> None:
    found = cli("bisect", tiny, "verax:O1")
    assert found.code == 0
    assert "no optimization is guilty: the result is the same, bit for bit" in found.out


def test_the_guilty_node_its_cause_and_a_case_that_shows_it(
    cli: Cli, tiny: Path, wrong: Path, tmp_path: Path
) -> None:
    record, cases = tmp_path / "record.json", tmp_path / "cases"
    found = cli("bisect", tiny, wrong, "--repro", cases, "--json", record)
    assert found.code == 1
    assert "guilty: node conv (Conv)" in found.out
    assert "cause: " in found.out
    assert "minimal case: " in found.out
    read = Bisection.from_json(record.read_text())
    assert read.verdict.kind is Kind.mistake
    (case,) = read.cases
    assert Path(case.folder) == cases / "01_conv"
    assert "should be" in (cases / "01_conv" / "show.py").read_text()
    again = cli("bisect", tiny, wrong, "--repro", cases)
    assert again.code == 2
    assert "not empty" in again.err
    assert cli("bisect", tiny, wrong, "--repro", cases, "--force").code == 1


def test_recorded_answers_are_bisected_as_far_as_they_go(
    cli: Cli, tiny: Path, wrong: Path, tmp_path: Path
) -> None:
    image = np.random.default_rng(2).random((2, 1, 9, 7), np.float32)
    given = verax.compile(wrong).run({"image": image})
    np.savez(tmp_path / "given.npz", **{"in:image": image, **given})
    found = cli("bisect", tiny, tmp_path / "given.npz")
    assert found.code == 1
    assert "nodes together" in found.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing.onnx"], "no such file"),
        (["MODEL", "onnxruntim"], "no runner"),
        (["MODEL", "verax:O1", "--json", "no/such/folder.json"], "next: make it: mkdir -p no/such"),
        (["MODEL", "verax:O1", "--input", "nothing.npy"], "nothing.npy"),
        (["MODEL", "verax:O1", "--repro", "MODEL"], "cannot be used"),
    ],
)
def test_bad_input_is_refused_in_words(
    cli: Cli, tiny: Path, arguments: list[str], words: str
) -> None:
    found = cli("bisect", *(tiny if a == "MODEL" else a for a in arguments))
    assert found.code == 2
    assert words in found.err


def test_the_record_is_plain_json(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    cli("bisect", tiny, "verax:O0", "--json", tmp_path / "a.json")
    facts = json.loads((tmp_path / "a.json").read_text())
    assert facts["schema"] == "verax.bisection/4"
    assert facts["verdict"]["kind"] in ("identical", "rounding")


def test_networks_of_other_inputs_are_refused(cli: Cli, tiny: Path, digits: Path) -> None:
    found = cli("bisect", tiny, digits)
    assert found.code == 2
    assert "no layout makes one of the other" in found.err


def test_networks_of_other_names_and_layouts_are_aligned(cli: Cli, digits: Path) -> None:
    found = cli("bisect", digits.with_suffix(".tflite"), digits)
    assert found.code == 0, found.err
    assert "ROUNDING" in found.out


PASS = """
from verax.compiler.passes.base import Pass, PassClass
from verax.ir.rewrite import Rewriter

def do_nothing(graph, limit=None):
    '''Nothing.'''
    rewriter = Rewriter(graph, limit)
    for node in graph.nodes:
        rewriter.keep(node)
    return rewriter.finish()

PASS = Pass(do_nothing, PassClass.exact, after=("fold_constants",))
"""


def test_passes_are_chosen_on_the_command_line(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(PASS)
    record = tmp_path / "record.json"
    arguments = ["--inject", own, "--disable", "fuse_elementwise,fold_pads", "--json", record]
    found = cli("bisect", tiny, "verax:O1", *arguments)
    assert found.code == 0, found.err
    subject = Bisection.from_json(record.read_text()).verdict.subject
    assert subject["disable"] == "('fuse_elementwise', 'fold_pads')"
    assert str(own) in subject["inject"]
    some = cli("bisect", tiny, "verax:O1", "--passes", "fold_constants", "--passes", "canonicalize")
    assert some.code == 0
    assert cli("check", tiny, "verax:O1", "--inject", own, "--disable", "do_nothing").code == 0


@pytest.mark.parametrize("command", ["bisect", "check"])
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["verax:O1", "--disable", "fold_pad"], "unknown pass 'fold_pad'"),
        (["verax:O1", "--disable", "a,,b"], "an empty name"),
        (["verax:O1", "--passes", "fold_scales"], "does not run at O1"),
        (["verax:O1", "--passes", "fold_pads", "--disable", "fold_pads"], "both"),
        (["verax:O1", "--inject", "nothing.py"], "cannot read the file of the pass"),
        (["verax:O1", "--inject", "MODEL"], "the file of the pass fails"),
        (["reference", "--disable", "fold_pads"], "cannot be chosen"),
    ],
)
def test_passes_that_do_not_exist_are_refused_in_words(
    cli: Cli, tiny: Path, command: str, arguments: list[str], words: str
) -> None:
    found = cli(command, tiny, *(tiny if a == "MODEL" else a for a in arguments))
    assert found.code == 2
    assert words in found.err


def test_the_help_says_that_a_file_is_run(cli: Cli) -> None:
    assert "RUNS the code in that file." in " ".join(cli("bisect", "--help").out.split())


def test_a_replay_wants_the_pass_as_it_was(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    own, record = tmp_path / "own.py", tmp_path / "record.json"
    own.write_text(PASS)
    assert cli("check", tiny, "verax:O1", "--inject", own, "--json", record).code == 0
    assert cli("check", "--replay", record, "--allow-commands").code == 0
    own.write_text(own.read_text() + "\n")
    again = cli("check", "--replay", record, "--allow-commands")
    assert again.code == 2
    assert "own.py" in again.err


def test_labelled_samples_on_the_command_line(cli: Cli, digits: Path, tmp_path: Path) -> None:
    folder = digits.parent
    scales = folder / "scales.onnx"
    found = cli("bisect", scales, "verax:O2", "--images", folder / "scales.npz")
    assert found.code == 0, found.err
    assert "accuracy does not fall: right on 349 of 360 (96.9%)" in found.out
    alone = cli("bisect", scales, "verax:O2", "--labels", "labels.txt")
    assert (alone.code, "--labels belongs to --images" in alone.err) == (2, True)
    both = cli("bisect", scales, "--images", folder / "scales.npz", "--image", folder / "3.png")
    assert (both.code, "do not go with it" in both.err) == (2, True)
    missing = cli("bisect", scales, "verax:O2", "--images", tmp_path / "nothing")
    assert missing.code == 2
