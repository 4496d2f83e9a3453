"""Pipelines of CoreML models: detectors with box suppression, feature engineering, classifiers."""

import numpy as np
import pytest
from coreml_detector import (
    COUNT,
    detector,
    image,
    pick_top,
    raw_boxes,
    suppression,
)
from coreml_models import network, setting, weights
from coreml_operations import Operation, program

import verax
from verax.base.errors import ModelError, UnsupportedError, UsageError
from verax.export.onnx import to_bytes
from verax.frontends.coreml import load_coreml
from verax.frontends.coreml.messages import model_messages
from verax.reference.evaluate import evaluate

TIGHT = 2**12 * np.finfo(np.float64).eps


def answers(model, inputs, **options):
    loaded = load_coreml(model.SerializeToString(), **options)
    return loaded, evaluate(loaded.graph, inputs)


OPTIONS = [
    {},
    {"per_class": False},
    {"overlap": 0.0},
    {"overlap": 1.0},
    {"least": 0.6},
    {"rows": 9},
    {"rows": 2 * COUNT},
    {"rows": ((7, 12), (3, 3))},
    {"overridable": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_detector_finds_what_its_formulas_say(options):
    if isinstance(options.get("rows"), tuple):
        options = {**options, "rows": options["rows"][0]}
    _, found = answers(detector(**options), {"image": image()})
    scores, boxes = raw_boxes(image())
    said = {"overlap": 0.3, "least": 0.26, "per_class": True, **options}
    kept = pick_top(scores, boxes, said["overlap"], said["least"], per_class=said["per_class"])
    assert 3 < len(kept) < COUNT or said["overlap"] == 1
    rows = options.get("rows", (0, COUNT))
    low, high = (rows, rows) if isinstance(rows, int) else rows
    count = min(max(len(kept), low), high)
    for name, values in (("confidence", scores), ("coordinates", boxes)):
        want = np.zeros((count, values.shape[1]))
        want[: min(len(kept), count)] = values[kept][:count]
        assert found[name].shape == want.shape
        assert np.abs(found[name] - want).max() < TIGHT


def test_the_options_of_a_detector_tell_it_apart():
    counts = [
        len(answers(detector(**o), {"image": image()})[1]["confidence"])
        for o in ({}, {"per_class": False}, {"overlap": 0.0}, {"overlap": 1.0}, {"least": 0.6})
    ]
    assert len(set(counts)) == 5


def test_no_box_may_be_left():
    model, found = answers(detector(least=2.0), {"image": image()})
    assert {k: v.shape for k, v in found.items()} == {"confidence": (0, 3), "coordinates": (0, 4)}
    assert model.metadata["labels"].split("\n") == ["cat", "dog", "owl"]
    assert model.metadata["input image"] == "pixels 0..255, BGR"


def test_thresholds_that_an_input_overrides_have_their_defaults_until_given():
    x, default = image(), detector(overridable=True)
    model, _ = answers(default, {"image": x})
    assert list(model.inputs) == ["image"]
    assert model.metadata["input iouThreshold"].startswith("0.3")
    _, found = answers(
        default, {"image": x}, values={"iouThreshold": 0.0, "confidenceThreshold": 0.6}
    )
    _, want = answers(detector(overlap=0.0, least=0.6), {"image": x})
    assert np.array_equal(found["confidence"], want["confidence"])


def test_equal_scores_keep_the_order_of_the_boxes():
    """A score that equals the threshold stays; equal scores are taken in the boxes' order."""
    scores = np.array([[0.5, 0.1], [0.25, 0.5], [0.5, 0.2], [0.3, 0.2]], np.float32)
    boxes = np.array([[0, 0, 2, 2], [0, 0.1, 2, 2], [9, 9, 1, 3], [5, 5, 1, 1]], np.float32)
    model = suppression(count=4, least=0.3)
    for features in (model.description.input, model.description.output):
        features[0].type.multiArrayType.ClearField("shape")
        features[0].type.multiArrayType.ClearField("shapeRange")
    loaded = load_coreml(model.SerializeToString(), {"raw_confidence": (4, 2)})
    found = evaluate(loaded.graph, {"raw_confidence": scores, "raw_coordinates": boxes})
    kept = pick_top(scores, boxes, 0.3, float(np.float32(0.3)), per_class=True)
    assert kept == [0, 1, 2, 3]
    assert np.array_equal(found["coordinates"], boxes[kept])
    one = suppression(count=4, least=0.3, per_class=False)
    one.description.input[0].type.multiArrayType.shape[1] = 2
    one.description.output[0].type.multiArrayType.ClearField("shapeRange")
    _, found = answers(one, {"raw_confidence": scores, "raw_coordinates": boxes})
    assert np.array_equal(found["coordinates"], boxes[[0, 2, 3]])


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"rows": 40}, {"per_class": False}], ids=str)
def test_a_compiled_detector_gives_its_meaning(options):
    graph = load_coreml(detector(**options).SerializeToString()).graph
    assert verax.check(graph, "verax:O1", {"image": image()}).kind in ("identical", "rounding")


