"""Layers exchanged in a living module: numbers, gradients, verdicts, and everything put back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import verax
from verax.base.errors import UsageError
from verax.records.verdict import Kind

torch = pytest.importorskip("torch", reason="torch is not installed")
nn, F = torch.nn, torch.nn.functional
import verax.torch as vt  # noqa: E402  (needs torch)

FINE = (Kind.identical, Kind.rounding)


def drawn(*shape: int, seed: int = 3) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape, np.float32))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(2, 5, 3, stride=2, padding=1), nn.BatchNorm2d(5), nn.ReLU()
        )
        self.head = nn.Linear(5 * 4 * 3, 6)

    def forward(self, x: Any) -> Any:
        return self.head(F.conv2d(self.body(x), torch.eye(5)[:, :, None, None] * 0.7).flatten(1))


def net(seed: int = 5) -> Any:
    torch.manual_seed(seed)
    return Net()


X, Y = (4, 2, 7, 6), torch.tensor([0, 3, 5, 1])


def numpy_conv(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray, stride: Any, padding: Any
) -> np.ndarray:
    """A convolution tap by tap in float32."""
    (kh, kw), (sh, sw), (ph, pw) = weight.shape[2:], stride, padding
    padded = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    h, w = ((n + 2 * p - k) // s + 1 for n, p, k, s in
            zip(x.shape[2:], padding, weight.shape[2:], stride))  # fmt: skip
    y = np.zeros((x.shape[0], weight.shape[0], h, w), np.float32) + bias[None, :, None, None]
    for i in range(kh):
        for j in range(kw):
            part = padded[:, :, i : i + sh * h : sh, j : j + sw * w : sw]
            y += np.einsum("nchw,oc->nohw", part, weight[:, :, i, j])
    return y


def conv_gradients(
    g: np.ndarray, x: np.ndarray, weight: np.ndarray, stride: Any, padding: Any
) -> dict[str, np.ndarray]:
    (kh, kw), (sh, sw), (ph, pw) = weight.shape[2:], stride, padding
    padded = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    h, w = g.shape[2:]
    dw, dx = np.zeros_like(weight), np.zeros_like(padded)
    for i in range(kh):
        for j in range(kw):
            place = (slice(None), slice(None), slice(i, i + sh * h, sh), slice(j, j + sw * w, sw))
            dw[:, :, i, j] = np.einsum("nohw,nchw->oc", g, padded[place])
            dx[place] += np.einsum("nohw,oc->nchw", g, weight[:, :, i, j])
    return {
        "input": dx[:, :, ph : ph + x.shape[2], pw : pw + x.shape[3]],
        "weight": dw,
        "bias": g.sum((0, 2, 3)),
    }


def trained_step(module: Any, x: Any) -> Any:
    loss = nn.CrossEntropyLoss()(module(x), Y)
    loss.backward()
    return loss


@pytest.mark.parametrize(
    "key", ["body.0", "body.?", nn.Conv2d, lambda name, m: isinstance(m, nn.Conv2d)],
    ids=["name", "pattern", "type", "predicate"],
)  # fmt: skip
def test_a_layer_is_chosen_by_name_type_or_predicate(key: Any) -> None:
    with vt.substitute(net(), {key: vt.reference}) as run:
        run.net(drawn(*X))
    assert "body.0" in run.layers
    assert run.verdicts["body.0"].kind is Kind.identical
    assert len(run.layers) == (3 if key == "body.?" else 1)


def test_it_trains_as_it_did_and_is_put_back() -> None:
    mine, same, x = net(), net(), drawn(*X)
    optimizer = torch.optim.SGD(mine.parameters(), 0.1)
    with vt.substitute(mine, {"body.0": numpy_conv, nn.BatchNorm2d: vt.reference}) as run:
        trained_step(mine, x)
        optimizer.step()
    trained_step(same, x)
    torch.optim.SGD(same.parameters(), 0.1).step()
    for a, b in zip(mine.state_dict().values(), same.state_dict().values()):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    assert run.verdicts["body.0"].kind in FINE and run.kind in FINE
    assert run.layers["body.0"].derived.startswith("vector-Jacobian products")
    assert run.loss.before == pytest.approx(run.loss.after, rel=1e-5)
    assert run.accuracy.before == run.accuracy.after
    assert 0 < run.layers["body.0"].drift < 1e-6
    assert not any("forward" in vars(m) for m in mine.modules())
    assert "body.0 (Conv2d) by the function numpy_conv" in str(run)


def test_everything_is_put_back_after_an_exception() -> None:
    mine = net()

    def broken(x: np.ndarray) -> np.ndarray:
        raise ValueError("no")

    with pytest.raises(UsageError, match="ValueError: no"), vt.substitute(mine, {"head": broken}):
        mine(drawn(*X))
    assert not any("forward" in vars(m) for m in mine.modules())
    torch.testing.assert_close(mine(drawn(*X)), net()(drawn(*X)))
    assert torch.overrides._get_current_function_mode() is None


def test_functional_calls_are_caught() -> None:
    mine = net()

    def ones_by_ones(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return np.einsum("nchw,oc->nohw", x, weight[:, :, 0, 0])

    caught = []

    def convolution(x: np.ndarray, weight: np.ndarray, *rest: Any) -> np.ndarray:
        caught.append(weight.shape)
        return numpy_conv(x, weight, rest[0], *rest[1:3]) if rest else ones_by_ones(x, weight)

    with vt.substitute(mine, {F.conv2d: convolution}) as run:
        trained_step(mine, drawn(*X))
    assert caught == [(5, 2, 3, 3), (5, 5, 1, 1)]
    assert list(run.layers) == ["conv2d 0", "conv2d 1"]
    assert all(v.kind in FINE for v in run.verdicts.values())
    assert mine.body[0].weight.grad is not None


def wrong_tap(x: Any, weight: Any, bias: Any, stride: Any, padding: Any) -> Any:
    weight = weight.copy()
    weight[2, 1, 0, 2] *= 1.001
    return numpy_conv(x, weight, bias, stride, padding)


def test_a_wrong_tap_is_a_mistake_by_name() -> None:
    mine = net()
    with vt.substitute(mine, {"body.0": wrong_tap}) as run:
        mine(drawn(*X))
    (blame,) = run.verdicts["body.0"].blame
    said = " ".join([*(e.words for e in blame.explanations), *blame.structure])
    assert run.verdicts["body.0"].kind is Kind.mistake and "channel 2" in said


@pytest.mark.parametrize("fault", ["", "bias", "averaged"])
def test_gradients_of_the_replacement_are_judged(fault: str) -> None:
    def gradients(g: Any, x: Any, weight: Any, stride: Any, padding: Any) -> Any:
        found = conv_gradients(g, x, weight, stride, padding)
        if fault == "bias":
            del found["bias"]
        if fault == "averaged":
            found["weight"] /= len(x)
        return found

    mine = net()
    pair = (numpy_conv, gradients)
    with vt.substitute(mine, {"body.0": pair}, backward="own") as run:
        trained_step(mine, drawn(*X).requires_grad_())
    found = run.gradients["body.0"]
    kinds = {name: one.kind for name, one in found.items()}
    wrong = {"bias": "bias", "averaged": "weight"}.get(fault)
    assert set(kinds) == {"input", "weight", "bias"}
    assert {n for n, k in kinds.items() if k not in FINE} == ({wrong} if wrong else set())
    if wrong:
        words = {"bias": "left out", "averaged": "averaged over the batch instead of summed"}
        assert found[wrong].kind is Kind.mistake and found[wrong].words == words[fault]


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv1d(3, 4, 3, padding=2, dilation=2), (2, 3, 7)),
        (nn.Conv2d(4, 6, (3, 2), stride=2, groups=2), (2, 4, 7, 6)),
        (nn.ConvTranspose2d(3, 2, 3, stride=2, output_padding=1, padding=1), (2, 3, 4, 3)),
        (nn.Linear(5, 3), (2, 4, 5)),
        (nn.BatchNorm2d(3), (4, 3, 2, 5)),
        (nn.BatchNorm2d(3).eval(), (4, 3, 2, 5)),
        (nn.LayerNorm(5), (3, 5)),
        (nn.GroupNorm(2, 4), (2, 4, 3)),
        (nn.InstanceNorm1d(3, affine=True), (2, 3, 4)),
        (nn.GELU(), (3, 4)),
        (nn.Softmax(-1), (3, 4)),
        (nn.AvgPool2d(2), (2, 3, 4, 6)),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, nn.Module) else "",
)
def test_gradients_by_meaning_pass_gradcheck(layer: Any, shape: tuple[int, ...]) -> None:
    layer = layer.double()
    x = drawn(*shape).double().requires_grad_()
    container = nn.Sequential(layer)
    inputs = (x, *layer.parameters())

    def called(x: Any, *parameters: Any) -> Any:
        return container(x)

    with vt.substitute(container, {"0": vt.reference}, compare=False, calls=0) as run:
        assert torch.autograd.gradcheck(called, inputs)
    assert run.layers["0"].runs > 1
    assert run.layers["0"].derived == "vector-Jacobian products of the meaning"


def test_a_layer_without_a_rule_is_differentiated_by_pytorch_in_float64_and_that_is_said() -> None:
    x = drawn(3, 4).requires_grad_()

    class Sums(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.cumsum(x, 1)

    container = nn.Sequential(Sums())
    with vt.substitute(container, {"0": vt.reference}) as run:
        (container(x) * drawn(3, 4, seed=4)).sum().backward()
    torch.testing.assert_close(x.grad, drawn(3, 4, seed=4).flip(1).cumsum(1).flip(1))
    assert run.layers["0"].derived == "PyTorch's derivatives in float64"


class Other(nn.Module):
    def __init__(self, conv: Any) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Any) -> Any:
        return self.conv(x)


def test_other_kinds_of_replacements() -> None:
    mine, x = net().eval(), drawn(*X)
    conv = mine.body[0]
    wanted = mine(x)
    program = verax.compile(conv, inputs=(x,))
    kinds = {
        "promised bits": vt.reference.promised,
        "perturbed": vt.perturbed(7),
        "program": program,
        "runner": "verax:O1",
        "module": Other(net().body[0]),
        "tensors": vt.of_tensors(
            lambda x, weight, bias, stride, padding: F.conv2d(x, weight, bias, stride, padding)
        ),
    }
    for words, kind in kinds.items():
        with vt.substitute(mine, {"body.0": kind}) as run:
            torch.testing.assert_close(mine(x), wanted)
        assert run.verdicts["body.0"].kind in FINE, words


def test_a_module_trains_its_own_parameters_with_its_own_gradients() -> None:
    mine, other = net(), Other(net().body[0])
    with vt.substitute(mine, {"body.0": other}, backward="own", calls=0) as run:
        trained_step(mine, drawn(*X))
    assert other.conv.weight.grad is not None and mine.body[0].weight.grad is None
    assert run.layers["body.0"].runs == 1


def test_what_makes_no_sense_is_refused() -> None:
    mine, x = net(), drawn(*X)
    with pytest.raises(UsageError, match="no layer fits 'boddy"):
        vt.substitute(mine, {"boddy.0": vt.reference})
    with pytest.raises(UsageError, match="a dict cannot stand in the place of a layer"):
        vt.substitute(mine, {"body.0": {}})
    with pytest.raises(UsageError, match="backward is 'none'"):
        vt.substitute(mine, {"body.0": vt.reference}, backward="none")
    for given, said in (
        (lambda x, kernel: x, "asks for 'kernel'"),
        (lambda x: np.zeros(1), r"it gave the shape \(1,\)"),
    ):
        with pytest.raises(UsageError, match=said), vt.substitute(mine, {"body.0": given}):
            mine(x)
    pair = vt.substitute(mine, {"body.0": numpy_conv}, backward="own")
    with pytest.raises(UsageError, match="has no gradients of its own"), pair:
        trained_step(mine, x)
