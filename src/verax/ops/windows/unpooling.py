"""Max-unpooling: elements put back where a max-pool found them, zeros elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from verax.base.errors import InputError
from verax.ir.dim import DimLike, is_known
from verax.ir.gains import Gain
from verax.ir.operator import Case, Evaluation, Inference, Operator, operator
from verax.ir.types import DType, TensorType
from verax.ops.windows.windows import (
    Fail,
    Ints,
    Pads,
    expect_dims,
    geometry,
    raise_graph_error,
    spatial_input,
)


@operator
class MaxUnpool(Operator):
    """Puts x [n, c, *spatial] at the positions `indices` of a tensor of zeros.

    Inputs: x; indices, int64 of x's shape, into the flattened output of the sizes that the window
    attributes give; optionally the output's shape, int64, not smaller: then that output stands at
    its beginning. Of equal indices the last one wins.
    """

    gains = (Gain.bounded,)
    kernel_shape: Ints
    strides: Ints = ()
    pads: Pads = ()

    min_inputs: ClassVar[int] = 2
    max_inputs: ClassVar[int | None] = 3
    exact: ClassVar[bool] = True

    def unpooled_dims(
        self, dims: Sequence[DimLike], fail: Fail = raise_graph_error
    ) -> tuple[DimLike, ...]:
        """The output's dimensions that the attributes give for an input with `dims`."""
        if len(self.kernel_shape) != len(dims) - 2:
            fail(f"kernel_shape is {self.kernel_shape}, the input has {len(dims) - 2} spatial axes")
        form = geometry(self.kernel_shape, self.strides, self.pads, fail=fail)
        if isinstance(form.pads, str):
            fail(f"pads must be numbers, not {form.pads!r}")
        sizes = tuple(
            (n - 1) * s + k - begin - end
            for n, s, k, (begin, end) in zip(dims[2:], form.strides, form.kernel_shape, form.pads)
        )
        if any(is_known(d) and d < 1 for d in sizes):
            fail(f"pads {form.pads} leave nothing of the output: {sizes}")
        return (*dims[:2], *sizes)

    def infer(self, ctx: Inference) -> Sequence[TensorType]:
        x = spatial_input(ctx, integers=True)
        ctx.require(ctx.type(1).dtype == DType.int64, "the indices must be int64")
        expect_dims(ctx, 1, x.dims, "indices")
        dims = self.unpooled_dims(x.dims, ctx.fail)
        if not ctx.has(2):
            return [x.with_dims(dims)]
        expect_dims(ctx, 2, (x.rank,), "output_shape")
        shape = ctx.value(2)
        if shape is None:
            return [x.with_dims([ctx.fresh() for _ in dims])]
        requested: list[DimLike] = [d if not isinstance(d, np.integer) else int(d) for d in shape]
        for small, large in zip(dims, requested):
            if is_known(small) and is_known(large) and large < small:
                ctx.fail(f"output_shape {requested} is smaller than the unpooled {dims}")
        return [x.with_dims(requested)]

    def reference(self, ev: Evaluation, x: Any, indices: Any, output_shape: Any = None) -> Any:
        shape = tuple(int(d) for d in self.unpooled_dims(x.shape))
        y = np.zeros(int(np.prod(shape)), x.dtype)
        if indices.size and (indices.min() < 0 or indices.max() >= y.size):
            raise InputError(
                f"an index lies outside of the {y.size} elements of the output",
                next_step="take the indices from a MaxPool with the same attributes",
            )
        y[indices.ravel()] = x.ravel()
        if output_shape is None:
            return y.reshape(shape)
        enlarged = np.zeros(tuple(int(d) for d in output_shape), x.dtype)
        if any(large < small for large, small in zip(enlarged.shape, shape)):
            raise InputError(f"output_shape {enlarged.shape} is smaller than the unpooled {shape}")
        enlarged[tuple(slice(0, n) for n in shape)] = y.reshape(shape)
        return enlarged

    def canonical(self, ev: Evaluation, *inputs: Any) -> Any:
        """The meaning in the declared dtype."""
        return self.reference(ev, *inputs)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        def case(
            label: str,
            shape: Ints,
            output_shape: Ints = (),
            dtype: str = "float32",
            **attributes: Any,
        ) -> Case:
            op = cls(**attributes)
            x = rng.standard_normal(shape) * 9
            size = int(np.prod([int(d) for d in op.unpooled_dims(shape)]))
            inputs = [x.astype(dtype), rng.permutation(size)[: x.size].reshape(shape)]
            inputs += [np.array(output_shape, np.int64)] if output_shape else []
            return Case(op, tuple(inputs), (2,) if output_shape else (), label)

        yield case("plain", (2, 3, 2, 4), kernel_shape=(2, 3), strides=(2, 3))
        yield case("pads", (2, 3, 4, 3), kernel_shape=(3, 4), strides=(2, 3), pads=((1, 0), (1, 2)))
        yield case("output_shape", (2, 1, 2, 3), (2, 1, 5, 7), kernel_shape=(2, 2), strides=(2, 2))
        yield case("one axis", (2, 3, 4), kernel_shape=(2,), strides=(3,))
        yield case("three axes", (1, 2, 2, 3, 2), kernel_shape=(2, 1, 3), strides=(2, 3, 2))
        yield case("int8", (2, 3, 2, 4), dtype="int8", kernel_shape=(2, 2), strides=(2, 2))