@pytest.mark.parametrize("options", [{}, {"rows": 40}], ids=str)
def test_a_detector_written_as_onnx_is_the_same_to_onnx_runtime(options):
    ort = pytest.importorskip("onnxruntime")
    graph = load_coreml(detector(**options).SerializeToString()).graph
    session = ort.InferenceSession(to_bytes(graph), providers=["CPUExecutionProvider"])
    given = dict(zip(graph.outputs, session.run(None, {"image": image()})))
    assert verax.check(graph, given, {"image": image()}).kind == "rounding"


def stage(kind, inputs, outputs, **fields):
    """A model of one kind between arrays."""
    model = model_messages().Model()
    model.specificationVersion = 3
    for features, given in ((model.description.input, inputs), (model.description.output, outputs)):
        for name, shape in given.items():
            feature = features.add()
            feature.name = name
            feature.type.multiArrayType.dataType = 65568
            feature.type.multiArrayType.shape.extend(shape)
    params = getattr(model, kind)
    params.SetInParent()
    setting(**fields)(params)
    return model


def joined(*stages, kind="pipeline"):
    """A pipeline from the first stage's inputs to the last one's outputs."""
    model = model_messages().Model()
    model.specificationVersion = 3
    model.description.input.extend(stages[0].description.input)
    model.description.output.extend(stages[-1].description.output)
    holder = getattr(model, kind)
    (holder if kind == "pipeline" else holder.pipeline).models.extend(stages)
    return model


def vectorizer():
    model = stage("featureVectorizer", {"b": (3,), "a": (2,)}, {"joined": (5,)})
    for name, size in (("a", 2), ("b", 3)):
        column = model.featureVectorizer.inputList.add()
        column.inputColumn, column.inputDimensions = name, size
    return model


def features():
    """A pipeline of feature engineering: arrays joined, scaled, some taken, over their length."""
    scale = stage(
        "scaler", {"joined": (5,)}, {"scaled": (5,)},
        shiftValue=(1.0, 2.0, 3.0, 4.0, 5.0), scaleValue=(0.5,),
    )  # fmt: skip
    some = stage("arrayFeatureExtractor", {"scaled": (5,)}, {"some": (3,)}, extractIndex=(4, 0, 2))
    unit = stage("normalizer", {"some": (3,)}, {"unit": (3,)}, normType=2)
    same = stage("identity", {"unit": (3,)}, {"unit2": (3,)})
    return joined(vectorizer(), scale, some, unit, same)


def test_feature_engineering_is_arithmetic_on_arrays():
    x = {"a": np.array([1, -2], np.float32), "b": np.array([0.5, 3, -7], np.float32)}
    _, found = answers(features(), x)
    v = (np.array([1.0, -2, 0.5, 3, -7]) + np.arange(1, 6)) / 2
    v = v[[4, 0, 2]]
    (got,) = found.values()
    assert np.abs(got - v / np.sqrt((v * v).sum())).max() < TIGHT


def classifier():
    w = weights(3, 4)
    layers = [
        ("innerProduct", "d", ["x"], ["d"],
         setting(inputChannels=4, outputChannels=3, weights=w)),
        ("softmax", "s", ["d"], ["s"], setting()),
    ]  # fmt: skip
    model = network(layers, {"x": (4,)}, {}, 1)
    found = model.neuralNetworkClassifier
    found.layers.extend(model.neuralNetwork.layers)
    found.stringClassLabels.vector.extend(["cat", "dog", "owl"])
    return _labelled(model), w


def _labelled(model):
    model.description.predictedFeatureName = "label"
    model.description.predictedProbabilitiesName = "probabilities"
    for name, kind in (("label", "stringType"), ("probabilities", "dictionaryType")):
        feature = model.description.output.add()
        feature.name = name
        getattr(feature.type, kind).SetInParent()
    return model


def test_a_pipeline_ends_in_a_classifier():
    last, w = classifier()
    first = stage("scaler", {"raw": (4,)}, {"x": (4,)}, scaleValue=(2.0,))
    model = joined(first, last, kind="pipelineClassifier")
    model.description.predictedFeatureName = "label"
    model.description.predictedProbabilitiesName = "probabilities"
    x = np.array([0.5, -1, 2, 0.25], np.float32)
    loaded, found = answers(model, {"raw": x})
    e = np.exp(w.astype(float) @ (2 * x))
    assert list(found) == ["probabilities"]
    assert loaded.metadata["labels"].split("\n") == ["cat", "dog", "owl"]
    assert np.abs(found["probabilities"].ravel() - e / e.sum()).max() < TIGHT


