"""Each operator set's own meaning: defaults, attributes that became inputs, old broadcasting."""

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import model, one_node

from verax.base.errors import ModelError, UnsupportedError
from verax.frontends.onnx import load_onnx
from verax.frontends.onnx.table import TABLE
from verax.ir.operator import REGISTRY
from verax.reference.evaluate import evaluate

X = np.random.default_rng(7).standard_normal((2, 3, 4)).astype(np.float32)
IMAGE = np.random.default_rng(8).standard_normal((2, 3, 5, 4)).astype(np.float32)


def run(kind, arrays, opset, outputs=1, **attributes):
    graph = load_onnx(one_node(kind, arrays, opset, outputs, **attributes)).graph
    found = evaluate(graph, {f"x{i}": a for i, a in enumerate(arrays) if f"x{i}" in graph.inputs})
    return tuple(found.values()) if outputs > 1 else found["y0"]


def same(found, wanted):
    wide = np.asarray(wanted, np.float64)
    scale = np.finfo(np.float64).eps * 16 * max(1.0, float(np.abs(wide).max()))
    return found.shape == wide.shape and bool((np.abs(found - wide) <= scale).all())


def softmax(x, axis):
    e = np.exp(x.astype(np.float64) - x.max())
    return e / e.sum(axis=axis, keepdims=True)


def test_softmax_flattened_before_opset_13():
    flat = softmax(X.reshape(2, 12), 1).reshape(X.shape)
    assert same(run("Softmax", [X], 12), flat)
    assert same(run("Softmax", [X], 13), softmax(X, 2))
    assert same(run("Softmax", [X], 11, axis=2), softmax(X.reshape(6, 4), 1).reshape(X.shape))


def test_clip_bounds_became_inputs_in_opset_11():
    assert same(run("Clip", [X], 10, min=-0.5), np.maximum(X, -0.5))
    assert same(run("Clip", [X], 6, min=-0.5, max=0.25), X.clip(-0.5, 0.25))
    low, high = np.float32(-0.5), np.float32(0.25)
    assert same(run("Clip", [X, low, high], 13), X.clip(-0.5, 0.25))
    assert same(run("Clip", [X, None, high], 13), np.minimum(X, 0.25))


def test_slice_bounds_became_inputs_in_opset_10():
    assert same(run("Slice", [X], 9, starts=[1, -2], ends=[9, 4], axes=[1, 2]), X[:, 1:, -2:])
    assert same(run("Slice", [X], 9, starts=[1], ends=[2]), X[1:])
    bounds = [np.array(v) for v in ([2, 3], [0, -5], [1, 2], [-1, -2])]
    assert same(run("Slice", [X, *bounds], 13), X[:, 2:0:-1, 3::-2])


def test_axes_became_inputs():
    assert same(run("Squeeze", [X[:, :1]], 11, axes=[1]), X[:, 0])
    assert same(run("Squeeze", [X[:, :1], np.array([1])], 13), X[:, 0])
    assert same(run("Unsqueeze", [X], 12, axes=[0, -1]), X[None, ..., None])
    assert same(run("Unsqueeze", [X, np.array([0, -1])], 13), X[None, ..., None])
    wide = X.astype(np.float64)
    for opset, kind, want in ((11, "ReduceSum", np.sum), (17, "ReduceMax", np.max)):
        assert same(run(kind, [X], opset, axes=[1], keepdims=0), want(wide, axis=1))
    assert same(run("ReduceSum", [X, np.array([1])], 13), wide.sum(axis=1, keepdims=True))
    assert same(run("ReduceMax", [X, np.array([-1])], 18, keepdims=0), X.max(axis=2))


def test_pad_split_and_topk_attributes_became_inputs():
    padded = np.pad(X, ((0, 0), (1, 0), (0, 2)), constant_values=0.5)
    assert same(run("Pad", [X], 10, pads=[0, 1, 0, 0, 0, 2], value=0.5), padded)
    ends = np.array([0, 1, 0, 0, 0, 2])
    assert same(run("Pad", [X, ends, np.float32(0.5)], 13), padded)
    parts = run("Split", [X], 11, 2, axis=2, split=[1, 3])
    assert same(parts[0], X[..., :1]) and same(parts[1], X[..., 1:])
    parts = run("Split", [X], 18, 2, axis=2, num_outputs=2)
    assert same(parts[0], X[..., :2]) and same(parts[1], X[..., 2:])
    for opset, extra, attributes in ((9, [], {"k": 2}), (11, [np.array([2])], {})):
        values, places = run("TopK", [X, *extra], opset, 2, axis=1, **attributes)
        assert same(values, -np.sort(-X, axis=1)[:, :2])
        assert np.array_equal(places, np.argsort(-X, axis=1, kind="stable")[:, :2])


