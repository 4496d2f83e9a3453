"""SavedModel folders as TensorFlow and Keras write them, read without TensorFlow."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tf_cases import draw, tf

import verax
from verax.base.errors import ModelError, UnsupportedError, VeraxError
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
    with pytest.raises(UnsupportedError, match="holds no model"):
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
