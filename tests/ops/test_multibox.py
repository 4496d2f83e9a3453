"""Boxes of MultiBoxDetection go one by one, however many are compared at once."""

from __future__ import annotations

import numpy as np
import pytest

from verax.ir.operator import Evaluation
from verax.ir.types import TensorType
from verax.ops.images.multibox import MultiBoxDetection, overlap


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("count", [3, 256, 601])
def test_suppression_one_by_one(count: int, force: bool) -> None:
    random = np.random.default_rng(6600 + count)
    corner = random.uniform(0, 0.8, (count, 2))
    boxes = np.concatenate([corner, corner + random.uniform(0, 0.3, (count, 2))], -1)
    boxes[1] = boxes[0]
    wanted = random.integers(0, 3, count)
    got, op = wanted.copy(), MultiBoxDetection(nms_threshold=0.2, force_suppress=force)
    limit = float(np.float32(0.2))
    for i in range(count):
        for j in range(i + 1, count) if wanted[i] >= 0 else ():
            rival = wanted[j] >= 0 and (force or wanted[i] == wanted[j])
            if rival and overlap(boxes[i], boxes[j : j + 1])[0] >= limit:
                wanted[j] = -1
    op._suppress(Evaluation((TensorType.of(boxes.astype(np.float32)),), ()), got, boxes)
    np.testing.assert_array_equal(got, wanted)
    assert (wanted < 0).any() or count == 3