def test_group_normalization_scaled_groups_before_opset_21_and_channels_since():
    x = np.random.default_rng(9).standard_normal((2, 4, 5)).astype(np.float32)
    groups, channels = np.float32([2, -1]), np.float32([2, 2, -1, -1])
    old = run("GroupNormalization", [x, groups, groups], 18, num_groups=2)
    new = run("GroupNormalization", [x, channels, channels], 21, num_groups=2)
    assert same(old, new)
    with pytest.raises(ModelError, match="scale"):
        run("GroupNormalization", [x, channels, channels], 18, num_groups=2)


def test_upsampling_of_three_operator_sets():
    want = IMAGE.repeat(2, axis=2)
    scales = np.float32([1, 1, 2, 1])
    assert same(run("Upsample", [IMAGE], 8, scales=scales.tolist(), mode="nearest"), want)
    proto = one_node("Upsample", [IMAGE, scales], 9, mode="nearest")
    proto.graph.input.pop()
    proto.graph.initializer.append(onnx.numpy_helper.from_array(scales, "x1"))
    assert same(evaluate(load_onnx(proto).graph, {"x0": IMAGE})["y0"], want)


def test_auto_pad_rules():
    w = np.random.default_rng(10).standard_normal((2, 3, 3, 2)).astype(np.float32)
    pads = {
        "NOTSET": ((0, 0), (0, 0)),
        "VALID": ((0, 0), (0, 0)),
        "SAME_UPPER": ((1, 1), (0, 1)),
        "SAME_LOWER": ((1, 1), (1, 0)),
    }
    for rule, ((top, bottom), (left, right)) in pads.items():
        want = run("Conv", [IMAGE, w], 17, pads=[top, left, bottom, right])
        assert same(run("Conv", [IMAGE, w], 17, auto_pad=rule), want)
    with pytest.raises(UnsupportedError, match="auto_pad"):
        run("Conv", [IMAGE, w], 17, auto_pad="SAME_UPPER", pads=[1, 1, 1, 1])
    with pytest.raises(UnsupportedError, match="no such rule"):
        run("Conv", [IMAGE, w], 17, auto_pad="SAME")


def test_dropout_is_a_copy_and_training_is_refused():
    assert same(run("Dropout", [X], 7, ratio=0.9), X)
    assert same(run("Dropout", [X, np.float32(0.9)], 12), X)
    value, mask = run("Dropout", [X], 13, 2)
    assert same(value, X) and mask.dtype == bool and mask.all()
    nodes = [helper.make_node("Dropout", ["x", "", "on"], ["y"])]
    proto = model(nodes, {"x": [2, 3]}, {"y": [2, 3]}, {"on": np.array(True)})
    with pytest.raises(UnsupportedError, match="training_mode is on"):
        load_onnx(proto)


def test_batch_normalization_in_training_or_per_element_is_refused():
    c = [np.ones(3, np.float32)] * 4
    for opset, attributes, outputs in ((7, {"spatial": 0}, 1), (9, {}, 5), (6, {}, 1)):
        with pytest.raises(UnsupportedError):
            run("BatchNormalization", [IMAGE, *c], opset, outputs, **attributes)
    want = (
        IMAGE / np.sqrt(1 + np.float64(np.float32(1e-5)))
        + 1
        - 1 / np.sqrt(1 + np.float64(np.float32(1e-5)))
    )
    assert same(run("BatchNormalization", [IMAGE, *c], 9, momentum=0.5), want)
    assert same(run("BatchNormalization", [IMAGE, *c], 6, is_test=1), want)


def test_opset_6_broadcasts_the_second_input_along_axis():
    b, x = np.float32([10, 20, 30]), X.astype(np.float64)
    assert same(run("Add", [X, b], 6, broadcast=1, axis=1), x + b[:, None])
    assert same(run("Mul", [X, X[0, 0]], 6, broadcast=1), x * x[0, 0])
    slope = np.float32([0.5, 2, -1])
    assert same(run("PRelu", [X, slope], 6), np.where(x < 0, x * slope[:, None], x))


@pytest.mark.parametrize("name", ["value_float", "value_int", "value_floats", "value_ints"])
def test_constants_of_every_kind(name):
    value = {"float": 2.5, "int": 3, "floats": [1.5, -2.0], "ints": [4, 5, 6]}[name[6:]]
    nodes = [helper.make_node("Constant", [], ["y"], **{name: value})]
    proto = model(nodes, {}, {})
    proto.graph.output.append(onnx.ValueInfoProto(name="y"))
    found = load_onnx(proto).graph.constants["y"]
    assert found.dtype == (np.float32 if "float" in name else np.int64)
    assert found.tolist() == value


