"""Weights that are computed are packed by moves to exactly what constants are packed to."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.compiler.kernels import harness as h
from tests.compiler.kernels.test_conv import Case, cases, grouped_cases, transposed_cases

from verax.compiler.kernels.convolution.emit import default_schedule, pack_conv_weights
from verax.compiler.kernels.convolution.moves import Move, weight_moves
from verax.compiler.kernels.target import Target


def moved(move: Move, source: np.ndarray, target: np.ndarray) -> None:
    """`move` by NumPy, within the bounds of both arrays."""
    index = np.indices(move.dims).reshape(len(move.dims), math.prod(move.dims))
    read = move.first + (np.array(move.read)[:, None] * index).sum(0)
    written = move.start + (np.array(move.written)[:, None] * index).sum(0)
    assert read.min() >= 0 and read.max() < source.size
    assert written.min() >= 0 and written.max() < target.size
    assert len(np.unique(written)) == written.size
    target[written] = source[read]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.one_of(cases(), grouped_cases(), transposed_cases()), st.booleans())
def test_moves_pack_as_constants_are_packed(case: Case, wide: bool) -> None:
    probe = h.blocked_strides(1, (1, 1, 1))
    spec = case.spec(probe, probe)
    schedule = default_schedule(spec, Target.named("avx512" if wide else "avx2"))
    found = weight_moves(spec, schedule)
    source = case.w.reshape(-1)
    if found.regrouped is not None:
        grouped = np.full(source.size, np.nan, np.float32)
        moved(found.regrouped, source, grouped)
        source = grouped
    packed = np.full(found.elements, 0.0 if found.gaps else np.nan, np.float32)
    for move in found.moves:
        moved(move, source, packed)
    np.testing.assert_array_equal(packed, pack_conv_weights(case.w, spec, schedule))
