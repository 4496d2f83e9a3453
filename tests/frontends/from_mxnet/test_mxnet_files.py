"""MXNet's pairs of files: real networks, which params belong to a symbol, the layouts of arrays."""

import json
from pathlib import Path

import numpy as np
import pytest
from mxnet_models import params_bytes, small, symbol, write

import verax
from verax.base.errors import ModelError, UnsupportedError, UsageError
from verax.cli.main import main
from verax.frontends.mxnet import load_mxnet
from verax.frontends.mxnet.params import read_params
from verax.reference.evaluate import evaluate

SHARED = Path(__file__).resolve().parents[3].parent / "shared"
SUITE = SHARED / "suites" / "mxnet_conv"
FACE = SHARED / "models" / "mobileface_v1" / "MobileFace_Identification_V1"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="../shared is missing")
HONEST = ("identical", "rounding")


def suite_names() -> list[str]:
    manifest = SUITE / "manifest.json"
    return [e["name"] for e in json.loads(manifest.read_text())] if manifest.exists() else []


@needs_shared
@pytest.mark.parametrize("name", suite_names())
def test_a_suite_case_means_what_mxnet_answered(name):
    with np.load(SUITE / f"{name}.mxnet-1.9.1.npz") as stored:
        x, y = stored["x"], stored["y"]
    model = load_mxnet(SUITE / f"{name}-symbol.json", {"data": x.shape})
    (output,) = model.outputs
    assert verax.check(model.graph, {output: y}, {"data": x}).kind in HONEST
    assert verax.check(model.graph, "verax:O1", {"data": x}).kind in HONEST


@needs_shared
def test_mobileface_means_what_mxnet_answered():
    with np.load(f"{FACE}.mxnet-1.9.1.npz") as stored:
        x = {"data": stored["in:data"]}
        answers = {k[4:]: stored[k] for k in stored.files if k.startswith("out:")}
    model = load_mxnet(f"{FACE}-symbol.json", {"data": x["data"].shape})
    assert model.format == "MXNet 0.9.5"
    assert verax.check(model.graph, answers, x).kind in HONEST


@needs_shared
def test_without_a_shape_the_weights_say_what_they_can():
    (type_,) = load_mxnet(f"{FACE}-symbol.json").inputs.values()
    assert str(type_) == "float32[data_0, 1, data_2, data_3]"


def test_without_a_shape_the_weights_of_a_small_network_say_what_they_can(tmp_path):
    nodes, arrays = small()
    (type_,) = load_mxnet(write(tmp_path, nodes, params_bytes(arrays))).inputs.values()
    assert str(type_) == "float32[data_0, 3, data_2, data_3]"


def test_a_model_named_by_its_params_is_given_to_runtimes(tmp_path):
    """Runtimes get the symbol, and it is the symbol that must not have changed since."""
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    nodes, arrays = small()
    write(tmp_path, nodes, params_bytes(arrays))
    path = tmp_path / "net-0000.params"
    model = verax.load(path, shapes={"data": (2, 3, 11, 9)})
    assert verax.check(model, "onnxruntime", explain=False).kind in HONEST
    symbol_file = Path(model.source)
    symbol_file.write_text(symbol_file.read_text() + " ")
    with pytest.raises(UsageError, match="has changed since it was loaded"):
        verax.check(model, "onnxruntime")


def test_the_newest_epoch_is_chosen_and_named(tmp_path):
    nodes, arrays = small()
    path = write(tmp_path, nodes, params_bytes(arrays))
    newer = {k: 2 * v for k, v in arrays.items()}
    (tmp_path / "net-0012.params").write_bytes(params_bytes(newer))
    (tmp_path / "net-other-0099.params").write_bytes(b"of another network")
    model = load_mxnet(path)
    assert model.metadata["params"] == (
        "net-0012.params (the newest of net-0000.params, net-0012.params)"
    )
    assert np.array_equal(model.graph.constants["c_bias"], newer["arg:c_bias"])
    first = load_mxnet(path, params=tmp_path / "net-0000.params")
    assert np.array_equal(first.graph.constants["c_bias"], arrays["arg:c_bias"])
    assert first.metadata["params"] == "net-0000.params"


