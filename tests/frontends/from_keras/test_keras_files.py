"""Keras files: what Keras 2 wrote, what must be refused, and a real network."""

from __future__ import annotations

import io
import json
import struct
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.frontends.from_keras.h5_files import functional, h5py, sequential, written
from tests.frontends.from_keras.keras2_files import entry, network, tf_function
from tests.frontends.onnx_models import shared_folder

import verax
from verax import load
from verax.base.errors import ModelError, UnsupportedError, UsageError, VeraxError
from verax.frontends.keras import load_keras
from verax.ir.graph import Graph
from verax.records.verdict import Kind
from verax.reference.evaluate import evaluate

X = np.linspace(-4, 4, 2 * 5).reshape(2, 5).astype(np.float32)
SECONDS = 5.0
"""Most that one small damaged file may take."""


def run(data: bytes, x: np.ndarray = X) -> np.ndarray:
    model = load_keras(data)
    (found,) = verax.reference(model, {next(iter(model.inputs)): x}).values()
    return found


# What Keras 2 wrote


def test_hard_sigmoid_is_steeper_in_keras_2() -> None:
    layers = [("Activation", {"activation": "hard_sigmoid"}, [])]
    old = run(sequential(layers, [None, 5], "2.4.0"))
    new = run(sequential(layers, [None, 5], "3.1.0"))
    np.testing.assert_allclose(old, np.clip(0.2 * X + 0.5, 0, 1), rtol=np.finfo(np.float32).eps)
    np.testing.assert_allclose(new, np.clip(X / 6 + 0.5, 0, 1), rtol=np.finfo(np.float32).eps)


def test_leaky_relu_calls_its_slope_alpha_in_keras_2() -> None:
    found = run(sequential([("LeakyReLU", {"alpha": 0.25}, [])], [None, 5]))
    np.testing.assert_array_equal(found, np.where(X < 0, 0.25 * X, X))


def test_the_groups_of_an_old_depthwise_layer_mean_nothing() -> None:
    rng = np.random.default_rng(1)
    kernel, x = rng.standard_normal((3, 2, 3, 2)), rng.standard_normal((2, 5, 4, 3))
    base = {"kernel_size": [3, 2], "depth_multiplier": 2, "use_bias": False}
    arrays = [kernel.astype(np.float32)]
    plain = sequential([("DepthwiseConv2D", base, arrays)], [None, 5, 4, 3])
    old = sequential([("DepthwiseConv2D", {**base, "groups": 1}, arrays)], [None, 5, 4, 3])
    x32 = x.astype(np.float32)
    np.testing.assert_array_equal(run(old, x32), run(plain, x32))
    (entry,) = [e for e in load_keras(old).ledger.entries if e.attribute == "groups"]
    assert entry.outcome == "irrelevant"


def test_channels_first_is_another_function() -> None:
    rng = np.random.default_rng(1)
    kernel = rng.standard_normal((2, 2, 4, 3)).astype(np.float32)
    x = rng.standard_normal((2, 4, 5, 6)).astype(np.float32)
    base = {"kernel_size": [2, 2], "filters": 3, "use_bias": False}
    first = [("Conv2D", {**base, "data_format": "channels_first"}, [kernel])]
    last = [("Conv2D", {**base, "data_format": "channels_last"}, [kernel])]
    np.testing.assert_array_equal(
        run(sequential(first, [None, 4, 5, 6]), x),
        run(sequential(last, [None, 5, 6, 4]), x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2),
    )


def test_layers_may_be_listed_in_any_order() -> None:
    layers = [
        {"class_name": "Add", "name": "sum", "inbound": ["b", "a"]},
        {"class_name": "ELU", "name": "b", "inbound": ["a"]},
        {"class_name": "ReLU", "name": "a", "inbound": ["x"]},
        {"class_name": "InputLayer", "name": "x", "config": {"batch_input_shape": [None, 5]}},
    ]
    data = functional(layers, "sum")
    np.testing.assert_array_equal(run(data), 2 * np.maximum(X, 0))


