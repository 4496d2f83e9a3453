"""One region in several arithmetics: attention in float32 beside linear layers in TF32, autocast,
the tanh of a GPU's recurrent networks, and networks that declare 16 bits."""

import dataclasses

import ml_dtypes
import numpy as np
import pytest
import torch

import verax
from verax.ir.graph import Builder, Graph
from verax.ir.operator import Evaluation
from verax.ir.types import TensorType
from verax.judge.check import check
from verax.judge.decide.recurrent_precision import (
    RECURRENT,
    TABLE,
    drawn_table,
    recurrent_outputs,
)
from verax.judge.regions.end_to_end import region_of
from verax.judge.regions.sampler import Sampler
from verax.judge.regions.stored_as_declared import Reproduced, reproduced_as_declared
from verax.numerics.matrix_units.routes import ROUTES, predicted
from verax.ops.movement.reshaping import Transpose
from verax.ops.pointwise.arithmetic import Add, Mul
from verax.ops.recurrent.recurrent import LSTM
from verax.ops.sums.linear import MatMul
from verax.ops.sums.softmax import Softmax
from verax.records.verdict import Kind, Verdict
from verax.runners.arrays import ArraysRunner

SEED = 361
TOKENS, WIDTH, HIDDEN = 11, 24, 40


def judge(graph: Graph, x: np.ndarray, **values: np.ndarray) -> Verdict:
    return check(graph, ArraysRunner(values), {"x": x}, explain=False)


