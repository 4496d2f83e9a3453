"""Floats of 8 bits in programs of torch.export: weights, conversions, inputs and outputs, against
PyTorch."""

import io

import ml_dtypes
import numpy as np
import pytest

import verax
from verax.base.arrays import as_array, as_tensor
from verax.base.errors import InputError, VeraxError
from verax.frontends.torch import load_torch
from verax.reference.evaluate import evaluate, promised

torch = pytest.importorskip("torch")
KINDS = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]
EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, 448, 464, 465, 480, -480, 57344, 61439, 61440, 65536,
         240, 247, 248, 256, 2.0**-127, 2.0**-128, 2.0**-149, 3e38, 1.5, 3, -1, -2.5,
         1.0625, 1 + 2.0**-4 + 2.0**-40]  # fmt: skip


def loaded(module, *inputs):
    """The module by way of a file."""
    file = io.BytesIO()
    torch.export.save(torch.export.export(module.eval(), inputs), file)
    return load_torch(file.getvalue())


class Weighed(torch.nn.Module):
    """A product with weights of 8 bits; they lie transposed, as exporters of products have them."""

    def __init__(self, kind):
        super().__init__()
        draw = torch.Generator().manual_seed(5)
        weight = torch.randn(5, 7, generator=draw)
        weight = weight.abs() if kind.endswith("nu") else weight
        self.weight = torch.nn.Buffer(weight.to(getattr(torch, kind)).t())
        self.scale = torch.nn.Buffer(torch.rand(7, 1, generator=draw) + 0.5)

    def forward(self, x):
        return x @ (self.weight.to(torch.float32) * self.scale).t()


@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_8_bits_are_read(kind):
    module, x = Weighed(kind), torch.randn(3, 5, generator=torch.Generator().manual_seed(6))
    model = loaded(module, x)
    (name,) = model.inputs
    (found,) = evaluate(model.graph, {name: x.numpy()}).values()
    assert np.allclose(found, module.double()(x.double()).numpy(), rtol=1e-5, atol=1e-5)
    stored = [a for a in model.graph.constants.values() if a.dtype == getattr(ml_dtypes, kind)]
    assert [a.shape for a in stored] == [(7, 5)]


class Converting(torch.nn.Module):
    """To 8 bits, and what that is."""

    def __init__(self, kind):
        super().__init__()
        self.kind = getattr(torch, kind)

    def forward(self, x):
        narrow = x.to(self.kind)
        return narrow, narrow.to(torch.float32), narrow.to(torch.float16)


def drawn(source):
    draw = np.random.default_rng(3)
    values = draw.standard_normal(400) * 10.0 ** draw.integers(-9, 9, 400)
    values = torch.from_numpy(np.concatenate([values, EDGES]))
    if not source.is_floating_point:
        values = values.nan_to_num(nan=5).clamp(-2e9, 2e9)
    return values.to(source).reshape(2, -1)


@pytest.mark.checkered
@pytest.mark.parametrize("source", ["float32", "float16", "bfloat16", "float64", "int32"])
@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_rounded_to_8_bits_as_pytorch_does(kind, source):
    module, x = Converting(kind), drawn(getattr(torch, source))
    model = loaded(module, x)
    (name,) = model.inputs
    given = {name: as_array(x)}
    want = [as_array(v) for v in module(x)]
    for arithmetic in (evaluate, promised):
        for mine, theirs in zip(arithmetic(model.graph, given).values(), want, strict=True):
            wide = [np.asarray(a).astype(np.float32) for a in (mine, theirs)]
            assert np.array_equal(*wide, equal_nan=True)
    made = verax.compile(model.graph).run(given)
    for mine, theirs in zip(made.values(), want, strict=True):
        assert mine.dtype == theirs.dtype
        assert np.array_equal(mine.astype(np.float32), theirs.astype(np.float32), equal_nan=True)


def test_a_program_may_take_8_bits():
    class Module(torch.nn.Module):
        def forward(self, x, y):
            return x.to(torch.float32) * y

    x = torch.tensor([[1.5, -2, 448], [0.25, 16, 3]]).to(torch.float8_e4m3fn)
    y = torch.tensor([[1.0, 2, 3], [4, 5, 7]])
    model = loaded(Module(), x, y)
    given = dict(zip(model.inputs, (x, y)))
    (found,) = verax.compile(model.graph).run(given).values()
    assert np.array_equal(found, (x.float() * y).numpy())
    assert verax.check(model.graph, {"mul": x.float() * y}, given).kind == "identical"


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_of_8_bits_become_arrays_and_back(kind):
    tensor = torch.tensor([[0.5, 1, 2], [4, 8, 16]]).to(getattr(torch, kind))
    for given in (tensor, tensor.t(), tensor[0, 1]):
        array = as_array(given)
        assert array.dtype.name == kind and array.shape == tuple(given.shape)
        assert array.astype(np.float32).tolist() == given.float().tolist()
        assert torch.equal(as_tensor(array).view(torch.uint8), given.contiguous().view(torch.uint8))


@pytest.mark.parametrize("kind", ["int4", "uint2", "float4_e2m1fn"])
def test_types_that_pytorch_has_not_are_refused_by_name(kind):
    with pytest.raises(InputError, match=kind):
        as_tensor(np.ones((2, 3), getattr(ml_dtypes, kind)))


def test_computing_in_8_bits_is_refused_by_node_and_type():
    class Module(torch.nn.Module):
        def forward(self, x):
            return torch.cat([x.to(torch.float8_e5m2)] * 2).abs()

    with pytest.raises(VeraxError, match="Abs does not compute in float8_e5m2") as caught:
        loaded(Module(), torch.rand(2, 3))
    assert "abs" in caught.value.place
