"""Error models at work: honest float32 runtimes pass the judge's group test, mistakes do not.

Tensors are larger than in the cases, so that a model that is too wide or too narrow shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from witness import errors, evaluation, meaning, onnxruntime_says

from verax.ir.operator import Operator, as_tuple
from verax.judge.decide.criterion import decide
from verax.ops.sums.layer_normalization import LayerNormalization, RMSNormalization
from verax.ops.sums.linear import Gemm, MatMul
from verax.ops.sums.normalization import (
    BatchNormalization,
    GroupNormalization,
    InstanceNormalization,
)
from verax.ops.sums.response_normalization import LRN, LpNormalization
from verax.ops.windows.convolution import Conv
from verax.ops.windows.deconvolution import ConvTranspose
from verax.ops.windows.global_pooling import GlobalAveragePool
from verax.ops.windows.pooling import AveragePool, LpPool
from verax.records.verdict import Kind

torch = pytest.importorskip("torch", reason="torch is not installed")

F = torch.nn.functional
HONEST = (Kind.identical, Kind.rounding)
IMAGE = (2, 24, 18, 20)
C = (24,)
POSITIVE = "positive"
Subject = tuple[Operator, list[Any], dict[str, Any], Callable[..., Any], Operator | None]

SUBJECTS: list[Subject] = [
    (Conv(pads=((1, 1), (1, 1))), [IMAGE, (16, 24, 3, 3), (16,)], {"pads": [1] * 4},
     lambda x, w, b: F.conv2d(x, w, b, 1, 1), Conv(pads="SAME_UPPER", dilations=(2, 2))),
    (Conv(groups=24, strides=(2, 2), pads="SAME_UPPER"), [IMAGE, (24, 1, 3, 3), C],
     {"group": 24, "strides": [2, 2], "pads": [0, 0, 1, 1]},
     lambda x, w, b: F.conv2d(F.pad(x, (0, 1, 0, 1)), w, b, 2, 0, 1, 24),
     Conv(groups=24, strides=(2, 2), pads="SAME_LOWER")),
    (ConvTranspose(strides=(2, 2), pads=((1, 1), (1, 1))), [IMAGE, (24, 16, 4, 4), (16,)],
     {"strides": [2, 2], "pads": [1] * 4}, lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1),
     ConvTranspose(strides=(2, 2), pads=((0, 2), (1, 1)))),
    (AveragePool(kernel_shape=(3, 3), pads=((1, 1), (1, 1))), [IMAGE],
     {"kernel_shape": [3, 3], "pads": [1] * 4},
     lambda x: F.avg_pool2d(x, 3, 1, 1, False, False),
     AveragePool(kernel_shape=(3, 3), pads=((1, 1), (1, 1)), count_include_pad=True)),
    (LpPool(kernel_shape=(3, 2)), [IMAGE], {"kernel_shape": [3, 2]},
     lambda x: F.lp_pool2d(x, 2, (3, 2), 1), LpPool(kernel_shape=(3, 2), p=1)),
    (GlobalAveragePool(), [IMAGE], {}, lambda x: x.mean((2, 3), keepdim=True), None),
    (BatchNormalization(epsilon=1e-3), [IMAGE, C, C, C, POSITIVE], {"epsilon": 1e-3},
     lambda x, s, b, m, v: F.batch_norm(x, m, v, s, b, False, 0.0, 1e-3), BatchNormalization()),
    (InstanceNormalization(epsilon=1e-3), [IMAGE, C, C], {"epsilon": 1e-3},
     lambda x, s, b: F.instance_norm(x, None, None, s, b, True, 0.0, 1e-3),
     InstanceNormalization()),
    (GroupNormalization(num_groups=4), [IMAGE, C, C], {"num_groups": 4},
     lambda x, s, b: F.group_norm(x, 4, s, b), GroupNormalization(num_groups=3)),
    (LayerNormalization(), [(32, 200), (200,), (200,)], {},
     lambda x, s, b: F.layer_norm(x, (200,), s, b), LayerNormalization(epsilon=1e-3)),
    (RMSNormalization(), [(32, 200), (200,)], {},
     lambda x, s: F.rms_norm(x, (200,), s, 1e-5), RMSNormalization(epsilon=1e-3)),
    (LRN(size=5, alpha=0.5), [IMAGE], {"size": 5, "alpha": 0.5},
     lambda x: F.local_response_norm(x, 5, 0.5), LRN(size=5, alpha=2.5)),
    (LpNormalization(axis=1), [IMAGE], {"axis": 1},
     lambda x: F.normalize(x, dim=1), LpNormalization(axis=2)),
    (MatMul(), [(40, 300), (300, 50)], {}, torch.matmul, None),
    (Gemm(alpha=0.5, beta=0.25), [(40, 300), (300, 50), (50,)], {"alpha": 0.5, "beta": 0.25},
     lambda a, b, c: torch.addmm(c, a, b, alpha=0.5, beta=0.25), Gemm(alpha=0.5)),
]  # fmt: skip


def drawn(shapes: list[Any], shift: float) -> list[np.ndarray]:
    rng = np.random.default_rng(len(shapes))
    arrays = [np.abs(rng.standard_normal(C)) + 0.1 if s == POSITIVE else rng.standard_normal(s)
              for s in shapes]  # fmt: skip
    arrays[0] = arrays[0] + shift
    return [a.astype(np.float32) for a in arrays]


@pytest.mark.parametrize("shift", [0.0, 2.0])
@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda s: str(s[0]))
def test_honest_runtimes_are_judged_to_round(subject: Subject, shift: float) -> None:
    op, shapes, attributes, in_torch, _ = subject
    inputs = drawn(shapes, shift)
    want, error = meaning(op, *inputs)[0], errors(op, *inputs)[0]
    answers = {
        "promised": as_tuple(op.canonical(evaluation(op, inputs), *inputs))[0],
        "PyTorch": in_torch(*map(torch.from_numpy, inputs)).numpy(),
        "ONNX Runtime": onnxruntime_says(op.kind, inputs, attributes)[0],
    }
    for runtime, given in answers.items():
        decision = decide(given, want, error)
        assert decision.kind in HONEST, (runtime, decision)


@pytest.mark.parametrize("subject", [s for s in SUBJECTS if s[4]], ids=lambda s: str(s[0]))
def test_a_wrong_attribute_is_judged_a_mistake(subject: Subject) -> None:
    op, shapes, _, _, rival = subject
    assert rival is not None
    inputs = drawn(shapes, 0.0)
    given = as_tuple(rival.canonical(evaluation(rival, inputs), *inputs))[0]
    assert decide(given, meaning(op, *inputs)[0], errors(op, *inputs)[0]).kind is Kind.mistake


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda s: str(s[0]))
def test_a_small_error_in_one_channel_is_judged_a_mistake(subject: Subject) -> None:
    """One part in ten thousand of the second channel or column."""
    op, shapes, _, _, _ = subject
    inputs = drawn(shapes, 0.0)
    want = meaning(op, *inputs)[0]
    given = want.astype(np.float32)
    given[:, 1] *= np.float32(1.0001)
    assert decide(given, want, errors(op, *inputs)[0]).kind is Kind.mistake