# ---------------------------------------------------------------- attention beside linear layers
def attention() -> tuple[Graph, dict[str, np.ndarray]]:
    """Queries, keys and values from one input, attention with one head, a linear layer."""
    rng, b = np.random.default_rng(SEED), Builder("attention")
    x = b.input("x", TensorType.parse(f"float32[3, {TOKENS}, {WIDTH}]"))
    weights = {
        name: (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
        for name, shape in {
            "wq": (WIDTH, HIDDEN), "wk": (WIDTH, HIDDEN), "wv": (WIDTH, HIDDEN), "wo": (HIDDEN, 17),
        }.items()
    }  # fmt: skip
    of = {name: b.constant(w, name) for name, w in weights.items()}
    scale = b.constant(np.float32(HIDDEN**-0.5), "scale")
    q, k, v = (b.add(MatMul(), [x, of[w]], [f"p{w}"], f"p{w}") for w in ("wq", "wk", "wv"))
    keys = b.add(Transpose(perm=(0, 2, 1)), [k], ["kt"], "kt")
    scores = b.add(MatMul(), [b.add(Mul(), [q, scale], ["qs"], "qs"), keys], ["s"], "scores")
    mixed = b.add(MatMul(), [b.add(Softmax(), [scores], ["p"], "p"), v], ["m"], "mixed")
    return b.graph([b.add(MatMul(), [mixed, of["wo"]], ["y"], "out")]), weights


def in_tf32(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return predicted(ROUTES["cuBLAS, TF32 allowed"], a, b).astype(np.float32)


def attend(w: dict[str, np.ndarray], x: np.ndarray, factor: float = 1.0) -> np.ndarray:
    """Linear layers in TF32, attention in float32."""
    q, k, v = (in_tf32(x, w[name]) for name in ("wq", "wk", "wv"))
    scores = (q * np.float32(factor * HIDDEN**-0.5)) @ k.transpose(0, 2, 1)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return in_tf32((p / p.sum(-1, keepdims=True)) @ v, w["wo"])


def tokens() -> np.ndarray:
    rng = np.random.default_rng(SEED + 1)
    return rng.standard_normal((3, TOKENS, WIDTH)).astype(np.float32)


def test_attention_in_float32_beside_tf32_is_precision() -> None:
    graph, weights = attention()
    verdict = judge(graph, tokens(), y=attend(weights, tokens()))
    assert verdict.kind is Kind.precision, verdict.reasons
    (finding,) = verdict.outputs
    assert finding.precision is not None and finding.precision.confirmed
    assert "TF32 inputs with m, s in float32" in finding.reason


def test_a_wrong_scale_among_tf32_layers_is_a_mistake() -> None:
    graph, weights = attention()
    assert judge(graph, tokens(), y=attend(weights, tokens(), 1.02)).kind is Kind.mistake


# ------------------------------------------------------------------------------------- autocast
class Block(torch.nn.Module):
    """Convolutions, BatchNorm, a skip connection, a norm and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 13, 3, stride=2, padding=1)
        self.norm = torch.nn.BatchNorm2d(13)
        self.second = torch.nn.Conv2d(13, 13, (1, 3), padding=(0, 1))
        self.layer_norm = torch.nn.LayerNorm(13)
        self.last = torch.nn.Linear(13, 29)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm(self.first(x)))
        y = y + self.second(y)
        return self.last(self.layer_norm(y.flatten(2).transpose(1, 2)))


@pytest.fixture(scope="module")
def block() -> tuple[Block, torch.Tensor]:
    torch.manual_seed(SEED)
    net = Block().eval()
    with torch.no_grad():
        net.norm.running_mean.normal_(0, 0.3)
        net.norm.running_var.uniform_(0.5, 2)
    return net, torch.randn(2, 3, 12, 10)


def autocast_output(net: Block, x: torch.Tensor) -> np.ndarray:
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        return net(x).float().numpy()


def test_autocast_is_recognized_from_the_output_alone(block: tuple[Block, torch.Tensor]) -> None:
    net, x = block
    model = verax.load(net, inputs=x)
    (name,) = model.graph.outputs
    verdict = verax.check(model, {name: autocast_output(net, x)}, x.numpy(), explain=False)
    assert verdict.kind is Kind.precision, verdict.reasons
    precision = verdict.outputs[0].precision
    assert precision is not None and precision.confirmed and precision.format.startswith("bf16")


def test_a_wrong_epsilon_under_autocast_is_no_precision(block: tuple[Block, torch.Tensor]) -> None:
    net, x = block
    model = verax.load(net, inputs=x)
    (name,) = model.graph.outputs
    wrong = Block().eval()
    wrong.load_state_dict(net.state_dict())
    wrong.norm.eps = 0.05
    verdict = verax.check(model, {name: autocast_output(wrong, x)}, x.numpy(), explain=False)
    assert verdict.kind is not Kind.precision and verdict.kind is not Kind.rounding


# ---------------------------------------------------------------------------- recurrent networks
def recurrent() -> tuple[Graph, list[np.ndarray], np.ndarray]:
    rng, b = np.random.default_rng(SEED + 2), Builder("lstm")
    x = b.input("x", TensorType.parse("float32[9, 7, 5]"))
    shapes = ((1, 4 * 23, 5), (1, 4 * 23, 23), (1, 8 * 23))
    weights = [rng.uniform(-0.5, 0.5, s).astype(np.float32) for s in shapes]
    names = [b.constant(w, f"w{i}") for i, w in enumerate(weights)]
    added = b.constant(np.zeros((), np.float32), "zero")
    y = b.add(LSTM(hidden_size=23), [x, *names], ["h"], "lstm")
    graph = b.graph([b.add(Add(), [y, added], ["y"], "sum")])
    return graph, weights, rng.standard_normal((9, 7, 5)).astype(np.float32)


def hidden(weights: list[np.ndarray], x: np.ndarray, table: np.ndarray | None) -> np.ndarray:
    wide = [a.astype(np.float64) for a in (x, *weights)]
    types = tuple(TensorType.of(a) for a in wide)
    return recurrent_outputs(LSTM(hidden_size=23), Evaluation(types, types[:1]), wide,
                             RECURRENT[0], table)[0].astype(np.float32)  # fmt: skip


def test_a_table_of_tanh_is_named() -> None:
    graph, weights, x = recurrent()
    table = 2 * drawn_table(np.random.default_rng(SEED + 3))
    verdict = judge(graph, x, y=hidden(weights, x, table))
    assert verdict.kind is Kind.precision, verdict.reasons
    assert verdict.outputs[0].test == TABLE


def test_an_error_of_the_same_size_that_no_table_makes_is_a_mistake() -> None:
    graph, weights, x = recurrent()
    wrong = [w.copy() for w in weights]
    wrong[1] *= np.float32(1 + 2e-5)
    assert judge(graph, x, y=hidden(wrong, x, None)).kind is Kind.mistake


# ------------------------------------------------------------------ few numbers, and who gave them
def chain() -> tuple[Graph, list[np.ndarray], np.ndarray]:
    """Seven products one after another, of which ten numbers are shown."""
    rng, b = np.random.default_rng(SEED + 4), Builder("chain")
    h = b.input("x", TensorType.parse("float32[2, 48]"))
    weights = [
        (rng.standard_normal((48, 5 if i == 6 else 48)) / 7).astype(np.float32) for i in range(7)
    ]
    for i, w in enumerate(weights):
        h = b.add(MatMul(), [h, b.constant(w, f"w{i}")], [f"h{i}"], f"layer{i}")
    return b.graph([h]), weights, rng.standard_normal((2, 48)).astype(np.float32)


def some_in_tf32(weights: list[np.ndarray], x: np.ndarray) -> np.ndarray:
    for i, w in enumerate(weights):
        x = in_tf32(x, w) if i in (1, 2, 4) else x @ w
    return x


def test_ten_numbers_in_tf32_here_and_there_are_precision_by_their_size() -> None:
    graph, weights, x = chain()
    verdict = judge(graph, x, h6=some_in_tf32(weights, x))
    assert verdict.kind is Kind.precision, verdict.reasons
    precision = verdict.outputs[0].precision
    assert precision is not None and not precision.confirmed


def test_the_same_numbers_of_a_processor_are_a_mistake() -> None:
    graph, weights, x = chain()
    subject = ArraysRunner({"h6": some_in_tf32(weights, x)})
    subject.capabilities = dataclasses.replace(subject.capabilities, any_device=False)
    assert check(graph, subject, {"x": x}, explain=False).kind is not Kind.precision


def test_ten_numbers_beyond_what_tf32_makes_are_a_mistake() -> None:
    graph, weights, x = chain()
    wrong = [w * np.float32(1.1) if i == 3 else w for i, w in enumerate(weights)]
    assert judge(graph, x, h6=some_in_tf32(wrong, x)).kind is Kind.mistake


# ------------------------------------------------------------------------------ declared 16 bits
def test_a_network_of_16_bits_is_followed_bit_by_bit(block: tuple[Block, torch.Tensor]) -> None:
    net, x = block
    short = Block().eval()
    short.load_state_dict(net.state_dict())
    short = short.to(torch.bfloat16)
    given = x.to(torch.bfloat16)
    model = verax.load(short, inputs=given)
    (name,) = model.graph.outputs
    inputs = given.view(torch.int16).numpy().view(ml_dtypes.bfloat16)

    def answer(eps: float) -> np.ndarray:
        short.norm.eps = eps
        with torch.no_grad():
            y = short(given)
        return y.view(torch.int16).numpy().view(ml_dtypes.bfloat16)

    whole = region_of(model.graph, [name])
    assert whole is not None
    region = dataclasses.replace(whole, hidden=whole.hidden - {name})
    arrays = {**model.graph.constants, model.graph.inputs[0]: inputs}

    def followed(eps: float) -> Reproduced | None:
        sampler = Sampler(model.graph, region, arrays, SEED)
        return reproduced_as_declared(sampler, {name: answer(eps).astype(np.float64)})

    right = followed(1e-5)
    assert right is not None and right.equal > 0.9 * right.elements and right.left < 0.5
    assert followed(0.02) is None
