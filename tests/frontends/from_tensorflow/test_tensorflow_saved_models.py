"""SavedModel folders as TensorFlow and Keras write them, read without TensorFlow."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tf_cases import draw, tf

import verax
from verax.base.errors import ModelError, UnsupportedError, UsageError, VeraxError
from verax.frontends.tensorflow.bundle import Bundle
from verax.records.verdict import Kind


class Net(tf.Module):
    """Variables, an open batch, a function that calls another, two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.filters = tf.Variable(draw(3, 2, 3, 5), name="filters")
        self.bias = tf.Variable(draw(5), name="bias")
        self.weights = [tf.Variable(draw(5, 4, seed=i)) for i in range(2)]

    @tf.function
    def head(self, x: Any) -> Any:
        return x @ self.weights[0], tf.nn.softmax(x @ self.weights[1])

    @tf.function(input_signature=[tf.TensorSpec([None, 7, 8, 3], tf.float32, name="image")])
    def serve(self, image: Any) -> dict[str, Any]:
        x = tf.nn.conv2d(image, self.filters, [1, 2, 2, 1], "SAME") + self.bias
        a, b = self.head(tf.reduce_mean(tf.nn.relu(x), [1, 2]))
        return {"raw": a, "probabilities": b}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "net"
    net = Net()
    tf.saved_model.save(net, str(path), signatures={"serving_default": net.serve})
    return path


def test_a_saved_model_means_what_tensorflow_computes(folder: Path) -> None:
    model = verax.load(folder)
    assert list(model.inputs) == ["image"]
    assert set(model.outputs) == {"raw", "probabilities"}
    assert len(model.graph.symbols()) == 1, "the batch is open"
    x = draw(3, 7, 8, 3)
    net = tf.saved_model.load(str(folder))
    want = {k: v.numpy() for k, v in net.serve(x).items()}
    for subject in (want, "verax:O1"):
        verdict = verax.check(model, subject, {"image": x}, twice=False)
        assert verdict.kind in (Kind.identical, Kind.rounding), verdict.reasons
    fixed = verax.load(folder / "saved_model.pb", shapes={"image": (2, 7, 8, 3)})
    assert fixed.inputs["image"].shape == (2, 7, 8, 3)


def test_a_keras_model_saved_as_a_folder(tmp_path: Path) -> None:
    keras = pytest.importorskip("keras")
    x = keras.Input((9, 8, 3))
    y = keras.layers.Conv2D(4, 3, 2, "same", use_bias=False)(x)
    y = keras.layers.ReLU()(keras.layers.BatchNormalization()(y))
    y = keras.layers.DepthwiseConv2D(3, padding="same")(y)
    y = keras.layers.Dense(5, activation="softmax")(keras.layers.GlobalAveragePooling2D()(y))
    net = keras.Model(x, y)
    net.set_weights([np.abs(draw(*w.shape, seed=i)) for i, w in enumerate(net.get_weights())])
    net.export(str(tmp_path / "net"), verbose=False)
    model = verax.load(tmp_path / "net")
    image = draw(2, 9, 8, 3)
    (given,), (answer,) = model.inputs, model.outputs
    want = {answer: np.asarray(net(image))}
    verdict = verax.check(model, want, {given: image}, twice=False)
    assert verdict.kind in (Kind.identical, Kind.rounding), verdict.reasons


