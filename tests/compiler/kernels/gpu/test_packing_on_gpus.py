"""Right factors are packed on a GPU as on the CPU, for panels of any width."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.compiler.kernels.gpu.emulation import ORDERS, Emulated, numbers

from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.dtypes import FLOAT32
from verax.compiler.kernels.products.gemm import GemmSpec, Matrix, PackSpec, pack_b
from verax.compiler.kernels.sizes import entry, with_dims

N, K = entry(0), entry(1)


def compare(
    spec: PackSpec, b: np.ndarray, memory: np.ndarray, blocks: int, table: tuple[int, ...] = ()
) -> None:
    """b: (outer, inner, k, n), which lie in `memory`."""
    schedule = ConvSchedule(blocks=blocks)
    product = with_dims(spec.product, table)
    expected = np.concatenate(
        [pack_b(one, product, schedule) for one in b.reshape(-1, *b.shape[2:])]
    )
    kernel = Emulated(spec, schedule)
    for order in ORDERS[:2]:
        packed = np.full(expected.size + 16, 777.0, np.float32)
        kernel.run([memory, packed], order, table)
        assert packed[:-16].tobytes() == expected.tobytes()
        assert (packed[-16:] == 777.0).all()


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 90), st.integers(1, 21), st.integers(1, 3), st.integers(1, 4), st.booleans())
def test_factors_are_packed_as_on_the_cpu(
    n: int, k: int, outer: int, blocks: int, transposed: bool
) -> None:
    memory = numbers(np.random.default_rng(n), outer, 2, *((n, k) if transposed else (k, n)))
    b = memory.swapaxes(2, 3) if transposed else memory
    at = Matrix(*((1, k) if transposed else (n, 1)), 2 * n * k, n * k)
    product = GemmSpec(
        7, n, k, Matrix(k, 1), Matrix(n, 1), outer, 2, constant_b=False, types=FLOAT32
    )
    compare(PackSpec(product, at), b, memory, blocks)


@pytest.mark.parametrize("sizes", [(5, 3), (48, 19), (83, 16)], ids=str)
def test_factors_of_open_sizes_are_packed_as_on_the_cpu(sizes: tuple[int, int]) -> None:
    n, k = sizes
    b = numbers(np.random.default_rng(9), 1, 1, k, n)
    product = GemmSpec(7, N, K, Matrix(K, 1), Matrix(N, 1), constant_b=False, types=FLOAT32)
    compare(PackSpec(product, Matrix(N, 1)), b, b, 2, sizes)
