"""The image networks of `keras.applications`, frozen and as both kinds of SavedModel, judged
against TensorFlow at a dozen places. Weights are random, moving statistics included.
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
PLACES = 10


def network(name: str) -> Any:
    """The network with weights of its own, showing layers in between as well."""
    size = SIZES[name]
    net = getattr(keras.applications, name)(weights=None, input_shape=(*size, 3), classes=7)
    random = np.random.default_rng(3)
    for weight in net.weights:
        kind, shape = weight.path.split("/")[-1], tuple(weight.shape)
        if kind in ("gamma", "moving_variance", "variance"):
            weight.assign(random.uniform(0.6, 1.5, shape).astype(np.float32))
        elif kind in ("beta", "bias", "moving_mean", "mean"):
            weight.assign(random.normal(0, 0.1, shape).astype(np.float32))
    between = net.layers[1 :: len(net.layers) // PLACES]
    shown = [layer.output for layer in between if len(layer.output.shape) > 1]
    return keras.Model(net.input, [*shown, net.output])


def image_for(name: str) -> np.ndarray:
    random = np.random.default_rng(5)
    whole = "V3" in name[:11] or name.startswith(("Efficient", "ConvNeXt"))
    return random.uniform(0, 255 if whole else 1, (2, *SIZES[name], 3)).astype(np.float32)


def judged(model: verax.Model, subject: Any, image: np.ndarray) -> None:
    (given,) = model.inputs
    verdict = verax.check(model, subject, {given: image}, twice=False)
    if verdict.kind is Kind.undecided:
        # a deep network hides small errors of its first layers; nothing else may be left open
        assert {f.test for f in verdict.nodes if f.kind is Kind.undecided} == {"power"}
    else:
        assert verdict.kind in (Kind.identical, Kind.rounding), verdict.reasons


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
def test_a_frozen_application(name: str) -> None:
    from tensorflow.python.framework.convert_to_constants import (
        convert_variables_to_constants_v2,
    )

    net, image = network(name), image_for(name)
    spec = tf.TensorSpec(image.shape, tf.float32, name="image")
    function = tf.function(lambda x: net(x, training=False)).get_concrete_function(spec)
    frozen = convert_variables_to_constants_v2(function)
    answers = [v.numpy() for v in frozen(tf.constant(image))]
    model = load_tensorflow(frozen.graph.as_graph_def().SerializeToString())
    names = [v.name.removesuffix(":0") for v in frozen.outputs]
    assert set(names) <= set(model.outputs)
    judged(model, dict(zip(names, answers)), image)
    judged(model, "verax:O1", image)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAVED)
def test_a_saved_application(name: str, tmp_path: Path) -> None:
    net, image = network(name), image_for(name)
    net.export(str(tmp_path / "exported"), verbose=False)
    tf.saved_model.save(net, str(tmp_path / "saved"))
    want = [np.asarray(v) for v in net(image, training=False)]
    for folder in ("exported", "saved"):
        model = verax.load(tmp_path / folder)
        answers = {f"output_{i}": y for i, y in enumerate(want)}
        judged(model, answers, image)
