"""What of CoreML is read, and what is refused by name: nothing may be in neither list."""

import importlib.util

import pytest

from verax.frontends.coreml.compressed_weights import COMPRESSED
from verax.frontends.coreml.lists import RULES
from verax.frontends.coreml.messages import model_messages
from verax.frontends.coreml.pipeline import SUPPORTED
from verax.frontends.coreml.program import CONTROL
from verax.frontends.coreml.table import TABLE

REFUSED_LAYERS = {
    *("custom", "branch", "loop", "loopBreak", "loopContinue", "categoricalDistribution"),
    *(f"random{kind}{form}" for kind in ("Normal", "Uniform", "Bernoulli")
      for form in ("Like", "Static", "Dynamic")),
}  # fmt: skip
"""Code that no file holds, control flow, and chance."""

REFUSED_OPERATIONS = {
    *("random_bernoulli", "random_categorical", "random_normal", "random_uniform"),
    *("read_state", "slice_update", "conv_quantized"),
}
"""Chance, states, and what only a compiler of programs makes."""

LISTS = {kind for _, kind in RULES}
MADE_BY_READING = {"const", "classify", "_const_symbolic", *CONTROL, *LISTS}
"""Operations that the reader itself turns into constants, metadata, branches and loops."""


def choices(message, name):
    return {field.name for field in message.DESCRIPTOR.oneofs_by_name[name].fields}


def test_every_layer_is_read_or_refused():
    layer = model_messages().Model().neuralNetwork.layers.add()
    rows = {name for domain, name in TABLE if not domain}
    assert choices(layer, "layer") - rows == REFUSED_LAYERS
    assert rows - choices(layer, "layer") == {
        "array.input", "array.output", "preprocessing.scaler", "preprocessing.meanImage",
    }  # fmt: skip


def test_every_kind_of_model_is_read_or_refused():
    refused = choices(model_messages().Model(), "Type") - set(SUPPORTED)
    assert len(SUPPORTED) == 13
    assert {"treeEnsembleClassifier", "customModel", "visionFeaturePrint"} <= refused


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("coremltools") is None, reason="coremltools is missing"
)
def test_every_operation_is_read_or_refused():
    pytest.importorskip("coremltools.converters.mil")
    from coremltools.converters.mil.mil.ops.registry import SSAOpRegistry

    rows = {name for domain, name in TABLE if domain == "mil"} | set(COMPRESSED)
    assert set(SSAOpRegistry.core_ops) - rows == REFUSED_OPERATIONS | MADE_BY_READING
    assert rows - set(SSAOpRegistry.core_ops) == set()