def test_calls_of_nested_models_are_counted_from_one_in_keras_2() -> None:
    """Call 0 is the one by which the inner model was made; the weights bear no model's name."""
    shape = {"batch_input_shape": [None, 5]}
    dense = {"units": 5, "use_bias": False}
    inner = network(
        [entry("InputLayer", "i", **shape), entry("Dense", "d", [[["i", 0, 0, {}]]], **dense)],
        ["d", 0, 0],
    )
    twice = [[["x", 0, 0, {}]], [["inner", 1, 0, {}]]]
    outer = network(
        [
            entry("InputLayer", "x", **shape),
            {**inner, "name": "inner", "inbound_nodes": twice},
            entry("Add", "sum", [[["inner", 1, 0, {}], ["inner", 2, 0, {}]]]),
        ],
        ["sum", 0, 0],
    )
    kernel = np.random.default_rng(0).integers(-4, 5, (5, 5)).astype(np.float32)
    stream = io.BytesIO(written(outer, {"inner": [kernel]}, "2.4.0"))
    with h5py.File(stream, "a") as file:
        group = file["model_weights/inner"]
        group.attrs["weight_names"] = [b"d/kernel:0"]
        group.create_dataset("d/kernel:0", data=kernel)
    x = np.arange(10, dtype=np.float32).reshape(2, 5) - 4
    want = x @ kernel + x @ kernel @ kernel  # whole numbers: exact
    np.testing.assert_array_equal(run(stream.getvalue(), x), want)


def test_functions_of_tensorflow_in_keras_2() -> None:
    """Numbers before and after tensors, tensors by name, slices, axes."""
    whole = {"start": None, "stop": None, "step": None}
    part = {"start": 1, "stop": None, "step": 2}
    none = {"name": None}
    layers = [
        entry("InputLayer", "x", batch_input_shape=[None, 5]),
        tf_function("add", "__operators__.add", ["x"], y=3.0, **none),
        tf_function("six", "nn.relu6", ["add"], **none),
        tf_function("less", "math.subtract", [["_CONSTANT_VALUE", -1, 1.0, {"y": ["six", 0, 0]}]]),
        tf_function("both", "concat", [["less", 0, 0, {"axis": -1}], ["x", 0, 0, {"axis": -1}]]),
        tf_function("cut", "__operators__.getitem", ["both"], slice_spec=[whole, part]),
        tf_function("wide", "expand_dims", ["cut"], axis=1),
        tf_function("mean", "math.reduce_mean", ["wide"], axis=2, keepdims=True),
        tf_function("out", "math.multiply", ["wide"], y=["mean", 0, 0], **none),
    ]
    six = np.clip(X + 3, 0, 6)
    cut = np.concatenate([1 - six, X], -1)[:, None, 1::2].astype(np.float64)
    found = run(written(network(layers, ["out", 0, 0]), {}, "2.9.0"))
    rounding = np.finfo(np.float32).eps
    np.testing.assert_allclose(found, cut * cut.mean(2, keepdims=True), rtol=rounding)


def test_unknown_functions_of_tensorflow_are_named() -> None:
    layers = [
        entry("InputLayer", "x", batch_input_shape=[None, 5]),
        tf_function("odd", "math.betainc", ["x"]),
    ]
    refuse(written(network(layers, ["odd", 0, 0]), {}, "2.9.0"), "betainc", UnsupportedError)
    layers[1] = tf_function("cut", "__operators__.getitem", ["x"], slice_spec=[{"begin": 1}])
    refuse(written(network(layers, ["cut", 0, 0]), {}, "2.9.0"), "begin", UnsupportedError)
    layers[1] = tf_function("relu", "nn.relu", ["x"], features=1)
    refuse(written(network(layers, ["relu", 0, 0]), {}, "2.9.0"), "features", UnsupportedError)


