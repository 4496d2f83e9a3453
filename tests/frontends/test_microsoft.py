"""What ONNX Runtime's optimizer and its exporters write (com.microsoft) means what it computes."""

from __future__ import annotations

import numpy as np
import pytest
from tests.formats.test_onnx_attributes import FOREIGN
from tests.frontends.microsoft_cases import Case, cases, unwitnessed

import verax
from verax.base.errors import UnsupportedError
from verax.frontends.onnx import load_onnx
from verax.frontends.onnx.rows import MICROSOFT
from verax.frontends.onnx.table import TABLE
from verax.records.verdict import Kind
from verax.reference.evaluate import evaluate, promised
from verax.runners.onnx_runtime import OnnxRuntimeRunner

CASES = {f"{case.kind} {case.label}".strip(): case for case in cases()}
PAIRS = {f"{case.kind} {case.label}".strip(): (case, other) for case, other in unwitnessed()}
QLINEAR = ("Add", "Mul", "Sigmoid", "LeakyRelu", "Softmax", "Concat", "Where")
ELSEWHERE = {"QGemm", "MatMulNBits", *(f"QLinear{name}" for name in QLINEAR)}
"""Rows with tests of their own: test_onnx_quantised_operators, test_onnx_n_bits."""
COUNTED = ("lengths", "ends and starts", "columns")
"""Masks that count keys: how many there are says of what, so the batch has to be known."""


def test_every_row_has_a_case() -> None:
    rows = {name for domain, name in TABLE if domain == MICROSOFT} - ELSEWHERE
    shown = {case.kind for case in CASES.values()} | {case.kind for case, _ in PAIRS.values()}
    assert rows | FOREIGN <= shown


@pytest.mark.parametrize("name", CASES)
def test_onnx_runtime_is_called_right(name: str) -> None:
    """Judged against the float64 meaning, with a sharp bound for every case."""
    case = CASES[name]
    model = case.model()
    subject = OnnxRuntimeRunner(model.SerializeToString(), threads=1, isolated=False)
    verdict = verax.check(load_onnx(model), subject, case.arrays)
    assert verdict.kind in (Kind.identical, Kind.rounding), verdict.reasons
    assert verdict.repeat is not None and verdict.repeat.same_bits, verdict.repeat


@pytest.mark.parametrize("name", CASES)
def test_it_is_compiled(name: str) -> None:
    """Without reference, with the promised bits."""
    case = CASES[name]
    graph = load_onnx(case.model()).graph
    exe = verax.compile(graph, opt_level=1, cache=False, threads=1)
    wanted = promised(graph, case.arrays)
    for value, found in exe.run(case.arrays).items():
        np.testing.assert_array_equal(found, wanted[value])


@pytest.mark.parametrize("name", CASES)
def test_open_sizes_change_nothing(name: str) -> None:
    case = CASES[name]
    if name.split(" ", 1)[-1] in COUNTED and "Attention" in name:
        with pytest.raises(UnsupportedError, match="for a batch of"):
            load_onnx(case.model(is_open=True))
        return
    known = evaluate(load_onnx(case.model()).graph, case.arrays)
    found = evaluate(load_onnx(case.model(is_open=True)).graph, case.arrays)
    for value, array in known.items():
        np.testing.assert_allclose(found[value], array, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", PAIRS)
def test_the_same_in_other_words(name: str) -> None:
    case, other = PAIRS[name]
    found, expected = (
        next(iter(evaluate(load_onnx(c.model()).graph, c.arrays).values())) for c in (case, other)
    )
    if case.moved:
        found = np.moveaxis(found, -1, 1)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def changed(name: str, **attributes: object) -> Case:
    case = CASES[name]
    return Case(case.kind, "", case.inputs, case.attributes | attributes, case.outputs, case.used)


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("FusedConv Relu", {"activation": "Cosine"}),
        ("FusedConv LeakyRelu", {"activation_params": [0.25, 0.5]}),
        ("FusedGemm Relu", {"activation": "Cosine"}),
        ("Attention", {"do_rotary": 1}),
        ("Attention", {"num_heads": 5}),
        ("Attention", {"qkv_hidden_sizes": [12, 12, 11]}),
        ("RotaryEmbedding", {"scale": 0.5}),
        ("RotaryEmbedding", {"rotary_embedding_dim": 6, "num_heads": 3}),
        ("GroupQueryAttention prompt", {"kv_num_heads": 3}),
        ("GroupQueryAttention prompt", {"k_quant_type": "PER_TENSOR"}),
        ("GroupQueryAttention prompt", {"sliding_window_cache": 1, "local_window_size": 8}),
        ("SimplifiedLayerNormalization", {"unknown": 1}),
    ],
)
def test_what_is_not_read_is_refused(name: str, attributes: dict[str, object]) -> None:
    with pytest.raises(UnsupportedError):
        load_onnx(changed(name, **attributes).model())


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("FusedConv LeakyRelu", {"activation_params": [0.5]}),
        ("FusedGemm HardSigmoid", {"activation_beta": 0.1}),
        ("FusedMatMul scaled", {"alpha": 0.31}),
        ("SkipLayerNormalization", {"epsilon": 0.03}),
        ("Attention", {"scale": 0.1}),
        ("Attention rows", {"mask_filter_value": -1.0}),
        ("MultiHeadAttention", {"unidirectional": 1}),
        ("RotaryEmbedding", {"interleaved": 1}),
        ("GroupQueryAttention prompt", {"local_window_size": 3}),
        ("GroupQueryAttention prompt, rotated", {"rotary_interleaved": 1}),
        ("GroupQueryAttention bounded", {"softcap": 0.5}),
    ],
)
def test_every_attribute_matters(name: str, attributes: dict[str, object]) -> None:
    """A changed attribute changes the meaning, and the judge names the file that has it wrong."""
    case = CASES[name]
    wrong = changed(name, **attributes).model()
    subject = OnnxRuntimeRunner(wrong.SerializeToString(), threads=1, isolated=False)
    verdict = verax.check(load_onnx(case.model()), subject, case.arrays)
    assert verdict.kind is Kind.mistake


def test_files_for_one_processor_are_refused_with_advice() -> None:
    model = CASES["FusedConv Relu"].model()
    model.graph.node[0].domain = "com.microsoft.nchwc"
    with pytest.raises(UnsupportedError) as caught:
        load_onnx(model)
    assert "ORT_ENABLE_EXTENDED" in caught.value.next_step
