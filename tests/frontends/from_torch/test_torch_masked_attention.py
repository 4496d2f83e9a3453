"""A query that may attend to nothing: PyTorch's attention gives zeros, and so do the reference, the
compiled code of every level, and what is written as ONNX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import verax
from verax.export.onnx.writer import to_onnx
from verax.frontends.onnx import load_onnx
from verax.records.verdict import Kind

torch = pytest.importorskip("torch", reason="torch is not installed")
F = torch.nn.functional
BATCH, HEADS, QUERIES, KEYS, FEATURES = 2, 4, 7, 9, 16


class Attention(torch.nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **self.options)


class Decomposed(torch.nn.Module):
    """As PyTorch's own decomposition has it."""

    def forward(self, q: Any, k: Any, v: Any, mask: Any) -> Any:
        scores = torch.matmul(q, k.mT) * 0.25 + mask
        return torch.matmul(torch.ops.aten._safe_softmax(scores, -1), v)


def shown() -> Any:
    """Queries 4.. of the second sample see nothing, others some keys."""
    keep = torch.rand(BATCH, 1, QUERIES, KEYS, generator=torch.Generator().manual_seed(3)) < 0.6
    keep[..., 2] = True
    keep[1, :, 4:] = False
    return keep


def added(low: float) -> Any:
    keep = shown()
    return torch.zeros(keep.shape).masked_fill(~keep, low)


def drawn(heads: int = HEADS, dtype: Any = None) -> list[Any]:
    """Queries, keys and values, these with `heads` heads."""
    g = np.random.default_rng(20)
    shapes = (BATCH, HEADS, QUERIES), (BATCH, heads, KEYS), (BATCH, heads, KEYS)
    found = [g.standard_normal((*s, FEATURES), dtype=np.float32) for s in shapes]
    return [torch.from_numpy(x).to(dtype or torch.float32) for x in found]


def smallest() -> float:
    return float(torch.finfo(torch.float32).min)


CASES: dict[str, tuple[Callable[[], Any], Callable[[], list[Any]], bool]] = {
    "truths": (Attention, lambda: [*drawn(), shown()], True),
    "minus infinity": (Attention, lambda: [*drawn(), added(-np.inf)], True),
    "the smallest float": (Attention, lambda: [*drawn(), added(smallest())], False),
    "shared heads": (lambda: Attention(enable_gqa=True), lambda: [*drawn(2), shown()], True),
    "decomposed": (Decomposed, lambda: [*drawn(), added(-np.inf)], True),
}
"""(module, arguments, whether hidden queries give zeros)."""


def answers(module: Any, arguments: list[Any]) -> tuple[np.ndarray, dict[str, np.ndarray], Any]:
    """What PyTorch gives; what the reference and the levels give; the model."""
    with torch.no_grad():
        wanted = module(*arguments).to(torch.float32).numpy()
    model = verax.load(module.eval(), inputs=tuple(arguments))
    inputs = dict(zip(model.inputs, (t.numpy() for t in arguments)))
    found = {"reference": verax.reference(model, inputs)} | {
        f"O{level}": verax.compile(model, opt_level=level).run(inputs) for level in (1, 3)
    }
    return wanted, {n: next(iter(o.values())) for n, o in found.items()}, (model, inputs)


@pytest.mark.parametrize("name", CASES)
def test_the_answers_are_pytorchs(name: str) -> None:
    make, arguments, zeros = CASES[name]
    wanted, found, (model, inputs) = answers(make(), arguments())
    assert (wanted[1, :, 4:] == 0).all() == zeros and np.isfinite(wanted).all()
    for level, y in found.items():
        np.testing.assert_allclose(y, wanted, rtol=2e-6, atol=2e-6, err_msg=level)
    if zeros:
        verdict = verax.check(model, "torch", inputs)
        assert verdict.kind in (Kind.rounding, Kind.identical), verdict


@pytest.mark.parametrize("name", CASES)
def test_the_onnx_file_keeps_it(name: str) -> None:
    """ONNX Runtime runs it to the same answers; read again, it is one operator again."""
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    make, arguments, _ = CASES[name]
    wanted, _, (model, inputs) = answers(make(), arguments())
    written = to_onnx(model.graph).SerializeToString()
    session = onnxruntime.InferenceSession(written, providers=["CPUExecutionProvider"])
    (y,) = session.run(None, inputs)
    np.testing.assert_allclose(y, wanted, rtol=2e-6, atol=2e-6)
    exe = verax.compile(load_onnx(written), opt_level=1)
    np.testing.assert_allclose(next(iter(exe.run(inputs).values())), wanted, rtol=2e-6, atol=2e-6)
    assert any(n.op.kind == "Attention" for n in exe.specialized.graph.nodes)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
def test_other_floats(dtype: str) -> None:
    kind = getattr(torch, dtype)
    q, k, v = drawn(dtype=kind)
    module, mask = Attention().eval(), shown()
    wanted = module(q, k, v, mask).to(torch.float64).numpy()
    model = verax.load(module, inputs=(q, k, v, mask))
    wide = [x.to(torch.float64).numpy() for x in (q, k, v)]
    numbers = [
        x.astype(model.graph.types[n].dtype.numpy) for n, x in zip(model.inputs, wide, strict=False)
    ]
    inputs = dict(zip(model.inputs, [*numbers, mask.numpy()]))
    for run in (verax.reference(model, inputs), verax.compile(model, opt_level=1).run(inputs)):
        y = next(iter(run.values())).astype(np.float64)
        np.testing.assert_allclose(y, wanted, rtol=0.05, atol=0.02)
        assert not y[1, :, 4:].any()


def test_fewer_keys_than_queries_hide_nobody_whole() -> None:
    """is_causal counts from the first key, so that every query sees that one."""
    q, k, v = drawn()
    wanted, found, _ = answers(Attention(is_causal=True), [q, k[:, :, :3], v[:, :, :3]])
    for level, y in found.items():
        np.testing.assert_allclose(y, wanted, rtol=2e-6, atol=2e-6, err_msg=level)


def test_no_key_at_all_gives_zeros() -> None:
    q, k, v = drawn()
    wanted, found, _ = answers(Attention(), [q, k[:, :, :0], v[:, :, :0]])
    assert not wanted.any()
    for level, y in found.items():
        np.testing.assert_array_equal(y, wanted, err_msg=level)


def test_a_mask_that_is_known_to_show_something_needs_no_zeros() -> None:
    class Known(torch.nn.Module):
        def __init__(self, keep: Any) -> None:
            super().__init__()
            self.register_buffer("keep", keep)

        def forward(self, q: Any, k: Any, v: Any) -> Any:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=self.keep)

    for keep, safe in ((shown(), True), (shown()[:1], False)):
        q, k, v = drawn()
        model = verax.load(Known(keep).eval(), inputs=(q, k, v))
        (softmax,) = (n.op for n in model.graph.nodes if n.op.kind == "Softmax")
        assert softmax.masked_to_zero == safe
