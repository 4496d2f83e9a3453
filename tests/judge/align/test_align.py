"""Two networks against each other: the same however they are written, and where they part."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from tests.judge.align.align_pairs import channels_last, net, weights

import verax.api
from verax.base.errors import InputError, UnsupportedError
from verax.ir.graph import Builder, Graph
from verax.ir.operator import Operator
from verax.ir.types import TensorType
from verax.judge.align import networks
from verax.judge.align.networks import align
from verax.judge.align.verdict import OperatorJudgement
from verax.ops.pointwise.activation import LeakyRelu, Relu
from verax.ops.pointwise.arithmetic import Mul, Neg, Sqrt
from verax.ops.pointwise.transcendental import Exp, Log
from verax.ops.sums.softmax import Softmax
from verax.ops.windows.convolution import Conv
from verax.records.alignment import AlignedNode, Alignment, Divergence, Relation

MODELS = Path(__file__).parents[3].parent / "shared" / "models"


def changed(name: str, index: tuple[int, ...], factor: float) -> dict[str, np.ndarray]:
    """The weights with one element off."""
    arrays = weights()
    arrays[name] = arrays[name].copy()
    arrays[name][index] *= np.float32(factor)
    return arrays


@pytest.mark.parametrize(
    ("second", "exact"),
    [
        (net(prefix="other/"), True),
        (net(explicit_pad=True, prefix="q"), True),
        (net(folded=True, prefix="f"), False),
        (channels_last(), True),
        (channels_last(bgr=True, swapped=True, scaled=True), True),
    ],
    ids=["other names", "explicit pad", "BatchNorm folded", "NHWC", "NHWC, BGR, 0..255, boxes"],
)
def test_one_function_is_the_same_however_it_is_written(second: Graph, exact: bool) -> None:
    found = align(net(), second)
    assert found.relation is Relation.same and found.exit_code == 0
    assert all((o.statistic == 0) is exact for o in found.outputs)
    assert len(found.outputs) == 2 and all(o.first and o.second for o in found.outputs)
    assert align(second, net()).relation is Relation.same


def test_what_was_done_to_inputs_and_outputs_is_told() -> None:
    found = align(net(), channels_last(bgr=True, swapped=True, scaled=True))
    (image,) = found.inputs
    assert (image.axes, image.axis, image.channels) == ((0, 2, 3, 1), 3, (2, 1, 0))
    np.testing.assert_allclose(image.scale, 255)
    words = "NCHW to NHWC, then channels reversed (RGB against BGR), then 255 * x"
    assert image.words == words
    boxes = next(o for o in found.outputs if o.first == "boxes")
    assert (boxes.second, boxes.channels) == ("out_b", (1, 0, 3, 2))
    assert Alignment.from_json(found.to_json()) == found


@pytest.mark.parametrize(
    "second",
    [net(pads=(1, 1, 0, 0), prefix="q"), channels_last(bgr=True)],
    ids=["other names", "NHWC, BGR"],
)
def test_a_wrong_pad_is_named_with_both_sides_attributes(second: Graph) -> None:
    first = net() if "qx" in second.inputs else net(pads=(1, 1, 0, 0))
    found = align(first, second)
    assert found.relation is Relation.different and found.exit_code == 1
    (place,) = found.divergences
    assert (place.first[0].node, place.proved, place.bridged) == ("conv1", True, True)
    (pads,) = place.attributes
    assert {pads.first, pads.second} == {"((0, 1), (0, 1))", "((1, 0), (1, 0))"}
    assert "pads" in found.reasons[0] and "only place" in found.reasons[1]


@pytest.mark.parametrize(
    ("name", "index"), [("w1", (2, 1, 1, 0)), ("w2", (2, 3, 1, 0)), ("w4", (3, 77))]
)
@pytest.mark.parametrize("bgr", [False, True])
def test_one_changed_weight_is_found_and_shown(
    name: str, index: tuple[int, ...], bgr: bool
) -> None:
    # The order of a flattened value is only known by its numbers: a small change hides there.
    spoilt = changed(name, index, 1.5 if bgr and name == "w4" else 1.01)
    second = channels_last(spoilt, bgr=True) if bgr else net(spoilt, prefix="q")
    found = align(net(), second)
    assert found.relation is Relation.different
    (place,) = found.divergences
    (difference,) = place.weights
    assert (difference.differing, difference.index) == (1, index)
    assert difference.first_value == float(weights()[name][index])
    assert difference.second_value == float(spoilt[name][index])


def test_a_changed_scale_is_seen_through_a_folded_batch_norm() -> None:
    found = align(net(), net(changed("beta", (2,), 1.01), folded=True, prefix="q"))
    (place,) = found.divergences
    assert [layer.node for layer in place.first] == ["conv1", "bn"]
    assert [layer.node for layer in place.second] == ["qconv1"]
    assert place.bridged and "channel 2 of 8" in place.where


def test_a_changed_weight_is_shown_through_a_folded_batch_norm() -> None:
    index = (2, 1, 1, 0)
    found = align(net(), net(changed("w1", index, 1.2), folded=True, prefix="q"))
    (place,) = found.divergences
    (difference,) = place.weights
    assert (difference.differing, difference.index) == (1, index)
    assert difference.first == "w1 * gamma"
    np.testing.assert_allclose(difference.second_value / difference.first_value, 1.2, rtol=1e-6)


@pytest.mark.parametrize("swap", [False, True])
def test_an_epsilon_that_was_folded_away_is_recovered(swap: bool) -> None:
    pair = net(), net(folded=True, epsilon=1.001e-3, explicit_pad=True, prefix="q")
    found = align(*(pair[::-1] if swap else pair))
    (place,) = found.divergences
    (difference,) = place.attributes
    assert place.proved and difference.attribute == "epsilon"
    texts = [difference.first, difference.second]
    assert (texts[::-1] if swap else texts) == ["1e-05", "0.001001"]


def test_a_cause_that_holds_everywhere_is_said_once() -> None:
    def leaky(alpha: float, prefix: str) -> Graph:
        b = Builder("leaky")
        h = b.input(prefix + "x", TensorType.parse("float32[n, 7]"))
        for i in range(12):
            factor = np.random.default_rng(i).uniform(-2, 2, 7).astype(np.float32)
            h = b.add(Mul(), [h, b.constant(factor)], [f"{prefix}m{i}"])
            h = b.add(LeakyRelu(alpha=alpha), [h], [f"{prefix}l{i}"])
        return b.graph([h])

    found = align(leaky(0.1, "a"), leaky(0.2, "b"))
    (place,) = found.divergences
    assert place.proved and place.first[0].node == "al0"
    assert "with the same alpha in every LeakyRelu" in found.reasons[1]


def test_an_explicit_pad_at_the_wrong_end_is_shown_as_a_chain() -> None:
    found = align(net(), net(pads=(1, 1, 0, 0), explicit_pad=True, prefix="q"))
    (place,) = found.divergences
    assert [layer.operator for layer in place.second] == ["Pad", "Conv"]
    assert "Pad() with input 1 [0, 0, 1, 1, 0, 0, 0, 0]" in place.reason


def test_another_wire_is_named() -> None:
    (place,) = align(net(), net(relu_first=True, prefix="q")).divergences
    assert "reads 'r1'" in place.reason and "there it reads 'qn1'" in place.reason


def test_two_places_are_both_found() -> None:
    spoilt = changed("w3", (1, 50), 1.5)
    found = align(net(), net(spoilt, pads=(1, 1, 0, 0), prefix="q"))
    assert [p.first[0].node for p in found.divergences] == ["conv1", "dense"]


def test_strangers_are_different_and_the_search_ends() -> None:
    found = align(net(), net(weights(3), prefix="q"))
    assert found.relation is Relation.different
    assert found.divergences[0].first[0].node == "conv1"


def scaled(factor: float, twice: bool = False) -> Graph:
    """relu(factor x), on a vector of symbolic length."""
    b = Builder("scaled")
    x = b.input("x", TensorType.parse("float32[n, 7]"))
    y = b.add(Mul(), [x, b.constant(np.float32(factor))], ["a"], "scale")
    y = b.add(Relu(), [y], ["y"], "relu")
    if twice:
        y = b.add(Relu(), [y], ["z"], "again")
    return b.graph([y])


def of_negatives(*kinds: Operator) -> Graph:
    """Operators on numbers that are all negative, whatever comes in."""
    b = Builder("negatives")
    h = b.add(Exp(), [b.input("x", TensorType.parse("float32[n, 7]"))])
    h = b.add(Neg(), [h])
    for kind in kinds:
        h = b.add(kind, [h])
    return b.graph([h])


def test_a_dead_output_decides_nothing() -> None:
    """NaN everywhere on both sides, by operators that are not the same elsewhere."""
    found = align(of_negatives(Sqrt()), of_negatives(Log()))
    assert found.relation is Relation.undecided and found.exit_code == 3


def test_a_dead_output_of_the_same_operators_is_the_same() -> None:
    assert align(scaled(0.0), scaled(0.0, twice=True)).relation is Relation.same


def test_what_is_written_alike_is_the_same_without_looking_at_numbers() -> None:
    found = align(scaled(0.0), scaled(0.0))
    assert found.relation is Relation.same and "written alike" in found.notes[0]


def test_attributes_without_effect_are_no_difference_and_not_the_same() -> None:
    def after_relu(alpha: float) -> Graph:
        b = Builder("after relu")
        h = b.add(Relu(), [b.input("x", TensorType.parse("float32[n, 7]"))], ["h"])
        return b.graph([b.add(LeakyRelu(alpha=alpha), [h], ["y"], "leaky")])

    found = align(after_relu(0.1), after_relu(0.2))
    assert found.relation is Relation.no_difference and found.exit_code == 3
    assert "LeakyRelu: alpha is 0.1 in the first and 0.2" in found.divergences[0].reason


def test_pixels_in_another_order_are_a_difference() -> None:
    """A 1x1 convolution padded at the other end gives the same numbers elsewhere."""

    def padded(pads: tuple[tuple[int, int], ...]) -> Graph:
        b = Builder("padded")
        x = b.input("x", TensorType.parse("float32[n, 3, 6, 5]"))
        w = b.constant(weights()["w1"][:4, :, :1, :1].copy())
        return b.graph([b.add(Conv(pads=pads), [x, w], ["y"], "conv")])

    found = align(padded(((0, 2), (0, 1))), padded(((2, 0), (0, 1))))
    assert found.relation is Relation.different
    assert found.divergences[0].proved and found.divergences[0].attributes[0].attribute == "pads"


def test_an_operation_that_changes_nothing_is_no_difference() -> None:
    assert align(scaled(2.0), scaled(2.0, twice=True)).relation is Relation.same


def test_given_inputs_are_used_and_others_confirm() -> None:
    x = {"x": np.full((3, 7), 0.5, np.float32)}
    assert align(scaled(2.0), scaled(2.0), {"x": x["x"] * np.arange(1, 8, dtype="f4")}).inputs
    # Positive numbers alone cannot tell relu(x) from |x|-like rivals: fresh ones do.
    b = Builder("plain")
    value = b.add(
        Mul(), [b.input("x", TensorType.parse("float32[n, 7]")), b.constant(np.float32(2.0))], ["y"]
    )
    given = {"x": np.linspace(0.5, 2, 21, dtype=np.float32).reshape(3, 7)}
    found = align(scaled(2.0), b.graph([value]), given)
    assert found.relation is Relation.different
    assert "agree on one input and differ on another" in found.outputs[0].reason


def test_networks_that_take_other_inputs_are_refused() -> None:
    b = Builder("other")
    x = b.input("x", TensorType.parse("float32[n, 5]"))
    other = b.graph([b.add(Relu(), [x], ["y"])])
    with pytest.raises(InputError, match="no layout"):
        align(scaled(1.0), other)
    two = Builder("two")
    names = [two.input(v, TensorType.parse("float32[n, 5]")) for v in ("x", "y")]
    with pytest.raises(InputError, match="takes 1 inputs, the other 2"):
        align(other, two.graph([two.add(Mul(), names, ["z"])]))


def test_a_quantised_network_is_not_taken_for_a_wrong_one() -> None:
    b = Builder("codes")
    codes = b.graph([b.add(Relu(), [b.input("x", TensorType.parse("int8[n, 7]"))], ["y"])])
    for pair in ((codes, scaled(1.0)), (scaled(1.0), codes)):
        with pytest.raises(InputError, match="codes, not the same numbers"):
            align(*pair)


def test_weights_in_half_precision_are_the_same_function_and_are_named() -> None:
    halved = {k: v.astype(np.float16).astype(np.float32) for k, v in weights().items()}
    found = align(net(), net(halved, prefix="q"), names=("a", "b"))
    assert found.relation is Relation.same
    assert any("b were rounded to float16" in r for r in found.reasons)


def test_the_record_says_how_the_inputs_were_made() -> None:
    found = align(net(), net(), seed=3)
    assert "seed 3" in found.drawn["x"] and found.seed == 3
    assert dataclasses.replace(found, seed=4) != found


def real(*names: str) -> list[Graph]:
    """Two files of the shared folder; skips while a format cannot be read."""
    graphs = []
    for name in names:
        path = MODELS / name
        if not path.exists():
            pytest.skip(f"{name} is not in the shared folder")
        try:
            graphs.append(verax.api.graph_of(path))
        except UnsupportedError as error:
            pytest.skip(f"{path.suffix}: {error.cause}")
    return graphs


ULTRAFACE = "ultraface_slim/version-slim-320_without_postprocessing"


@pytest.mark.slow
def test_ultraface_was_converted_with_another_epsilon() -> None:
    found = align(*real(f"{ULTRAFACE}.onnx", f"{ULTRAFACE}.tflite"))
    assert found.relation is Relation.different
    (place,) = found.divergences
    (epsilon,) = place.attributes
    assert (epsilon.first, epsilon.second) == ("1e-05", "1.001e-05")
    assert "with the same epsilon in every BatchNormalization" in found.reasons[1]


def test_one_training_in_two_frameworks_but_for_a_softmax_at_the_end() -> None:
    """TensorFlow: NHWC, BGR, boxes in the order [1, 0, 3, 2]; PyTorch: NCHW, RGB, Softmax."""
    found = align(*real("mtcnn_rnet/rnet_cut.pb", "mtcnn_rnet/rnet.pt2"))
    (place,) = found.divergences
    assert not place.first and [layer.operator for layer in place.second] == ["Softmax"]
    (image,) = found.inputs
    assert (image.axes, image.channels) == ((0, 3, 1, 2), (2, 1, 0))
    boxes = next(o for o in found.outputs if not o.reason)
    assert boxes.channels == (1, 0, 3, 2)


def test_a_network_that_goes_on_says_with_what() -> None:
    found = align(scaled(2.0), scaled(2.0, twice=True))
    assert found.relation is Relation.same
    b = Builder("goes on")
    x = b.input("x", TensorType.parse("float32[n, 7]"))
    h = b.add(Mul(), [x, b.constant(np.float32(2.0))], ["a"], "scale")
    longer = b.graph([b.add(Softmax(axis=1), [b.add(Relu(), [h], ["y"])], ["p"], "softmax")])
    found = align(scaled(2.0), longer)
    assert found.relation is Relation.different
    assert "as far as both go they agree; only the second goes on, with Softmax" in found.reasons[0]
    assert "the second has it inside, as 'y'" in found.outputs[0].reason


def test_coreml_padding_modes_are_told_apart() -> None:
    folder = "coreml_same/deconv"
    found = align(*real(f"{folder}_TOP_LEFT_HEAVY.mlmodel", f"{folder}_BOTTOM_RIGHT_HEAVY.mlmodel"))
    (place,) = found.divergences
    (pads,) = place.attributes
    assert place.proved and (pads.first, pads.second) == ("((1, 0), (1, 0))", "((0, 1), (0, 1))")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("pose_cpm/model.pb", "pose_cpm/model.tflite"),
        ("pose_cpm/model.mlmodel", "pose_cpm/model.tflite"),
        ("fastestdet/FastestDet.onnx", "fastestdet/fastestdet.pt2"),
        ("blazeface_back/face_detection_back.tflite", "blazeface_back/blazefaceback.pt2"),
        ("resnet8/pretrainedResnet.h5", "resnet8/pretrainedResnet.tflite"),
    ],
)
def test_real_pairs_of_one_network_are_the_same(first: str, second: str) -> None:
    found = align(*real(first, second))
    assert found.relation is Relation.same, found.reasons


@pytest.mark.parametrize("blind", [1, 2])
def test_what_one_way_round_proves_is_proved(blind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values that are equal on these inputs are paired as they come, so one way may prove nothing;
    blind: how many ways prove nothing here."""
    judge, calls = networks.judge_operators, []

    def judged(*arguments: object, **options: object) -> OperatorJudgement:
        found = judge(*arguments, **options)  # type: ignore[arg-type]
        calls.append(found)
        if len(calls) > blind:
            return found
        layer = AlignedNode("conv", "Conv", {}, "y", "float32[2]")
        return OperatorJudgement(
            found.evidence, hidden=(Divergence((layer,), (layer,), "not paired"),)
        )

    monkeypatch.setattr(networks, "judge_operators", judged)
    found = align(net(), channels_last())
    assert len(calls) == 2
    assert found.relation is (Relation.same if blind == 1 else Relation.no_difference)
    assert ("not paired" in str(found)) == (blind == 2)
    assert not found.divergences or blind == 2
