"""The campaign of honest runs in small: nobody innocent is accused, the record is kept, and what
is planted in the same networks is found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from benchmarks.honest import campaign
from benchmarks.honest.__main__ import keys_of_runs, main
from benchmarks.honest.architectures import registry
from benchmarks.honest.files import model_files, runs_of_files
from benchmarks.honest.inputs import NOISE, PLAIN, image, tokens
from benchmarks.honest.networks import Forms
from benchmarks.honest.outcomes import ACCUSED, DIED, REFUSED, UNDECIDED, Outcome, append, read
from benchmarks.honest.planted import JUDGED, keys_of, placement_of, run_planted
from benchmarks.honest.runs import VIEWS, Run, runs_of
from benchmarks.honest.table import document, known_fault
from benchmarks.honest.worker import honest

from verax.distributed import open_pool

HONEST = ("identical", "rounding", "precision")
FILE_KEYS = [
    f"digits.onnx/float32/file/{runner}/{view}/{style}"
    for runner in ("onnxruntime:disabled", "onnxruntime:all")
    for view, style in (("watched", PLAIN), ("outputs", NOISE))
]
WRITTEN_KEYS = [
    *(f"rms_output/float32/onnx/onnxruntime:{level}/watched/plain" for level in ("basic", "all")),
    "embedding/float32/onnx/onnxruntime:all/recorded-inside/plain",
    "style_transfer/float32/program/exported/watched/noise",
    "tcn/float32/program/eager/outputs/plain",
    "attention_pool/float32/program/eager/recorded/plain",
]


def judged(keys: Sequence[str], folder: Path) -> dict[str, Outcome]:
    """Outcomes of honest runs, in this process."""
    found = {}
    for key in keys:
        found[key] = honest(Run.of(key), Forms(key.partition("/")[0], folder))
    return found


def test_a_file_on_a_real_runtime_is_not_accused(tmp_path: Path) -> None:
    for key, outcome in judged(FILE_KEYS, tmp_path).items():
        assert outcome.result in HONEST, (key, outcome.reasons, outcome.listed)
        assert outcome.nodes > 0


@pytest.mark.parametrize("key", WRITTEN_KEYS)
def test_a_network_written_here_is_not_accused(key: str, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    outcome = judged([key], tmp_path)[key]
    assert outcome.result in HONEST, (outcome.reasons, outcome.listed)


def test_a_mistake_planted_in_the_same_file_is_found(tmp_path: Path) -> None:
    forms = Forms("digits.onnx", tmp_path)
    found = [run_planted(key, forms) for key in (*keys_of("digits.onnx"),)[:2]]
    done = [o for o in found if o.result == JUDGED]
    assert len(done) == 2, [o.reasons for o in found]
    assert all(o.detected and o.located for o in done), [(o.key, o.plant, o.blamed) for o in done]


def test_a_placement_is_the_same_mistake_each_time(tmp_path: Path) -> None:
    from verax.campaign.random_networks import Network

    made = Forms("digits.onnx", tmp_path).network("float32", "file")
    network = Network(made.graph, made.inputs[PLAIN], 3)
    key = "digits.onnx/planted/numbers/0"
    first, second = (placement_of(key, network, in_file=False) for _ in range(2))
    assert first is not None and second is not None
    assert (first.fault.name, first.node, first.effect) == (
        second.fault.name,
        second.node,
        second.effect,
    )


def test_every_run_has_a_key_of_its_own_that_gives_it_back() -> None:
    runs = [run for number in range(12) for run in runs_of(f"net{number}", number)]
    runs += [run for _, some in runs_of_files() for run in some]
    assert len({r.key for r in runs}) == len(runs)
    assert all(Run.of(r.key) == r and r.view in VIEWS for r in runs)
    assert {r.dtype for r in runs} == {"float32", "float16", "bfloat16"}
    assert any(r.runner == "tvm" for r in runs) and any(r.runner == "compiled" for r in runs)


def test_the_campaign_has_sixty_architectures_and_1500_runs() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    assert len(registry()) >= 60
    assert sum(len(keys) for keys in keys_of_runs("").values()) >= 1500


def test_a_share_of_the_runs_is_within_every_larger_share() -> None:
    whole, half, tenth = (
        {k for keys in keys_of_runs(r"^digits\.", share).values() for k in keys}
        for share in (1.0, 0.5, 0.1)
    )
    assert tenth < half < whole
    assert 0.35 < len(half) / len(whole) < 0.65


def test_inputs_are_seeded_and_differ_between_seeds_and_styles() -> None:
    for maker in (image(2, 3, 14, 18), tokens(50, 2, 7)):
        first, again, other = maker(PLAIN, 1)[0], maker(PLAIN, 1)[0], maker(PLAIN, 2)[0]
        assert (first == again).all() and not (first == other).all()
        assert not (first == maker(NOISE, 1)[0]).all()
    ids, mask = tokens(50, 2, 7)(PLAIN, 4)
    assert mask.sum() == 12 and ids.max() < 50


@pytest.mark.slow  # three processes that load every framework
def test_what_takes_its_process_down_is_an_outcome(tmp_path: Path) -> None:
    def died(key: str, why: str) -> Any:
        return key, why

    keys = ["digits.onnx/float32/file/reference/outputs/plain", "digits.onnx/no-such-run"]
    with open_pool(1) as pool:
        found = list(campaign.run_keys([keys[1], keys[0]], died, tmp_path, pool, silence=100))
    assert found[0][0] == keys[1] and "TypeError" in found[0][1]
    assert found[1]["key"] == keys[0] and found[1]["result"] in HONEST


def test_runs_of_one_architecture_go_together() -> None:
    keys = [f"a/{n}" for n in range(6)] + ["b/0"] + [f"a/{n}" for n in range(7, 9)]
    listed = list(campaign.chunks(keys))
    assert [len(own) for own in listed] == [4, 2, 1, 2]
    assert [key for own in listed for key in own] == keys


def test_the_record_only_grows_and_survives_a_line_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    append(path, Outcome("a/x", "f", "o", "rounding"))
    path.write_text(path.read_text() + '{"key": "b/x", "fam')
    path.write_text(path.read_text() + "\n")
    append(path, Outcome("a/x", "f", "o", ACCUSED))
    assert len(path.read_text().splitlines()) == 3
    assert read(path)["a/x"].result == ACCUSED and set(read(path)) == {"a/x"}


def test_the_command_goes_on_where_it_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = "digits.onnx/float32/file/onnxruntime:all/outputs/plain"
    asked = ["--folder", str(tmp_path), "runs", "--only", f"^{key}$"]
    assert main(asked) == 0
    first = (tmp_path / "runs.jsonl").read_text()
    assert json.loads(first)["key"] == key and json.loads(first)["result"] in HONEST
    assert main(asked) == 0
    assert (tmp_path / "runs.jsonl").read_text() == first
    assert "1 " in capsys.readouterr().out


def test_an_argued_accusation_is_told_from_a_false_one() -> None:
    guilty = Outcome("net/float32/onnx/openvino/outputs/plain", "f", "o", ACCUSED)
    guilty.worst = {"node": "conv"}
    faults = [{"key": "net/.*/openvino/.*", "node": "conv", "argument": "it pads the other side"}]
    assert known_fault(guilty, faults) == "it pads the other side"
    guilty.worst = {"node": "relu"}
    assert known_fault(guilty, faults) == ""


def test_the_page_counts_what_was_recorded() -> None:
    outcomes = [
        Outcome(f"net{i}/float32/onnx/openvino/outputs/plain", "family", "o", result)
        for i, result in enumerate(["rounding", "identical", ACCUSED, UNDECIDED, DIED])
    ]
    page = document(outcomes, [], [])
    assert "**4 runs of 4 networks: 1 false accusations" in page
    assert "1 undecided (25.0 %)" in page
    assert "|family|4|4|1|1|||1|1|1|" in page and "|openvino|4|4|1|1|||1|1|1|" in page
    assert "died: `net4/" in page


def test_the_page_says_what_the_checks_saw_and_why_there_were_none() -> None:
    seen = Outcome("a/float16/onnx/openvino/outputs/plain", "f", "o", "rounding")
    seen.seen, seen.tried, seen.level = 3, 12, 2**-6
    whole = Outcome("b/float16/onnx/openvino/outputs/noise", "f", "o", "rounding")
    whole.seen, whole.tried, whole.level = 8, 8, 2**-6
    refused = Outcome("c/float16/onnx/openvino/outputs/plain", "f", "o", REFUSED)
    refused.reasons = ["no such | operator"]
    blind = Outcome("d/bfloat16/program/eager/outputs/plain", "f", "o", UNDECIDED)
    blind.worst = {"node": "last", "test": "power"}
    page = document([seen, whole, refused, blind], [], [])
    assert "1 of 1 because the check was blind as a whole (1 in bfloat16)" in page
    assert "|float16, outputs|2|0.016|20|55.0 %|50.0 %|" in page
    assert "|no such / operator|c|1|" in page


def test_every_model_file_is_there_with_the_example_in_all_formats() -> None:
    assert {"digits.onnx", "digits.pb", "digits.tflite", "digits.h5"} <= set(model_files())
