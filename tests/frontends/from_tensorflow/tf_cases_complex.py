"""Graphs of operators on complex numbers, and the front ends of networks on sound.

No input is complex: pairs of real inputs become complex numbers in the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tf_cases import draw, raw, tf

RE, IM = draw(2, 3, 5, 8, seed=21), draw(2, 3, 5, 8, seed=22)
RE2, IM2 = draw(2, 3, 5, 8, seed=23), draw(2, 3, 5, 8, seed=24)
SOUND = draw(2, 400, seed=25)
AXES = (
    np.array([[-2.5, -0.5, 0.0, 3.0, -2.5, -0.5, 0.0, 3.0, -1e30, 2e-30, -3.0]], np.float32),
    np.array([[0.0, -0.0, 0.0, -0.0, 1e-9, -1e-9, -2.0, 1.5, 1e30, -1e-30, -4.0]], np.float32),
)
"""Numbers on the axes, on both sides of the negative one, and of extreme sizes."""
signal = tf.signal


def of(function: Callable[..., Any]) -> tuple[Any, ...]:
    """A case of a function of two complex tensors."""
    return (
        lambda a, b, p, q: function(tf.complex(a, b), tf.complex(p, q)), RE, IM, RE2, IM2
    )  # fmt: skip


def bins(x: Any) -> Any:
    return signal.stft(x, frame_length=60, frame_step=25, fft_length=64, pad_end=True)


def mel(x: Any) -> Any:
    """Logarithms on the scale of Mel, of sizes."""
    weights = signal.linear_to_mel_weight_matrix(13, 33, 8000, 60.0, 3600.0)
    return tf.math.log(tf.tensordot(tf.abs(bins(x)), weights, 1) + 1e-3)


def moved(a: Any, b: Any) -> list[Any]:
    joined = tf.concat([a, b[:, 1:]], 1)
    chosen = tf.where(tf.math.real(a) > 0, a, b)
    first, second = tf.split(joined[..., :6], 2, -1)
    turned = tf.transpose(tf.reshape(first, [5, -1, 3]), [2, 0, 1])
    padded = tf.pad(second[:, :2], [[0, 0], [1, 0], [0, 2], [0, 0]], constant_values=1 - 2j)
    stacked = tf.stack([a[0], tf.reverse(b[1], [1])], 1)
    return [turned, padded, stacked, tf.gather(chosen, [2, 0], axis=1), tf.squeeze(a[:1], 0)]


def repeated(x: Any) -> Any:
    """Phases made consistent in a loop that is unrolled, as Griffin and Lim do."""
    size = tf.cast(tf.abs(bins(x)), tf.complex64)
    window = signal.inverse_stft_window_fn(25)

    def step(i: Any, z: Any) -> tuple[Any, Any]:
        again = bins(signal.inverse_stft(z, 60, 25, 64, window_fn=window))[:, : size.shape[1]]
        return i + 1, size * again / tf.cast(tf.maximum(1e-6, tf.abs(again)), tf.complex64)

    _, z = tf.while_loop(lambda i, z: i < 2, step, [0, size])
    return signal.inverse_stft(z, 60, 25, 64, window_fn=window)


COMPLEX: dict[str, tuple[Any, ...]] = {
    "complex_parts": (
        lambda a, b: [
            tf.complex(a, b), tf.complex(a, b[:, :1]), raw.ComplexAbs(x=tf.complex(a, b)),
            tf.math.angle(tf.complex(a, b)), tf.math.real(tf.complex(b, a)),
            tf.math.imag(tf.complex(b, a)), tf.math.conj(tf.complex(a, b)),
        ],
        RE, IM,
    ),
    "complex_arithmetic": of(
        lambda a, b: [
            a * b, a / b, raw.Div(x=b, y=a), a + b, a - b, -a, tf.square(a), tf.exp(a),
            tf.math.reciprocal(b), raw.AddN(inputs=[a, b, a]), a * (2 - 0.5j),
            tf.reduce_sum(a, [1, 3]), tf.reduce_mean(b, -1, keepdims=True), tf.cumsum(a, 1),
            tf.equal(a, tf.stack([b[0], a[1]])), tf.not_equal(a, b),
        ]
    ),
    "complex_roots": of(lambda a, b: [tf.math.log(a), tf.sqrt(b)]),
    "complex_axes": (
        lambda a, b: [tf.sqrt(tf.complex(a, b)), tf.math.log(tf.complex(a + 4, b))], *AXES,
    ),
    "complex_powers": of(
        lambda a, b: [a ** b, a ** 2, tf.pow(b, 0.5 - 1j), tf.pow(tf.constant(1.5, a.dtype), a)]
    ),
    "complex_powers_of_zero": (
        lambda x: [tf.pow(tf.complex(x, x), p) for p in (2 - 1j, -0.5 + 1j, 0j)], AXES[0][:, 1:4],
    ),
    "complex_products": of(
        lambda a, b: [
            tf.matmul(a[0, 0], b[1, 1], transpose_a=True),
            raw.MatMul(a=a[1, 2], b=b[0, 0], transpose_b=True),
            raw.BatchMatMulV2(x=a, y=tf.transpose(b, [0, 1, 3, 2])),
            raw.BatchMatMulV2(x=a, y=b[..., :4], adj_x=True),
            raw.BatchMatMulV2(x=a[..., :3, :], y=b, adj_y=True),
            raw.BatchMatMul(x=a[..., :4], y=tf.transpose(b, [0, 1, 3, 2]), adj_x=True, adj_y=True),
            raw.BatchMatMulV3(x=a, y=b, adj_y=True, Tout=tf.complex64),
            tf.einsum("abcd,aecd->abec", a, b[:, 1:]), raw.Einsum(inputs=[a], equation="abcd->cb"),
        ]
    ),
    "complex_movement": of(moved),
    "complex_casts": (
        lambda x, y: [
            tf.cast(x, tf.complex64) * tf.cast(y, tf.complex64),
            tf.cast(tf.complex(x, y), tf.float32),
            tf.math.imag(tf.cast(tf.complex(x, y), tf.complex128) * (1 + 3j)),
            tf.shape(tf.complex(x, y)), raw.Rank(input=tf.complex(x, y)),
        ],
        RE, IM,
    ),
    "rfft": (lambda x: [signal.rfft(x), signal.rfft(x, [6]), signal.rfft(x, [11])], RE),
    "irfft": (
        lambda a, b: [signal.irfft(tf.complex(a, b), n) for n in ([14], [15], [9])], RE, IM,
    ),
    "fft": of(lambda a, b: [signal.fft(a), signal.ifft(b)]),
    "fft2d": of(lambda a, b: [signal.fft2d(a), signal.ifft2d(b), signal.rfft2d(tf.math.real(a))]),
    "fft3d": of(lambda a, b: [signal.fft3d(a), signal.ifft3d(b), signal.rfft3d(tf.math.real(a))]),
    "irfft_axes": of(lambda a, b: [signal.irfft2d(a, [4, 13]), signal.irfft3d(b, [3, 4, 14])]),
    "broadcast_shapes": (
        lambda x: x + tf.cast(raw.BroadcastArgs(s0=[3, 1], s1=[4, 1, 5]), tf.float32), draw(2, 3)
    ),
    "fft_doubled": (lambda x: tf.abs(signal.rfft(x)), RE[0].astype(np.float64)),
}  # fmt: skip
NETWORKS: dict[str, tuple[Any, ...]] = {
    "sound_bins": (lambda x: [bins(x), tf.abs(bins(x)), tf.math.angle(bins(x) + 0.1)], SOUND),
    "sound_mel": (mel, SOUND),
    "sound_mfcc": (lambda x: signal.mfccs_from_log_mel_spectrograms(mel(x))[..., :7], SOUND),
    "sound_back": (lambda x: signal.inverse_stft(bins(x) * (0.5 + 1j), 60, 25, 64), SOUND),
    "sound_phases": (repeated, SOUND),
}
