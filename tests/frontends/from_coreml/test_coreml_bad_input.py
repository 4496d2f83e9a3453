"""Damaged and hostile CoreML files give a model, or an error that says what is wrong."""

import numpy as np
import pytest
from coreml_detector import detector
from coreml_models import network, setting, weights
from test_coreml_layers import CASES as LAYERS
from test_coreml_operations import CASES as OPERATIONS

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


def every_kind():
    """Files of a detector, of every layer and of every operation."""
    models = [detector(), detector(rows=9, overridable=True)]
    models += [case.model() for case in (*LAYERS, *OPERATIONS)]
    return [model.SerializeToString() for model in models]


def fuzz(seed, rounds, files):
    rng = np.random.default_rng(seed)
    outcomes = {"model": 0, "error": 0}
    for i in range(rounds):
        data = bytearray(files[i % len(files)])
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
    assert min(fuzz(0, 600, [small().SerializeToString()]).values()) > 20


@pytest.mark.slow
def test_much_random_damage_gives_a_model_or_an_error():
    assert min(fuzz(1, 10_000, [small().SerializeToString()]).values()) > 500


def test_random_damage_to_any_kind_of_file_gives_a_model_or_an_error():
    files = every_kind()
    assert min(fuzz(2, len(files), files).values()) > 20


@pytest.mark.slow
def test_much_random_damage_to_any_kind_of_file_gives_a_model_or_an_error():
    files = every_kind()
    assert min(fuzz(3, 50 * len(files), files).values()) > 1000


def field(number, content):
    """A length-delimited field of a message, as bytes."""
    head = bytearray()
    for value in (number << 3 | 2, len(content)):
        while value > 127:
            head.append(value & 127 | 128)
            value >>= 7
        head.append(value)
    return bytes(head) + content


@pytest.mark.parametrize("depth", [20, 60, 3000])
def test_messages_nested_without_end_are_refused(depth):
    """Pipelines in pipelines: field 202 of Model, field 1 of Pipeline."""
    data = small().SerializeToString()
    for _ in range(depth):
        description = field(2, b"")
        data = b"\x08\x03" + description + field(202, field(1, data))
    with pytest.raises(ModelError, match=r"nested|not a CoreML model"):
        load_coreml(data)


def test_networks_in_networks_are_refused_by_name():
    model = small()
    body = model.neuralNetwork
    for _ in range(20):
        layer = body.layers.add()
        layer.name = "again"
        layer.input.append("x")
        layer.output.append("z")
        body = layer.loop.bodyNetwork
    with pytest.raises(UnsupportedError, match="loop"):
        load(model)
