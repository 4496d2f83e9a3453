"""What TVM hands back: tensors, and sizes that it keeps as tuples of integers."""

import numpy as np

from verax.runners.engines.tvm import as_array


class Tensor:
    """As TVM's tensors."""

    def numpy(self) -> np.ndarray:
        return np.array([[1.5, -2.0]], np.float32)


def test_sizes_become_an_array_as_tensors_do() -> None:
    sizes = as_array((2, 12, 7))
    assert sizes.dtype == np.int64 and sizes.tolist() == [2, 12, 7]
    assert as_array(Tensor()).dtype == np.float32
