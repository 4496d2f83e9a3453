"""A pass of one's own, with the mistake that compilers made: the sign of a scale is not asked for.

    verax bisect examples/digits/scales.onnx verax:O2 --inject examples/broken_fold_scale_axis.py

`fold_scale_axis` moves the scale of a BatchNorm through the Relu in front of it into the weights of
the convolution. relu(s x) = s relu(x) holds for s >= 0; Apache TVM's FoldScaleAxis did it for any s
(apache/tvm#2182). Verax's own pass, `fold_scales`, asks.
"""

from __future__ import annotations

import numpy as np

from verax.compiler.passes.affine import affine_of
from verax.compiler.passes.base import Pass, PassClass
from verax.ir.graph import Graph
from verax.ir.rewrite import Rewriter
from verax.ops.pointwise.activation import Relu
from verax.ops.pointwise.arithmetic import Add
from verax.ops.sums.normalization import BatchNormalization
from verax.ops.windows.convolution import Conv
from verax.records.trace import Trace


def fold_scale_axis(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Fold the scale of a BatchNormalization through a Relu into the convolution before it.

    Given:  %c = Conv()(%x, %w, %b); %r = Relu()(%c); %y = BatchNormalization()(%r, ...)
    Result: %c = Conv()(%x, %w s, %b s); %r = Relu()(%c); %y = Add()(%r, %shift)

    Numeric effect: rounding where s is positive; where it is negative, the result is wrong.
    """
    rewriter = Rewriter(graph, limit)
    for node in graph.nodes:
        relu = graph.producers.get(node.inputs[0] or "") if node.inputs else None
        conv = graph.producers.get(relu.inputs[0] or "") if relu is not None else None
        found = affine_of(graph, node) if isinstance(node.op, BatchNormalization) else None
        alone = all(
            before is not None
            and len(graph.consumers[before.outputs[0]]) == 1
            and before.outputs[0] not in graph.outputs
            for before in (relu, conv)
        )
        if found is None or conv is None or relu is None or not alone or rewriter.spent:
            rewriter.keep(node)
            continue
        if not isinstance(conv.op, Conv) or not isinstance(relu.op, Relu):
            rewriter.keep(node)
            continue
        scale, shift = found[1].scale, found[1].shift  # the mistake: no look at the sign of scale
        weights, bias = (graph.constants[v or ""] for v in conv.inputs[1:3])
        scaled = (weights * scale.reshape(-1, 1, 1, 1)).astype(np.float32)
        inputs = [
            rewriter.map(conv.inputs[0]),
            rewriter.constant(scaled),
            rewriter.constant((bias * scale).astype(np.float32)),
        ]
        value = rewriter.add(conv.op, inputs, f"{conv.name}_scaled")
        value = rewriter.add(Relu(), [value], f"{relu.name}_scaled")
        by_channel = rewriter.constant(shift.astype(np.float32).reshape(-1, 1, 1))
        made = rewriter.add(Add(), [value, by_channel], node.name, rewriter.names(node))
        rewriter.replace(node, made, "fold_scale_axis")
    return rewriter.finish()


PASS = Pass(fold_scale_axis, PassClass.reassociates, after=("fold_constants", "remove_identity"))
