"""Programs that PT2E and torchao quantised: read from files, with neither of them installed."""

from __future__ import annotations

import dataclasses
import io
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import verax
from verax.base.errors import UnsupportedError
from verax.compiler.kernels.products.stored import MOST_ROWS
from verax.compiler.passes import fold_constants
from verax.frontends.model import Model
from verax.frontends.torch import load_torch
from verax.records.verdict import Kind

STORED_AT = Path(__file__).with_name("quantised.npz")
STORED = np.load(STORED_AT)
NAMES = sorted({key.partition("|")[0] for key in STORED.files})


def load(name: str) -> Model:
    return load_torch(STORED[f"{name}|program"].tobytes())


model = cache(load)


def given(name: str) -> dict[str, np.ndarray]:
    return {next(iter(model(name).inputs)): STORED[f"{name}|x"]}


@pytest.mark.parametrize("name", NAMES)
def test_the_meaning_is_what_pytorch_computed(name: str) -> None:
    answers = {next(iter(model(name).outputs)): STORED[f"{name}|y"]}
    verdict = verax.check(model(name), answers, given(name))
    assert verdict.kind in (Kind.identical, Kind.rounding), verdict.reasons


@pytest.mark.parametrize("name", NAMES)
def test_every_level_computes_it_without_the_reference(name: str) -> None:
    for level in (1, 3):
        exe = verax.compile(model(name), opt_level=level, threads=1)
        assert exe.plan.on_reference == ()
        verdict = verax.check(model(name), exe.run(given(name)), given(name))
        assert verdict.kind in (Kind.identical, Kind.rounding), verdict.reasons


@pytest.mark.parametrize("name", NAMES)
def test_weights_stay_integers(name: str) -> None:
    graph = model(name).graph
    products = [n for n in graph.nodes if n.op.kind in ("Conv", "Gemm", "MatMul")]
    assert products
    for node in products:
        weight = graph.constants.get(str(node.inputs[1]))
        assert weight is None or weight.dtype.kind == "i", node.place


STATIC = sorted(n for n in NAMES if ", static int8" in n)


@pytest.mark.parametrize("name", STATIC)
def test_scales_that_were_chosen_before_are_constants(name: str) -> None:
    """Nothing of the input decides how it is quantised, and products are of whole numbers."""
    graph = model(name).graph
    quantised = [n for n in graph.nodes if n.op.kind == "QuantizeLinear"]
    assert len(quantised) == 2
    made = {o for n in graph.nodes for o in n.outputs if _reads(graph, n, {*graph.inputs})}
    for node in quantised:
        assert made.isdisjoint(str(v) for v in node.inputs[1:]), node.place
    products = [n for n in graph.nodes if n.op.kind == "MatMul"]
    assert products and all(str(graph.types[n.outputs[0]].dtype) == "int32" for n in products)


def _reads(graph: Any, node: Any, wanted: set[str]) -> bool:
    """Whether something that a node is computed from is among `wanted`."""
    made = {o: n for n in graph.nodes for o in n.outputs}
    names = [str(v) for v in node.inputs]
    return any(n in wanted or (n in made and _reads(graph, made[n], wanted)) for n in names)


@pytest.mark.parametrize("name", STATIC)
def test_another_scale_is_a_mistake(name: str) -> None:
    """The witness can fail: with scales of the inputs a hundredth larger."""
    graph = model(name).graph
    scales = {k for k, c in graph.constants.items() if c.dtype == np.float32 and c.ndim == 3}
    assert scales
    wrong = {k: (c * np.float32(1.01) if k in scales else c) for k, c in graph.constants.items()}
    other = dataclasses.replace(graph, constants=wrong)
    answers = {next(iter(graph.outputs)): STORED[f"{name}|y"]}
    assert verax.check(other, answers, given(name), explain=False).kind is Kind.mistake


@pytest.mark.parametrize("name", ["pt2e, static", "int8 weights, dynamic int8", *STATIC])
def test_another_weight_is_a_mistake(name: str) -> None:
    """The witness can fail: with small weights one larger PyTorch's answers fit no more."""
    graph = model(name).graph
    wrong = {
        k: (c + (c < 100)).astype(c.dtype) if c.dtype == np.int8 and c.size >= 100 else c
        for k, c in graph.constants.items()
    }
    other = dataclasses.replace(graph, constants=wrong)
    answers = {next(iter(graph.outputs)): STORED[f"{name}|y"]}
    assert verax.check(other, answers, given(name), explain=False).kind is Kind.mistake


def test_files_need_neither_framework() -> None:
    text = f"""
import sys
sys.modules["torch"] = sys.modules["torchao"] = None
import numpy as np
from verax.frontends.torch import load_torch
stored = np.load({str(STORED_AT)!r})
for key in stored.files:
    if key.endswith("|program"):
        assert load_torch(stored[key].tobytes()).graph.nodes
"""
    subprocess.run([sys.executable, "-c", text], check=True)