def test_stages_may_use_the_same_names_inside():
    def twice(read, inner, made, factor):
        layers = [
            ("activation", "a", [read], [inner], setting(linear__alpha=factor)),
            ("activation", "b", [inner], [made], setting(linear__beta=1.0, linear__alpha=1.0)),
        ]
        return network(layers, {read: (2, 3)}, {made: (2, 3)})

    model = joined(twice("x", "result", "mid", 2.0), twice("mid", "x", "result", -3.0))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    _, found = answers(model, {"x": x})
    assert np.array_equal(found["result"], -3 * (2 * x + 1) + 1)


def _drop_output(m):
    m.pipeline.models[2].description.output.pop()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m.pipeline.models.pop(1), "no stage before makes the feature 'raw_confidence'"),
        (lambda m: m.pipeline.ClearField("models"), "no stages"),
        (lambda m: m.pipeline.models.append(m.pipeline.models[1]), "made twice"),
        (lambda m: setattr(m.description.output[0], "name", "other"), "no stage makes"),
        (_drop_output, "not all declared"),
        (
            lambda m: m.pipeline.models[2].description.input[0]
            .type.multiArrayType.shape.__setitem__(0, COUNT + 1),
            "records",
        ),
        (
            lambda m: m.pipeline.models[2].nonMaximumSuppression
            .__setattr__("confidenceOutputFeatureName", "raw_confidence"),
            "output 'confidence'",
        ),
    ],
)  # fmt: skip
def test_a_pipeline_that_contradicts_itself_is_refused(change, said):
    model = detector()
    change(model)
    with pytest.raises((ModelError, UnsupportedError), match=said):
        load_coreml(model.SerializeToString())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: setattr(m.description.input[0].type.imageType, "colorSpace", 20), "BGR"),
        (lambda m: m.pipeline.models[1].linkedModel.SetInParent(), "linkedModel"),
        (lambda m: m.pipeline.models[1].dictVectorizer.SetInParent(), "dictVectorizer"),
        (lambda m: m.description.output[0].type.stringType.SetInParent(), "stringType"),
    ],
)
def test_what_a_pipeline_cannot_be_is_refused_by_name(change, said):
    model = detector()
    change(model)
    with pytest.raises(UnsupportedError, match=said):
        load_coreml(model.SerializeToString())


def test_pipelines_nested_without_end_are_refused():
    model = detector()
    for _ in range(12):
        outer = model_messages().Model()
        outer.specificationVersion = 3
        outer.description.CopyFrom(model.description)
        outer.pipeline.models.append(model)
        model = outer
    with pytest.raises(ModelError, match="nested"):
        load_coreml(model.SerializeToString())


def test_a_shape_for_no_input_is_refused():
    with pytest.raises(UsageError, match="no input"):
        load_coreml(detector().SerializeToString(), {"nothing": (1, 2)})


MUTATIONS = {
    "perClass": lambda n: n.pickTop.__setattr__("perClass", False),
    "iouThreshold": lambda n: n.__setattr__("iouThreshold", 0.05),
    "confidenceThreshold": lambda n: n.__setattr__("confidenceThreshold", 0.7),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_no_field_of_a_suppression_is_ignored(name):
    x, model = image(), detector()
    _, before = answers(model, {"image": x})
    MUTATIONS[name](model.pipeline.models[2].nonMaximumSuppression)
    _, after = answers(model, {"image": x})
    assert before["confidence"].shape != after["confidence"].shape


def test_an_ml_program_may_be_a_stage():
    split = [
        Operation("slice_by_size", {"x": "%raw", "begin": np.int32([0, 0]),
                                    "size": np.int32([-1, 3])}, {"raw_confidence": "float32"}),
        Operation("slice_by_size", {"x": "%raw", "begin": np.int32([0, 3]),
                                    "size": np.int32([-1, 4])}, {"raw_coordinates": "float32"}),
    ]  # fmt: skip
    first = program(split, {"raw": ("float32", (9, 7))})
    block = first.mlProgram.functions["main"].block_specializations["CoreML5"]
    block.outputs.insert(0, "raw_confidence")
    last = suppression(count=9)
    first.description.input[0].type.multiArrayType.shape.extend((9, 7))
    first.description.input[0].type.multiArrayType.dataType = 65568
    model = joined(first, last)
    rng = np.random.default_rng(2)
    raw = np.concatenate([rng.random((9, 3)), rng.uniform(0, 4, (9, 4))], 1).astype(np.float32)
    _, found = answers(model, {"raw": raw})
    kept = pick_top(raw[:, :3], raw[:, 3:], 0.3, 0.26, per_class=True)
    assert 2 < len(kept) < 9
    assert np.array_equal(found["confidence"], raw[kept, :3])
    assert np.array_equal(found["coordinates"], raw[kept, 3:])
