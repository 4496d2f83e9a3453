"""Damaged and hostile CoreML files give a model, or an error that says what is wrong."""

import numpy as np
import pytest
from coreml_models import network, setting, weights

from verax.base.errors import ModelError, UnsupportedError, UsageError, VeraxError
from verax.frontends.coreml import load_coreml


def small():
    base = {"outputChannels": 4, "kernelChannels": 3, "weights": weights(4, 3, 3, 3)}
    layers = [
        ("convolution", "c", ["x"], ["c"], setting(**base, valid__paddingAmounts=((1, 1), (0, 2)))),
        ("activation", "a", ["c"], ["a"], setting(leakyReLU__alpha=0.5)),
        ("pooling", "p", ["a"], ["y"], setting(type=1, kernelSize=(2, 2), stride=(2, 2))),
    ]
    return network(layers, {"x": (2, 3, 6, 5)}, {"y": ()})


def load(model):
    return load_coreml(model.SerializeToString())


def test_all_unknown_layers_are_listed_at_once():
    model = small()
    for i, kind in enumerate(("loop", "custom", "custom")):
        layer = model.neuralNetwork.layers.add()
        layer.name = f"u{i}"
        layer.input.append("x")
        layer.output.append(f"u{i}")
        getattr(layer, kind).SetInParent()
    with pytest.raises(UnsupportedError, match=r"custom \(2\), loop \(1\)"):
        load(model)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda n: n.layers[0].input.__setitem__(0, "y"), "before anything defines it"),
        (lambda n: n.layers[1].output.__setitem__(0, "c"), "defined twice"),
        (lambda n: n.layers[1].output.__setitem__(0, "x"), "defined twice"),
        (lambda n: n.layers.pop(), "nothing computes"),
        (lambda n: n.layers[0].ClearField("layer"), "no kind"),
        (lambda n: n.layers[0].convolution.weights.floatValue.pop(), "not the"),
        (lambda n: n.layers[0].convolution.ClearField("weights"), "no weights"),
        (lambda n: n.layers[0].convolution.kernelSize.extend((3, 3, 3)), "two sizes"),
        (lambda n: setattr(n.layers[0].convolution, "outputChannels", 2**40), "not the"),
        (lambda n: setattr(n.layers[0].convolution.weights, "rawValue", b"1"), "of "),
        (lambda n: setattr(n.layers[2].pooling, "type", 77), "unknown value 77"),
        (lambda n: n.layers[2].pooling.kernelSize.__setitem__(0, 2**63), "absurdly large"),
    ],
)
def test_a_network_that_contradicts_itself_is_refused(change, said):
    model = small()
    change(model.neuralNetwork)
    with pytest.raises(ModelError, match=said):
        load(model)


@pytest.mark.parametrize("data", [b"", b"{}", b"\x08", bytes(100), b"\xff" * 64, b"PK\x03\x04" * 9])
def test_what_is_no_model_is_refused(data):
    with pytest.raises(ModelError, match="not a CoreML model"):
        load_coreml(data)


def test_other_kinds_of_models_are_refused_by_name():
    model = small()
    model.glmRegressor.SetInParent()
    with pytest.raises(UnsupportedError, match="glmRegressor"):
        load(model)


def test_a_recorded_shape_is_held_against_the_inferred_one():
    model = small()
    tensor = model.neuralNetwork.layers[0].outputTensor.add()
    tensor.rank = 4
    tensor.dimValue.extend((2, 4, -1, 5))
    assert load(model).graph.types["c"].shape == (2, 4, 6, 5)
    tensor.dimValue[3] = 4
    with pytest.raises(ModelError, match="records 'c'"):
        load(model)


def test_a_field_of_a_newer_format_is_refused():
    model = small()
    layer = model.neuralNetwork.layers[2].pooling
    layer.MergeFromString(b"\xf8\x7f\x01")
    with pytest.raises(ModelError, match="unknown fields"):
        load(model)


def test_gigantic_shapes_are_refused_before_anything_is_allocated():
    model = small()
    model.description.input[0].type.multiArrayType.shape[2] = 2**50
    with pytest.raises(ModelError, match="dimensions"):
        load(model)


def test_a_missing_file_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError):
        load_coreml(tmp_path / "gone.mlmodel")


def fuzz(seed, rounds):
    rng = np.random.default_rng(seed)
    whole = small().SerializeToString()
    outcomes = {"model": 0, "error": 0}
    for _ in range(rounds):
        data = bytearray(whole)
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(len(data)))
            if rng.random() < 0.7:
                data[at] = rng.choice([0, 1, 2, 0x7F, 0x80, 0xFF, int(rng.integers(256))])
            else:
                del data[at : at + int(rng.integers(1, 9))]
        try:
            load_coreml(bytes(data))
            outcomes["model"] += 1
        except VeraxError:
            outcomes["error"] += 1
    return outcomes


def test_random_damage_gives_a_model_or_an_error():
    assert min(fuzz(0, 600).values()) > 20


@pytest.mark.slow
def test_much_random_damage_gives_a_model_or_an_error():
    assert min(fuzz(1, 10_000).values()) > 500