@pytest.fixture
def wrapped(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """A layer whose weight is a type of tensor of its own, as torchao's are."""
    torch = pytest.importorskip("torch", reason="torch is not installed")

    class Integers(torch.Tensor):
        """Integers with a scale for each row."""

        @staticmethod
        def __new__(cls: Any, q: Any, scale: Any) -> Any:
            return torch.Tensor._make_wrapper_subclass(cls, q.shape, dtype=torch.float32)

        def __init__(self, q: Any, scale: Any) -> None:
            self.q, self.scale = q, scale

        def __tensor_flatten__(self) -> Any:
            return ["q", "scale"], None

        @staticmethod
        def __tensor_unflatten__(parts: Any, *_: Any) -> Any:
            return Integers(parts["q"], parts["scale"])

        @classmethod
        def __torch_function__(
            cls: Any, function: Any, _: Any, args: Any, kwargs: Any = None
        ) -> Any:
            if function is torch.nn.functional.linear:
                x, weight, bias = args
                return x @ (weight.q.to(x.dtype) * weight.scale).t() + bias
            with torch._C.DisableTorchFunctionSubclass():
                return function(*args, **(kwargs or {}))

        @classmethod
        def __torch_dispatch__(cls: Any, function: Any, _: Any, args: Any, kwargs: Any) -> Any:
            assert function is torch.ops.aten.detach.default
            return Integers(args[0].q, args[0].scale)

    Integers.__qualname__ = "Integers"  # where pickle looks for it
    monkeypatch.setattr(sys.modules[__name__], "Integers", Integers, raising=False)
    layer = torch.nn.Linear(5, 3)
    q = torch.randint(-90, 90, (3, 5), dtype=torch.int8)
    weight = Integers(q, torch.tensor([[0.1], [0.02], [0.3]]))
    layer.weight = torch.nn.Parameter(weight, requires_grad=False)
    return torch, layer.eval()


def test_a_weight_of_a_type_of_its_own_becomes_its_parts(wrapped: tuple[Any, Any]) -> None:
    torch, layer = wrapped
    x = torch.randn(2, 5, generator=torch.Generator().manual_seed(5))
    loaded = load_torch(layer, inputs=(x,))
    assert any(c.dtype == np.int8 for c in loaded.graph.constants.values())
    assert "tensors inside" in str([e.reason for e in loaded.ledger.entries])
    answers = {next(iter(loaded.outputs)): layer(x).detach().numpy()}
    verdict = verax.check(loaded, answers, {next(iter(loaded.inputs)): x.numpy()})
    assert verdict.kind in (Kind.identical, Kind.rounding), verdict.reasons


def test_a_file_with_such_a_weight_says_how_to_write_it(wrapped: tuple[Any, Any]) -> None:
    torch, layer = wrapped
    program = torch.export.export(layer, (torch.ones(2, 5),), strict=False)
    with pytest.raises(UnsupportedError, match="a pickle") as refused:
        load_torch(saved(torch, program))
    assert "run_decompositions({})" in str(refused.value)
    assert load_torch(saved(torch, program.run_decompositions({}))).graph.nodes


def saved(torch: Any, program: Any) -> bytes:
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    return buffer.getvalue()


def test_torchao_is_read_from_memory() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    quantization = pytest.importorskip("torchao.quantization", reason="torchao is not installed")
    net = torch.nn.Sequential(torch.nn.Linear(32, 24), torch.nn.ReLU(), torch.nn.Linear(24, 7))
    quantization.quantize_(net, quantization.Int8DynamicActivationInt8WeightConfig())
    x = torch.randn(3, 32, generator=torch.Generator().manual_seed(6))
    loaded = load_torch(net, inputs=(x,))
    verdict = verax.check(loaded, net, {next(iter(loaded.inputs)): x.numpy()})
    assert verdict.kind in (Kind.identical, Kind.rounding), verdict.reasons


@pytest.mark.parametrize("shape", [(3, 64), (1, 3, 64), (2, 5, 64)])
@pytest.mark.parametrize("scheme", ["int8 weights", "dynamic int8", "int4 in groups", "8da4w"])
def test_torchao_keeps_integers_in_kernels(
    scheme: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing runs on the reference, and weights stay in the bits in which torchao has them."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    ao = pytest.importorskip("torchao.quantization", reason="torchao is not installed")
    monkeypatch.setattr(fold_constants, "STORED", 1)
    int4 = {"weight_dtype": torch.int4}
    config, kind = {
        "int8 weights": (ao.Int8WeightOnlyConfig, "factor kept in int8"),
        "dynamic int8": (ao.Int8DynamicActivationInt8WeightConfig, "_int_mm"),
        "int4 in groups": (lambda: ao.IntxWeightOnlyConfig(granularity=ao.PerGroup(32), **int4),
                           "factor kept in uint4 by 32"),
        "8da4w": (lambda: ao.Int8DynamicActivationIntxWeightConfig(
            weight_granularity=ao.PerGroup(32), **int4), "factor kept in uint4 by 32"),
    }[scheme]  # fmt: skip
    torch.manual_seed(4)
    net = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.ReLU(), torch.nn.Linear(96, 24))
    ao.quantize_(net.eval(), config())
    x = torch.randn(*shape)
    loaded = load_torch(net, inputs=(x,))
    exe = verax.compile(loaded, threads=1)
    exe.run({next(iter(loaded.inputs)): x.numpy()})
    text = str(exe.plan)
    assert kind in text or x[..., 0].numel() > MOST_ROWS, text
    assert not exe.plan.on_reference, text
    verdict = verax.check(loaded, net, {next(iter(loaded.inputs)): x.numpy()})
    assert verdict.kind in (Kind.identical, Kind.rounding), verdict.reasons