def test_every_row_has_its_operator_and_every_operator_its_row():
    rows = {name for domain, name in TABLE if domain == ""}
    rows.remove("SimplifiedLayerNormalization")  # ONNX Runtime's own, in the domain of ONNX
    folded = {"Constant", "CastLike", "Scatter", "Upsample"}
    folded |= {
        "QLinearConv",
        "QLinearMatMul",
        "MatMulInteger",
        "Col2Im",
        "DeformConv",
        *("DFT", "STFT", "MelWeightMatrix", "TensorScatter", "TfIdfVectorizer", "Det"),
    }  # written out
    assert rows - set(REGISTRY) == folded
    # ONNX has them, and they are read elsewhere: by `frontends.common.control`, or in parts.
    without_row = {"If", "Loop", "Attention"}
    not_in_onnx = {name for name in REGISTRY if not onnx.defs.has(name)}
    assert set(REGISTRY) - rows == not_in_onnx | without_row
    unknown = [name for name in rows if not onnx.defs.has(name)]
    assert not unknown


def recurrent_inputs(gates, seed):
    """x, w, r of one direction: 4 steps, 3 sequences, 2 features, 5 units."""
    random = np.random.default_rng(seed)
    shapes = (4, 3, 2), (1, gates * 5, 2), (1, gates * 5, 5)
    return [random.standard_normal(shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize(("kind", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_recurrent_layers_mean_the_same_in_every_operator_set(kind, gates):
    arrays = recurrent_inputs(gates, 41)
    oldest = run(kind, arrays, 7, 2, hidden_size=5, direction="reverse")
    newest = run(kind, arrays, 22, 2, hidden_size=5, direction="reverse")
    assert all(same(a, b) for a, b in zip(oldest, newest))
    turned = [arrays[0].swapaxes(0, 1), *arrays[1:]]
    y, last = run(kind, turned, 14, 2, hidden_size=5, direction="reverse", layout=1)
    assert same(y, newest[0].transpose(2, 0, 1, 3)) and same(last, newest[1].swapaxes(0, 1))
    early = load_onnx(one_node(kind, arrays, 6, 2, hidden_size=5, output_sequence=1))
    reasons = {e.attribute: e.reason for e in early.ledger.entries}
    assert reasons["output_sequence"] and not reasons["hidden_size"]


def test_numbers_of_activations_belong_to_those_that_take_one():
    names = ["LeakyRelu", "Tanh", "HardSigmoid"]
    arrays = recurrent_inputs(4, 42)
    graph = load_onnx(
        one_node("LSTM", arrays, 14, 3, activations=names, activation_alpha=[0.25, 0.5])
    ).graph
    assert graph.nodes[0].op.activation_alpha == (0.25, 0.0, 0.5)  # type: ignore[attr-defined]
    assert [c.beta for c in graph.nodes[0].op.curves()[0][2:]] == [0.5]  # type: ignore[attr-defined]
    short = one_node("LSTM", arrays, 14, 3, activations=names, activation_alpha=[0.25])
    last = load_onnx(short).graph.nodes[0].op.curves()[0][2]  # type: ignore[attr-defined]
    assert last.alpha == np.float32(0.2)


@pytest.mark.parametrize(
    ("attributes", "why"),
    [
        ({"direction": "sideways"}, "direction = 'sideways'"),
        ({"activations": ["Cosine"]}, "unknown activation 'Cosine'"),
        ({"activations": ["Gelu"]}, "unknown activation 'Gelu'"),
        ({"activations": ["Tanh", "Tanh"]}, "2 activations are given; forward has 1"),
        ({"activations": ["Tanh"], "activation_alpha": [0.5]}, "0 of the activations take one"),
        ({"activations": ["ScaledTanh"], "activation_alpha": [0.5]}, "ScaledTanh without its beta"),
        ({"clip": -1.0}, "clip is -1"),
        ({"hidden_size": 4}, "not 1 gates of hidden_size"),
        ({"linear_before_reset": 1}, "no rule of the importer reads it"),
    ],
)
def test_what_a_recurrent_layer_cannot_mean_is_refused(attributes, why):
    proto = one_node("RNN", recurrent_inputs(1, 43), 14, 2, **attributes)
    with pytest.raises((ModelError, UnsupportedError), match=why):
        load_onnx(proto)
