"""A masked store writes its lanes and nothing behind them."""

from __future__ import annotations

import numpy as np
import pytest
from tests.compiler.kernels.native import TARGETS, Native

from verax.compiler.kernels.llvm.builder import ModuleBuilder
from verax.compiler.kernels.target import Target


@pytest.mark.parametrize("count", [1, 2, 3, 15, 16])
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32"])
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_first_lanes_of_truncated_numbers_are_stored_alone(
    target: Target, dtype: str, count: int
) -> None:
    """Of one lane of 16 bits LLVM 22 makes a store of 32 where the numbers were wider before."""
    module = ModuleBuilder("test", target)
    f = module.kernel("store", 2)
    with f.items():
        value = f.b.trunc(f.load(f.args[0], "int32"), f.vector_type(dtype))
        f.store_first(value, f.args[1], count)
    kernel = f.finish(1)
    source = np.arange(3, 19, dtype=np.int32)
    stored = np.full(20, 77, dtype)
    Native(module).run(kernel, [source, stored])
    np.testing.assert_array_equal(stored[:count], source[:count])
    assert (stored[count:] == 77).all()
