"""Calls of operators on complex numbers, each of which gives real ones in the end."""

from __future__ import annotations

from typing import Any

from torch_programs import torch

fft, aten = torch.fft, torch.ops.aten
pairs = torch.view_as_real


def draw(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


X = draw(2, 3, 6)
IMAGE = draw(3, 4, 2, seed=5)
WINDOW = torch.hann_window(4)


def _stored(x: Any) -> Any:
    """Operators that change how numbers are stored, not what they are."""
    z = aten.resolve_neg(aten.resolve_conj(aten.detach(aten.alias(fft.fft(x)))))
    return pairs(aten.lift_fresh_copy(aten.clone(z)))


def _moved(x: Any) -> Any:
    z = aten.view(fft.fft(x), [3, 2, 6]).reshape(2, 3, 6).unsqueeze(-2)
    z = aten._unsafe_view(z.squeeze(2), [2, 3, 6])
    z = torch.cat([z.transpose(0, -1), z.permute(2, 1, 0)], 1)
    return pairs(z.flatten(1)[1:-1:2].select(1, 2)), pairs(z.roll((1, 2), (0, -1)))


def complex_calls() -> list[Any]:
    return [
        (
            "fft",
            lambda x: (pairs(fft.fft(x, 5, 1, "ortho")), pairs(fft.ifft(x, 7).resolve_conj())),
            X,
        ),
        ("fft2", lambda x: (pairs(fft.fft2(x)), pairs(fft.ifft2(x, (4, 4), norm="forward"))), X),
        ("fftn", lambda x: (fft.fftn(x, dim=(0, 2)).real, fft.ifftn(x, (3, 5)).imag), X),
        ("rfft", lambda x: (pairs(fft.rfft(x)), fft.irfft(fft.rfft(x, dim=0), 2, 0, "ortho")), X),
        ("rfft2", lambda x: (pairs(fft.rfft2(x)), fft.irfft2(fft.rfft2(x), (3, 5))), X),
        ("rfftn", lambda x: (pairs(fft.rfftn(x, (3, 4))), fft.irfftn(fft.rfftn(x))), X),
        (
            "fft_core",
            lambda x: (
                pairs(aten._fft_r2c(x, [1, 2], 0, True)),
                pairs(aten._fft_c2c(aten._fft_r2c(x, [0, 1], 1, False), [2], 2, False)),
                aten._fft_c2r(aten._fft_r2c(x, [1, 2], 0, True), [1, 2], 2, 6),
            ),
            X,
        ),
        (
            "hfft",
            lambda x: (
                fft.hfft(fft.fft(x), 7, 1, "ortho"),
                fft.hfft(x),
                pairs(fft.ihfft(x, 5, norm="forward").resolve_conj()),
                fft.irfft(x, 9),
            ),
            X,
        ),
        (
            "hfft2",
            lambda x: (
                fft.hfft2(fft.fft(x), (3, 6)),
                pairs(fft.ihfft2(x).resolve_conj()),
                fft.hfft2(x),
            ),
            X,
        ),
        (
            "hfftn",
            lambda x: (
                fft.hfftn(fft.fft(x), (3, 5)),
                pairs(fft.ihfftn(x).resolve_conj()),
                fft.hfftn(x),
            ),
            X,
        ),
        ("real_irfft", lambda x: (fft.irfft2(x), fft.irfftn(x, (3, 5), norm="ortho")), X),
        (
            "istft",
            lambda x: torch.istft(
                torch.stft(x, 6, 2, window=torch.ones(6), return_complex=True, normalized=True),
                6,
                2,
                window=torch.ones(6),
                normalized=True,
                length=17,
            ),
            draw(3, 16),
        ),
        (
            "istft_two_sided",
            lambda x: torch.istft(
                torch.stft(x, 6, 2, 4, torch.ones(4), onesided=False, return_complex=True),
                6,
                2,
                4,
                torch.ones(4),
                onesided=False,
            ),
            draw(16),
        ),
        (
            "complex_to",
            lambda x: (
                pairs(x.to(torch.complex64) * x),
                pairs(aten._to_copy(fft.fft(x), dtype=torch.complex128)),
                fft.fft(x).to(torch.float64),
            ),
            X,
        ),
        ("complex_parts", lambda a, b: pairs(torch.complex(a, b)), draw(3, 5), draw(2, 1, 5)),
        (
            "stft",
            lambda x: torch.stft(x, 4, 1, window=WINDOW, center=False, return_complex=True).abs(),
            X[0],
        ),
        ("complex_view", lambda x: pairs(torch.view_as_complex(x) * 2.5), IMAGE),
        ("complex_stored", _stored, X),
        ("complex_moved", _moved, X),
        ("complex_polar", lambda a, b: pairs(torch.polar(a, b) / a), draw(2, 5) + 3, draw(2, 5)),
        ("complex_angle", lambda a, b: torch.angle(torch.complex(a, b)), draw(3, 5), draw(3, 5)),
        (
            "complex_conjugate",
            lambda x: (
                pairs(fft.fft(x) * fft.fft(x).conj()),
                pairs(aten.conj(-fft.fft(x)) * x),
                pairs(aten.conj_physical(fft.fft(x)) - x),
                pairs(aten._conj_physical(fft.fft(x)) + fft.ifft(x)),
            ),
            X,
        ),
        (
            "complex_shifted",
            lambda x: (pairs(fft.fftshift(fft.fft(x), 1)), pairs(fft.ifftshift(fft.fft(x)))),
            X,
        ),
    ]