@pytest.fixture
def verax_command(monkeypatch):
    """Call the command line; returns its exit code."""

    def call(*arguments):
        monkeypatch.setattr("sys.argv", ["verax", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        return left.value.code

    return call


def test_params_are_given_in_python_and_on_the_command_line(tmp_path, capsys, verax_command):
    path = write(tmp_path, small()[0], b"of a training that went wrong")
    elsewhere = tmp_path / "best"
    elsewhere.write_bytes(params_bytes(small()[1]))
    assert verax.load(path, params=elsewhere).metadata["params"] == "best"
    with pytest.raises(UsageError, match="no second file"):
        verax.load(Path(__file__).parents[3] / "examples/digits/digits.onnx", params=elsewhere)
    with pytest.raises(UsageError, match="two params files"):
        load_mxnet(tmp_path / "net-0000.params", params=elsewhere)
    given = ("--params", elsewhere, "--shape", "data=2,3,9,8")
    for command in ("inspect", "run", "bisect"):
        assert verax_command(command, path, *given) == 0
    assert verax_command("compile", path, "-o", tmp_path / "net.vx", *given) == 0
    assert "params: best" in capsys.readouterr().out


def test_a_record_made_with_params_replays(tmp_path, verax_command):
    path = write(tmp_path, small()[0], b"")
    arrays, record = tmp_path / "best", tmp_path / "record.json"
    arrays.write_bytes(params_bytes(small()[1]))
    given = ("--params", arrays, "--shape", "data=2,3,9,8", "--json", record)
    assert verax_command("check", path, *given) == 0
    assert verax_command("check", "--replay", record) == 0
    arrays.write_bytes(params_bytes({k: 2 * v for k, v in small()[1].items()}))
    assert verax_command("check", "--replay", record) == 2


def test_two_params_files_of_one_epoch_are_not_chosen_between(tmp_path):
    path = write(tmp_path, small()[0], params_bytes(small()[1]))
    (tmp_path / "net-00000.params").write_bytes(b"")
    with pytest.raises(UsageError, match="one epoch"):
        load_mxnet(path)


def test_all_missing_arrays_are_listed_and_gluon_names_explained(tmp_path):
    nodes, arrays = small()
    path = write(tmp_path, nodes, params_bytes({"arg:other": arrays["arg:c_bias"]}))
    with pytest.raises(ModelError, match="lacks 'c_weight', 'c_bias'") as caught:
        load_mxnet(path)
    assert "other" in caught.value.next_step
    write(tmp_path, nodes, params_bytes({"features.0.weight": arrays["arg:c_weight"]}))
    with pytest.raises(ModelError) as caught:
        load_mxnet(path)
    assert "export" in caught.value.next_step


def test_arrays_that_no_node_reads_are_named(tmp_path):
    nodes, arrays = small()
    extra = {"arg:a_gamma": np.ones(3, np.float32)}
    path = write(tmp_path, nodes, params_bytes(arrays | extra))
    assert load_mxnet(path).metadata["arrays that no node reads"] == "a_gamma"


def test_either_file_names_the_network(tmp_path):
    path = write(tmp_path, small()[0], params_bytes(small()[1]))
    assert load_mxnet(tmp_path / "net-0000.params").graph == load_mxnet(path).graph


def test_a_missing_half_is_asked_for(tmp_path):
    path = write(tmp_path, small()[0], params_bytes(small()[1]))
    (tmp_path / "net-0000.params").unlink()
    with pytest.raises(UsageError, match="second file") as caught:
        load_mxnet(path)
    assert "net-0000.params" in caught.value.next_step


@pytest.mark.parametrize("layout", ["legacy", "v1", "v2", "v3"])
def test_every_layout_of_an_array_is_read(layout):
    rng = np.random.default_rng(1)
    arrays = {
        "arg:a": rng.standard_normal((2, 3, 4), dtype=np.float32),
        "b": rng.random(5, np.float32),
    }
    found = read_params(params_bytes(arrays, layout))
    assert list(found) == list(arrays)
    assert all(np.array_equal(found[k], v) for k, v in arrays.items())


def test_labels_are_no_inputs(tmp_path):
    nodes = symbol(
        ("null", "data", {}, []),
        ("null", "softmax_label", {}, []),
        ("SoftmaxOutput", "softmax", {"normalization": "valid"}, [0, 1]),
    )
    model = load_mxnet(write(tmp_path, nodes, params_bytes({})), {"data": (2, 5)})
    assert list(model.inputs) == ["data"]
    dropped = {e.attribute: e.outcome for e in model.ledger.entries}
    assert dropped == {"normalization": "irrelevant", "label (input)": "irrelevant"}


def test_the_oldest_symbols_leave_moving_statistics_out(tmp_path):
    rng = np.random.default_rng(2)
    arrays = {f"arg:n_{k}": rng.random(3, np.float32) for k in ("gamma", "beta")}
    arrays |= {f"aux:n_moving_{k}": rng.random(3, np.float32) for k in ("mean", "var")}
    variables = [("null", n, {}, []) for n in ("data", "n_gamma", "n_beta")]
    batch_norm = ("BatchNorm", "n", {"fix_gamma": "False"}, [0, 1, 2])
    nodes = symbol(*variables, batch_norm)
    nodes["nodes"][3] |= {"param": nodes["nodes"][3].pop("attrs"), "backward_source_id": -1}
    for node in nodes["nodes"]:
        node["inputs"] = [pair[:2] for pair in node["inputs"]]
    model = load_mxnet(write(tmp_path, nodes, params_bytes(arrays)), {"data": (2, 3, 4)})
    x = rng.standard_normal((2, 3, 4), dtype=np.float32)
    scale, shift, mean, var = (a.astype(np.float64)[:, None] for a in arrays.values())
    (found,) = evaluate(model.graph, {"data": x}).values()
    want = (x - mean) / np.sqrt(var + np.float64(np.float32(1e-3))) * scale + shift
    assert np.abs(found - want).max() < 64 * np.finfo(np.float64).eps * np.abs(want).max()


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_the_weights_say_the_type_of_the_input(dtype, tmp_path):
    nodes, arrays = small()
    data = params_bytes({k: v.astype(dtype) for k, v in arrays.items()})
    model = load_mxnet(write(tmp_path, nodes, data))
    assert {str(t.dtype) for t in (*model.inputs.values(), *model.outputs.values())} == {dtype}
    x = np.random.default_rng(5).standard_normal((2, 3, 8, 7)).astype(dtype)
    assert verax.compile(model).run({"data": x})["a_output"].dtype == dtype


def test_a_dense_layer_says_the_type_too(tmp_path):
    nodes = symbol(
        ("null", "data", {}, []),
        ("null", "d_weight", {}, []),
        ("FullyConnected", "d", {"num_hidden": "4", "no_bias": "True"}, [0, 1]),
    )
    arrays = {"arg:d_weight": np.ones((4, 6), np.float16)}
    path = write(tmp_path, nodes, params_bytes(arrays))
    (type_,) = load_mxnet(path, {"data": (2, 3, 2)}).inputs.values()
    assert str(type_) == "float16[2, 3, 2]"


def test_settings_of_training_in_old_symbols_change_nothing(tmp_path):
    nodes, arrays = small()
    said = {"weight_lr_mult": "2", "lr_mult": "0.5", "ctx_group": "first", "__wd_mult__": "0"}
    path = write(tmp_path, nodes, params_bytes(arrays))
    plain = load_mxnet(path).graph
    nodes["nodes"][3]["attr"] = said
    model = load_mxnet(write(tmp_path, nodes, params_bytes(arrays)))
    assert model.graph == plain
    assert {e.attribute for e in model.ledger.entries if e.outcome == "irrelevant"} == set(said)


def test_before_0_9_5_an_axis_of_minus_1_meant_none(tmp_path):
    nodes = symbol(("null", "data", {}, []), ("argmax", "n", {"axis": "-1"}, [0]))
    x = np.random.default_rng(6).standard_normal((3, 4), dtype=np.float32)
    answers = []
    for version in (904, 905):
        nodes["attrs"] = {"mxnet_version": ["int", version]}
        model = load_mxnet(write(tmp_path, nodes, params_bytes({})), {"data": x.shape})
        answers.append(verax.reference(model, {"data": x})["n_output"])
    assert answers[0].tolist() == [x.argmax()]
    assert answers[1].tolist() == x.argmax(-1).tolist()


def test_an_input_of_unknown_rank_is_asked_for(tmp_path):
    nodes = symbol(("null", "data", {}, []), ("Flatten", "n", {}, [0]))
    path = write(tmp_path, nodes, params_bytes({}))
    with pytest.raises(UnsupportedError, match="how many dimensions") as caught:
        load_mxnet(path)
    assert "--shape data=" in caught.value.next_step
    assert (
        str(load_mxnet(path, {"data": (None, 3, 4)}).outputs["n_output"]) == "float32[data_0, 12]"
    )


def test_arrays_are_views_of_the_file(tmp_path):
    path = write(tmp_path, *(small()[0], params_bytes(small()[1])))
    weights = load_mxnet(path).graph.constants["c_weight"]
    assert weights.base is not None and not weights.flags.writeable
