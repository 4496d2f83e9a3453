"""ATen operators against PyTorch, and every argument of theirs held to account."""

from __future__ import annotations

import copy
import functools
import io
import json
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from torch_cases import Call, cases
from torch_programs import agree, agree_compiled, arrays, export, saved, torch

import verax
from verax.base.errors import VeraxError
from verax.frontends.common.ledger import AttributeOutcome
from verax.frontends.model import Model
from verax.frontends.torch import load_torch
from verax.frontends.torch.rows import OTHER_NAMES
from verax.frontends.torch.table import TABLE
from verax.frontends.torch.tables.elementwise import COMPARISONS

CASES = cases()


@functools.cache
def exported(case: Call) -> Any:
    """The case's program, which several tests read and none changes."""
    return export(case.function, case.inputs)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.label)
def test_an_operator_means_what_pytorch_computes(case: Call) -> None:
    program = exported(case)
    model = load_torch(saved(program))
    result = program.module()(*case.inputs)
    outputs = list(result) if isinstance(result, tuple | list) else [result]
    agree(model, arrays(model, case.inputs), outputs, compiled=False)


EVERY = 4
"""Of so many cases one is compiled; the others are in `slow`. What an operator is compiled to is
tested with the operator (`tests/compiler/test_operators.py`)."""


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=[pytest.mark.slow] * (number % EVERY > 0))
        for number, case in enumerate(CASES)
    ],
    ids=[case.label for case in CASES],
)
def test_an_operator_compiled_means_the_same(case: Call) -> None:
    program = exported(case)
    model = load_torch(saved(program))
    agree_compiled(model, arrays(model, case.inputs))


def test_the_table_is_covered() -> None:
    """Every family of operators has a case, as exported or as decompositions leave it."""
    seen = set()
    for case in CASES:
        for node in exported(case).graph.nodes:
            if node.op == "call_function":
                seen.add(_family(str(node.target).removeprefix("aten.")))
    families = {_family(name) for domain, name in TABLE if domain == "aten"} - {*OTHER_NAMES}
    assert families - seen <= ELSEWHERE, sorted(families - seen - ELSEWHERE)


def _family(name: str) -> str:
    plain = name.partition(".")[0]
    return plain if plain.startswith("__") else plain.strip("_")


ELSEWHERE = {
    *("true_divide", "swapdims"),  # torch_overloads.py
    # test_torch_convolutions.py
    *("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
    # test_decompositions
    *("convolution", "to_copy", "unsafe_view", "native_layer_norm", "native_group_norm"),
    *("native_batch_norm_legit_no_training", "constant_pad_nd"),
    # test_torch_state.py
    "native_batch_norm_legit_functional",
    *("reflection_pad1d", "reflection_pad2d", "replication_pad1d"),
    *("replication_pad2d", "alias", "prelu_kernel", "grid_sampler_2d", "bitwise_and"),
    *("bitwise_or", "bitwise_xor"),
    # twins of operators that have a case: one rank more, another name for the same
    *("reflection_pad3d", "replication_pad3d", "grid_sampler_3d", "clamp_max", "positive"),
    *("feature_dropout", "alpha_dropout", "lift_fresh", "lift_fresh_copy", "norm", "softsign"),
    *("float", "sym_constrain_range"),
    *("weight_norm_interface", "native_batch_norm_legit"),  # test_decompositions
    *("rrelu_with_noise", "rrelu_with_noise_functional"),  # test_decompositions
    *("scaled_dot_product_flash_attention_for_cpu",),
    # test_torch_aliasing.py, test_torch_networks.py
    *("copy", "item", "local_scalar_dense", "sym_numel", "sym_constrain_range_for_size"),
    "assert_async",
}

DECOMPOSED = (
    *("pad_reflect", "pad_replicate", "pad_1d", "pad", "bits_of_masks", "prelu", "grid_sample"),
    *("to_double", "batch_norm", "layer_norm", "group_norm", "linear_deep", "max_pool2d"),
    *("max_pool3d", "gelu", "hardswish", "adaptive_avg_pool3d", "selu", "bilinear", "nearest3d"),
    *("attention_causal", "logsumexp", "index_behind", "clamp_tensor", "weight_norm", "attention"),
    *("batch_statistics", "slice_scatter_step", "unfold", "fold", "empty", "rrelu", "diff"),
    *("transposed", "clamp_mixed"),
)


@pytest.mark.parametrize(
    "case",
    [c if c.label in DECOMPOSED else pytest.param(c, marks=pytest.mark.slow) for c in CASES],
    ids=lambda c: c.label,
)
def test_decompositions(case: Call) -> None:
    """What `run_decompositions` makes of a program means the same."""
    program = exported(case).run_decompositions()
    model = load_torch(saved(program))
    result = program.module()(*case.inputs)
    outputs = list(result) if isinstance(result, tuple | list) else [result]
    agree(model, arrays(model, case.inputs), outputs)


# The ledger


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.label)
def test_no_argument_is_ignored_in_silence(case: Call) -> None:
    """Every argument that is no tensor is changed: the result changes, the import refuses, or the
    ledger says why it cannot matter."""
    data = saved(exported(case))
    model = load_torch(data)
    inputs = arrays(model, case.inputs)
    before = verax.reference(model, inputs)
    for node, argument, changed in _mutations(data):
        try:
            other = load_torch(changed)
            after = verax.reference(other, inputs)
        except VeraxError:
            continue
        if _same(before, after):
            assert _explained(other, node, argument), f"{argument} of {node} is ignored"


def _same(before: dict[str, np.ndarray], after: dict[str, np.ndarray]) -> bool:
    return all(
        a.shape == b.shape
        and a.dtype == b.dtype
        and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
        for a, b in zip(before.values(), after.values(), strict=True)
    )