def test_a_signature_is_chosen_by_name(tmp_path: Path) -> None:
    class Two(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = tf.Variable(draw(3))

        @tf.function(input_signature=[tf.TensorSpec([2, 3], tf.float32, name="a")])
        def scaled(self, a: Any) -> dict[str, Any]:
            return {"y": a * self.scale}

        @tf.function(input_signature=[tf.TensorSpec([2, 3], tf.float32, name="b")])
        def moved(self, b: Any) -> dict[str, Any]:
            return {"z": b + self.scale}

    net = Two()
    path = str(tmp_path / "two")
    tf.saved_model.save(net, path, signatures={"scaled": net.scaled, "moved": net.moved})
    with pytest.raises(UnsupportedError, match=r"2 signatures .*moved, scaled") as caught:
        verax.load(path)
    assert "signature='moved'" in str(caught.value)
    with pytest.raises(UsageError, match="no signature 'other'"):
        verax.load(path, signature="other")
    x = draw(2, 3)
    for name, given, answer, want in (
        ("scaled", "a", "y", x * net.scale.numpy()),
        ("moved", "b", "z", x + net.scale.numpy()),
    ):
        found = verax.check(verax.load(path, signature=name), {answer: want}, {given: x})
        assert found.kind in (Kind.identical, Kind.rounding), found.reasons


def test_variables_that_are_restored_as_copies(tmp_path: Path) -> None:
    """`tf.saved_model.save` of a Keras 3 model reads variables that its restoring part omits; two
    variables of one shape must not be confused."""
    keras = pytest.importorskip("keras")
    x = keras.Input((6,))
    y = keras.layers.Dense(6, name="first")(x)
    y = keras.layers.Dense(6, name="second", activation="tanh")(y)
    net = keras.Model(x, y)
    net.set_weights([draw(*w.shape, seed=i) for i, w in enumerate(net.get_weights())])
    tf.saved_model.save(net, str(tmp_path / "net"))
    model = verax.load(tmp_path / "net")
    (given,), (answer,) = model.inputs, model.outputs
    data = draw(2, 6)
    verdict = verax.check(model, {answer: np.asarray(net(data))}, {given: data}, twice=False)
    assert verdict.kind in (Kind.identical, Kind.rounding), verdict.reasons


def test_half_and_whole_number_variables(tmp_path: Path) -> None:
    class Narrow(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.half = tf.Variable(draw(4).astype(np.float16))
            self.brain = tf.Variable(tf.cast(draw(4, seed=1), tf.bfloat16))
            self.short = tf.Variable(np.array([1, 65535, 7, 300], np.uint16))

        @tf.function(input_signature=[tf.TensorSpec([2, 4], tf.float32, name="x")])
        def serve(self, x: Any) -> dict[str, Any]:
            parts = [tf.cast(v, tf.float32) for v in (self.half, self.brain, self.short)]
            return {"y": x * parts[0] + parts[1] - parts[2]}

    net, x = Narrow(), draw(2, 4)
    tf.saved_model.save(net, str(tmp_path / "n"), signatures={"serving_default": net.serve})
    found = verax.reference(verax.load(tmp_path / "n"), {"x": x})["y"]
    want = net.serve(x)["y"].numpy()
    assert np.array_equal(found.astype(np.float32), want)


def test_tables_and_loops_are_refused_by_name(tmp_path: Path) -> None:
    class Lookup(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            pairs = tf.lookup.KeyValueTensorInitializer(tf.constant([1, 2], tf.int64), [0.5, 1.5])
            self.table = tf.lookup.StaticHashTable(pairs, 0.0)

        @tf.function(input_signature=[tf.TensorSpec([3], tf.int64, name="x")])
        def serve(self, x: Any) -> dict[str, Any]:
            return {"y": self.table.lookup(x)}

        @tf.function(input_signature=[tf.TensorSpec([3], tf.float32, name="x")])
        def loop(self, x: Any) -> dict[str, Any]:
            return {"y": tf.map_fn(lambda v: v * 2.0, x)}

    net = Lookup()
    path = str(tmp_path / "net")
    tf.saved_model.save(net, path, signatures={"serving_default": net.serve, "loop": net.loop})
    with pytest.raises(UnsupportedError, match="LookupTableFindV2") as caught:
        verax.load(path)
    assert "export the network behind them" in str(caught.value.next_step)
    with pytest.raises(UnsupportedError, match="While") as caught:
        verax.load(path, signature="loop")
    assert "unrolled" in str(caught.value.next_step)


def saved_tensors(prefix: Path, tensors: dict[str, np.ndarray], slices: str = "") -> str:
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=list(tensors),
        shape_and_slices=[slices] * len(tensors),
        tensors=list(tensors.values()),
    )
    return str(prefix)


def test_a_checkpoint_in_two_files(tmp_path: Path) -> None:
    a, b = {"a": draw(3, 4), "c": draw(2)}, {"b": draw(5, 2)}
    parts = [saved_tensors(tmp_path / "part1", a), saved_tensors(tmp_path / "part2", b)]
    whole = tmp_path / "variables"
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=str(whole))
    assert (tmp_path / "variables.data-00001-of-00002").exists()
    bundle = Bundle(whole)
    for key, want in {**a, **b}.items():
        assert np.array_equal(bundle.tensor(key), want)
    assert bundle.tensor("d") is None


def test_partitioned_variables_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "variables"
    saved_tensors(path, {"w": draw(2, 3)}, slices="4 3 0,2:0,3")
    with pytest.raises(UnsupportedError, match="'w' is stored in 1 parts"):
        Bundle(path).tensor("w")


def test_damaged_folders_are_refused(folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    index = broken / "variables" / "variables.index"
    whole = index.read_bytes()
    for cut in (0, 10, len(whole) // 2, len(whole) - 1):
        index.write_bytes(whole[:cut])
        with pytest.raises(ModelError):
            verax.load(broken)
    index.write_bytes(whole)
    data = next((broken / "variables").glob("variables.data*"))
    data.write_bytes(data.read_bytes()[:20])
    with pytest.raises(ModelError, match="outside of its file"):
        verax.load(broken)
    shutil.rmtree(broken / "variables")
    with pytest.raises(VeraxError, match="variables"):
        verax.load(broken)
    (broken / "saved_model.pb").unlink()
    with pytest.raises(VeraxError, match="folder"):
        verax.load(broken)


def test_mutated_indices_give_a_model_or_a_clear_error(folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "mutated"
    shutil.copytree(folder, broken)
    index = broken / "variables" / "variables.index"
    whole = index.read_bytes()
    random = np.random.default_rng(0)
    for _ in range(150):
        changed = bytearray(whole)
        for _ in range(int(random.integers(1, 4))):
            changed[int(random.integers(len(changed)))] = int(random.integers(256))
        index.write_bytes(bytes(changed))
        try:
            verax.load(broken)
        except VeraxError as error:
            assert error.cause