def test_classes_of_ones_own_are_not_mistaken_for_those_of_keras() -> None:
    own = {"module": "mine", "class_name": "Dense", "registered_name": "Mine>Dense",
           "config": {"name": "d", "units": 3}}  # fmt: skip
    config = {"name": "net", "layers": [own], "build_input_shape": [None, 5]}
    data = written({"class_name": "Sequential", "config": config}, {}, "3.1.0")
    refuse(data, "custom::Mine>Dense", UnsupportedError)


def test_keys_that_nobody_has_read_are_refused() -> None:
    layer = {"class_name": "ReLU", "config": {"name": "r"}, "fused_with": "a"}
    config = {"name": "net", "layers": [layer], "build_input_shape": [None, 5]}
    refuse(written({"class_name": "Sequential", "config": config}, {}, "3.1.0"), "fused_with",
           UnsupportedError)  # fmt: skip
    del layer["fused_with"]
    config["stages"] = 2
    refuse(written({"class_name": "Sequential", "config": config}, {}, "3.1.0"), "stages",
           UnsupportedError)  # fmt: skip


def test_bytes_are_made_floats_where_pictures_are_rescaled() -> None:
    layers = [
        entry("InputLayer", "x", batch_input_shape=[None, 5], dtype="uint8"),
        entry("Rescaling", "y", [[["x", 0, 0, {}]]], scale=0.5, offset=-1.0),
    ]
    x = np.arange(250, 260).reshape(2, 5).astype(np.uint8)
    found = run(written(network(layers, ["y", 0, 0]), {}, "2.9.0"), x)
    np.testing.assert_array_equal(found, x.astype(np.float32) / 2 - 1)


def test_shapes_left_open_take_the_sizes_given() -> None:
    data = sequential([("ReLU", {}, [])], [None, None, 3])
    assert not load_keras(data).inputs["x"].is_static
    assert load_keras(data, shapes={"x": (2, 7, 3)}).outputs["l0"].shape == (2, 7, 3)


# A real network


def resnet8() -> Path:
    folder = shared_folder()
    if folder is None:
        pytest.skip("../shared with real networks is missing")
    return folder / "models" / "resnet8" / "pretrainedResnet.h5"


def test_resnet8_is_judged_against_its_stored_answers() -> None:
    path = resnet8()
    with np.load(next(path.parent.glob(f"{path.name}.*.npz"))) as stored:
        inputs, given = {"input_1": stored["in:input_1"]}, {"dense": stored["out:out"]}
    verdict = verax.check(load(path), given, inputs=inputs)
    assert verdict.kind in (Kind.identical, Kind.rounding)


def cat() -> np.ndarray:
    """The middle square of the photo, [1, 32, 32, 3]."""
    with Image.open(resnet8().parents[2] / "photos" / "chelsea.png") as picture:
        side = min(picture.size)
        left, top = (picture.width - side) // 2, (picture.height - side) // 2
        square = picture.convert("RGB").crop((left, top, left + side, top + side))
        return np.asarray(square.resize((32, 32), Image.Resampling.BOX), np.float32)[None]


def test_resnet8_sees_the_cat() -> None:
    assert verax.reference(load(resnet8()), {"input_1": cat()})["dense"].argmax() == 3


@pytest.mark.slow
def test_resnet8_compiled_is_the_function_of_its_tflite_form() -> None:
    path, inputs = resnet8(), {"input_1": cat()}
    found = verax.compile(load(path)).run(inputs)["dense"]
    tflite = load(path.with_suffix(".tflite"))
    verdict = verax.check(tflite, {"Identity": found}, inputs=inputs)
    assert verdict.kind in (Kind.identical, Kind.rounding), verdict.reasons


# What must be refused


def refuse(data: bytes, match: str, error: type[VeraxError] = ModelError) -> None:
    with pytest.raises(error, match=match):
        load_keras(data)