NEUTRAL = {
    # A change that must not change the result, with the reason.
    ("flatten", "end_dim"): "the axis after the last",
    ("softplus", "threshold"): "far above the data log(1 + exp(x)) is x in float64 too",
    ("topk", "sorted"): "unsorted results may come sorted",
    ("expand", "size"): "-1 and the size itself",
    ("view", "size"): "-1 stands for the size that is left",
    ("slice", "end"): "an end beyond the axis",
    ("slice", "step"): "a slice of one element",
    ("slice_scatter", "end"): "an end beyond the axis",
    **{(o, "b"): "only an assertion reads the comparison" for o in COMPARISONS},
    ("copysign", "other"): "only its sign counts",
    ("sym_size", "dim"): "only an assertion reads the size",
    **{(k, "train"): "only dropout reads it" for k in ("rnn_tanh", "rnn_relu", "gru", "lstm")},
}


def _explained(model: Model, node: str, argument: str) -> bool:
    entries = [e for e in model.ledger.entries if f"{node!r}" in e.node and e.attribute == argument]
    if any(e.outcome is AttributeOutcome.irrelevant for e in entries):
        return True
    operators = {e.operator.rpartition("::")[2].partition(".")[0] for e in entries}
    return any((operator, argument) in NEUTRAL for operator in operators)


def _mutations(data: bytes) -> Iterator[tuple[str, str, bytes]]:
    """Archives with one argument changed, or one given that was left to its default."""
    archive, name, program = _opened(data)
    for i, node in enumerate(program["graph_module"]["graph"]["nodes"]):
        for j, argument in enumerate(node["inputs"]):
            ((kind, value),) = argument["arg"].items()
            for other in _others(kind, value):
                changed = copy.deepcopy(program)
                changed["graph_module"]["graph"]["nodes"][i]["inputs"][j]["arg"] = {kind: other}
                yield node["name"], argument["name"], _rewritten(archive, name, changed)
        for left_out, kind, value in _left_out(node):
            for other in _others(kind, value):
                changed = _given(program, i, left_out, {kind: other})
                yield node["name"], left_out, _rewritten(archive, name, changed)


def _opened(data: bytes) -> tuple[zipfile.ZipFile, str, Any]:
    archive = zipfile.ZipFile(io.BytesIO(data))
    name = next(n for n in archive.namelist() if n.endswith("models/model.json"))
    return archive, name, json.loads(archive.read(name))


def _given(program: Any, index: int, argument: str, value: Any) -> Any:
    """The program with one more argument."""
    changed = copy.deepcopy(program)
    inputs = changed["graph_module"]["graph"]["nodes"][index]["inputs"]
    inputs.append({"name": argument, "arg": value, "kind": 2})
    return changed


FORMS = {
    **{"bool": "as_bool", "int": "as_int", "float": "as_float", "str": "as_string"},
    **{"number": "as_float", "List[int]": "as_ints", "List[float]": "as_floats"},
}
"""How the default of an argument of a type is written."""


def _left_out(node: Any) -> Iterator[tuple[str, str, Any]]:
    """Arguments that the operator's schema has and the node leaves to their defaults."""
    path = node["target"].removeprefix("torch.ops.").split(".")
    if len(path) != 3 or path[0] != "aten":
        return
    schema = getattr(getattr(torch.ops.aten, path[1]), path[2])._schema
    present = {argument["name"] for argument in node["inputs"]}
    for argument in schema.arguments:
        if argument.name in present or argument.default_value is None:
            continue
        form, value = FORMS.get(str(argument.type)), argument.default_value
        if form == "as_float" and type(value) is int:
            form = "as_int"
        if form is not None:
            yield argument.name, form, value


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.label)
def test_a_default_that_is_written_out_changes_nothing(case: Call) -> None:
    data = saved(exported(case))
    plain = load_torch(data).graph
    archive, name, program = _opened(data)
    for i, node in enumerate(program["graph_module"]["graph"]["nodes"]):
        for argument, form, value in _left_out(node):
            written = _given(program, i, argument, {form: value})
            graph = load_torch(_rewritten(archive, name, written)).graph
            assert graph == plain, f"{argument} = {value} of {node['target']}"


def _others(kind: str, value: Any) -> Iterator[Any]:
    """Values with another meaning."""
    if kind == "as_int":
        yield value + 1
    elif kind == "as_float":
        yield 3.0 if isinstance(value, str) else value * 1.75 + 0.3
    elif kind == "as_bool":
        yield not value
    elif kind == "as_string":
        yield {"floor": "trunc", "trunc": "floor", "none": "tanh", "tanh": "none"}.get(
            value, "other"
        )
    elif kind in ("as_ints", "as_floats"):
        for i in range(len(value)):
            yield [*value[:i], value[i] + 1, *value[i + 1 :]]
    elif kind == "as_scalar_type":
        yield 8 if value != 8 else 7


def _rewritten(archive: zipfile.ZipFile, name: str, program: Any) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as new:
        for entry in archive.namelist():
            content = json.dumps(program).encode() if entry == name else archive.read(entry)
            new.writestr(entry, content)
    return buffer.getvalue()


def test_an_argument_that_no_row_reads_is_refused() -> None:
    data = saved(export(lambda x: torch.relu(x), (torch.ones(2, 3),)))
    archive, name, program = _opened(data)
    node = program["graph_module"]["graph"]["nodes"][0]
    node["inputs"].append({"name": "leak", "arg": {"as_float": 0.5}, "kind": 2})
    with pytest.raises(VeraxError, match=r"leak = 0\.5"):
        load_torch(_rewritten(archive, name, program))
