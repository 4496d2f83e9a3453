"""Whole CoreML networks: borders of legacy ones, images, classes, stored weights, real files."""

import importlib.util

import numpy as np
import pytest
from coreml_models import SHARED, conv, deconv, network, same, setting, weights

import verax
from verax.base.errors import ModelError, UnsupportedError
from verax.frontends.coreml import load_coreml
from verax.frontends.coreml.messages import model_messages
from verax.reference.evaluate import evaluate

needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="../shared is missing")
TIGHT = 2**10 * np.finfo(np.float64).eps


def answers(model, inputs, **options):
    loaded = load_coreml(model.SerializeToString(), **options)
    return loaded, evaluate(loaded.graph, inputs)


def image_model(color=30, **scaler):
    """A legacy network on a colour image of 5 x 7: one linear layer."""
    model = network([("activation", "a", ["image"], ["y"], setting(linear__alpha=2.0))], {}, {}, 1)
    feature = model.description.input.add()
    feature.name = "image"
    feature.type.imageType.width, feature.type.imageType.height = 7, 5
    feature.type.imageType.colorSpace = color
    result = model.description.output.add()
    result.name = "y"
    result.type.multiArrayType.shape.extend((1 if color == 10 else 3, 5, 7))
    if scaler:
        step = model.neuralNetwork.preprocessing.add()
        step.featureName = "image"
        for name, value in scaler.items():
            setattr(step.scaler, name, value)
    return model


def mean_image_model(mean):
    """A legacy network on a gray image less a mean one [1, 5, 7]."""
    model = image_model(10)
    step = model.neuralNetwork.preprocessing.add()
    step.featureName = "image"
    step.meanImage.meanImage.extend(mean.ravel().tolist())
    return model


def test_a_legacy_network_takes_and_gives_its_declared_shapes():
    w = weights(4, 3, 3, 3)
    base = {"outputChannels": 4, "kernelChannels": 3, "weights": w, "same": None}
    layers = [
        ("convolution", "c", ["x"], ["c"], setting(**base)),
        ("pooling", "p", ["c"], ["p"], setting(type=1, globalPooling=True)),
    ]
    x = np.random.default_rng(0).standard_normal((3, 5, 7)).astype(np.float32)
    want = conv(x[None], w, pads=((1, 1), (1, 1)))
    shapes = {"c": (4, 5, 7), "p": (4,)}
    model, found = answers(network(layers, {"x": (3, 5, 7)}, shapes, 1), {"x": x})
    assert {k: t.shape for k, t in model.outputs.items()} == shapes
    assert np.abs(found["c"] - want[0]).max() < TIGHT
    assert np.abs(found["p"] - want[0].mean((1, 2))).max() < TIGHT


def test_a_declared_shape_that_the_network_does_not_give_is_refused():
    layers = [("activation", "a", ["x"], ["y"], setting(ReLU=None))]
    with pytest.raises(ModelError, match=r"declared as \(4, 5, 7\)"):
        load_coreml(network(layers, {"x": (3, 5, 7)}, {"y": (4, 5, 7)}, 1).SerializeToString())


@pytest.mark.parametrize(("color", "order"), [(30, (1.0, 2.0, 4.0)), (20, (4.0, 2.0, 1.0))])
def test_an_image_is_scaled_per_channel_in_the_declared_order(color, order):
    model = image_model(color, channelScale=0.5, blueBias=1.0, greenBias=2.0, redBias=4.0)
    x = np.random.default_rng(0).integers(0, 256, (1, 3, 5, 7)).astype(np.float32)
    loaded, found = answers(model, {"image": x})
    assert np.array_equal(found["y"], 2 * (0.5 * x[0] + np.reshape(order, (3, 1, 1))))
    assert loaded.metadata["input image"] == f"pixels 0..255, {'BGR' if color == 30 else 'RGB'}"


def test_a_gray_image_and_a_mean_image():
    x = np.random.default_rng(0).integers(0, 256, (1, 1, 5, 7)).astype(np.float32)
    _, found = answers(image_model(10, channelScale=2.0, grayBias=-3.0), {"image": x})
    assert np.array_equal(found["y"], 2 * (2 * x[0] - 3))
    mean = weights(1, 5, 7)
    _, found = answers(mean_image_model(mean), {"image": x})
    assert np.array_equal(found["y"], 2 * (x[0].astype(float) - mean))


def test_a_classifier_gives_its_probabilities_and_names_its_classes():
    model = network([("softmax", "s", ["x"], ["s"], setting())], {"x": (3,)}, {}, 1)
    classifier = model.neuralNetworkClassifier
    classifier.layers.extend(model.neuralNetwork.layers)
    classifier.stringClassLabels.vector.extend(["cat", "dog", "owl"])
    model.description.predictedFeatureName = "label"
    model.description.predictedProbabilitiesName = "probabilities"
    for name, kind in (("label", "stringType"), ("probabilities", "dictionaryType")):
        feature = model.description.output.add()
        feature.name = name
        getattr(feature.type, kind).SetInParent()
    x = np.array([0.5, -1, 2], np.float32)
    loaded, found = answers(model, {"x": x})
    assert loaded.metadata["labels"].split("\n") == ["cat", "dog", "owl"]
    want = np.exp(x.astype(float)) / np.exp(x.astype(float)).sum()
    assert list(found) == ["probabilities"]
    assert np.abs(found["probabilities"].ravel() - want).max() < TIGHT