def test_unknown_layers_are_listed_at_once() -> None:
    layers = [("Lambda", {"function": "code"}, []), ("MyOwn", {}, []), ("Lambda", {}, [])]
    refuse(sequential(layers, [None, 5]), r"Lambda \(2\), MyOwn \(1\)", UnsupportedError)


@pytest.mark.parametrize(
    ("layer", "match"),
    [
        (("ReLU", {"novel": 1}, []), "novel"),
        (("ReLU", {"dtype": "mixed_float16"}, []), "mixed_float16"),
        (("Activation", {"activation": "odd"}, []), "odd"),
        (("Activation", {"activation": {"class_name": "Own", "config": {}}}, []), "Own"),
        (("Embedding", {"mask_zero": True, "output_dim": 3}, [np.ones((5, 3), np.float32)]),
         "mask"),
        (("BatchNormalization", {"axis": [1, 2]}, [np.ones(5, np.float32)] * 4), "axis"),
        (("Conv1D", {"kernel_size": [1], "filters": 1, "padding": "full", "use_bias": False},
          [np.ones((1, 1, 1), np.float32)]), "padding"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused(layer: Any, match: str) -> None:
    shape = [None, 5, 1] if layer[0] == "Conv1D" else [None, 5]
    refuse(sequential([layer], shape), match, UnsupportedError)


@pytest.mark.parametrize(
    "layer",
    [
        ("Dense", {"units": 3}, [np.ones((5, 3), np.float32)]),
        ("Dense", {"units": 3}, [np.ones((4, 3), np.float32), np.ones(3, np.float32)]),
        ("ReLU", {}, [np.ones(3, np.float32)]),
        ("Conv2D", {"kernel_size": [3, 3], "filters": 2, "use_bias": False},
         [np.ones((2, 2, 3, 2), np.float32)]),
        ("Permute", {"dims": [2, 1]}, []),
        ("Reshape", {"target_shape": [2, 3]}, []),
    ],
)  # fmt: skip
def test_weights_and_shapes_that_do_not_fit_are_refused(layer: Any) -> None:
    refuse(sequential([layer], [2, 5]), "")


def test_circles_are_refused() -> None:
    layers = [
        {"class_name": "InputLayer", "name": "x", "config": {"batch_input_shape": [2, 5]}},
        {"class_name": "Add", "name": "a", "inbound": ["x", "b"]},
        {"class_name": "ReLU", "name": "b", "inbound": ["a"]},
    ]
    refuse(functional(layers, "b"), "itself")


def test_two_layers_of_one_name_are_refused() -> None:
    layers = [
        {"class_name": "InputLayer", "name": "x", "config": {"batch_input_shape": [2, 5]}},
        {"class_name": "ReLU", "name": "a", "inbound": ["x"]},
        {"class_name": "ELU", "name": "a", "inbound": ["x"]},
    ]
    refuse(functional(layers, "a"), "one name")


def test_models_nested_without_end_are_refused() -> None:
    config: dict[str, Any] = {"class_name": "ReLU", "config": {"name": "r"}}
    for i in range(40):
        config = {"class_name": "Sequential", "config": {"name": f"m{i}", "layers": [config]}}
    refuse(written(config, {}, "2.4.0"), "")
    refuse(written("[" * 100_000, {}, "2.4.0"), "damaged")


def test_models_of_other_classes_are_refused() -> None:
    refuse(written({"class_name": "Own", "config": {}}, {}, "2.4.0"), "Own", UnsupportedError)


def test_weights_alone_are_no_model() -> None:
    stream = io.BytesIO()
    with h5py.File(stream, "w") as file:
        file.create_group("layer")
    refuse(stream.getvalue(), "no model", UnsupportedError)


@pytest.mark.parametrize("data", [b"", b"\x89HDF\r\n\x1a\n", b"PK\x03\x04", b"\0" * 999])
def test_other_bytes_are_refused(data: bytes) -> None:
    refuse(data, "")


def test_missing_files_and_wrong_suffixes(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        load_keras(tmp_path / "none.h5")
    (tmp_path / "net.keras").write_bytes(b"not a zip")
    with pytest.raises(ModelError):
        load(tmp_path / "net.keras")


@pytest.mark.parametrize("name", ["net.h5", "net.hdf5", "NET.HDF5"])
def test_both_suffixes_of_hdf5(name: str, tmp_path: Path) -> None:
    made = sequential([("Activation", {"activation": "relu"}, [])], [None, 5])
    (tmp_path / name).write_bytes(made)
    (found,) = verax.reference(load(tmp_path / name), {"x": X}).values()
    assert np.array_equal(found, np.maximum(X, 0))


def test_links_out_of_the_file_are_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "secret.h5"
    with h5py.File(other, "w") as file:
        file["w"] = np.ones((5, 3), np.float32)
    path = tmp_path / "net.h5"
    layer = ("Dense", {"units": 3, "use_bias": False}, [np.ones((5, 3), np.float32)])
    path.write_bytes(sequential([layer], [None, 5]))
    with h5py.File(path, "a") as file:
        del file["model_weights/l0/l0/w0:0"]
        file["model_weights/l0/l0/w0:0"] = h5py.ExternalLink(str(other), "w")
    with pytest.raises(UnsupportedError, match="links"):
        load(path)


@pytest.mark.parametrize(
    "layer",
    [
        ("AdaptiveAveragePooling1D", {"output_size": [2**40]}, []),
    ],
)
def test_layers_of_countless_pieces_are_refused(layer: Any) -> None:
    refuse(sequential([layer], [2, 2**40, 3]), "too many", UnsupportedError)


def test_gigantic_arrays_are_refused_before_memory_is_taken() -> None:
    stream = io.BytesIO(sequential([("PReLU", {}, [np.ones(5, np.float32)])], [None, 5]))
    with h5py.File(stream, "a") as file:
        del file["model_weights/l0/l0/w0:0"]
        file.create_dataset("model_weights/l0/l0/w0:0", (1 << 20, 1 << 20), np.float32)
    refuse(stream.getvalue(), "damaged")


@pytest.mark.parametrize("options", [{"chunks": (2,)}, {"compression": "gzip", "shuffle": True}])
@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f2", "<f8"])
def test_repacked_files_are_the_same_network(
    options: dict[str, Any], libver: str, dtype: str
) -> None:
    """Weights of other float types are read as Keras reads them: as float32."""
    slopes = np.array([0.5, 0.25, -1.0, 2.0, 0.0], np.float32)
    plain = io.BytesIO(sequential([("PReLU", {}, [slopes])], [None, 5]))
    packed = io.BytesIO()
    with h5py.File(plain) as old, h5py.File(packed, "w", libver=libver) as new:
        for name, value in old.attrs.items():
            new.attrs[name] = value
        old.copy("model_weights", new)
        del new["model_weights/l0/l0/w0:0"]
        new.create_dataset("model_weights/l0/l0/w0:0", data=slopes.astype(dtype), **options)
    np.testing.assert_array_equal(run(packed.getvalue()), run(plain.getvalue()))


def test_compression_that_is_not_undone_is_named() -> None:
    stream = io.BytesIO(sequential([("PReLU", {}, [np.ones(5, np.float32)])], [None, 5]))
    with h5py.File(stream, "a") as file:
        del file["model_weights/l0/l0/w0:0"]
        data = np.ones(5, np.float32)
        file.create_dataset("model_weights/l0/l0/w0:0", data=data, compression="lzf")
    refuse(stream.getvalue(), "lzf", UnsupportedError)


def test_weights_are_views_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "net.h5"
    path.write_bytes(sequential([("PReLU", {}, [np.arange(5, dtype=np.float32)])], [None, 5]))
    (array,) = load(path).graph.constants.values()
    assert not array.flags.owndata
    np.testing.assert_array_equal(array, np.arange(5))


def archive(**members: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name.replace("__", "."), content)
    return stream.getvalue()


def test_zip_bombs_and_missing_members_are_refused() -> None:
    config = json.dumps(
        {"class_name": "Sequential", "config": {"name": "n", "layers": []}}
    ).encode()
    bomb = archive(config__json=b" " * 50_000_000)
    assert len(bomb) < 100_000
    refuse(bomb, "claims")
    refuse(archive(config__json=config), "no metadata.json")
    refuse(archive(config__json=config, metadata__json=b"{}"), "no model.weights")


def outcome(data: bytes) -> bool:
    """Whether `data` is a model; anything but a model or a `VeraxError` fails the test."""
    start = time.process_time()
    try:
        assert isinstance(load_keras(data).graph, Graph)
        return True
    except VeraxError as error:
        assert error.cause
        return False
    finally:
        assert time.process_time() - start < SECONDS


def fuzz(data: bytes, count: int) -> None:
    rng = np.random.default_rng(count)
    outcomes = []
    for i in range(count):
        copy = bytearray(data)
        at = int(rng.integers(len(copy)))
        word = int(rng.choice([0, 1, 2**31 - 1, 2**32 - 1, len(copy), int(rng.integers(2**32))]))
        copy[at : at + 4] = struct.pack("<I", word)[: len(copy) - at]
        outcomes.append(outcome(bytes(copy[:at] if i % 9 == 0 else copy)))
    assert 0 < sum(outcomes) < count


SMALL = [
    ("Conv2D", {"kernel_size": [2, 2], "filters": 3, "activation": "relu"},
     [np.ones((2, 2, 4, 3), np.float32), np.ones(3, np.float32)]),
    ("BatchNormalization", {"axis": [3]}, [np.ones(3, np.float32)] * 4),
]  # fmt: skip


def test_mutated_files() -> None:
    fuzz(sequential(SMALL, [None, 5, 6, 4]), 300)


@pytest.mark.slow
def test_thousands_of_mutations() -> None:
    fuzz(sequential(SMALL, [None, 5, 6, 4]), 5000)


def recurrent_file(kind: str, gates: int, length: int | None, **options: Any) -> bytes:
    rng = np.random.default_rng(len(kind) + gates)
    shapes = (3, gates * 2), (2, gates * 2)
    weights = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    usual = {"activation": "tanh", "recurrent_activation": "sigmoid"}
    usual = usual if kind != "SimpleRNN" else {"activation": "tanh"}
    config = {"units": 2, "use_bias": False, "return_sequences": True, **usual, **options}
    return sequential([(kind, config, weights)], [None, length, 3])


@pytest.mark.parametrize(("kind", "gates"), [("SimpleRNN", 1), ("GRU", 3), ("LSTM", 4)])
@pytest.mark.parametrize("back", [False, True])
def test_a_sequence_of_unknown_length_is_that_of_its_length(
    kind: str, gates: int, back: bool
) -> None:
    open_ = load_keras(recurrent_file(kind, gates, None, go_backwards=back))
    fixed = load_keras(recurrent_file(kind, gates, 4, go_backwards=back))
    x = np.random.default_rng(51).standard_normal((5, 4, 3)).astype(np.float32)
    (name,) = open_.inputs
    assert open_.inputs[name].symbols()
    found, wanted = (evaluate(m.graph, {name: x}) for m in (open_, fixed))
    assert [v.shape for v in found.values()] == [(5, 4, 2)]
    for value in found:
        np.testing.assert_array_equal(found[value], wanted[value])


@pytest.mark.parametrize("activation", ["softmax", "soft_shrink", "relu6"])
def test_an_activation_that_no_operator_has_inside_is_refused(activation: str) -> None:
    refuse(
        recurrent_file("LSTM", 4, 5, activation=activation),
        "no such activation inside a recurrent layer",
        UnsupportedError,
    )
