"""The image networks of `keras.applications`, frozen and as both kinds of SavedModel, judged
against TensorFlow node by node. Weights are random, moving statistics included.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tf_cases import tf

import verax
from verax.frontends.tensorflow import load_tensorflow
from verax.records.verdict import Kind

keras = pytest.importorskip("keras")
SIZES = {
    **{"MobileNet": (64, 72), "MobileNetV2": (64, 72), "MobileNetV3Small": (64, 72)},
    **{"MobileNetV3Large": (64, 72), "EfficientNetB0": (64, 72), "EfficientNetV2B0": (64, 72)},
    **{"ResNet50": (64, 72), "ResNet50V2": (64, 72), "DenseNet121": (64, 72)},
    **{"NASNetMobile": (64, 64), "Xception": (72, 80), "ConvNeXtTiny": (64, 72)},
    **{"InceptionV3": (80, 88), "InceptionResNetV2": (80, 88), "VGG16": (40, 48)},
}
"""Input sizes."""
SAVED = ("MobileNetV3Small", "EfficientNetB0", "NASNetMobile", "ConvNeXtTiny")
"""Networks that are also saved as folders."""


def network(name: str) -> Any:
    """The network with weights of its own."""
    size = SIZES[name]
    net = getattr(keras.applications, name)(weights=None, input_shape=(*size, 3), classes=7)
    random = np.random.default_rng(3)
    for weight in net.weights:
        kind, shape = weight.path.split("/")[-1], tuple(weight.shape)
        if kind in ("gamma", "moving_variance", "variance"):
            weight.assign(random.uniform(0.6, 1.5, shape).astype(np.float32))
        elif kind in ("beta", "bias", "moving_mean", "mean"):
            weight.assign(random.normal(0, 0.1, shape).astype(np.float32))
    return net


def image_for(name: str) -> np.ndarray:
    random = np.random.default_rng(5)
    whole = "V3" in name[:11] or name.startswith(("Efficient", "ConvNeXt"))
    return random.uniform(0, 255 if whole else 1, (2, *SIZES[name], 3)).astype(np.float32)


def every_value(data: bytes, image: np.ndarray, names: set[str]) -> dict[str, np.ndarray]:
    """What TensorFlow computes for each of these nodes that it has."""
    definition = tf.compat.v1.GraphDef.FromString(data)
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(definition, name="")
        wanted = {n.name: f"{n.name}:0" for n in definition.node if n.name in names}
        with tf.compat.v1.Session(graph=graph) as session:
            found: dict[str, np.ndarray] = session.run(wanted, {"image:0": image})
            return found


def judged(model: verax.Model, subject: Any, image: np.ndarray) -> None:
    """No mistake; and nothing left open but what a deep network hides of its first layers."""
    (given,) = model.inputs
    verdict = verax.check(model, subject, {given: image}, twice=False)
    if verdict.kind is Kind.undecided:
        open_ = [f for f in verdict.nodes if f.kind is Kind.undecided]
        assert {f.test for f in open_} == {"power"}, [f.reason for f in open_]
    else:
        assert verdict.kind in (Kind.identical, Kind.rounding), verdict.reasons


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
def test_a_frozen_application(name: str) -> None:
    """Node by node; then all of it, as TensorFlow runs it when nobody watches; then compiled."""
    from tensorflow.python.framework.convert_to_constants import (
        convert_variables_to_constants_v2,
    )

    net, image = network(name), image_for(name)
    spec = tf.TensorSpec(image.shape, tf.float32, name="image")
    function = tf.function(lambda x: net(x, training=False)).get_concrete_function(spec)
    frozen = convert_variables_to_constants_v2(function)
    data = frozen.graph.as_graph_def().SerializeToString()
    model = load_tensorflow(data)
    (answer,) = model.outputs
    judged(model, every_value(data, image, set(model.graph.producers)), image)
    judged(model, {answer: frozen(tf.constant(image))[0].numpy()}, image)
    judged(model, "verax:O1", image)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAVED)
def test_a_saved_application(name: str, tmp_path: Path) -> None:
    net, image = network(name), image_for(name)
    net.export(str(tmp_path / "exported"), verbose=False)
    tf.saved_model.save(net, str(tmp_path / "saved"))
    answers = {"output_0": np.asarray(net(image, training=False))}
    for folder in ("exported", "saved"):
        judged(verax.load(tmp_path / folder), answers, image)
