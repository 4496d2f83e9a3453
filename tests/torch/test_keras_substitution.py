"""Layers of Keras 3 on its torch backend exchanged: with Keras in a process of its own, and with a
stand-in for it that needs none."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import types
from typing import Any

import numpy as np
import pytest

from verax.base.errors import UsageError
from verax.records.verdict import Kind

torch = pytest.importorskip("torch", reason="torch is not installed")
nn, F = torch.nn, torch.nn.functional
import verax.torch as vt  # noqa: E402  (needs torch)

FINE = (Kind.identical, Kind.rounding)
WITH_KERAS = '''
import keras, numpy as np, torch, verax.torch as vt
F, L = torch.nn.functional, keras.layers
keras.utils.set_random_seed(3)
block = keras.Sequential([L.Dense(6, name="inner"), L.ReLU()], name="block")
net = keras.Sequential([
    keras.Input((6, 7, 2)), L.Conv2D(3, 3, strides=2, name="first"),
    L.BatchNormalization(name="norm"), L.Flatten(), block, L.Dropout(0.3), L.Dense(5, name="head"),
])
x, y = torch.randn(4, 6, 7, 2), torch.tensor([0, 3, 4, 1])

def conv(x, kernel, bias, strides):
    x, kernel = x.transpose(0, 3, 1, 2), kernel.transpose(3, 2, 0, 1)
    found = F.conv2d(*map(torch.tensor, (x, kernel, bias)), stride=strides)
    return found.numpy().transpose(0, 2, 3, 1)

def dense(x, kernel, bias):
    return x @ kernel + bias

def wrong(x, kernel, bias):
    return x @ kernel + 1.001 * bias + 1e-3

moving = net.get_layer("norm").moving_mean
before = moving.numpy().copy()
with vt.substitute(net, {"first": conv, "norm": vt.reference, "block.inner": dense}) as run:
    F.cross_entropy(net(x, training=True), y).backward()
print(*(f"{name} {v.kind}" for name, v in run.verdicts.items()))
print(*run.gradients["first"], *run.gradients["norm"])
assert all(v.value.grad is not None for v in net.trainable_variables)
once = 0.99 * before + 0.01 * F.conv2d(
    x.permute(0, 3, 1, 2), net.layers[0].kernel.value.permute(3, 2, 0, 1),
    net.layers[0].bias.value, stride=2).mean((0, 2, 3)).detach().numpy()
np.testing.assert_allclose(moving.numpy(), once, rtol=1e-4, atol=1e-7)
assert abs(run.loss.before - run.loss.after) < 1e-5
assert "call" not in vars(net) and not any("call" in vars(layer) for layer in net.layers)
net.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
with vt.substitute(net, {"first": conv, "head": wrong}) as run:
    net.fit(x.numpy(), y.numpy(), epochs=2, verbose=0)
print(*(f"{name} {v.kind}" for name, v in run.verdicts.items()), run.layers["first"].runs)
'''  # fmt: skip


def test_a_model_of_keras_on_torch_trains_with_its_layers_exchanged() -> None:
    if importlib.util.find_spec("keras") is None:
        pytest.skip("keras is not installed")
    found = subprocess.run(
        [sys.executable, "-c", WITH_KERAS], capture_output=True, text=True, timeout=300,
        env={**os.environ, "KERAS_BACKEND": "torch"},
    )  # fmt: skip
    assert found.returncode == 0, found.stderr[-2000:]
    assert found.stdout.split("\n")[:3] == [
        "first rounding norm identical block.inner rounding",
        "kernel bias inputs gamma beta",
        "first rounding head mistake 2",
    ]


class Variable:
    """As Keras keeps a weight."""

    def __init__(self, path: str, tensor: Any, trainable: bool = True) -> None:
        self.path, self.name, self.trainable = path, path.rpartition("/")[2], trainable
        self.held = nn.Parameter(tensor, requires_grad=trainable)

    @property
    def value(self) -> Any:
        return self.held if Scope.now is None else Scope.now.get_current_value(self)

    def assign(self, tensor: Any) -> None:
        if Scope.now is None:
            with torch.no_grad():
                self.held.copy_(tensor)
        else:
            Scope.now.values[id(self)] = tensor


class Scope:
    """keras.StatelessScope: other values for variables, and what is assigned to them."""

    now: Any = None

    def __init__(self, state_mapping: Any) -> None:
        self.values = {id(v): tensor for v, tensor in state_mapping}

    def __enter__(self) -> Scope:
        Scope.now = self
        return self

    def __exit__(self, *error: Any) -> None:
        Scope.now = None

    def get_current_value(self, variable: Any) -> Any:
        return self.values.get(id(variable))


class Layer(nn.Module):
    """keras.Layer as far as it matters here: it computes by `call`, and its weights are variables
    that PyTorch does not know by their names."""

    def __init__(self, name: str, *variables: Variable, layers: Any = ()) -> None:
        super().__init__()
        self.name = self.path = name
        self._layers = list(layers)
        self.own = variables

    @property
    def variables(self) -> list[Variable]:
        return [*self.own, *(v for layer in self._layers for v in layer.variables)]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(*args, **kwargs)


class Scaled(Layer):
    """Scales by a kernel, and counts its calls in a variable that is not trained."""

    def call(self, x: Any, training: bool = False) -> Any:
        kernel, count = self.own
        if training:
            count.assign(count.value + 1)
        return x * kernel.value.to(x.device)


class Net(Layer):
    def call(self, x: Any, training: bool = False) -> Any:
        for layer in self._layers:
            x = layer(x, training=training)
        return x


def network() -> Net:
    rng = np.random.default_rng(5)
    layers = [
        Scaled(
            name,
            Variable(f"{name}/kernel", torch.from_numpy(rng.standard_normal(3, np.float32))),
            Variable(f"{name}/count", torch.zeros(()), trainable=False),
        )
        for name in ("first", "second")
    ]
    return Net("net", layers=layers)


@pytest.fixture
def keras(monkeypatch: pytest.MonkeyPatch) -> Any:
    made: Any = types.ModuleType("keras")
    made.Layer, made.StatelessScope = Layer, Scope
    monkeypatch.setitem(sys.modules, "keras", made)
    return made


def test_layers_that_compute_by_call_are_exchanged_with_their_variables(keras: Any) -> None:
    net, x = network(), torch.from_numpy(np.random.default_rng(6).standard_normal((4, 3), "f4"))

    def scaled(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
        return x * kernel

    with vt.substitute(net, {"first": scaled, "sec*": vt.reference}) as run:
        net(x, training=True).sum().backward()
        first, second = net._layers
        assert [float(layer.own[1].value) for layer in net._layers] == [1, 1]
        meta = net(x.to("meta"))
    assert meta.is_meta and {name: one.runs for name, one in run.layers.items()} == {
        "first": 1, "second": 1,
    }  # fmt: skip
    assert run.kind in FINE and set(run.gradients["first"]) == {"kernel"}
    wanted = (x * second.own[0].value).sum(0)
    torch.testing.assert_close(first.own[0].held.grad, wanted.detach())
    assert not any("call" in vars(layer) for layer in (net, first, second))


def test_what_is_no_network_of_pytorch_is_refused(keras: Any) -> None:
    keras.Layer = type("Elsewhere", (), {})
    with pytest.raises(UsageError, match="run on another backend than PyTorch"):
        vt.substitute(keras.Layer(), {"first": vt.reference})
    with pytest.raises(UsageError, match="layers of a dict cannot be exchanged"):
        vt.substitute({}, {"first": vt.reference})