def quantised(bits, table, channels):
    """A dense layer [4, 6] of codes, and its weights."""
    rng = np.random.default_rng(bits)
    codes = rng.integers(0, 2**bits, (4, 6))
    packed = np.packbits([(int(c) >> i) & 1 for c in codes.ravel() for i in reversed(range(bits))])
    count = 4 if channels else 1
    scale, bias = (rng.uniform(0.1, 1, count).astype(np.float32) for _ in range(2))
    entries = rng.standard_normal(2**bits).astype(np.float32)

    def fill(params):
        params.inputChannels, params.outputChannels = 6, 4
        params.weights.rawValue = packed.tobytes()
        form = params.weights.quantization
        form.numberOfBits = bits
        if table:
            form.lookupTableQuantization.floatValue.extend(entries.tolist())
        else:
            form.linearQuantization.scale.extend(scale.tolist())
            form.linearQuantization.bias.extend(bias.tolist())

    linear = codes.astype(np.float32) * scale[:, None] + bias[:, None]
    return fill, entries[codes] if table else linear


@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize("table", [False, True])
@pytest.mark.parametrize("bits", [1, 3, 4, 8])
def test_quantised_weights_are_the_numbers_of_their_formula(bits, table, channels):
    fill, w = quantised(bits, table, channels)
    model = network([("innerProduct", "d", ["x"], ["y"], fill)], {"x": (2, 6)}, {"y": ()})
    x = np.random.default_rng(1).standard_normal((2, 6)).astype(np.float32)
    _, found = answers(model, {"x": x})
    assert np.abs(found["y"] - x.astype(float) @ w.T.astype(float)).max() < TIGHT


def test_half_precision_weights_are_widened():
    w = weights(4, 6).astype(np.float16)

    def fill(params):
        params.inputChannels, params.outputChannels = 6, 4
        params.weights.float16Value = w.tobytes()

    model = network([("innerProduct", "d", ["x"], ["y"], fill)], {"x": (2, 6)}, {"y": ()})
    (found,) = [a for a in load_coreml(model.SerializeToString()).graph.constants.values()]
    assert np.array_equal(found, w.astype(np.float32))


def test_large_weights_are_read_without_going_through_python_numbers():
    w = weights(64, 128)
    fill = setting(inputChannels=128, outputChannels=64, weights=w)
    model = network([("innerProduct", "d", ["x"], ["y"], fill)], {"x": (2, 128)}, {"y": ()})
    (found,) = load_coreml(model.SerializeToString()).graph.constants.values()
    assert np.array_equal(found, w)


def same_models():
    folder = SHARED / "models" / "coreml_same"
    return [(kind, heavy) for kind in ("conv", "deconv") for heavy in (False, True)] if (
        folder.is_dir()) else []  # fmt: skip


def stored_weights(path):
    model = model_messages().Model()
    model.ParseFromString(path.read_bytes())
    layer = model.neuralNetwork.layers[0].convolution
    return np.array(layer.weights.floatValue, np.float32)


@needs_shared
@pytest.mark.parametrize(("kind", "heavy"), same_models())
def test_both_asymmetry_modes_follow_the_specification(kind, heavy):
    path = (
        SHARED
        / "models/coreml_same"
        / (f"{kind}_{'TOP_LEFT' if heavy else 'BOTTOM_RIGHT'}_HEAVY.mlmodel")
    )
    model = load_coreml(path)
    x = np.random.default_rng(0).standard_normal((3, 8, 7)).astype(np.float32)
    if kind == "conv":
        pads = [same(n, 3, 2, top_heavy=heavy) for n in (8, 7)]
        want = conv(x[None], stored_weights(path).reshape(4, 3, 3, 3), 0, (2, 2), pads)
    else:
        crop = [same(2 * n, 3, 2, top_heavy=heavy)[0] for n in (8, 7)]
        w = stored_weights(path).reshape(3, 4, 3, 3)
        want = deconv(x[None], w, 0, (2, 2), (16, 14), crop)
    (found,) = evaluate(model.graph, {"data": x}).values()
    assert np.abs(found - want[0]).max() < TIGHT
    assert verax.check(model.graph, "verax:O1", {"data": x}).kind in ("identical", "rounding")


@needs_shared
def test_the_asymmetry_modes_differ():
    x = np.random.default_rng(0).standard_normal((3, 8, 7)).astype(np.float32)
    found = {}
    for path in (SHARED / "models/coreml_same").glob("*.mlmodel"):
        found[path.stem] = next(iter(evaluate(load_coreml(path).graph, {"data": x}).values()))
    for kind in ("conv", "deconv"):
        gap = found[f"{kind}_TOP_LEFT_HEAVY"] - found[f"{kind}_BOTTOM_RIGHT_HEAVY"]
        assert np.abs(gap).max() > 0.1


