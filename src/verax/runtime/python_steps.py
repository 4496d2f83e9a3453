"""Steps of a program that run in Python: nodes without a kernel, and rows that kernels counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np

from verax.runtime.program_binary import CountedStep, PythonStep, Tensor

PythonCall = Callable[[int, Sequence[np.ndarray | None]], Sequence[np.ndarray]]


def numpy_dtype(name: str) -> np.dtype:
    """The NumPy dtype called `name`, those of `ml_dtypes` included."""
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)


class BoundPython:
    """A Python step with views of its arena and weight tensors made once."""

    def __init__(
        self,
        step: PythonStep,
        call: PythonCall,
        arena: np.ndarray,
        weights: Sequence[tuple[int, np.ndarray]],
    ) -> None:
        """weights: as `ProgramBinary.weight_regions` gives them."""
        self.step, self.call = step, call
        regions = {"arena": [(0, arena)], "weights": weights}
        self.views: dict[Tensor, np.ndarray] = {
            t: tensor_view(regions[t.region], t)
            for t in (*step.inputs, *step.outputs)
            if t is not None and t.region in regions
        }

    def __call__(self, values: dict[str, np.ndarray], io: Sequence[np.ndarray]) -> None:
        def get(t: Tensor | None) -> np.ndarray | None:
            if t is None:
                return None
            if t.region == "python":
                return values[t.name]
            return io[t.offset].reshape(t.shape) if t.region == "io" else self.views[t]

        results = self.call(self.step.node, [get(t) for t in self.step.inputs])
        for tensor, result in zip(self.step.outputs, results, strict=True):
            if tensor.region == "python":
                values[tensor.name] = np.array(result, copy=True)
            else:
                destination = get(tensor)
                assert destination is not None
                destination[...] = result


class BoundCount:
    """A counted step with views of the arena made once."""

    def __init__(self, step: CountedStep, arena: np.ndarray) -> None:
        self.step, self.name = step, step.output.name
        self.rows, self.count = (tensor_view([(0, arena)], t) for t in (step.rows, step.count))
        self.before, self.max_rows = (slice(None),) * step.axis, self.rows.shape[step.axis]

    def __call__(self, values: dict[str, np.ndarray], io: Sequence[np.ndarray]) -> None:
        count = min(max(int(self.count[0]), 0), self.max_rows)
        values[self.name] = self.rows[(*self.before, slice(count))].copy()


def tensor_view(regions: Sequence[tuple[int, np.ndarray]], tensor: Tensor) -> np.ndarray:
    """A tensor in the arena or among the weights; regions: (offset, content) in rising order."""
    dtype = numpy_dtype(tensor.dtype)
    nbytes = int(np.prod(tensor.shape, dtype=np.int64)) * dtype.itemsize
    if not nbytes:  # it has no place
        return np.empty(tensor.shape, dtype)
    start, region = [r for r in regions if r[0] <= tensor.offset][-1]
    at = tensor.offset - start
    return region[at : at + nbytes].view(dtype).reshape(tensor.shape)
