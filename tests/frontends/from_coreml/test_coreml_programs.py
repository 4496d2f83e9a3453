"""ML programs that coremltools converted, against the PyTorch modules that they came from."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import verax
from verax.base.errors import ModelError, UnsupportedError, VeraxError
from verax.export.onnx import to_bytes
from verax.frontends.coreml import load_coreml
from verax.frontends.coreml.messages import model_messages
from verax.reference.evaluate import evaluate

INNER = "Data/com.apple.CoreML"
IDENTIFIER = "0e16e22a-385c-4a9e-9438-780dd1894c65"
SPECIAL = {"half", "open_batch", "classifier", "newer", "reciprocal"}


@cache
def stored():
    """Arrays by case and key, as make_programs.py wrote them."""
    found: dict[str, dict[str, np.ndarray]] = {}
    with np.load(Path(__file__).with_name("programs.npz")) as file:
        for key in file.files:
            name, _, rest = key.partition("/")
            found.setdefault(name, {})[rest] = file[key]
    return found


def package(folder, name, model=None, path="com.apple.CoreML/model.mlmodel", weights=None):
    """The case as a package, perhaps with another model, manifest or weight file."""
    case, root = stored()[name], folder / f"{name}.mlpackage"
    (root / INNER / "weights").mkdir(parents=True, exist_ok=True)
    data = case["model"].tobytes() if model is None else model.SerializeToString()
    (root / INNER / "model.mlmodel").write_bytes(data)
    blob = case["weights"].tobytes() if weights is None and "weights" in case else weights
    if blob is not None:
        (root / INNER / "weights" / "weight.bin").write_bytes(blob)
    manifest = {"itemInfoEntries": {IDENTIFIER: {"path": path}}, "rootModelIdentifier": IDENTIFIER}
    (root / "Manifest.json").write_text(json.dumps(manifest))
    return root


def inputs_of(name):
    return {k[3:]: v for k, v in stored()[name].items() if k.startswith("in:")}


def message(name):
    model = model_messages().Model()
    model.ParseFromString(stored()[name]["model"].tobytes())
    return model


def block(model):
    function = model.mlProgram.functions["main"]
    return function.block_specializations[function.opset]


def gap(found, want):
    assert found.shape == want.shape
    return np.abs(found - want).max() / max(1.0, np.abs(want).max())


PLAIN = [n for n in stored() if n not in SPECIAL and "out" in stored()[n]]


@pytest.mark.parametrize("name", PLAIN)
def test_a_program_means_what_its_module_answers(name, tmp_path):
    model = load_coreml(package(tmp_path, name))
    (found,) = evaluate(model.graph, inputs_of(name)).values()
    # Constants that coremltools folded in float32 are the difference.
    assert gap(found, stored()[name]["out"]) < 16 * np.finfo(np.float32).eps


@pytest.mark.slow
@pytest.mark.parametrize("name", PLAIN)
def test_a_compiled_program_gives_its_meaning(name, tmp_path):
    model = load_coreml(package(tmp_path, name))
    verdict = verax.check(model.graph, "verax:O1", inputs_of(name))
    exact = all(node.op.exact for node in model.graph.nodes)
    assert verdict.kind in ("identical", "rounding") or (exact and verdict.kind == "undecided")


@pytest.mark.parametrize("name", PLAIN)
def test_a_program_written_as_onnx_is_the_same_to_onnx_runtime(name, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    graph = load_coreml(package(tmp_path, name)).graph
    session = ort.InferenceSession(to_bytes(graph), providers=["CPUExecutionProvider"])
    answers = dict(zip(graph.outputs, session.run(None, inputs_of(name))))
    verdict = verax.check(graph, answers, inputs_of(name))
    exact = all(node.op.exact for node in graph.nodes)
    assert verdict.kind in ("identical", "rounding") or (exact and verdict.kind == "undecided")


def test_a_half_precision_program_is_half_precision_in_the_graph(tmp_path):
    model = load_coreml(package(tmp_path, "half"))
    assert {"float16", "float32"} == {str(t.dtype) for t in model.graph.types.values()
                                      if t.dtype.is_float}  # fmt: skip
    (found,) = evaluate(model.graph, inputs_of("half")).values()
    assert 0 < gap(found, stored()["half"]["out"]) < 16 * np.finfo(np.float16).eps


def test_an_open_size_is_a_symbol_until_it_is_given(tmp_path):
    path = package(tmp_path, "open_batch")
    assert str(load_coreml(path).inputs["x0"]) == "float32[x0_0, 3, 12, 11]"
    model = load_coreml(path, {"x0": (2, None, None, None)})
    assert model.inputs["x0"].shape == (2, 3, 12, 11)
    (found,) = evaluate(model.graph, inputs_of("open_batch")).values()
    assert gap(found, stored()["open_batch"]["out"]) < 16 * np.finfo(np.float32).eps


def test_a_reciprocal_has_the_epsilon_that_coremltools_gives_it(tmp_path):
    """coremltools writes 1 / x as `inverse`, whose epsilon is 1e-4 unless stated."""
    (found,) = evaluate(
        load_coreml(package(tmp_path, "reciprocal")).graph, inputs_of("reciprocal")
    ).values()
    x = inputs_of("reciprocal")["x0"].astype(np.float64)
    assert gap(found, 1 / (x * x + 0.5 + 1e-4)) < 16 * np.finfo(np.float32).eps
    assert gap(found, stored()["reciprocal"]["out"]) > 64 * np.finfo(np.float32).eps


def test_a_classifier_on_an_image(tmp_path):
    model = load_coreml(package(tmp_path, "classifier"))
    assert model.metadata["labels"].split("\n") == ["cat", "dog", "owl", "emu", "yak"]
    assert model.metadata["input x0"] == "pixels 0..255, BGR"
    (found,) = evaluate(model.graph, inputs_of("classifier")).values()
    assert gap(found, stored()["classifier"]["out"]) < 16 * np.finfo(np.float32).eps


@pytest.mark.parametrize("way", ["linear", "table", "pruned"])
def test_compressed_weights_are_what_coremltools_makes_of_them(way, tmp_path):
    small = load_coreml(package(tmp_path, f"{way}_compressed")).graph
    plain = load_coreml(package(tmp_path, f"{way}_plain")).graph
    x = inputs_of(f"{way}_compressed")
    (a,), (b,) = evaluate(small, x).values(), evaluate(plain, x).values()
    assert gap(a, b) < 4 * np.finfo(np.float32).eps
    (whole,) = evaluate(load_coreml(package(tmp_path, "newer")).graph, x).values()
    assert gap(a, whole) > np.finfo(np.float16).eps


def mutations(value):
    """Other contents of a constant."""
    tensor = value.immediateValue.tensor
    field = tensor.WhichOneof("value")
    values = getattr(tensor, field).values if field else ()
    for i in range(min(len(values), 8)):
        if field == "strings":
            yield lambda v, i=i: getattr(v.immediateValue.tensor, field).values.__setitem__(i, "no")
        elif field == "bools":
            yield lambda v, i=i: _set(v, field, i, lambda x: not x)
        elif field != "bytes":
            yield lambda v, i=i: _set(v, field, i, lambda x: x + 1)


def _set(value, field, i, change):
    values = getattr(value.immediateValue.tensor, field).values
    values[i] = change(values[i])


def test_no_argument_is_ignored_in_silence(tmp_path):
    """Each constant argument changes the result, or is refused, in some network."""
    silent = {}
    for name in PLAIN:
        before = load_coreml(package(tmp_path, name))
        read = {(e.operator.partition("::")[2], e.attribute) for e in before.ledger.entries
                if e.outcome == "consumed"}  # fmt: skip
        (want,) = evaluate(before.graph, inputs_of(name)).values()
        operations = block(message(name)).operations
        constants = {o.outputs[0].name: i for i, o in enumerate(operations) if o.type == "const"}
        for operation in operations:
            for argument, binding in operation.inputs.items():
                spot = (operation.type, argument)
                if silent.get(spot) == "" or spot not in read or len(binding.arguments) != 1:
                    continue
                at = constants.get(binding.arguments[0].name)
                if at is None:
                    continue
                for change in mutations(operations[at].attributes["val"]):
                    if silent.get(spot) == "":
                        break
                    changed = message(name)
                    change(block(changed).operations[at].attributes["val"])
                    try:
                        model = load_coreml(package(tmp_path, name, changed))
                        (found,) = evaluate(model.graph, inputs_of(name)).values()
                    except VeraxError:
                        silent[spot] = ""
                        continue
                    same = found.shape == want.shape and np.allclose(found, want, rtol=1e-9)
                    silent[spot] = name if same else ""
    assert len(silent) > 40
    assert {spot: name for spot, name in silent.items() if name} == {}


def test_unknown_operations_are_listed_at_once(tmp_path):
    model = message("linear")
    operations = block(model).operations
    operations[-1].type = "foo"
    extra = operations.add()
    extra.type = "bar"
    extra.outputs.add().name = "unused"
    with pytest.raises(UnsupportedError, match=r"mil::bar \(1\), mil::foo \(1\)"):
        load_coreml(package(tmp_path, "linear", model))


def test_a_declared_shape_that_is_wrong_is_refused(tmp_path):
    model = message("linear")
    last = block(model).operations[-1].outputs[0].type.tensorType
    last.dimensions[0].constant.size += 1
    with pytest.raises(ModelError, match="records"):
        load_coreml(package(tmp_path, "linear", model))


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("../../../etc/passwd", "in the model's folder"),
        ("/etc/passwd", "in the model's folder"),
    ],
)
def test_a_manifest_does_not_lead_out_of_the_package(path, said, tmp_path):
    with pytest.raises(ModelError, match=said):
        load_coreml(package(tmp_path, "linear", path=path))


@pytest.mark.parametrize(
    "name", ["@model_path/../../../x.bin", "/etc/passwd", "@model_path//etc/x"]
)
def test_a_weight_file_does_not_lead_out_of_the_package(name, tmp_path):
    model = message("convolutions")
    for operation in block(model).operations:
        for value in operation.attributes.values():
            if value.HasField("blobFileValue"):
                value.blobFileValue.fileName = name
    with pytest.raises(ModelError, match=r"in the model's folder|outside of the package"):
        load_coreml(package(tmp_path, "convolutions", model))


def test_every_cut_of_a_weight_file_is_refused(tmp_path):
    whole = stored()["convolutions"]["weights"].tobytes()
    for size in (0, 1, 64, 100, len(whole) // 2, len(whole) - 80):
        with pytest.raises(ModelError):
            load_coreml(package(tmp_path, "convolutions", weights=whole[:size]))


def test_a_folder_that_is_no_package_is_refused(tmp_path):
    with pytest.raises(ModelError, match="no CoreML package"):
        load_coreml(tmp_path)


def test_the_program_alone_asks_for_its_weights():
    with pytest.raises(ModelError, match="path"):
        load_coreml(stored()["convolutions"]["model"].tobytes())


def test_a_package_is_loaded_by_its_path(tmp_path):
    assert verax.load(package(tmp_path, "linear")).format.startswith("CoreML mlProgram")


def fuzz(folder, seed, rounds):
    rng = np.random.default_rng(seed)
    names = ["convolutions", "attention", "padding", "linear_compressed"]
    outcomes = {"model": 0, "error": 0}
    for i in range(rounds):
        name = names[i % len(names)]
        root = package(folder, name)
        file = root / INNER / rng.choice(["model.mlmodel", "weights/weight.bin"], p=[0.8, 0.2])
        data = bytearray((file.exists() and file.read_bytes()) or b"x")
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(len(data) or 1))
            if data and rng.random() < 0.7:
                data[at] = rng.choice([0, 1, 2, 0x7F, 0x80, 0xFF, int(rng.integers(256))])
            else:
                del data[at : at + int(rng.integers(1, 9))]
        file.write_bytes(data)
        try:
            load_coreml(root)
            outcomes["model"] += 1
        except VeraxError:
            outcomes["error"] += 1
    return outcomes


def test_random_damage_gives_a_model_or_an_error(tmp_path):
    assert min(fuzz(tmp_path, 0, 300).values()) > 20


@pytest.mark.slow
def test_much_random_damage_gives_a_model_or_an_error(tmp_path):
    assert min(fuzz(tmp_path, 1, 2_000).values()) > 200


def test_weights_of_a_program_are_views_of_its_file(tmp_path):
    constants = load_coreml(package(tmp_path, "convolutions")).graph.constants.values()
    large = max(constants, key=np.size)
    assert not large.flags.writeable and not large.flags.owndata