def pose():
    """The network, and TensorFlow's answer to the same image turned to channels first."""
    folder = SHARED / "models" / "pose_cpm"
    with np.load(next(folder.glob("model.pb.tensorflow*.npz"))) as stored:
        (image,) = (stored[k] for k in stored.files if k.startswith("in:"))
        (answer,) = (stored[k] for k in stored.files if k.startswith("out:"))
    model = load_coreml(folder / "model.mlmodel")
    (name,) = model.outputs
    turned = [np.ascontiguousarray(v.transpose(0, 3, 1, 2)) for v in (image, answer)]
    return model, {"image__0": turned[0]}, {name: turned[1][0]}


@needs_shared
@pytest.mark.slow
def test_the_pose_network_is_the_function_that_tensorflow_answered_for():
    model, image, answer = pose()
    assert verax.check(model.graph, answer, image).kind in ("identical", "rounding")
    assert verax.check(model.graph, "verax:O1", image).kind in ("identical", "rounding")


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("coremltools") is None, reason="coremltools is missing"
)
def test_a_model_that_coremltools_writes_and_quantises_is_read():
    from coremltools.models.datatypes import Array
    from coremltools.models.neural_network import NeuralNetworkBuilder
    from coremltools.models.neural_network.quantization_utils import _quantize_nn_spec

    rng = np.random.default_rng(0)
    w = rng.standard_normal((3, 2, 3, 4)).astype(np.float32)
    builder = NeuralNetworkBuilder([("x", Array(3, 8, 7))], [("y", Array(4, 4, 4))])
    builder.add_convolution(
        "c", 3, 4, 3, 2, 2, 2, "same", 1, w, None, False, input_name="x", output_name="y"
    )
    x = rng.standard_normal((3, 8, 7)).astype(np.float32)
    want = conv(
        x[None], w.transpose(3, 2, 0, 1), 0, (2, 2), [same(8, 3, 2, top_heavy=False),
                                                    same(7, 2, 2, top_heavy=False)]
    )  # fmt: skip
    (found,) = evaluate(load_coreml(builder.spec.SerializeToString()).graph, {"x": x}).values()
    assert np.abs(found - want[0]).max() < TIGHT
    _quantize_nn_spec(builder.spec.neuralNetwork, 8, "linear")
    (near,) = evaluate(load_coreml(builder.spec.SerializeToString()).graph, {"x": x}).values()
    step = np.ptp(w) / 255
    assert 0 < np.abs(near - want[0]).max() < 18 * step * np.abs(x).max()


def test_preprocessing_that_nothing_reads_is_refused():
    model = image_model(30, channelScale=2.0)
    model.neuralNetwork.preprocessing[0].featureName = "other"
    with pytest.raises(UnsupportedError, match="preprocessing of 'other'"):
        load_coreml(model.SerializeToString())
    model = image_model(30, channelScale=2.0)
    model.neuralNetwork.preprocessing.add().scaler.channelScale = 3.0
    with pytest.raises(UnsupportedError, match="with and without"):
        load_coreml(model.SerializeToString())
    layers = [("activation", "a", ["x"], ["y"], setting(ReLU=None))]
    model = network(layers, {"x": (3, 5, 7)}, {"y": ()}, 1)
    model.neuralNetwork.preprocessing.add().scaler.channelScale = 3.0
    with pytest.raises(UnsupportedError, match="no image input"):
        load_coreml(model.SerializeToString())


def test_an_image_output_says_what_its_numbers_are():
    model = image_model(20)
    model.description.output[0].type.Clear()
    image = model.description.output[0].type.imageType
    image.width, image.height, image.colorSpace = 7, 5, 20
    loaded = load_coreml(model.SerializeToString())
    assert loaded.metadata["output y"].startswith("pixels 0..255, RGB, not yet rounded")
    assert loaded.outputs["y"].shape == (1, 3, 5, 7)


def test_an_output_declared_at_the_default_size_may_be_open():
    """coremltools' flexible_shape_utils changes the input alone."""
    layers = [("activation", "a", ["x"], ["y"], setting(linear__alpha=2.0))]
    model = network(layers, {"x": (3, 8, 7)}, {"y": (3, 8, 7)}, 1)
    array = model.description.input[0].type.multiArrayType
    for low, high in ((3, 3), (5, 20), (7, 7)):
        limits = array.shapeRange.sizeRanges.add()
        limits.lowerBound, limits.upperBound = low, high
    x = np.random.default_rng(0).standard_normal((3, 11, 7)).astype(np.float32)
    loaded, found = answers(model, {"x": x})
    assert str(loaded.outputs["y"]) == "float32[3, x_1, 7]"
    assert np.array_equal(found["y"], 2.0 * x)
    sized, _ = answers(model, {"x": x[:, :9]}, shapes={"x": (3, 9, 7)})
    assert sized.outputs["y"].shape == (3, 9, 7)
    model.description.output[0].type.multiArrayType.shape[0] = 4
    with pytest.raises(ModelError, match=r"declared as \(4, 8, 7\)"):
        answers(model, {"x": x})
