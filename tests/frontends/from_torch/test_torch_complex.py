"""Fourier transforms and complex numbers as pairs, against PyTorch in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch_programs import torch

import verax
import verax.torch
from verax.base.errors import VeraxError


def drawn(*shape: int, seed: int = 3) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


class Calls(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        self.turns = torch.nn.Buffer(torch.polar(torch.ones(6, 3), torch.arange(18.0).view(6, 3)))

    def forward(self, *arguments: Any) -> Any:
        return self.function(self, *arguments)


fft = torch.fft
REAL, WINDOW = (3, 6, 5), torch.hann_window(6, dtype=torch.float64)
CASES: dict[str, Any] = {
    "fftn": lambda m, x: fft.fftn(x, dim=(1, 2)).real,
    "fft": lambda m, x: fft.fft(x, dim=1).abs(),
    "fft, cut": lambda m, x: torch.view_as_real(fft.fft(x, n=4, dim=1, norm="ortho")),
    "fft, longer": lambda m, x: torch.view_as_real(fft.fft(x, n=9, norm="forward")),
    "fft of fft": lambda m, x: torch.view_as_real(fft.fft(fft.fft(x), dim=0)),
    "rfft": lambda m, x: torch.view_as_real(fft.rfft(x, dim=1)),
    "rfft2": lambda m, x: torch.view_as_real(fft.rfft2(x, norm="ortho")),
    "rfftn, odd": lambda m, x: torch.view_as_real(fft.rfftn(x, s=(4, 7), dim=(0, 2))),
    "irfft": lambda m, x: fft.irfft(fft.rfft(x, dim=1), dim=1),
    "irfft, odd": lambda m, x: fft.irfft(fft.rfft(x) * 2.0, n=5, norm="ortho"),
    "irfft, cut": lambda m, x: fft.irfft(fft.rfft(x, dim=1), n=4, dim=1),
    "irfft, longer": lambda m, x: fft.irfft(fft.rfft(x, dim=1), n=11, dim=1),
    "irfftn": lambda m, x: fft.irfftn(fft.rfftn(x), s=(3, 6, 5)),
    "irfft2": lambda m, x: fft.irfft2(fft.rfft2(x), norm="forward"),
    "ifft": lambda m, x: fft.ifft(torch.complex(x, 1 - x), dim=0).imag,
    "ifftn": lambda m, x: torch.angle(fft.ifftn(torch.complex(x, x.sin()))),
    "shifted": lambda m, x: torch.view_as_real(fft.fftshift(fft.fft2(x))[:, 1:-1].roll(1, 0)),
    "power": lambda m, x: (fft.rfft2(x) * fft.rfft2(x).conj()).real,
    "sums": lambda m, x: torch.view_as_real((fft.fft(x) + x - fft.fft(x, dim=1)) / 3 * x),
    "moved": lambda m, x: torch.view_as_real(
        torch.cat([fft.fft(x).transpose(0, -1), -fft.fft(x).permute(2, 1, 0)], 1).flatten(1)[0]
    ),
    "rotary": lambda m, x: torch.view_as_real(
        torch.view_as_complex(x.flatten()[:72].reshape(2, 6, 3, 2)) * m.turns
    ).flatten(2),
    "spectrogram": lambda m, x: torch.stft(
        x.flatten(1), 6, hop_length=3, window=WINDOW, return_complex=True
    ).abs(),
    "stft, narrow window": lambda m, x: torch.view_as_real(
        torch.stft(x.flatten(1), 8, win_length=5, center=False, normalized=True,
                   return_complex=True, onesided=False)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore:stft with return_complex")
def test_complex_numbers_mean_what_pytorch_computes(name: str) -> None:
    net, x = Calls(CASES[name]).double(), drawn(*REAL)
    net.turns = torch.polar(torch.ones(6, 3).double(), torch.arange(18.0).double().view(6, 3))
    model = verax.load(net, inputs=(x,))
    (given,) = verax.reference(model, dict(zip(model.inputs, [x.numpy()]))).values()
    np.testing.assert_allclose(given, net(x).numpy(), rtol=1e-9, atol=1e-11)


def test_a_fourier_network_runs_natively_within_rounding() -> None:
    net = Calls(lambda m, x: fft.irfft2(fft.rfft2(x) * fft.rfft2(x)) + fft.fftn(x).real)
    x = drawn(3, 6, 8).float()
    exe = verax.compile(net, x)
    torch.testing.assert_close(exe(x), net(x), rtol=1e-4, atol=1e-4)
    assert not exe.plan.on_reference
    assert str(verax.check(net, "torch", x).kind) in ("rounding", "identical")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda m, x: fft.fft(x).exp().real, "complex::exp"),
        (lambda m, x: (x / fft.fft(x)).real, "division by complex"),
        (lambda m, x: fft.fft(x, n=(1 << 20) + 1).real, "a transform of 1048577 elements"),
    ],
)
def test_what_is_lacking_is_refused_by_name(function: Any, said: str) -> None:
    with pytest.raises(VeraxError, match=said):
        verax.load(Calls(function), inputs=(drawn(2, 3, 4),))


def test_complex_inputs_and_outputs_are_pairs() -> None:
    net = Calls(lambda m, x, y: {"sum": fft.fft(x) + y, "size": y.abs()})
    x, y = drawn(4, 3).float(), torch.complex(drawn(4, 3), drawn(4, 3, seed=5)).to(torch.complex64)
    wanted = net(x, y)
    model = verax.load(net, inputs=(x, y))
    assert model.graph.types[list(model.inputs)[1]].dims == (4, 3, 2)
    exe = verax.compile(net, (x, y))
    torch.testing.assert_close(exe(x, y), wanted)
    assert str(verax.check(net, "torch", (x, y)).kind) in ("rounding", "identical")
    with torch.no_grad():
        given = torch.compile(net, backend="verax")(x, y)
    torch.testing.assert_close(given, wanted)
